//! A queue whose entries are found by position: a power-of-two ring that grows.

use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

/// First storage, in entries. An idle ring has none.
const SMALLEST: usize = 4;

/// A ring indexed by free-running 32-bit positions. Storage starts empty and doubles when an entry does not fit, so that
/// a queue costs what it has held at a time, not its greatest depth; it never shrinks. Between two doublings nothing is
/// allocated. The owner bounds how many entries there are at a time.
#[derive(Clone, Debug)]
pub(super) struct Ring<T> {
    /// None or a power of two of them; those not in use hold what was there before, or the default.
    entries: Vec<T>,
    head: u32,
    tail: u32,
}

impl<T> Ring<T> {
    /// An empty ring whose first entry will have this position. Allocates nothing.
    pub(super) const fn new(start: u32) -> Self {
        Self { entries: Vec::new(), head: start, tail: start }
    }

    /// Position of the oldest entry, or of the next one if there is none.
    pub(super) const fn head(&self) -> u32 {
        self.head
    }

    /// Position that the next entry will have.
    pub(super) const fn tail(&self) -> u32 {
        self.tail
    }

    /// Entries held. At most 2^31.
    pub(super) const fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Entries for which there is storage.
    #[cfg(test)]
    pub(super) const fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// True if an entry has this position.
    pub(super) const fn contains(&self, position: u32) -> bool {
        position.wrapping_sub(self.head) < self.len()
    }

    const fn index(&self, position: u32) -> usize {
        // Without storage nothing is contained, so this is not asked.
        position as usize & self.entries.len().wrapping_sub(1)
    }

    /// The entry at a position.
    pub(super) fn get(&self, position: u32) -> Option<&T> {
        if self.contains(position) { self.entries.get(self.index(position)) } else { None }
    }

    /// The entry at a position.
    pub(super) fn get_mut(&mut self, position: u32) -> Option<&mut T> {
        let index = self.index(position);
        if self.contains(position) { self.entries.get_mut(index) } else { None }
    }
}

/// Rings that hold the same entries at the same positions are alike, whatever lies in their unused storage.
impl<T: Hash> Hash for Ring<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.head, self.tail).hash(state);
        (0..self.len()).for_each(|ahead| self.get(self.head.wrapping_add(ahead)).hash(state));
    }
}

impl<T: Copy + Default> Ring<T> {
    /// Adds an entry and returns its position.
    pub(super) fn push(&mut self, entry: T) -> u32 {
        if self.len() as usize == self.entries.len() {
            self.grow();
        }
        let (position, index) = (self.tail, self.index(self.tail));
        self.entries[index] = entry;
        self.tail = position.wrapping_add(1);
        position
    }

    /// Takes out the oldest entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        let entry = *self.get(self.head)?;
        self.head = self.head.wrapping_add(1);
        Some(entry)
    }

    /// Twice the storage. An entry at position p is at p modulo the size, before and after.
    #[cold]
    fn grow(&mut self) {
        let old = self.entries.len();
        let new = (old * 2).max(SMALLEST);
        let mut entries = alloc::vec![T::default(); new];
        for ahead in 0..self.len() {
            let position = self.head.wrapping_add(ahead);
            entries[position as usize & (new - 1)] = self.entries[position as usize & (old - 1)];
        }
        self.entries = entries;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push(u16),
        Pop,
        Set(u32, u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => any::<u16>().prop_map(Step::Push),
            2 => Just(Step::Pop),
            2 => (0u32..40, any::<u16>()).prop_map(|(ahead, value)| Step::Set(ahead, value)),
        ]
    }

    proptest! {
        #[test]
        fn a_ring_is_a_queue_whose_entries_keep_their_positions(
            start in prop_oneof![Just(0u32), Just(u32::MAX - 5), any::<u32>()],
            steps in proptest::collection::vec(step(), 0..300),
        ) {
            let mut ring = Ring::new(start);
            let mut model: VecDeque<(u32, u16)> = VecDeque::new();
            let (mut next, mut most) = (start, 0);
            for step in steps {
                match step {
                    Step::Push(value) => {
                        prop_assert_eq!(ring.push(value), next);
                        model.push_back((next, value));
                        next = next.wrapping_add(1);
                    }
                    Step::Pop => prop_assert_eq!(ring.pop(), model.pop_front().map(|(_, value)| value)),
                    Step::Set(ahead, value) => {
                        let position = ring.head().wrapping_add(ahead);
                        let there = model.iter_mut().find(|(at, _)| *at == position);
                        prop_assert_eq!(ring.get_mut(position).is_some(), there.is_some());
                        if let Some(((_, old), new)) = there.zip(ring.get_mut(position)) {
                            (*old, *new) = (value, value);
                        }
                    }
                }
                most = most.max(model.len());
                prop_assert_eq!((ring.len() as usize, ring.tail()), (model.len(), next));
                for &(position, value) in &model {
                    prop_assert_eq!(ring.get(position), Some(&value));
                }
                prop_assert_eq!(ring.get(ring.tail()), None);
                prop_assert_eq!(ring.get(ring.head().wrapping_sub(1)), None);
            }
            prop_assert!(ring.capacity() <= most.next_power_of_two().max(SMALLEST));
        }
    }

    #[test]
    fn an_idle_ring_takes_no_storage_and_one_in_use_as_much_as_it_ever_held() {
        let mut ring = Ring::new(0);
        assert_eq!(ring.capacity(), 0);
        for round in 0..1000u32 {
            ring.push(round);
            ring.push(round);
            assert_eq!((ring.pop(), ring.pop()), (Some(round), Some(round)));
        }
        assert_eq!(ring.capacity(), SMALLEST);
    }
}
