//! Queue pairs that stop control lets send nothing for the time being: one lot per destination, in order of arrival.
//!
//! ```text
//!            park                  call                      turn over
//!   free ------------> parked -------------> called ------------------------> free
//!     ^                  |  ^------------------+  may not send after all: first in the lot again
//!     +------------------+
//!        leave, wake all
//! ```
//!
//! A lot has one deadline. When it has come, the first queue pair is called; only when that has had its turn the next one is
//! called, or a new deadline set. So a frame to a destination that is slowed down costs the same however many wait for it, and
//! they take turns. Whoever comes meanwhile goes to the end of the lot.

use alloc::vec;
use alloc::vec::Vec;

use crate::time::Instant;
use crate::timers::Timers;
use crate::wire::MacAddr;

const NONE: usize = usize::MAX;

/// Where a queue pair stands, by its slot.
#[derive(Clone, Copy, Debug)]
struct Place {
    lot: usize,
    previous: usize,
    next: usize,
}

const NOWHERE: Place = Place { lot: NONE, previous: NONE, next: NONE };

/// Those that wait for one destination.
#[derive(Clone, Copy, Debug)]
struct Lot {
    first: usize,
    last: usize,
    /// Whose turn it is.
    called: usize,
    /// Frames up to this priority have to wait for those in the lot.
    highest: u8,
}

const EMPTY: Lot = Lot { first: NONE, last: NONE, called: NONE, highest: 0 };

/// See the module.
#[derive(Debug)]
pub(super) struct Parking {
    /// The lots in use, sorted by destination.
    index: Vec<(MacAddr, usize)>,
    lots: Vec<Lot>,
    unused: Vec<usize>,
    places: Vec<Place>,
    timers: Timers,
}

impl Parking {
    /// Room for the queue pairs of `slots` slots, each with a destination of its own if it comes to that.
    pub(super) fn new(slots: usize) -> Self {
        Self {
            index: Vec::with_capacity(slots),
            lots: vec![EMPTY; slots],
            unused: (0..slots).rev().collect(),
            places: vec![NOWHERE; slots],
            timers: Timers::new(slots),
        }
    }

    // ---- getters

    /// True if nobody is parked or called.
    pub(super) const fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// True if a queue pair is to be served now.
    pub(super) fn is_called(&self, slot: usize) -> bool {
        let lot = self.places[slot].lot;
        lot != NONE && self.lots[lot].called == slot
    }

    /// True if frames of a priority to `dst` have to wait for those of others, or for the call.
    pub(super) fn is_behind(&self, slot: usize, dst: MacAddr, priority: u8) -> bool {
        self.find(dst).is_some_and(|lot| self.lots[lot].called != slot && self.is_meant(lot, priority))
    }

    /// True if a frame of a priority, sent by a called queue pair, was its turn.
    pub(super) fn ends_turn(&self, slot: usize, priority: u8) -> bool {
        self.is_called(slot) && self.is_meant(self.places[slot].lot, priority)
    }

    fn is_meant(&self, lot: usize, priority: u8) -> bool {
        priority <= self.lots[lot].highest
    }

    /// The first in a lot.
    pub(super) fn first(&self, lot: usize) -> Option<usize> {
        let first = self.lots[lot].first;
        (first != NONE).then_some(first)
    }

    fn find(&self, dst: MacAddr) -> Option<usize> {
        let at = self.index.binary_search_by_key(&dst, |&(mac, _)| mac).ok()?;
        Some(self.index[at].1)
    }

    // ---- coming

    /// A queue pair may send no frames of up to `priority` to `dst`: it waits at the end of the lot, or, if it was called for
    /// nothing, in front. Who waits already keeps its place.
    /// `until`: when to ask again, unless somebody is called anyway.
    pub(super) fn park(&mut self, slot: usize, dst: MacAddr, priority: u8, until: Option<Instant>) {
        let Some(lot) = self.find(dst).or_else(|| self.open(dst)) else { return };
        let called = self.lots[lot].called == slot;
        if called {
            self.lots[lot].called = NONE;
        }
        if called || self.places[slot].lot == NONE {
            self.link(slot, lot, called);
        }
        let entry = &mut self.lots[lot];
        entry.highest = entry.highest.max(priority);
        if entry.called == NONE && until.is_some() {
            self.timers.set(lot, until);
        }
    }

    fn open(&mut self, dst: MacAddr) -> Option<usize> {
        let at = self.index.binary_search_by_key(&dst, |&(mac, _)| mac).err()?;
        // There are as many lots as slots, and each in use has somebody in it.
        let lot = self.unused.pop()?;
        self.index.insert(at, (dst, lot));
        Some(lot)
    }

    fn link(&mut self, slot: usize, lot: usize, in_front: bool) {
        let Lot { first, last, .. } = self.lots[lot];
        let (previous, next) = if in_front { (NONE, first) } else { (last, NONE) };
        self.places[slot] = Place { lot, previous, next };
        self.join(lot, previous, slot);
        self.join(lot, slot, next);
    }

    /// Makes `left` and `right` neighbours; nobody on the one side means the end of the lot on the other.
    fn join(&mut self, lot: usize, left: usize, right: usize) {
        match self.places.get_mut(left) {
            Some(place) => place.next = right,
            None => self.lots[lot].first = right,
        }
        match self.places.get_mut(right) {
            Some(place) => place.previous = left,
            None => self.lots[lot].last = left,
        }
    }

    // ---- going

    /// The first in a lot is called, and returned.
    pub(super) fn call(&mut self, lot: usize) -> Option<usize> {
        let slot = self.first(lot)?;
        self.unlink(slot);
        self.lots[lot].called = slot;
        self.timers.set(lot, None);
        Some(slot)
    }

    /// A queue pair waits no longer, or has had its turn. Returns the lot if somebody else there is to be called.
    pub(super) fn leave(&mut self, slot: usize) -> Option<usize> {
        let lot = self.places[slot].lot;
        if lot == NONE {
            return None;
        }
        let called = self.lots[lot].called == slot;
        if called {
            self.lots[lot].called = NONE;
        } else {
            self.unlink(slot);
        }
        self.places[slot] = NOWHERE;
        if self.lots[lot].first == NONE && self.lots[lot].called == NONE {
            self.close(lot);
            return None;
        }
        called.then_some(lot)
    }

    fn unlink(&mut self, slot: usize) {
        let Place { lot, previous, next } = self.places[slot];
        self.join(lot, previous, next);
        self.places[slot] = Place { lot, ..NOWHERE };
    }

    fn close(&mut self, lot: usize) {
        self.timers.set(lot, None);
        self.lots[lot] = EMPTY;
        self.index.retain(|&(_, used)| used != lot);
        self.unused.push(lot);
    }

    /// Takes out one of those that wait for `dst`, the called one first, then in order.
    pub(super) fn take(&mut self, dst: MacAddr) -> Option<usize> {
        let lot = self.lots[self.find(dst)?];
        let slot = if lot.called == NONE { lot.first } else { lot.called };
        self.leave(slot);
        Some(slot)
    }

    /// Takes out one of all that wait.
    pub(super) fn take_any(&mut self) -> Option<usize> {
        let &(dst, _) = self.index.first()?;
        self.take(dst)
    }

    // ---- time

    /// When somebody is to be called.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// A lot from which somebody is to be called.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<usize> {
        self.timers.pop_due(now)
    }

    /// The first in a lot is called then.
    pub(super) fn set_deadline(&mut self, lot: usize, at: Instant) {
        self.timers.set(lot, Some(at));
    }
}

#[cfg(test)]
mod tests;
