//! One deadline per timer: an indexed binary heap, so that moving a deadline leaves no stale entry behind.

use alloc::vec;
use alloc::vec::Vec;

use crate::time::Instant;

const ABSENT: usize = usize::MAX;

/// Deadlines by timer number.
#[derive(Debug)]
pub(crate) struct Timers {
    /// Heap of (deadline, timer), earliest first.
    heap: Vec<(Instant, usize)>,
    /// Position in the heap by timer.
    position: Vec<usize>,
}

impl Timers {
    /// Timers `0..count`, none of them set.
    pub(crate) fn new(count: usize) -> Self {
        Self { heap: Vec::with_capacity(count), position: vec![ABSENT; count] }
    }

    /// Sets or clears the deadline of a timer.
    pub(crate) fn set(&mut self, timer: usize, deadline: Option<Instant>) {
        let at = self.position[timer];
        match (at, deadline) {
            (ABSENT, None) => {}
            (ABSENT, Some(deadline)) => {
                self.heap.push((deadline, timer));
                self.position[timer] = self.heap.len() - 1;
                self.sift_up(self.heap.len() - 1);
            }
            (_, Some(deadline)) if self.heap[at].0 == deadline => {}
            (_, Some(deadline)) => {
                self.heap[at].0 = deadline;
                self.sift_down(at);
                self.sift_up(self.position[timer]);
            }
            (_, None) => self.remove(at),
        }
    }

    /// Timers that are set.
    pub(crate) const fn len(&self) -> usize {
        self.heap.len()
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|&(deadline, _)| deadline)
    }

    /// Takes out one timer whose deadline has come.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<usize> {
        let &(deadline, timer) = self.heap.first()?;
        (deadline <= now).then(|| {
            self.remove(0);
            timer
        })
    }

    fn remove(&mut self, at: usize) {
        let (_, timer) = self.heap.swap_remove(at);
        self.position[timer] = ABSENT;
        if let Some(&(_, moved)) = self.heap.get(at) {
            self.position[moved] = at;
            self.sift_down(at);
            self.sift_up(self.position[moved]);
        }
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let child = (2 * at + 1..self.heap.len().min(2 * at + 3)).min_by_key(|&child| self.heap[child]);
            match child {
                Some(child) if self.heap[child] < self.heap[at] => {
                    self.swap(at, child);
                    at = child;
                }
                _ => return,
            }
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.position[self.heap[a].1] = a;
        self.position[self.heap[b].1] = b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn timers_agree_with_a_sorted_map(steps in proptest::collection::vec((0usize..20, proptest::option::of(0u64..50), any::<bool>()), 0..200)) {
            let mut timers = Timers::new(20);
            let mut model = BTreeMap::new();
            for (timer, deadline, pop) in steps {
                let deadline = deadline.map(Instant::from_nanos);
                timers.set(timer, deadline);
                match deadline { Some(at) => { model.insert(timer, at); } None => { model.remove(&timer); } }
                prop_assert_eq!(timers.next(), model.values().min().copied());
                if pop && let Some(due) = timers.pop_due(Instant::from_nanos(25)) {
                    let deadline = model.remove(&due);
                    prop_assert!(deadline.is_some_and(|at| at <= Instant::from_nanos(25)));
                    prop_assert!(model.values().all(|&at| Some(at) >= deadline));
                }
            }
        }
    }
}
