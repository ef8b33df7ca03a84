//! What happened: the last events, numbered, and counts of all of them.

use alloc::collections::VecDeque;

use crate::stop::view::{StopCounters, StopEvent, StopRecord};
use crate::time::Instant;

/// Events kept.
pub const JOURNAL: usize = 512;

/// The last [`JOURNAL`] events, and the counts.
#[derive(Debug)]
pub struct Journal {
    records: VecDeque<StopRecord>,
    next: u64,
    pub(super) counts: StopCounters,
}

impl Journal {
    pub(super) fn new() -> Self {
        Self { records: VecDeque::with_capacity(JOURNAL), next: 0, counts: StopCounters::default() }
    }

    pub(super) fn note(&mut self, at: Instant, event: StopEvent) {
        if self.records.len() == JOURNAL {
            self.records.pop_front();
        }
        self.records.push_back(StopRecord { number: self.next, at, event });
        self.next += 1;
    }

    /// The number that the next event will have.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// What is kept of the events from number `first` on.
    pub fn since(&self, first: u64) -> impl Iterator<Item = &StopRecord> {
        self.records.iter().filter(move |record| record.number >= first)
    }
}
