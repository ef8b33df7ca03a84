//! The measuring side's connections.

use std::path::Path;

use weft_verbs::{Context, Recovery};

use super::protocol::{Answer, Hello, NOT_UNDERSTOOD};
use crate::exit::{Exit, failure, of};
use crate::interrupt::Interrupt;
use crate::session::{Session, Shape, Target, explain};

/// What a queue pair should be like, if not as the daemon is configured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    pub(super) recovery: Option<Recovery>,
    pub(super) priority: Option<u8>,
}

impl Wishes {
    pub(super) const NONE: Self = Self { recovery: None, priority: None };
}

/// A connection to `weftctl serve`.
pub(super) struct Client {
    pub(super) session: Session,
    pub(super) recovery: Recovery,
    pub(super) answer: Answer,
}

pub(super) fn attach(app_socket: &Path) -> anyhow::Result<Context> {
    Context::attach(app_socket, "weftctl bench").map_err(|error| explain(error, "this host"))
}

pub(super) fn connect(
    context: &Context,
    (host, service): (&str, u16),
    hello: &Hello,
    wishes: Wishes,
    interrupt: &Interrupt,
) -> anyhow::Result<Client> {
    hello.check().map_err(|why| failure(Exit::Usage, why))?;
    let target = Target { host, service, listener: "weftctl serve" };
    let shape = Shape { recovery: wishes.recovery, priority: wishes.priority, ..hello.measuring() };
    let (session, agreed) = Session::connect(context, &target, &serde_json::to_vec(hello)?, shape, interrupt).map_err(older)?;
    let foreign = |_| failure(Exit::Failed, format!("{host}: something else than weftctl serve listens on service {service}"));
    let answer = serde_json::from_slice(&agreed.private).map_err(foreign)?;
    Ok(Client { session, recovery: agreed.recovery, answer })
}

/// An answering side that does not know what it is asked for is an older one.
fn older(error: anyhow::Error) -> anyhow::Error {
    let message = error.to_string();
    if !message.contains(NOT_UNDERSTOOD) {
        return error;
    }
    failure(
        of(&error),
        format!("{message}: it is older than this weftctl, and this measurement is new; run the same version on both hosts"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_answering_side_is_named_as_what_is_wrong() {
        let refused = older(failure(Exit::Unreachable, format!("b refuses the connection: {NOT_UNDERSTOOD}")));
        assert!(refused.to_string().contains("older than this weftctl"), "{refused}");
        assert_eq!(of(&refused), Exit::Unreachable);
        let other = older(failure(Exit::Usage, "something else"));
        assert_eq!((other.to_string().as_str(), of(&other)), ("something else", Exit::Usage));
    }
}
