//! What is outstanding, and the application's names for it.
//!
//! The rings carry numbers of this library instead of the application's names. So a completion tells which requests
//! are done, and makes room, without a lock between the posting and the polling thread.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::PostError;
use crate::layout::Entry;
use crate::ring::{Producer, PushError};

/// The outstanding requests of one direction of a queue pair. They complete in order, so consecutive numbers do: a
/// completion also retires the unsignalled requests before it.
#[derive(Debug)]
pub(crate) struct Window {
    depth: u64,
    names: Box<[AtomicU64]>,
    /// Requests below this number are done.
    retired: AtomicU64,
}

impl Window {
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth: depth.into(), names: names(depth), retired: AtomicU64::new(0) }
    }

    fn name(&self, number: u64) -> &AtomicU64 {
        let place = number % self.names.len() as u64;
        &self.names[usize::try_from(place).unwrap_or(0)]
    }

    pub(crate) fn has_room(&self, next: u64) -> bool {
        // Acquire: the name must not be overwritten before the polling thread has read it.
        next.saturating_sub(self.retired.load(Ordering::Acquire)) < self.depth
    }

    pub(crate) fn set_name(&self, number: u64, name: u64) {
        self.name(number).store(name, Ordering::Relaxed);
    }

    /// A completion for request `number` came: the application's name for it.
    pub(crate) fn retire(&self, number: u64) -> u64 {
        let name = self.name(number).load(Ordering::Relaxed);
        self.retired.fetch_max(number.saturating_add(1), Ordering::Release);
        name
    }
}

/// The windows of a queue pair, shared with its completion queues.
#[derive(Debug)]
pub(crate) struct Windows {
    pub(crate) send: Window,
    pub(crate) recv: Window,
}

/// The outstanding receives of a shared receive queue. They complete in any order, in several completion queues, each
/// perhaps polled by another thread; one thread posts.
#[derive(Debug)]
pub(crate) struct Places {
    names: Box<[AtomicU64]>,
    /// A bit per place: set if it is free.
    free: Box<[AtomicU64]>,
}

impl Places {
    pub(crate) fn new(depth: u32) -> Self {
        let bits = |word: u32| u64::MAX >> (64 - (depth - word * 64).min(64));
        Self { names: names(depth), free: (0..depth.div_ceil(64)).map(|word| AtomicU64::new(bits(word))).collect() }
    }

    /// Takes a free place for a receive, looking from the word of `hint` on. For the posting thread alone.
    pub(crate) fn take(&self, hint: u32, name: u64) -> Option<u32> {
        let words = self.free.len();
        let word = (0..words).map(|step| (hint as usize / 64 + step) % words).find(|word| {
            // Acquire: the name must not be overwritten before the polling thread has read it.
            self.free[*word].load(Ordering::Acquire) != 0
        })?;
        let bit = self.free[word].load(Ordering::Acquire).trailing_zeros();
        self.free[word].fetch_and(!(1 << bit), Ordering::Relaxed);
        let place = u32::try_from(word).unwrap_or(0) * 64 + bit;
        self.names.get(place as usize)?.store(name, Ordering::Relaxed);
        Some(place)
    }

    /// A completion for the receive at `place` came: the application's name for it. `None` if there is no such place.
    pub(crate) fn retire(&self, place: u32) -> Option<u64> {
        let name = self.names.get(place as usize)?.load(Ordering::Relaxed);
        self.free[place as usize / 64].fetch_or(1 << (place % 64), Ordering::Release);
        Some(name)
    }
}

fn names(depth: u32) -> Box<[AtomicU64]> {
    (0..depth.max(1)).map(|_| AtomicU64::new(0)).collect()
}

/// Writes an entry and shows it to the worker.
pub(crate) fn push<E: Entry>(ring: &mut Producer<E>, entry: &E) -> Result<(), PostError> {
    match ring.push(entry) {
        Ok(()) => {}
        Err(PushError::Full) => return Err(PostError::QueueFull),
        Err(PushError::Corrupt(_)) => return Err(PostError::DaemonGone),
    }
    ring.publish();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_taken_once_and_again_after_it_came_back_in_any_order() {
        for depth in [1, 63, 64, 65, 200] {
            let places = Places::new(depth);
            let mut taken: Vec<u32> = (0..depth).map(|name| places.take(name, name.into()).unwrap()).collect();
            assert_eq!(places.take(0, 0), None, "full");
            assert_eq!(places.retire(depth), None, "no such place");
            let back = taken.remove(taken.len() / 2);
            assert!(places.retire(back).is_some());
            assert_eq!(places.take(7, 1000), Some(back));
            assert_eq!(places.retire(back), Some(1000));
            taken.push(back);
            taken.sort_unstable();
            assert_eq!(taken, (0..depth).collect::<Vec<_>>());
        }
    }

    #[test]
    fn places_come_back_from_several_threads() {
        let places = Places::new(100);
        let (give, take) = std::sync::mpsc::channel::<u32>();
        let take = std::sync::Mutex::new(take);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let next = take.lock().unwrap().recv();
                        let Ok(place) = next else { break };
                        let name = places.retire(place).unwrap();
                        assert_eq!(name % 100, u64::from(place), "another receive's name");
                    }
                });
            }
            let mut round = 0;
            for number in 0..50_000_u32 {
                let place = loop {
                    if let Some(place) = places.take(number, 0) {
                        break place;
                    }
                    std::thread::yield_now();
                };
                round += 100;
                places.names[place as usize].store(round + u64::from(place), Ordering::Relaxed);
                give.send(place).unwrap();
            }
            drop(give);
        });
        assert!(places.free.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum::<u32>() == 100);
    }
}
