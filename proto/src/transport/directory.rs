//! Where to look for a connection: by its peer's incarnation, by the peer's end of it, or because it lingers.
//! Every question is answered in logarithmic time, so that thousands of connections to one peer are no burden.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::transport::QpNum;
use crate::wire::MacAddr;

/// Bits of an incarnation that are random; above them is the start in milliseconds, which has room until the year 2109.
pub(super) const DRAW_BITS: u32 = 22;
const DRAW: u64 = (1 << DRAW_BITS) - 1;

/// Sorted keys, each with the number of its connection.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// By the peer's incarnation.
    incarnations: BTreeSet<(MacAddr, u64, u32)>,
    /// By the peer's end: its queue pair, and the tag that frames to it carry.
    ends: BTreeSet<(MacAddr, QpNum, u16, u32)>,
    /// Those that linger after a close, by the tag of the peer's frames.
    lingering: BTreeSet<(MacAddr, u16, u32)>,
    /// Those that wait for an application's answer: few.
    waiting: Vec<(u32, MacAddr)>,
}

impl Directory {
    /// The peer's end of a connection is known.
    pub(super) fn add_end(&mut self, connection: u32, peer: MacAddr, incarnation: u64, (qp, tag): (QpNum, u16)) {
        self.incarnations.insert((peer, incarnation, connection));
        self.ends.insert((peer, qp, tag, connection));
    }

    pub(super) fn remove_end(&mut self, connection: u32, peer: MacAddr, incarnation: u64, (qp, tag): (QpNum, u16)) {
        self.incarnations.remove(&(peer, incarnation, connection));
        self.ends.remove(&(peer, qp, tag, connection));
    }

    /// Connections whose other end this is. Honest peers have one of a kind.
    pub(super) fn at_end(&self, peer: MacAddr, qp: QpNum, tag: u16) -> impl Iterator<Item = usize> + '_ {
        self.ends.range((peer, qp, tag, 0)..=(peer, qp, tag, u32::MAX)).map(|&(.., connection)| connection as usize)
    }

    /// A connection with an incarnation of `peer` that is older than this one: it began earlier, or in the same millisecond.
    pub(super) fn older_than(&self, peer: MacAddr, incarnation: u64) -> Option<usize> {
        let before = self.incarnations.range((peer, 0, 0)..(peer, incarnation, 0)).next();
        let same_moment = || {
            self.incarnations.range((peer, incarnation, u32::MAX)..=(peer, incarnation | DRAW, u32::MAX)).find(|key| key.1 != incarnation)
        };
        before.or_else(same_moment).map(|&(.., connection)| connection as usize)
    }

    /// True if `peer` is known with an incarnation that began in a later millisecond.
    pub(super) fn has_newer_than(&self, peer: MacAddr, incarnation: u64) -> bool {
        let Some(next) = (incarnation | DRAW).checked_add(1) else { return false };
        self.incarnations.range((peer, next, 0)..=(peer, u64::MAX, u32::MAX)).next().is_some()
    }

    pub(super) fn linger(&mut self, connection: u32, peer: MacAddr, tag: u16) {
        self.lingering.insert((peer, tag, connection));
    }

    pub(super) fn end_linger(&mut self, connection: u32, peer: MacAddr, tag: u16) {
        self.lingering.remove(&(peer, tag, connection));
    }

    /// True if a connection whose frames carry this tag lingers.
    pub(super) fn lingers(&self, peer: MacAddr, tag: u16) -> bool {
        self.lingering.range((peer, tag, 0)..=(peer, tag, u32::MAX)).next().is_some()
    }

    pub(super) fn wait(&mut self, connection: u32, peer: MacAddr) {
        self.waiting.push((connection, peer));
    }

    pub(super) fn end_wait(&mut self, connection: u32) {
        self.waiting.retain(|&(waiting, _)| waiting != connection);
    }

    /// Connections that wait for an application's answer, with their peers.
    pub(super) fn waiting(&self) -> &[(u32, MacAddr)] {
        &self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PEERS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

    /// The rule, said plainly.
    fn is_newer(incarnation: u64, known: u64) -> bool {
        incarnation != known && incarnation >> DRAW_BITS >= known >> DRAW_BITS
    }

    fn incarnation() -> impl Strategy<Value = u64> {
        (prop_oneof![0u64..4, Just(u64::MAX >> DRAW_BITS)], prop_oneof![0u64..3, Just(DRAW)])
            .prop_map(|(start, draw)| start << DRAW_BITS | draw)
    }

    proptest! {
        #[test]
        fn searches_agree_with_looking_at_every_connection(
            entries in proptest::collection::vec((0usize..2, incarnation(), 0u32..3, 0u16..3), 0..30),
            removed in 0usize..30,
            (peer, asked, qp, tag) in (0usize..2, incarnation(), 0u32..3, 0u16..3),
        ) {
            let mut directory = Directory::default();
            for (connection, &(peer, incarnation, qp, tag)) in (0..).zip(&entries) {
                directory.add_end(connection, PEERS[peer], incarnation, (QpNum(qp), tag));
            }
            let gone = removed.min(entries.len());
            for (connection, &(peer, incarnation, qp, tag)) in (0..).zip(&entries[..gone]) {
                directory.remove_end(connection, PEERS[peer], incarnation, (QpNum(qp), tag));
            }
            let left = &entries[gone..];
            let older = directory.older_than(PEERS[peer], asked);
            prop_assert_eq!(older.is_some(), left.iter().any(|e| e.0 == peer && is_newer(asked, e.1)));
            if let Some(found) = older {
                prop_assert!(found >= gone && entries[found].0 == peer && is_newer(asked, entries[found].1));
            }
            let newer = left.iter().any(|e| e.0 == peer && e.1 != asked && !is_newer(asked, e.1));
            prop_assert_eq!(directory.has_newer_than(PEERS[peer], asked), newer);
            let at_end: Vec<_> = directory.at_end(PEERS[peer], QpNum(qp), tag).collect();
            let expected: Vec<_> = (gone..entries.len()).filter(|&i| (entries[i].0, entries[i].2, entries[i].3) == (peer, qp, tag)).collect();
            prop_assert_eq!(at_end, expected);
        }
    }

    #[test]
    fn what_lingers_or_waits_is_known_until_it_ends() {
        let mut directory = Directory::default();
        directory.linger(1, PEERS[0], 7);
        directory.linger(2, PEERS[0], 7);
        directory.end_linger(1, PEERS[0], 7);
        assert!(directory.lingers(PEERS[0], 7) && !directory.lingers(PEERS[0], 8) && !directory.lingers(PEERS[1], 7));
        directory.end_linger(2, PEERS[0], 7);
        assert!(!directory.lingers(PEERS[0], 7));
        directory.wait(3, PEERS[0]);
        directory.wait(4, PEERS[1]);
        directory.end_wait(3);
        assert_eq!(directory.waiting(), [(4, PEERS[1])]);
    }
}
