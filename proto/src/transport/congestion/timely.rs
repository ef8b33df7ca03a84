//! TIMELY (Mittal et al., SIGCOMM 2015) with the correction of Zhu et al. ("ECN or Delay", CoNEXT 2016): a rate that
//! follows the gradient of the round trip between two thresholds.
//!
//! The thresholds count from the smallest round trip seen instead of from zero: the paper's fabric has 20 us
//! everywhere, ours has whatever software at both ends takes.

use crate::time::{Duration, Instant};
use crate::transport::congestion::units::{Rate, Smallest};
use crate::transport::congestion::{Report, Settings, Share};

/// Weight of the newest difference in the gradient is one by this (the paper's `alpha` of 0.875).
const GRADIENT_PART: i64 = 8;
/// Decrease above the high threshold (the paper's `beta`).
const BETA: Share = Share::ratio(4, 5);
/// Decrease between the thresholds (`beta` of the corrected law).
const BETA_GRADIENT: Share = Share::ratio(8, 1000);
/// Falling round trips in a row from which the increase is five-fold (the paper's hyperactive increase).
const FALLING: u8 = 5;
/// No step takes more than this (as in the authors' published code).
const MOST_DECREASE: Share = Share::ratio(1, 2);

/// The state of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timely {
    pub(super) rate: Rate,
    /// Bits per second added per round trip.
    step: u64,
    low: Duration,
    high: Duration,
    smallest: Smallest,
    previous: Duration,
    /// Averaged difference of successive round trips, nanoseconds.
    drift: i64,
    falling: u8,
    updated: Instant,
    /// When a time-out last took half of the rate.
    cut: Option<Instant>,
}

impl Timely {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            rate: Rate::full(settings.min_rate, settings.link_rate),
            step: settings.timely_step.bits_per_second(),
            low: settings.timely_low,
            high: settings.timely_high,
            smallest: Smallest::new(),
            previous: Duration::ZERO,
            drift: 0,
            falling: 0,
            updated: Instant::ZERO,
            cut: None,
        }
    }

    /// Returns true if the rate fell.
    pub(super) fn on_ack(&mut self, report: &Report) -> bool {
        let Some(rtt) = report.rtt else { return false };
        let base = self.smallest.sample(report.now, rtt);
        // Several acknowledgements in one round trip share one step.
        let part = Share::ratio(report.now.since(self.updated).as_nanos(), base.as_nanos()).min(Share::WHOLE);
        self.updated = report.now;
        self.follow(rtt);
        let before = self.rate.bits();
        let wanted = self.wanted(rtt, base, part);
        self.rate.set(wanted.max(MOST_DECREASE.of(before)));
        self.rate.bits() < before
    }

    fn follow(&mut self, rtt: Duration) {
        let previous = if self.previous == Duration::ZERO { rtt } else { self.previous };
        let difference = signed(rtt) - signed(previous);
        self.previous = rtt;
        self.falling = if difference < 0 { self.falling.saturating_add(1) } else { 0 };
        self.drift += (difference - self.drift) / GRADIENT_PART;
    }

    fn wanted(&self, rtt: Duration, base: Duration, part: Share) -> u64 {
        let (low, high) = (base + self.low, base + self.high);
        let rate = self.rate.bits();
        if rtt < low {
            return rate.saturating_add(part.of(self.step));
        }
        if rtt > high {
            let excess = Share::ratio(high.as_nanos(), rtt.as_nanos()).rest();
            return BETA.times(excess).times(part).rest().of(rate);
        }
        let weight = self.weight(base);
        let error = Share::ratio(rtt.saturating_sub(low).as_nanos(), low.as_nanos());
        let step = if self.falling >= FALLING { 5 * self.step } else { self.step };
        let kept = BETA_GRADIENT.times(weight).times(error).times(part).rest().of(rate);
        kept.saturating_add(part.times(weight.rest()).of(step))
    }

    /// How much of the step is decrease: nothing for a gradient of -1/4 or less, all for 1/4 or more.
    fn weight(&self, base: Duration) -> Share {
        let gradient = Share::ratio(self.drift.unsigned_abs(), base.as_nanos()).min(Share::ratio(1, 4));
        let half = Share::ratio(1, 2);
        let twice = gradient.times(Share::ratio(2, 1));
        if self.drift < 0 { half.less(twice) } else { half.more(twice) }
    }

    /// Half, once per round trip. (A single loss does not count: the papers' Ethernet has none.)
    pub(super) fn on_timeout(&mut self, now: Instant, rtt: Duration) -> bool {
        if self.cut.is_some_and(|at| now < at + rtt) {
            return false;
        }
        self.cut = Some(now);
        self.rate.set(MOST_DECREASE.of(self.rate.bits()));
        true
    }
}

fn signed(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::congestion::tests::{at, report, settings};
    use crate::units::BitRate;

    const GBIT: u64 = 1_000_000_000;

    /// 4 Gbit/s on a path of 50 us: thresholds at 250 us and 1,050 us, 40 Mbit/s per round trip.
    fn four() -> Timely {
        let mut timely = Timely::new(&Settings { min_rate: BitRate::new(10_000_000).unwrap(), ..settings() });
        timely.on_ack(&delayed(at(0), 50));
        timely.rate.set(4 * GBIT);
        timely
    }

    fn delayed(now: Instant, micros: u64) -> Report {
        Report { rtt: Some(Duration::from_micros(micros)), ..report(now, 1) }
    }

    #[test]
    fn below_the_low_threshold_each_round_trip_adds_a_step() {
        let mut timely = four();
        timely.on_ack(&delayed(at(1), 100));
        assert_eq!(timely.rate.bits(), 4 * GBIT + 40_000_000);
        timely.on_ack(&delayed(at(1) + Duration::from_micros(25), 100));
        assert_eq!(timely.rate.bits(), 4 * GBIT + 60_000_000, "half a round trip, half a step");
    }

    #[test]
    fn above_the_high_threshold_the_rate_falls_in_proportion() {
        let mut timely = four();
        // 1 - 0.8 * (1 - 1050 / 2100) = 0.6.
        assert!(timely.on_ack(&delayed(at(1), 2_100)));
        assert!(timely.rate.bits().abs_diff(4 * GBIT * 6 / 10) < GBIT / 1000, "{}", timely.rate.bits());
        assert!(timely.on_ack(&delayed(at(2), 1_000_000)));
        assert!(timely.rate.bits() >= 4 * GBIT * 3 / 10, "never more than half at a time");
    }

    #[test]
    fn between_the_thresholds_the_gradient_decides() {
        let mut timely = four();
        // Rising by 450 us: the gradient is 450 / 8 / 50 = 1.1, all decrease. Error (500 - 250) / 250 = 1: 0.8 % less.
        assert!(timely.on_ack(&delayed(at(1), 500)));
        assert!(timely.rate.bits().abs_diff(4 * GBIT * 992 / 1000) < GBIT / 1000, "{}", timely.rate.bits());
        let low = timely.rate.bits();
        (0..30).for_each(|n| _ = timely.on_ack(&delayed(at(2 + n), 490 - 8 * n)));
        assert!(timely.rate.bits() > low + 5 * 40_000_000, "falling delay: increase, then five-fold increase");
    }

    #[test]
    fn a_time_out_takes_half_once_per_round_trip() {
        let mut timely = four();
        let rtt = Duration::from_micros(50);
        assert!(timely.on_timeout(at(1), rtt) && !timely.on_timeout(at(1), rtt));
        assert_eq!(timely.rate.bits(), 2 * GBIT);
    }
}
