//! Packet interval and delimiter length: a value that stays low, then high.

use crate::pace::FRAME_OVERHEAD;
use crate::stop::config::{Detector, Gap};
use crate::stop::watch::hold::Hold;
use crate::time::{Duration, Instant};
use crate::units::BitRate;

/// The gap after a frame (IEEE 802.3 4.4.2), which is part of [`FRAME_OVERHEAD`] and not of the frame.
const NORMAL_GAP: u64 = 12;

/// A sign that arises while a value stays at or below one threshold, and is over once it has stayed at or above the other.
#[derive(Clone, Debug)]
pub(super) struct LowDetector {
    config: Detector,
    low: Hold,
    high: Hold,
    sign: bool,
}

impl LowDetector {
    pub(super) fn new(config: &Detector) -> Self {
        Self { config: *config, low: Hold::new(&config.detect), high: Hold::new(&config.resolve), sign: false }
    }

    pub(super) const fn sign(&self) -> bool {
        self.sign
    }

    /// From `from` to `to` the value was `value`; it is negative where frames came faster than the link carries them.
    pub(super) fn observe(&mut self, from: Instant, to: Instant, value: i64) {
        let low = i64::try_from(self.config.detect.threshold).is_ok_and(|threshold| value <= threshold);
        let high = i64::try_from(self.config.resolve.threshold).is_ok_and(|threshold| value >= threshold);
        let (arises, ends) = (self.low.observe(from, to, low), self.high.observe(from, to, high));
        if !self.sign && arises {
            self.sign = true;
            self.high.reset();
        } else if self.sign && ends {
            self.sign = false;
            self.low.reset();
        }
    }

    /// When the sign is over if the value is high from `from` on.
    pub(super) fn ends_at(&self, from: Instant) -> Option<Instant> {
        self.sign.then(|| self.high.due(from))
    }
}

/// Packet interval: the gap between frames, computed from their times of arrival and their lengths.
#[derive(Clone, Debug)]
pub(super) struct GapDetector {
    detector: LowDetector,
    resolution: Duration,
    line_rate: BitRate,
    /// When the last frame of the group before arrived.
    last: Option<Instant>,
    /// Bytes on the wire and frames since.
    bytes: u64,
    frames: u64,
}

impl GapDetector {
    pub(super) fn new(config: &Gap, line_rate: BitRate) -> Self {
        let detector = LowDetector::new(&config.detector);
        Self { detector, resolution: config.resolution, line_rate, last: None, bytes: 0, frames: 0 }
    }

    pub(super) const fn sign(&self) -> bool {
        self.detector.sign()
    }

    /// A frame of `bytes` bytes arrived. Frames that came at the same time as far as one can tell are one group.
    pub(super) fn handle_frame(&mut self, at: Instant, bytes: u64) {
        let Some(last) = self.last else {
            self.last = Some(at);
            return;
        };
        self.bytes += bytes + FRAME_OVERHEAD - NORMAL_GAP;
        self.frames += 1;
        if at > last && at.since(last) >= self.resolution {
            self.detector.observe(last, at, self.mean_gap(last, at));
            (self.last, self.bytes, self.frames) = (Some(at), 0, 0);
        }
    }

    /// Nothing more came in until `at`.
    pub(super) fn handle_quiet(&mut self, at: Instant) {
        let Some(last) = self.last.filter(|&last| self.detector.sign && at > last && at.since(last) >= self.resolution) else { return };
        let gap = self.mean_gap(last, at);
        if i64::try_from(self.detector.config.resolve.threshold).is_ok_and(|threshold| gap >= threshold) {
            self.detector.observe(last, at, gap);
        }
    }

    /// When silence would end the sign.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let last = self.last?;
        let high = self.line_rate.time_for(self.detector.config.resolve.threshold.saturating_add(self.bytes));
        Some(self.detector.ends_at(last)?.max(last + self.resolution.max(high)))
    }

    /// Bytes between frames since `last`, as a mean.
    fn mean_gap(&self, last: Instant, at: Instant) -> i64 {
        let elapsed = i64::try_from(self.line_rate.bytes_in(at.since(last))).unwrap_or(i64::MAX);
        let wire = i64::try_from(self.bytes).unwrap_or(i64::MAX);
        elapsed.saturating_sub(wire) / i64::try_from(self.frames.max(1)).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::config::Criterion;

    fn detector(low: (u64, u64), high: (u64, u64)) -> Detector {
        let criterion = |(threshold, micros)| Criterion { threshold, period: Duration::from_micros(micros), stages: 1 };
        Detector { detect: criterion(low), resolve: criterion(high) }
    }

    /// The source's example at 100 Gbit/s: gaps of at most 5 B for 1 us; of at least 13 B for 3 us.
    fn gaps(resolution: u64) -> GapDetector {
        let config = Gap { detector: detector((5, 1), (13, 3)), resolution: Duration::from_nanos(resolution) };
        GapDetector::new(&config, BitRate::megabits(100_000))
    }

    /// Frames of 1250 wire bytes (100 ns at 100 Gbit/s) with `gap` bytes between them, for `nanos` from `start` on; when the
    /// sign changed, if it did, and where it ended.
    fn run(gaps: &mut GapDetector, start: u64, gap: u64, nanos: u64) -> (Option<u64>, u64) {
        let (before, step) = (gaps.sign(), 100 + gap * 8 / 100);
        let mut changed = None;
        let mut at = start;
        while at < start + nanos {
            gaps.handle_frame(Instant::from_nanos(at), 1238);
            if gaps.sign() != before {
                changed.get_or_insert(at - start);
            }
            at += step;
        }
        (changed, at)
    }

    #[test]
    fn small_gaps_for_a_microsecond_are_a_sign_and_normal_ones_are_not() {
        let mut watched = gaps(0);
        let (changed, _) = run(&mut watched, 1_000, 0, 5_000);
        assert_eq!(changed, Some(1_000));
        let mut calm = gaps(0);
        // 13 B take 1.04 ns: at a whole nanosecond a step of 101 ns is a gap of 12.5 B.
        assert_eq!(run(&mut calm, 1_000, 13, 20_000).0, None);
    }

    #[test]
    fn larger_gaps_for_three_microseconds_end_it_and_a_small_one_between_prolongs_it() {
        let mut watched = gaps(0);
        let (_, at) = run(&mut watched, 1_000, 0, 2_000);
        let (changed, at) = run(&mut watched, at, 26, 2_900);
        assert_eq!(changed, None);
        let (_, at) = run(&mut watched, at, 0, 300);
        let (changed, _) = run(&mut watched, at, 26, 9_000);
        assert!(changed.is_some_and(|after| (3_000..3_300).contains(&after)), "{changed:?}");
    }

    #[test]
    fn frames_that_are_read_in_batches_fake_no_gaps() {
        // Half the link, but every ten frames carry the time at which the batch was read.
        let mut watched = gaps(1_500);
        for batch in 0..100 {
            (0..10).for_each(|_| watched.handle_frame(Instant::from_nanos(batch * 2_000), 1238));
            assert!(!watched.sign(), "batch {batch}");
        }
        // The whole link.
        let mut full = gaps(500);
        for batch in 0..100 {
            (0..10).for_each(|_| full.handle_frame(Instant::from_nanos(batch * 1_000), 1238));
        }
        assert!(full.sign());
    }

    #[test]
    fn silence_ends_it_when_told() {
        let mut watched = gaps(0);
        let (_, at) = run(&mut watched, 1_000, 0, 2_000);
        let due = watched.poll_timeout().unwrap();
        assert!((2_800..3_200).contains(&(due.as_nanos() - at)), "{due:?} after {at}");
        watched.handle_quiet(Instant::from_nanos(due.as_nanos() - 1));
        assert!(watched.sign());
        watched.handle_quiet(due);
        assert!(!watched.sign() && watched.poll_timeout().is_none());
    }

    #[test]
    fn the_delimiter_example_of_the_source() {
        // At most 4 octets for 1 us; at least 8 octets for 2 us.
        let mut delimiter = LowDetector::new(&detector((4, 1), (8, 2)));
        let mut feed = |from: u64, octets: i64, nanos: u64| {
            for at in (from..from + nanos).step_by(100) {
                delimiter.observe(Instant::from_nanos(at - 100), Instant::from_nanos(at), octets);
            }
            delimiter.sign()
        };
        assert!(!feed(1_000, 4, 900));
        assert!(!feed(1_900, 6, 5_000), "neither short nor long");
        assert!(feed(6_900, 4, 1_100));
        assert!(feed(8_000, 8, 1_900));
        assert!(!feed(9_900, 8, 300));
    }
}
