//! The measuring side's connection.

use std::path::Path;

use weft_verbs::{Context, Recovery};

use super::protocol::{Answer, Hello};
use crate::exit::{Exit, failure};
use crate::interrupt::Interrupt;
use crate::session::{Session, Shape, Target, explain};

/// A connection to `weftctl serve`.
pub(super) struct Client {
    pub(super) context: Context,
    pub(super) session: Session,
    pub(super) recovery: Recovery,
    pub(super) answer: Answer,
}

pub(super) fn connect(
    app_socket: &Path,
    (host, service): (&str, u16),
    hello: &Hello,
    recovery: Option<Recovery>,
    interrupt: &Interrupt,
) -> anyhow::Result<Client> {
    hello.check().map_err(|why| failure(Exit::Usage, why))?;
    let context = Context::attach(app_socket, "weftctl bench").map_err(|error| explain(error, "this host"))?;
    let target = Target { host, service, listener: "weftctl serve" };
    let shape = Shape { recovery, ..hello.measuring() };
    let (session, agreed) = Session::connect(&context, &target, &serde_json::to_vec(hello)?, shape, interrupt)?;
    let foreign = |_| failure(Exit::Failed, format!("{host}: something else than weftctl serve listens on service {service}"));
    let answer = serde_json::from_slice(&agreed.private).map_err(foreign)?;
    Ok(Client { context, session, recovery: agreed.recovery, answer })
}
