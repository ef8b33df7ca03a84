//! Acknowledgements: what has arrived, and what the path was like.

use zerocopy::byteorder::big_endian::U64;

use crate::drops::DropReason;
use crate::time::{Duration, Instant, Timestamp};
use crate::transport::Psn;
use crate::wire::headers::{AckKind, AethView, EchoView, SackView, from_be24, to_be24};
use crate::wire::packet::{Writer, split};

/// Most 64-bit words in a SACK bitmap: 1,024 packets.
pub const SACK_WORDS: usize = 16;

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

/// An acknowledgement. Its cumulative number is [`Base::psn`](crate::wire::Base::psn).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Positive, not ready, or refused.
    pub kind: AckKind,
    /// Messages completed so far, modulo 2^24.
    pub msn: u32,
    /// What the sender measures the path with.
    pub echo: Echo,
    /// What arrived out of order, if anything did.
    pub sack: Option<Sack>,
}

/// What a receiver reports of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Echo {
    /// Timestamp of the packet that arrived last.
    pub timestamp: Timestamp,
    /// Ticks between its arrival and the acknowledgement; [`u16::MAX`] or longer is [`u16::MAX`].
    pub held: u16,
    /// Packets that arrived marked by a switch so far, modulo 2^16.
    pub marked: u16,
}

impl Echo {
    /// The round trip that an acknowledgement arriving now measures, without the time that the receiver held it.
    pub fn round_trip(self, now: Instant) -> Option<Duration> {
        let held = Some(self.held).filter(|&held| held != u16::MAX)?;
        self.timestamp.age(now).map(|age| age - Timestamp::span(u32::from(held)))
    }
}

pub(super) fn parse_ack(bytes: &[u8]) -> Result<Ack, DropReason> {
    let (aeth, rest) = split::<AethView>(bytes)?;
    let kind = AckKind::from_syndrome(aeth.syndrome)?;
    let (view, rest) = split::<EchoView>(rest)?;
    let echo = Echo { timestamp: Timestamp::from_ticks(view.echo.get()), held: view.held.get(), marked: view.marked.get() };
    let sack = if rest.is_empty() { None } else { Some(parse_sack(rest)?) };
    Ok(Ack { kind, msn: from_be24(aeth.msn), echo, sack })
}

pub(super) fn emit_ack(out: &mut Writer<'_>, ack: &Ack) -> Option<()> {
    out.put(&AethView { syndrome: ack.kind.syndrome(), msn: to_be24(ack.msn) })?;
    let echo = ack.echo;
    out.put(&EchoView { echo: echo.timestamp.ticks().into(), held: echo.held.into(), marked: echo.marked.into() })?;
    ack.sack.map_or(Some(()), |sack| emit_sack(out, &sack))
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
