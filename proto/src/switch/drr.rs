//! Deficit round robin over the queues of one output (Shreedhar and Varghese, 1995).
//!
//! The queues that hold frames form a ring. A queue at the head of the ring gets its quantum once per visit, sends
//! while its next frame fits the deficit, then goes to the end; an emptied queue leaves the ring and forfeits what
//! is left. With a quantum of at least the longest frame, every visit sends something, so the work per frame is
//! constant; a segmentation super-frame takes as many visits as quanta fit into it.
//!
//! Owns the order and the deficits, never the frames: the caller says how long each queue's next frame is.

use alloc::vec;
use alloc::vec::Vec;

/// No queue: the end of the ring.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Bytes that this queue may still send in this visit.
    deficit: u64,
    /// The next queue of the ring.
    next: u32,
    /// The next visit begins a new turn, with a new quantum.
    fresh: bool,
}

/// The scheduler of one output.
#[derive(Debug)]
pub(super) struct Drr {
    turns: Vec<Turn>,
    /// Quantum of each class; the class of a queue is its number modulo the number of classes.
    quanta: Vec<u64>,
    head: u32,
    tail: u32,
    /// Queues in the ring.
    busy: u32,
}

impl Drr {
    /// A scheduler over `queues` empty queues.
    pub(super) fn new(queues: u32, quanta: Vec<u64>) -> Self {
        let turns = vec![Turn { deficit: 0, next: NONE, fresh: true }; queues as usize];
        Self { turns, quanta, head: NONE, tail: NONE, busy: 0 }
    }

    /// Quanta from the next turn of each queue on.
    pub(super) fn set_quanta(&mut self, quanta: Vec<u64>) {
        self.quanta = quanta;
    }

    /// True if no queue holds a frame.
    pub(super) const fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Queues that hold a frame.
    pub(super) const fn busy(&self) -> u32 {
        self.busy
    }

    /// A queue that was empty holds a frame now.
    pub(super) fn handle_backlog(&mut self, queue: u32) {
        self.turns[queue as usize].deficit = 0;
        self.append(queue);
    }

    /// The queue whose next frame goes now, if any queue holds one. [`Drr::charge`] must follow.
    pub(super) fn select(&mut self, next_bytes: impl Fn(u32) -> u64) -> Option<u32> {
        while self.head != NONE {
            let queue = self.head;
            let quantum = self.quanta[queue as usize % self.quanta.len()];
            let turn = &mut self.turns[queue as usize];
            if turn.fresh {
                turn.fresh = false;
                turn.deficit += quantum;
            }
            if next_bytes(queue) <= turn.deficit {
                return Some(queue);
            }
            self.remove_head();
            self.append(queue);
        }
        None
    }

    /// The selected queue sent `bytes` and, if `emptied`, has nothing more.
    pub(super) fn charge(&mut self, bytes: u64, emptied: bool) {
        self.turns[self.head as usize].deficit -= bytes;
        if emptied {
            self.remove_head();
        }
    }

    /// All queues were emptied.
    pub(super) fn clear(&mut self) {
        while self.head != NONE {
            self.remove_head();
        }
    }

    fn append(&mut self, queue: u32) {
        let turn = &mut self.turns[queue as usize];
        turn.next = NONE;
        turn.fresh = true;
        self.busy += 1;
        if self.tail == NONE {
            self.head = queue;
        } else {
            self.turns[self.tail as usize].next = queue;
        }
        self.tail = queue;
    }

    fn remove_head(&mut self) {
        self.head = self.turns[self.head as usize].next;
        self.busy -= 1;
        if self.head == NONE {
            self.tail = NONE;
        }
    }
}

#[cfg(test)]
mod tests;
