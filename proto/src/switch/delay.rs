//! The delay line: frames that leave at a later instant, earliest first, equal instants in order of arrival.

use alloc::collections::BinaryHeap;
use core::cmp::{Ordering, Reverse};

use crate::pool::FrameRef;
use crate::time::Instant;

#[derive(Debug)]
struct Delayed {
    release: Instant,
    sequence: u64,
    frame: FrameRef,
}

impl Delayed {
    const fn key(&self) -> (Instant, u64) {
        (self.release, self.sequence)
    }
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Delayed {}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Delayed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// A bounded delay line. Allocates only in [`DelayLine::reserve`].
#[derive(Debug, Default)]
pub(super) struct DelayLine {
    heap: BinaryHeap<Reverse<Delayed>>,
    capacity: usize,
    sequence: u64,
}

impl DelayLine {
    /// Makes room for `frames` frames.
    pub(super) fn reserve(&mut self, frames: usize) {
        self.heap.reserve(frames.saturating_sub(self.heap.len()));
        self.capacity = self.capacity.max(frames);
    }

    /// Frames in the line.
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// When the first frame leaves.
    pub(super) fn release(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(first)| first.release)
    }

    /// Adds a frame, or gives it back if the line is full.
    pub(super) fn push(&mut self, release: Instant, frame: FrameRef) -> Result<(), FrameRef> {
        if self.heap.len() >= self.capacity {
            return Err(frame);
        }
        self.heap.push(Reverse(Delayed { release, sequence: self.sequence, frame }));
        self.sequence += 1;
        Ok(())
    }

    /// Takes the first frame if its time has come.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<FrameRef> {
        if self.release()? > now {
            return None;
        }
        self.pop()
    }

    /// Takes the first frame whatever its time.
    pub(super) fn pop(&mut self) -> Option<FrameRef> {
        self.heap.pop().map(|Reverse(first)| first.frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_leave_by_time_and_equal_times_in_order_of_arrival(releases in prop::collection::vec(0_u64..5, 1..40)) {
            let mut pool = Pool::new(40, 64, 0);
            let mut line = DelayLine::default();
            line.reserve(40);
            let mut expected: Vec<_> = releases.iter().copied().enumerate().map(|(arrival, release)| (release, arrival + 1)).collect();
            for &(release, mark) in &expected {
                let frame = pool.alloc().unwrap();
                pool.set_len(&frame, mark);
                line.push(Instant::from_nanos(release), frame).unwrap();
            }
            expected.sort_unstable();
            let mut left = Vec::new();
            for now in 0..5 {
                while let Some(frame) = line.pop_due(Instant::from_nanos(now)) {
                    left.push((now, pool.bytes(&frame).len()));
                    pool.free(frame);
                }
            }
            prop_assert_eq!(left, expected);
            prop_assert_eq!((line.len(), pool.in_use()), (0, 0));
        }
    }

    #[test]
    fn a_full_line_gives_the_frame_back() {
        let mut pool = Pool::new(2, 64, 0);
        let mut line = DelayLine::default();
        line.reserve(1);
        line.push(Instant::ZERO, pool.alloc().unwrap()).unwrap();
        let refused = line.push(Instant::ZERO, pool.alloc().unwrap()).unwrap_err();
        pool.free(refused);
        assert_eq!(line.len(), 1);
    }
}
