//! The messages of a transfer and the sender's window. Pure; see the module above for the course of a transfer.

use serde::{Deserialize, Serialize};

/// Tells these connections from others that reach the same service.
const MAGIC: &str = "weft-files";
/// Version of the protocol.
const VERSION: u32 = 1;
/// Longest message in bytes: a begin with a name of 255 bytes, each as up to three digits and a comma, and room to spare.
pub(super) const MAX_MESSAGE: u32 = 2048;
/// Largest chunk in bytes.
pub(super) const MAX_CHUNK: u32 = 16 << 20;
/// Most chunks on their way.
pub(super) const MAX_WINDOW: u32 = 256;
/// Most memory that a receiver opens to one sender, in bytes.
const MAX_OPEN: u64 = 256 << 20;
/// Longest text that goes into a message, in bytes: its JSON escapes take at most six times as much.
const MAX_TEXT: usize = 256;

/// What the sender says when it connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hello {
    magic: String,
    version: u32,
    /// Bytes of a chunk that the sender would like.
    pub(super) chunk: u32,
    /// Messages and chunks on their way that it would like.
    pub(super) window: u32,
}

impl Hello {
    pub(super) fn new(chunk: u32, window: u32) -> Self {
        Self { magic: MAGIC.to_owned(), version: VERSION, chunk, window }
    }

    /// Reads it, or says why the sender is turned down.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let value: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
        if value["magic"] != MAGIC {
            return Err("weftctl receive listens here, and takes files from weftctl cp only");
        }
        if value["version"] != VERSION {
            return Err("weftctl receive is of another version here; run the same version on both hosts");
        }
        serde_json::from_value(value).map_err(|_| "weftctl receive does not understand the greeting")
    }

    /// The chunk and window to grant: as asked for, within the receiver's limits.
    pub(super) fn granted(&self) -> (u32, u32) {
        let chunk = self.chunk.clamp(1024, MAX_CHUNK);
        let most = u32::try_from(MAX_OPEN / u64::from(chunk)).unwrap_or(MAX_WINDOW);
        (chunk, self.window.clamp(1, MAX_WINDOW.min(most)))
    }
}

/// What the receiver says when it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Grant {
    /// Bytes of a chunk.
    pub(super) chunk: u32,
    /// Messages and chunks on their way.
    pub(super) window: u32,
    /// Key of the memory for `window` chunks, from address 0.
    pub(super) rkey: u32,
}

impl Grant {
    /// Reads it, if it is one that a sender who asked for no more than `hello` can use.
    pub(super) fn decode(bytes: &[u8], hello: &Hello) -> Option<Self> {
        let grant: Self = serde_json::from_slice(bytes).ok()?;
        ((1..=hello.chunk).contains(&grant.chunk) && (1..=hello.window).contains(&grant.window)).then_some(grant)
    }
}

/// From the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToReceiver {
    /// A file follows.
    Begin {
        /// Its name, any bytes but `/` and NUL.
        name: Vec<u8>,
        /// Bytes that follow in chunks.
        size: u64,
        /// Permission bits.
        mode: u32,
    },
    /// The file is complete.
    End {
        /// Of what was sent.
        sha256: String,
    },
    /// There are no more files.
    Finish {
        /// How many there were.
        files: u64,
    },
    /// The sender gives up.
    Abort {
        /** Why. */
        message: String,
    },
}

/// From the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToSender {
    /// So many messages and chunks have been consumed since the beginning.
    Credit {
        /** How many. */
        consumed: u64,
    },
    /// A file has arrived and has its name. In the order of the files.
    Done {
        /** Of what was received. */
        sha256: String,
    },
    /// The receiver gives up.
    Refused {
        /** Why. */
        message: String,
        /** The data are not what was sent. */
        damaged: bool,
    },
}

/// A message as bytes, which always fit [`MAX_MESSAGE`].
pub(super) fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

/// The beginning of a text, short enough for a message.
pub(super) fn brief(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT)].to_owned()
}

/// How much the sender may have on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    limit: u64,
    sent: u64,
    consumed: u64,
}

impl Window {
    pub(super) fn new(limit: u32) -> Self {
        Self { limit: limit.into(), sent: 0, consumed: 0 }
    }

    pub(super) const fn has_room(&self) -> bool {
        self.sent - self.consumed < self.limit
    }

    /// A message or a chunk goes.
    pub(super) const fn send(&mut self) {
        self.sent += 1;
    }

    /// The receiver's count; false if it cannot be.
    #[must_use]
    pub(super) const fn credit(&mut self, consumed: u64) -> bool {
        let possible = self.consumed <= consumed && consumed <= self.sent;
        if possible {
            self.consumed = consumed;
        }
        possible
    }
}

#[cfg(test)]
mod tests;
