//! Totals per connected host: what its queue pairs counted, those that are gone included.
//!
//! At most [`MAX_PEERS`] hosts are told apart; what belongs to further ones is summed up under no name. A host keeps its
//! place for as long as a queue pair is connected to it; afterwards it gives way to a new one when all places are
//! taken, the host with the fewest bytes first. So no total ever goes back, and all totals together are the sum over
//! all connected queue pairs.
//!
//! Summing up visits a bounded number of queue pairs at a time ([`Peers::cursor`]), so that it never holds up the
//! traffic. The totals that are shown are those of the last visit that reached the end.

use alloc::vec::Vec;

use crate::time::Duration;
use crate::transport::QpCounters;
use crate::wire::MacAddr;

/// Hosts that are told apart.
pub const MAX_PEERS: usize = 64;

/// The totals of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTotals {
    /// Its address; `None` stands for all hosts beyond [`MAX_PEERS`].
    pub peer: Option<MacAddr>,
    /// Queue pairs connected to it.
    pub queue_pairs: u32,
    /// Queue pairs that were ever connected to it.
    pub connections: u64,
    /// What its queue pairs counted.
    pub counters: QpCounters,
    /// The smallest smoothed round trip of its queue pairs.
    pub rtt: Option<Duration>,
}

/// The place of a host in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerPlace(u8);

/// The place of all hosts without a name.
const OTHERS: PeerPlace = PeerPlace(0);

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Complete, as shown.
    shown: PeerTotals,
    live: u32,
    connections: u64,
    /// Counts of queue pairs that are gone.
    past: QpCounters,
    /// Of the visit that is under way.
    sum: QpCounters,
    rtt: Option<Duration>,
}

/// The table of hosts.
#[derive(Debug)]
pub(super) struct Peers {
    /// First the place of all others.
    entries: Vec<Entry>,
    /// Queue pairs in slots below this have been visited in the visit that is under way.
    cursor: usize,
}

impl Peers {
    pub(super) fn new() -> Self {
        Self { entries: [Entry::default()].into(), cursor: 0 }
    }

    /// The complete totals: first those of all others, then one per host.
    pub(super) fn totals(&self) -> impl ExactSizeIterator<Item = PeerTotals> + '_ {
        self.entries.iter().map(|entry| PeerTotals { queue_pairs: entry.live, connections: entry.connections, ..entry.shown })
    }

    /// A queue pair is connected to `peer`.
    pub(super) fn admit(&mut self, peer: MacAddr) -> PeerPlace {
        let place = self.place_of(peer);
        let entry = self.entry(place);
        entry.live += 1;
        entry.connections += 1;
        place
    }

    fn place_of(&mut self, peer: MacAddr) -> PeerPlace {
        let found = self.entries.iter().position(|entry| entry.shown.peer == Some(peer));
        let place = found.or_else(|| {
            let place = if self.entries.len() <= MAX_PEERS { self.entries.len() } else { self.vacate()? };
            let entry = Entry { shown: PeerTotals { peer: Some(peer), ..PeerTotals::default() }, ..Entry::default() };
            match self.entries.get_mut(place) {
                Some(vacant) => *vacant = entry,
                None => self.entries.push(entry),
            }
            Some(place)
        });
        place.and_then(|place| u8::try_from(place).ok()).map_or(OTHERS, PeerPlace)
    }

    /// Takes its place from the host with the fewest bytes that nobody is connected to.
    fn vacate(&mut self) -> Option<usize> {
        let bytes = |entry: &Entry| entry.past.bytes_sent + entry.past.bytes_received;
        let idle = self.entries.iter().enumerate().skip(1).filter(|(_, entry)| entry.live == 0);
        let (place, _) = idle.min_by_key(|(_, entry)| (bytes(entry), entry.shown.peer))?;
        let gone = self.entries[place];
        let others = self.entry(OTHERS);
        others.past.add(&gone.past);
        others.sum.add(&gone.past);
        others.shown.counters.add(&gone.past);
        others.connections += gone.connections;
        Some(place)
    }

    /// A queue pair in `slot` is gone.
    pub(super) fn release(&mut self, place: PeerPlace, slot: usize, counters: &QpCounters) {
        let not_visited = slot >= self.cursor;
        let entry = self.entry(place);
        entry.live -= 1;
        entry.past.add(counters);
        if not_visited {
            entry.sum.add(counters);
        }
    }

    /// Where the visit goes on.
    pub(super) const fn cursor(&self) -> usize {
        self.cursor
    }

    /// Begins a visit.
    pub(super) fn begin(&mut self) {
        for entry in &mut self.entries {
            (entry.sum, entry.rtt) = (entry.past, None);
        }
    }

    /// Visits a queue pair in the slot at the cursor.
    pub(super) fn visit(&mut self, place: PeerPlace, counters: &QpCounters, rtt: Option<Duration>) {
        let entry = self.entry(place);
        entry.sum.add(counters);
        entry.rtt = entry.rtt.into_iter().chain(rtt).min();
    }

    /// The slots below `cursor` have been visited.
    pub(super) const fn go_on(&mut self, cursor: usize) {
        self.cursor = cursor;
    }

    /// Ends a visit: its sums are complete.
    pub(super) fn end(&mut self) {
        for entry in &mut self.entries {
            (entry.shown.counters, entry.shown.rtt) = (entry.sum, entry.rtt);
        }
        self.cursor = 0;
    }

    fn entry(&mut self, place: PeerPlace) -> &mut Entry {
        &mut self.entries[usize::from(place.0)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SLOTS: usize = 12;

    const fn mac(number: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, number])
    }

    /// Queue pairs by slot, and the table.
    struct Model {
        peers: Peers,
        slots: [Option<(PeerPlace, QpCounters)>; SLOTS],
    }

    impl Model {
        fn new() -> Self {
            Self { peers: Peers::new(), slots: [None; SLOTS] }
        }

        fn connect(&mut self, slot: usize, peer: u8) {
            if self.slots[slot].is_none() {
                self.slots[slot] = Some((self.peers.admit(mac(peer)), QpCounters::default()));
            }
        }

        fn destroy(&mut self, slot: usize) {
            if let Some((place, counters)) = self.slots[slot].take() {
                self.peers.release(place, slot, &counters);
            }
        }

        fn work(&mut self, slot: usize, bytes: u64) {
            if let Some((_, counters)) = &mut self.slots[slot] {
                counters.bytes_sent += bytes;
            }
        }

        fn visit(&mut self, budget: usize) {
            if self.peers.cursor() == 0 {
                self.peers.begin();
            }
            let start = self.peers.cursor();
            let end = (start + budget).min(SLOTS);
            for (place, counters) in self.slots[start..end].iter().flatten() {
                self.peers.visit(*place, counters, None);
            }
            self.peers.go_on(end);
            if end == SLOTS {
                self.peers.end();
            }
        }

        fn shown(&self) -> Vec<(Option<MacAddr>, u64)> {
            self.peers.totals().map(|totals| (totals.peer, totals.counters.bytes_sent)).collect()
        }
    }

    #[test]
    fn the_totals_of_a_host_outlive_its_queue_pairs() {
        let mut model = Model::new();
        model.connect(0, 1);
        model.connect(5, 1);
        model.work(0, 100);
        model.work(5, 10);
        model.destroy(0);
        model.visit(SLOTS);
        assert_eq!(model.shown(), [(None, 0), (Some(mac(1)), 110)]);
        let totals: Vec<_> = model.peers.totals().collect();
        assert_eq!((totals[1].queue_pairs, totals[1].connections), (1, 2));
    }

    #[test]
    fn hosts_beyond_the_bound_are_summed_up_and_idle_ones_give_way() {
        let mut model = Model::new();
        for number in 1..=64 {
            let place = model.peers.admit(mac(number));
            let counters = QpCounters { bytes_sent: 1000 + u64::from(number), ..QpCounters::default() };
            if number == 7 || number == 9 {
                model.peers.release(place, 0, &counters);
            }
        }
        assert_ne!(model.peers.admit(mac(65)), OTHERS);
        assert_ne!(model.peers.admit(mac(66)), OTHERS);
        assert_eq!(model.peers.admit(mac(67)), OTHERS);
        assert_eq!(model.peers.totals().count(), MAX_PEERS + 1);
        let named: Vec<_> = model.peers.totals().filter_map(|totals| totals.peer).collect();
        assert!(!named.contains(&mac(7)) && !named.contains(&mac(9)) && named.contains(&mac(66)));
        assert_eq!(model.shown()[0], (None, 1007 + 1009));
    }

    proptest! {
        #[test]
        fn no_total_goes_back_and_nothing_is_lost(steps in proptest::collection::vec((0u8..4, 0..SLOTS, 1u8..100), 0..600)) {
            let mut model = Model::new();
            let (mut all, mut before) = (0, Vec::<(Option<MacAddr>, u64)>::new());
            for (step, slot, number) in steps {
                match step {
                    0 => model.connect(slot, number),
                    1 => model.destroy(slot),
                    2 => {
                        all += if model.slots[slot].is_some() { u64::from(number) } else { 0 };
                        model.work(slot, number.into());
                    }
                    _ => model.visit(usize::from(number % 7) + 1),
                }
                let shown = model.shown();
                for (old, new) in before.iter().zip(&shown) {
                    prop_assert!(old.0 != new.0 || old.1 <= new.1, "{old:?} {new:?}");
                }
                before = shown;
            }
            // Whatever visit was under way ends, and the next one sees everything.
            model.visit(SLOTS);
            model.visit(SLOTS);
            prop_assert_eq!(model.shown().iter().map(|(_, bytes)| bytes).sum::<u64>(), all);
        }
    }
}
