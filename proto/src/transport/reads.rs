//! READs and atomics on the asking side: which are under way, and what has come back of them.
//!
//! Responses are a packet stream of their own (the paper's rPSN), so that a lost one holds up neither requests nor
//! acknowledgements. Every response is known before it comes: the asker knows how long each READ is and in which order
//! they are answered, so the number of a packet fixes the READ, the place and the length of its bytes. What does not fit
//! is not placed.

use alloc::boxed::Box;
use alloc::vec;

use crate::drops::DropReason;
use crate::time::Instant;
use crate::transport::inbound::Inbound;
use crate::transport::irn::{AckTiming, Arrival, Mark, Profile};
use crate::transport::region::{Memory, Regions};
use crate::transport::requester::SendSlot;
use crate::transport::{AppId, Data, Psn, SendOp};
use crate::wire::packet::{Base, Body};

/// What the asking side is made with, when the first READ is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadsConfig {
    pub(super) profile: Profile,
    pub(super) timing: AckTiming,
    /// Number of the first response.
    pub(super) first: Psn,
    /// Most READs and atomics under way, at least 1.
    pub(super) limit: u32,
}

/// A READ or atomic under way.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Position of its request in the send queue.
    position: u32,
    /// Number of its first response.
    first: Psn,
}

/// What became of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// Placed; the in-order point moved or not.
    Taken,
    /// It went no further.
    Dropped(DropReason),
    /// The next response in order does not fit what was asked: the peer is broken.
    Nonsense,
    /// The local memory of this request is gone.
    NoMemory(u32),
}

/// The READs and atomics under way.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) inbound: Inbound,
    limit: u32,
    asked: Box<[Asked]>,
    /// Number of the next READ (the paper's `read_WQE_SN`).
    next: u32,
    /// READs before this are done.
    done: u32,
    /// Number of the first response to the next READ.
    next_response: Psn,
}

impl Reads {
    pub(super) fn new(config: &ReadsConfig) -> Self {
        Self {
            inbound: Inbound::new(config.first, config.profile, config.timing),
            limit: config.limit,
            asked: vec![Asked::default(); config.limit.next_power_of_two() as usize].into_boxed_slice(),
            next: 0,
            done: 0,
            next_response: config.first,
        }
    }

    const fn slot(&self, read_sn: u32) -> usize {
        read_sn as usize & (self.asked.len() - 1)
    }

    /// Number of the next READ.
    pub(super) const fn next_sn(&self) -> u32 {
        self.next
    }

    /// READs and atomics under way.
    pub(super) const fn under_way(&self) -> u32 {
        self.next.wrapping_sub(self.done)
    }

    /// True if another one may start.
    pub(super) const fn has_room(&self) -> bool {
        self.under_way() < self.limit
    }

    /// True if the READ with this number is done.
    pub(super) const fn is_done(&self, read_sn: u32) -> bool {
        // Unsigned distance: READs that are not done lie in `done..next`.
        read_sn.wrapping_sub(self.done) >= self.under_way()
    }

    /// A READ left for the first time: it will be answered in so many packets.
    pub(super) fn start(&mut self, position: u32, responses: u32) {
        let slot = self.slot(self.next);
        self.asked[slot] = Asked { position, first: self.next_response };
        self.next = self.next.wrapping_add(1);
        self.next_response = self.next_response.plus(responses);
    }

    /// Position in the send queue of a READ under way.
    pub(super) fn position_of(&self, read_sn: u32) -> Option<u32> {
        (!self.is_done(read_sn)).then(|| self.asked[self.slot(read_sn)].position)
    }

    /// A response arrived; `asked` is the request with the number in it, if that is under way.
    pub(super) fn handle_response<M: Memory>(
        &mut self,
        now: Instant,
        base: &Base,
        body: &Body<'_>,
        asked: Option<&SendSlot>,
        payload: u32,
        target: ReadTarget<'_, M>,
    ) -> Answered {
        let arrival = match self.inbound.classify(now, base) {
            Ok(arrival) => arrival,
            Err(reason) => return Answered::Dropped(reason),
        };
        let in_order = arrival == Arrival::Expected;
        let Some((offset, bytes, read_sn)) = asked.and_then(|slot| self.check(base.psn, body, slot, payload)) else {
            return if in_order { Answered::Nonsense } else { Answered::Dropped(DropReason::BadResponse) };
        };
        let (Some(slot), Some(position)) = (asked, self.position_of(read_sn)) else { return Answered::Nonsense };
        if !target.place(slot, offset, bytes.as_slice()) {
            return if in_order { Answered::NoMemory(position) } else { Answered::Dropped(DropReason::EarlyFault) };
        }
        let ends = u64::from(offset) + bytes.as_slice().len() as u64 == u64::from(slot.len);
        let advance = self.inbound.accept(now, arrival, base, if ends { Mark::Ends } else { Mark::Inner });
        self.done = self.done.wrapping_add(advance.messages);
        Answered::Taken
    }

    /// Where the bytes of a response go, if it is what was asked for.
    fn check<'a>(&self, psn: Psn, body: &Body<'a>, slot: &SendSlot, payload: u32) -> Option<(u32, Bytes<'a>, u32)> {
        match (*body, slot.work.op) {
            (Body::ReadResponse { position, read_sn, offset, payload: bytes }, SendOp::Read { .. }) => {
                let first = self.asked[self.slot(read_sn)].first;
                let place = u64::from(psn.distance_from(first)?) * u64::from(payload);
                let left = u64::from(slot.len).checked_sub(place)?;
                let fits = u64::from(offset) == place && bytes.len() as u64 == left.min(u64::from(payload));
                let ends = left <= u64::from(payload);
                (fits && position.ends() == ends && (place < u64::from(slot.len) || place == 0)).then_some((
                    offset,
                    Bytes::Borrowed(bytes),
                    read_sn,
                ))
            }
            (Body::AtomicResponse { read_sn, original }, SendOp::Atomic { .. }) => {
                (self.asked[self.slot(read_sn)].first == psn).then_some((0, Bytes::Number(original.to_ne_bytes()), read_sn))
            }
            _ => None,
        }
    }
}

/// The bytes of a response.
enum Bytes<'a> {
    Borrowed(&'a [u8]),
    Number([u8; 8]),
}

impl Bytes<'_> {
    const fn as_slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Number(bytes) => bytes,
        }
    }
}

/// Whose memory responses go to, and how to reach it.
pub(super) struct ReadTarget<'a, M> {
    pub(super) owner: AppId,
    pub(super) regions: &'a Regions,
    pub(super) memory: &'a mut M,
}

impl<M: Memory> ReadTarget<'_, M> {
    fn place(self, slot: &SendSlot, offset: u32, bytes: &[u8]) -> bool {
        let Data::List(list) = &slot.work.local else { return false };
        bytes.is_empty() || self.regions.scatter(self.owner, list, u64::from(offset), bytes, self.memory).is_ok()
    }
}
