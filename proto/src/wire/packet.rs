//! A whole transport frame: bytes to [`Packet`] and back.

use core::mem::size_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::drops::DropReason;
use crate::transport::{Psn, QpNum};
use crate::wire::connection::{CONNECTION_LEN, ConnectionMessage, ForeignVersion, MAX_PRIVATE};
use crate::wire::eth::{Ethernet, MIN_FRAME};
use crate::wire::headers::{
    AckKind, AethView, BthView, DethView, ImmView, MAGIC, Opcode, Position, RethView, SackView, SeqView, VERSION, WeftHeader, from_be24,
    to_be24,
};

/// Bytes of the invariant CRC at the end.
pub const ICRC_LEN: usize = 4;
/// Bytes of Weft header and BTH.
const BASE_LEN: usize = size_of::<WeftHeader>() + size_of::<BthView>();
/// Most 64-bit words in a SACK bitmap: 1,024 packets.
pub const SACK_WORDS: usize = 16;
/// The queue pair that takes connection messages (InfiniBand: the general services interface).
pub const CONNECTION_QP: QpNum = QpNum(1);
/// The default partition, full member.
const PARTITION: u16 = 0xffff;
/// The well-known queue key of queue pair 1.
const Q_KEY: u32 = 0x8001_0000;

/// Bytes that a frame needs around its payload at most: WRITE last with immediate.
pub const MAX_OVERHEAD: usize = BASE_LEN + size_of::<RethView>() + size_of::<ImmView>() + size_of::<SeqView>() + ICRC_LEN;

/// Smallest MTU that the transport works with: that of a connection message with all its private data.
pub const MIN_MTU: usize = BASE_LEN + size_of::<DethView>() + CONNECTION_LEN + MAX_PRIVATE + ICRC_LEN;
/// Every acknowledgement fits, too.
const _: () = assert!(BASE_LEN + size_of::<AethView>() + size_of::<SackView>() + SACK_WORDS * 8 + ICRC_LEN <= MIN_MTU);

/// The fields that every transport packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Connection tag chosen by the receiver of the packet; 0 for connection messages.
    pub tag: u16,
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

/// Which packets behind the first missing one have arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sack {
    /// The packet whose arrival triggered this acknowledgement (IRN's simplified selective acknowledgement).
    pub psn: Psn,
    /// Bit i of word w: packet `cumulative + 64 w + i` has arrived. May be empty.
    words: [u64; SACK_WORDS],
    count: u8,
}

impl Sack {
    /// The acknowledgement of `psn` and of the packets in `bitmap`; words beyond [`SACK_WORDS`] and zero words at the end are left out.
    pub fn new(psn: Psn, bitmap: &[u64]) -> Self {
        let used = bitmap.iter().take(SACK_WORDS).rposition(|&word| word != 0).map_or(0, |last| last + 1);
        let mut words = [0; SACK_WORDS];
        words[..used].copy_from_slice(&bitmap[..used]);
        Self { psn, words, count: u8::try_from(used).unwrap_or(0) }
    }

    /// The bitmap's words.
    pub fn words(&self) -> &[u64] {
        &self.words[..usize::from(self.count)]
    }
}

impl core::fmt::Debug for Sack {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Sack({:?}, {:x?})", self.psn, self.words())
    }
}

/// An acknowledgement. Its cumulative number is [`Base::psn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Positive, not ready, or refused.
    pub kind: AckKind,
    /// Messages completed so far, modulo 2^24.
    pub msn: u32,
    /// What arrived out of order, if anything did.
    pub sack: Option<Sack>,
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
        /// Immediate data, with the last piece only.
        imm: Option<u32>,
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
    /// An acknowledgement.
    Ack(Ack),
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
            solicited: bth.flags & 0x80 != 0,
            ack_request: bth.ack_request & 0x80 != 0,
            fecn: bth.congestion & 0x80 != 0,
            becn: bth.congestion & 0x40 != 0,
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

fn split_base(rest: &[u8]) -> Result<(&WeftHeader, &BthView, &[u8]), DropReason> {
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
    head[12..20].copy_from_slice(weft.as_bytes());
    head[20..].copy_from_slice(BthView { congestion: 0xff, ..*bth }.as_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head), extensions)
}

impl<'a> Body<'a> {
    fn parse(opcode: Opcode, bytes: &'a [u8]) -> Result<Self, DropReason> {
        match opcode {
            Opcode::Send(position, imm) => Self::parse_send(position, imm, bytes),
            Opcode::Write(position, imm) => Self::parse_write(position, imm, bytes),
            Opcode::Acknowledge => Self::parse_ack(bytes),
            Opcode::Datagram => Self::parse_connection(bytes),
        }
    }

    fn parse_send(position: Position, has_imm: bool, bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (seq, bytes) = split::<SeqView>(bytes)?;
        let (imm, payload) =
            if has_imm { split::<ImmView>(bytes).map(|(view, rest)| (Some(view.imm.get()), rest))? } else { (None, bytes) };
        Ok(Self::Send { position, recv_sn: seq.recv_sn.get(), offset: seq.offset.get(), imm, payload })
    }

    fn parse_write(position: Position, has_imm: bool, bytes: &'a [u8]) -> Result<Self, DropReason> {
        let (reth, bytes) = split::<RethView>(bytes)?;
        let (va, rkey, length) = (reth.va.get(), reth.rkey.get(), reth.length.get());
        if !has_imm {
            return Ok(Self::Write { position, va, rkey, length, imm: None, payload: bytes });
        }
        let (imm, bytes) = split::<ImmView>(bytes)?;
        let (seq, payload) = split::<SeqView>(bytes)?;
        Ok(Self::Write { position, va, rkey, length, imm: Some((imm.imm.get(), seq.recv_sn.get())), payload })
    }

    fn parse_ack(bytes: &[u8]) -> Result<Self, DropReason> {
        let (aeth, rest) = split::<AethView>(bytes)?;
        let kind = AckKind::from_syndrome(aeth.syndrome)?;
        let sack = if rest.is_empty() { None } else { Some(parse_sack(rest)?) };
        Ok(Self::Ack(Ack { kind, msn: from_be24(aeth.msn), sack }))
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
            Self::Send { payload, .. } | Self::Write { payload, .. } => payload,
            Self::Ack(_) | Self::Connection(_) | Self::ForeignConnection(_) => &[],
        }
    }

    const fn opcode(&self) -> Opcode {
        match *self {
            Self::Send { position, imm, .. } => Opcode::Send(position, imm.is_some()),
            Self::Write { position, imm, .. } => Opcode::Write(position, imm.is_some()),
            Self::Ack(_) => Opcode::Acknowledge,
            Self::Connection(_) | Self::ForeignConnection(_) => Opcode::Datagram,
        }
    }

    /// Writes the extension headers and returns the bytes that they take.
    fn emit_extensions(&self, out: &mut Writer<'_>) -> Option<()> {
        match *self {
            Self::Send { recv_sn, offset, imm, .. } => {
                out.put(&SeqView { recv_sn: recv_sn.into(), offset: offset.into() })?;
                imm.map_or(Some(()), |imm| out.put(&ImmView { imm: imm.into() }))
            }
            Self::Write { va, rkey, length, imm, .. } => {
                out.put(&RethView { va: va.into(), rkey: rkey.into(), length: length.into() })?;
                let Some((imm, recv_sn)) = imm else { return Some(()) };
                out.put(&ImmView { imm: imm.into() })?;
                out.put(&SeqView { recv_sn: recv_sn.into(), offset: U32::ZERO })
            }
            Self::Ack(ack) => {
                out.put(&AethView { syndrome: ack.kind.syndrome(), msn: to_be24(ack.msn) })?;
                ack.sack.map_or(Some(()), |sack| emit_sack(out, &sack))
            }
            Self::Connection(message) => {
                out.put(&DethView { q_key: Q_KEY.into(), reserved: 0, src_qp: to_be24(CONNECTION_QP.0) })?;
                message.emit(out.take(message.len())?)
            }
            Self::ForeignConnection(_) => None,
        }
    }
}

fn split<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> Result<(&T, &[u8]), DropReason> {
    T::ref_from_prefix(bytes).map_err(|_| DropReason::BadLength)
}

fn parse_sack(bytes: &[u8]) -> Result<Sack, DropReason> {
    let (view, bitmap) = split::<SackView>(bytes)?;
    let count = usize::from(view.words);
    if count > SACK_WORDS || bitmap.len() != count * 8 {
        return Err(DropReason::BadLength);
    }
    let mut words = [0; SACK_WORDS];
    for (word, octets) in words.iter_mut().zip(bitmap.as_chunks::<8>().0) {
        *word = u64::from_be_bytes(*octets);
    }
    Ok(Sack { psn: Psn::new(from_be24(view.psn)), words, count: view.words })
}

fn emit_sack(out: &mut Writer<'_>, sack: &Sack) -> Option<()> {
    out.put(&SackView { words: sack.count, psn: to_be24(sack.psn.value()) })?;
    sack.words().iter().try_for_each(|&word| out.put(&U64::new(word)))
}

/// A cursor into the caller's buffer that never runs over its end.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn take(&mut self, len: usize) -> Option<&mut [u8]> {
        let room = self.out.get_mut(self.at..self.at + len)?;
        self.at += len;
        Some(room)
    }

    fn put<T: IntoBytes + Immutable>(&mut self, header: &T) -> Option<()> {
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
