//! The sender's view of a packet stream: what is in flight, what arrived, what to send next.

use alloc::boxed::Box;
use alloc::vec;

use crate::time::{Duration, Instant, earliest};
use crate::transport::Psn;
use crate::transport::irn::bitmap::WINDOW;
use crate::transport::irn::rtt::{RtoBounds, RttEstimator};
use crate::transport::irn::{Bitmap, LossRule};

/// Gap in packets from which a hole counts as lost at once while the path has shown no reordering (RFC 8985, as in TCP).
const REORDERING_THRESHOLD: u32 = 3;
/// The reordering allowance grows in steps of a quarter of the smallest round trip, up to 8 of them (two round trips).
const MAX_ALLOWANCE_STEPS: u32 = 8;

/// What a sender is made with.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// When a packet counts as lost.
    pub loss: LossRule,
    /// Most packets in flight (BDP-FC), 1 to [`WINDOW`].
    pub cap: u32,
    /// Retransmission time-outs.
    pub rto: RtoBounds,
    /// Time-outs in a row before giving up.
    pub retry_count: u8,
}

/// What an acknowledgement says, reduced to packet numbers.
#[derive(Clone, Copy, Debug)]
pub struct Feedback<'a> {
    /// Everything before this has arrived.
    pub cumulative: Psn,
    /// The receiver saw a gap.
    pub negative: bool,
    /// The arrival that triggered the answer.
    pub trigger: Option<Psn>,
    /// Bit i: `cumulative + i` has arrived.
    pub bitmap: &'a [u64],
    /// The round trip that it measures.
    pub rtt: Option<Duration>,
}

/// What an acknowledgement changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Packets that the cumulative acknowledgement passed.
    pub cumulative: u32,
    /// Packets newly known to have arrived behind a gap.
    pub selective: u32,
    /// The receiver reported a packet that it had before: a retransmission too many.
    pub duplicate: bool,
}

/// An acknowledgement that cannot be true: for packets never sent, or older than what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAck;

/// What to send in a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The next new packet, with this number.
    New(Psn),
    /// This packet again.
    Again {
        /// Its number.
        psn: Psn,
        /// Because of a time-out, not of an acknowledgement.
        timeout: bool,
    },
}

/// What the passing of time means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Nothing is due.
    Idle,
    /// A packet has become overdue by the recency rule.
    LossCheck,
    /// Nothing was heard for the retransmission time-out.
    Retransmit,
    /// That happened too often in a row.
    Exhausted,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    at: Instant,
    transmissions: u8,
    work: u32,
}

/// A walk over the packets in flight that sends again what qualifies.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// The next candidate.
    cursor: Psn,
    /// Candidates lie before this.
    end: Psn,
    /// All that is not known to have arrived qualifies, not only what the loss rule names.
    everything: bool,
}

/// The latest-sent packet known to have arrived (RACK's state, RFC 8985 section 5.2).
#[derive(Clone, Copy, Debug)]
struct Latest {
    at: Instant,
    psn: Psn,
    rtt: Duration,
}

/// What one acknowledgement reports. Of a packet sent again nobody knows which transmission arrived. If others that
/// were sent once came with it, they tell the time, and it is left out of account: after a needless time-out it would
/// make everything sent before the retransmission look lost.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    sent_once: bool,
    sent_again: Option<Latest>,
}

/// The one of two arrivals that was sent later.
fn later(a: Option<Latest>, b: Option<Latest>) -> Option<Latest> {
    match (a, b) {
        (Some(a), Some(b)) if a.at < b.at || a.at == b.at && a.psn.is_before(b.psn) => Some(b),
        (a, b) => a.or(b),
    }
}

/// Which packets are in flight. Bit i of the bitmap speaks of `unacknowledged + i`.
#[derive(Clone, Debug)]
pub struct Sender {
    config: SenderConfig,
    unacknowledged: Psn,
    next: Psn,
    arrived: Bitmap,
    sent: Box<[Sent]>,
    /// In recovery until the cumulative acknowledgement passes this: the last new packet before the first retransmission.
    recovery: Option<Psn>,
    /// The first unacknowledged packet is to be sent again, whatever the rule says; true = after a time-out.
    first_again: Option<bool>,
    pass: Option<Pass>,
    /// Go-back-N: where the last pass began.
    gone_back_to: Option<Psn>,
    latest: Option<Latest>,
    /// The path reorders: a hole was filled without a retransmission.
    reorders: bool,
    allowance_steps: u32,
    /// When the next hole becomes overdue by the recency rule.
    loss_check: Option<Instant>,
    rtt: RttEstimator,
    rto_start: Instant,
    timeouts: u8,
}

impl Sender {
    /// A sender whose first packet will be `start`.
    pub fn new(start: Psn, config: SenderConfig) -> Self {
        let config = SenderConfig { cap: config.cap.clamp(1, WINDOW), ..config };
        Self {
            unacknowledged: start,
            next: start,
            arrived: Bitmap::default(),
            sent: vec![Sent::default(); config.cap.next_power_of_two() as usize].into_boxed_slice(),
            recovery: None,
            first_again: None,
            pass: None,
            gone_back_to: None,
            latest: None,
            reorders: false,
            allowance_steps: 1,
            loss_check: None,
            rtt: RttEstimator::new(config.rto),
            rto_start: Instant::ZERO,
            timeouts: 0,
            config,
        }
    }

    /// The first packet not acknowledged.
    pub const fn unacknowledged(&self) -> Psn {
        self.unacknowledged
    }

    /// The next new packet.
    pub const fn next_new(&self) -> Psn {
        self.next
    }

    /// Packets sent and not cumulatively acknowledged.
    pub fn in_flight(&self) -> u32 {
        self.next.distance_from(self.unacknowledged).unwrap_or(0)
    }

    /// Of these, the ones not known to have arrived: what may be on the path.
    pub fn outstanding(&self) -> u32 {
        self.in_flight().saturating_sub(self.arrived.len())
    }

    /// Most packets in flight.
    pub const fn cap(&self) -> u32 {
        self.config.cap
    }

    /// True while a loss is being recovered.
    pub const fn in_recovery(&self) -> bool {
        self.recovery.is_some()
    }

    /// Measured round trips.
    pub const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Time-outs since something was last heard.
    pub const fn timeouts(&self) -> u8 {
        self.timeouts
    }

    /// The work request that a packet in flight belongs to, as given to [`Self::on_sent`].
    pub fn work_of(&self, psn: Psn) -> u32 {
        self.sent[self.slot(psn)].work
    }

    /// The ring's size is a power of two and so divides 2^24: its slots follow the PSN through its wrap.
    const fn slot(&self, psn: Psn) -> usize {
        psn.value() as usize & (self.sent.len() - 1)
    }

    // ---- events

    /// An acknowledgement arrived.
    ///
    /// # Errors
    /// [`BadAck`] if it cannot be true. Nothing changed.
    pub fn on_ack(&mut self, now: Instant, feedback: Feedback<'_>) -> Result<Acked, BadAck> {
        let newly = feedback.cumulative.distance_from(self.unacknowledged).filter(|&n| n <= self.in_flight()).ok_or(BadAck)?;
        let duplicate = feedback.trigger.is_some_and(|psn| psn.is_before(feedback.cumulative));
        if let Some(rtt) = feedback.rtt {
            self.rtt.sample(rtt);
        }
        let mut arrivals = Arrivals::default();
        self.take_cumulative(now, newly, &mut arrivals);
        let selective = self.take_selective(now, feedback, &mut arrivals);
        if !arrivals.sent_once {
            self.latest = later(self.latest, arrivals.sent_again);
        }
        if newly > 0 || selective > 0 {
            self.rto_start = now;
            self.timeouts = 0;
        }
        if duplicate {
            self.allowance_steps = (self.allowance_steps + 1).min(MAX_ALLOWANCE_STEPS);
        }
        self.update_recovery(newly > 0, feedback.negative);
        Ok(Acked { cumulative: newly, selective, duplicate })
    }

    fn take_cumulative(&mut self, now: Instant, newly: u32, arrivals: &mut Arrivals) {
        if newly == 0 {
            return;
        }
        let highest = self.arrived.highest();
        for ahead in 0..newly {
            if !self.arrived.contains(ahead) {
                self.note_arrival(now, self.unacknowledged.plus(ahead), highest.is_some_and(|h| h > ahead), arrivals);
            }
        }
        self.arrived.advance(newly);
        self.unacknowledged = self.unacknowledged.plus(newly);
        self.first_again = None;
    }

    fn take_selective(&mut self, now: Instant, feedback: Feedback<'_>, arrivals: &mut Arrivals) -> u32 {
        if self.config.loss == LossRule::GoBackN {
            return 0;
        }
        let in_flight = self.in_flight();
        let highest = self.arrived.highest();
        let mut fresh = 0;
        let mut take = |sender: &mut Self, ahead: u32| {
            // Bit 0 is the missing packet itself; bits behind the last packet sent cannot be true. Neither is believed.
            if ahead > 0 && ahead < in_flight && sender.arrived.insert(ahead) {
                fresh += 1;
                sender.note_arrival(now, sender.unacknowledged.plus(ahead), highest.is_some_and(|h| h > ahead), arrivals);
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

    /// Remembers the latest-sent packet that arrived, and notices reordering.
    fn note_arrival(&mut self, now: Instant, psn: Psn, filled_hole: bool, arrivals: &mut Arrivals) {
        let Sent { at, transmissions, .. } = self.sent[self.slot(psn)];
        let arrived = Some(Latest { at, psn, rtt: now.since(at) });
        if transmissions == 1 {
            self.reorders |= filled_hole;
            arrivals.sent_once = true;
            self.latest = later(self.latest, arrived);
        } else if self.rtt.smallest().is_some_and(|smallest| now.since(at) < smallest) {
            // Too early to be the answer to the retransmission: the original arrived after all.
            self.reorders = true;
        } else {
            arrivals.sent_again = later(arrivals.sent_again, arrived);
        }
    }

    fn update_recovery(&mut self, progress: bool, negative: bool) {
        if self.recovery.is_some_and(|end| end.is_before(self.unacknowledged)) {
            self.recovery = None;
            self.pass = None;
        }
        if self.unacknowledged == self.next {
            self.pass = None;
            self.first_again = None;
            self.loss_check = None;
            return;
        }
        match self.config.loss {
            LossRule::FirstGap => self.update_first_gap(progress, negative),
            LossRule::Recency => self.begin_loss_check(),
            LossRule::GoBackN => self.update_go_back_n(negative),
        }
    }

    /// The paper's rule. A negative acknowledgement starts recovery whether or not it also acknowledges something:
    /// otherwise a gap whose earlier acknowledgements were lost would wait for the time-out.
    fn update_first_gap(&mut self, progress: bool, negative: bool) {
        if self.recovery.is_none() {
            if negative {
                self.enter_recovery(false);
            }
            return;
        }
        let resent = self.pass.is_some_and(|pass| self.unacknowledged.is_before(pass.cursor));
        if progress && !resent {
            self.first_again = Some(false);
            self.pass = Some(self.whole_pass(false));
        }
    }

    /// One negative acknowledgement per gap: a second one for the gap that the last pass began with is ignored. One
    /// for a later gap means that what was sent again is lost again, and begins another pass.
    fn update_go_back_n(&mut self, negative: bool) {
        if negative && self.gone_back_to != Some(self.unacknowledged) {
            self.go_back();
        }
    }

    fn go_back(&mut self) {
        self.recovery = Some(self.next.previous());
        self.gone_back_to = Some(self.unacknowledged);
        self.pass = Some(self.whole_pass(true));
    }

    fn begin_loss_check(&mut self) {
        if self.latest.is_some() && !self.pass.is_some_and(|pass| pass.everything) {
            self.pass = Some(self.whole_pass(false));
        }
    }

    fn enter_recovery(&mut self, timeout: bool) {
        self.recovery = Some(self.next.previous());
        self.first_again = Some(timeout);
        self.pass = Some(self.whole_pass(false));
    }

    const fn whole_pass(&self, everything: bool) -> Pass {
        Pass { cursor: self.unacknowledged, end: self.next, everything }
    }

    /// The receiver had no room for the first unacknowledged packet; what followed it may have been dropped too.
    pub fn on_receiver_not_ready(&mut self, now: Instant) {
        self.rto_start = now;
        self.timeouts = 0;
        if self.unacknowledged != self.next {
            self.recovery = Some(self.next.previous());
            self.pass = Some(self.whole_pass(true));
        }
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now: Instant) -> Timeout {
        if self.rto_deadline().is_some_and(|at| at <= now) {
            if self.timeouts >= self.config.retry_count {
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
            return Timeout::LossCheck;
        }
        Timeout::Idle
    }

    fn resume_after_timeout(&mut self) {
        if self.config.loss == LossRule::GoBackN {
            self.go_back();
            self.first_again = Some(true);
        } else {
            self.enter_recovery(true);
        }
    }

    /// When time matters next.
    pub fn deadline(&self) -> Option<Instant> {
        earliest(self.rto_deadline(), self.loss_check)
    }

    fn rto_deadline(&self) -> Option<Instant> {
        let in_flight = self.in_flight();
        (in_flight > 0).then(|| self.rto_start + self.rtt.timeout(in_flight, self.timeouts))
    }

    // ---- outputs

    /// What to send now: known losses first, new packets only when none is left and the window has room.
    /// Follow with [`Self::on_sent`] once the packet is built.
    pub fn pick(&mut self, now: Instant, has_new: bool) -> Option<Pick> {
        if let Some((psn, timeout)) = self.next_again(now) {
            return Some(Pick::Again { psn, timeout });
        }
        (has_new && self.in_flight() < self.config.cap).then_some(Pick::New(self.next))
    }

    fn next_again(&mut self, now: Instant) -> Option<(Psn, bool)> {
        if let Some(timeout) = self.first_again {
            return Some((self.unacknowledged, timeout));
        }
        let pass = self.pass?;
        let found =
            if pass.everything || self.config.loss == LossRule::FirstGap { self.next_hole(pass) } else { self.next_overdue(now, pass) };
        // The paper's pass stays open: later acknowledgements reveal further holes behind the cursor.
        if found.is_none() && self.config.loss != LossRule::FirstGap {
            self.pass = None;
        }
        found.map(|psn| (psn, false))
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
        let latest = self.latest?;
        let highest = self.arrived.highest().unwrap_or(0);
        let end = self.bit_of(pass.end);
        let mut bit = self.arrived.first_clear(self.bit_of(pass.cursor));
        if pass.cursor == self.unacknowledged {
            self.loss_check = None;
        }
        while bit < end {
            let psn = self.unacknowledged.plus(bit);
            match self.overdue_at(psn, latest, highest.saturating_sub(bit)) {
                Some(at) if at <= now => return Some(psn),
                Some(at) => self.loss_check = earliest(self.loss_check, Some(at)),
                // First transmissions leave in order, so all behind this one were sent after the latest arrival, too.
                None if self.sent[self.slot(psn)].transmissions == 1 => break,
                None => {}
            }
            bit = self.arrived.first_clear(bit + 1);
        }
        None
    }

    /// When a missing packet counts as lost; `None` while nothing sent after it has arrived.
    fn overdue_at(&self, psn: Psn, latest: Latest, gap: u32) -> Option<Instant> {
        let sent = self.sent[self.slot(psn)];
        let sent_before = sent.at < latest.at || sent.at == latest.at && psn.is_before(latest.psn);
        sent_before.then(|| {
            let patient = self.reorders || gap < REORDERING_THRESHOLD;
            let step = self.rtt.smallest().unwrap_or(latest.rtt).div(4);
            let allowance = if patient { step.saturating_mul(u64::from(self.allowance_steps)) } else { Duration::ZERO };
            sent.at + latest.rtt + allowance
        })
    }

    /// A packet picked by [`Self::pick`] is on its way; `work` is the work request that it belongs to.
    pub fn on_sent(&mut self, now: Instant, pick: Pick, work: u32) {
        match pick {
            Pick::New(psn) => {
                if self.unacknowledged == self.next {
                    self.rto_start = now;
                }
                self.sent[self.slot(psn)] = Sent { at: now, transmissions: 1, work };
                self.next = psn.next();
            }
            Pick::Again { psn, .. } => self.on_sent_again(now, psn),
        }
    }

    fn on_sent_again(&mut self, now: Instant, psn: Psn) {
        let sent = &mut self.sent[self.slot(psn)];
        sent.at = now;
        sent.transmissions = sent.transmissions.saturating_add(1);
        if psn == self.unacknowledged {
            self.first_again = None;
            self.rto_start = now;
        }
        if self.recovery.is_none() {
            self.recovery = Some(self.next.previous());
        }
        if let Some(pass) = &mut self.pass {
            pass.cursor = psn.next();
        }
    }
}
