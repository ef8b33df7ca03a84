//! Virtual output queues: first in, first out, one per input, output and class.
//!
//! All queues share one block of entries, linked into lists, so that nothing is allocated per frame. Two limits
//! keep queues from starving each other: the bytes that one queue may hold, and a dynamic threshold (Choudhury and
//! Hahne, 1998) on the shared resources: a queue may not hold more frames than are still free for all. One stuck
//! output thus takes at most half of the frame buffers, two take a third each, and the others keep flowing.
//!
//! Owns the waiting frames; never decides which one goes next.

use alloc::vec;
use alloc::vec::Vec;

use crate::pool::{FrameRef, Pool};
use crate::switch::counters::VoqCounters;

/// No entry: the end of a list.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry {
    /// Empty in the list of free entries.
    frame: Option<FrameRef>,
    bytes: u32,
    next: u32,
}

#[derive(Clone, Debug)]
struct Queue {
    head: u32,
    tail: u32,
    counters: VoqCounters,
}

/// All queues of a switch.
#[derive(Debug)]
pub(super) struct Queues {
    queues: Vec<Queue>,
    entries: Vec<Entry>,
    free_head: u32,
    free: usize,
    limit_bytes: u64,
    /// Bytes that wait, by where they came in: a number per input and class.
    buffered: Vec<u64>,
}

impl Queues {
    /// `queues` empty queues with room for `entries` frames altogether. Those of each output follow each other, one for each of
    /// `sources` pairs of input and class.
    ///
    /// # Panics
    /// If there would be 2^32 entries or more.
    pub(super) fn new(queues: usize, sources: usize, entries: usize, limit_bytes: u64) -> Self {
        let count = u32::try_from(entries).ok().filter(|&count| count < NONE).expect("fewer than 2^32 queue entries");
        let chain = (1..=count).map(|next| Entry { frame: None, bytes: 0, next: if next == count { NONE } else { next } });
        Self {
            queues: vec![Queue { head: NONE, tail: NONE, counters: VoqCounters::default() }; queues],
            entries: chain.collect(),
            free_head: if count == 0 { NONE } else { 0 },
            free: entries,
            limit_bytes,
            buffered: vec![0; sources],
        }
    }

    /// Sets the limit of each queue; what waits already stays.
    pub(super) const fn set_limit_bytes(&mut self, limit: u64) {
        self.limit_bytes = limit;
    }

    /// Frames in all queues.
    pub(super) const fn len(&self) -> usize {
        self.entries.len() - self.free
    }

    /// The counters of one queue.
    pub(super) fn counters(&self, queue: usize) -> &VoqCounters {
        &self.queues[queue].counters
    }

    /// Bytes that wait for any output and came from one pair of input and class.
    pub(super) fn buffered(&self, source: usize) -> u64 {
        self.buffered[source]
    }

    /// Length of the first frame of a queue; 0 if there is none.
    pub(super) fn head_bytes(&self, queue: usize) -> u64 {
        self.entries.get(self.queues[queue].head as usize).map_or(0, |entry| u64::from(entry.bytes))
    }

    /// Appends a frame, or gives it back if the queue is full. `Ok(true)` = the queue was empty before.
    pub(super) fn push(&mut self, pool: &Pool, queue: usize, frame: FrameRef) -> Result<bool, FrameRef> {
        let length = pool.bytes(&frame).len();
        let bytes = u32::try_from(length).unwrap_or(u32::MAX);
        if !self.admits(pool, queue, u64::from(bytes)) {
            self.queues[queue].counters.refused.count(u64::from(bytes));
            return Err(frame);
        }
        let at = self.free_head;
        let entry = &mut self.entries[at as usize];
        self.free_head = entry.next;
        self.free -= 1;
        *entry = Entry { frame: Some(frame), bytes, next: NONE };
        Ok(self.link(queue, at, u64::from(bytes)))
    }

    /// Takes the first frame of a queue and its length.
    pub(super) fn pop(&mut self, queue: usize) -> Option<(FrameRef, u64)> {
        let (frame, bytes) = self.unlink(queue)?;
        self.queues[queue].counters.dequeued.count(bytes);
        Some((frame, bytes))
    }

    /// Takes the first frame of a queue in order to throw it away.
    pub(super) fn flush(&mut self, queue: usize) -> Option<FrameRef> {
        let (frame, bytes) = self.unlink(queue)?;
        self.queues[queue].counters.flushed.count(bytes);
        Some(frame)
    }

    fn admits(&self, pool: &Pool, queue: usize, bytes: u64) -> bool {
        let queued = &self.queues[queue].counters.queued;
        let spare = self.free.min(pool.available());
        queued.bytes + bytes <= self.limit_bytes && queued.frames <= spare as u64 && self.free > 0
    }

    fn link(&mut self, queue: usize, at: u32, bytes: u64) -> bool {
        let source = queue % self.buffered.len();
        self.buffered[source] += bytes;
        let queue = &mut self.queues[queue];
        queue.counters.enqueued.count(bytes);
        queue.counters.queued.count(bytes);
        let was_empty = queue.tail == NONE;
        if was_empty {
            queue.head = at;
        } else {
            self.entries[queue.tail as usize].next = at;
        }
        queue.tail = at;
        was_empty
    }

    fn unlink(&mut self, queue: usize) -> Option<(FrameRef, u64)> {
        let source = queue % self.buffered.len();
        let queue = &mut self.queues[queue];
        let at = queue.head;
        let entry = self.entries.get_mut(at as usize)?;
        let frame = entry.frame.take()?;
        let bytes = u64::from(entry.bytes);
        queue.head = entry.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        queue.counters.queued.uncount(bytes);
        self.buffered[source] -= bytes;
        entry.next = self.free_head;
        self.free_head = at;
        self.free += 1;
        Some((frame, bytes))
    }
}

#[cfg(test)]
mod tests;
