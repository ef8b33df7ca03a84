//! Arbiters: which queue of a set goes next.
//!
//! The same components serve at two levels: among the queues of a class, and among the classes of an output. An arbiter
//! knows of each queue that holds something only its first frame, the [`Head`], and what the operator granted it, the
//! [`Share`]. It never touches frames, and allocates only when it is made.
//!
//! ```text
//!   handle_backlog(queue, head) --> [ arbiter ] --> select() = queue --> charge(bytes sent, next head)
//! ```

mod ring;

use crate::time::{Duration, Instant};
use crate::units::BitRate;
use ring::Ring;

/// The rule by which an arbiter chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArbiterKind {
    /// Each queue that holds something sends one frame per round, however long.
    RoundRobin,
    /// Deficit round robin (Shreedhar and Varghese, 1995): bytes in proportion to the weights.
    #[default]
    Drr,
}

/// The first frame of a queue, as far as an arbiter may know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Length without FCS.
    pub bytes: u32,
    /// When it came into this switch.
    pub arrived: Instant,
    /// When it was injected into the fabric, by this switch's clock.
    pub origin: Instant,
    /// Its rank for arbitration by rank; the lowest goes first.
    pub rank: u32,
}

/// What the operator granted a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Relative to the other queues of the set; 0 counts as 1.
    pub weight: u32,
    /// Reserved rate, for arbiters that go by it.
    pub rate: Option<BitRate>,
    /// Longest time from eligibility to departure, for arbiters that go by it.
    pub deadline: Duration,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 1, rate: None, deadline: Duration::from_millis(100) }
    }
}

/// An arbiter over a fixed set of queues.
#[derive(Debug)]
pub enum Arbiter {
    /// Round robin, plain or by deficit.
    Ring(Ring),
}

impl Arbiter {
    /// An arbiter over `queues` empty queues. `quantum` = bytes per visit and weight for [`ArbiterKind::Drr`], which should be
    /// at least the longest ordinary frame.
    pub fn new(kind: ArbiterKind, queues: u32, quantum: u32) -> Self {
        match kind {
            ArbiterKind::RoundRobin => Self::Ring(Ring::new(queues, None)),
            ArbiterKind::Drr => Self::Ring(Ring::new(queues, Some(quantum))),
        }
    }

    /// What a queue gets from its next turn on.
    pub fn set_share(&mut self, queue: u32, share: &Share) {
        match self {
            Self::Ring(ring) => ring.set_weight(queue, share.weight),
        }
    }

    /// Another quantum, from the next turn of each queue on.
    pub fn set_quantum(&mut self, quantum: u32) {
        match self {
            Self::Ring(ring) => ring.set_quantum(quantum),
        }
    }

    /// A queue that had nothing to send has something now.
    pub fn handle_backlog(&mut self, _now: Instant, queue: u32, head: Head) {
        match self {
            Self::Ring(ring) => ring.handle_backlog(queue, head.bytes),
        }
    }

    /// The queue whose first frame goes next. Asked again before [`Arbiter::charge`], the answer is the same, unless a
    /// queue that goes before it got something to send meanwhile.
    pub fn select(&mut self, _now: Instant) -> Option<u32> {
        match self {
            Self::Ring(ring) => ring.select(),
        }
    }

    /// The selected queue sent `bytes`; `next` is its first frame now, `None` if it has nothing more to send.
    pub fn charge(&mut self, _now: Instant, bytes: u32, next: Option<Head>) {
        match self {
            Self::Ring(ring) => ring.charge(bytes, next.map(|head| head.bytes)),
        }
    }

    /// Queues that have something to send.
    pub const fn busy(&self) -> u32 {
        match self {
            Self::Ring(ring) => ring.busy(),
        }
    }

    /// All queues were emptied.
    pub fn clear(&mut self) {
        match self {
            Self::Ring(ring) => ring.clear(),
        }
    }
}
