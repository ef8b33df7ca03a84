//! The address table (forwarding database): which port a station is behind.
//!
//! Open addressing with linear probing in a fixed block, at most half full. The hash is keyed, so that a station
//! cannot choose addresses that collide, and no search looks at more than [`PROBES`] slots. Aged entries count as
//! absent at once and are removed a few slots at a time whenever a new address comes.
//!
//! Each VLAN learns for itself (independent learning, IEEE 802.1Q 8.8.8): a station may be behind different ports in different
//! VLANs. A static address holds in all of them; it is kept under VLAN 0, which also stands for frames without one.
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

/// What is looked up: a VLAN and a station in it.
type Key = (u16, MacAddr);

/// One known address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// The station.
    pub mac: MacAddr,
    /// The VLAN in which it was heard, 0 = none; a static entry holds in all.
    pub vlan: u16,
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

    /// The port that a station is behind in a VLAN, if known.
    pub(super) fn lookup(&self, now: Instant, key: Key) -> Option<PortId> {
        let Ok(at) = self.find(key) else { return self.static_port(key) };
        let entry = self.slots[at].as_ref()?;
        (!self.is_aged(now, entry)).then_some(entry.port)
    }

    /// A frame of a station came in through `port`.
    pub(super) fn learn(&mut self, now: Instant, key: Key, port: PortId) {
        match self.find(key) {
            Ok(at) => self.refresh(now, at, port),
            Err(_) if self.static_port(key).is_some() => {}
            Err(_) => self.insert(now, key, port),
        }
    }

    /// The port of a static address, seen from another VLAN than 0.
    fn static_port(&self, (vlan, mac): Key) -> Option<PortId> {
        let at = if vlan == 0 { return None } else { self.find((0, mac)).ok()? };
        self.slots[at].filter(|entry| entry.is_static).map(|entry| entry.port)
    }

    /// Binds `mac` to `port` for good, in place of what was learned about it in any VLAN.
    ///
    /// # Errors
    /// [`FdbFull`] if static entries fill the places where this one could be.
    pub(super) fn set_static(&mut self, mac: MacAddr, port: PortId) -> Result<(), FdbFull> {
        self.remove_where(0, self.slots.len(), |entry| entry.mac == mac && !entry.is_static);
        let key = (0, mac);
        let at = match self.find(key) {
            Ok(at) | Err(Some(at)) => at,
            Err(None) => self.learned_slot(key).ok_or(FdbFull)?,
        };
        if let Some(old) = self.slots[at] {
            self.uncount(&old);
        }
        self.slots[at] = Some(FdbEntry { mac, vlan: 0, port, is_static: true, seen: Instant::ZERO });
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

    fn insert(&mut self, now: Instant, key: Key, port: PortId) {
        self.sweep(now);
        let free = self.limit.saturating_sub(self.learned_total);
        // The sweep may have moved entries: search again.
        let (Err(Some(at)), true) = (self.find(key), free > 0 && self.learned[port.index()] <= SHARE * free) else {
            self.counters.refused += 1;
            return;
        };
        let (vlan, mac) = key;
        self.slots[at] = Some(FdbEntry { mac, vlan, port, is_static: false, seen: now });
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
            let from_home = at.wrapping_sub(self.home((entry.vlan, entry.mac))) & mask;
            let from_gap = at.wrapping_sub(gap) & mask;
            if from_home >= from_gap {
                self.slots[gap] = self.slots[at].take();
                gap = at;
            }
            at = (at + 1) & mask;
        }
    }

    /// The slot of a key; if it has none, the slot that it could take.
    fn find(&self, key: Key) -> Result<usize, Option<usize>> {
        for at in self.places(key) {
            match &self.slots[at] {
                Some(entry) if (entry.vlan, entry.mac) == key => return Ok(at),
                Some(_) => {}
                None => return Err(Some(at)),
            }
        }
        Err(None)
    }

    /// A slot where a key could be that holds a learned entry.
    fn learned_slot(&self, key: Key) -> Option<usize> {
        self.places(key).find(|&at| self.slots[at].is_some_and(|entry| !entry.is_static))
    }

    fn places(&self, key: Key) -> impl Iterator<Item = usize> + use<> {
        let (home, mask) = (self.home(key), self.slots.len() - 1);
        (home..home + PROBES).map(move |at| at & mask)
    }

    fn home(&self, (vlan, mac): Key) -> usize {
        let [a, b, c, d, e, g] = mac.0;
        let [high, low] = vlan.to_be_bytes();
        let word = u64::from_be_bytes([high, low, a, b, c, d, e, g]);
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
