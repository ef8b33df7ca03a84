//! What control thread and worker say to each other about applications.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use weft_proto::transport::{Access, AppId, CommandError, CqId, Keys, QpInit, QpNum, RequestId, SrqId};
use weft_proto::wire::MacAddr;
use weft_verbs::layout::{CompletionEntry, RecvEntry, SendEntry};
use weft_verbs::page::Page;
use weft_verbs::protocol::Event;
use weft_verbs::ring::{Consumer, Producer};
use weft_verbs::shm::Block;

/// Something for the worker to do for an application.
#[derive(Debug)]
pub struct AppCommand {
    /// For whom.
    pub app: AppId,
    /// Returned in the [`AppUpdate::Reply`].
    pub ticket: u64,
    /// What.
    pub action: AppAction,
}

/// What the worker can do for an application.
#[derive(Debug)]
pub enum AppAction {
    /// Take the application in.
    Attach {
        /** Its page. */
        page: Page,
        /** The eventfd that it writes when the worker sleeps. */
        doorbell: OwnedFd,
    },
    /// Register memory.
    Register {
        /** The memory, mapped. */
        block: Block,
        /** Address of its first byte in work requests. */
        base: u64,
        /** Rights. */
        access: Access,
    },
    /// Forget a region.
    Deregister {
        /** Its local key. */
        lkey: u32,
    },
    /// Take a completion queue in.
    CreateCq {
        /** Its ring. */
        ring: Producer<CompletionEntry>,
        /** A byte here wakes the application. */
        wake: UnixStream,
    },
    /// Destroy a completion queue.
    DestroyCq {
        /** Which. */
        cq: CqId,
    },
    /// Create a queue pair.
    CreateQp {
        /** Its depths and completion queues. */
        init: QpInit,
        /** Its send ring. */
        send_ring: Consumer<SendEntry>,
        /** Its receive ring. */
        recv_ring: Consumer<RecvEntry>,
    },
    /// Destroy a queue pair.
    DestroyQp {
        /** Which. */
        qp: QpNum,
    },
    /// Create a shared receive queue.
    CreateSrq {
        /** Most receives outstanding. */
        depth: u32,
        /** Its ring. */
        ring: Consumer<RecvEntry>,
    },
    /// Destroy a shared receive queue.
    DestroySrq {
        /** Which. */
        srq: SrqId,
    },
    /// Tell when a shared receive queue runs low.
    SetSrqLimit {
        /** Which. */
        srq: SrqId,
        /** When fewer receives than this are left; 0 = never. */
        limit: u32,
    },
    /// Begin no further requests.
    Drain {
        /** Of which queue pair. */
        qp: QpNum,
    },
    /// Go on with requests.
    Resume {
        /** Of which queue pair. */
        qp: QpNum,
    },
    /// Listen on a service.
    Listen {
        /** Which. */
        service: u16,
    },
    /// Stop listening.
    Unlisten {
        /** The service. */
        service: u16,
    },
    /// Connect a queue pair.
    Connect {
        /** Which. */
        qp: QpNum,
        /** The peer. */
        peer: MacAddr,
        /** The service there. */
        service: u16,
        /** For the application there. */
        private: Vec<u8>,
    },
    /// Accept a connection request.
    Accept {
        /** Which. */
        request: RequestId,
        /** With which queue pair. */
        qp: QpNum,
        /** For the application there. */
        private: Vec<u8>,
    },
    /// Turn a connection request down.
    Reject {
        /** Which. */
        request: RequestId,
        /** For the application there. */
        private: Vec<u8>,
    },
    /// Close a connection.
    Disconnect {
        /** Of which queue pair. */
        qp: QpNum,
    },
    /// The application is gone: let go of everything of it.
    Release,
}

/// What the worker made of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppDone {
    /// Done, or under way.
    Done,
    /// The region's keys.
    Registered(Keys),
    /// The completion queue's name.
    CqCreated(CqId),
    /// The queue pair's number, and its doorbell in the application page.
    QpCreated(QpNum, u16),
    /// The shared receive queue's name, and its doorbell in the application page.
    SrqCreated(SrqId, u16),
}

/// News from the worker about an application.
#[derive(Debug)]
pub enum AppUpdate {
    /// The answer to a command.
    Reply {
        /** Whose. */
        app: AppId,
        /** Of the command. */
        ticket: u64,
        /** What came of it. */
        result: Result<AppDone, CommandError>,
        /** Memory that the worker no longer touches: unmapping it takes too long there. */
        retired: Vec<Block>,
    },
    /// Something for the application to know.
    Event {
        /** Who. */
        app: AppId,
        /** What. */
        event: Event,
    },
}
