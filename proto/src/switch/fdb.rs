//! The address table (forwarding database): which port a station is behind.
//!
//! Open addressing with linear probing in a fixed block, at most half full. The hash is keyed, so that a station
//! cannot choose addresses that collide, and no search looks at more than [`PROBES`] slots. Aged entries count as
//! absent at once and are removed a few slots at a time whenever a new address comes.
//!
//! A flood of invented addresses neither evicts anybody nor takes everything: a known address keeps its place
//! until it ages, and one port may hold at most [`SHARE`] times as many addresses as are still free.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::rng::Rng;
use crate::switch::counters::FdbCounters;
use crate::time::{Duration, Instant};
use crate::units::PortId;
use crate::wire::eth::MacAddr;

/// Slots that a search looks at. At half load the chance that an address has none of them free is about 10^-5.
const PROBES: usize = 64;
/// A port may learn while it has at most this many times the free entries: eight ninths of the table for one port.
const SHARE: usize = 8;
/// Slots cleaned per new address: the whole table within an eighth of its size in new addresses.
const SWEEP: usize = 8;

/// One known address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// The station.
    pub mac: MacAddr,
    /// The port that it is behind.
    pub port: PortId,
    /// Set by the operator or for a local address: never moves, never ages.
    pub is_static: bool,
    /// When it was last heard of.
    pub seen: Instant,
}

/// The table has no room for another static entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbFull;

impl fmt::Display for FdbFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the address table has no room for another static address: enlarge mac_table_size")
    }
}

impl core::error::Error for FdbFull {}

/// The table.
#[derive(Debug)]
pub(super) struct Fdb {
    slots: Vec<Option<FdbEntry>>,
    keys: [u64; 2],
    /// Learned entries at most.
    limit: usize,
    /// Learned entries of each port.
    learned: Vec<usize>,
    /// Sum of `learned`.
    learned_total: usize,
    ageing: Duration,
    sweep_next: usize,
    counters: FdbCounters,
}

impl Fdb {
    /// A table for `limit` learned addresses on `ports` ports.
    pub(super) fn new(limit: usize, ageing: Duration, ports: usize, rng: &mut Rng) -> Self {
        let slots = limit.saturating_mul(2).max(2 * PROBES).next_power_of_two();
        Self {
            slots: vec![None; slots],
            keys: [rng.next_u64(), rng.next_u64() | 1],
            limit,
            learned: vec![0; ports],
            learned_total: 0,
            ageing,
            sweep_next: 0,
            counters: FdbCounters::default(),
        }
    }

    /// Sets the age at which entries are forgotten.
    pub(super) const fn set_ageing(&mut self, ageing: Duration) {
        self.ageing = ageing;
    }

    /// What happened so far.
    pub(super) const fn counters(&self) -> &FdbCounters {
        &self.counters
    }

    /// Entries that hold at `now`, in no order.
    pub(super) fn iter(&self, now: Instant) -> impl Iterator<Item = FdbEntry> + '_ {
        self.slots.iter().flatten().copied().filter(move |entry| !self.is_aged(now, entry))
    }

    /// The port that `mac` is behind, if known.
    pub(super) fn lookup(&self, now: Instant, mac: MacAddr) -> Option<PortId> {
        let entry = self.slots[self.find(mac).ok()?].as_ref()?;
        (!self.is_aged(now, entry)).then_some(entry.port)
    }

    /// A frame from `mac` came in through `port`.
    pub(super) fn learn(&mut self, now: Instant, mac: MacAddr, port: PortId) {
        match self.find(mac) {
            Ok(at) => self.refresh(now, at, port),
            Err(_) => self.insert(now, mac, port),
        }
    }

    /// Binds `mac` to `port` for good, in place of what was learned about it.
    ///
    /// # Errors
    /// [`FdbFull`] if static entries fill the places where this one could be.
    pub(super) fn set_static(&mut self, mac: MacAddr, port: PortId) -> Result<(), FdbFull> {
        let at = match self.find(mac) {
            Ok(at) | Err(Some(at)) => at,
            Err(None) => self.learned_slot(mac).ok_or(FdbFull)?,
        };
        if let Some(old) = self.slots[at] {
            self.uncount(&old);
        }
        self.slots[at] = Some(FdbEntry { mac, port, is_static: true, seen: Instant::ZERO });
        Ok(())
    }

    /// Forgets what was learned at `port`.
    pub(super) fn forget_port(&mut self, port: PortId) {
        self.remove_where(0, self.slots.len(), |entry| entry.port == port && !entry.is_static);
    }

    fn refresh(&mut self, now: Instant, at: usize, port: PortId) {
        let Some(entry) = self.slots[at].as_mut().filter(|entry| !entry.is_static) else { return };
        entry.seen = now;
        let old = core::mem::replace(&mut entry.port, port);
        if old != port {
            self.learned[old.index()] -= 1;
            self.learned[port.index()] += 1;
            self.counters.moved += 1;
        }
    }

    fn insert(&mut self, now: Instant, mac: MacAddr, port: PortId) {
        self.sweep(now);
        let free = self.limit.saturating_sub(self.learned_total);
        // The sweep may have moved entries: search again.
        let (Err(Some(at)), true) = (self.find(mac), free > 0 && self.learned[port.index()] <= SHARE * free) else {
            self.counters.refused += 1;
            return;
        };
        self.slots[at] = Some(FdbEntry { mac, port, is_static: false, seen: now });
        self.learned[port.index()] += 1;
        self.learned_total += 1;
        self.counters.learned += 1;
    }

    fn sweep(&mut self, now: Instant) {
        let (from, ageing) = (self.sweep_next, self.ageing);
        self.sweep_next = (from + SWEEP) & (self.slots.len() - 1);
        self.counters.aged += self.remove_where(from, SWEEP, |entry| !entry.is_static && now.since(entry.seen) > ageing);
    }

    /// Removes what `condition` names among `count` slots, and returns how many entries that were.
    fn remove_where(&mut self, from: usize, count: usize, condition: impl Fn(&FdbEntry) -> bool) -> u64 {
        let mut removed = 0;
        for at in from..from + count {
            // A removal moves a later entry of the run here, so the slot is looked at again.
            while let Some(entry) = self.slots[at].filter(&condition) {
                self.uncount(&entry);
                self.close_gap(at);
                removed += 1;
            }
        }
        removed
    }

    fn uncount(&mut self, entry: &FdbEntry) {
        if !entry.is_static {
            self.learned[entry.port.index()] -= 1;
            self.learned_total -= 1;
        }
    }

    /// Empties a slot and moves later entries of the same run forward, so that searches need no grave marks.
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.slots.len() - 1;
        self.slots[gap] = None;
        let mut at = (gap + 1) & mask;
        while let Some(entry) = self.slots[at] {
            let from_home = at.wrapping_sub(self.home(entry.mac)) & mask;
            let from_gap = at.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.slots[gap] = self.slots[at].take();
                gap = at;
            }
            at = (at + 1) & mask;
        }
    }

    /// The slot of `mac`; if it has none, the slot that it could take.
    fn find(&self, mac: MacAddr) -> Result<usize, Option<usize>> {
        for at in self.places(mac) {
            match &self.slots[at] {
                Some(entry) if entry.mac == mac => return Ok(at),
                Some(_) => {}
                None => return Err(Some(at)),
            }
        }
        Err(None)
    }

    /// A slot where `mac` could be that holds a learned entry.
    fn learned_slot(&self, mac: MacAddr) -> Option<usize> {
        self.places(mac).find(|&at| self.slots[at].is_some_and(|entry| !entry.is_static))
    }

    fn places(&self, mac: MacAddr) -> impl Iterator<Item = usize> + use<> {
        let (home, mask) = (self.home(mac), self.slots.len() - 1);
        (home..home + PROBES).map(move |at| at & mask)
    }

    fn home(&self, mac: MacAddr) -> usize {
        let [a, b, c, d, e, g] = mac.0;
        let word = u64::from_be_bytes([0, 0, a, b, c, d, e, g]);
        // Multiply and fold, twice: each bit of the address reaches every bit of the slot number.
        let mixed = (word ^ self.keys[0]).wrapping_mul(self.keys[1]);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(self.keys[1]);
        usize::try_from(mixed >> 32).unwrap_or(0) & (self.slots.len() - 1)
    }

    fn is_aged(&self, now: Instant, entry: &FdbEntry) -> bool {
        !entry.is_static && now.since(entry.seen) > self.ageing
    }
}

#[cfg(test)]
mod tests;
