//! A token bucket: so many of something at once, and so many per second for ever.

use crate::time::{Duration, Instant};

/// Kept as the instant at which the bucket is full again (the generic cell rate algorithm of ITU-T I.371).
#[derive(Debug)]
pub(super) struct Bucket {
    /// Time for one token to come back.
    interval: Duration,
    /// Time for all but one token to come back.
    depth: Duration,
    full_at: Instant,
}

impl Bucket {
    /// A full bucket of `burst` tokens, of which one comes back every `interval`.
    pub(super) const fn new(interval: Duration, burst: u64) -> Self {
        Self { interval, depth: interval.saturating_mul(burst.saturating_sub(1)), full_at: Instant::ZERO }
    }

    /// Takes a token if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now);
        let allowed = full_at.since(now) <= self.depth;
        if allowed {
            self.full_at = full_at + self.interval;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_at_once_and_then_its_rate() {
        let mut bucket = Bucket::new(Duration::from_millis(10), 16);
        let mut takes = |millis: u64| (0..100).filter(|_| bucket.take(Instant::ZERO + Duration::from_millis(millis))).count();
        assert_eq!([takes(5), takes(5), takes(14), takes(15), takes(100), takes(10_000)], [16, 0, 0, 1, 8, 16]);
    }
}
