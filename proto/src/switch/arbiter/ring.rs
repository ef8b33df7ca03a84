//! Round robin, by frames or by bytes (deficit round robin, Shreedhar and Varghese, 1995).
//!
//! The queues that hold frames form a ring. A queue at the head of the ring gets its quantum once per visit, sends
//! while its next frame fits the deficit, then goes to the end; an emptied queue leaves the ring and forfeits what
//! is left. With a quantum of at least the longest frame, every visit sends something, so the work per frame is
//! constant; a segmentation super-frame takes as many visits as quanta fit into it. A latency-rate server with
//! latency (3F - 2 phi) / R, F being the sum of all quanta and phi the queue's own (Stiliadis and Varma, 1998).
//!
//! Owns the order and the deficits, never the frames.

use alloc::vec;
use alloc::vec::Vec;

/// No queue: the end of the ring.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Bytes that this queue may still send in this visit.
    deficit: u64,
    /// Of its first frame.
    bytes: u32,
    weight: u32,
    /// The next queue of the ring.
    next: u32,
    /// The next visit begins a new turn, with a new quantum.
    fresh: bool,
}

/// Queues that take turns.
#[derive(Debug)]
pub struct Ring {
    turns: Vec<Turn>,
    head: u32,
    tail: u32,
    busy: u32,
    /// Bytes per visit and weight; `None` = one frame per visit.
    quantum: Option<u32>,
}

impl Ring {
    pub(super) fn new(queues: u32, quantum: Option<u32>) -> Self {
        let turn = Turn { deficit: 0, bytes: 0, weight: 1, next: NONE, fresh: true };
        Self { turns: vec![turn; queues as usize], head: NONE, tail: NONE, busy: 0, quantum }
    }

    pub(super) fn set_weight(&mut self, queue: u32, weight: u32) {
        self.turns[queue as usize].weight = weight.max(1);
    }

    pub(super) fn set_quantum(&mut self, quantum: u32) {
        self.quantum = self.quantum.map(|_| quantum);
    }

    pub(super) const fn busy(&self) -> u32 {
        self.busy
    }

    pub(super) fn handle_backlog(&mut self, queue: u32, bytes: u32) {
        let turn = &mut self.turns[queue as usize];
        turn.deficit = 0;
        turn.bytes = bytes;
        self.busy += 1;
        self.append(queue);
    }

    pub(super) fn select(&mut self) -> Option<u32> {
        let queue = self.head;
        let Some(quantum) = self.quantum else { return (queue != NONE).then_some(queue) };
        while self.head != NONE {
            let queue = self.head;
            let turn = &mut self.turns[queue as usize];
            if core::mem::take(&mut turn.fresh) {
                turn.deficit += u64::from(quantum.max(1)) * u64::from(turn.weight);
            }
            if u64::from(turn.bytes) <= turn.deficit {
                return Some(queue);
            }
            self.rotate();
        }
        None
    }

    pub(super) fn charge(&mut self, bytes: u32, next: Option<u32>) {
        let Some(turn) = self.turns.get_mut(self.head as usize) else { return };
        // A set that serves as one queue of another may have changed its mind about what it sends.
        turn.deficit = turn.deficit.saturating_sub(u64::from(bytes));
        match next {
            None => {
                self.busy -= 1;
                self.remove_head();
            }
            Some(bytes) => {
                turn.bytes = bytes;
                if self.quantum.is_none() {
                    self.rotate();
                }
            }
        }
    }

    pub(super) const fn clear(&mut self) {
        (self.head, self.tail, self.busy) = (NONE, NONE, 0);
    }

    fn rotate(&mut self) {
        let queue = self.head;
        self.remove_head();
        self.append(queue);
    }

    fn append(&mut self, queue: u32) {
        let turn = &mut self.turns[queue as usize];
        turn.next = NONE;
        turn.fresh = true;
        if self.tail == NONE {
            self.head = queue;
        } else {
            self.turns[self.tail as usize].next = queue;
        }
        self.tail = queue;
    }

    fn remove_head(&mut self) {
        self.head = self.turns[self.head as usize].next;
        if self.head == NONE {
            self.tail = NONE;
        }
    }
}
