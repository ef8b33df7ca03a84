//! The rule of recency: what was sent before something that has arrived, and is still missing, is lost or late
//! (RACK, RFC 8985). How late a packet may be is learnt from the path.

use crate::time::{Duration, Instant};
use crate::transport::Psn;
use crate::transport::irn::rtt::RttEstimator;

/// Gap in packets from which a hole counts as lost at once while the path has shown no reordering (RFC 8985, as in TCP).
const FIRST_THRESHOLD: u32 = 3;
/// Recoveries in a row without a sign of reordering after which what was learnt is forgotten (RFC 8985, 6.2).
const CALM_RECOVERIES: u8 = 16;

/// A packet in flight.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Sent {
    /// When it was last sent.
    pub(super) at: Instant,
    /// The work request that it belongs to.
    pub(super) work: u32,
    /// It was sent more than once.
    pub(super) again: bool,
}

/// The latest-sent packet known to have arrived (RACK's state, RFC 8985 section 5.2).
#[derive(Clone, Copy, Debug, Hash)]
struct Latest {
    psn: Psn,
    sent: Sent,
    rtt: Duration,
}

impl Latest {
    /// True if a packet was sent before this one. First transmissions leave in the order of their numbers; of others
    /// sent at the same instant nobody knows.
    fn is_later_than(&self, psn: Psn, sent: Sent) -> bool {
        sent.at < self.sent.at || sent.at == self.sent.at && !sent.again && !self.sent.again && psn.is_before(self.psn)
    }
}

/// What is known about the order in which packets arrive.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Recency {
    latest: Option<Latest>,
    /// A hole with an arrival so many packets behind it is lost without waiting.
    threshold: u32,
    /// How long a hole with less behind it may be late, beyond the smallest round trip's quarter.
    lateness: Duration,
    /// Recoveries in a row without a sign of reordering.
    calm: u8,
}

impl Recency {
    pub(super) const fn new() -> Self {
        Self { latest: None, threshold: FIRST_THRESHOLD, lateness: Duration::ZERO, calm: 0 }
    }

    /// True if anything has arrived that others can be compared with.
    pub(super) const fn is_known(&self) -> bool {
        self.latest.is_some()
    }

    /// The gap in packets from which a hole is lost at once.
    pub(super) const fn threshold(&self) -> u32 {
        self.threshold
    }

    /// This transmission of a packet, or one made later, has arrived after a round trip of `rtt`.
    pub(super) fn on_arrival(&mut self, psn: Psn, sent: Sent, rtt: Duration) {
        if self.latest.is_none_or(|latest| !latest.is_later_than(psn, sent)) {
            self.latest = Some(Latest { psn, sent, rtt });
        }
    }

    /// A packet sent once arrived after one that lies `distance` behind it: the path reorders by so many packets, and
    /// by so much time as lies between their departures.
    pub(super) fn on_reordered(&mut self, sent: Sent, distance: u32) {
        self.calm = 0;
        self.threshold = self.threshold.max(distance.saturating_add(1));
        let late = self.latest.map_or(Duration::ZERO, |latest| latest.sent.at.since(sent.at));
        self.lateness = self.lateness.max(late + late.div(4));
    }

    /// A packet was sent again that had arrived or was to arrive: wait longer, by a quarter of the smallest round trip
    /// each time, and for a few packets more.
    pub(super) fn on_spurious(&mut self, rtt: &RttEstimator) {
        self.calm = 0;
        self.threshold = self.threshold.saturating_add(1);
        self.lateness = (self.lateness + quarter(rtt)).min(longest(rtt));
    }

    /// A loss is recovered. After many without a sign of reordering the path counts as orderly again.
    pub(super) const fn on_recovered(&mut self) {
        self.calm = self.calm.saturating_add(1);
        if self.calm >= CALM_RECOVERIES {
            *self = Self { latest: self.latest, ..Self::new() };
        }
    }

    /// When a missing packet counts as lost; `None` while nothing sent after it has arrived. `gap`: how far behind it
    /// the farthest arrival lies, packets.
    pub(super) fn overdue_at(&self, psn: Psn, sent: Sent, gap: u32, rtt: &RttEstimator) -> Option<Instant> {
        let latest = self.latest.filter(|latest| latest.is_later_than(psn, sent))?;
        // The gap tells nothing of a packet sent again: what arrived behind it may have been sent before it.
        let patient = if sent.again { self.threshold > FIRST_THRESHOLD } else { gap < self.threshold };
        Some(sent.at + latest.rtt + if patient { self.allowance(rtt) } else { Duration::ZERO })
    }

    /// How long a packet may be late: a quarter of the smallest round trip (RFC 8985, 6.2), longer as the path has shown.
    fn allowance(&self, rtt: &RttEstimator) -> Duration {
        quarter(rtt).max(self.lateness.min(longest(rtt)))
    }
}

fn quarter(rtt: &RttEstimator) -> Duration {
    rtt.smallest().unwrap_or(Duration::ZERO).div(4)
}

/// No packet is waited for longer than two round trips.
fn longest(rtt: &RttEstimator) -> Duration {
    rtt.smoothed().unwrap_or(Duration::ZERO).saturating_mul(2)
}
