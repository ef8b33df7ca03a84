//! DCQCN (Zhu et al., SIGCOMM 2015): a rate that falls with each congestion notification and rises by timer and byte
//! counter, fast at first, then by steps.
//!
//! The timers need no wake-ups: what they would have done is made up for when the rate is next asked for.

use crate::time::{Duration, Instant};
use crate::transport::congestion::units::Rate;
use crate::transport::congestion::{Settings, Share};

/// Weight of a notification in `alpha` (the paper's `g`).
const GAIN: Share = Share::ratio(1, 256);
/// Rises of each kind that only lead back to the rate before the decrease (the paper's `F`).
const FAST_RECOVERY: u32 = 5;
/// Timer periods after which nothing is left of `alpha`, and every rate is back at its highest.
const MOST_PERIODS: u64 = 4096;

/// The state of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dcqcn {
    pub(super) rate: Rate,
    /// The rate to return to, bits per second.
    target: u64,
    alpha: Share,
    /// Shortest time between decreases: the spacing of notifications.
    spacing: Duration,
    period: Duration,
    stage: u64,
    step: u64,
    hyper_step: u64,
    /// Start of the running periods of the two timers.
    alpha_since: Instant,
    rise_since: Instant,
    /// Rises since the decrease, by timer and by bytes.
    by_timer: u32,
    by_bytes: u32,
    bytes: u64,
    cut: Option<Instant>,
}

impl Dcqcn {
    pub(super) fn new(settings: &Settings) -> Self {
        let rate = Rate::full(settings.min_rate, settings.link_rate);
        Self {
            rate,
            target: rate.bits(),
            alpha: Share::WHOLE,
            spacing: settings.notification_interval,
            period: settings.dcqcn_timer.max(Duration::from_micros(1)),
            stage: settings.dcqcn_bytes.max(1),
            step: settings.dcqcn_step.bits_per_second(),
            hyper_step: settings.dcqcn_hyper_step.bits_per_second(),
            alpha_since: Instant::ZERO,
            rise_since: Instant::ZERO,
            by_timer: 0,
            by_bytes: 0,
            bytes: 0,
            cut: None,
        }
    }

    /// Packets were marked, by a notification or by the count in an acknowledgement. Returns true if the rate fell.
    pub(super) fn on_notification(&mut self, now: Instant) -> bool {
        if self.cut.is_some_and(|at| now < at + self.spacing) {
            return false;
        }
        self.advance(now);
        self.cut = Some(now);
        self.target = self.rate.bits();
        self.rate.set(self.alpha.times(Share::ratio(1, 2)).rest().of(self.target));
        self.alpha = self.alpha.average(GAIN, Share::WHOLE);
        (self.alpha_since, self.rise_since) = (now, now);
        (self.by_timer, self.by_bytes, self.bytes) = (0, 0, 0);
        true
    }

    /// A packet of so many bytes leaves.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.advance(now);
        self.bytes += bytes;
        if self.bytes >= self.stage {
            self.bytes = 0;
            self.by_bytes = self.by_bytes.saturating_add(1);
            self.rise();
        }
    }

    /// Makes up for the timers.
    fn advance(&mut self, now: Instant) {
        if self.cut.is_none() {
            return;
        }
        let periods = now.since(self.alpha_since).as_nanos() / self.period.as_nanos();
        self.alpha_since += self.period * periods;
        (0..periods.min(MOST_PERIODS)).for_each(|_| self.alpha = self.alpha.times(GAIN.rest()));
        let periods = now.since(self.rise_since).as_nanos() / self.period.as_nanos();
        self.rise_since += self.period * periods;
        for _ in 0..periods.min(MOST_PERIODS) {
            if self.rate.is_full() {
                return;
            }
            self.by_timer = self.by_timer.saturating_add(1);
            self.rise();
        }
    }

    fn rise(&mut self) {
        let (fewer, more) = (self.by_timer.min(self.by_bytes), self.by_timer.max(self.by_bytes));
        let step = match (fewer > FAST_RECOVERY, more > FAST_RECOVERY) {
            (true, _) => self.hyper_step.saturating_mul(u64::from(fewer - FAST_RECOVERY)),
            (false, true) => self.step,
            (false, false) => 0,
        };
        self.target = self.rate.limit(self.target.saturating_add(step));
        // Rounded up, or the last bit would never be reached.
        self.rate.set(self.rate.bits().midpoint(self.target + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::congestion::tests::{at, settings};

    const GBIT: u64 = 1_000_000_000;
    const PERIOD: Duration = Duration::from_micros(55);

    #[test]
    fn the_first_notification_halves_the_rate_and_a_second_within_50_us_does_not_count() {
        let mut dcqcn = Dcqcn::new(&settings());
        assert!(dcqcn.on_notification(at(1)));
        assert_eq!((dcqcn.rate.bits(), dcqcn.target), (5 * GBIT, 10 * GBIT));
        assert!(!dcqcn.on_notification(at(1) + Duration::from_micros(49)));
        assert_eq!(dcqcn.rate.bits(), 5 * GBIT);
    }

    #[test]
    fn five_timer_periods_lead_back_half_of_the_way_each_and_then_steps_are_added() {
        let mut dcqcn = Dcqcn::new(&settings());
        dcqcn.rate.set(4 * GBIT);
        dcqcn.on_notification(at(1));
        let mut expected = [3, 7, 15, 31, 63]
            .into_iter()
            .zip([4, 8, 16, 32, 64])
            .map(|(part, whole)| 2 * GBIT + 2 * GBIT * (part - whole / 2) / (whole / 2));
        for (n, bits) in (1..).zip(expected.by_ref()) {
            dcqcn.advance(at(1) + PERIOD * n);
            assert!(dcqcn.rate.bits().abs_diff(bits) < 100, "period {n}: {} instead of {bits}", dcqcn.rate.bits());
        }
        dcqcn.advance(at(1) + PERIOD * 6);
        assert_eq!(dcqcn.target, 4 * GBIT + 40_000_000, "the sixth adds a step");
    }

    #[test]
    fn hyper_increase_begins_when_timer_and_bytes_are_both_past_fast_recovery() {
        let mut dcqcn = Dcqcn::new(&settings());
        dcqcn.rate.set(GBIT);
        dcqcn.on_notification(at(1));
        dcqcn.advance(at(1) + PERIOD * 6);
        let before = dcqcn.target;
        (0..6).for_each(|_| dcqcn.on_sent(at(1) + PERIOD * 6, 10_000_000));
        // Five byte stages add one step each (the timer is past fast recovery), the sixth a hyper step.
        assert_eq!(dcqcn.target - before, 5 * 40_000_000 + 400_000_000);
    }

    #[test]
    fn alpha_decays_by_one_part_in_256_per_period_and_a_long_pause_restores_the_full_rate() {
        let mut dcqcn = Dcqcn::new(&settings());
        dcqcn.on_notification(at(1));
        dcqcn.advance(at(1) + PERIOD);
        assert_eq!(dcqcn.alpha, GAIN.rest());
        dcqcn.advance(at(1) + Duration::from_secs(100));
        assert_eq!((dcqcn.rate.bits(), dcqcn.alpha), (10 * GBIT, Share::ZERO));
    }
}
