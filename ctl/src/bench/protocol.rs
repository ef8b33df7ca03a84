//! What both sides of a measurement say when they connect. Pure.

use serde::{Deserialize, Serialize};

use crate::session::Shape;

/// Tells these connections from others that reach the same service.
const MAGIC: &str = "weft-bench";
/// Version of the protocol.
const VERSION: u32 = 1;
/// Longest message in bytes.
pub(super) const MAX_SIZE: u32 = 16 << 20;
/// Most messages on their way.
pub(super) const MAX_DEPTH: u32 = 1024;
/// Shortest message to be sent back: a sequence number.
pub(super) const MIN_ECHO: u32 = 8;
/// Room for messages that are thrown away, in bytes, if the depth does not ask for more: a sender that finds none has to wait
/// and try again, and then the delay is measured and not the transport.
const SINK_MEMORY: u32 = 8 << 20;
/// Most memory for one measurement, in bytes.
const MAX_MEMORY: u64 = 256 << 20;

/// What the answering side does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// Sends every message back.
    Echo,
    /// Throws every message away.
    Sink,
    /// Opens memory.
    Write,
}

/// What the measuring side says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hello {
    magic: String,
    version: u32,
    pub(super) mode: Mode,
    /// Bytes of a message.
    pub(super) size: u32,
    /// Messages on their way.
    pub(super) depth: u32,
}

impl Hello {
    pub(super) fn new(mode: Mode, size: u32, depth: u32) -> Self {
        Self { magic: MAGIC.to_owned(), version: VERSION, mode, size, depth }
    }

    /// Reads it, or says why the other side is turned down.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let value: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
        if value["magic"] != MAGIC {
            return Err("weftctl serve listens here, and answers weftctl ping and bench only");
        }
        if value["version"] != VERSION {
            return Err("weftctl serve is of another version here; run the same version on both hosts");
        }
        let hello: Self = serde_json::from_value(value).map_err(|_| "weftctl serve does not understand the greeting")?;
        hello.check()?;
        Ok(hello)
    }

    /// Whether it keeps the limits.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !(1..=MAX_SIZE).contains(&self.size) || !(1..=MAX_DEPTH).contains(&self.depth) {
            return Err("the size or depth is out of range");
        }
        let slots = u64::from(self.serving().receives) + u64::from(self.serving().sends);
        if slots * u64::from(self.serving().slot) > MAX_MEMORY {
            return Err("size times depth needs more than 256 MiB; take less of one of them");
        }
        Ok(())
    }

    /// The answering side's mailbox: at least twice the depth, so that a message finds room while earlier ones are being handled.
    pub(super) fn serving(&self) -> Shape {
        let (receives, sends) = match self.mode {
            Mode::Echo => (2 * self.depth, self.depth),
            Mode::Sink => ((2 * self.depth).max(SINK_MEMORY / self.size.max(1)).min(4 * MAX_DEPTH), 1),
            Mode::Write => (1, 1),
        };
        let slot = if self.mode == Mode::Write { MIN_ECHO } else { self.size };
        Shape { slot, receives, sends, requests: 0, recovery: None }
    }

    /// The measuring side's mailbox.
    pub(super) fn measuring(&self) -> Shape {
        match self.mode {
            Mode::Echo => Shape { slot: self.size, receives: 2 * self.depth, sends: self.depth, requests: 0, recovery: None },
            Mode::Sink | Mode::Write => Shape { slot: MIN_ECHO, receives: 1, sends: 1, requests: self.depth, recovery: None },
        }
    }
}

/// What the answering side says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Key of `size` bytes of memory from address 0, if it was to open some.
    pub(super) rkey: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_comes_back_as_it_was_and_fits_the_private_data() {
        let hello = Hello::new(Mode::Write, MAX_SIZE, MAX_DEPTH);
        let bytes = serde_json::to_vec(&hello).unwrap();
        assert!(bytes.len() <= weft_verbs::protocol::MAX_PRIVATE);
        assert_eq!(Hello::decode(&bytes), Ok(hello));
    }

    #[test]
    fn greetings_of_others_are_turned_down_with_a_reason() {
        let reason = |text: &str| Hello::decode(text.as_bytes()).unwrap_err();
        assert!(reason("").contains("ping and bench only"));
        assert!(reason(r#"{"magic":"weft-files","version":1}"#).contains("ping and bench only"));
        assert!(reason(r#"{"magic":"weft-bench","version":2}"#).contains("another version"));
        assert!(reason(r#"{"magic":"weft-bench","version":1}"#).contains("not understand"));
        let encode = |mode, size, depth| serde_json::to_string(&Hello::new(mode, size, depth)).unwrap();
        assert!(reason(&encode(Mode::Echo, 0, 1)).contains("range"));
        assert!(reason(&encode(Mode::Echo, 64, MAX_DEPTH + 1)).contains("range"));
        assert!(reason(&encode(Mode::Sink, MAX_SIZE, 32)).contains("256 MiB"));
        assert!(Hello::decode(encode(Mode::Write, MAX_SIZE, MAX_DEPTH).as_bytes()).is_ok());
    }
}
