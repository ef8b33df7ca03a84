//! The bytes that application and daemon share: ring entries and the places of control words.
//!
//! Every structure is fixed in size, in the byte order of the machine (both sides run on it), with its size asserted
//! when compiling. Nothing here is trusted: an entry is copied out of shared memory once, then decoded into the core's
//! types, and every value that has no meaning is a [`BadEntry`].

use weft_proto::transport::work::{MAX_INLINE, MAX_SGE};
use weft_proto::transport::{AtomicOp, Completion, CompletionOp, Data, Inline, QpNum, RecvWork, SendOp, SendWork, SgList, Sge, Status};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of this layout and of the attach protocol; both sides must have the same.
pub const VERSION: u32 = 3;

/// Where a ring's producer publishes how many entries it has written. Each word has a cache line (64 bytes) of its own,
/// so that the two sides do not fight over one.
pub const RING_PRODUCER: usize = 0;
/// Where a ring's consumer publishes how many entries it has taken.
pub const RING_CONSUMER: usize = 64;
/// Set by a consumer that wants to be woken: [`ARMED_ANY`] or [`ARMED_URGENT`].
pub const RING_ARMED: usize = 128;
/// Where a ring's entries begin.
pub const RING_ENTRIES: usize = 192;
/// The consumer wants to be woken at the next entry.
pub const ARMED_ANY: u32 = 1;
/// The consumer of a completion ring wants to be woken at the next solicited or failed completion.
pub const ARMED_URGENT: u32 = 2;
/// Most entries of a ring.
pub const MAX_RING: u32 = 1 << 17;

/// Queue pairs and shared receive queues that an application page has doorbells for.
pub const DOORBELLS: usize = 4096;
/// Doorbell bits are kept in so many 64-bit words.
pub const DOORBELL_WORDS: usize = DOORBELLS / 64;
/// In the application page: not 0 while the daemon's worker sleeps and wants the doorbell's eventfd written.
pub const PAGE_SLEEPING: usize = 0;
/// In the application page: bit `w` is set if doorbell word `w` may have a bit set.
pub const PAGE_SUMMARY: usize = 64;
/// In the application page: the doorbell words, a bit per queue pair or shared receive queue.
pub const PAGE_DOORBELLS: usize = 128;
/// Bytes of the application page.
pub const PAGE_LEN: usize = PAGE_DOORBELLS + DOORBELL_WORDS * 8;

/// What an entry can be decoded from and encoded to.
pub trait Entry: FromBytes + IntoBytes + Immutable {}

/// A value in an entry that has no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// No such operation.
    #[error("unknown operation {0}")]
    Operation(u8),
    /// A flag that is not defined.
    #[error("unknown flags {0:#x}")]
    Flags(u8),
    /// More scatter/gather entries than there is room for.
    #[error("{0} scatter/gather entries, at most 4 are allowed")]
    SgeCount(u8),
    /// More inline data than there is room for.
    #[error("{0} bytes of inline data, at most 64 are allowed")]
    InlineLength(u8),
    /// Only a SEND or a WRITE carries an immediate.
    #[error("an immediate with an operation other than SEND and WRITE")]
    Immediate,
    /// Only what ends a receive of the peer can wake it.
    #[error("a solicited event with an operation that ends no receive of the peer")]
    Solicited,
    /// Only what is sent can be inline.
    #[error("inline data with an operation that sends none")]
    Inline,
    /// An atomic returns eight bytes.
    #[error("an atomic's local pieces have {0} bytes in all, they must have 8")]
    AtomicLength(u64),
    /// A local invalidation moves no bytes.
    #[error("a local invalidation with {0} bytes of data")]
    Data(u64),
    /// No such status.
    #[error("unknown status {0}")]
    Status(u8),
}

const OP_SEND: u8 = 0;
const OP_WRITE: u8 = 1;
const OP_SEND_INVALIDATE: u8 = 2;
const OP_READ: u8 = 3;
const OP_COMPARE_SWAP: u8 = 4;
const OP_FETCH_ADD: u8 = 5;
const OP_LOCAL_INVALIDATE: u8 = 6;

const FLAG_IMM: u8 = 1;
const FLAG_SIGNALED: u8 = 2;
const FLAG_SOLICITED: u8 = 4;
const FLAG_FENCE: u8 = 8;
const FLAG_INLINE: u8 = 16;
const SEND_FLAGS: u8 = FLAG_IMM | FLAG_SIGNALED | FLAG_SOLICITED | FLAG_FENCE | FLAG_INLINE;

/// A receive made a key of its owner's void.
const FLAG_INVALIDATED: u8 = 2;
const COMPLETION_FLAGS: u8 = FLAG_IMM | FLAG_INVALIDATED | FLAG_SOLICITED;

/// A scatter/gather entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SgeEntry {
    /// Address in the application's view.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// Local key.
    pub lkey: u32,
}

/// A send request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SendEntry {
    /// Name of the request, returned in the completion.
    pub wr_id: u64,
    /// Address in the peer's memory: of a WRITE, READ or atomic.
    pub remote_addr: u64,
    /// The peer's key: of a WRITE, READ or atomic, or to be made void. The own key of a local invalidation.
    pub rkey: u32,
    /// Immediate, if its flag is set.
    pub imm: u32,
    /// Operation: 0 = SEND, 1 = WRITE, 2 = SEND with invalidate, 3 = READ, 4 = COMPARE_SWAP, 5 = FETCH_ADD,
    /// 6 = local invalidation.
    pub op: u8,
    /// 1 = immediate, 2 = signalled, 4 = solicited, 8 = fence, 16 = inline.
    pub flags: u8,
    /// Entries of `sges` in use; not looked at if the data is inline.
    pub sge_count: u8,
    /// Bytes of inline data in the place of `sges`; not looked at if the data is not inline.
    pub inline_len: u8,
    /// Zero; rounds up the fields before the list.
    pub reserved: [u8; 4],
    /// The bytes to send, or where those read go. With the inline flag, the bytes themselves.
    pub sges: [SgeEntry; MAX_SGE],
    /// Operands of atomics: what to store or add, then what to compare with. Rounds the entry up to two cache lines.
    pub tail: [u64; 4],
}

/// A receive request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecvEntry {
    /// Name of the request, returned in the completion.
    pub wr_id: u64,
    /// Entries of `sges` in use.
    pub sge_count: u8,
    /// Zero.
    pub reserved: [u8; 7],
    /// Where the bytes go.
    pub sges: [SgeEntry; MAX_SGE],
}

/// A completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CompletionEntry {
    /// Name of the request.
    pub wr_id: u64,
    /// Queue pair.
    pub qp: u32,
    /// Bytes of the message.
    pub byte_len: u32,
    /// Immediate, if its flag is set.
    pub imm: u32,
    /// [`Status`] as its number.
    pub status: u8,
    /// [`CompletionOp`] as its number.
    pub op: u8,
    /// 1 = immediate, 2 = a key was made void, 4 = solicited.
    pub flags: u8,
    /// Zero.
    pub reserved: u8,
    /// The key that was made void, if its flag is set.
    pub invalidated: u32,
    /// Zero; rounds up to half a cache line.
    pub padding: [u8; 4],
}

const _: () = assert!(size_of::<SgeEntry>() == 16 && size_of::<SendEntry>() == 128);
const _: () = assert!(size_of::<RecvEntry>() == 80 && size_of::<CompletionEntry>() == 32);
const _: () = assert!(size_of::<[SgeEntry; MAX_SGE]>() == MAX_INLINE, "inline data takes the place of the list");
const _: () = assert!(DOORBELL_WORDS == 64, "one summary word covers all doorbell words");

impl Entry for SendEntry {}
impl Entry for RecvEntry {}
impl Entry for CompletionEntry {}

const fn flag(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}

/// `flags`, if none but `known` are set.
const fn checked_flags(flags: u8, known: u8) -> Result<u8, BadEntry> {
    if flags & !known == 0 { Ok(flags) } else { Err(BadEntry::Flags(flags)) }
}

fn encode_list(list: &SgList) -> (u8, [SgeEntry; MAX_SGE]) {
    let mut sges = [SgeEntry::default(); MAX_SGE];
    let mut count = 0;
    for (entry, sge) in sges.iter_mut().zip(list.entries()) {
        *entry = SgeEntry { addr: sge.addr, len: sge.len, lkey: sge.lkey };
        count += 1;
    }
    (count, sges)
}

fn decode_list(count: u8, sges: &[SgeEntry; MAX_SGE]) -> Result<SgList, BadEntry> {
    let list = sges.map(|entry| Sge { addr: entry.addr, len: entry.len, lkey: entry.lkey });
    list.get(..usize::from(count)).and_then(SgList::new).ok_or(BadEntry::SgeCount(count))
}

/// Checks what a request asks for beyond the meaning of each field: combinations that no operation has.
/// What depends on keys, addresses and the connection is the core's to refuse.
///
/// # Errors
/// [`BadEntry`] names what does not fit the operation.
pub fn check(work: &SendWork) -> Result<(), BadEntry> {
    let sends = matches!(work.op, SendOp::Send | SendOp::SendInvalidate { .. } | SendOp::Write { .. });
    let ends_receive = matches!(work.op, SendOp::Send | SendOp::SendInvalidate { .. }) || work.imm.is_some();
    let len = work.local.total_len();
    match work.op {
        _ if work.imm.is_some() && !matches!(work.op, SendOp::Send | SendOp::Write { .. }) => Err(BadEntry::Immediate),
        _ if work.solicited && !ends_receive => Err(BadEntry::Solicited),
        _ if matches!(work.local, Data::Inline(_)) && !sends => Err(BadEntry::Inline),
        SendOp::Atomic { .. } if len != 8 => Err(BadEntry::AtomicLength(len)),
        SendOp::LocalInvalidate { .. } if len != 0 => Err(BadEntry::Data(len)),
        _ => Ok(()),
    }
}

impl SendEntry {
    /// The entry of a request that passes [`check`].
    pub fn encode(work: &SendWork) -> Self {
        let flags = flag(work.imm.is_some(), FLAG_IMM)
            | flag(work.signaled, FLAG_SIGNALED)
            | flag(work.solicited, FLAG_SOLICITED)
            | flag(work.fence, FLAG_FENCE);
        let entry = Self { wr_id: work.wr_id, imm: work.imm.unwrap_or(0), flags, ..Self::default() };
        entry.with_op(work.op).with_data(&work.local)
    }

    fn with_op(mut self, op: SendOp) -> Self {
        (self.op, self.remote_addr, self.rkey) = match op {
            SendOp::Send => (OP_SEND, 0, 0),
            SendOp::SendInvalidate { rkey } => (OP_SEND_INVALIDATE, 0, rkey),
            SendOp::Write { remote_addr, rkey } => (OP_WRITE, remote_addr, rkey),
            SendOp::Read { remote_addr, rkey } => (OP_READ, remote_addr, rkey),
            SendOp::Atomic { remote_addr, rkey, op } => {
                let (code, operands) = match op {
                    AtomicOp::CompareSwap { compare, swap } => (OP_COMPARE_SWAP, [swap, compare]),
                    AtomicOp::FetchAdd { add } => (OP_FETCH_ADD, [add, 0]),
                };
                [self.tail[0], self.tail[1]] = operands;
                (code, remote_addr, rkey)
            }
            SendOp::LocalInvalidate { key } => (OP_LOCAL_INVALIDATE, 0, key),
        };
        self
    }

    fn with_data(mut self, data: &Data) -> Self {
        match data {
            Data::List(list) => (self.sge_count, self.sges) = encode_list(list),
            Data::Inline(inline) => {
                let bytes = inline.as_slice();
                self.flags |= FLAG_INLINE;
                self.sges.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
                self.inline_len = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
            }
        }
        self
    }

    /// The request of an entry.
    ///
    /// # Errors
    /// [`BadEntry`] names the first field without meaning, or what does not fit the operation.
    pub fn decode(&self) -> Result<SendWork, BadEntry> {
        let op = self.operation()?;
        let flags = checked_flags(self.flags, SEND_FLAGS)?;
        let work = SendWork {
            wr_id: self.wr_id,
            op,
            imm: (flags & FLAG_IMM != 0).then_some(self.imm),
            signaled: flags & FLAG_SIGNALED != 0,
            solicited: flags & FLAG_SOLICITED != 0,
            fence: flags & FLAG_FENCE != 0,
            local: if flags & FLAG_INLINE == 0 { Data::List(decode_list(self.sge_count, &self.sges)?) } else { self.inline_data()? },
        };
        check(&work).map(|()| work)
    }

    const fn operation(&self) -> Result<SendOp, BadEntry> {
        let (remote_addr, rkey, [operand, compare, ..]) = (self.remote_addr, self.rkey, self.tail);
        Ok(match self.op {
            OP_SEND => SendOp::Send,
            OP_SEND_INVALIDATE => SendOp::SendInvalidate { rkey },
            OP_WRITE => SendOp::Write { remote_addr, rkey },
            OP_READ => SendOp::Read { remote_addr, rkey },
            OP_COMPARE_SWAP => SendOp::Atomic { remote_addr, rkey, op: AtomicOp::CompareSwap { compare, swap: operand } },
            OP_FETCH_ADD => SendOp::Atomic { remote_addr, rkey, op: AtomicOp::FetchAdd { add: operand } },
            OP_LOCAL_INVALIDATE => SendOp::LocalInvalidate { key: rkey },
            other => return Err(BadEntry::Operation(other)),
        })
    }

    fn inline_data(&self) -> Result<Data, BadEntry> {
        let bytes = self.sges.as_bytes().get(..usize::from(self.inline_len));
        bytes.and_then(Inline::new).map(Data::Inline).ok_or(BadEntry::InlineLength(self.inline_len))
    }

    /// Which kind of completion the request gets, as far as its operation can be understood.
    pub const fn completion_op(&self) -> CompletionOp {
        match self.op {
            OP_WRITE => CompletionOp::Write,
            OP_READ => CompletionOp::Read,
            OP_COMPARE_SWAP | OP_FETCH_ADD => CompletionOp::Atomic,
            OP_LOCAL_INVALIDATE => CompletionOp::LocalInvalidate,
            _ => CompletionOp::Send,
        }
    }
}

impl RecvEntry {
    /// The entry of a request.
    pub fn encode(work: &RecvWork) -> Self {
        let (sge_count, sges) = encode_list(&work.local);
        Self { wr_id: work.wr_id, sge_count, sges, ..Self::default() }
    }

    /// The request of an entry.
    ///
    /// # Errors
    /// As for [`SendEntry::decode`].
    pub fn decode(&self) -> Result<RecvWork, BadEntry> {
        Ok(RecvWork { wr_id: self.wr_id, local: decode_list(self.sge_count, &self.sges)? })
    }
}

impl CompletionEntry {
    /// True if it must wake also an application that waits for solicited completions only: it is solicited, or a failure.
    pub const fn is_urgent(&self) -> bool {
        self.flags & FLAG_SOLICITED != 0 || self.status != Status::Success as u8
    }

    /// The entry of a completion.
    pub fn encode(completion: &Completion) -> Self {
        Self {
            wr_id: completion.wr_id,
            qp: completion.qp.0,
            byte_len: completion.byte_len,
            imm: completion.imm.unwrap_or(0),
            status: completion.status as u8,
            op: completion.op as u8,
            flags: flag(completion.imm.is_some(), FLAG_IMM)
                | flag(completion.invalidated.is_some(), FLAG_INVALIDATED)
                | flag(completion.solicited, FLAG_SOLICITED),
            invalidated: completion.invalidated.unwrap_or(0),
            ..Self::default()
        }
    }

    /// The completion of an entry.
    ///
    /// # Errors
    /// As for [`SendEntry::decode`].
    pub fn decode(&self) -> Result<Completion, BadEntry> {
        let flags = checked_flags(self.flags, COMPLETION_FLAGS)?;
        Ok(Completion {
            wr_id: self.wr_id,
            qp: QpNum(self.qp),
            status: Status::from_code(self.status).ok_or(BadEntry::Status(self.status))?,
            op: CompletionOp::from_code(self.op).ok_or(BadEntry::Operation(self.op))?,
            byte_len: self.byte_len,
            imm: (flags & FLAG_IMM != 0).then_some(self.imm),
            invalidated: (flags & FLAG_INVALIDATED != 0).then_some(self.invalidated),
            solicited: flags & FLAG_SOLICITED != 0,
        })
    }
}

#[cfg(test)]
mod tests;
