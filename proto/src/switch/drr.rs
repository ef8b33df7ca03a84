//! Deficit round robin over the queues of one output (Shreedhar and Varghese, 1995).
//!
//! The queues that hold frames form a ring. A queue at the head of the ring gets its quantum once per visit, sends
//! while its next frame fits the deficit, then goes to the end; an emptied queue leaves the ring and forfeits what
//! is left. With a quantum of at least the longest frame, every visit sends something, so the work per frame is
//! constant; a segmentation super-frame takes as many visits as quanta fit into it.
//!
//! Strict classes have a ring each, served before all others, the highest first; the others share the last ring. A class that
//! is held back (by PFC) costs nothing while it is: its queues leave the ring when their turn comes, wait aside, and go to
//! the end of the ring together when the class is let go. So a queue is moved once per hold, however long that is.
//!
//! Owns the order and the deficits, never the frames: the caller says how long each queue's next frame is.

use alloc::vec;
use alloc::vec::Vec;

use crate::switch::config::CLASSES_MAX;

/// No queue: the end of a ring.
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

/// Queues in order, linked through their turns.
#[derive(Clone, Copy, Debug)]
struct Ring {
    head: u32,
    tail: u32,
}

impl Ring {
    const EMPTY: Self = Self { head: NONE, tail: NONE };

    fn append(&mut self, turns: &mut [Turn], queue: u32) {
        let turn = &mut turns[queue as usize];
        turn.next = NONE;
        turn.fresh = true;
        self.append_all(turns, Self { head: queue, tail: queue });
    }

    /// Takes all queues of another ring, in their order.
    fn append_all(&mut self, turns: &mut [Turn], other: Self) {
        if other.head == NONE {
            return;
        }
        if self.tail == NONE {
            self.head = other.head;
        } else {
            turns[self.tail as usize].next = other.head;
        }
        self.tail = other.tail;
    }

    fn remove_head(&mut self, turns: &[Turn]) {
        self.head = turns[self.head as usize].next;
        if self.head == NONE {
            self.tail = NONE;
        }
    }
}

/// The scheduler of one output.
#[derive(Debug)]
pub(super) struct Drr {
    turns: Vec<Turn>,
    /// Quantum of each class; the class of a queue is its number modulo the number of classes.
    quanta: Vec<u64>,
    /// A strict class has the ring of its number, the others share that of the highest of them.
    rings: [Ring; CLASSES_MAX],
    /// Rings that hold a queue, a bit each.
    ready: u8,
    /// The ring of the selected queue.
    serving: usize,
    /// The ring that the classes without strict priority share.
    shared: usize,
    /// Classes that may not send, a bit each.
    held: u8,
    /// Queues of held classes whose turn came.
    parked: [Ring; CLASSES_MAX],
    /// Queues that hold a frame.
    busy: u32,
}

impl Drr {
    /// A scheduler over `queues` empty queues without strict classes.
    pub(super) fn new(queues: u32, quanta: Vec<u64>) -> Self {
        let turns = vec![Turn { deficit: 0, next: NONE, fresh: true }; queues as usize];
        let shared = quanta.len() - 1;
        let rings = [Ring::EMPTY; CLASSES_MAX];
        Self { turns, quanta, rings, ready: 0, serving: 0, shared, held: 0, parked: rings, busy: 0 }
    }

    /// Quanta from the next turn of each queue on, and how many of the highest classes are strict.
    pub(super) fn configure(&mut self, quanta: Vec<u64>, strict: usize) {
        let waiting = core::mem::replace(&mut self.rings, [Ring::EMPTY; CLASSES_MAX]);
        self.shared = (quanta.len() - 1).saturating_sub(strict);
        self.quanta = quanta;
        self.ready = 0;
        for ring in waiting {
            let mut queue = ring.head;
            while queue != NONE {
                let next = self.turns[queue as usize].next;
                self.append(queue);
                queue = next;
            }
        }
    }

    /// True if no queue that may send holds a frame.
    pub(super) const fn is_empty(&self) -> bool {
        self.ready == 0
    }

    /// True if a strict class that may send holds a frame.
    pub(super) const fn has_strict(&self) -> bool {
        (self.ready >> self.shared) > 1
    }

    /// True if a class may not send.
    pub(super) const fn holds(&self, class: usize) -> bool {
        self.held & 1 << class != 0
    }

    /// True if some class may not send.
    pub(super) const fn holds_any(&self) -> bool {
        self.held != 0
    }

    /// True if queues wait for their class to be let go.
    pub(super) fn has_parked(&self) -> bool {
        self.parked.iter().any(|ring| ring.head != NONE)
    }

    /// Queues that hold a frame.
    pub(super) const fn busy(&self) -> u32 {
        self.busy
    }

    /// Classes that may not send from now on, a bit each; all others may.
    pub(super) fn hold(&mut self, classes: u8) {
        let freed = self.held & !classes;
        self.held = classes;
        for class in (0..CLASSES_MAX).filter(|class| freed >> class & 1 == 1) {
            let parked = core::mem::replace(&mut self.parked[class], Ring::EMPTY);
            if parked.head != NONE {
                let ring = class.max(self.shared);
                self.rings[ring].append_all(&mut self.turns, parked);
                self.ready |= 1 << ring;
            }
        }
    }

    /// A queue that was empty holds a frame now.
    pub(super) fn handle_backlog(&mut self, queue: u32) {
        self.turns[queue as usize].deficit = 0;
        self.busy += 1;
        self.append(queue);
    }

    /// The queue whose next frame goes now, if any queue that may send holds one. [`Drr::charge`] must follow.
    pub(super) fn select(&mut self, next_bytes: impl Fn(u32) -> u64) -> Option<u32> {
        while let Some(highest) = self.ready.checked_ilog2() {
            self.serving = highest as usize;
            let queue = self.rings[self.serving].head;
            let class = self.class(queue);
            if self.held >> class & 1 == 0 {
                let turn = &mut self.turns[queue as usize];
                if turn.fresh {
                    turn.fresh = false;
                    turn.deficit += self.quanta[class];
                }
                if next_bytes(queue) <= turn.deficit {
                    return Some(queue);
                }
            }
            self.remove_head();
            self.append(queue);
        }
        None
    }

    /// The selected queue sent `bytes` and, if `emptied`, has nothing more.
    pub(super) fn charge(&mut self, bytes: u64, emptied: bool) {
        self.turns[self.rings[self.serving].head as usize].deficit -= bytes;
        if emptied {
            self.busy -= 1;
            self.remove_head();
        }
    }

    /// All queues were emptied.
    pub(super) fn clear(&mut self) {
        self.rings = [Ring::EMPTY; CLASSES_MAX];
        self.parked = self.rings;
        (self.ready, self.busy) = (0, 0);
    }

    fn class(&self, queue: u32) -> usize {
        queue as usize % self.quanta.len()
    }

    /// To the end of its ring, or aside.
    fn append(&mut self, queue: u32) {
        let class = self.class(queue);
        if self.held >> class & 1 == 1 {
            return self.parked[class].append(&mut self.turns, queue);
        }
        let ring = class.max(self.shared);
        self.rings[ring].append(&mut self.turns, queue);
        self.ready |= 1 << ring;
    }

    /// Out of the ring that is served.
    fn remove_head(&mut self) {
        let ring = &mut self.rings[self.serving];
        ring.remove_head(&self.turns);
        if ring.head == NONE {
            self.ready &= !(1 << self.serving);
        }
    }
}

#[cfg(test)]
mod tests;
