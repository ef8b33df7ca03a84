//! A queue pair: its state, its queues, and the two halves that work when it is connected.

mod held;
mod liveness;

use alloc::collections::VecDeque;

use crate::drops::DropReason;
use crate::time::{Duration, Instant, earliest};
use crate::transport::counters::QpCounters;
use crate::transport::irn::Timeout;
use crate::transport::link::{Agreement, Link, answer_body};
use crate::transport::peers::PeerPlace;
use crate::transport::qp::held::Held;
pub(super) use crate::transport::qp::held::Permit;
use crate::transport::reads::{Answered, ReadTarget};
use crate::transport::region::{Memory, Regions};
use crate::transport::requester::{Plan, SendQueue, SendSlot};
use crate::transport::responder::{Outcome, RecvQueue, RecvSlot, Target, receive_of};
use crate::transport::responses::ResponsePlan;
use crate::transport::srq::SharedQueue;
use crate::transport::state::QpState;
use crate::transport::trace::{AckWord, Stream, Trace, TraceEvent};
use crate::transport::work::{Completion, MAX_MESSAGE, SendWork, Status};
use crate::transport::{AppId, CqId, EndpointConfig, Event, Psn, QpInit, QpNum, RecvWork};
use crate::wire::Ack;
use crate::wire::headers::{AckKind, NakCode, rnr_delay_us};
use crate::wire::packet::{Base, Body};

/// Most packets of a message: the reach of [`Psn::distance_from`].
const MAX_PACKETS: u32 = 1 << 23;

/// Completions on their way to the driver.
pub(super) type Completions = VecDeque<(AppId, CqId, Completion)>;

/// Why a queue pair fails or closes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) status: Status,
    /// Position of the request at fault; `None`: the oldest, which the peer answered for or nobody answered for.
    request: Option<u32>,
}

impl Failure {
    /// Nothing is at fault: everything is flushed.
    pub(super) const FLUSH: Self = Self::of_oldest(Status::Flushed);

    pub(super) const fn of_oldest(status: Status) -> Self {
        Self { status, request: None }
    }

    pub(super) const fn of_request(status: Status, position: u32) -> Self {
        Self { status, request: Some(position) }
    }
}

/// What a queue pair wants to send.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outgoing {
    Answer(Base, Body<'static>),
    Response(Base, ResponsePlan),
    Request(Base, Plan),
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) number: QpNum,
    pub(super) owner: AppId,
    pub(super) init: QpInit,
    /// For stop control, 0 to 15.
    pub(super) priority: u8,
    pub(super) counters: QpCounters,
    /// The connection that it belongs to, as an index into the connection manager.
    pub(super) connection: Option<usize>,
    /// Where its counts go, once it is connected.
    pub(super) peer: Option<PeerPlace>,
    pub(super) trace: Trace,
    state: QpState,
    held: Held,
    /// The application was told that the queue it drains is at rest.
    drained: bool,
    /// What the peer did wrong, if that is why it failed.
    fault: Option<Status>,
    send_queue: SendQueue,
    recv_queue: RecvQueue,
    link: Option<Link>,
}

impl QueuePair {
    pub(super) fn new(number: QpNum, owner: AppId, init: QpInit, priority: u8) -> Self {
        Self {
            number,
            owner,
            init,
            priority,
            counters: QpCounters::default(),
            connection: None,
            peer: None,
            trace: Trace::default(),
            state: QpState::Reset,
            held: Held::default(),
            drained: false,
            fault: None,
            send_queue: SendQueue::new(init.sq_depth),
            recv_queue: RecvQueue::new(init.rq_depth),
            link: None,
        }
    }

    // ---- getters

    pub(super) const fn state(&self) -> QpState {
        self.state
    }

    /// What the peer did wrong, if that is why the queue pair failed.
    pub(super) const fn fault(&self) -> Option<Status> {
        self.fault
    }

    /// Position of the newest request.
    pub(super) const fn newest_request(&self) -> u32 {
        self.send_queue.newest()
    }

    pub(super) const fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Requests and receives outstanding.
    pub(super) const fn outstanding(&self) -> (u32, u32) {
        (self.send_queue.len(), self.recv_queue.len())
    }

    pub(super) const fn send_queue_is_full(&self) -> bool {
        self.send_queue.is_full()
    }

    /// A message has at most as many packets as serial numbers can tell apart. Matters for very small packets only,
    /// which a hostile peer may ask for.
    pub(super) fn longest_message(&self) -> u32 {
        self.link.as_ref().map_or(MAX_MESSAGE, |link| link.agreement.payload.saturating_mul(MAX_PACKETS).min(MAX_MESSAGE))
    }

    pub(super) const fn recv_queue_is_full(&self) -> bool {
        self.recv_queue.is_full()
    }

    // ---- commands

    pub(super) fn enter(&mut self, next: QpState) -> bool {
        let allowed = self.state.may_become(next);
        if allowed {
            self.state = next;
            self.drained = false;
            self.send_queue.drain(next == QpState::SendQueueDrain);
        }
        allowed
    }

    /// Both sides agree: sets up the halves. `keepalive` is how long the peer may be silent before it is asked for a sign of life.
    pub(super) fn activate(&mut self, now: Instant, config: &EndpointConfig, agreement: Agreement, keepalive: Duration) {
        self.trace.open(now, TraceEvent::Connected { recovery: agreement.recovery });
        self.link = Some(Link::new(now, config, agreement, keepalive));
    }

    pub(super) fn post_send(&mut self, now: Instant, work: SendWork, len: u32) {
        self.begin_waiting(now);
        self.send_queue.push(work, len);
    }

    /// The send queue has failed: a further request is flushed.
    pub(super) fn flush_send(&self, work: SendWork, len: u32, completions: &mut Completions) {
        let slot = SendSlot::new(work, len);
        completions.push_back((self.owner, self.init.send_cq, self.send_completion(&slot, Status::Flushed)));
    }

    /// A request cannot be sent, and nothing of it was.
    pub(super) fn refuse_request(&mut self, position: u32) {
        self.send_queue.mark_fault(position, Status::LocalProtection);
    }

    /// What has become of the send queue: a request at fault has its turn, or the requests begun before a drain are done.
    pub(super) fn settle(&mut self, completions: &mut Completions) -> Option<Event> {
        match self.state {
            QpState::ReadyToSend => {
                let status = self.send_queue.fault_of_oldest()?;
                self.fail_sends(Failure::of_oldest(status), completions);
                self.enter(QpState::SendQueueError);
                Some(Event::SendQueueFailed { qp: self.number, status })
            }
            QpState::SendQueueDrain if !self.drained && self.send_queue.is_at_rest() => {
                self.drained = true;
                Some(Event::SendQueueDrained { qp: self.number })
            }
            _ => None,
        }
    }

    /// True if the peer is to be told.
    pub(super) fn post_recv(&mut self, work: RecvWork) -> bool {
        self.recv_queue.push(work);
        let credits = self.recv_queue.credits(false);
        self.state != QpState::Error && self.link.as_mut().is_some_and(|link| link.note_posted(credits))
    }

    /// Fails or closes: the request at fault gets the status, the others are flushed.
    pub(super) fn fail(&mut self, failure: Failure, completions: &mut Completions) {
        self.state = QpState::Error;
        self.fail_sends(failure, completions);
        while let Some(slot) = self.recv_queue.pop() {
            completions.push_back((self.owner, self.init.recv_cq, self.recv_completion(&slot, Status::Flushed)));
        }
    }

    fn fail_sends(&mut self, failure: Failure, completions: &mut Completions) {
        let at_fault = failure.request.unwrap_or_else(|| self.send_queue.oldest());
        loop {
            let status = if self.send_queue.oldest() == at_fault { failure.status } else { Status::Flushed };
            let Some(slot) = self.send_queue.pop() else { break };
            completions.push_back((self.owner, self.init.send_cq, self.send_completion(&slot, status)));
        }
    }

    const fn send_completion(&self, slot: &SendSlot, status: Status) -> Completion {
        Completion {
            wr_id: slot.work.wr_id,
            qp: self.number,
            status,
            op: slot.completion_op(),
            byte_len: slot.len,
            imm: None,
            invalidated: None,
            solicited: false,
        }
    }

    const fn recv_completion(&self, slot: &RecvSlot, status: Status) -> Completion {
        Completion {
            wr_id: slot.work.wr_id,
            qp: self.number,
            status,
            op: slot.completion_op(),
            byte_len: slot.result.byte_len,
            imm: slot.result.tail.immediate(),
            // What was flushed made nothing void.
            invalidated: if matches!(status, Status::Success) { slot.result.tail.invalidated() } else { None },
            solicited: slot.result.solicited,
        }
    }

    // ---- events

    /// Before a request packet of the peer is handled: takes what it needs out of the shared receive queue.
    pub(super) fn take_shared(&mut self, base: &Base, body: &Body<'_>, shared: &mut SharedQueue) {
        let Some(link) = self.link.as_ref().filter(|_| self.state != QpState::Error) else { return };
        if let Some(recv_sn) = link.responder.receive_needed(base, body, &self.recv_queue) {
            shared.hand_over(&mut self.recv_queue, recv_sn);
        }
    }

    /// A request packet of the peer arrived.
    pub(super) fn handle_request(
        &mut self,
        now: Instant,
        base: &Base,
        body: &Body<'_>,
        regions: &mut Regions,
        memory: &mut impl Memory,
        completions: &mut Completions,
    ) -> Result<(), DropReason> {
        let link = self.link.as_mut().ok_or(DropReason::QueuePairState)?;
        // The application was told that all is over and may use its memory for something else. What remains is to
        // repeat a refusal whose answer was lost.
        if self.state == QpState::Error && !link.responder.has_refused() {
            return Err(DropReason::QueuePairState);
        }
        link.note_arrival(now, base);
        self.counters.marked_received += u64::from(base.fecn);
        let target = Target { owner: self.owner, queue: &mut self.recv_queue, regions, memory };
        let outcome = link.responder.handle_request(now, base, body, target);
        self.trace.note(now, TraceEvent::of_request(base.psn, &outcome));
        match outcome {
            Outcome::Taken { advance, ahead } => {
                if receive_of(body).is_some() {
                    link.note_message();
                }
                self.count_taken(body, advance.messages, ahead);
                self.complete_receives(advance.completions, regions, completions);
                Ok(())
            }
            Outcome::Dropped(reason) => {
                self.counters.duplicates_received += u64::from(reason == DropReason::Duplicate);
                Err(reason)
            }
            Outcome::Fatal { code, advance } => {
                self.complete_receives(advance.completions, regions, completions);
                self.fail(Failure::FLUSH, completions);
                self.fault = Some(status_of(code));
                Err(DropReason::AccessRefused)
            }
        }
    }

    fn count_taken(&mut self, body: &Body<'_>, messages: u32, ahead: u32) {
        self.counters.packets_received += 1;
        self.counters.messages_received += u64::from(messages);
        self.counters.early_received += u64::from(ahead > 0);
        self.counters.early_distance += u64::from(ahead);
        if let Body::Send { payload, .. } | Body::Write { payload, .. } | Body::ReadResponse { payload, .. } = body {
            self.counters.bytes_received += payload.len() as u64;
        }
    }

    fn complete_receives(&mut self, count: u32, regions: &mut Regions, completions: &mut Completions) {
        for _ in 0..count {
            if let Some(slot) = self.recv_queue.pop() {
                if let Some(key) = slot.result.tail.invalidated() {
                    // The key may have gone since the message was placed, by another message or its own application.
                    let _ = regions.invalidate(self.owner, key);
                }
                completions.push_back((self.owner, self.init.recv_cq, self.recv_completion(&slot, Status::Success)));
            }
        }
    }

    /// An acknowledgement of the peer arrived.
    pub(super) fn handle_ack(
        &mut self,
        now: Instant,
        cumulative: Psn,
        ack: &Ack,
        config: &EndpointConfig,
        completions: &mut Completions,
    ) -> Result<Option<Status>, DropReason> {
        let link = self.link.as_mut().ok_or(DropReason::QueuePairState)?;
        self.trace.note(now, TraceEvent::AckReceived { of: Stream::Requests, psn: cumulative, says: AckWord::of(ack.kind) });
        self.counters.count_ack_received(ack.kind);
        let acked = link.on_ack(now, cumulative, ack)?;
        self.counters.count_acked(&acked);
        self.counters.count_congestion(link.gate.take_counts());
        if let AckKind::Ack(credits) = ack.kind {
            link.requester.on_credits(now, credits, &self.send_queue);
        }
        if acked.cumulative > 0 {
            link.requester.on_progress();
            self.complete_sends(completions);
        }
        Ok(self.handle_refusal(now, ack.kind, config))
    }

    /// Retires what is done, in posting order.
    fn complete_sends(&mut self, completions: &mut Completions) {
        while let Some(slot) = self.link.as_ref().and_then(|link| self.send_queue.pop_done(&link.requester)) {
            self.complete_send(&slot, completions);
        }
    }

    fn complete_send(&mut self, slot: &SendSlot, completions: &mut Completions) {
        self.counters.messages_sent += 1;
        if slot.work.signaled {
            completions.push_back((self.owner, self.init.send_cq, self.send_completion(slot, Status::Success)));
        }
    }

    /// A response to a READ or atomic arrived.
    pub(super) fn handle_response(
        &mut self,
        now: Instant,
        base: &Base,
        body: &Body<'_>,
        regions: &Regions,
        memory: &mut impl Memory,
        completions: &mut Completions,
    ) -> Result<Option<Failure>, DropReason> {
        let link = self.link.as_mut().ok_or(DropReason::QueuePairState)?;
        link.note_arrival(now, base);
        self.counters.marked_received += u64::from(base.fecn);
        let target = ReadTarget { owner: self.owner, regions, memory };
        let answered = link.requester.handle_response(now, base, body, &self.send_queue, target);
        self.trace.note(now, TraceEvent::of_response(base.psn, answered));
        match answered {
            Answered::Taken => {
                self.count_taken(body, 0, 0);
                self.complete_sends(completions);
                Ok(None)
            }
            Answered::Dropped(reason) => {
                self.counters.duplicates_received += u64::from(reason == DropReason::Duplicate);
                Err(reason)
            }
            Answered::Nonsense => Ok(Some(Failure::of_oldest(Status::BadResponse))),
            Answered::NoMemory(position) => Ok(Some(Failure::of_request(Status::LocalProtection, position))),
            Answered::Withheld(position) => Ok(Some(Failure::of_request(Status::RemoteAccess, position))),
        }
    }

    /// An acknowledgement of responses arrived.
    pub(super) fn handle_read_ack(&mut self, now: Instant, cumulative: Psn, ack: &Ack) -> Result<(), DropReason> {
        let link = self.link.as_mut().ok_or(DropReason::QueuePairState)?;
        self.trace.note(now, TraceEvent::AckReceived { of: Stream::Responses, psn: cumulative, says: AckWord::of(ack.kind) });
        self.counters.count_ack_received(ack.kind);
        let acked = link.on_read_ack(now, cumulative, ack)?;
        self.counters.count_acked(&acked);
        self.counters.count_congestion(link.gate.take_counts());
        Ok(())
    }

    /// The peer says that our packets came marked.
    pub(super) fn handle_notification(&mut self, now: Instant) {
        self.counters.notifications_received += 1;
        if let Some(link) = &mut self.link {
            link.gate.on_notification(now);
            self.counters.count_congestion(link.gate.take_counts());
        }
    }

    /// The status that the queue pair fails with, if the peer's answer is fatal.
    fn handle_refusal(&mut self, now: Instant, kind: AckKind, config: &EndpointConfig) -> Option<Status> {
        match kind {
            AckKind::Ack(_) | AckKind::Nak(NakCode::SequenceError) => None,
            AckKind::ReceiverNotReady(code) => {
                self.counters.rnr_received += 1;
                let delay = Duration::from_micros(u64::from(rnr_delay_us(code)));
                let link = self.link.as_mut()?;
                link.note_refusal();
                let requester = &mut link.requester;
                (!requester.on_receiver_not_ready(now, delay, config.rnr_retry, &self.send_queue)).then_some(Status::RnrRetryExceeded)
            }
            AckKind::Nak(NakCode::InvalidRequest) => Some(Status::RemoteInvalidRequest),
            AckKind::Nak(NakCode::RemoteAccess) => Some(Status::RemoteAccess),
            AckKind::Nak(NakCode::RemoteOperational) => Some(Status::RemoteOperational),
        }
    }

    /// Time has passed. Returns the status to fail with if the peer is given up.
    pub(super) fn handle_timeout(&mut self, now: Instant, config: &EndpointConfig) -> Option<Status> {
        let link = self.link.as_mut()?;
        link.handle_ack_timeout(now);
        link.gate.release(now);
        if self.state == QpState::Error {
            return None;
        }
        // Who may not send waits for nobody.
        let timeouts = if self.held.now { [Timeout::Idle; 2] } else { link.handle_timeout(now) };
        for timeout in timeouts {
            self.trace.note_timeout(now, timeout);
            match timeout {
                Timeout::Idle | Timeout::LossCheck { .. } | Timeout::Probe => {}
                Timeout::Retransmit => {
                    self.counters.timeouts += 1;
                    link.gate.on_timeout(now);
                }
                Timeout::Exhausted => return Some(Status::RetryExceeded),
            }
        }
        if self.silence_deadline(config).is_some_and(|at| at <= now) {
            return Some(Status::RetryExceeded);
        }
        self.keep_alive(now);
        None
    }

    /// When time matters next.
    pub(super) fn deadline(&self, config: &EndpointConfig) -> Option<Instant> {
        let link = self.link.as_ref()?;
        let ack = link.ack_deadline();
        if self.state == QpState::Error {
            return ack;
        }
        let peer = earliest(self.silence_deadline(config), self.keepalive_deadline());
        let own = if self.held.now { None } else { link.deadline() };
        earliest(earliest(ack, own), peer)
    }

    // ---- outputs

    /// The next packet to send: refusals and acknowledgements first, then responses and requests in turn.
    pub(super) fn poll(&mut self, now: Instant, config: &EndpointConfig, permit: Permit) -> Option<Outgoing> {
        self.trace.watch(now, self.state);
        if !permit.allows_control() {
            return None;
        }
        let answer = self.poll_answer(now, config).or_else(|| self.poll_notification(now));
        if answer.is_some() || !self.state.sends() {
            return answer;
        }
        if !permit.allows_data() {
            return self.poll_life(now);
        }
        if self.link.as_mut()?.take_turn() {
            self.poll_response(now).or_else(|| self.poll_request(now))
        } else {
            self.poll_request(now).or_else(|| self.poll_response(now))
        }
    }

    fn poll_answer(&mut self, now: Instant, config: &EndpointConfig) -> Option<Outgoing> {
        let link = self.link.as_mut()?;
        let own = link.poll_answer(now, self.recv_queue.credits(self.init.srq.is_some()), config).map(|(base, ack)| (base, ack, false));
        // A queue pair that failed has nothing to say about responses.
        let failed = self.state == QpState::Error;
        let (base, ack, of_responses) =
            own.or_else(|| link.poll_read_answer(now).filter(|_| !failed).map(|(base, ack)| (base, ack, true)))?;
        self.trace.note(now, TraceEvent::AckSent { of: Stream::of_responses(of_responses), psn: base.psn, says: AckWord::of(ack.kind) });
        self.counters.count_ack_sent(ack.kind);
        Some(Outgoing::Answer(base, answer_body(ack, of_responses)))
    }

    fn poll_notification(&mut self, now: Instant) -> Option<Outgoing> {
        let link = self.link.as_mut().filter(|_| self.state != QpState::Error)?;
        let base = link.poll_notification(now)?;
        self.counters.notifications_sent += 1;
        Some(Outgoing::Answer(base, Body::CongestionNotification))
    }

    fn poll_request(&mut self, now: Instant) -> Option<Outgoing> {
        let link = self.link.as_mut()?;
        let outstanding = link.outstanding();
        let Some(plan) = link.requester.plan(now, &self.send_queue, &mut link.gate, outstanding) else {
            if let Some(gate) = link.held_by(&self.send_queue) {
                self.trace.note(now, TraceEvent::Held(gate));
            }
            return None;
        };
        let base = Base { solicited: plan.solicited, ack_request: plan.ack_request, ..link.base(now, plan.pick.psn()) };
        Some(Outgoing::Request(base, plan))
    }

    fn poll_response(&mut self, now: Instant) -> Option<Outgoing> {
        let link = self.link.as_mut()?;
        let outstanding = link.outstanding();
        let plan = link.responder.responses.as_mut()?.plan(now, &mut link.gate, outstanding)?;
        let base = Base { ack_request: plan.ack_request, ..link.base(now, plan.pick.psn()) };
        Some(Outgoing::Response(base, plan))
    }

    /// The request packet planned by [`Self::poll`] is built.
    pub(super) fn commit(&mut self, now: Instant, plan: &Plan) {
        let Some(link) = &mut self.link else { return };
        link.requester.commit(now, plan, &mut self.send_queue);
        self.trace.note(now, TraceEvent::of_pick(Stream::Requests, plan.pick));
        self.counters.window_limited_nanos += link.requester.sender.take_window_limited().as_nanos();
        link.note_sent(now, plan.pick, plan.payload_len, true);
        self.counters.count_sent(plan.pick, plan.payload_len);
        self.counters.count_congestion(link.gate.take_counts());
    }

    /// The response planned by [`Self::poll`] is built.
    pub(super) fn commit_response(&mut self, now: Instant, plan: &ResponsePlan) {
        let Some(link) = &mut self.link else { return };
        let Some(responses) = &mut link.responder.responses else { return };
        responses.commit(now, plan);
        self.trace.note(now, TraceEvent::of_pick(Stream::Responses, plan.pick));
        link.note_sent(now, plan.pick, plan.payload_len, false);
        self.counters.count_sent(plan.pick, plan.payload_len);
        self.counters.count_congestion(link.gate.take_counts());
    }

    /// Memory that the peer was reading is gone: the peer is told, and all work is flushed.
    pub(super) fn refuse_response(&mut self, completions: &mut Completions) {
        if let Some(link) = &mut self.link {
            link.responder.refuse_response();
        }
        self.fail(Failure::FLUSH, completions);
        self.fault = Some(Status::PeerAccess);
    }

    /// Carries out what needs no packet, once it has its turn. Returns the request at fault if the key is not ours.
    pub(super) fn run_local(&mut self, regions: &mut Regions, completions: &mut Completions) -> Option<Failure> {
        if self.state != QpState::ReadyToSend {
            return None;
        }
        while let Some(key) = self.send_queue.local_invalidate() {
            if regions.invalidate(self.owner, key).is_err() {
                return Some(Failure::of_request(Status::LocalProtection, self.send_queue.oldest()));
            }
            if let Some(slot) = self.send_queue.pop() {
                self.complete_send(&slot, completions);
            }
        }
        None
    }

    /// True if the two halves exist, so that there may be something to send.
    pub(super) const fn is_connected(&self) -> bool {
        self.link.is_some()
    }
}

/// How a refusal of ours looks from our own side.
const fn status_of(code: NakCode) -> Status {
    match code {
        NakCode::RemoteAccess => Status::PeerAccess,
        NakCode::SequenceError | NakCode::InvalidRequest => Status::LocalLength,
        NakCode::RemoteOperational => Status::LocalProtection,
    }
}
