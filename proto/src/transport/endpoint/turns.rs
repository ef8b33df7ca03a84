//! Whose turn it is to send: queue pairs in the order in which they came, those of the highest class before all others.

use alloc::collections::VecDeque;

/// From this priority on, frames have 802.1p priority 7, which switches serve before everything else. It would be of no use
/// behind the backlog of others in one's own host.
const URGENT: u8 = 14;

/// Slots of queue pairs that may have something to send.
#[derive(Debug, Default)]
pub(super) struct Turns {
    urgent: VecDeque<usize>,
    others: VecDeque<usize>,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.others.is_empty()
    }

    /// The slot whose turn it is.
    pub(super) fn pop(&mut self) -> Option<usize> {
        self.urgent.pop_front().or_else(|| self.others.pop_front())
    }

    /// A slot of this priority gets its turn after those that wait.
    pub(super) fn push(&mut self, slot: usize, priority: u8) {
        self.of(priority).push_back(slot);
    }

    /// A slot of this priority goes on before those that wait.
    pub(super) fn push_front(&mut self, slot: usize, priority: u8) {
        self.of(priority).push_front(slot);
    }

    const fn of(&mut self, priority: u8) -> &mut VecDeque<usize> {
        if priority >= URGENT { &mut self.urgent } else { &mut self.others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn the_highest_class_goes_first_and_each_in_order() {
        let mut turns = Turns::default();
        [(1, 0), (2, 15), (3, 13), (4, 14)].into_iter().for_each(|(slot, priority)| turns.push(slot, priority));
        turns.push_front(5, 9);
        let order: Vec<_> = core::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(order, [2, 4, 5, 1, 3]);
    }
}
