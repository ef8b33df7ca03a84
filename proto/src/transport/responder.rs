//! The responder: request packets to memory, receives and acknowledgements.
//!
//! Data is placed at once, also behind a gap; nothing is reported before the gap is filled. A fault behind a gap is
//! not reported either: the packet is dropped as if it had been lost, comes again, and is refused in order.

use crate::drops::DropReason;
use crate::time::Instant;
use crate::transport::irn::{Acker, Arrival, Mark, Profile, Receiver};
use crate::transport::region::{Memory, Regions, Right};
use crate::transport::ring::Ring;
use crate::transport::work::{CompletionOp, RecvWork};
use crate::transport::{AppId, Psn};
use crate::wire::headers::NakCode;
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

    /// True if this is the receive that the next message in order takes, posted or not.
    const fn is_next(&self, recv_sn: u32) -> bool {
        recv_sn == self.slots.head()
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
    /// Placed, so many packets ahead of the first missing one; so many receives are complete, in order.
    Taken { completions: u32, messages: u32, ahead: u32 },
    /// It went no further.
    Dropped(DropReason),
    /// The next packet in order is at fault: the queue pair fails.
    Fatal(NakCode),
}

/// The receiving half of a connected queue pair.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) receiver: Receiver,
    pub(super) acker: Acker,
    keeps_early: bool,
    /// An answer that goes before any acknowledgement. A fatal one stays, to be given again.
    refusal: Option<Refused>,
    refusal_due: bool,
}

impl Responder {
    pub(super) const fn new(receiver: Receiver, acker: Acker, profile: Profile) -> Self {
        Self { receiver, acker, keeps_early: profile.keeps_early, refusal: None, refusal_due: false }
    }

    /// A request packet arrived.
    pub(super) fn handle_request<M: Memory>(&mut self, now: Instant, base: &Base, body: &Body<'_>, mut target: Target<'_, M>) -> Outcome {
        if self.has_refused() {
            self.refusal_due = true;
            return Outcome::Dropped(DropReason::QueuePairState);
        }
        let arrival = self.receiver.classify(base.psn);
        if let Some(reason) = self.refuse_arrival(arrival) {
            self.acker.on_arrival(now, arrival, base.psn, self.receiver.expected(), base.ack_request);
            return Outcome::Dropped(reason);
        }
        if arrival == Arrival::Expected && receive_of(body).is_some_and(|recv_sn| !target.queue.is_next(recv_sn)) {
            return self.refuse(arrival, Refused::Fatal(NakCode::InvalidRequest));
        }
        match target.place(body, base.solicited) {
            Ok(mark) => self.take(now, arrival, base, mark),
            Err(refused) => self.refuse(arrival, refused),
        }
    }

    const fn refuse_arrival(&self, arrival: Arrival) -> Option<DropReason> {
        match arrival {
            Arrival::Duplicate => Some(DropReason::Duplicate),
            Arrival::OutOfWindow => Some(DropReason::OutOfWindow),
            Arrival::Early if !self.keeps_early => Some(DropReason::OutOfOrder),
            Arrival::Expected | Arrival::Early => None,
        }
    }

    fn take(&mut self, now: Instant, arrival: Arrival, base: &Base, mark: Mark) -> Outcome {
        let (opens_gap, ahead) = (self.receiver.opens_gap(base.psn), self.receiver.ahead(base.psn));
        let advance = self.receiver.accept(base.psn, mark);
        let urgent = base.ack_request || opens_gap || advance.packets > 1;
        self.acker.on_arrival(now, arrival, base.psn, self.receiver.expected(), urgent);
        Outcome::Taken { completions: advance.completions, messages: advance.messages, ahead }
    }

    const fn refuse(&mut self, arrival: Arrival, refused: Refused) -> Outcome {
        match (arrival, refused) {
            (Arrival::Expected, Refused::NotReady) => {
                self.refusal = Some(refused);
                self.refusal_due = true;
                Outcome::Dropped(DropReason::ReceiverNotReady)
            }
            (Arrival::Expected, Refused::Fatal(code)) => {
                self.refusal = Some(refused);
                self.refusal_due = true;
                Outcome::Fatal(code)
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
        self.refusal_due || self.acker.is_due()
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
        self.receiver.expected()
    }
}

/// The receive that a packet names.
const fn receive_of(body: &Body<'_>) -> Option<u32> {
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
