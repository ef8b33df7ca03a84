//! The rule of recency: what was sent before something that has arrived, and is still missing, is lost or late
//! (RACK, RFC 8985). How late a packet may be is learnt from the path.

use crate::time::{Duration, Instant, Timestamp};
use crate::transport::irn::bitmap::WINDOW;
use crate::transport::irn::rtt::RttEstimator;

/// Gap in packets from which a hole counts as lost at once while the path has shown no reordering (RFC 8985, as in TCP).
const FIRST_THRESHOLD: u32 = 3;
/// Recoveries in a row without a sign of reordering after which what was learnt is forgotten (RFC 8985, 6.2).
const CALM_RECOVERIES: u8 = 16;

/// A packet in flight. 16 bytes, of which a queue pair may have a thousand.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Sent {
    /// When it was last sent.
    pub(super) at: Instant,
    /// The work request that it belongs to.
    pub(super) work: u32,
    /// The rank of that transmission among all of the sender, modulo 2^31, and in the lowest bit whether it was not the
    /// first of this packet. Packets of a batch are sent at the same time; their ranks tell which went first.
    rank: u32,
}

impl Sent {
    /// A packet sent for the first time, as the transmission number `rank`.
    pub(super) const fn first(at: Instant, work: u32, rank: u32) -> Self {
        Self { at, work, rank: rank << 1 }
    }

    /// The same packet sent again, as the transmission number `rank`.
    pub(super) const fn again(self, at: Instant, rank: u32) -> Self {
        Self { at, work: self.work, rank: rank << 1 | 1 }
    }

    /// True if it was sent more than once.
    pub(super) const fn is_again(self) -> bool {
        self.rank & 1 == 1
    }

    /// True if it was last sent before the other was. Two packets in flight are less than 2^30 transmissions apart.
    const fn is_before(self, other: Self) -> bool {
        let steps = (other.rank >> 1).wrapping_sub(self.rank >> 1) & (u32::MAX >> 1);
        steps != 0 && steps < 1 << 30
    }
}

/// What is known about the order in which packets arrive.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Recency {
    /// The latest-sent packet known to have arrived (RACK's state, RFC 8985 section 5.2).
    latest: Option<Sent>,
    /// The latest departure that an acknowledgement has echoed. It also tells of packets whose entry is gone, or was
    /// overwritten when they were sent again.
    heard: Instant,
    /// Round trip of the later of these.
    rtt: Duration,
    /// A hole with an arrival so many packets behind it is lost without waiting.
    threshold: u32,
    /// How long a hole with less behind it may be late, beyond the smallest round trip's quarter.
    lateness: Duration,
    /// Recoveries in a row without a sign of reordering.
    calm: u8,
}

impl Recency {
    pub(super) const fn new() -> Self {
        Self { latest: None, heard: Instant::ZERO, rtt: Duration::ZERO, threshold: FIRST_THRESHOLD, lateness: Duration::ZERO, calm: 0 }
    }

    /// True if anything has arrived that others can be compared with.
    pub(super) fn is_known(&self) -> bool {
        self.latest.is_some() || self.heard > Instant::ZERO
    }

    /// The gap in packets from which a hole is lost at once.
    pub(super) const fn threshold(&self) -> u32 {
        self.threshold
    }

    /// This transmission of a packet, or one made later, has arrived after a round trip of `rtt`.
    pub(super) fn on_arrival(&mut self, sent: Sent, rtt: Duration) {
        if self.latest.is_none_or(|latest| latest.is_before(sent)) {
            (self.latest, self.rtt) = (Some(sent), rtt);
        }
    }

    /// Something that was sent at `echoed`, rounded down to a tick, has arrived after a round trip of `rtt`.
    pub(super) fn on_echo(&mut self, echoed: Instant, rtt: Duration) {
        if echoed > self.heard {
            (self.heard, self.rtt) = (echoed, rtt);
        }
    }

    /// True if something sent later has arrived.
    fn is_overtaken(&self, sent: Sent) -> bool {
        Timestamp::floor(sent.at) < self.heard || self.latest.is_some_and(|latest| sent.is_before(latest))
    }

    /// A packet sent once arrived after one that lies `distance` behind it: the path reorders by so many packets, and
    /// by so much time as lies between their departures.
    pub(super) fn on_reordered(&mut self, sent: Sent, distance: u32) {
        self.calm = 0;
        self.threshold = self.threshold.max(distance.saturating_add(1));
        let late = self.latest.map_or(Duration::ZERO, |latest| latest.at.since(sent.at));
        self.lateness = self.lateness.max(late + late.div(4));
    }

    /// A packet was sent again that had arrived or was to arrive: wait longer, by a quarter of the smallest round trip
    /// each time, and for twice as many packets: how late it was, its overwritten entry no longer tells.
    pub(super) fn on_spurious(&mut self, rtt: &RttEstimator) {
        self.calm = 0;
        self.threshold = self.threshold.saturating_mul(2).min(WINDOW);
        self.lateness = (self.lateness + quarter(rtt)).min(longest(rtt));
    }

    /// A loss is recovered. After many without a sign of reordering the path counts as orderly again.
    pub(super) const fn on_recovered(&mut self) {
        self.calm = self.calm.saturating_add(1);
        if self.calm >= CALM_RECOVERIES {
            *self = Self { latest: self.latest, heard: self.heard, rtt: self.rtt, ..Self::new() };
        }
    }

    /// When a missing packet counts as lost; `None` while nothing sent after it has arrived. `gap`: how far behind it
    /// the farthest arrival lies, packets.
    pub(super) fn overdue_at(&self, sent: Sent, gap: u32, rtt: &RttEstimator) -> Option<Instant> {
        // The gap tells nothing of a packet sent again: what arrived behind it may have been sent before it.
        let patient = if sent.is_again() { self.threshold > FIRST_THRESHOLD } else { gap < self.threshold };
        let allowance = if patient { self.allowance(rtt) } else { Duration::ZERO };
        self.is_overtaken(sent).then(|| sent.at + self.rtt + allowance)
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
