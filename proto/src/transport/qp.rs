//! A queue pair: its state, its queues, and the two halves that work when it is connected.

use alloc::collections::VecDeque;

use crate::drops::DropReason;
use crate::time::{Duration, Instant, Timestamp, earliest};
use crate::transport::counters::QpCounters;
use crate::transport::irn::{AckTiming, Acker, Feedback, Pick, Profile, Receiver, Reply, RtoBounds, Sender, SenderConfig, Timeout};
use crate::transport::region::{Memory, Regions};
use crate::transport::requester::{Plan, Requester, SendQueue, SendSlot};
use crate::transport::responder::{Outcome, RecvQueue, RecvSlot, Refused, Responder, Target};
use crate::transport::work::{Completion, Data, MAX_MESSAGE, SendOp, SendWork, Status};
use crate::transport::{AppId, CqId, EndpointConfig, Psn, QpInit, QpNum, Recovery, RecvWork};
use crate::wire::MacAddr;
use crate::wire::headers::{AckKind, Credits, NakCode, rnr_code, rnr_delay_us};
use crate::wire::packet::{Ack, Base, Body, Echo, Sack};

/// Most packets of a message: the reach of [`Psn::distance_from`].
const MAX_PACKETS: u32 = 1 << 23;

/// The states of a queue pair. InfiniBand's RESET, INIT, RTR, RTS and ERR (vol. 1, 10.3.1).
///
/// ```text
///  Reset --connect--> Init --reply--> ReadyToSend
///  Reset --accept--> ReadyToReceive --ready to use, or the first packet--> ReadyToSend
///  any --failure, close--> Error
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Created; receives may be posted.
    Reset,
    /// A connection has been asked for.
    Init,
    /// A connection has been accepted; packets are received.
    ReadyToReceive,
    /// Connected both ways.
    ReadyToSend,
    /// Failed or closed; everything posted is flushed.
    Error,
}

impl QpState {
    /// True if the state may follow this one.
    pub const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Reset, Self::Init | Self::ReadyToReceive) | (Self::Init | Self::ReadyToReceive, Self::ReadyToSend) | (_, Self::Error)
        )
    }
}

/// What both sides of a connection agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreement {
    pub(super) peer: MacAddr,
    pub(super) peer_qp: QpNum,
    /// Tag that our frames carry, chosen by the peer.
    pub(super) peer_tag: u16,
    /// Tag that the peer's frames carry, chosen by us.
    pub(super) tag: u16,
    pub(super) recovery: Recovery,
    /// PSN of our first request.
    pub(super) first_psn: Psn,
    /// PSN of the peer's first request.
    pub(super) peer_psn: Psn,
    /// Payload bytes of a full packet.
    pub(super) payload: u32,
    /// Packets that the peer accepts ahead of a gap.
    pub(super) window: u32,
    /// READs and atomics that we may have outstanding.
    pub(super) max_reads: u8,
}

/// The halves of a connected queue pair.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) agreement: Agreement,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    last_heard: Instant,
    /// When we began to wait for the peer: it is not to blame for silence before.
    waiting_since: Instant,
    /// How long the peer may be silent before it is asked for a sign of life.
    keepalive: Duration,
    /// Timestamp and arrival of the packet that came last.
    last_arrival: (Timestamp, Instant),
    /// Packets that came marked by a switch, modulo 2^16.
    marked: u16,
}

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
    Answer(Base, Ack),
    Request(Base, Plan),
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) number: QpNum,
    pub(super) owner: AppId,
    pub(super) init: QpInit,
    pub(super) counters: QpCounters,
    /// The connection that it belongs to, as an index into the connection manager.
    pub(super) connection: Option<usize>,
    state: QpState,
    /// What the peer did wrong, if that is why it failed.
    fault: Option<Status>,
    send_queue: SendQueue,
    recv_queue: RecvQueue,
    link: Option<Link>,
}

impl QueuePair {
    pub(super) fn new(number: QpNum, owner: AppId, init: QpInit) -> Self {
        Self {
            number,
            owner,
            init,
            counters: QpCounters::default(),
            connection: None,
            state: QpState::Reset,
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
        (self.send_queue.posted(), self.recv_queue.len())
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
        }
        allowed
    }

    /// Both sides agree: sets up the halves. `keepalive` is how long the peer may be silent before it is asked for a sign of life.
    pub(super) fn activate(&mut self, now: Instant, config: &EndpointConfig, agreement: Agreement, keepalive: Duration) {
        let profile = Profile::of(agreement.recovery);
        let sender = SenderConfig {
            loss: profile.loss,
            cap: config.bdp_cap.unwrap_or(agreement.window).min(agreement.window),
            rto: RtoBounds { low: config.rto_low, high: config.rto_high, longest: config.keepalive, adaptive: profile.rto_adaptive },
            retry_count: config.retry_count,
        };
        let timing = AckTiming { every: config.ack_every, delay: config.ack_delay };
        self.link = Some(Link {
            agreement,
            requester: Requester::new(Sender::new(agreement.first_psn, sender), agreement.payload),
            responder: Responder::new(Receiver::new(agreement.peer_psn), Acker::new(profile, timing), profile),
            last_heard: now,
            waiting_since: now,
            keepalive,
            last_arrival: (Timestamp::default(), now),
            marked: 0,
        });
    }

    pub(super) fn post_send(&mut self, now: Instant, work: SendWork, len: u32) {
        self.begin_waiting(now);
        self.send_queue.push(work, len, false);
    }

    /// With the first request outstanding begins the wait for the peer.
    fn begin_waiting(&mut self, now: Instant) {
        if let Some(link) = self.link.as_mut().filter(|_| self.send_queue.len() == 0) {
            link.waiting_since = now;
        }
    }

    pub(super) fn post_recv(&mut self, work: RecvWork) {
        self.recv_queue.push(work);
    }

    /// Fails or closes: the request at fault gets the status, the others are flushed.
    pub(super) fn fail(&mut self, failure: Failure, completions: &mut Completions) {
        self.state = QpState::Error;
        let at_fault = failure.request.unwrap_or_else(|| self.send_queue.oldest());
        loop {
            let status = if self.send_queue.oldest() == at_fault { failure.status } else { Status::Flushed };
            let Some(slot) = self.send_queue.pop() else { break };
            if !slot.internal {
                completions.push_back((self.owner, self.init.send_cq, self.send_completion(&slot, status)));
            }
        }
        while let Some(slot) = self.recv_queue.pop() {
            completions.push_back((self.owner, self.init.recv_cq, self.recv_completion(&slot, Status::Flushed)));
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
            invalidated: slot.result.tail.invalidated(),
            solicited: slot.result.solicited,
        }
    }

    // ---- events

    /// A request packet of the peer arrived.
    pub(super) fn handle_request(
        &mut self,
        now: Instant,
        base: &Base,
        body: &Body<'_>,
        regions: &Regions,
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
        let target = Target { owner: self.owner, queue: &mut self.recv_queue, regions, memory };
        match link.responder.handle_request(now, base, body, target) {
            Outcome::Taken { completions: count, messages, early } => {
                self.count_taken(body, messages, early);
                self.complete_receives(count, completions);
                Ok(())
            }
            Outcome::Dropped(reason) => {
                self.counters.duplicates_received += u64::from(reason == DropReason::Duplicate);
                Err(reason)
            }
            Outcome::Fatal(code) => {
                self.fail(Failure::FLUSH, completions);
                self.fault = Some(status_of(code));
                Err(DropReason::AccessRefused)
            }
        }
    }

    fn count_taken(&mut self, body: &Body<'_>, messages: u32, early: bool) {
        self.counters.packets_received += 1;
        self.counters.messages_received += u64::from(messages);
        self.counters.early_received += u64::from(early);
        if let Body::Send { payload, .. } | Body::Write { payload, .. } = body {
            self.counters.bytes_received += payload.len() as u64;
        }
    }

    fn complete_receives(&mut self, count: u32, completions: &mut Completions) {
        for _ in 0..count {
            if let Some(slot) = self.recv_queue.pop() {
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
        link.last_heard = now;
        self.counters.acks_received += 1;
        self.counters.naks_received += u64::from(!matches!(ack.kind, AckKind::Ack(_)));
        let feedback = Feedback {
            cumulative,
            negative: ack.kind == AckKind::Nak(NakCode::SequenceError),
            trigger: ack.sack.map(|sack| sack.psn),
            bitmap: ack.sack.as_ref().map_or(&[], |sack| sack.words()),
            rtt: ack.echo.round_trip(now),
        };
        let acked = link.requester.sender.on_ack(now, feedback).map_err(|_| DropReason::BadAcknowledgement)?;
        self.counters.retransmitted_spurious += u64::from(acked.duplicate);
        if acked.cumulative > 0 {
            link.requester.on_progress();
            self.complete_sends(completions);
        }
        Ok(self.handle_refusal(now, ack.kind, config))
    }

    /// Retires what is acknowledged, in posting order.
    fn complete_sends(&mut self, completions: &mut Completions) {
        let Some(link) = &self.link else { return };
        let acknowledged = link.requester.sender.unacknowledged();
        while let Some(slot) = self.send_queue.pop_acknowledged(acknowledged) {
            if slot.internal {
                continue;
            }
            self.counters.messages_sent += 1;
            if slot.work.signaled {
                completions.push_back((self.owner, self.init.send_cq, self.send_completion(&slot, Status::Success)));
            }
        }
    }

    /// The status that the queue pair fails with, if the peer's answer is fatal.
    fn handle_refusal(&mut self, now: Instant, kind: AckKind, config: &EndpointConfig) -> Option<Status> {
        match kind {
            AckKind::Ack(_) | AckKind::Nak(NakCode::SequenceError) => None,
            AckKind::ReceiverNotReady(code) => {
                self.counters.rnr_received += 1;
                let delay = Duration::from_micros(u64::from(rnr_delay_us(code)));
                let requester = &mut self.link.as_mut()?.requester;
                (!requester.on_receiver_not_ready(now, delay, config.rnr_retry)).then_some(Status::RnrRetryExceeded)
            }
            AckKind::Nak(NakCode::InvalidRequest) => Some(Status::RemoteInvalidRequest),
            AckKind::Nak(NakCode::RemoteAccess) => Some(Status::RemoteAccess),
            AckKind::Nak(NakCode::RemoteOperational) => Some(Status::RemoteOperational),
        }
    }

    /// Time has passed. Returns the status to fail with if the peer is given up.
    pub(super) fn handle_timeout(&mut self, now: Instant, config: &EndpointConfig) -> Option<Status> {
        let link = self.link.as_mut()?;
        let expected = link.responder.expected();
        link.responder.acker.handle_timeout(now, expected);
        if self.state == QpState::Error {
            return None;
        }
        if link.requester.end_rnr_wait(now) {
            link.waiting_since = now;
        } else if !link.requester.waits_for_receiver() {
            match link.requester.sender.on_timeout(now) {
                Timeout::Idle | Timeout::LossCheck => {}
                Timeout::Retransmit => self.counters.timeouts += 1,
                Timeout::Exhausted => return Some(Status::RetryExceeded),
            }
        }
        if self.silence_deadline(config).is_some_and(|at| at <= now) {
            return Some(Status::RetryExceeded);
        }
        self.keep_alive(now);
        None
    }

    /// When a peer that something is wanted from is given up, however many retries are left. While it is not ready it
    /// is not asked, so that its silence says nothing.
    fn silence_deadline(&self, config: &EndpointConfig) -> Option<Instant> {
        let link = self.link.as_ref()?;
        let waits = self.state == QpState::ReadyToSend && self.send_queue.len() > 0 && !link.requester.waits_for_receiver();
        waits.then(|| link.last_heard.max(link.waiting_since) + config.peer_timeout)
    }

    /// Asks an idle peer for a sign of life: a write of nothing, which is acknowledged, retried and given up like any other request.
    fn keep_alive(&mut self, now: Instant) {
        if self.keepalive_deadline().is_none_or(|at| at > now) {
            return;
        }
        self.begin_waiting(now);
        let op = SendOp::Write { remote_addr: 0, rkey: 0 };
        let work = SendWork { signaled: false, ..SendWork::new(0, op, Data::EMPTY) };
        self.send_queue.push(work, 0, true);
        self.counters.keepalives_sent += 1;
    }

    /// Requests in flight have their own time-out; the peer's silence matters when there are none.
    fn keepalive_deadline(&self) -> Option<Instant> {
        let link = self.link.as_ref()?;
        let idle = self.state == QpState::ReadyToSend && self.send_queue.len() == 0;
        idle.then(|| link.last_heard + link.keepalive)
    }

    /// When time matters next.
    pub(super) fn deadline(&self, config: &EndpointConfig) -> Option<Instant> {
        let link = self.link.as_ref()?;
        let ack = link.responder.acker.deadline();
        if self.state == QpState::Error {
            return ack;
        }
        let peer = self.silence_deadline(config).or_else(|| self.keepalive_deadline());
        earliest(earliest(ack, link.requester.deadline()), peer)
    }

    // ---- outputs

    /// The next packet to send: refusals and acknowledgements first, then requests.
    pub(super) fn poll(&mut self, now: Instant, config: &EndpointConfig) -> Option<Outgoing> {
        let link = self.link.as_mut()?;
        if link.responder.is_due()
            && let Some(answer) = link.poll_answer(now, config)
        {
            self.counters.acks_sent += 1;
            self.counters.naks_sent += u64::from(!matches!(answer.1.kind, AckKind::Ack(_)));
            self.counters.rnr_sent += u64::from(matches!(answer.1.kind, AckKind::ReceiverNotReady(_)));
            return Some(Outgoing::Answer(answer.0, answer.1));
        }
        if self.state != QpState::ReadyToSend {
            return None;
        }
        let plan = link.requester.plan(now, &self.send_queue)?;
        let psn = match plan.pick {
            Pick::New(psn) | Pick::Again { psn, .. } => psn,
        };
        let base = Base { timestamp: Timestamp::of(now), solicited: plan.solicited, ack_request: plan.ack_request, ..link.base(psn) };
        Some(Outgoing::Request(base, plan))
    }

    /// The packet planned by [`Self::poll`] is built.
    pub(super) fn commit(&mut self, now: Instant, plan: &Plan) {
        let Some(link) = &mut self.link else { return };
        link.requester.commit(now, plan, &mut self.send_queue);
        match plan.pick {
            Pick::New(_) => {
                self.counters.packets_sent += 1;
                self.counters.bytes_sent += plan.payload_len as u64;
            }
            Pick::Again { timeout: true, .. } => self.counters.retransmitted_timeout += 1,
            Pick::Again { timeout: false, .. } => self.counters.retransmitted_fast += 1,
        }
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

impl Link {
    pub(super) const fn last_heard(&self) -> Instant {
        self.last_heard
    }

    const fn base(&self, psn: Psn) -> Base {
        Base {
            tag: self.agreement.peer_tag,
            timestamp: Timestamp::from_ticks(0),
            solicited: false,
            ack_request: false,
            fecn: false,
            becn: false,
            dst_qp: self.agreement.peer_qp,
            psn,
        }
    }

    fn note_arrival(&mut self, now: Instant, base: &Base) {
        self.last_heard = now;
        self.last_arrival = (base.timestamp, now);
        self.marked = self.marked.wrapping_add(u16::from(base.fecn));
    }

    fn echo(&self, now: Instant) -> Echo {
        let (timestamp, at) = self.last_arrival;
        Echo { timestamp, held: now.since(at).ticks(), marked: self.marked }
    }

    fn poll_answer(&mut self, now: Instant, config: &EndpointConfig) -> Option<(Base, Ack)> {
        let echo = self.echo(now);
        let msn = self.responder.receiver.msn();
        let expected = self.responder.expected();
        if let Some(refused) = self.responder.poll_refusal() {
            let kind = match refused {
                Refused::NotReady => AckKind::ReceiverNotReady(rnr_code(config.rnr_delay.as_micros())),
                Refused::Fatal(code) => AckKind::Nak(code),
            };
            return Some((self.base(expected), Ack { kind, msn, echo, sack: None }));
        }
        let reply = self.responder.acker.poll()?;
        let kind = if reply.negative { AckKind::Nak(NakCode::SequenceError) } else { AckKind::Ack(Credits::UNLIMITED) };
        Some((self.base(reply.cumulative.unwrap_or(expected)), Ack { kind, msn, echo, sack: self.sack_of(reply) }))
    }

    /// Per-packet answers carry the PSN that triggered them; coalesced ones also the bitmap of all that is early.
    fn sack_of(&self, reply: Reply) -> Option<Sack> {
        let receiver = &self.responder.receiver;
        if reply.cumulative.is_some() || !receiver.has_early() {
            return reply.trigger.map(|psn| Sack::new(psn, &[]));
        }
        let words = &receiver.arrived();
        match reply.trigger {
            Some(psn) => Some(Sack::new(psn, words)),
            None => Some(Sack::new(receiver.expected(), words)),
        }
    }
}
