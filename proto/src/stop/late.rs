//! Which frames left lately: to count those that a stop packet came too late for.

use crate::time::Instant;
use crate::wire::MacAddr;

/// Frames remembered: more than leave while a stop packet waits in the kernel for the worker's next round.
const REMEMBERED: usize = 256;

/// The last departures, in a ring.
#[derive(Debug)]
pub(super) struct Departures {
    ring: [(Instant, MacAddr, u8); REMEMBERED],
    next: usize,
}

impl Default for Departures {
    fn default() -> Self {
        Self { ring: [(Instant::ZERO, MacAddr::ZERO, 0); REMEMBERED], next: 0 }
    }
}

impl Departures {
    /// A frame leaves.
    pub(super) const fn note(&mut self, now: Instant, dst: MacAddr, priority: u8) {
        self.ring[self.next] = (now, dst, priority);
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// Frames to a host, of a lower priority than `below`, that left after an instant.
    pub(super) fn since(&self, after: Instant, host: MacAddr, below: u8) -> u64 {
        self.ring.iter().filter(|&&(at, dst, priority)| at > after && dst == host && priority < below).count() as u64
    }
}
