//! The only reader of the operating system's clock.
//!
//! The worker reads it once per batch ([`Clock::tick`]) and hands the result to everything in that batch, so all
//! decisions of a batch see one time and a batch costs one clock read. Everybody else asks [`monotonic`].

use rustix::time::{ClockId, clock_gettime};
use weft_proto::{Duration, Instant};

/// The monotonic clock of the machine. Its origin is the same for all threads and processes.
pub fn monotonic() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    // The kernel's monotonic clock starts at boot and never shows a negative part.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Instant::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Milliseconds of the wall clock, which restarts do not turn back: when this node started, for its peers to tell its lives apart.
pub fn wall_millis() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    let millis = time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000);
    u64::try_from(millis).unwrap_or(0)
}

/// The monotonic clock and the wall clock at one moment, to tell when something was that has a time of the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    now: Instant,
    /// Nanoseconds since 1970.
    wall: u64,
}

/// What is further back cannot be told from a step of the wall clock.
const FARTHEST: Duration = Duration::from_secs(1);

impl Moment {
    /// This one. Whoever is interrupted between the two clocks looks again, a few times.
    pub fn now() -> Self {
        const ATTEMPTS: usize = 3;
        const CLOSE: Duration = Duration::from_micros(2);
        let mut best = Self::look();
        for _ in 1..ATTEMPTS {
            if best.1 <= CLOSE {
                break;
            }
            let again = Self::look();
            best = if again.1 < best.1 { again } else { best };
        }
        best.0
    }

    /// Both clocks, and how far apart they were looked at.
    fn look() -> (Self, Duration) {
        let now = monotonic();
        let time = clock_gettime(ClockId::Realtime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let wall = seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0));
        (Self::of(now, wall), monotonic().since(now))
    }

    const fn of(now: Instant, wall: u64) -> Self {
        Self { now, wall }
    }

    /// When the wall clock showed `wall`, in nanoseconds since 1970: from a second ago to now, whatever was done to that clock.
    pub fn instant_of(&self, wall: u64) -> Instant {
        let ago = self.wall.saturating_sub(wall).min(FARTHEST.as_nanos());
        Instant::from_nanos(self.now.as_nanos().saturating_sub(ago))
    }

    /// What the wall clock showed at a time in the past, in nanoseconds since 1970, if nobody has set it since.
    pub const fn wall_of(&self, at: Instant) -> u64 {
        self.wall.saturating_sub(self.now.since(at).as_nanos())
    }
}

/// A clock that stands still between two ticks.
#[derive(Debug)]
pub struct Clock {
    now: Instant,
}

impl Clock {
    /// A clock that shows the present.
    #[expect(clippy::new_without_default, reason = "reading the clock is not a default")]
    pub fn new() -> Self {
        Self { now: monotonic() }
    }

    /// Reads the machine's clock and shows that time until the next tick.
    pub fn tick(&mut self) -> Instant {
        self.now = monotonic();
        self.now
    }

    /// The time of the last tick.
    pub const fn now(&self) -> Instant {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_wall_clock_makes_nothing_arrive_in_the_future_or_long_ago() {
        let moment = Moment::of(Instant::from_nanos(10_000_000_000), 5_000_000_000);
        let at = |wall| moment.instant_of(wall).as_nanos();
        assert_eq!([at(5_000_000_000), at(4_999_999_000)], [10_000_000_000, 9_999_999_000]);
        assert_eq!(at(5_000_000_001), 10_000_000_000, "the clock was set back");
        assert_eq!([at(0), at(4_000_000_000)], [9_000_000_000; 2], "the clock was set forth");
        assert_eq!(moment.wall_of(Instant::from_nanos(9_999_999_000)), 4_999_999_000);
        assert_eq!(Moment::of(Instant::from_nanos(5), 5_000_000_000).instant_of(0), Instant::ZERO);
    }

    #[test]
    fn time_stands_still_between_ticks_and_never_runs_back() {
        let mut clock = Clock::new();
        let first = clock.now();
        while monotonic() == first {}
        assert_eq!(clock.now(), first);
        assert!(clock.tick() > first);
    }
}
