//! A whole transport frame: bytes to [`Packet`] and back.

use core::mem::size_of;

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::drops::DropReason;
use crate::time::Timestamp;
use crate::transport::{AtomicOp, Psn, QpNum};
use crate::wire::ack::{Ack, SACK_WORDS, emit_ack, parse_ack};
use crate::wire::connection::{CONNECTION_LEN, ConnectionMessage, ForeignVersion, MAX_PRIVATE};
use crate::wire::eth::{Ethernet, MIN_FRAME};
use crate::wire::headers::{
    AethView, AtomicAckView, AtomicView, BthView, DethView, EchoView, Extra, IethView, ImmView, MAGIC, Opcode, Position, ReadSeqView,
    RethView, SackView, SeqView, VERSION, WeftHeader, from_be24, to_be24,
};

/// Bytes of the invariant CRC at the end.
pub const ICRC_LEN: usize = 4;
/// Bytes of Weft header and BTH.
const BASE_LEN: usize = size_of::<WeftHeader>() + size_of::<BthView>();
/// The queue pair that takes connection messages (InfiniBand: the general services interface).
pub const CONNECTION_QP: QpNum = QpNum(1);
/// The default partition, full member.
const PARTITION: u16 = 0xffff;
/// The well-known queue key of queue pair 1.
const Q_KEY: u32 = 0x8001_0000;
/// The congestion bits of the BTH.
pub(super) const FECN: u8 = 0x80;
const BECN: u8 = 0x40;

/// Bytes that a frame needs around its payload at most: WRITE last with immediate.
pub const MAX_OVERHEAD: usize = BASE_LEN + size_of::<RethView>() + size_of::<ImmView>() + size_of::<SeqView>() + ICRC_LEN;

/// Smallest MTU that the transport works with: that of a connection message with all its private data.
pub const MIN_MTU: usize = BASE_LEN + size_of::<DethView>() + CONNECTION_LEN + MAX_PRIVATE + ICRC_LEN;
/// Every acknowledgement fits, too.
const _: () =
    assert!(BASE_LEN + size_of::<AethView>() + size_of::<EchoView>() + size_of::<SackView>() + SACK_WORDS * 8 + ICRC_LEN <= MIN_MTU);

/// The fields that every transport packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Connection tag chosen by the receiver of the packet; 0 for connection messages.
    pub tag: u16,
    /// When the sender built the packet.
    pub timestamp: Timestamp,
    /// Wake the receiving application if it waits for solicited completions.
    pub solicited: bool,
    /// Acknowledge at once.
    pub ack_request: bool,
    /// A switch saw congestion (forward notification).
    pub fecn: bool,
    /// The receiver saw marked packets (backward notification).
    pub becn: bool,
    /// The queue pair that the packet is for.
    pub dst_qp: QpNum,
    /// Requests: the packet's number. Acknowledgements: the first number still missing.
    pub psn: Psn,
}

impl Base {
    /// The fields of a packet with nothing special about it and no clock in it.
    pub const fn new(tag: u16, dst_qp: QpNum, psn: Psn) -> Self {
        let timestamp = Timestamp::from_ticks(0);
        Self { tag, timestamp, solicited: false, ack_request: false, fecn: false, becn: false, dst_qp, psn }
    }
}

/// What goes with the last piece of a SEND beside the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    /// Nothing.
    #[default]
    None,
    /// An immediate for the receiving application.
    Immediate(u32),
    /// A key that the receiver shall make void.
    Invalidate(u32),
}

/// What a packet carries behind the [`Base`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A piece of a SEND.
    Send {
        /// Which piece.
        position: Position,
        /// The receive that it belongs in.
        recv_sn: u32,
        /// Offset of the piece in the message, bytes.
        offset: u32,
        /// What goes with it, with the last piece only.
        tail: Tail,
        /// The piece.
        payload: &'a [u8],
    },
    /// A piece of a WRITE.
    Write {
        /// Which piece.
        position: Position,
        /// Where this piece goes.
        va: u64,
        /// The key that opens the target.
        rkey: u32,
        /// Length of the whole message in bytes.
        length: u32,
        /// Immediate data and the receive that it consumes, with the last piece only.
        imm: Option<(u32, u32)>,
        /// The piece.
        payload: &'a [u8],
    },
    /// A request to read memory.
    ReadRequest {
        /// Number among the READs and atomics of this sender.
        read_sn: u32,
        /// The first response that the sender still waits for.
        awaited: Psn,
        /// Where to read.
        va: u64,
        /// The key that opens it.
        rkey: u32,
        /// How much, bytes.
        length: u32,
    },
    /// A piece of what was read. Its PSN counts responses.
    ReadResponse {
        /// Which piece.
        position: Position,
        /// The READ that it answers.
        read_sn: u32,
        /// Offset of the piece, bytes.
        offset: u32,
        /// The piece.
        payload: &'a [u8],
    },
    /// A request to change eight bytes of memory.
    Atomic {
        /// Number among the READs and atomics of this sender.
        read_sn: u32,
        /// The first response that the sender still waits for.
        awaited: Psn,
        /// Where, a multiple of 8.
        va: u64,
        /// The key that opens it.
        rkey: u32,
        /// What to do.
        op: AtomicOp,
    },
    /// The result of an atomic. Its PSN counts responses.
    AtomicResponse {
        /// The atomic that it answers.
        read_sn: u32,
        /// What the memory held before.
        original: u64,
    },
    /// An acknowledgement of requests.
    Ack(Ack),
    /// An acknowledgement of responses.
    ReadAck(Ack),
    /// Packets to the sender of this were marked by a switch.
    CongestionNotification,
    /// A connection message.
    Connection(ConnectionMessage<'a>),
    /// A connection message in another version of the protocol.
    ForeignConnection(ForeignVersion),
}

/// A parsed transport frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The Ethernet header.
    pub eth: Ethernet,
    /// The fixed transport fields.
    pub base: Base,
    /// The rest.
    pub body: Body<'a>,
}

impl<'a> Packet<'a> {
    /// The meaning of a frame whose EtherType is the transport's. The ICRC is verified.
    ///
    /// # Errors
    /// Why the frame means nothing to us.
    pub fn parse(frame: &'a [u8]) -> Result<Self, DropReason> {
        let (eth, rest) = Ethernet::parse(frame)?;
        let (weft, bth, behind) = split_base(rest)?;
        let (extensions, icrc) = behind.split_last_chunk::<ICRC_LEN>().ok_or(DropReason::BadLength)?;
        if u32::from_be_bytes(*icrc) != icrc_of(frame, weft, bth, extensions) {
            return Err(DropReason::BadIcrc);
        }
        if bth.flags & 0x7f != 0 {
            return Err(DropReason::BadField);
        }
        let base = Base {
            tag: weft.tag.get(),
            timestamp: Timestamp::from_ticks(weft.timestamp.get()),
            solicited: bth.flags & 0x80 != 0,
            ack_request: bth.ack_request & 0x80 != 0,
            fecn: bth.congestion & FECN != 0,
            becn: bth.congestion & BECN != 0,
            dst_qp: QpNum(from_be24(bth.dst_qp)),
            psn: Psn::new(from_be24(bth.psn)),
        };
        let body = Body::parse(Opcode::from_code(bth.opcode)?, extensions)?;
        Ok(Self { eth, base, body })
    }

    /// Writes the frame to `out`, padded to the Ethernet minimum, and returns its length; `None` if it does not fit.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let payload = self.body.payload();
        emit_with(out, &self.eth, &self.base, &self.body, payload.len(), |room| {
            room.copy_from_slice(payload);
            Ok::<(), core::convert::Infallible>(())
        })?
        .ok()
    }
}

pub(super) fn split_base(rest: &[u8]) -> Result<(&WeftHeader, &BthView, &[u8]), DropReason> {
    let (weft, rest) = WeftHeader::ref_from_prefix(rest).map_err(|_| DropReason::Truncated)?;
    if weft.magic.get() != MAGIC {
        return Err(DropReason::ForeignMagic);
    }
    if weft.version != VERSION {
        return Err(DropReason::UnsupportedVersion);
    }
    // Ethernet padding behind the announced length is not ours to read.
    let inner = rest.get(..usize::from(weft.length.get())).ok_or(DropReason::Truncated)?;
    let (bth, behind) = BthView::ref_from_prefix(inner).map_err(|_| DropReason::BadLength)?;
    Ok((weft, bth, behind))
}

/// CRC-32C over what no switch may change: the addresses, the Weft header and everything from the BTH to the end,
/// with the octet of the congestion bits taken as all ones (a switch may set FECN), and without the VLAN tag.
fn icrc_of(frame: &[u8], weft: &WeftHeader, bth: &BthView, extensions: &[u8]) -> u32 {
    let mut head = [0; 12 + BASE_LEN];
    head[..12].copy_from_slice(&frame[..12]);
    let (first, second) = head[12..].split_at_mut(size_of::<WeftHeader>());
    first.copy_from_slice(weft.as_bytes());
    second.copy_from_slice(BthView { congestion: 0xff, ..*bth }.as_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head), extensions)
}

impl<'a> Body<'a> {
    fn parse(opcode: Opcode, bytes: &'a [u8]) -> Result<Self, DropReason> {
        match opcode {
            Opcode::Send(position, extra) => Self::parse_send(position, extra, bytes),
            Opcode::Write(position, imm) => Self::parse_write(position, imm, bytes),
            Opcode::ReadRequest => Self::parse_read_request(bytes),
            Opcode::ReadResponse(position) => Self::parse_read_response(position, bytes),
            Opcode::CompareSwap => {
                Self::parse_atomic(bytes, |view| Some(AtomicOp::CompareSwap { compare: view.compare.get(), swap: view.swap_or_add.get() }))
            }
            Opcode::FetchAdd => {
                Self::parse_atomic(bytes, |view| (view.compare.get() == 0).then_some(AtomicOp::FetchAdd { add: view.swap_or_add.get() }))
            }
            Opcode::AtomicResponse => Self::parse_atomic_response(bytes),
            Opcode::Acknowledge => Ok(Self::Ack(parse_ack(bytes)?)),
            Opcode::ReadAcknowledge => Ok(Self::ReadAck(parse_ack(bytes)?)),
            Opcode::CongestionNotification if bytes.is_empty() => Ok(Self::CongestionNotification),
            Opcode::CongestionNotification => Err(DropReason::BadLength),
            Opcode::Datagram => Self::parse_connection(bytes),
        }
    }

    fn parse_send(position: Position, extra: Extra, bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (seq, bytes) = split::<SeqView>(bytes)?;
        let (tail, payload) = match extra {
            Extra::None => (Tail::None, bytes),
            Extra::Immediate => split::<ImmView>(bytes).map(|(view, rest)| (Tail::Immediate(view.imm.get()), rest))?,
            Extra::Invalidate => split::<IethView>(bytes).map(|(view, rest)| (Tail::Invalidate(view.rkey.get()), rest))?,
        };
        Ok(Self::Send { position, recv_sn: seq.sn.get(), offset: seq.offset.get(), tail, payload })
    }

    fn parse_read_request(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (reth, bytes) = split::<RethView>(bytes)?;
        let (read_sn, awaited) = parse_read_seq(bytes)?;
        Ok(Self::ReadRequest { read_sn, awaited, va: reth.va.get(), rkey: reth.rkey.get(), length: reth.length.get() })
    }

    fn parse_read_response(position: Position, bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (seq, payload) = split::<SeqView>(bytes)?;
        Ok(Self::ReadResponse { position, read_sn: seq.sn.get(), offset: seq.offset.get(), payload })
    }

    fn parse_atomic(bytes: &'a [u8], op: impl FnOnce(&AtomicView) -> Option<AtomicOp>) -> Result<Self, DropReason> {
        let (view, bytes) = split::<AtomicView>(bytes)?;
        let (read_sn, awaited) = parse_read_seq(bytes)?;
        Ok(Self::Atomic { read_sn, awaited, va: view.va.get(), rkey: view.rkey.get(), op: op(view).ok_or(DropReason::BadField)? })
    }

    fn parse_atomic_response(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (seq, bytes) = split::<SeqView>(bytes)?;
        let (result, rest) = split::<AtomicAckView>(bytes)?;
        if !rest.is_empty() {
            return Err(DropReason::BadLength);
        }
        Ok(Self::AtomicResponse { read_sn: seq.sn.get(), original: result.original.get() })
    }

    fn parse_write(position: Position, has_imm: bool, bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (reth, bytes) = split::<RethView>(bytes)?;
        let (va, rkey, length) = (reth.va.get(), reth.rkey.get(), reth.length.get());
        if !has_imm {
            return Ok(Self::Write { position, va, rkey, length, imm: None, payload: bytes });
        }
        let (imm, bytes) = split::<ImmView>(bytes)?;
        let (seq, payload) = split::<SeqView>(bytes)?;
        Ok(Self::Write { position, va, rkey, length, imm: Some((imm.imm.get(), seq.sn.get())), payload })
    }

    fn parse_connection(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (deth, message) = split::<DethView>(bytes)?;
        if deth.q_key.get() != Q_KEY || from_be24(deth.src_qp) != CONNECTION_QP.0 {
            return Err(DropReason::BadField);
        }
        Ok(match ConnectionMessage::parse(message)? {
            Ok(message) => Self::Connection(message),
            Err(foreign) => Self::ForeignConnection(foreign),
        })
    }

    fn payload(&self) -> &'a [u8] {
        match *self {
            Self::Send { payload, .. } | Self::Write { payload, .. } | Self::ReadResponse { payload, .. } => payload,
            _ => &[],
        }
    }

    const fn opcode(&self) -> Opcode {
        match *self {
            Self::Send { position, tail, .. } => Opcode::Send(position, tail.extra()),
            Self::Write { position, imm, .. } => Opcode::Write(position, imm.is_some()),
            Self::ReadRequest { .. } => Opcode::ReadRequest,
            Self::ReadResponse { position, .. } => Opcode::ReadResponse(position),
            Self::Atomic { op: AtomicOp::CompareSwap { .. }, .. } => Opcode::CompareSwap,
            Self::Atomic { op: AtomicOp::FetchAdd { .. }, .. } => Opcode::FetchAdd,
            Self::AtomicResponse { .. } => Opcode::AtomicResponse,
            Self::Ack(_) => Opcode::Acknowledge,
            Self::ReadAck(_) => Opcode::ReadAcknowledge,
            Self::CongestionNotification => Opcode::CongestionNotification,
            Self::Connection(_) | Self::ForeignConnection(_) => Opcode::Datagram,
        }
    }

    /// Writes the extension headers and returns the bytes that they take.
    fn emit_extensions(&self, out: &mut Writer<'_>) -> Option<()> {
        match *self {
            Self::Send { recv_sn, offset, tail, .. } => {
                out.put(&SeqView { sn: recv_sn.into(), offset: offset.into() })?;
                match tail {
                    Tail::None => Some(()),
                    Tail::Immediate(imm) => out.put(&ImmView { imm: imm.into() }),
                    Tail::Invalidate(rkey) => out.put(&IethView { rkey: rkey.into() }),
                }
            }
            Self::Write { va, rkey, length, imm, .. } => {
                out.put(&RethView { va: va.into(), rkey: rkey.into(), length: length.into() })?;
                let Some((imm, recv_sn)) = imm else { return Some(()) };
                out.put(&ImmView { imm: imm.into() })?;
                out.put(&SeqView { sn: recv_sn.into(), offset: U32::ZERO })
            }
            Self::ReadRequest { read_sn, awaited, va, rkey, length } => {
                out.put(&RethView { va: va.into(), rkey: rkey.into(), length: length.into() })?;
                out.put(&read_seq(read_sn, awaited))
            }
            Self::ReadResponse { read_sn, offset, .. } => out.put(&SeqView { sn: read_sn.into(), offset: offset.into() }),
            Self::Atomic { read_sn, awaited, va, rkey, op } => {
                let (swap_or_add, compare) = match op {
                    AtomicOp::CompareSwap { compare, swap } => (swap, compare),
                    AtomicOp::FetchAdd { add } => (add, 0),
                };
                out.put(&AtomicView { va: va.into(), rkey: rkey.into(), swap_or_add: swap_or_add.into(), compare: compare.into() })?;
                out.put(&read_seq(read_sn, awaited))
            }
            Self::AtomicResponse { read_sn, original } => {
                out.put(&SeqView { sn: read_sn.into(), offset: U32::ZERO })?;
                out.put(&AtomicAckView { original: original.into() })
            }
            Self::Ack(ack) | Self::ReadAck(ack) => emit_ack(out, &ack),
            Self::CongestionNotification => Some(()),
            Self::Connection(message) => {
                out.put(&DethView { q_key: Q_KEY.into(), reserved: 0, src_qp: to_be24(CONNECTION_QP.0) })?;
                message.emit(out.take(message.len())?)
            }
            Self::ForeignConnection(_) => None,
        }
    }
}

pub(super) fn split<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> Result<(&T, &[u8]), DropReason> {
    T::ref_from_prefix(bytes).map_err(|_| DropReason::BadLength)
}

impl Tail {
    const fn extra(self) -> Extra {
        match self {
            Self::None => Extra::None,
            Self::Immediate(_) => Extra::Immediate,
            Self::Invalidate(_) => Extra::Invalidate,
        }
    }

    /// The immediate, if it is one.
    pub const fn immediate(self) -> Option<u32> {
        match self {
            Self::Immediate(imm) => Some(imm),
            Self::None | Self::Invalidate(_) => None,
        }
    }

    /// The key to make void, if it is one.
    pub const fn invalidated(self) -> Option<u32> {
        match self {
            Self::Invalidate(rkey) => Some(rkey),
            Self::None | Self::Immediate(_) => None,
        }
    }
}

/// The number of a READ or atomic and the response awaited, which end their packet.
fn parse_read_seq(bytes: &[u8]) -> Result<(u32, Psn), DropReason> {
    let (seq, rest) = split::<ReadSeqView>(bytes)?;
    if !rest.is_empty() {
        return Err(DropReason::BadLength);
    }
    Ok((seq.read_sn.get(), Psn::new(from_be24(seq.awaited))))
}

fn read_seq(read_sn: u32, awaited: Psn) -> ReadSeqView {
    ReadSeqView { read_sn: read_sn.into(), reserved: 0, awaited: to_be24(awaited.value()) }
}

/// A cursor into the caller's buffer that never runs over its end.
pub(super) struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn take(&mut self, len: usize) -> Option<&mut [u8]> {
        let room = self.out.get_mut(self.at..self.at + len)?;
        self.at += len;
        Some(room)
    }

    pub(super) fn put<T: IntoBytes + Immutable>(&mut self, header: &T) -> Option<()> {
        let bytes = header.as_bytes();
        self.take(bytes.len()).map(|room| room.copy_from_slice(bytes))
    }
}

/// Writes a frame whose payload `fill` puts in place, so that application memory is copied once.
/// The payload in `body` is ignored. Returns the frame's length or `fill`'s error; `None` if the frame does not fit.
pub fn emit_with<E>(
    out: &mut [u8],
    eth: &Ethernet,
    base: &Base,
    body: &Body<'_>,
    payload_len: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Option<Result<usize, E>> {
    let start = eth.emit(out)?;
    let mut writer = Writer { out, at: start + BASE_LEN };
    body.emit_extensions(&mut writer)?;
    if let Err(error) = fill(writer.take(payload_len)?) {
        return Some(Err(error));
    }
    let end = writer.at;
    let weft = WeftHeader {
        magic: MAGIC.into(),
        version: VERSION,
        reserved: 0,
        length: U16::new(u16::try_from(end + ICRC_LEN - start - size_of::<WeftHeader>()).ok()?),
        tag: base.tag.into(),
        timestamp: base.timestamp.ticks().into(),
    };
    let bth = bth_of(base, body.opcode());
    let crc = icrc_of(out, &weft, &bth, out.get(start + BASE_LEN..end)?);
    out[start..start + size_of::<WeftHeader>()].copy_from_slice(weft.as_bytes());
    out[start + size_of::<WeftHeader>()..start + BASE_LEN].copy_from_slice(bth.as_bytes());
    out.get_mut(end..end + ICRC_LEN)?.copy_from_slice(&crc.to_be_bytes());
    pad(out, end + ICRC_LEN).map(Ok)
}

const fn bth_of(base: &Base, opcode: Opcode) -> BthView {
    BthView {
        opcode: opcode.code(),
        flags: (base.solicited as u8) << 7,
        partition: U16::new(PARTITION),
        congestion: (base.fecn as u8) << 7 | (base.becn as u8) << 6,
        dst_qp: to_be24(base.dst_qp.0),
        ack_request: (base.ack_request as u8) << 7,
        psn: to_be24(base.psn.value()),
    }
}

/// Zero padding to the Ethernet minimum.
fn pad(out: &mut [u8], len: usize) -> Option<usize> {
    if len < MIN_FRAME {
        out.get_mut(len..MIN_FRAME)?.fill(0);
    }
    Some(len.max(MIN_FRAME))
}
