//! The attach protocol: what application and daemon say over the attach socket.
//!
//! One JSON object per message of a `SOCK_SEQPACKET` Unix socket, at most [`MAX_MESSAGE`] bytes, with up to
//! [`MAX_FDS`] file descriptors. The application sends [`Request`]s, each with a number of its choice; the daemon
//! answers each exactly once with [`FromDaemon::Reply`] or [`FromDaemon::Error`], and sends [`FromDaemon::Event`]s in
//! between. The first request must be [`Command::Hello`]. Only set-up goes this way: work goes through the rings.
//!
//! | request | descriptors with it | descriptors with the reply |
//! | --- | --- | --- |
//! | `hello` | | application page (memfd), doorbell (eventfd) |
//! | `register_memory` | the region (memfd with `F_SEAL_SHRINK`) | |
//! | `create_cq` | | completion ring (memfd), wake channel (stream socket) |
//! | `create_qp` | | send ring, receive ring (memfds) |
//! | `create_srq` | | receive ring (memfd) |
//!
//! A completion queue wakes its application through a socket pair and not an eventfd, because both ends of an eventfd
//! share its flags: an application could make it blocking, fill it, and so stop the daemon's worker.

use serde::{Deserialize, Serialize};
use weft_proto::transport::{Access, ConnectFailure, CqId, QpNum, Recovery, RequestId, SrqId, Status};
use weft_proto::wire::MacAddr;

/// Most bytes of a message.
pub const MAX_MESSAGE: usize = 64 * 1024;
/// Most file descriptors with a message.
pub const MAX_FDS: usize = 2;
/// Most bytes of an application's name.
pub const MAX_NAME: usize = 64;
/// Most bytes of private data in a connection message.
pub const MAX_PRIVATE: usize = 192;

/// What an application asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Chosen by the application, returned in the answer.
    pub id: u64,
    /// The request itself.
    pub command: Command,
}

/// The requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Attach. The first request, once.
    Hello {
        /** [`crate::layout::VERSION`] of the application. */
        version: u32,
        /** What to call the application in tables and logs. */
        name: String,
    },
    /// Register the memory that comes along.
    RegisterMemory {
        /** Address of its first byte in work requests. */
        base: u64,
        /** Bytes. */
        len: u64,
        /** Rights. */
        #[serde(with = "AccessForm")]
        access: Access,
    },
    /// Forget a region.
    DeregisterMemory {
        /** Its local key. */
        lkey: u32,
    },
    /// Create a completion queue.
    CreateCq {
        /** Completions that it must hold. */
        depth: u32,
    },
    /// Destroy a completion queue that no queue pair uses.
    DestroyCq {
        /** Which. */
        #[serde(with = "CqIdForm")]
        cq: CqId,
    },
    /// Create a queue pair.
    CreateQp {
        /** Completions of the send queue. */
        #[serde(with = "CqIdForm")]
        send_cq: CqId,
        /** Completions of the receive queue. */
        #[serde(with = "CqIdForm")]
        recv_cq: CqId,
        /** Most send requests outstanding. */
        sq_depth: u32,
        /** Most receive requests outstanding; not used with a shared receive queue. */
        rq_depth: u32,
        /** Recovery mode to offer, or the daemon's. */
        recovery: Option<RecoveryOffer>,
        /** Priority for stop control, 0 to 15, or the daemon's. */
        priority: Option<u8>,
        /** The shared receive queue to take receives from, if any. */
        srq: Option<SrqName>,
    },
    /// Destroy a queue pair; outstanding requests complete as flushed.
    DestroyQp {
        /** Which. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
    },
    /// Create a shared receive queue.
    CreateSrq {
        /** Most receive requests outstanding. */
        depth: u32,
    },
    /// Destroy a shared receive queue that no queue pair uses. Its receives get no completions.
    DestroySrq {
        /** Which. */
        #[serde(with = "SrqIdForm")]
        srq: SrqId,
    },
    /// Ask for an [`Event::SrqLimit`] once fewer receives than this are left.
    SetSrqLimit {
        /** Which. */
        #[serde(with = "SrqIdForm")]
        srq: SrqId,
        /** Receives; 0 = no event. */
        limit: u32,
    },
    /// Begin no further requests of a queue pair. [`Event::SendQueueDrained`] tells when those begun are done.
    Drain {
        /** Which. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
    },
    /// Go on with the requests of a queue pair that was drained, or whose send queue failed.
    Resume {
        /** Which. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
    },
    /// Take connection requests to a service.
    Listen {
        /** The service. */
        service: u16,
    },
    /// Stop taking them.
    Unlisten {
        /** The service. */
        service: u16,
    },
    /// Connect a queue pair. The outcome is an [`Event`].
    Connect {
        /** Which. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
        /** A host's name in the daemon's configuration, or its Ethernet address. */
        host: String,
        /** The service there. */
        service: u16,
        /** For the peer's application. */
        private: Vec<u8>,
    },
    /// Accept a connection request.
    Accept {
        /** Which. */
        #[serde(with = "RequestIdForm")]
        request: RequestId,
        /** The queue pair to connect. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
        /** For the peer's application. */
        private: Vec<u8>,
    },
    /// Turn a connection request down.
    Reject {
        /** Which. */
        #[serde(with = "RequestIdForm")]
        request: RequestId,
        /** For the peer's application. */
        private: Vec<u8>,
    },
    /// Close the connection of a queue pair. [`Event::Disconnected`] tells when it is done.
    Disconnect {
        /** Which. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
    },
}

impl Command {
    /// What is asked for, for people: completes "cannot ...".
    pub const fn description(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "attach",
            Self::RegisterMemory { .. } => "register memory",
            Self::DeregisterMemory { .. } => "deregister memory",
            Self::CreateCq { .. } => "create a completion queue",
            Self::DestroyCq { .. } => "destroy the completion queue",
            Self::CreateQp { .. } => "create a queue pair",
            Self::DestroyQp { .. } => "destroy the queue pair",
            Self::CreateSrq { .. } => "create a shared receive queue",
            Self::DestroySrq { .. } => "destroy the shared receive queue",
            Self::SetSrqLimit { .. } => "set the limit of the shared receive queue",
            Self::Drain { .. } => "drain the send queue",
            Self::Resume { .. } => "resume the send queue",
            Self::Listen { .. } => "listen",
            Self::Unlisten { .. } => "stop listening",
            Self::Connect { .. } => "connect",
            Self::Accept { .. } => "accept the connection",
            Self::Reject { .. } => "reject the connection",
            Self::Disconnect { .. } => "disconnect",
        }
    }
}

/// What the daemon says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum FromDaemon {
    /// A request was carried out.
    Reply {
        /** Its number. */
        id: u64,
        /** What came of it. */
        reply: Reply,
    },
    /// A request was refused, and nothing changed.
    Error {
        /** Its number; 0 if the message could not be understood, after which the daemon hangs up. */
        id: u64,
        /** For programs. */
        code: ErrorCode,
        /** For people: what is wrong and what to do. */
        message: String,
    },
    /// Something happened.
    Event {
        /** What. */
        event: Event,
    },
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// The application is attached.
    Welcome {
        /** [`crate::layout::VERSION`] of the daemon. */
        version: u32,
        /** The host's Ethernet address. */
        #[serde(with = "mac_form")]
        mac: MacAddr,
    },
    /// The region is registered.
    Registered {
        /** Names it in local scatter/gather entries. */
        lkey: u32,
        /** Opens it to a peer. */
        rkey: u32,
    },
    /// The completion queue exists.
    CqCreated {
        /** Its name. */
        #[serde(with = "CqIdForm")]
        cq: CqId,
        /** Entries of its ring. */
        capacity: u32,
    },
    /// The queue pair exists.
    QpCreated {
        /** Its number. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
        /** Its doorbell in the application page. */
        slot: u16,
        /** Entries of its send ring. */
        sq_capacity: u32,
        /** Entries of its receive ring. */
        rq_capacity: u32,
    },
    /// The shared receive queue exists.
    SrqCreated {
        /** Its name. */
        #[serde(with = "SrqIdForm")]
        srq: SrqId,
        /** Its doorbell in the application page. */
        slot: u16,
        /** Entries of its ring. */
        capacity: u32,
    },
    /// Done, or under way.
    Done,
}

/// Something that happened to an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// A peer wants to connect to a service that the application listens on.
    ConnectRequest {
        /** To be accepted or rejected. */
        #[serde(with = "RequestIdForm")]
        request: RequestId,
        /** The service. */
        service: u16,
        /** Who asks. */
        #[serde(with = "mac_form")]
        peer: MacAddr,
        /** What it sent along. */
        private: Vec<u8>,
    },
    /// The connection stands; the queue pair may send.
    Established {
        /** The queue pair. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
        /** What the peer sent along. */
        private: Vec<u8>,
        /** The recovery mode agreed on. */
        #[serde(with = "RecoveryForm")]
        recovery: Recovery,
    },
    /// The connection did not come about.
    ConnectFailed {
        /** The queue pair. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
        /** Why. */
        #[serde(with = "ConnectFailureForm")]
        reason: ConnectFailure,
        /** What the peer sent along, if it answered. */
        private: Vec<u8>,
    },
    /// The connection is closed, and all work flushed.
    Disconnected {
        /** The queue pair. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
    },
    /// The queue pair failed, and all work is flushed.
    QpFailed {
        /** The queue pair. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
        /** Why. */
        #[serde(with = "StatusForm")]
        status: Status,
    },
    /// All requests begun before a drain was asked for are done.
    SendQueueDrained {
        /** The queue pair. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
    },
    /// A request was refused before any of it was sent: the requests behind it are flushed, receiving goes on.
    SendQueueFailed {
        /** The queue pair. */
        #[serde(with = "QpNumForm")]
        qp: QpNum,
        /** Why. */
        #[serde(with = "StatusForm")]
        status: Status,
    },
    /// A shared receive queue holds fewer receives than its limit. Told once each time the limit is set.
    SrqLimit {
        /** The queue. */
        #[serde(with = "SrqIdForm")]
        srq: SrqId,
    },
    /// A receive without meaning was posted to a shared receive queue: it takes no more, and the queue pairs on it fail.
    SrqFailed {
        /** The queue. */
        #[serde(with = "SrqIdForm")]
        srq: SrqId,
    },
    /// A completion found no room. The queue gets no more completions, and the queue pairs on it are disconnected.
    CqOverrun {
        /** The completion queue. */
        #[serde(with = "CqIdForm")]
        cq: CqId,
    },
}

/// Why a request was refused, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The message is not a request, or comes with the wrong descriptors.
    BadMessage,
    /// Application and daemon are of different versions.
    VersionMismatch,
    /// A number or text is out of range.
    BadArgument,
    /// The memory that came along cannot be used.
    BadMemory,
    /// The host's name is not configured.
    UnknownHost,
    /// No such queue pair, completion queue, shared receive queue, region or connection request of this application.
    NotFound,
    /// The state of the queue pair or completion queue does not allow it.
    WrongState,
    /// This application, or all together, have as many as is allowed.
    LimitReached,
    /// Another application listens on the service.
    ServiceInUse,
    /// This daemon has no transport: no port with the role `host` is configured.
    NoTransport,
    /// The system had no memory or descriptors left.
    System,
}

/// A recovery mode to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecoveryOffer(#[serde(with = "RecoveryForm")] pub Recovery);

/// A shared receive queue where there may be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SrqName(#[serde(with = "SrqIdForm")] pub SrqId);

#[derive(Serialize, Deserialize)]
#[serde(remote = "Access", deny_unknown_fields)]
struct AccessForm {
    local_write: bool,
    remote_write: bool,
    remote_read: bool,
    remote_atomic: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "CqId")]
struct CqIdForm(u32);

#[derive(Serialize, Deserialize)]
#[serde(remote = "QpNum")]
struct QpNumForm(u32);

#[derive(Serialize, Deserialize)]
#[serde(remote = "SrqId")]
struct SrqIdForm(u32);

#[derive(Serialize, Deserialize)]
#[serde(remote = "RequestId")]
struct RequestIdForm(u32);

#[derive(Serialize, Deserialize)]
#[serde(remote = "Recovery", rename_all = "kebab-case")]
enum RecoveryForm {
    Irn,
    IrnStrict,
    SelectiveNoSack,
    GoBackN,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ConnectFailure", rename_all = "snake_case")]
enum ConnectFailureForm {
    Unreachable,
    Rejected,
    NoListener,
    NoResources,
    VersionMismatch,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Status", rename_all = "snake_case")]
enum StatusForm {
    Success,
    LocalLength,
    LocalProtection,
    Flushed,
    RemoteAccess,
    RemoteInvalidRequest,
    RemoteOperational,
    RetryExceeded,
    RnrRetryExceeded,
    PeerRestarted,
    PeerAccess,
    BadResponse,
}

/// An Ethernet address as text.
mod mac_form {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use weft_proto::wire::MacAddr;

    pub(super) fn serialize<S: Serializer>(mac: &MacAddr, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(mac)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MacAddr, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(|_| D::Error::custom("not an Ethernet address"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_documented() {
        let connect = Command::Connect { qp: QpNum(7), host: "b".into(), service: 9, private: vec![1] };
        let text = serde_json::to_string(&Request { id: 3, command: connect.clone() }).unwrap();
        assert_eq!(text, r#"{"id":3,"command":{"type":"connect","qp":7,"host":"b","service":9,"private":[1]}}"#);
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap().command, connect);
        let event = Event::ConnectRequest { request: RequestId(1), service: 2, peer: MacAddr([2, 0, 0, 0, 0, 1]), private: vec![] };
        let text = serde_json::to_string(&FromDaemon::Event { event: event.clone() }).unwrap();
        assert!(text.contains(r#""peer":"02:00:00:00:00:01""#), "{text}");
        assert_eq!(serde_json::from_str::<FromDaemon>(&text).unwrap(), FromDaemon::Event { event });
    }

    #[test]
    fn a_recovery_offer_a_priority_and_a_shared_receive_queue_may_be_left_out() {
        let text = r#"{"type":"create_qp","send_cq":0,"recv_cq":0,"sq_depth":1,"rq_depth":1}"#;
        assert!(matches!(serde_json::from_str(text).unwrap(), Command::CreateQp { recovery: None, priority: None, srq: None, .. }));
        let text = text.replace('}', r#","recovery":"go-back-n","priority":9,"srq":3}"#);
        let (offer, shared) = (Some(RecoveryOffer(Recovery::GoBackN)), Some(SrqName(SrqId(3))));
        let command = serde_json::from_str(&text).unwrap();
        assert!(matches!(command, Command::CreateQp { recovery, priority: Some(9), srq, .. } if (recovery, srq) == (offer, shared)));
    }

    #[test]
    fn unknown_requests_and_fields_are_refused() {
        for bad in
            [r#"{"type":"fly"}"#, r#"{"type":"listen"}"#, r#"{"type":"listen","service":65536}"#, r#"{"type":"listen","service":1,"x":1}"#]
        {
            assert!(serde_json::from_str::<Command>(bad).is_err(), "{bad}");
        }
    }
}
