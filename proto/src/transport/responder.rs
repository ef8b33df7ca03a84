//! The responder: request packets to memory, receives and acknowledgements.
//!
//! Data is placed at once, also behind a gap; nothing is reported before the gap is filled. A fault behind a gap is
//! not reported either: the packet is dropped as if it had been lost, comes again, and is refused in order.

use alloc::boxed::Box;

use crate::drops::DropReason;
use crate::time::Instant;
use crate::transport::inbound::Inbound;
use crate::transport::irn::{Advance, Arrival, Mark};
use crate::transport::region::{Memory, Regions, Right};
use crate::transport::responses::{Execution, Responses, ResponsesConfig};
use crate::transport::ring::Ring;
use crate::transport::work::{CompletionOp, RecvWork};
use crate::transport::{AppId, Psn};
use crate::wire::headers::{Credits, NakCode};
use crate::wire::packet::{Base, Body, Tail};

/// A posted receive and what has been learnt about the message in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecvSlot {
    pub(super) work: RecvWork,
    pub(super) result: RecvResult,
}

/// What the completion of a receive will say, known from the last packet, which may come early.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecvResult {
    pub(super) byte_len: u32,
    pub(super) tail: Tail,
    pub(super) by_write: bool,
    pub(super) solicited: bool,
}

impl RecvSlot {
    pub(super) const fn completion_op(&self) -> CompletionOp {
        if self.result.by_write { CompletionOp::RecvWriteImm } else { CompletionOp::Recv }
    }
}

/// The receive queue: a ring of posted receives. Positions are receive sequence numbers (the paper's `recv_WQE_SN`).
#[derive(Debug)]
pub(super) struct RecvQueue {
    slots: Ring<RecvSlot>,
    depth: u32,
}

impl RecvQueue {
    pub(super) const fn new(depth: u32) -> Self {
        Self { slots: Ring::new(0), depth }
    }

    /// Receives posted and not completed.
    pub(super) const fn len(&self) -> u32 {
        self.slots.len()
    }

    /// True if no further receive fits.
    pub(super) const fn is_full(&self) -> bool {
        self.len() >= self.depth
    }

    /// Posts a receive. The caller has checked that it fits.
    pub(super) fn push(&mut self, work: RecvWork) {
        self.slots.push(RecvSlot { work, ..RecvSlot::default() });
    }

    /// Takes out the oldest receive.
    pub(super) fn pop(&mut self) -> Option<RecvSlot> {
        self.slots.pop()
    }

    /// Number of the receive that the next message in order takes, posted or not.
    pub(super) const fn next_sn(&self) -> u32 {
        self.slots.head()
    }

    /// What the sender is told of it.
    pub(super) fn credits(&self, shared: bool) -> Credits {
        if shared { Credits::UNLIMITED } else { Credits::of(self.len()) }
    }

    /// How far a receive is ahead of the next one in order.
    pub(super) const fn ahead(&self, recv_sn: u32) -> u32 {
        recv_sn.wrapping_sub(self.next_sn())
    }

    /// The receive with this sequence number, if it is posted and open.
    fn at(&mut self, recv_sn: u32) -> Option<&mut RecvSlot> {
        self.slots.get_mut(recv_sn)
    }
}

/// A refusal that the requester is told of, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// No receive posted: try later.
    NotReady,
    /// Never.
    Fatal(NakCode),
}

/// What became of a request packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Placed, so many packets ahead of the first missing one; the in-order point moved over so much.
    Taken { advance: Advance, ahead: u32 },
    /// It went no further.
    Dropped(DropReason),
    /// The next packet in order is at fault: the queue pair fails, after what came before it.
    Fatal { code: NakCode, advance: Advance },
}

/// The receiving half of a connected queue pair.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) inbound: Inbound,
    /// READs and atomics of the peer; none before the first.
    pub(super) responses: Option<Box<Responses>>,
    responses_config: ResponsesConfig,
    /// An answer that goes before any acknowledgement. A fatal one stays, to be given again.
    refusal: Option<Refused>,
    refusal_due: bool,
}

impl Responder {
    pub(super) const fn new(inbound: Inbound, responses_config: ResponsesConfig) -> Self {
        Self { inbound, responses: None, responses_config, refusal: None, refusal_due: false }
    }

    /// A request packet arrived.
    pub(super) fn handle_request<M: Memory>(&mut self, now: Instant, base: &Base, body: &Body<'_>, mut target: Target<'_, M>) -> Outcome {
        if self.has_refused() {
            self.refusal_due = true;
            return Outcome::Dropped(DropReason::QueuePairState);
        }
        let arrival = match self.inbound.classify(now, base) {
            Ok(arrival) => arrival,
            Err(reason) => return Outcome::Dropped(reason),
        };
        if arrival == Arrival::Expected && !self.has_its_turn(body, &target) || !self.is_plausible(base.psn, body, target.queue) {
            return self.refuse(arrival, Refused::Fatal(NakCode::InvalidRequest));
        }
        let placed = match read_of(body) {
            Some(_) => self.take_read(now, base.psn, body, &target),
            None => target.place(body, base.solicited),
        };
        match placed {
            Ok(mark) => self.take(now, arrival, base, mark, target),
            Err(refused) => self.refuse(arrival, refused),
        }
    }

    /// A packet some way ahead cannot be for a receive further ahead: each message that takes one has a packet.
    fn is_plausible(&self, psn: Psn, body: &Body<'_>, queue: &RecvQueue) -> bool {
        let ahead = psn.distance_from(self.inbound.expected()).unwrap_or(0);
        receive_of(body).is_none_or(|recv_sn| queue.ahead(recv_sn) <= ahead)
    }

    /// The receive that a packet needs, if the packet will be looked at.
    pub(super) fn receive_needed(&self, base: &Base, body: &Body<'_>, queue: &RecvQueue) -> Option<u32> {
        let recv_sn = receive_of(body)?;
        let wanted = !self.has_refused() && self.inbound.wants(base.psn) && self.is_plausible(base.psn, body, queue);
        wanted.then_some(recv_sn)
    }

    /// Receives and READs are numbered in order.
    fn has_its_turn<M>(&self, body: &Body<'_>, target: &Target<'_, M>) -> bool {
        let executed = |read_sn| self.responses.as_ref().map_or(read_sn == 0, |responses| responses.is_next(read_sn));
        receive_of(body).is_none_or(|recv_sn| recv_sn == target.queue.next_sn()) && read_of(body).is_none_or(executed)
    }

    fn take_read<M>(&mut self, now: Instant, psn: Psn, body: &Body<'_>, target: &Target<'_, M>) -> Result<Mark, Refused> {
        let config = &self.responses_config;
        let responses = self.responses.get_or_insert_with(|| Box::new(Responses::new(config)));
        responses.take(now, psn, body, target.owner, target.regions).map(|()| Mark::Ends).map_err(Refused::Fatal)
    }

    fn take<M: Memory>(&mut self, now: Instant, arrival: Arrival, base: &Base, mark: Mark, target: Target<'_, M>) -> Outcome {
        let ahead = self.inbound.receiver.ahead(base.psn);
        let (advance, result) = match self.responses.as_deref_mut() {
            Some(responses) if responses.has_waiting() => {
                let turns = Execution { responses, owner: target.owner, regions: target.regions, memory: target.memory };
                self.inbound.accept_in_turns(now, arrival, base, mark, turns)
            }
            _ => (self.inbound.accept(now, arrival, base, mark), Ok(())),
        };
        match result {
            Ok(()) => Outcome::Taken { advance, ahead },
            Err(code) => {
                self.refuse(Arrival::Expected, Refused::Fatal(code));
                Outcome::Fatal { code, advance }
            }
        }
    }

    /// Memory that the peer reads is gone: a fault of the request, told like any other.
    pub(super) const fn refuse_response(&mut self) {
        self.refusal = Some(Refused::Fatal(NakCode::RemoteAccess));
        self.refusal_due = true;
    }

    fn refuse(&mut self, arrival: Arrival, refused: Refused) -> Outcome {
        match (arrival, refused) {
            (Arrival::Expected, Refused::NotReady) => {
                self.refusal = Some(refused);
                self.refusal_due = true;
                Outcome::Dropped(DropReason::ReceiverNotReady)
            }
            (Arrival::Expected, Refused::Fatal(code)) => {
                self.refusal = Some(refused);
                self.refusal_due = true;
                Outcome::Fatal { code, advance: Advance::default() }
            }
            (_, Refused::NotReady) => Outcome::Dropped(DropReason::ReceiverNotReady),
            (_, Refused::Fatal(_)) => Outcome::Dropped(DropReason::EarlyFault),
        }
    }

    /// True once a request was refused for good.
    pub(super) const fn has_refused(&self) -> bool {
        matches!(self.refusal, Some(Refused::Fatal(_)))
    }

    /// True if an answer is due.
    pub(super) fn is_due(&self) -> bool {
        self.refusal_due || self.inbound.acker.is_due()
    }

    /// The refusal to send now.
    pub(super) fn poll_refusal(&mut self) -> Option<Refused> {
        if !core::mem::take(&mut self.refusal_due) {
            return None;
        }
        match self.refusal {
            Some(Refused::NotReady) => self.refusal.take(),
            other => other,
        }
    }

    /// The in-order point.
    pub(super) const fn expected(&self) -> Psn {
        self.inbound.expected()
    }
}

/// The number of a READ or atomic.
const fn read_of(body: &Body<'_>) -> Option<u32> {
    match *body {
        Body::ReadRequest { read_sn, .. } | Body::Atomic { read_sn, .. } => Some(read_sn),
        _ => None,
    }
}

/// The receive that a packet names.
pub(super) const fn receive_of(body: &Body<'_>) -> Option<u32> {
    match *body {
        Body::Send { recv_sn, .. } | Body::Write { imm: Some((_, recv_sn)), .. } => Some(recv_sn),
        _ => None,
    }
}

/// Whose memory a packet may touch, and how to reach it.
pub(super) struct Target<'a, M> {
    pub(super) owner: AppId,
    pub(super) queue: &'a mut RecvQueue,
    pub(super) regions: &'a Regions,
    pub(super) memory: &'a mut M,
}

impl<M: Memory> Target<'_, M> {
    /// Puts the packet's data where it belongs and says what the packet means for its message.
    fn place(&mut self, body: &Body<'_>, solicited: bool) -> Result<Mark, Refused> {
        match *body {
            Body::Send { position, recv_sn, offset, tail, payload } => {
                self.check_key(tail)?;
                let end = self.place_send(recv_sn, offset, payload)?;
                Ok(if position.ends() {
                    self.close(recv_sn, RecvResult { byte_len: end, tail, solicited, by_write: false })
                } else {
                    Mark::Inner
                })
            }
            Body::Write { position, va, rkey, length, imm, payload } => {
                if imm.is_some_and(|(_, recv_sn)| self.queue.at(recv_sn).is_none()) {
                    return Err(Refused::NotReady);
                }
                self.place_write(va, rkey, payload)?;
                Ok(match imm {
                    Some((imm, recv_sn)) => {
                        self.close(recv_sn, RecvResult { byte_len: length, tail: Tail::Immediate(imm), solicited, by_write: true })
                    }
                    None if position.ends() => Mark::Ends,
                    None => Mark::Inner,
                })
            }
            _ => Err(Refused::Fatal(NakCode::InvalidRequest)),
        }
    }

    /// A key to be made void must open something of ours. That happens only when the message has its turn.
    fn check_key(&self, tail: Tail) -> Result<(), Refused> {
        match tail.invalidated() {
            Some(key) if !self.regions.opens(self.owner, key) => Err(Refused::Fatal(NakCode::RemoteAccess)),
            _ => Ok(()),
        }
    }

    /// Scatters a piece of a SEND into its receive and returns where the piece ends in the message.
    fn place_send(&mut self, recv_sn: u32, offset: u32, payload: &[u8]) -> Result<u32, Refused> {
        let list = self.queue.at(recv_sn).ok_or(Refused::NotReady)?.work.local;
        let end = u64::from(offset) + payload.len() as u64;
        let end = u32::try_from(end).ok().filter(|_| end <= list.total_len()).ok_or(Refused::Fatal(NakCode::InvalidRequest))?;
        if !payload.is_empty() {
            self.regions
                .scatter(self.owner, &list, u64::from(offset), payload, self.memory)
                .map_err(|_| Refused::Fatal(NakCode::RemoteOperational))?;
        }
        Ok(end)
    }

    /// A write of nothing touches no memory, so it needs no key (InfiniBand vol. 1, 9.7.4.1.3).
    fn place_write(&mut self, va: u64, rkey: u32, payload: &[u8]) -> Result<(), Refused> {
        if payload.is_empty() {
            return Ok(());
        }
        let access = self.regions.check(self.owner, rkey, va, payload.len() as u64, Right::RemoteWrite);
        let (mem, at) = access.map_err(|_| Refused::Fatal(NakCode::RemoteAccess))?;
        self.memory.write(mem, at, payload).map_err(|_| Refused::Fatal(NakCode::RemoteOperational))
    }

    /// Notes what the completion of a receive will say once the in-order point has passed.
    fn close(&mut self, recv_sn: u32, result: RecvResult) -> Mark {
        if let Some(slot) = self.queue.at(recv_sn) {
            slot.result = result;
        }
        Mark::Completes
    }
}
