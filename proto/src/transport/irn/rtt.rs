//! Round-trip times and the two retransmission time-outs made of them.

use crate::time::Duration;

/// Packets in flight up to which the short time-out applies, so that short messages recover fast (the paper's N).
pub(super) const FEW_IN_FLIGHT: u32 = 3;
/// A time-out at most doubles this often: 2^6 = 64 times its first value.
const MAX_BACKOFF: u32 = 6;

/// The configured time-outs: values in the strict mode, lower bounds otherwise.
#[derive(Clone, Copy, Debug)]
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

/// Smoothed round-trip time and its variation (RFC 6298, gains 1/8 and 1/4), and the smallest seen.
#[derive(Clone, Copy, Debug)]
pub struct RttEstimator {
    bounds: RtoBounds,
    smoothed: Option<Duration>,
    variation: Duration,
    smallest: Duration,
}

impl RttEstimator {
    /// An estimator without a sample.
    pub const fn new(bounds: RtoBounds) -> Self {
        Self { bounds, smoothed: None, variation: Duration::ZERO, smallest: Duration::MAX }
    }

    /// Takes a sample.
    pub fn sample(&mut self, rtt: Duration) {
        self.smallest = self.smallest.min(rtt);
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(rtt);
            self.variation = rtt.div(2);
            return;
        };
        let error = if rtt > smoothed { rtt - smoothed } else { smoothed - rtt };
        self.variation = self.variation.saturating_mul(3).div(4) + error.div(4);
        self.smoothed = Some(smoothed.saturating_mul(7).div(8) + rtt.div(8));
    }

    /// The smoothed round-trip time.
    pub const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Its mean deviation.
    pub const fn variation(&self) -> Duration {
        self.variation
    }

    /// The smallest round-trip time seen.
    pub fn smallest(&self) -> Option<Duration> {
        self.smoothed.map(|_| self.smallest)
    }

    /// The time-out with `in_flight` packets out, after `timeouts` in a row.
    pub fn timeout(&self, in_flight: u32, timeouts: u8) -> Duration {
        let few = in_flight <= FEW_IN_FLIGHT;
        let bound = if few { self.bounds.low } else { self.bounds.high };
        let measured = self.smoothed.filter(|_| self.bounds.adaptive).map_or(Duration::ZERO, |rtt| rtt + self.variation.saturating_mul(4));
        let measured = if few { measured } else { measured.saturating_mul(2) };
        let grown = bound.max(measured).saturating_mul(1 << u32::from(timeouts).min(MAX_BACKOFF));
        grown.min(self.bounds.longest).max(bound)
    }
}
