//! A condition that must hold without a break.

use crate::stop::config::Criterion;
use crate::time::{Duration, Instant};

/// Since when a condition has held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    needed: Duration,
    since: Option<Instant>,
}

impl Hold {
    /// Satisfied after all periods of a criterion.
    pub(super) fn new(criterion: &Criterion) -> Self {
        Self { needed: criterion.period.saturating_mul(u64::from(criterion.stages.max(1))), since: None }
    }

    /// From `from` to `to` the condition held, or did not. True if it has held for long enough; it then begins anew.
    pub(super) fn observe(&mut self, from: Instant, to: Instant, holds: bool) -> bool {
        if !holds {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(from);
        let satisfied = to.since(since) >= self.needed;
        if satisfied {
            self.since = Some(to);
        }
        satisfied
    }

    /// Nothing is known any more.
    pub(super) const fn reset(&mut self) {
        self.since = None;
    }

    /// When the condition is satisfied if it has held since `from` and goes on.
    pub(super) fn due(&self, from: Instant) -> Instant {
        self.since.unwrap_or(from) + self.needed
    }
}
