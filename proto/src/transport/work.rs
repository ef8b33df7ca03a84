//! Work requests and completions: what an application asks for and what it is told.

use crate::codes::codes;
use crate::transport::QpNum;

/// Scatter/gather entries in one work request.
pub const MAX_SGE: usize = 4;
/// Longest message in bytes (InfiniBand vol. 1, 9.7.8).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// A piece of registered local memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address in the application's view, inside the region of `lkey`.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// Up to [`MAX_SGE`] pieces of local memory, gathered or scattered in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SgList {
    entries: [Sge; MAX_SGE],
    count: u8,
}

impl SgList {
    /// No bytes.
    pub const EMPTY: Self = Self { entries: [Sge { addr: 0, len: 0, lkey: 0 }; MAX_SGE], count: 0 };

    /// The list of `entries`, or `None` if there are more than [`MAX_SGE`].
    pub fn new(entries: &[Sge]) -> Option<Self> {
        let mut list = Self::default();
        list.entries.get_mut(..entries.len())?.copy_from_slice(entries);
        list.count = u8::try_from(entries.len()).ok()?;
        Some(list)
    }

    /// The entries.
    pub fn entries(&self) -> &[Sge] {
        &self.entries[..usize::from(self.count)]
    }

    /// Sum of the lengths in bytes.
    pub fn total_len(&self) -> u64 {
        self.entries().iter().map(|sge| u64::from(sge.len)).sum()
    }
}

/// Most bytes that a request carries itself: as much as its list of pieces would take.
pub const MAX_INLINE: usize = 64;

/// Bytes copied when the request is posted, so that they need no registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline {
    bytes: [u8; MAX_INLINE],
    len: u8,
}

impl Inline {
    /// A copy of `data`, or `None` if it is longer than [`MAX_INLINE`].
    pub fn new(data: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_INLINE];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        Some(Self { bytes, len: u8::try_from(data.len()).ok()? })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The local side of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Registered memory: source of what is sent, target of what is read.
    List(SgList),
    /// The bytes themselves; only for what is sent.
    Inline(Inline),
}

impl Data {
    /// No bytes.
    pub const EMPTY: Self = Self::List(SgList::EMPTY);

    /// Length in bytes.
    pub fn total_len(&self) -> u64 {
        match self {
            Self::List(list) => list.total_len(),
            Self::Inline(inline) => u64::from(inline.len),
        }
    }
}

impl From<SgList> for Data {
    fn from(list: SgList) -> Self {
        Self::List(list)
    }
}

/// What an atomic does to eight bytes of memory, a number in the byte order of the machine that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Store `swap` if the value is `compare`.
    CompareSwap {
        /** The value expected. */
        compare: u64,
        /** The value to store. */
        swap: u64,
    },
    /// Add, modulo 2^64.
    FetchAdd {
        /** What to add. */
        add: u64,
    },
}

impl AtomicOp {
    /// The new value for an old one; `None`: it stays.
    pub const fn apply(self, old: u64) -> Option<u64> {
        match self {
            Self::CompareSwap { compare, swap } if old == compare => Some(swap),
            Self::CompareSwap { .. } => None,
            Self::FetchAdd { add } => Some(old.wrapping_add(add)),
        }
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Deliver into the peer's next posted receive.
    Send,
    /// The same, and make a key of the peer's void before its application is told.
    SendInvalidate {
        /// The peer's remote key.
        rkey: u32,
    },
    /// Write to the peer's memory.
    Write {
        /// Target address in the peer application's view.
        remote_addr: u64,
        /// The peer's remote key.
        rkey: u32,
    },
    /// Read from the peer's memory.
    Read {
        /// Source address in the peer application's view.
        remote_addr: u64,
        /// The peer's remote key.
        rkey: u32,
    },
    /// Change eight bytes of the peer's memory; what they were before goes to the local list, which has 8 bytes.
    Atomic {
        /// Address in the peer application's view, a multiple of 8.
        remote_addr: u64,
        /// The peer's remote key.
        rkey: u32,
        /// What to do.
        op: AtomicOp,
    },
    /// Make a local key void, after all earlier requests are done. Nothing is sent.
    LocalInvalidate {
        /// The key.
        key: u32,
    },
}

impl SendOp {
    /// True if the peer answers with bytes: a READ or an atomic.
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Atomic { .. })
    }
}

/// A request for the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWork {
    /// The application's own name for it, returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: SendOp,
    /// 32 bits delivered with the peer's receive completion; with `Write` this also consumes a receive.
    pub imm: Option<u32>,
    /// Ask for a completion also on success. A failure always completes.
    pub signaled: bool,
    /// Wake the peer if it waits for solicited completions only.
    pub solicited: bool,
    /// Start only when all earlier READs and atomics are done.
    pub fence: bool,
    /// The bytes to send, or where to put those read.
    pub local: Data,
}

impl SendWork {
    /// A request that asks for a completion, with nothing else.
    pub const fn new(wr_id: u64, op: SendOp, local: Data) -> Self {
        Self { wr_id, op, imm: None, signaled: true, solicited: false, fence: false, local }
    }
}

/// A request for the receive queue: where the next incoming message goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvWork {
    /// The application's own name for it, returned in the completion.
    pub wr_id: u64,
    /// Where the bytes go.
    pub local: SgList,
}

codes! {
    /// How a work request ended.
    pub enum Status {
        /// Done.
        Success = 0,
        /// The message is longer than the posted receive, or than a message may be.
        LocalLength = 1,
        /// A local key, range or right was wrong.
        LocalProtection = 2,
        /// Flushed: the queue pair failed or was closed before this request was done.
        Flushed = 3,
        /// The peer refused the access: key, range or right.
        RemoteAccess = 4,
        /// The peer found the request malformed, or longer than its receive.
        RemoteInvalidRequest = 5,
        /// The peer could not complete the request.
        RemoteOperational = 6,
        /// The peer did not answer within the retries.
        RetryExceeded = 7,
        /// The peer had no receive posted within the retries.
        RnrRetryExceeded = 8,
        /// The peer's node restarted: the connection is gone.
        PeerRestarted = 9,
        /// The peer asked for memory of ours that its key does not open.
        PeerAccess = 10,
        /// The peer's answer made no sense.
        BadResponse = 11,
    }
}

impl Status {
    /// What happened, for people.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::LocalLength => "message longer than the posted receive",
            Self::LocalProtection => "local key, range or access right refused",
            Self::Flushed => "flushed: the queue pair closed before this request was done",
            Self::RemoteAccess => "peer refused the access: key, range or right",
            Self::RemoteInvalidRequest => "peer found the request invalid",
            Self::RemoteOperational => "peer could not complete the request",
            Self::RetryExceeded => "peer did not answer within the retries",
            Self::RnrRetryExceeded => "peer posted no receive within the retries",
            Self::PeerRestarted => "peer node restarted",
            Self::PeerAccess => "peer asked for memory that its key does not open",
            Self::BadResponse => "peer answered with something that was not asked for",
        }
    }
}

codes! {
    /// Which kind of work a completion ends.
    pub enum CompletionOp {
        /// A SEND of ours was delivered.
        Send = 0,
        /// A WRITE of ours was placed.
        Write = 1,
        /// A message arrived in a posted receive.
        Recv = 2,
        /// A WRITE with immediate arrived and consumed a posted receive.
        RecvWriteImm = 3,
        /// A READ of ours arrived.
        Read = 4,
        /// An atomic of ours was done.
        Atomic = 5,
        /// A local key is void.
        LocalInvalidate = 6,
    }
}

/// The end of one work request. Exactly one per posted request (unsignalled successes excepted).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The application's name for the request.
    pub wr_id: u64,
    /// The queue pair.
    pub qp: QpNum,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub op: CompletionOp,
    /// Bytes of the message.
    pub byte_len: u32,
    /// The immediate that came with it.
    pub imm: Option<u32>,
    /// The key of ours that it made void.
    pub invalidated: Option<u32>,
    /// The sender asked for a solicited event.
    pub solicited: bool,
}

impl CompletionOp {
    /// True if it ends a receive, false if it ends a request.
    pub const fn is_receive(self) -> bool {
        matches!(self, Self::Recv | Self::RecvWriteImm)
    }
}
