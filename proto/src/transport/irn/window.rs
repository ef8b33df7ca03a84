//! How many packets may be in flight (the paper's BDP-FC), and for how long that held the sender back.

use crate::time::{Duration, Instant};
use crate::transport::irn::bitmap::WINDOW;
use crate::transport::irn::rtt::RttEstimator;
use crate::units::BitRate;

/// Round trip that the automatic window assumes before one is measured: two blocking daemons on busy cores.
pub const START_ROUND_TRIP: Duration = Duration::from_millis(1);
/// What the automatic window adds to the smallest round trip measured: half of [`START_ROUND_TRIP`], the time that one
/// of the two hosts on busy cores takes to run again.
pub const WAKE_UP: Duration = Duration::from_micros(500);
/// Smallest automatic window in packets: about the paper's 110.
pub const MIN_AUTO_CAP: u32 = 128;

/// Packets of `frame` bytes that a link of `rate` carries in `round_trip`, within [`MIN_AUTO_CAP`] and [`WINDOW`].
pub fn auto_packets(rate: BitRate, frame: u32, round_trip: Duration) -> u32 {
    let packets = rate.bytes_in(round_trip).div_ceil(u64::from(frame.max(1)));
    u32::try_from(packets).unwrap_or(WINDOW).clamp(MIN_AUTO_CAP, WINDOW)
}

/// What the automatic window is made of.
#[derive(Clone, Copy, Debug, Hash)]
struct Auto {
    rate: BitRate,
    frame: u32,
    next_update: Instant,
}

/// The bound on packets in flight.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Window {
    cap: u32,
    /// What the peer keeps track of.
    limit: u32,
    auto: Option<Auto>,
    /// Since when unsent packets wait for the window.
    full_since: Option<Instant>,
    /// For how long they did, not told yet.
    limited: Duration,
}

impl Window {
    /// At most `cap` packets, and at least one.
    pub fn fixed(cap: u32) -> Self {
        let cap = cap.clamp(1, WINDOW);
        Self { cap, limit: cap, auto: None, full_since: None, limited: Duration::ZERO }
    }

    /// As many packets as fill the path:
    ///
    /// `cap = ceil(rate x (smallest RTT + WAKE_UP) / frame)`, within [`MIN_AUTO_CAP`] and `limit`.
    ///
    /// The smallest round trip of the last seconds is that of the path without the queues that the window itself may
    /// fill; it leaves out the receiver's wait before acknowledging. On top comes [`WAKE_UP`], because a host that sleeps or whose cores are
    /// busy runs late now and then, and the link should not fall idle meanwhile. Until a round trip is measured,
    /// [`START_ROUND_TRIP`] takes the place of the sum. `frame` is what a full packet takes on the link, in bytes.
    pub fn auto(rate: BitRate, frame: u32, limit: u32) -> Self {
        let limit = limit.clamp(1, WINDOW);
        let auto = Auto { rate, frame, next_update: Instant::ZERO };
        Self { cap: auto_packets(rate, frame, START_ROUND_TRIP).min(limit), limit, auto: Some(auto), ..Self::fixed(limit) }
    }

    /// Most packets in flight.
    pub const fn cap(&self) -> u32 {
        self.cap
    }

    /// A round trip was measured. The automatic window follows, at most once per round trip, and never shrinks below
    /// what is in flight.
    pub(super) fn on_round_trip(&mut self, now: Instant, rtt: &RttEstimator, in_flight: u32) {
        let Some((auto, smallest)) = self.auto.as_mut().filter(|auto| auto.next_update <= now).zip(rtt.smallest()) else { return };
        auto.next_update = now + rtt.smoothed().unwrap_or(smallest);
        self.cap = auto_packets(auto.rate, auto.frame, smallest + WAKE_UP).min(self.limit).max(in_flight);
    }

    /// Whether packets that could be sent wait only because the window is full.
    pub(super) fn note(&mut self, now: Instant, full: bool) {
        match (full, self.full_since) {
            (true, None) => self.full_since = Some(now),
            (false, Some(since)) => {
                self.limited = self.limited + now.since(since);
                self.full_since = None;
            }
            _ => {}
        }
    }

    /// Time for which unsent packets waited since this was last asked.
    pub(super) const fn take_limited(&mut self) -> Duration {
        core::mem::replace(&mut self.limited, Duration::ZERO)
    }
}
