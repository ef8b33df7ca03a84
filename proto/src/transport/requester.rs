//! The requester: work requests to packets.

mod life;

use alloc::boxed::Box;

use crate::drops::DropReason;
use crate::time::{Duration, Instant, earliest};
use crate::transport::congestion::Gate;
use crate::transport::credits::CreditGate;
use crate::transport::irn::{Pick, Sender};
use crate::transport::reads::{Answered, ReadTarget, Reads, ReadsConfig};
use crate::transport::region::{AccessRefused, Memory, Regions};
use crate::transport::requester::life::keepalive_plan;
use crate::transport::ring::Ring;
use crate::transport::work::{CompletionOp, Data, SendOp, SendWork, Status};
use crate::transport::{AppId, Psn};
use crate::wire::headers::{Credits, Position};
use crate::wire::packet::{Base, Body, Tail};

/// Without credit we wait four times the long retransmission time-out before we ask: news of a receive comes unasked
/// and is rarely lost, and asking too early costs a refusal. Each refusal doubles the wait.
const CREDIT_WAIT_DOUBLINGS: u8 = 2;

/// A posted work request and its place in the packet stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendSlot {
    pub(super) work: SendWork,
    pub(super) len: u32,
    first: Psn,
    packets: u32,
    packets_sent: u32,
    recv_sn: u32,
    /// Number among READs and atomics, if it is one.
    read_sn: u32,
    /// Why it is not to be sent.
    fault: Option<Status>,
}

const EMPTY: SendSlot = SendSlot {
    work: SendWork::new(0, SendOp::Send, Data::EMPTY),
    len: 0,
    first: Psn::new(0),
    packets: 0,
    packets_sent: 0,
    recv_sn: 0,
    read_sn: 0,
    fault: None,
};

impl Default for SendSlot {
    fn default() -> Self {
        EMPTY
    }
}

impl SendSlot {
    /// A request of `len` bytes that has not begun.
    pub(super) const fn new(work: SendWork, len: u32) -> Self {
        Self { work, len, ..EMPTY }
    }

    pub(super) const fn completion_op(&self) -> CompletionOp {
        match self.work.op {
            SendOp::Send | SendOp::SendInvalidate { .. } => CompletionOp::Send,
            SendOp::Write { .. } => CompletionOp::Write,
            SendOp::Read { .. } => CompletionOp::Read,
            SendOp::Atomic { .. } => CompletionOp::Atomic,
            SendOp::LocalInvalidate { .. } => CompletionOp::LocalInvalidate,
        }
    }

    /// Request packets that it takes.
    fn request_packets(&self, payload: u32) -> u32 {
        match self.work.op {
            SendOp::LocalInvalidate { .. } => 0,
            SendOp::Read { .. } | SendOp::Atomic { .. } => 1,
            SendOp::Send | SendOp::SendInvalidate { .. } | SendOp::Write { .. } => self.len.div_ceil(payload).max(1),
        }
    }

    /// Bytes that it sends.
    const fn bytes_to_send(&self) -> u32 {
        if self.work.op.is_read() { 0 } else { self.len }
    }

    /// True if the message takes up a receive of the peer.
    const fn consumes_receive(&self) -> bool {
        match self.work.op {
            SendOp::Send | SendOp::SendInvalidate { .. } => true,
            SendOp::Write { .. } => self.work.imm.is_some(),
            SendOp::Read { .. } | SendOp::Atomic { .. } | SendOp::LocalInvalidate { .. } => false,
        }
    }
}

/// The send queue: a ring of posted requests; those from `cursor` on still have packets to send.
#[derive(Debug)]
pub(super) struct SendQueue {
    slots: Ring<SendSlot>,
    depth: u32,
    cursor: u32,
    /// Requests that have not begun are held back.
    draining: bool,
}

impl SendQueue {
    /// Room for `depth` requests.
    pub(super) const fn new(depth: u32) -> Self {
        Self { slots: Ring::new(0), depth, cursor: 0, draining: false }
    }

    /// The request at a position, which has one.
    pub(super) fn slot(&self, position: u32) -> &SendSlot {
        self.slots.get(position).unwrap_or(&EMPTY)
    }

    /// Requests posted and not completed.
    pub(super) const fn len(&self) -> u32 {
        self.slots.len()
    }

    /// True if no further request fits.
    pub(super) const fn is_full(&self) -> bool {
        self.len() >= self.depth
    }

    /// Position of the oldest request.
    pub(super) const fn oldest(&self) -> u32 {
        self.slots.head()
    }

    /// Position of the newest request.
    pub(super) const fn newest(&self) -> u32 {
        self.slots.tail().wrapping_sub(1)
    }

    /// True if requests wait for their first or next packet.
    pub(super) const fn has_unsent(&self) -> bool {
        self.cursor != self.slots.tail()
    }

    /// True if the next packet may be of the request at the cursor, as far as the queue's state goes.
    pub(super) fn may_continue(&self) -> bool {
        self.has_unsent() && !self.is_held() && self.slot(self.cursor).fault.is_none()
    }

    /// True if a drain keeps the request at the cursor from beginning.
    fn is_held(&self) -> bool {
        self.draining && self.slot(self.cursor).packets_sent == 0
    }

    /// True if no request is under way: each is done or has not begun.
    pub(super) fn is_at_rest(&self) -> bool {
        self.oldest() == self.cursor && self.slot(self.cursor).packets_sent == 0
    }

    /// No further request begins, or they do again.
    pub(super) const fn drain(&mut self, draining: bool) {
        self.draining = draining;
    }

    /// A request is at fault and is not sent. It fails when it is the oldest.
    pub(super) fn mark_fault(&mut self, position: u32, fault: Status) {
        if let Some(slot) = self.slots.get_mut(position) {
            slot.fault = Some(fault);
        }
    }

    /// What is wrong with the oldest request.
    pub(super) fn fault_of_oldest(&self) -> Option<Status> {
        self.slots.get(self.oldest())?.fault
    }

    /// Queues a request of `len` bytes. The caller has checked that it fits.
    pub(super) fn push(&mut self, work: SendWork, len: u32) {
        self.slots.push(SendSlot::new(work, len));
    }

    /// Takes out the oldest request, done or not.
    pub(super) fn pop(&mut self) -> Option<SendSlot> {
        let at_cursor = self.cursor == self.slots.head();
        let slot = self.slots.pop()?;
        if at_cursor {
            self.cursor = self.cursor.wrapping_add(1);
        }
        Some(slot)
    }

    /// Takes out the oldest request if all its packets are acknowledged, and it is answered if it is a READ.
    pub(super) fn pop_done(&mut self, requester: &Requester) -> Option<SendSlot> {
        if self.oldest() == self.cursor {
            return None;
        }
        let slot = self.slot(self.oldest());
        let end = slot.first.plus(slot.packets);
        let answered = !slot.work.op.is_read() || requester.reads.as_ref().is_some_and(|reads| reads.is_done(slot.read_sn));
        if answered && requester.sender.has_acknowledged(end) { self.pop() } else { None }
    }

    /// The key that the oldest request makes void, if that is what it does and it has its turn.
    pub(super) fn local_invalidate(&self) -> Option<u32> {
        if self.oldest() != self.cursor || !self.has_unsent() {
            return None;
        }
        match self.slot(self.oldest()).work.op {
            SendOp::LocalInvalidate { key } => Some(key),
            _ => None,
        }
    }
}

/// A packet about to be built.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) pick: Pick,
    pub(super) body: Body<'static>,
    pub(super) payload_len: usize,
    pub(super) solicited: bool,
    pub(super) ack_request: bool,
    /// It is a sign of life.
    pub(super) keepalive: bool,
    data: Data,
    offset: u32,
    /// Position of the request.
    pub(super) work: u32,
    recv_sn: u32,
}

/// The sending half of a connected queue pair.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) sender: Sender,
    /// READs and atomics under way; none before the first.
    pub(super) reads: Option<Box<Reads>>,
    reads_config: ReadsConfig,
    /// Payload bytes of a full packet.
    payload: u32,
    /// Receive sequence number of the next message that consumes a receive.
    recv_sn: u32,
    credits: CreditGate,
    /// Where the oldest message that takes a receive and is not acknowledged may be found.
    unacknowledged: u32,
    /// The receiver was not ready: nothing is sent before this.
    rnr_until: Option<Instant>,
    /// The delay that it asked for ends. Without credit we wait longer, until credit comes.
    rnr_earliest: Instant,
    /// Packets before this were sent before it was found not ready.
    refused_end: Option<Psn>,
    /// Refusals in a row, and those that count towards giving up.
    rnr_streak: u8,
    rnr_retries: u8,
    /// The peer is to be asked for a sign of life.
    keepalive: bool,
}

impl Requester {
    pub(super) fn new(sender: Sender, payload: u32, reads_config: ReadsConfig) -> Self {
        Self {
            sender,
            reads: None,
            reads_config,
            payload: payload.max(1),
            recv_sn: 0,
            credits: CreditGate::default(),
            unacknowledged: 0,
            rnr_until: None,
            rnr_earliest: Instant::ZERO,
            refused_end: None,
            rnr_streak: 0,
            rnr_retries: 0,
            keepalive: false,
        }
    }

    /// Decides what to send now, and how it looks.
    /// `outstanding`: packets on the path, those of other streams of the queue pair included.
    pub(super) fn plan(&mut self, now: Instant, queue: &SendQueue, gate: &mut Gate, outstanding: u32) -> Option<Plan> {
        if self.rnr_until.is_some_and(|until| now < until) {
            return None;
        }
        // A sign of life asks nobody: the peer is idle.
        let keepalive = self.keepalive_may_start(queue);
        let has_new = keepalive || self.may_send_new(now, queue) && gate.permits(now, outstanding);
        let pick = self.sender.pick(now, has_new)?;
        if !gate.permits_pick(now, pick) {
            return None;
        }
        let (position, index) = self.locate(pick, keepalive, queue);
        let Some(slot) = queue.slots.get(position) else { return Some(keepalive_plan(pick, position)) };
        if self.is_refused_again(pick, slot) {
            return None;
        }
        let packets = slot.request_packets(self.payload);
        let recv_sn = self.recv_sn_of(slot);
        let offset = index * self.payload;
        let last = index + 1 == packets;
        let closing = self.sender.in_flight() + 1 >= self.sender.cap() || gate.closes(outstanding);
        let ack_request = matches!(pick, Pick::Again { .. }) || closing || last && self.pauses_after(position, slot, queue);
        Some(Plan {
            pick,
            body: self.body_of(pick, slot, Position::of(index, packets), offset, recv_sn),
            payload_len: (slot.bytes_to_send() - offset).min(self.payload) as usize,
            solicited: last && slot.work.solicited,
            ack_request,
            keepalive: false,
            data: slot.work.local,
            offset,
            work: position,
            recv_sn,
        })
    }

    fn may_send_new(&mut self, now: Instant, queue: &SendQueue) -> bool {
        if queue.is_held() {
            // A wait for credit goes on meanwhile: drain after drain must not put it off for ever.
            return false;
        }
        let ready = queue.may_continue() && self.may_start(queue);
        if !ready {
            self.credits.rest();
        }
        ready && self.has_credit(now, queue)
    }

    /// Whether the next request may send its first packet, or the one begun its next.
    fn may_start(&self, queue: &SendQueue) -> bool {
        let slot = queue.slot(queue.cursor);
        let under_way = self.reads.as_ref().map_or(0, |reads| reads.under_way());
        match slot.work.op {
            SendOp::LocalInvalidate { .. } => false,
            _ if slot.work.fence && slot.packets_sent == 0 && under_way > 0 => false,
            SendOp::Read { .. } | SendOp::Atomic { .. } => self.reads.as_ref().is_none_or(|reads| reads.has_room()),
            _ => true,
        }
    }

    /// Whether there is a receive for the next message, or it is time to send a packet without knowing.
    fn has_credit(&mut self, now: Instant, queue: &SendQueue) -> bool {
        let slot = queue.slot(queue.cursor);
        if !slot.consumes_receive() {
            self.credits.rest();
            return true;
        }
        let (recv_sn, wait) = (self.recv_sn_of(slot), self.credit_wait());
        self.credits.admits(now, recv_sn, self.sender.in_flight() > 0, wait)
    }

    /// True if the next message takes a receive that the peer is not known to have.
    pub(super) fn waits_for_credit(&self, queue: &SendQueue) -> bool {
        let slot = queue.slot(queue.cursor);
        slot.consumes_receive() && !self.credits.covers(self.recv_sn_of(slot))
    }

    /// The receive that a message takes: its own once it has begun, else the next one.
    const fn recv_sn_of(&self, slot: &SendSlot) -> u32 {
        if slot.packets_sent == 0 { self.recv_sn } else { slot.recv_sn }
    }

    /// How long to wait for credit before asking.
    fn credit_wait(&self) -> Duration {
        self.sender.rtt().timeout(false, CREDIT_WAIT_DOUBLINGS.saturating_add(self.rnr_streak))
    }

    /// True if nothing follows this request soon: there is no other, or it has no credit.
    fn pauses_after(&self, position: u32, slot: &SendSlot, queue: &SendQueue) -> bool {
        let next = queue.slot(position.wrapping_add(1));
        let taken = u32::from(slot.packets_sent == 0 && slot.consumes_receive());
        position == queue.newest() || next.consumes_receive() && !self.credits.covers(self.recv_sn.wrapping_add(taken))
    }

    /// The receiver said how many receives there are beyond those that it has acknowledged.
    pub(super) fn on_credits(&mut self, now: Instant, credits: Credits, queue: &SendQueue) {
        let acknowledged = self.oldest_receive(queue);
        self.credits.grant(acknowledged, credits);
        if self.credits.covers(acknowledged) {
            self.rnr_until = self.rnr_until.map(|until| until.min(self.rnr_earliest));
        } else if self.rnr_until.is_none() && self.refused_end.is_some_and(|end| self.sender.unacknowledged().is_before(end)) {
            // What is in flight was refused with what went before it: no need to ask whether there is room now.
            let until = now + self.credit_wait();
            self.rnr_until = Some(until);
            self.rnr_earliest = now;
            self.sender.on_receiver_not_ready(until);
        }
    }

    /// The receive of the oldest message that takes one and is not acknowledged in full. Messages are walked over once.
    fn oldest_receive(&mut self, queue: &SendQueue) -> u32 {
        if self.unacknowledged.wrapping_sub(queue.oldest()) > queue.len() {
            self.unacknowledged = queue.oldest();
        }
        loop {
            let slot = queue.slot(self.unacknowledged);
            let begun = self.unacknowledged != queue.cursor || slot.packets_sent > 0;
            if !begun {
                return self.recv_sn;
            }
            if slot.consumes_receive() && self.sender.unacknowledged().is_before(slot.first.plus(slot.packets)) {
                return slot.recv_sn;
            }
            if self.unacknowledged == queue.cursor {
                return self.recv_sn;
            }
            self.unacknowledged = self.unacknowledged.wrapping_add(1);
        }
    }

    /// True if a packet need not be sent again yet: there is no receive for it. The oldest in flight goes in any case.
    fn is_refused_again(&self, pick: Pick, slot: &SendSlot) -> bool {
        let Pick::Again { psn, .. } = pick else { return false };
        psn != self.sender.unacknowledged() && slot.consumes_receive() && !self.credits.covers(slot.recv_sn)
    }

    /// How a packet looks, but for its payload.
    fn body_of(&self, pick: Pick, slot: &SendSlot, position: Position, offset: u32, recv_sn: u32) -> Body<'static> {
        let (next_sn, awaited) =
            self.reads.as_ref().map_or((0, self.reads_config.first), |reads| (reads.next_sn(), reads.inbound.expected()));
        let read_sn = if matches!(pick, Pick::New(_)) { next_sn } else { slot.read_sn };
        match slot.work.op {
            SendOp::Read { remote_addr, rkey } => Body::ReadRequest { read_sn, awaited, va: remote_addr, rkey, length: slot.len },
            SendOp::Atomic { remote_addr, rkey, op } => Body::Atomic { read_sn, awaited, va: remote_addr, rkey, op },
            _ => message_body(slot, position, offset, recv_sn),
        }
    }

    /// Which request, and which of its packets. A sign of life belongs to no request: its position is one that none has.
    fn locate(&self, pick: Pick, keepalive: bool, queue: &SendQueue) -> (u32, u32) {
        match pick {
            Pick::New(_) if keepalive => (queue.cursor ^ 1 << 31, 0),
            Pick::New(_) => (queue.cursor, queue.slot(queue.cursor).packets_sent),
            Pick::Again { psn, .. } => {
                let work = self.sender.work_of(psn);
                (work, psn.distance_from(queue.slot(work).first).unwrap_or(0))
            }
        }
    }

    /// The planned packet is built: state moves on only now.
    pub(super) fn commit(&mut self, now: Instant, plan: &Plan, queue: &mut SendQueue) {
        self.sender.on_sent(now, plan.pick, plan.work);
        self.keepalive = false;
        let Pick::New(psn) = plan.pick else { return };
        let payload = self.payload;
        let Some(slot) = queue.slots.get_mut(plan.work) else { return };
        if slot.packets_sent == 0 {
            slot.first = psn;
            slot.packets = slot.request_packets(payload);
            slot.recv_sn = plan.recv_sn;
            if slot.consumes_receive() {
                self.recv_sn = self.recv_sn.wrapping_add(1);
            }
            if slot.work.op.is_read() {
                let config = &self.reads_config;
                let reads = self.reads.get_or_insert_with(|| Box::new(Reads::new(config)));
                slot.read_sn = reads.next_sn();
                reads.start(plan.work, slot.len.div_ceil(payload).max(1));
            }
        }
        slot.packets_sent += 1;
        if slot.packets_sent == slot.packets {
            queue.cursor = queue.cursor.wrapping_add(1);
        }
    }

    /// A response arrived.
    pub(super) fn handle_response<M: Memory>(
        &mut self,
        now: Instant,
        base: &Base,
        body: &Body<'_>,
        queue: &SendQueue,
        target: ReadTarget<'_, M>,
    ) -> Answered {
        let (Body::ReadResponse { read_sn, .. } | Body::AtomicResponse { read_sn, .. }) = *body else { return Answered::Nonsense };
        let Some(reads) = &mut self.reads else { return Answered::Dropped(DropReason::BadResponse) };
        let asked = reads.position_of(read_sn).map(|position| queue.slot(position));
        reads.handle_response(now, base, body, asked, self.payload, target)
    }

    /// The receiver was not ready. Returns false if that happened too often.
    pub(super) fn on_receiver_not_ready(&mut self, now: Instant, delay: Duration, retry_limit: u8, queue: &SendQueue) -> bool {
        /// The value that stands for endless retries (InfiniBand vol. 1, 9.7.5.2.8).
        const ENDLESS: u8 = 7;
        if self.rnr_until.is_some_and(|until| now < until) {
            return true;
        }
        if retry_limit != ENDLESS {
            if self.rnr_retries >= retry_limit {
                return false;
            }
            self.rnr_retries += 1;
        }
        let oldest = self.oldest_receive(queue);
        // Who sends without credit is in no hurry: credit will be announced, and if that is lost, time helps.
        let wait = self.credit_wait();
        let until = now + if self.credits.will_come(oldest) { delay.max(wait) } else { delay };
        self.credits.refuse(oldest);
        self.rnr_streak = self.rnr_streak.saturating_add(1);
        self.rnr_earliest = now + delay;
        self.refused_end = Some(self.sender.next_new());
        self.rnr_until = Some(until);
        self.sender.on_receiver_not_ready(until);
        true
    }

    /// The receiver took something: not-ready retries count anew.
    pub(super) const fn on_progress(&mut self) {
        self.rnr_retries = 0;
        self.rnr_streak = 0;
    }

    /// When time matters next. While the receiver is not ready only the end of its delay does.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.rnr_until.or_else(|| earliest(self.sender.deadline(), self.credits.deadline()))
    }

    /// Time has passed; true if waiting for the receiver is over.
    pub(super) fn end_rnr_wait(&mut self, now: Instant) -> bool {
        self.credits.handle_timeout(now);
        self.rnr_until.take_if(|until| *until <= now).is_some()
    }

    /// True while waiting for the receiver to become ready.
    pub(super) const fn waits_for_receiver(&self) -> bool {
        self.rnr_until.is_some()
    }
}

impl Plan {
    /// True if nothing of the request was sent before.
    pub(super) const fn is_first(&self) -> bool {
        matches!(self.pick, Pick::New(_)) && self.offset == 0
    }

    /// Copies the packet's bytes from application memory.
    pub(super) fn fill(&self, owner: AppId, regions: &Regions, memory: &impl Memory, out: &mut [u8]) -> Result<(), AccessRefused> {
        if out.is_empty() {
            return Ok(());
        }
        match &self.data {
            Data::List(list) => regions.gather(owner, list, u64::from(self.offset), out, memory),
            Data::Inline(inline) => {
                let start = self.offset as usize;
                out.copy_from_slice(inline.as_slice().get(start..start + out.len()).ok_or(AccessRefused)?);
                Ok(())
            }
        }
    }
}

/// A piece of a SEND or WRITE.
fn message_body(slot: &SendSlot, position: Position, offset: u32, recv_sn: u32) -> Body<'static> {
    let imm = slot.work.imm.filter(|_| position.ends());
    let send = |tail| Body::Send { position, recv_sn, offset, tail: if position.ends() { tail } else { Tail::None }, payload: &[] };
    match slot.work.op {
        SendOp::Send => send(imm.map_or(Tail::None, Tail::Immediate)),
        SendOp::SendInvalidate { rkey } => send(Tail::Invalidate(rkey)),
        // The others have no message.
        SendOp::Read { .. } | SendOp::Atomic { .. } | SendOp::LocalInvalidate { .. } => send(Tail::None),
        SendOp::Write { remote_addr, rkey } => Body::Write {
            position,
            va: remote_addr.wrapping_add(u64::from(offset)),
            rkey,
            length: slot.len,
            imm: imm.map(|imm| (imm, recv_sn)),
            payload: &[],
        },
    }
}
