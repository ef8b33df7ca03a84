//! The control protocol: what `weftctl` and other tools say to `weftd` over its administration socket.
//!
//! JSON, one object per line, over a Unix stream socket. Several requests may be sent on one connection; answers come in the same order.
//!
//! ```text
//! > {"version":1,"id":7,"request":{"type":"qps","offset":0}}
//! < {"version":1,"id":7,"result":{"total":1,"offset":0,"items":[...]}}
//! < {"version":1,"id":7,"error":{"code":"bad_request","message":"...","hint":"..."}}
//! ```
//!
//! Requests are checked strictly, answers leniently: a reader ignores fields that it does not know, so a newer daemon may add some.
//! This module owns the messages and their text form. It never touches a socket.

mod line;
mod messages;
mod stop;

pub use line::{LineBuffer, LineTooLong};
pub use messages::*;
pub use stop::*;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::problem::{harmless, quoted};

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Longest request line in bytes, without its newline.
pub const MAX_REQUEST: usize = 64 << 10;
/// Longest reply line in bytes, without its newline.
pub const MAX_REPLY: usize = 1 << 20;
/// Entries of a list in one reply: at about 1 KiB for the largest kind, half of [`MAX_REPLY`].
pub const PAGE: usize = 512;

/// Longest piece of a bad request that a refusal repeats, in characters.
const MAX_QUOTED: usize = 200;

/// A request with its envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// [`VERSION`].
    pub version: u32,
    /// Chosen by the client, repeated in the reply.
    pub id: u64,
    /// What is asked.
    pub request: Request,
}

/// What a client may ask. The type of each result stands beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// [`Status`].
    Status,
    /// [`Page`] of [`PortInfo`].
    Ports {
        /// Entries to skip.
        #[serde(default)]
        offset: u64,
    },
    /// [`Page`] of [`PeerInfo`].
    Peers {
        /// Entries to skip.
        #[serde(default)]
        offset: u64,
    },
    /// [`Page`] of [`QpInfo`].
    Qps {
        /// Entries to skip.
        #[serde(default)]
        offset: u64,
    },
    /// [`QpInfo`] of one queue pair.
    Qp {
        /// Its number.
        qp: u32,
    },
    /// [`QpTrace`]: the last events of one queue pair.
    QpTrace {
        /// Its number.
        qp: u32,
        /// At most so many.
        #[serde(default = "all_events")]
        last: u32,
    },
    /// [`Page`] of [`FdbEntry`].
    Fdb {
        /// Entries to skip.
        #[serde(default)]
        offset: u64,
    },
    /// [`Page`] of [`QueueInfo`].
    Queues {
        /// Entries to skip.
        #[serde(default)]
        offset: u64,
    },
    /// [`Page`] of [`HostInfo`].
    Hosts {
        /// Entries to skip.
        #[serde(default)]
        offset: u64,
    },
    /// [`Counters`].
    Counters,
    /// [`StopInfo`]: stop control, with a part of its lists.
    StopShow {
        /// Entries of both lists to skip.
        #[serde(default)]
        offset: u64,
    },
    /// [`StopEvents`]: what happened to stop control.
    StopEvents {
        /// From this number on; absent = none of what has happened so far.
        #[serde(default)]
        since: Option<u64>,
    },
    /// [`StopSent`]: ask a host to stop or slow down, once.
    StopSend {
        /// Its name in `hosts`, or its address.
        host: String,
        /// Instead of the configured one, 0 to 15.
        #[serde(default)]
        priority: Option<u8>,
        /// Instead of the configured one, in ticks.
        #[serde(default)]
        timer: Option<u8>,
        /// Instead of the configured one, 0 to 15.
        #[serde(default)]
        rate: Option<u8>,
    },
    /// [`StopCancelled`]: tell a host that it may send again.
    StopCancel {
        /// Its name in `hosts`, or its address.
        host: String,
    },
    /// [`ConfigText`]: the effective configuration.
    Config,
    /// [`Reloaded`]: read the configuration file again.
    Reload,
    /// [`Stopping`]: end the daemon cleanly.
    Shutdown,
}

const fn all_events() -> u32 {
    u32::MAX
}

/// The types of request.
const REQUEST_TYPES: [&str; 17] = [
    "status",
    "ports",
    "peers",
    "qps",
    "qp",
    "qp_trace",
    "fdb",
    "queues",
    "hosts",
    "counters",
    "stop_show",
    "stop_events",
    "stop_send",
    "stop_cancel",
    "config",
    "reload",
    "shutdown",
];

/// An answer with its envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply<T> {
    /// [`VERSION`].
    pub version: u32,
    /// The request's; absent if the request was too broken to have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The answer.
    #[serde(flatten)]
    pub outcome: Outcome<T>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome<T> {
    /// What was asked for.
    Result(T),
    /// Why not.
    Error(ControlError),
}

/// A refusal, ready to be sent.
pub type ErrorReply = Reply<()>;

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}{}{hint}", if hint.is_empty() { "" } else { "; " })]
pub struct ControlError {
    /// For programs.
    pub code: ErrorCode,
    /// What happened.
    pub message: String,
    /// What to do about it; may be empty.
    #[serde(default)]
    pub hint: String,
}

/// Kinds of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The line is no JSON object.
    BadJson,
    /// The line is longer than allowed.
    TooLong,
    /// Another version of the protocol.
    BadVersion,
    /// The envelope or a parameter is wrong.
    BadRequest,
    /// No such type of request.
    UnknownRequest,
    /// The configuration file is faulty.
    BadConfig,
    /// The change needs a restart.
    RestartNeeded,
    /// The daemon cannot now.
    Busy,
    /// The daemon failed.
    Internal,
    /// A code that this reader does not know.
    #[serde(other)]
    Unknown,
}

impl ControlError {
    /// A refusal.
    pub fn new(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into() }
    }
}

impl Envelope {
    /// A request in this version of the protocol.
    pub const fn new(id: u64, request: Request) -> Self {
        Self { version: VERSION, id, request }
    }
}

impl<T> Reply<T> {
    /// A result.
    pub const fn result(id: u64, result: T) -> Self {
        Self { version: VERSION, id: Some(id), outcome: Outcome::Result(result) }
    }

    /// A refusal.
    pub const fn error(id: Option<u64>, error: ControlError) -> Self {
        Self { version: VERSION, id, outcome: Outcome::Error(error) }
    }
}

/// Reads a request line, with or without its newline. Total: anything that is no request becomes the refusal to send back.
///
/// # Errors
/// The refusal.
pub fn parse_request(line: &[u8]) -> Result<Envelope, ErrorReply> {
    if line.len() > MAX_REQUEST + 1 {
        return Err(Reply::error(None, too_long(MAX_REQUEST)));
    }
    let value: serde_json::Value = serde_json::from_slice(line).map_err(|error| Reply::error(None, bad_json(&error)))?;
    let id = value.get("id").and_then(serde_json::Value::as_u64);
    check_envelope(&value, id).map_err(|error| Reply::error(id, error))?;
    serde_json::from_value(value).map_err(|error| Reply::error(id, bad_request(&error)))
}

/// The refusal of a line that is too long.
pub fn too_long(limit: usize) -> ControlError {
    ControlError::new(ErrorCode::TooLong, format!("the line is longer than {limit} bytes"), "send one short JSON object per line")
}

fn bad_json(error: &serde_json::Error) -> ControlError {
    let hint = r#"send one JSON object per line, as in {"version":1,"id":1,"request":{"type":"status"}}"#;
    ControlError::new(ErrorCode::BadJson, format!("the request is not valid JSON: {error}"), hint)
}

fn bad_request(error: &serde_json::Error) -> ControlError {
    let message = format!("the request is not understood: {}", harmless(&error.to_string(), MAX_QUOTED));
    ControlError::new(ErrorCode::BadRequest, message, r#"it has the form {"version":1,"id":1,"request":{"type":"qps","offset":0}}"#)
}

fn unknown_request(word: &str) -> ControlError {
    let message = format!("there is no request of type {}", quoted(word));
    ControlError::new(ErrorCode::UnknownRequest, message, format!("the types are {}", REQUEST_TYPES.join(", ")))
}

/// Checks the version first, since the rest may differ in another one, then the id, without which no answer can be matched, then the type.
fn check_envelope(value: &serde_json::Value, id: Option<u64>) -> Result<(), ControlError> {
    let version = &value["version"];
    if version.as_u64() != Some(u64::from(VERSION)) {
        let message = format!("version {} of the control protocol is not spoken here", harmless(&version.to_string(), MAX_QUOTED));
        return Err(ControlError::new(ErrorCode::BadVersion, message, format!("send \"version\":{VERSION}")));
    }
    if id.is_none() {
        return Err(ControlError::new(ErrorCode::BadRequest, "the request has no id", "add \"id\", a number from 0 to 2^64 - 1"));
    }
    match value["request"]["type"].as_str() {
        Some(word) if !REQUEST_TYPES.contains(&word) => Err(unknown_request(word)),
        _ => Ok(()),
    }
}

/// A message as a line with its newline.
///
/// # Errors
/// `too_long` if the line exceeds `limit`, `internal` if the message has no JSON form.
pub fn encode_line<T: Serialize>(message: &T, limit: usize) -> Result<Vec<u8>, ControlError> {
    let internal = |error| ControlError::new(ErrorCode::Internal, format!("a message could not be written: {error}"), "");
    let mut line = serde_json::to_vec(message).map_err(internal)?;
    if line.len() > limit {
        return Err(too_long(limit));
    }
    line.push(b'\n');
    Ok(line)
}

/// Why a reply was of no use to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// The daemon refused.
    #[error(transparent)]
    Refused(#[from] ControlError),
    /// The line is not a reply of this protocol.
    #[error("the daemon's reply is not understood: {0}; are weftctl and weftd of the same version?")]
    Malformed(String),
    /// The reply belongs to another request.
    #[error("the daemon answered request {found:?} instead of {expected}")]
    WrongId {
        /** The request's. */
        expected: u64,
        /** The reply's. */
        found: Option<u64>,
    },
}

/// Reads the reply line to request `id`.
///
/// # Errors
/// If the daemon refused, or the line is not the answer to that request.
pub fn parse_reply<T: DeserializeOwned>(line: &[u8], id: u64) -> Result<T, ReplyError> {
    let reply: Reply<T> = serde_json::from_slice(line).map_err(|error| ReplyError::Malformed(error.to_string()))?;
    match reply.outcome {
        // A refusal of a request that could not be read has no id.
        Outcome::Error(error) if reply.id.is_none_or(|found| found == id) => Err(error.into()),
        Outcome::Result(result) if reply.id == Some(id) => Ok(result),
        _ => Err(ReplyError::WrongId { expected: id, found: reply.id }),
    }
}

#[cfg(test)]
mod tests;
