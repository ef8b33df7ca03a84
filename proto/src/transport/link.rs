//! The two halves of a connected queue pair, and what both need to know of the path between.

use crate::drops::DropReason;
use crate::switch::FRAME_OVERHEAD;
use crate::time::{Duration, Instant, Timestamp, earliest};
use crate::transport::congestion::{Gate, Notifier};
use crate::transport::credits::CreditsTold;
use crate::transport::inbound::Inbound;
use crate::transport::irn::{
    AckTiming, Acked, Answer, Cause, Feedback, Pick, Profile, RtoBounds, RttHistogram, Sender, SenderConfig, Timeout,
};
use crate::transport::reads::ReadsConfig;
use crate::transport::requester::{Requester, SendQueue};
use crate::transport::responder::{Refused, Responder};
use crate::transport::responses::ResponsesConfig;
use crate::transport::{EndpointConfig, Psn, QpNum, Recovery, trace};
use crate::wire::MacAddr;
use crate::wire::eth::ETH_HEADER;
use crate::wire::headers::{AckKind, Credits, NakCode, rnr_code};
use crate::wire::packet::{Base, Body, MAX_OVERHEAD};
use crate::wire::{Ack, Echo, Sack};

/// Bytes that a packet takes on the wire around its payload, at most.
const PACKET_OVERHEAD: u64 = (ETH_HEADER + MAX_OVERHEAD) as u64 + FRAME_OVERHEAD;

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
    /// PSN of our first request, and of our first response.
    pub(super) first_psn: Psn,
    /// PSN of the peer's first request, and of its first response.
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
    credits_told: CreditsTold,
    last_heard: Instant,
    /// When we began to wait for the peer: it is not to blame for silence before.
    waiting_since: Instant,
    /// How long the peer may be silent before it is asked for a sign of life.
    keepalive: Duration,
    /// Timestamp and arrival of the packet that came last.
    last_arrival: (Timestamp, Instant),
    /// Packets that came marked by a switch, modulo 2^16.
    marked: u16,
    /// Round trips that acknowledgements measured.
    round_trips: RttHistogram,
    /// Responses and requests take turns.
    responses_first: bool,
    /// Congestion control of requests and responses together.
    pub(super) gate: Gate,
    /// Requests before the first and responses before the second that are sent again are no news: they were refused by
    /// a receiver that was not ready, or sent before a loss that has made us slower.
    known_losses: [Option<Psn>; 2],
    notifier: Notifier,
}

impl Link {
    pub(super) fn new(now: Instant, config: &EndpointConfig, agreement: Agreement, keepalive: Duration) -> Self {
        let profile = Profile::of(agreement.recovery);
        let sender = SenderConfig {
            profile,
            window: config.bdp_cap.window(u32::try_from(config.mtu).unwrap_or(u32::MAX), agreement.window),
            rto: RtoBounds { low: config.rto_low, high: config.rto_high, longest: config.keepalive, adaptive: profile.rto_adaptive },
            retry_count: config.retry_count,
            ack_delay: config.ack_delay,
            tail_asks: true,
        };
        // The next READ says what has arrived, so the last response asks for nothing.
        let response_sender = SenderConfig { tail_asks: false, ..sender };
        let timing = AckTiming { every: config.ack_every, delay: config.ack_delay };
        let reads = ReadsConfig { profile, timing, first: agreement.peer_psn, limit: u32::from(agreement.max_reads).max(1) };
        let responses = ResponsesConfig {
            sender: response_sender,
            first: agreement.first_psn,
            payload: agreement.payload,
            limit: u32::from(config.max_reads).max(1),
        };
        let requester = Requester::new(Sender::new(agreement.first_psn, sender), agreement.payload, reads);
        Self {
            gate: Gate::new(&config.congestion, requester.sender.cap()),
            agreement,
            requester,
            responder: Responder::new(Inbound::new(agreement.peer_psn, profile, timing), responses),
            credits_told: CreditsTold::default(),
            last_heard: now,
            waiting_since: now,
            keepalive,
            last_arrival: (Timestamp::default(), now),
            marked: 0,
            round_trips: RttHistogram::default(),
            responses_first: false,
            known_losses: [None; 2],
            notifier: Notifier::new(&config.congestion),
        }
    }

    pub(super) const fn last_heard(&self) -> Instant {
        self.last_heard
    }

    /// Since when the peer owes us a sign of life, if we wait for one.
    pub(super) fn silent_since(&self) -> Instant {
        self.last_heard.max(self.waiting_since)
    }

    /// When an idle peer is asked for a sign of life.
    pub(super) fn keepalive_deadline(&self) -> Instant {
        self.last_heard + self.keepalive
    }

    pub(super) const fn begin_waiting(&mut self, now: Instant) {
        self.waiting_since = now;
    }

    /// Round trips that acknowledgements measured.
    pub(super) const fn round_trips(&self) -> &RttHistogram {
        &self.round_trips
    }

    /// The fields of a packet with this number.
    pub(super) const fn base(&self, now: Instant, psn: Psn) -> Base {
        Base { timestamp: Timestamp::of(now), ..Base::new(self.agreement.peer_tag, self.agreement.peer_qp, psn) }
    }

    // ---- events

    /// A request or response arrived.
    pub(super) fn note_arrival(&mut self, now: Instant, base: &Base) {
        self.last_heard = now;
        self.last_arrival = (base.timestamp, now);
        self.marked = self.marked.wrapping_add(u16::from(base.fecn));
        if base.fecn {
            self.notifier.on_marked(now);
        }
    }

    /// A packet of a message that takes a receive was placed.
    pub(super) const fn note_message(&mut self) {
        self.credits_told.heard();
    }

    /// A receive was posted: a sender that waits for one is told without being asked. True if there is something to send.
    pub(super) fn note_posted(&mut self, credits: Credits) -> bool {
        let news = self.credits_told.is_news(credits);
        if news {
            self.responder.inbound.owe_news();
        }
        news
    }

    /// The sender is told that there is no receive. One that was posted meanwhile is news.
    fn note_refused(&mut self, credits: Credits) {
        if credits.receives().is_some() {
            self.credits_told.tell(Credits::of(0));
            self.note_posted(credits);
        }
    }

    /// An acknowledgement of requests arrived.
    pub(super) fn on_ack(&mut self, now: Instant, cumulative: Psn, ack: &Ack) -> Result<Acked, DropReason> {
        self.last_heard = now;
        self.take_ack(now, cumulative, ack, |link, feedback| link.requester.sender.on_ack(now, feedback).ok())
    }

    /// An acknowledgement of responses arrived.
    pub(super) fn on_read_ack(&mut self, now: Instant, cumulative: Psn, ack: &Ack) -> Result<Acked, DropReason> {
        let acked = self.take_ack(now, cumulative, ack, |link, feedback| link.responder.responses.as_mut()?.on_ack(now, feedback).ok())?;
        self.last_heard = now;
        Ok(acked)
    }

    /// Hands an acknowledgement to the stream that it is for, which `take` knows, and what it says of the path to the others.
    fn take_ack(
        &mut self,
        now: Instant,
        cumulative: Psn,
        ack: &Ack,
        take: impl FnOnce(&mut Self, Feedback<'_>) -> Option<Acked>,
    ) -> Result<Acked, DropReason> {
        let before = self.outstanding();
        let feedback = feedback_of(now, cumulative, ack);
        let acked = take(self, feedback).ok_or(DropReason::BadAcknowledgement)?;
        feedback.rtt.into_iter().for_each(|rtt| self.round_trips.record(rtt));
        self.heed(now, before, ack.echo.marked, feedback.rtt);
        Ok(acked)
    }

    /// Tells congestion control of an acknowledgement, before which `before` packets were outstanding.
    fn heed(&mut self, now: Instant, before: u32, marked: u16, rtt: Option<Duration>) {
        let (requests, responses) = (Some(self.requester.sender.unacknowledged()), self.responses_sender().map(Sender::unacknowledged));
        for (known, oldest) in self.known_losses.iter_mut().zip([requests, responses]) {
            known.take_if(|end| oldest.is_none_or(|oldest| !oldest.is_before(*end)));
        }
        let outstanding = self.outstanding();
        self.gate.on_ack(now, before.saturating_sub(outstanding), outstanding, marked, rtt);
    }

    /// The receiver had no room for a request: what is in flight comes again, which says nothing about the path.
    pub(super) const fn note_refusal(&mut self) {
        self.known_losses[0] = Some(self.requester.sender.next_new());
    }

    /// A packet with so many bytes of payload leaves. `of_requests`: it is a request, not a response.
    pub(super) fn note_sent(&mut self, now: Instant, pick: Pick, payload: usize, of_requests: bool) {
        let sender = if of_requests { Some(&self.requester.sender) } else { self.responses_sender() };
        let next = sender.map(Sender::next_new);
        let known = &mut self.known_losses[usize::from(!of_requests)];
        let is_news = |psn: Psn| known.is_none_or(|end| !psn.is_before(end));
        if matches!(pick, Pick::Again { psn, cause: Cause::Fast } if is_news(psn)) && self.gate.on_loss(now) {
            *known = next;
        }
        self.gate.on_sent(now, payload as u64 + PACKET_OVERHEAD, matches!(pick, Pick::Again { .. }));
    }

    /// Time has passed for what we owe.
    pub(super) fn handle_ack_timeout(&mut self, now: Instant) {
        self.responder.inbound.handle_timeout(now);
        if let Some(reads) = &mut self.requester.reads {
            reads.inbound.handle_timeout(now);
        }
    }

    /// Time has passed for what we sent: what that means for requests and for responses.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> [Timeout; 2] {
        let ended = self.requester.end_rnr_wait(now);
        if ended {
            self.begin_waiting(now);
        }
        let waits = ended || self.requester.waits_for_receiver();
        let requests = if waits { Timeout::Idle } else { self.requester.sender.on_timeout(now) };
        let responses = self.responder.responses.as_mut().map_or(Timeout::Idle, |responses| responses.sender.on_timeout(now));
        [requests, responses]
    }

    /// When an answer must leave.
    pub(super) fn ack_deadline(&self) -> Option<Instant> {
        let reads = self.requester.reads.as_ref().and_then(|reads| reads.inbound.acker.deadline());
        earliest(self.responder.inbound.acker.deadline(), reads)
    }

    /// When time matters next for what we sent.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let responses = self.responder.responses.as_ref().and_then(|responses| responses.sender.deadline());
        earliest(earliest(self.requester.deadline(), responses), self.gate.deadline())
    }

    fn responses_sender(&self) -> Option<&Sender> {
        self.responder.responses.as_ref().map(|responses| &responses.sender)
    }

    /// What holds the next request of `queue` back, if one waits.
    pub(super) fn held_by(&self, queue: &SendQueue) -> Option<trace::Gate> {
        let sender = &self.requester.sender;
        queue.has_unsent().then(|| match () {
            () if self.requester.waits_for_receiver() => trace::Gate::ReceiverNotReady,
            () if sender.in_flight() >= sender.cap() => trace::Gate::Window,
            () if self.gate.deadline().is_some() => trace::Gate::Pacing,
            () if self.gate.window().is_some_and(|window| self.outstanding() >= window.whole().max(1)) => trace::Gate::Congestion,
            () if sender.in_recovery() => trace::Gate::Recovery,
            () if self.requester.waits_for_credit(queue) => trace::Gate::Credits,
            () => trace::Gate::Reads,
        })
    }

    /// True if a packet could leave now, as far as its peer and the path are concerned.
    pub(super) fn wants_to_send(&self, queue: &SendQueue) -> bool {
        let room = self.gate.has_room(self.outstanding());
        let may = |sender: &Sender, has_new: bool| sender.wants_again() || has_new && room && sender.in_flight() < sender.cap();
        let responses = self.responder.responses.as_ref().is_some_and(|responses| may(&responses.sender, responses.has_unsent()));
        let has_new = queue.may_continue() && !self.requester.waits_for_credit(queue);
        responses || !self.requester.waits_for_receiver() && may(&self.requester.sender, has_new)
    }

    /// Requests and responses in flight and not known to have arrived.
    pub(super) fn outstanding(&self) -> u32 {
        let responses = self.responses_sender().map_or(0, Sender::outstanding);
        self.requester.sender.outstanding().saturating_add(responses)
    }

    // ---- outputs

    /// True if an answer is due.
    pub(super) fn owes(&self) -> bool {
        let reads = self.requester.reads.as_ref().is_some_and(|reads| reads.inbound.acker.is_due());
        self.responder.is_due() || reads || self.notifier.is_due()
    }

    /// True if it is the turn of responses; requests have the next one.
    pub(super) const fn take_turn(&mut self) -> bool {
        self.responses_first = !self.responses_first;
        self.responses_first
    }

    /// What we owe the peer: refusals and acknowledgements.
    pub(super) fn poll_answer(&mut self, now: Instant, credits: Credits, config: &EndpointConfig) -> Option<(Base, Ack)> {
        if !self.responder.is_due() {
            return None;
        }
        let echo = self.echo(now);
        let msn = self.responder.inbound.receiver.msn();
        if let Some(refused) = self.responder.poll_refusal() {
            let kind = match refused {
                Refused::NotReady => {
                    self.note_refused(credits);
                    AckKind::ReceiverNotReady(rnr_code(config.rnr_delay.as_micros()))
                }
                Refused::Fatal(code) => AckKind::Nak(code),
            };
            return Some((self.base(now, self.responder.expected()), Ack { kind, msn, echo, sack: None }));
        }
        let answer = self.responder.inbound.poll()?;
        if !answer.negative {
            self.credits_told.tell(credits);
        }
        Some((self.base(now, answer.cumulative), ack_of(answer, credits, msn, echo)))
    }

    /// What we owe the peer for its responses.
    pub(super) fn poll_read_answer(&mut self, now: Instant) -> Option<(Base, Ack)> {
        let answer = self.requester.reads.as_mut()?.inbound.poll()?;
        Some((self.base(now, answer.cumulative), ack_of(answer, Credits::UNLIMITED, 0, self.echo(now))))
    }

    /// The notification that we owe the peer: its packets came marked.
    pub(super) fn poll_notification(&mut self, now: Instant) -> Option<Base> {
        self.notifier.poll().then(|| self.base(now, self.responder.expected()))
    }

    fn echo(&self, now: Instant) -> Echo {
        let (timestamp, at) = self.last_arrival;
        Echo { timestamp, held: now.since(at).ticks(), marked: self.marked }
    }
}

fn feedback_of(now: Instant, cumulative: Psn, ack: &Ack) -> Feedback<'_> {
    Feedback {
        cumulative,
        negative: ack.kind == AckKind::Nak(NakCode::SequenceError),
        trigger: ack.sack.map(|sack| sack.psn),
        bitmap: ack.sack.as_ref().map_or(&[], |sack| sack.words()),
        rtt: ack.echo.round_trip(now),
        echoed: ack.echo.timestamp.instant(now),
    }
}

fn ack_of(answer: Answer, credits: Credits, msn: u32, echo: Echo) -> Ack {
    let kind = if answer.negative { AckKind::Nak(NakCode::SequenceError) } else { AckKind::Ack(credits) };
    Ack { kind, msn, echo, sack: answer.selective.map(|(psn, words)| Sack::new(psn, &words)) }
}

/// The body of an acknowledgement, of requests or of responses.
pub(super) const fn answer_body(ack: Ack, of_responses: bool) -> Body<'static> {
    if of_responses { Body::ReadAck(ack) } else { Body::Ack(ack) }
}
