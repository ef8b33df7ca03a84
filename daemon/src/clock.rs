//! The only reader of the operating system's clock.
//!
//! The worker reads it once per batch ([`Clock::tick`]) and hands the result to everything in that batch, so all
//! decisions of a batch see one time and a batch costs one clock read. Everybody else asks [`monotonic`].

use rustix::time::{ClockId, clock_gettime};
use weft_proto::Instant;

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
    fn time_stands_still_between_ticks_and_never_runs_back() {
        let mut clock = Clock::new();
        let first = clock.now();
        while monotonic() == first {}
        assert_eq!(clock.now(), first);
        assert!(clock.tick() > first);
    }
}
