//! Round-trip times and the two retransmission time-outs made of them.

use crate::time::{Duration, Instant};

/// Packets in flight up to which the short time-out applies, so that short messages recover fast (the paper's N).
pub(super) const FEW_IN_FLIGHT: u32 = 3;
/// A time-out at most doubles this often: 2^6 = 64 times its first value.
const MAX_BACKOFF: u32 = 6;
/// The smallest round trip is that of the last one to two of these: BBR's 10 s, so that a path that became longer is
/// believed at last, while a queue that stands for some seconds is not.
const SMALLEST_SPAN: Duration = Duration::from_secs(5);

/// The configured time-outs: values in the strict mode, lower bounds otherwise.
#[derive(Clone, Copy, Debug, Hash)]
pub struct RtoBounds {
    /// For at most 3 packets in flight.
    pub low: Duration,
    /// For more.
    pub high: Duration,
    /// No time-out grows beyond this by round trips or repetition, so that a dead peer is noticed in bounded time.
    pub longest: Duration,
    /// Raise both with the measured round trip.
    pub adaptive: bool,
}

/// Smoothed round-trip time and its variation (RFC 6298, gains 1/8 and 1/4), and the smallest of the last seconds.
#[derive(Clone, Copy, Debug, Hash)]
pub struct RttEstimator {
    bounds: RtoBounds,
    smoothed: Option<Duration>,
    variation: Duration,
    /// Smallest of the current span and of the one before.
    smallest: [Duration; 2],
    span_end: Instant,
}

impl RttEstimator {
    /// An estimator without a sample.
    pub const fn new(bounds: RtoBounds) -> Self {
        Self { bounds, smoothed: None, variation: Duration::ZERO, smallest: [Duration::MAX; 2], span_end: Instant::ZERO }
    }

    /// Takes a sample.
    pub fn sample(&mut self, now: Instant, rtt: Duration) {
        self.note_smallest(now, rtt);
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(rtt);
            self.variation = rtt.div(2);
            return;
        };
        let error = if rtt > smoothed { rtt - smoothed } else { smoothed - rtt };
        self.variation = self.variation.saturating_mul(3).div(4) + error.div(4);
        self.smoothed = Some(smoothed.saturating_mul(7).div(8) + rtt.div(8));
    }

    fn note_smallest(&mut self, now: Instant, rtt: Duration) {
        if now >= self.span_end {
            let recent = self.span_end + SMALLEST_SPAN > now;
            self.smallest = [Duration::MAX, if recent { self.smallest[0] } else { Duration::MAX }];
            self.span_end = now + SMALLEST_SPAN;
        }
        self.smallest[0] = self.smallest[0].min(rtt);
    }

    /// The smoothed round-trip time.
    pub const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Its mean deviation.
    pub const fn variation(&self) -> Duration {
        self.variation
    }

    /// The smallest round-trip time of the last five to ten seconds with samples: that of the path without queues.
    pub fn smallest(&self) -> Option<Duration> {
        self.smoothed.map(|_| self.smallest[0].min(self.smallest[1]))
    }

    /// The time-out after `timeouts` in a row; `few`: so little is out that sending it again in vain costs nothing.
    /// Measured, it is two round trips (a probe's time, see `probe`) and four deviations, and twice that for many.
    pub fn timeout(&self, few: bool, timeouts: u8) -> Duration {
        let bound = if few { self.bounds.low } else { self.bounds.high };
        let measured = self.smoothed.filter(|_| self.bounds.adaptive);
        let measured = measured.map_or(Duration::ZERO, |rtt| rtt.saturating_mul(2) + self.variation.saturating_mul(4));
        let measured = if few { measured } else { measured.saturating_mul(2) };
        let grown = bound.max(measured).saturating_mul(1 << u32::from(timeouts).min(MAX_BACKOFF));
        grown.min(self.bounds.longest).max(bound)
    }
}
