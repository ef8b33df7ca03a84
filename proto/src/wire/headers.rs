//! The fixed headers behind Ethernet: views of the bytes, and the code points in them.
//!
//! Names, opcodes and layouts are InfiniBand's (vol. 1, chapter 9) where it has them, so that whoever can read a
//! RoCE capture can read ours. The Weft header in front and the two IRN extensions are our own.

use core::mem::size_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codes::codes;
use crate::drops::DropReason;

/// "WF": tells our frames from other users of the experimental EtherType.
pub(super) const MAGIC: u16 = 0x5746;
/// Version of the frame format.
pub(super) const VERSION: u8 = 2;

/// ```text
///  0       2         3          4        6     8           12
///  | magic | version | reserved | length | tag | timestamp |
/// ```
/// `length` counts from the BTH to the ICRC, because Ethernet pads short frames. `tag` is a random number that
/// the receiver chose when the connection was made: a frame of an earlier connection does not carry it. `timestamp`
/// is the sender's clock, which acknowledgements echo, so that a round trip is measured also for a packet sent twice.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct WeftHeader {
    pub(super) magic: U16,
    pub(super) version: u8,
    pub(super) reserved: u8,
    pub(super) length: U16,
    pub(super) tag: U16,
    pub(super) timestamp: U32,
}

/// Base transport header.
/// ```text
///  0        1                2        4                5        8              9     12
///  | opcode | SE M pad2 ver4 | P_Key  | FECN BECN rsv  | dst QP | AckReq rsv7  | PSN |
/// ```
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct BthView {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) partition: U16,
    pub(super) congestion: u8,
    pub(super) dst_qp: [u8; 3],
    pub(super) ack_request: u8,
    pub(super) psn: [u8; 3],
}

/// RDMA extended transport header, in every WRITE packet: `va` is the address of this packet's data, `length` that of the whole message.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RethView {
    pub(super) va: U64,
    pub(super) rkey: U32,
    pub(super) length: U32,
}

/// IRN's addition: the number of the receive that a message consumes, or of the READ that a response answers, and this
/// packet's offset in the message.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct SeqView {
    pub(super) sn: U32,
    pub(super) offset: U32,
}

/// Behind the header of a READ or atomic: its number among these (the paper's `read_WQE_SN`), and the first response
/// still missing, so that the responder knows which of its results are no longer needed.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct ReadSeqView {
    pub(super) read_sn: U32,
    pub(super) reserved: u8,
    pub(super) awaited: [u8; 3],
}

/// Atomic extended transport header. `swap_or_add` is the value to store, or to add; `compare` is 0 for an addition.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct AtomicView {
    pub(super) va: U64,
    pub(super) rkey: U32,
    pub(super) swap_or_add: U64,
    pub(super) compare: U64,
}

/// Atomic acknowledge extended transport header: what the memory held before.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct AtomicAckView {
    pub(super) original: U64,
}

/// Invalidate extended transport header: the key that the receiver shall make void.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct IethView {
    pub(super) rkey: U32,
}

/// Behind the AETH: what the sender needs to measure the path. `echo` is the timestamp of the packet that arrived last,
/// `held` how long ago that was in ticks, `marked` how many packets arrived marked by a switch, modulo 2^16.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct EchoView {
    pub(super) echo: U32,
    pub(super) held: U16,
    pub(super) marked: U16,
}

/// Immediate data.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct ImmView {
    pub(super) imm: U32,
}

/// Acknowledge extended transport header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct AethView {
    pub(super) syndrome: u8,
    pub(super) msn: [u8; 3],
}

/// IRN's addition to acknowledgements: the PSN that triggered it, and how many 64-bit words of bitmap follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct SackView {
    pub(super) words: u8,
    pub(super) psn: [u8; 3],
}

/// Datagram extended transport header, in connection messages.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct DethView {
    pub(super) q_key: U32,
    pub(super) reserved: u8,
    pub(super) src_qp: [u8; 3],
}

const _: () = assert!(size_of::<WeftHeader>() == 12 && size_of::<BthView>() == 12 && size_of::<RethView>() == 16);
const _: () = assert!(size_of::<SeqView>() == 8 && size_of::<ImmView>() == 4 && size_of::<AethView>() == 4);
const _: () = assert!(size_of::<ReadSeqView>() == 8 && size_of::<AtomicView>() == 28 && size_of::<AtomicAckView>() == 8);
const _: () = assert!(size_of::<IethView>() == 4 && size_of::<EchoView>() == 8);
const _: () = assert!(size_of::<SackView>() == 4 && size_of::<DethView>() == 8);

/// Three big-endian octets as a number.
pub(super) const fn from_be24(octets: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, octets[0], octets[1], octets[2]])
}

/// The low 24 bits as three big-endian octets.
pub(super) const fn to_be24(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.to_be_bytes();
    [a, b, c]
}

/// Which part of its message a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several packets.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several packets.
    Last,
    /// The only packet.
    Only,
}

impl Position {
    /// The position of packet `index` of `count`.
    pub const fn of(index: u32, count: u32) -> Self {
        match (index == 0, index + 1 == count) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }

    /// True if the message ends with this packet.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// What goes with the last piece of a SEND beside the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extra {
    /// Nothing.
    None,
    /// An immediate.
    Immediate,
    /// A key to make void.
    Invalidate,
}

/// What a packet is for. The numbers are InfiniBand's (vol. 1, table 38).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// 0x00-0x05, 0x16, 0x17: a piece of a SEND.
    Send(Position, Extra),
    /// 0x06-0x0b: a piece of a WRITE; the flag says whether an immediate follows.
    Write(Position, bool),
    /// 0x0c: request for a READ.
    ReadRequest,
    /// 0x0d-0x10: a piece of what was read.
    ReadResponse(Position),
    /// 0x11: acknowledgement of requests.
    Acknowledge,
    /// 0x12: result of an atomic.
    AtomicResponse,
    /// 0x13: compare and swap.
    CompareSwap,
    /// 0x14: fetch and add.
    FetchAdd,
    /// 0x1f, not assigned in InfiniBand: acknowledgement of responses (IRN's read acknowledgement).
    ReadAcknowledge,
    /// 0x81: congestion notification, as in `RoCEv2`.
    CongestionNotification,
    /// 0x64: datagram, used for connection messages to queue pair 1.
    Datagram,
}

impl Opcode {
    /// The opcode with this number.
    ///
    /// # Errors
    /// [`DropReason::UnknownOpcode`] for numbers not assigned.
    pub const fn from_code(code: u8) -> Result<Self, DropReason> {
        Ok(match code {
            0x00 => Self::Send(Position::First, Extra::None),
            0x01 => Self::Send(Position::Middle, Extra::None),
            0x02 => Self::Send(Position::Last, Extra::None),
            0x03 => Self::Send(Position::Last, Extra::Immediate),
            0x04 => Self::Send(Position::Only, Extra::None),
            0x05 => Self::Send(Position::Only, Extra::Immediate),
            0x16 => Self::Send(Position::Last, Extra::Invalidate),
            0x17 => Self::Send(Position::Only, Extra::Invalidate),
            0x06 => Self::Write(Position::First, false),
            0x07 => Self::Write(Position::Middle, false),
            0x08 => Self::Write(Position::Last, false),
            0x09 => Self::Write(Position::Last, true),
            0x0a => Self::Write(Position::Only, false),
            0x0b => Self::Write(Position::Only, true),
            0x0c => Self::ReadRequest,
            0x0d => Self::ReadResponse(Position::First),
            0x0e => Self::ReadResponse(Position::Middle),
            0x0f => Self::ReadResponse(Position::Last),
            0x10 => Self::ReadResponse(Position::Only),
            0x11 => Self::Acknowledge,
            0x12 => Self::AtomicResponse,
            0x13 => Self::CompareSwap,
            0x14 => Self::FetchAdd,
            0x1f => Self::ReadAcknowledge,
            0x81 => Self::CongestionNotification,
            0x64 => Self::Datagram,
            _ => return Err(DropReason::UnknownOpcode),
        })
    }

    /// The number. What is extra travels only in the last packet and is ignored elsewhere.
    pub const fn code(self) -> u8 {
        match self {
            Self::Send(Position::Last, Extra::Invalidate) => 0x16,
            Self::Send(Position::Only, Extra::Invalidate) => 0x17,
            Self::Send(position, extra) => position_code(position, matches!(extra, Extra::Immediate)),
            Self::Write(position, imm) => 0x06 + position_code(position, imm),
            Self::ReadRequest => 0x0c,
            Self::ReadResponse(Position::First) => 0x0d,
            Self::ReadResponse(Position::Middle) => 0x0e,
            Self::ReadResponse(Position::Last) => 0x0f,
            Self::ReadResponse(Position::Only) => 0x10,
            Self::Acknowledge => 0x11,
            Self::AtomicResponse => 0x12,
            Self::CompareSwap => 0x13,
            Self::FetchAdd => 0x14,
            Self::ReadAcknowledge => 0x1f,
            Self::CongestionNotification => 0x81,
            Self::Datagram => 0x64,
        }
    }
}

const fn position_code(position: Position, imm: bool) -> u8 {
    match position {
        Position::First => 0,
        Position::Middle => 1,
        Position::Last => 2 + imm as u8,
        Position::Only => 4 + imm as u8,
    }
}

codes! {
    /// Why a responder refuses (AETH NAK codes, InfiniBand vol. 1, table 44).
    pub enum NakCode {
        /// A packet is missing before the one that triggered this.
        SequenceError = 0,
        /// Malformed, or longer than the posted receive.
        InvalidRequest = 1,
        /// Key, range or right.
        RemoteAccess = 2,
        /// The responder could not do it.
        RemoteOperational = 3,
    }
}

/// Receives that a code of end-to-end credits stands for (InfiniBand vol. 1, table 46).
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288,
    16_384, 24_576, 32_768,
];

/// How many further messages with a receive the responder has room for: five bits of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits(u8);

impl Credits {
    /// The responder does not say.
    pub const UNLIMITED: Self = Self(31);

    /// The code for the most receives that are not more than `receives`.
    pub fn of(receives: u32) -> Self {
        let above = CREDITS.iter().position(|&value| value > receives).unwrap_or(CREDITS.len());
        Self(u8::try_from(above.saturating_sub(1)).unwrap_or(0))
    }

    /// The receives it stands for; `None` = no limit.
    pub fn receives(self) -> Option<u32> {
        CREDITS.get(usize::from(self.0)).copied()
    }
}

/// The syndrome of an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckKind {
    /// Everything before the PSN has arrived, and there is room for so many receives.
    Ack(Credits),
    /// No receive posted; try again after the delay with this code (0 to 31, [`rnr_delay_us`]).
    ReceiverNotReady(u8),
    /// Refused.
    Nak(NakCode),
}

impl AckKind {
    /// The meaning of a syndrome octet.
    ///
    /// # Errors
    /// [`DropReason::BadField`] for reserved values.
    pub const fn from_syndrome(syndrome: u8) -> Result<Self, DropReason> {
        match (syndrome >> 5, syndrome & 0x1f) {
            (0b000, code) => Ok(Self::Ack(Credits(code))),
            (0b001, code) => Ok(Self::ReceiverNotReady(code)),
            (0b011, code) => match NakCode::from_code(code) {
                Some(code) => Ok(Self::Nak(code)),
                None => Err(DropReason::BadField),
            },
            _ => Err(DropReason::BadField),
        }
    }

    /// The syndrome octet.
    pub const fn syndrome(self) -> u8 {
        match self {
            Self::Ack(credits) => credits.0,
            Self::ReceiverNotReady(code) => 0x20 | code & 0x1f,
            Self::Nak(code) => 0x60 | code as u8,
        }
    }
}

/// Receiver-not-ready delays in microseconds by code (InfiniBand vol. 1, table 45).
const RNR_DELAY_US: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840, 5_120, 7_680, 10_240, 15_360, 20_480,
    30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520,
];

/// The delay in microseconds that a receiver-not-ready code stands for.
pub const fn rnr_delay_us(code: u8) -> u32 {
    RNR_DELAY_US[(code & 0x1f) as usize]
}

/// The code of the shortest delay of at least `micros` microseconds.
pub fn rnr_code(micros: u64) -> u8 {
    (1..32u8).find(|&code| u64::from(rnr_delay_us(code)) >= micros).unwrap_or(0)
}
