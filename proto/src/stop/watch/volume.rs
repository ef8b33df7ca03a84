//! Valid-data rate: bytes per period, so many periods in a row.

use crate::pace::FRAME_OVERHEAD;
use crate::stop::config::{Counting, Criterion, Volume};
use crate::time::Instant;

/// Counts bytes period by period, and periods in a row that meet a condition.
#[derive(Clone, Copy, Debug)]
struct Periods {
    criterion: Criterion,
    /// A period meets the condition if it has at least as many bytes as the threshold; else if it has fewer.
    at_least: bool,
    start: Instant,
    bytes: u64,
    streak: u32,
}

impl Periods {
    const fn new(criterion: Criterion, at_least: bool) -> Self {
        Self { criterion, at_least, start: Instant::ZERO, bytes: 0, streak: 0 }
    }

    const fn restart(&mut self, at: Instant) {
        *self = Self { start: at, ..Self::new(self.criterion, self.at_least) };
    }

    /// Closes the periods that are over at `at`, however many; true if the last stage is complete.
    fn advance(&mut self, at: Instant) -> bool {
        let elapsed = at.since(self.start);
        if elapsed < self.criterion.period {
            return false;
        }
        let over = elapsed.as_nanos() / self.criterion.period.as_nanos().max(1);
        let bytes = core::mem::take(&mut self.bytes);
        let complete = self.close(bytes, 1) | self.close(0, over - 1);
        self.start += self.criterion.period.saturating_mul(over);
        if complete {
            self.streak = 0;
        }
        complete
    }

    /// `count` periods of `bytes` bytes are over.
    fn close(&mut self, bytes: u64, count: u64) -> bool {
        if count == 0 {
            return false;
        }
        let met = (bytes >= self.criterion.threshold) == self.at_least;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.streak = if met { self.streak.saturating_add(count) } else { 0 };
        self.streak >= self.criterion.stages.max(1)
    }
}

/// The detector.
#[derive(Clone, Debug)]
pub(super) struct VolumeDetector {
    counting: Counting,
    rising: Periods,
    falling: Periods,
    sign: bool,
    /// The sign arose again while it was there.
    renewed: bool,
}

impl VolumeDetector {
    pub(super) const fn new(config: &Volume) -> Self {
        Self {
            counting: config.counting,
            rising: Periods::new(config.detector.detect, true),
            falling: Periods::new(config.detector.resolve, false),
            sign: false,
            renewed: false,
        }
    }

    pub(super) const fn sign(&self) -> bool {
        self.sign
    }

    /// True once, if the sign arose again while it was there.
    pub(super) const fn take_renewed(&mut self) -> bool {
        core::mem::replace(&mut self.renewed, false)
    }

    /// A frame of `bytes` bytes came in.
    pub(super) fn handle_frame(&mut self, at: Instant, bytes: u64) {
        self.handle_quiet(at);
        let bytes = bytes + if self.counting == Counting::Wire { FRAME_OVERHEAD } else { 0 };
        self.rising.bytes += bytes;
        self.falling.bytes += bytes;
    }

    /// Nothing more came in until `at`.
    pub(super) fn handle_quiet(&mut self, at: Instant) {
        if self.rising.advance(at) {
            self.renewed |= self.sign;
            if !self.sign {
                self.sign = true;
                self.falling.restart(self.rising.start);
            }
        }
        if self.falling.advance(at) && self.sign {
            self.sign = false;
            self.renewed = false;
            self.rising.restart(self.falling.start);
        }
    }

    /// When the sign comes or goes even if nothing comes in.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.sign {
            return Some(self.falling.start + self.falling.criterion.period);
        }
        let Periods { criterion, start, bytes, streak, .. } = self.rising;
        let last = bytes >= criterion.threshold && streak.saturating_add(1) >= criterion.stages;
        last.then(|| start + criterion.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::config::Detector;
    use crate::time::Duration;

    const MICRO: u64 = 1_000;

    /// The source's example: 10,000 B per 1 us three times; under 5,000 B five times.
    fn example() -> VolumeDetector {
        let criterion = |threshold, stages| Criterion { threshold, period: Duration::from_micros(1), stages };
        let detector = Detector { detect: criterion(10_000, 3), resolve: criterion(5_000, 5) };
        VolumeDetector::new(&Volume { detector, counting: Counting::Data })
    }

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * MICRO)
    }

    /// One frame of so many bytes in each microsecond from `first` on; the sign at the end of each.
    fn signs(detector: &mut VolumeDetector, first: u64, bytes: &[u64]) -> Vec<bool> {
        let step = |(micro, &bytes)| {
            detector.handle_frame(at(micro), bytes);
            detector.handle_quiet(at(micro + 1));
            detector.sign()
        };
        (first..).zip(bytes).map(step).collect()
    }

    use alloc::vec::Vec;

    #[test]
    fn three_periods_of_ten_thousand_bytes_in_a_row_are_a_sign() {
        let mut detector = example();
        assert_eq!(signs(&mut detector, 5, &[10_000, 10_000, 9_999, 10_000, 10_000, 10_000]), [false, false, false, false, false, true]);
    }

    #[test]
    fn five_periods_below_five_thousand_bytes_in_a_row_end_it() {
        let mut detector = example();
        signs(&mut detector, 5, &[10_000; 3]);
        let after = signs(&mut detector, 8, &[4_999, 4_999, 4_999, 4_999, 5_000, 4_999, 4_999, 4_999, 4_999, 4_999]);
        assert_eq!(after, [true, true, true, true, true, true, true, true, true, false]);
    }

    #[test]
    fn between_the_thresholds_nothing_changes() {
        let mut detector = example();
        assert!(signs(&mut detector, 5, &[7_500; 20]).iter().all(|&sign| !sign));
        signs(&mut detector, 25, &[10_000; 3]);
        assert!(signs(&mut detector, 28, &[7_500; 20]).iter().all(|&sign| sign));
    }

    #[test]
    fn silence_ends_it_at_the_instant_that_was_told_however_late_one_looks() {
        let mut detector = example();
        signs(&mut detector, 5, &[10_000; 3]);
        let mut now = at(8);
        while let Some(due) = detector.poll_timeout() {
            assert!(due > now);
            now = due;
            detector.handle_quiet(now);
        }
        assert_eq!(now, at(13));
        let mut late = example();
        signs(&mut late, 5, &[10_000; 3]);
        late.handle_quiet(at(1_000_000));
        assert!(!late.sign());
    }

    #[test]
    fn the_end_of_the_period_that_completes_the_sign_is_told_and_no_other() {
        let mut detector = example();
        signs(&mut detector, 5, &[10_000; 2]);
        assert_eq!(detector.poll_timeout(), None, "an ordinary load wakes nobody");
        detector.handle_frame(at(7), 10_000);
        assert_eq!(detector.poll_timeout(), Some(at(8)));
        detector.handle_quiet(at(8));
        assert!(detector.sign());
    }

    #[test]
    fn a_sign_that_stays_is_renewed_after_as_many_periods_as_it_took_to_arise() {
        let mut detector = example();
        signs(&mut detector, 5, &[10_000; 3]);
        assert!(!detector.take_renewed());
        signs(&mut detector, 8, &[10_000; 2]);
        assert!(!detector.take_renewed());
        signs(&mut detector, 10, &[10_000]);
        assert!(detector.take_renewed() && !detector.take_renewed());
    }

    #[test]
    fn short_frames_fill_a_link_too_if_the_wire_counts() {
        // 60-byte frames back to back at 1 Gbit/s: 84 bytes in 672 ns.
        let detector = |counting| {
            let criterion = |threshold, stages| Criterion { threshold, period: Duration::from_micros(200), stages };
            VolumeDetector::new(&Volume { detector: Detector { detect: criterion(20_000, 2), resolve: criterion(10_000, 2) }, counting })
        };
        let mut seen = [Counting::Wire, Counting::Data].map(detector);
        for frame in 0..2_000 {
            seen.iter_mut().for_each(|detector| detector.handle_frame(Instant::from_nanos(frame * 672), 60));
        }
        assert_eq!([seen[0].sign(), seen[1].sign()], [true, false]);
    }
}
