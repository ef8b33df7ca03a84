//! The bytes that application and daemon share: ring entries and the places of control words.
//!
//! Every structure is fixed in size, in the byte order of the machine (both sides run on it), with its size asserted
//! when compiling. Nothing here is trusted: an entry is copied out of shared memory once, then decoded into the core's
//! types, and every value that has no meaning is a [`BadEntry`].

use weft_proto::transport::work::MAX_SGE;
use weft_proto::transport::{Completion, CompletionOp, Data, QpNum, RecvWork, SendOp, SendWork, SgList, Sge, Status};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of this layout and of the attach protocol; both sides must have the same.
pub const VERSION: u32 = 1;

/// Where a ring's producer publishes how many entries it has written. Each word has a cache line (64 bytes) of its own,
/// so that the two sides do not fight over one.
pub const RING_PRODUCER: usize = 0;
/// Where a ring's consumer publishes how many entries it has taken.
pub const RING_CONSUMER: usize = 64;
/// Set by a consumer that wants to be woken at the next entry.
pub const RING_ARMED: usize = 128;
/// Where a ring's entries begin.
pub const RING_ENTRIES: usize = 192;
/// Most entries of a ring.
pub const MAX_RING: u32 = 1 << 17;

/// Queue pairs that an application page has doorbells for.
pub const DOORBELLS: usize = 4096;
/// Doorbell bits are kept in so many 64-bit words.
pub const DOORBELL_WORDS: usize = DOORBELLS / 64;
/// In the application page: not 0 while the daemon's worker sleeps and wants the doorbell's eventfd written.
pub const PAGE_SLEEPING: usize = 0;
/// In the application page: bit `w` is set if doorbell word `w` may have a bit set.
pub const PAGE_SUMMARY: usize = 64;
/// In the application page: the doorbell words, a bit per queue pair.
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
    /// No such status.
    #[error("unknown status {0}")]
    Status(u8),
}

const OP_SEND: u8 = 0;
const OP_WRITE: u8 = 1;

const FLAG_IMM: u8 = 1;
const FLAG_SIGNALED: u8 = 2;
const FLAG_SOLICITED: u8 = 4;

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
    /// Target address of a WRITE.
    pub remote_addr: u64,
    /// Remote key of a WRITE.
    pub rkey: u32,
    /// Immediate, if its flag is set.
    pub imm: u32,
    /// Operation: 0 = SEND, 1 = WRITE.
    pub op: u8,
    /// 1 = immediate, 2 = signalled, 4 = solicited.
    pub flags: u8,
    /// Entries of `sges` in use.
    pub sge_count: u8,
    /// Zero; rounds up the fields before the list.
    pub reserved: [u8; 5],
    /// The bytes to send.
    pub sges: [SgeEntry; MAX_SGE],
    /// Zero; rounds the entry up to two cache lines, with room for the operands of atomics.
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
    /// 1 = immediate, 4 = solicited.
    pub flags: u8,
    /// Zero; rounds up to half a cache line.
    pub reserved: [u8; 9],
}

const _: () = assert!(size_of::<SgeEntry>() == 16 && size_of::<SendEntry>() == 128);
const _: () = assert!(size_of::<RecvEntry>() == 80 && size_of::<CompletionEntry>() == 32);
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

impl SendEntry {
    /// The entry of a request.
    pub fn encode(work: &SendWork) -> Self {
        let (op, remote_addr, rkey) = match work.op {
            SendOp::Send => (OP_SEND, 0, 0),
            SendOp::Write { remote_addr, rkey } => (OP_WRITE, remote_addr, rkey),
            _ => todo!(),
        };
        let flags = flag(work.imm.is_some(), FLAG_IMM) | flag(work.signaled, FLAG_SIGNALED) | flag(work.solicited, FLAG_SOLICITED);
        let (sge_count, sges) = encode_list(match &work.local {
            Data::List(list) => list,
            Data::Inline(_) => todo!(),
        });
        Self { wr_id: work.wr_id, remote_addr, rkey, imm: work.imm.unwrap_or(0), op, flags, sge_count, sges, ..Self::default() }
    }

    /// The request of an entry.
    ///
    /// # Errors
    /// [`BadEntry`] names the first field without meaning.
    pub fn decode(&self) -> Result<SendWork, BadEntry> {
        let op = match self.op {
            OP_SEND => SendOp::Send,
            OP_WRITE => SendOp::Write { remote_addr: self.remote_addr, rkey: self.rkey },
            other => return Err(BadEntry::Operation(other)),
        };
        let flags = checked_flags(self.flags, FLAG_IMM | FLAG_SIGNALED | FLAG_SOLICITED)?;
        Ok(SendWork {
            wr_id: self.wr_id,
            op,
            imm: (flags & FLAG_IMM != 0).then_some(self.imm),
            signaled: flags & FLAG_SIGNALED != 0,
            solicited: flags & FLAG_SOLICITED != 0,
            fence: false,
            local: Data::List(decode_list(self.sge_count, &self.sges)?),
        })
    }

    /// Which kind of completion the request gets, as far as its operation can be understood.
    pub const fn completion_op(&self) -> CompletionOp {
        if self.op == OP_WRITE { CompletionOp::Write } else { CompletionOp::Send }
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
    /// The entry of a completion.
    pub fn encode(completion: &Completion) -> Self {
        Self {
            wr_id: completion.wr_id,
            qp: completion.qp.0,
            byte_len: completion.byte_len,
            imm: completion.imm.unwrap_or(0),
            status: completion.status as u8,
            op: completion.op as u8,
            flags: flag(completion.imm.is_some(), FLAG_IMM) | flag(completion.solicited, FLAG_SOLICITED),
            reserved: [0; 9],
        }
    }

    /// The completion of an entry.
    ///
    /// # Errors
    /// As for [`SendEntry::decode`].
    pub fn decode(&self) -> Result<Completion, BadEntry> {
        let flags = checked_flags(self.flags, FLAG_IMM | FLAG_SOLICITED)?;
        Ok(Completion {
            wr_id: self.wr_id,
            qp: QpNum(self.qp),
            status: Status::from_code(self.status).ok_or(BadEntry::Status(self.status))?,
            op: CompletionOp::from_code(self.op).ok_or(BadEntry::Operation(self.op))?,
            byte_len: self.byte_len,
            imm: (flags & FLAG_IMM != 0).then_some(self.imm),
            invalidated: None,
            solicited: flags & FLAG_SOLICITED != 0,
        })
    }
}

#[cfg(test)]
mod tests;
