//! A bounded table of hosts: found by address, visited by number, nothing allocated after it was made.
//!
//! The hash is keyed, so that a station cannot choose addresses that collide.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::HashMap;
use siphasher::sip::SipHasher13;

use crate::rng::Rng;
use crate::wire::MacAddr;

/// Places looked at for one that can be given away.
const SEARCH: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Keys(u64, u64);

impl BuildHasher for Keys {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Table<T> {
    index: HashMap<MacAddr, usize, Keys>,
    entries: Vec<(MacAddr, T)>,
    limit: usize,
    /// Where the next search for a place begins.
    hand: usize,
}

impl<T> Table<T> {
    /// An empty table for `limit` hosts.
    pub(super) fn new(limit: usize, rng: &mut Rng) -> Self {
        // Twice the room, so that places that were given away are reused without a larger table.
        let index = HashMap::with_capacity_and_hasher(limit.saturating_mul(2), Keys(rng.next_u64(), rng.next_u64()));
        Self { index, entries: Vec::with_capacity(limit), limit, hand: 0 }
    }

    /// The place of a host.
    pub(super) fn find(&self, host: MacAddr) -> Option<usize> {
        self.index.get(&host).copied()
    }

    /// Places in use: 0 to this.
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry at a place.
    pub(super) fn get(&self, place: usize) -> Option<&T> {
        self.entries.get(place).map(|(_, entry)| entry)
    }

    /// The entry at a place, with its host.
    pub(super) fn host_and_entry(&self, place: usize) -> Option<(MacAddr, &T)> {
        self.entries.get(place).map(|(host, entry)| (*host, entry))
    }

    /// The entry at a place, to be changed, with its host.
    pub(super) fn get_mut(&mut self, place: usize) -> Option<(MacAddr, &mut T)> {
        self.entries.get_mut(place).map(|(host, entry)| (*host, entry))
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (MacAddr, &T)> {
        self.entries.iter().map(|(host, entry)| (*host, entry))
    }

    /// A place for a host that has none: a new one, or that of a host whose entry is `idle`.
    pub(super) fn insert(&mut self, host: MacAddr, entry: T, idle: impl Fn(&T) -> bool) -> Option<usize> {
        let place = if self.entries.len() < self.limit {
            self.entries.push((host, entry));
            self.entries.len() - 1
        } else {
            let place = self.idle_place(idle)?;
            self.index.remove(&self.entries[place].0);
            self.entries[place] = (host, entry);
            place
        };
        self.index.insert(host, place);
        Some(place)
    }

    fn idle_place(&mut self, idle: impl Fn(&T) -> bool) -> Option<usize> {
        let count = self.entries.len();
        let place = (0..SEARCH.min(count)).map(|step| (self.hand + step) % count).find(|&place| idle(&self.entries[place].1));
        self.hand = place.map_or(self.hand + SEARCH, |place| place + 1) % count.max(1);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, number])
    }

    #[test]
    fn a_full_table_gives_an_idle_place_to_a_newcomer_and_no_other() {
        let mut table = Table::new(3, &mut Rng::from_seed(1));
        for number in 1..=3 {
            assert_eq!(table.insert(host(number), u32::from(number), |_| false), Some(usize::from(number) - 1));
        }
        assert_eq!(table.insert(host(4), 4, |_| false), None);
        assert_eq!(table.insert(host(4), 4, |&entry| entry == 2), Some(1));
        assert_eq!((table.find(host(2)), table.find(host(4)), table.get(1)), (None, Some(1), Some(&4)));
        assert_eq!(table.iter().count(), 3);
    }

    #[test]
    fn places_change_hands_for_ever_without_a_larger_table() {
        let mut table = Table::new(8, &mut Rng::from_seed(1));
        let room = table.index.capacity();
        for number in 0..100_000_u32 {
            let [_, a, b, c] = number.to_be_bytes();
            assert!(table.insert(MacAddr([2, 0, 0, a, b, c]), number, |_| true).is_some());
        }
        assert_eq!((table.index.len(), table.entries.len()), (8, 8));
        assert!(table.index.capacity() <= room.next_power_of_two() * 2, "{} after {room}", table.index.capacity());
    }
}
