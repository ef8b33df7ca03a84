//! The picture of all interfaces, and what a new message about one changes in it. Pure.

use std::collections::{BTreeMap, VecDeque};

use super::{Link, LinkChange, LinkEvent};

/// An interface, and whether it was heard of since the last sweep began.
#[derive(Debug)]
struct Entry {
    link: Link,
    seen: bool,
}

/// All interfaces by number.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<u32, Entry>,
}

impl Table {
    /// The kernel says that an interface is like this.
    pub(super) fn observe(&mut self, link: Link, events: &mut VecDeque<LinkEvent>) {
        let Some(entry) = self.entries.get_mut(&link.index) else {
            events.push_back(LinkEvent { change: LinkChange::New, link: link.clone() });
            self.entries.insert(link.index, Entry { link, seen: true });
            return;
        };
        entry.seen = true;
        let before = std::mem::replace(&mut entry.link, link.clone());
        if before.name != link.name {
            events.push_back(LinkEvent { change: LinkChange::Gone, link: before });
            events.push_back(LinkEvent { change: LinkChange::New, link });
            return;
        }
        if (before.mtu, before.mac) != (link.mtu, link.mac) {
            events.push_back(LinkEvent { change: LinkChange::Changed, link: link.clone() });
        }
        if before.up != link.up {
            let change = if link.up { LinkChange::Up } else { LinkChange::Down };
            events.push_back(LinkEvent { change, link });
        }
    }

    /// The kernel says that an interface is no more.
    pub(super) fn remove(&mut self, index: u32, events: &mut VecDeque<LinkEvent>) {
        if let Some(entry) = self.entries.remove(&index) {
            events.push_back(LinkEvent { change: LinkChange::Gone, link: entry.link });
        }
    }

    /// From here to [`Self::end_sweep`] the kernel names every interface that exists.
    pub(super) fn begin_sweep(&mut self) {
        for entry in self.entries.values_mut() {
            entry.seen = false;
        }
    }

    /// Every interface that was not named is gone.
    pub(super) fn end_sweep(&mut self, events: &mut VecDeque<LinkEvent>) {
        let gone = self.entries.extract_if(.., |_, entry| !entry.seen);
        events.extend(gone.map(|(_, entry)| LinkEvent { change: LinkChange::Gone, link: entry.link }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_proto::wire::MacAddr;

    fn link(index: u32, name: &str) -> Link {
        Link { index, name: name.to_owned(), mac: MacAddr::ZERO, mtu: 1500, up: true, ethernet: true }
    }

    fn changes(events: &mut VecDeque<LinkEvent>) -> Vec<(LinkChange, String)> {
        events.drain(..).map(|event| (event.change, event.link.name)).collect()
    }

    fn named(change: LinkChange, name: &str) -> (LinkChange, String) {
        (change, name.to_owned())
    }

    #[test]
    fn each_difference_is_one_event_and_no_difference_is_none() {
        let (mut table, mut events) = (Table::default(), VecDeque::new());
        table.observe(link(1, "a"), &mut events);
        table.observe(link(1, "a"), &mut events);
        assert_eq!(changes(&mut events), [named(LinkChange::New, "a")]);
        table.observe(Link { up: false, mtu: 9000, ..link(1, "a") }, &mut events);
        assert_eq!(changes(&mut events), [named(LinkChange::Changed, "a"), named(LinkChange::Down, "a")]);
        table.observe(Link { mtu: 9000, mac: MacAddr([2; 6]), ..link(1, "a") }, &mut events);
        assert_eq!(changes(&mut events), [named(LinkChange::Changed, "a"), named(LinkChange::Up, "a")]);
        table.remove(1, &mut events);
        table.remove(1, &mut events);
        assert_eq!(changes(&mut events), [named(LinkChange::Gone, "a")]);
    }

    #[test]
    fn a_renamed_interface_is_gone_and_new() {
        let (mut table, mut events) = (Table::default(), VecDeque::new());
        table.observe(link(1, "a"), &mut events);
        events.clear();
        table.observe(link(1, "b"), &mut events);
        assert_eq!(changes(&mut events), [named(LinkChange::Gone, "a"), named(LinkChange::New, "b")]);
    }

    #[test]
    fn a_sweep_finds_what_vanished_unheard() {
        let (mut table, mut events) = (Table::default(), VecDeque::new());
        for (index, name) in [(1, "a"), (2, "b"), (3, "c")] {
            table.observe(link(index, name), &mut events);
        }
        events.clear();
        table.begin_sweep();
        table.observe(link(2, "b"), &mut events);
        table.observe(link(4, "a"), &mut events);
        table.end_sweep(&mut events);
        let expected = [named(LinkChange::New, "a"), named(LinkChange::Gone, "a"), named(LinkChange::Gone, "c")];
        assert_eq!(changes(&mut events), expected);
    }
}
