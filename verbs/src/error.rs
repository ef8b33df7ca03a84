//! What can go wrong for an application.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use weft_proto::transport::ConnectFailure;

use crate::layout::BadEntry;
use crate::protocol::ErrorCode;
use crate::shm::{OutOfRange, ShmError};

/// Why a call into the library failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no daemon at the socket, or it may not be opened.
    #[error("cannot reach weftd at {path}: {source}; is weftd running, and may this user open the socket?")]
    Unreachable {
        /** The socket. */
        path: PathBuf,
        /** What the system said. */
        source: io::Error,
    },
    /// The daemon has gone away or hung up: every queue pair of this application is lost.
    #[error("weftd closed the connection: it stopped or refused this application (see its log); attach again")]
    DaemonGone,
    /// The daemon, or the peer, did not answer in time.
    #[error("cannot {what}: no answer within {timeout:?}")]
    TimedOut {
        /** What was asked for. */
        what: &'static str,
        /** How long was waited. */
        timeout: Duration,
    },
    /// The daemon said no. Nothing changed.
    #[error("cannot {what}: {message}")]
    Refused {
        /** What was asked for. */
        what: &'static str,
        /** For programs. */
        code: ErrorCode,
        /** For people. */
        message: String,
    },
    /// The connection did not come about.
    #[error("cannot connect: {}", describe(*.reason))]
    ConnectFailed {
        /** Why. */
        reason: ConnectFailure,
        /** What the peer's application sent along. */
        private: Vec<u8>,
    },
    /// The queue pair failed or was closed while a connection was waited for.
    #[error("the connection closed before it was established")]
    Closed,
    /// The daemon said something that this version does not understand, or a shared ring makes no sense.
    #[error("weftd and this library do not understand each other ({0}); are they of the same version?")]
    Protocol(&'static str),
    /// A range lies outside of the memory region.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// Shared memory could not be created or mapped.
    #[error(transparent)]
    Memory(#[from] ShmError),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /** What was tried. */
        what: &'static str,
        /** What the system said. */
        source: io::Error,
    },
}

const fn describe(reason: ConnectFailure) -> &'static str {
    match reason {
        ConnectFailure::Unreachable => "the host does not answer; is weftd running there, and the link up?",
        ConnectFailure::Rejected => "the application there refused",
        ConnectFailure::NoListener => "no application listens on that service there",
        ConnectFailure::NoResources => "the host has no room for another connection",
        ConnectFailure::VersionMismatch => "the host runs another version of the transport",
    }
}

/// Why a work request was not taken. Nothing was queued, and there will be no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// As many requests as the queue holds are outstanding: poll completions first.
    #[error("the queue is full: poll its completion queue, then post again")]
    QueueFull,
    /// The message is longer than 2 GiB.
    #[error("the message is longer than 2147483648 bytes")]
    TooLong,
    /// More than four scatter/gather entries.
    #[error("more than 4 scatter/gather entries")]
    TooManySges,
    /// More inline data than a request has room for.
    #[error("more than 64 bytes of inline data")]
    TooMuchInline,
    /// The request asks for something that its operation does not have.
    #[error(transparent)]
    Meaningless(#[from] BadEntry),
    /// The queue pair takes its receives from a shared receive queue: post there.
    #[error("the queue pair takes its receives from a shared receive queue: post the receive there")]
    SharedReceives,
    /// The daemon is gone.
    #[error("weftd closed the connection; attach again")]
    DaemonGone,
}
