//! The sender's view of a packet stream: what is in flight, what arrived, what to send next.

use crate::time::{Duration, Instant, Timestamp, earliest};
use crate::transport::Psn;
use crate::transport::irn::exchange::{Acked, BadAck, Cause, Feedback, Pick, SenderConfig, Timeout};
use crate::transport::irn::probe::{Prober, patience};
use crate::transport::irn::recency::{Recency, Sent};
use crate::transport::irn::rtt::{FEW_IN_FLIGHT, RttEstimator};
use crate::transport::irn::{Bitmap, LossRule, Profile, Window};
use crate::transport::ring::Ring;

/// A walk over the packets in flight that sends again what qualifies.
#[derive(Clone, Copy, Debug, Hash)]
struct Pass {
    /// The next candidate.
    cursor: Psn,
    /// Candidates lie before this.
    end: Psn,
    /// All that is not known to have arrived qualifies, not only what the loss rule names.
    everything: bool,
    cause: Cause,
}

/// What one acknowledgement tells, gathered packet by packet.
#[derive(Clone, Copy, Debug)]
struct Report {
    now: Instant,
    rtt: Option<Duration>,
    echoed: Option<Instant>,
    spurious: u32,
    probe_helped: bool,
}

/// What retransmissions turned out to be, counted until the next recovery begins.
#[derive(Clone, Copy, Debug, Default, Hash)]
struct Verdicts {
    /// They arrived first, as far as is known.
    needed: u32,
    /// The original arrived first: the receiver will report a duplicate, which then tells nothing new.
    needless: u32,
}

/// Which packets are in flight. Bit i of the bitmap speaks of `unacknowledged + i`.
#[derive(Clone, Debug, Hash)]
pub struct Sender {
    profile: Profile,
    retry_count: u8,
    ack_delay: Duration,
    tail_asks: bool,
    unacknowledged: Psn,
    next: Psn,
    arrived: Bitmap,
    /// One entry for each packet in flight.
    sent: Ring<Sent>,
    /// Transmissions so far, modulo 2^32.
    transmissions: u32,
    /// In recovery until the cumulative acknowledgement passes this: the last new packet before the first retransmission.
    recovery: Option<Psn>,
    /// The first unacknowledged packet is to be sent again, whatever the rule says.
    first_again: Option<Cause>,
    pass: Option<Pass>,
    /// Go-back-N: where the last pass began.
    gone_back_to: Option<Psn>,
    recency: Recency,
    /// When the next hole becomes overdue by the recency rule.
    loss_check: Option<Instant>,
    prober: Prober,
    verdicts: Verdicts,
    rtt: RttEstimator,
    window: Window,
    rto_start: Instant,
    timeouts: u8,
}

impl Sender {
    /// A sender whose first packet will be `start`.
    pub fn new(start: Psn, config: SenderConfig) -> Self {
        Self {
            profile: config.profile,
            retry_count: config.retry_count,
            ack_delay: config.ack_delay,
            tail_asks: config.tail_asks,
            unacknowledged: start,
            next: start,
            arrived: Bitmap::default(),
            sent: Ring::new(0),
            transmissions: 0,
            recovery: None,
            first_again: None,
            pass: None,
            gone_back_to: None,
            recency: Recency::new(),
            loss_check: None,
            prober: Prober::default(),
            verdicts: Verdicts::default(),
            rtt: RttEstimator::new(config.rto),
            window: config.window,
            rto_start: Instant::ZERO,
            timeouts: 0,
        }
    }

    /// How losses are noticed and recovered.
    pub const fn profile(&self) -> Profile {
        self.profile
    }

    /// The first packet not acknowledged.
    pub const fn unacknowledged(&self) -> Psn {
        self.unacknowledged
    }

    /// True if everything before `end` is acknowledged, all of which was sent. Right also when that was long ago, more
    /// than half of all numbers: then `end` looks as if it lay ahead.
    pub const fn has_acknowledged(&self, end: Psn) -> bool {
        match end.distance_from(self.unacknowledged) {
            Some(ahead) => ahead == 0 || ahead > self.in_flight(),
            None => true,
        }
    }

    /// The next new packet.
    pub const fn next_new(&self) -> Psn {
        self.next
    }

    /// Packets sent and not cumulatively acknowledged.
    pub const fn in_flight(&self) -> u32 {
        self.sent.len()
    }

    /// Of these, the ones not known to have arrived: what may be on the path.
    pub const fn outstanding(&self) -> u32 {
        self.in_flight().saturating_sub(self.arrived.len())
    }

    /// Most packets in flight.
    pub const fn cap(&self) -> u32 {
        self.window.cap()
    }

    /// True while a loss is being recovered.
    pub const fn in_recovery(&self) -> bool {
        self.recovery.is_some()
    }

    /// Measured round trips.
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The gap in packets from which a hole counts as lost at once: 3 on an orderly path, more as it reorders.
    pub const fn reordering_threshold(&self) -> u32 {
        self.recency.threshold()
    }

    /// Time-outs since something was last heard.
    pub const fn timeouts(&self) -> u8 {
        self.timeouts
    }

    /// Time for which unsent packets waited for the window, since this was last asked.
    pub const fn take_window_limited(&mut self) -> Duration {
        self.window.take_limited()
    }

    /// The work request that a packet in flight belongs to, as given to [`Self::on_sent`].
    pub fn work_of(&self, psn: Psn) -> u32 {
        self.sent_of(self.bit_of(psn)).work
    }

    /// The entry of the packet `ahead` behind the first unacknowledged one.
    fn sent_of(&self, ahead: u32) -> Sent {
        self.sent.get(self.sent.head().wrapping_add(ahead)).copied().unwrap_or_default()
    }

    // ---- events

    /// An acknowledgement arrived.
    ///
    /// # Errors
    /// [`BadAck`] if it cannot be true. Nothing changed.
    pub fn on_ack(&mut self, now: Instant, feedback: Feedback<'_>) -> Result<Acked, BadAck> {
        let newly = feedback.cumulative.distance_from(self.unacknowledged).filter(|&n| n <= self.in_flight()).ok_or(BadAck)?;
        if let Some(rtt) = feedback.rtt {
            self.rtt.sample(now, rtt);
            feedback.echoed.into_iter().for_each(|echoed| self.recency.on_echo(echoed, rtt));
            self.window.on_round_trip(now, &self.rtt, self.in_flight());
        }
        let mut report = Report { now, rtt: feedback.rtt, echoed: feedback.echoed, spurious: 0, probe_helped: false };
        self.take_cumulative(newly, &mut report);
        let selective = self.take_selective(feedback, &mut report);
        let duplicate = feedback.trigger.is_some_and(|psn| psn.is_before(feedback.cumulative));
        if duplicate {
            self.take_duplicate(&mut report);
        }
        if newly > 0 || selective > 0 {
            self.rto_start = now;
            self.timeouts = 0;
            self.prober.on_activity(now);
        }
        let probing = self.prober.is_probing();
        let lost = self.update_recovery(now, newly > 0, feedback.negative);
        let probe_helped = report.probe_helped || lost && probing;
        Ok(Acked { cumulative: newly, selective, spurious: report.spurious, duplicate, lost: lost || report.probe_helped, probe_helped })
    }

    fn take_cumulative(&mut self, newly: u32, report: &mut Report) {
        if newly == 0 {
            return;
        }
        let highest = self.arrived.highest();
        for ahead in 0..newly {
            let Some(sent) = self.sent.pop() else { break };
            if !self.arrived.contains(ahead) {
                self.note_arrival(self.unacknowledged.plus(ahead), sent, highest.and_then(|highest| highest.checked_sub(ahead)), report);
            }
        }
        self.arrived.advance(newly);
        self.unacknowledged = self.unacknowledged.plus(newly);
        self.first_again = None;
        self.gone_back_to = None;
    }

    fn take_selective(&mut self, feedback: Feedback<'_>, report: &mut Report) -> u32 {
        if !self.profile.sack {
            return 0;
        }
        let in_flight = self.in_flight();
        let highest = self.arrived.highest();
        let mut fresh = 0;
        let mut take = |sender: &mut Self, ahead: u32| {
            // Bit 0 is the missing packet itself; bits behind the last packet sent cannot be true. Neither is believed.
            if ahead > 0 && ahead < in_flight && sender.arrived.insert(ahead) {
                fresh += 1;
                let (psn, sent) = (sender.unacknowledged.plus(ahead), sender.sent_of(ahead));
                sender.note_arrival(psn, sent, highest.and_then(|highest| highest.checked_sub(ahead)), report);
            }
        };
        if let Some(ahead) = feedback.trigger.and_then(|psn| psn.distance_from(self.unacknowledged)) {
            take(self, ahead);
        }
        for (word, index) in feedback.bitmap.iter().zip(0u32..) {
            // Only bits not known yet: in steady recovery nearly all are.
            let known = self.arrived.words().get(index as usize).copied().unwrap_or(u64::MAX);
            let mut unknown = word & !known;
            while unknown != 0 {
                take(self, index * 64 + unknown.trailing_zeros());
                unknown &= unknown - 1;
            }
        }
        fresh
    }

    /// A packet is known to have arrived. `before`: how far behind it a packet lies that was known to have arrived
    /// earlier, packets. Of a packet sent again, the echoed timestamp tells which transmission arrived: if what arrived
    /// last was sent before the retransmission, it cannot have been that (the idea of Eifel, RFC 3522).
    fn note_arrival(&mut self, psn: Psn, sent: Sent, before: Option<u32>, report: &mut Report) {
        let rtt = report.now.since(sent.at);
        let rtt = report.rtt.map_or(rtt, |measured| measured.min(rtt));
        if !sent.is_again() {
            if let Some(distance) = before {
                self.recency.on_reordered(sent, distance);
            }
            return self.recency.on_arrival(sent, rtt);
        }
        if report.echoed.is_some_and(|echoed| echoed < Timestamp::floor(sent.at)) {
            self.verdicts.needless += 1;
            report.spurious += 1;
            self.recency.on_spurious(&self.rtt);
        } else {
            self.verdicts.needed += 1;
            report.probe_helped |= self.prober.is_out(psn);
            self.recency.on_arrival(sent, rtt);
        }
    }

    /// The receiver had a packet already. If no retransmission is known to have been needless, one is now.
    fn take_duplicate(&mut self, report: &mut Report) {
        if self.verdicts.needless > 0 {
            self.verdicts.needless -= 1;
        } else if self.verdicts.needed > 0 {
            self.verdicts.needed -= 1;
            report.spurious += 1;
            self.recency.on_spurious(&self.rtt);
        }
    }

    /// Returns true if recovery begins because a loss was noticed.
    fn update_recovery(&mut self, now: Instant, progress: bool, negative: bool) -> bool {
        self.prober.on_cumulative(self.unacknowledged);
        if self.recovery.is_some_and(|end| end.is_before(self.unacknowledged)) {
            self.recovery = None;
            self.pass = None;
            self.recency.on_recovered();
        }
        if self.unacknowledged == self.next {
            self.pass = None;
            self.first_again = None;
            self.loss_check = None;
            return false;
        }
        match self.profile.loss {
            LossRule::FirstGap => self.update_first_gap(progress, negative),
            LossRule::Recency => {
                self.begin_loss_check();
                self.notice_loss(now)
            }
            LossRule::GoBackN => self.update_go_back_n(negative),
        }
    }

    /// The paper's rule. A negative acknowledgement starts recovery whether or not it also acknowledges something:
    /// otherwise a gap whose earlier acknowledgements were lost would wait for the time-out.
    fn update_first_gap(&mut self, progress: bool, negative: bool) -> bool {
        if self.recovery.is_none() {
            if negative {
                self.resend_first(Cause::Fast);
            }
            return negative;
        }
        let resent = self.pass.is_some_and(|pass| self.unacknowledged.is_before(pass.cursor));
        if progress && !resent {
            self.first_again = Some(Cause::Fast);
            self.pass = Some(self.whole_pass(false, Cause::Fast));
        }
        false
    }

    /// One negative acknowledgement per gap: a second one for the gap that the last pass began with is ignored. One
    /// for a later gap means that what was sent again is lost again, and begins another pass.
    fn update_go_back_n(&mut self, negative: bool) -> bool {
        let first = self.recovery.is_none();
        let again = negative && self.gone_back_to != Some(self.unacknowledged);
        if again {
            self.go_back(Cause::Fast);
        }
        again && first
    }

    fn go_back(&mut self, cause: Cause) {
        self.enter_recovery();
        self.gone_back_to = Some(self.unacknowledged);
        self.pass = Some(self.whole_pass(true, cause));
    }

    fn begin_loss_check(&mut self) {
        if self.recency.is_known() && !self.pass.is_some_and(|pass| pass.everything) {
            self.pass = Some(self.whole_pass(false, Cause::Fast));
        }
    }

    /// Enters recovery if something is overdue.
    fn notice_loss(&mut self, now: Instant) -> bool {
        let Some(pass) = self.pass.filter(|_| self.recovery.is_none()) else { return false };
        let lost = self.next_overdue(now, pass).is_some();
        if lost {
            self.enter_recovery();
        }
        lost
    }

    fn enter_recovery(&mut self) {
        if self.recovery.is_none() {
            self.verdicts = Verdicts::default();
        }
        self.recovery = Some(self.next.previous());
        self.prober.end();
    }

    fn resend_first(&mut self, cause: Cause) {
        self.enter_recovery();
        self.first_again = Some(cause);
        self.pass = Some(self.whole_pass(false, Cause::Fast));
    }

    const fn whole_pass(&self, everything: bool, cause: Cause) -> Pass {
        Pass { cursor: self.unacknowledged, end: self.next, everything, cause }
    }

    /// The receiver had no room for the first unacknowledged packet; what followed it may have been dropped too.
    pub fn on_receiver_not_ready(&mut self, now: Instant) {
        self.rto_start = now;
        self.timeouts = 0;
        if self.unacknowledged != self.next {
            self.enter_recovery();
            self.pass = Some(self.whole_pass(true, Cause::Fast));
        }
    }

    /// Nothing may be sent for a while, which is not for want of room in the window.
    pub fn rest(&mut self, now: Instant) {
        self.window.note(now, false);
    }

    /// Something may be sent again: the receiver's silence counts from now on.
    pub fn go_on(&mut self, now: Instant) {
        self.rto_start = self.rto_start.max(now);
        self.prober.postpone(now);
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now: Instant) -> Timeout {
        if self.probe_deadline().is_some_and(|at| at <= now) {
            self.prober.on_silence();
            self.rto_start = now;
            return Timeout::Probe;
        }
        if self.rto_deadline().is_some_and(|at| at <= now) {
            if self.timeouts >= self.retry_count {
                return Timeout::Exhausted;
            }
            self.timeouts += 1;
            self.rto_start = now;
            self.resume_after_timeout();
            return Timeout::Retransmit;
        }
        if self.loss_check.is_some_and(|at| at <= now) {
            self.loss_check = None;
            self.begin_loss_check();
            return Timeout::LossCheck { lost: self.notice_loss(now) };
        }
        Timeout::Idle
    }

    fn resume_after_timeout(&mut self) {
        if self.profile.loss == LossRule::GoBackN {
            self.go_back(Cause::Timeout);
        } else {
            self.resend_first(Cause::Timeout);
        }
    }

    /// When time matters next.
    pub fn deadline(&self) -> Option<Instant> {
        earliest(earliest(self.rto_deadline(), self.probe_deadline()), self.loss_check)
    }

    /// A packet sent again is waited for as if few were in flight: what is behind it is known to have arrived, or
    /// will be known once it has, and the long time-out would only add to the delay. The paper's mode goes by what is
    /// in flight alone.
    fn rto_deadline(&self) -> Option<Instant> {
        let few = if self.profile.rto_adaptive {
            self.outstanding() <= FEW_IN_FLIGHT || self.sent_of(0).is_again()
        } else {
            self.in_flight() <= FEW_IN_FLIGHT
        };
        (self.in_flight() > 0).then(|| self.rto_start + self.rtt.timeout(few, self.timeouts))
    }

    /// No probe while a packet sent again is awaited, nor while one behind a gap has arrived: then something is known
    /// to be missing, and other rules apply (RFC 8985, 7.2, which forbids them until recovery ends; but the end of what
    /// was sent may be lost while everything that recovery is about has been repaired). Not later than the time-out,
    /// which begins anew with the probe.
    fn probe_deadline(&self) -> Option<Instant> {
        let recovering = self.first_again.is_some() || !self.arrived.is_empty() || self.sent_of(0).is_again();
        if !self.profile.probes || recovering {
            return None;
        }
        let ack_delay = if self.in_flight() == 1 || !self.tail_asks { self.ack_delay } else { Duration::ZERO };
        let patience = patience(self.rtt.smoothed()?, ack_delay);
        let silence = self.prober.deadline(patience)?;
        self.rto_deadline().map(|timeout| timeout.min(silence))
    }

    // ---- outputs

    /// What to send now: known losses first, new packets only when none is left and the window has room.
    /// Follow with [`Self::on_sent`] once the packet is built.
    pub fn pick(&mut self, now: Instant, has_new: bool) -> Option<Pick> {
        let again = self.next_again(now).or_else(|| self.prober.is_due().then(|| (self.next.previous(), Cause::Probe)));
        if let Some((psn, cause)) = again.filter(|_| self.in_flight() > 0) {
            return Some(Pick::Again { psn, cause });
        }
        let open = self.in_flight() < self.window.cap();
        self.window.note(now, has_new && !open);
        (has_new && open).then_some(Pick::New(self.next))
    }

    /// True if something may have to be sent again at once.
    pub const fn wants_again(&self) -> bool {
        self.first_again.is_some() || self.recovery.is_some() && self.pass.is_some() || self.prober.is_due()
    }

    fn next_again(&mut self, now: Instant) -> Option<(Psn, Cause)> {
        if let Some(cause) = self.first_again {
            return Some((self.unacknowledged, cause));
        }
        let pass = self.pass?;
        let found =
            if pass.everything || self.profile.loss == LossRule::FirstGap { self.next_hole(pass) } else { self.next_overdue(now, pass) };
        // The paper's pass stays open: later acknowledgements reveal further holes behind the cursor.
        if found.is_none() && self.profile.loss != LossRule::FirstGap {
            self.pass = None;
        }
        found.map(|psn| (psn, pass.cause))
    }

    fn bit_of(&self, psn: Psn) -> u32 {
        psn.distance_from(self.unacknowledged).unwrap_or(0)
    }

    /// The next packet not known to have arrived; by the paper's rule only below one that has.
    fn next_hole(&self, pass: Pass) -> Option<Psn> {
        let hole = self.arrived.first_clear(self.bit_of(pass.cursor));
        let end = if pass.everything { self.bit_of(pass.end) } else { self.arrived.highest().unwrap_or(0) };
        (hole < end).then(|| self.unacknowledged.plus(hole))
    }

    /// The next packet that is overdue. Notes when the earliest of the others will be.
    fn next_overdue(&mut self, now: Instant, pass: Pass) -> Option<Psn> {
        let highest = self.arrived.highest().unwrap_or(0);
        let end = self.bit_of(pass.end);
        let mut bit = self.arrived.first_clear(self.bit_of(pass.cursor));
        if pass.cursor == self.unacknowledged {
            self.loss_check = None;
        }
        while bit < end {
            let (psn, sent) = (self.unacknowledged.plus(bit), self.sent_of(bit));
            match self.recency.overdue_at(sent, highest.saturating_sub(bit), &self.rtt) {
                Some(at) if at <= now => return Some(psn),
                Some(at) => self.loss_check = earliest(self.loss_check, Some(at)),
                // First transmissions leave in order, so all behind this one were sent after the latest arrival, too.
                None if !sent.is_again() => break,
                None => {}
            }
            bit = self.arrived.first_clear(bit + 1);
        }
        None
    }

    /// A packet picked by [`Self::pick`] is on its way; `work` is the work request that it belongs to.
    pub fn on_sent(&mut self, now: Instant, pick: Pick, work: u32) {
        match pick {
            Pick::New(psn) => {
                if self.in_flight() == 0 {
                    self.rto_start = now;
                }
                let rank = self.next_rank();
                self.sent.push(Sent::first(now, work, rank));
                self.next = psn.next();
                self.prober.on_activity(now);
            }
            Pick::Again { psn, cause } => self.on_sent_again(now, psn, cause),
        }
    }

    const fn next_rank(&mut self) -> u32 {
        self.transmissions = self.transmissions.wrapping_add(1);
        self.transmissions
    }

    fn on_sent_again(&mut self, now: Instant, psn: Psn, cause: Cause) {
        let (position, rank) = (self.sent.head().wrapping_add(self.bit_of(psn)), self.next_rank());
        if let Some(sent) = self.sent.get_mut(position) {
            *sent = sent.again(now, rank);
        }
        if cause == Cause::Probe {
            self.rto_start = now;
            return self.prober.on_sent(psn);
        }
        if psn == self.unacknowledged {
            self.first_again = None;
            self.rto_start = now;
        }
        if self.recovery.is_none() {
            self.enter_recovery();
        }
        if let Some(pass) = &mut self.pass {
            pass.cursor = psn.next();
        }
    }
}
