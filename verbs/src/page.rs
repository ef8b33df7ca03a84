//! The application page: how an application tells the daemon's worker that there is work.
//!
//! Posting sets the queue's bit in a doorbell word, then the word's bit in the summary. The worker takes the
//! summary first and the words after it, so a bit set in between is found now or announced again, never lost.
//! An eventfd is written only if the worker sleeps. Both sides then follow the same rule: write your own word, a
//! sequentially consistent fence, read the other's. So either the worker sees the bit or the application sees the sleeper.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use crate::layout::{DOORBELL_WORDS, DOORBELLS, PAGE_DOORBELLS, PAGE_LEN, PAGE_SLEEPING, PAGE_SUMMARY};
use crate::shm::{Block, ShmError};

/// One side's mapping of an application page.
#[derive(Debug)]
pub struct Page {
    block: Block,
}

impl Page {
    /// A new page and the memfd to share it by.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn create() -> Result<(Self, OwnedFd), ShmError> {
        let (block, fd) = Block::create("weft-page", PAGE_LEN)?;
        Ok((Self { block }, fd))
    }

    /// The page that the other side created.
    ///
    /// # Errors
    /// When the descriptor is not such a page.
    pub fn map(fd: impl AsFd) -> Result<Self, ShmError> {
        Ok(Self { block: Block::map(fd, PAGE_LEN as u64)? })
    }

    /// Application: rings the doorbell of a queue pair or shared receive queue. True if the worker sleeps and must be woken.
    pub fn ring(&self, slot: u16) -> bool {
        let (word, bit) = (usize::from(slot) % DOORBELLS / 64, slot % 64);
        self.block.word64(PAGE_DOORBELLS + word * 8).fetch_or(1 << bit, Ordering::Release);
        self.block.word64(PAGE_SUMMARY).fetch_or(1 << word, Ordering::Release);
        fence(Ordering::SeqCst);
        self.block.word32(PAGE_SLEEPING).load(Ordering::Relaxed) != 0
    }

    /// Worker: true if a doorbell was rung since the last [`Page::take_doorbells`].
    pub fn has_doorbells(&self) -> bool {
        self.block.word64(PAGE_SUMMARY).load(Ordering::Relaxed) != 0
    }

    /// Worker: adds all doorbells rung to `rung` and clears them.
    pub fn take_doorbells(&self, rung: &mut [u64; DOORBELL_WORDS]) {
        // Mostly nobody rang: a look costs nothing, an exchange takes the cache line from the application.
        if !self.has_doorbells() {
            return;
        }
        let mut summary = self.block.word64(PAGE_SUMMARY).swap(0, Ordering::Acquire);
        while summary != 0 {
            let word = summary.trailing_zeros() as usize;
            summary &= summary - 1;
            rung[word] |= self.block.word64(PAGE_DOORBELLS + word * 8).swap(0, Ordering::Acquire);
        }
    }

    /// Worker: says whether it sleeps. Before it really does, it must pass a sequentially consistent fence and then
    /// find [`Page::has_doorbells`] false.
    pub fn set_sleeping(&self, sleeping: bool) {
        self.block.word32(PAGE_SLEEPING).store(u32::from(sleeping), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    fn pair() -> (Page, Page) {
        let (page, fd) = Page::create().unwrap();
        (page, Page::map(&fd).unwrap())
    }

    #[test]
    fn doorbells_arrive_each_at_its_bit_and_once() {
        let (application, worker) = pair();
        for slot in [0, 63, 64, 4095] {
            assert!(!application.ring(slot));
        }
        assert!(worker.has_doorbells());
        let mut rung = [0; DOORBELL_WORDS];
        worker.take_doorbells(&mut rung);
        let mut expected = [0; DOORBELL_WORDS];
        (expected[0], expected[1], expected[63]) = (1 << 63 | 1, 1, 1 << 63);
        assert_eq!(rung, expected);
        assert!(!worker.has_doorbells());
    }

    #[test]
    fn the_worker_is_to_be_woken_only_while_it_sleeps() {
        let (application, worker) = pair();
        worker.set_sleeping(true);
        assert!(application.ring(5));
        worker.set_sleeping(false);
        assert!(!application.ring(5));
    }

    #[test]
    fn no_doorbell_is_lost_between_threads() {
        const ROUNDS: u32 = 20_000;
        let (application, worker) = pair();
        let (heard, done) = (AtomicBool::new(true), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    while !heard.swap(false, Ordering::AcqRel) {
                        thread::yield_now();
                    }
                    application.ring(u16::try_from(round % 4096).unwrap());
                }
                while !heard.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                done.store(true, Ordering::Release);
            });
            let mut count = 0;
            while !done.load(Ordering::Acquire) {
                let mut rung = [0; DOORBELL_WORDS];
                worker.take_doorbells(&mut rung);
                let bits: u32 = rung.iter().map(|word| word.count_ones()).sum();
                if bits > 0 {
                    count += bits;
                    heard.store(true, Ordering::Release);
                }
                thread::yield_now();
            }
            assert_eq!(count, ROUNDS);
        });
    }
}
