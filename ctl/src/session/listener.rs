//! Connections that others ask for.

use weft_verbs::{Context, Error, Event, MacAddr, RequestId};

use super::{SLICE, explain};
use crate::exit::{Exit, failure};
use crate::interrupt::Interrupt;

/// Somebody who wants to connect.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    pub(crate) request: RequestId,
    pub(crate) peer: MacAddr,
    pub(crate) private: Vec<u8>,
}

/// A service of this application.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    context: Context,
}

impl Listener {
    pub(crate) fn open(context: &Context, service: u16) -> anyhow::Result<Self> {
        context.listen(service).map_err(|error| match error {
            Error::Refused { message, .. } => failure(
                Exit::Failed,
                format!("service {service}: {message}; end the other command that listens there, or choose another with --service"),
            ),
            other => explain(other, "this host"),
        })?;
        Ok(Self { context: context.clone() })
    }

    /// The next one within a moment, so that the caller can look after other things meanwhile.
    pub(crate) fn next(&self, interrupt: &Interrupt) -> anyhow::Result<Option<Incoming>> {
        interrupt.check()?;
        match self.context.next_event(SLICE).map_err(|error| explain(error, "this host"))? {
            Some(Event::ConnectRequest { request, peer, private, .. }) => Ok(Some(Incoming { request, peer, private })),
            _ => Ok(None),
        }
    }

    /// Turns somebody down and says why.
    pub(crate) fn reject(&self, incoming: &Incoming, why: &str) {
        let most = why.floor_char_boundary(weft_verbs::protocol::MAX_PRIVATE);
        // Whoever asked may have gone away meanwhile.
        let _ = self.context.reject(incoming.request, &why.as_bytes()[..most]);
    }
}
