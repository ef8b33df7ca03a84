//! Round-trip times as a small histogram, for percentiles.

use crate::time::Duration;

/// A bucket's count before all are halved.
const FULL: u16 = u16::MAX;
/// Buckets per doubling, as a power of two: a bucket is at most a quarter wider than its lower end.
const SUB_BITS: u32 = 2;
/// 15 doublings of 4 buckets: 1 us to 33 ms; what lies outside counts in the first and last.
const BUCKETS: usize = 60;
/// Nanoseconds of the smallest step, as a power of two: the resolution of [`crate::time::Timestamp`].
const STEP_SHIFT: u32 = 8;

/// Log-linear histogram of round-trip times: 4 buckets for each doubling from 1 us on. When a bucket is full, all counts
/// are halved, so that old samples weigh less.
#[derive(Clone, Debug)]
pub struct RttHistogram {
    counts: [u16; BUCKETS],
    largest: Duration,
}

/// The memory of an idle queue pair is bounded; this is its share.
const _: () = assert!(size_of::<RttHistogram>() <= 256);

impl Default for RttHistogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], largest: Duration::ZERO }
    }
}

impl RttHistogram {
    /// Takes a sample.
    pub fn record(&mut self, rtt: Duration) {
        self.largest = self.largest.max(rtt);
        let count = &mut self.counts[bucket_of(rtt)];
        *count += 1;
        if *count == FULL {
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// The time that `percent` of the samples do not exceed: the upper end of its bucket, at most a quarter too long.
    /// `None` without a sample.
    pub fn percentile(&self, percent: u32) -> Option<Duration> {
        let total: u32 = self.counts.iter().map(|&count| u32::from(count)).sum();
        let rank = (u64::from(total) * u64::from(percent)).div_ceil(100).max(1);
        let mut below = 0;
        let bucket = self.counts.iter().position(|&count| {
            below += u64::from(count);
            below >= rank
        });
        bucket.map(|bucket| upper_end(bucket).min(self.largest))
    }

    /// The longest of all samples.
    pub fn largest(&self) -> Option<Duration> {
        self.percentile(100).map(|_| self.largest)
    }
}

/// Steps 4 to 7 are the first four buckets, 8 to 15 the next four in pairs, and so on.
fn bucket_of(rtt: Duration) -> usize {
    let steps = (rtt.as_nanos() >> STEP_SHIFT).max(1 << SUB_BITS);
    let doubling = steps.ilog2() - SUB_BITS;
    let within = (steps >> doubling) - (1 << SUB_BITS);
    usize::try_from((u64::from(doubling) << SUB_BITS) + within).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> Duration {
    let (doubling, within) = (bucket >> SUB_BITS, (bucket & 3) as u64);
    if bucket == BUCKETS - 1 {
        return Duration::MAX;
    }
    Duration::from_nanos(((5 + within) << doubling << STEP_SHIFT) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn a_percentile_is_the_sorted_samples_one_or_at_most_a_quarter_more(
            samples in prop::collection::vec(1_100u64..33_000_000, 1..300),
            percent in 1u32..=100,
        ) {
            let mut histogram = RttHistogram::default();
            samples.iter().for_each(|&nanos| histogram.record(Duration::from_nanos(nanos)));
            let mut sorted: Vec<u64> = samples;
            sorted.sort_unstable();
            let exact = sorted[(sorted.len() * percent as usize).div_ceil(100) - 1];
            let told = histogram.percentile(percent).unwrap().as_nanos();
            prop_assert!(told >= exact && told <= exact + exact / 4 + 256, "{told} for {exact}");
            prop_assert_eq!(histogram.largest().unwrap().as_nanos(), *sorted.last().unwrap());
        }
    }

    #[test]
    fn a_million_samples_overflow_nothing_and_what_lies_outside_counts_at_the_ends() {
        let mut histogram = RttHistogram::default();
        assert_eq!((histogram.percentile(50), histogram.largest()), (None, None));
        (0..1_000_000).for_each(|_| histogram.record(Duration::from_micros(20)));
        histogram.record(Duration::from_secs(3));
        histogram.record(Duration::ZERO);
        let median = histogram.percentile(50).unwrap();
        assert!(median >= Duration::from_micros(20) && median <= Duration::from_micros(25), "{median}");
        assert_eq!(histogram.percentile(100), Some(Duration::from_secs(3)));
    }
}
