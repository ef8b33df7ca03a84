//! A ring of fixed-size entries in shared memory: one producer, one consumer, two processes.
//!
//! Both sides count the entries they have written or taken in free-running 32-bit numbers and publish the count.
//! Each keeps its own count privately and never reads it back; the other side's count is hostile input: a count that
//! lies further off than the ring is long is [`Corrupt`], whatever it was meant to say. The capacity is agreed on
//! outside of the shared memory. So the worst that a hostile side achieves is that the entries it writes, or the
//! free room it claims, make no sense.
//!
//! Ordering: entries are written before the producer's count (release) and read after it (acquire); the same for the
//! consumer's count and the reuse of its entries.

use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use crate::layout::{ARMED_ANY, ARMED_URGENT, Entry, MAX_RING, RING_ARMED, RING_CONSUMER, RING_ENTRIES, RING_PRODUCER};
use crate::shm::{Block, ShmError};

/// The other side's count makes no sense: it is broken or hostile, and the ring is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side of a shared ring wrote an index that makes no sense")]
pub struct Corrupt;

/// Why an entry could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The consumer has not made room.
    #[error("the ring is full")]
    Full,
    /// See [`Corrupt`].
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// The mapped ring and what both ends need to find an entry.
#[derive(Debug)]
struct Ring<E> {
    block: Block,
    capacity: u32,
    entry: PhantomData<fn(E) -> E>,
}

/// Bytes of a ring of `capacity` entries of type `E`; `None` if the capacity is not a power of two up to [`MAX_RING`].
pub fn ring_len<E: Entry>(capacity: u32) -> Option<usize> {
    if !capacity.is_power_of_two() || capacity > MAX_RING {
        return None;
    }
    Some(RING_ENTRIES + usize::try_from(capacity).ok()? * size_of::<E>())
}

fn checked_len<E: Entry>(capacity: u32) -> Result<usize, ShmError> {
    ring_len::<E>(capacity).ok_or_else(|| ShmError::BadLength(capacity.into()))
}

impl<E: Entry> Ring<E> {
    fn create(name: &str, capacity: u32) -> Result<(Self, OwnedFd), ShmError> {
        let (block, fd) = Block::create(name, checked_len::<E>(capacity)?)?;
        Ok((Self { block, capacity, entry: PhantomData }, fd))
    }

    fn map(fd: impl AsFd, capacity: u32) -> Result<Self, ShmError> {
        let len = checked_len::<E>(capacity)?;
        let block = Block::map(fd, u64::try_from(len).map_err(|_| ShmError::BadLength(u64::MAX))?)?;
        Ok(Self { block, capacity, entry: PhantomData })
    }

    /// Where entry number `index` lies.
    fn offset(&self, index: u32) -> u64 {
        let slot = u64::from(index & (self.capacity - 1));
        RING_ENTRIES as u64 + slot * size_of::<E>() as u64
    }

    /// Steps from `from` on to `to`, which cannot be more than the capacity.
    fn distance(&self, from: u32, to: u32) -> Result<u32, Corrupt> {
        let steps = to.wrapping_sub(from);
        if steps <= self.capacity { Ok(steps) } else { Err(Corrupt) }
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Producer<E> {
    ring: Ring<E>,
    produced: u32,
    /// The consumer's count when last looked at: spares its cache line.
    consumed: u32,
}

impl<E: Entry> Producer<E> {
    /// A new ring, and the memfd by which the other process maps its end.
    ///
    /// # Errors
    /// [`ShmError`], also for a capacity that is no power of two.
    pub fn create(name: &str, capacity: u32) -> Result<(Self, OwnedFd), ShmError> {
        let (ring, fd) = Ring::create(name, capacity)?;
        Ok((Self { ring, produced: 0, consumed: 0 }, fd))
    }

    /// The writing end of a new ring that the other process created.
    ///
    /// # Errors
    /// As for [`Producer::create`].
    pub fn map(fd: impl AsFd, capacity: u32) -> Result<Self, ShmError> {
        Ok(Self { ring: Ring::map(fd, capacity)?, produced: 0, consumed: 0 })
    }

    /// Entries that the ring holds.
    pub const fn capacity(&self) -> u32 {
        self.ring.capacity
    }

    /// The shared memory, to be unmapped where there is time for it.
    pub fn into_block(self) -> Block {
        self.ring.block
    }

    /// Entries written so far, modulo 2^32.
    pub const fn produced(&self) -> u32 {
        self.produced
    }

    /// Entries that the consumer has taken so far, modulo 2^32.
    ///
    /// # Errors
    /// [`Corrupt`] if its count makes no sense.
    pub fn consumed(&mut self) -> Result<u32, Corrupt> {
        let consumed = self.ring.block.word32(RING_CONSUMER).load(Ordering::Acquire);
        self.ring.distance(consumed, self.produced)?;
        self.consumed = consumed;
        Ok(consumed)
    }

    /// Writes an entry. The consumer sees it after [`Producer::publish`].
    ///
    /// # Errors
    /// [`PushError`]; nothing was written.
    pub fn push(&mut self, entry: &E) -> Result<(), PushError> {
        let full = self.ring.capacity;
        if self.produced.wrapping_sub(self.consumed) == full && self.produced.wrapping_sub(self.consumed()?) == full {
            return Err(PushError::Full);
        }
        let offset = self.ring.offset(self.produced);
        self.ring.block.write(offset, entry.as_bytes()).map_err(|_| Corrupt)?;
        self.produced = self.produced.wrapping_add(1);
        Ok(())
    }

    /// Shows the consumer all entries written so far.
    pub fn publish(&self) {
        self.ring.block.word32(RING_PRODUCER).store(self.produced, Ordering::Release);
    }

    /// True if the consumer asked, since the last call, to be woken by what was published; `urgent` tells whether any of
    /// that wakes also a consumer that waits for urgent entries only. Call it after [`Producer::publish`].
    pub fn take_armed(&self, urgent: bool) -> bool {
        // Pairs with the fence in `Consumer::arm`: either we see the flag or the consumer sees the entry.
        fence(Ordering::SeqCst);
        let armed = self.ring.block.word32(RING_ARMED);
        match armed.load(Ordering::Relaxed) {
            0 => false,
            ARMED_URGENT if !urgent => false,
            _ => armed.swap(0, Ordering::Relaxed) != 0,
        }
    }
}

/// What a consumer wants to be woken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Every entry.
    Any,
    /// Entries that their producer calls urgent: completions that are solicited or failed.
    Urgent,
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer<E> {
    ring: Ring<E>,
    consumed: u32,
    /// The producer's count when last looked at: spares its cache line.
    produced: u32,
}

impl<E: Entry> Consumer<E> {
    /// A new ring, and the memfd by which the other process maps its end.
    ///
    /// # Errors
    /// As for [`Producer::create`].
    pub fn create(name: &str, capacity: u32) -> Result<(Self, OwnedFd), ShmError> {
        let (ring, fd) = Ring::create(name, capacity)?;
        Ok((Self { ring, consumed: 0, produced: 0 }, fd))
    }

    /// The reading end of a new ring that the other process created.
    ///
    /// # Errors
    /// As for [`Producer::create`].
    pub fn map(fd: impl AsFd, capacity: u32) -> Result<Self, ShmError> {
        Ok(Self { ring: Ring::map(fd, capacity)?, consumed: 0, produced: 0 })
    }

    /// Entries that the ring holds.
    pub const fn capacity(&self) -> u32 {
        self.ring.capacity
    }

    /// The shared memory, to be unmapped where there is time for it.
    pub fn into_block(self) -> Block {
        self.ring.block
    }

    /// True if an entry can be taken.
    ///
    /// # Errors
    /// [`Corrupt`] if the producer's count makes no sense.
    pub fn has_entries(&mut self) -> Result<bool, Corrupt> {
        if self.produced == self.consumed {
            let produced = self.ring.block.word32(RING_PRODUCER).load(Ordering::Acquire);
            self.ring.distance(self.consumed, produced)?;
            self.produced = produced;
        }
        Ok(self.produced != self.consumed)
    }

    /// Copies the next entry out, without taking it.
    ///
    /// # Errors
    /// As for [`Consumer::has_entries`].
    pub fn peek(&mut self) -> Result<Option<E>, Corrupt> {
        if !self.has_entries()? {
            return Ok(None);
        }
        let mut entry = E::new_zeroed();
        self.ring.block.read(self.ring.offset(self.consumed), entry.as_mut_bytes()).map_err(|_| Corrupt)?;
        Ok(Some(entry))
    }

    /// Takes the entry that [`Consumer::peek`] has shown.
    pub const fn advance(&mut self) {
        if self.produced != self.consumed {
            self.consumed = self.consumed.wrapping_add(1);
        }
    }

    /// Copies the next entry out and takes it. The producer may reuse its place after [`Consumer::release`].
    ///
    /// # Errors
    /// As for [`Consumer::has_entries`].
    pub fn pop(&mut self) -> Result<Option<E>, Corrupt> {
        let entry = self.peek()?;
        self.advance();
        Ok(entry)
    }

    /// Gives the places of all entries taken so far back to the producer.
    pub fn release(&self) {
        self.ring.block.word32(RING_CONSUMER).store(self.consumed, Ordering::Release);
    }

    /// Copies out the entry `ahead` places behind the next one, without taking any. `None` if there is none.
    ///
    /// # Errors
    /// As for [`Consumer::has_entries`].
    pub fn peek_ahead(&mut self, ahead: u32) -> Result<Option<E>, Corrupt> {
        let produced = self.ring.block.word32(RING_PRODUCER).load(Ordering::Acquire);
        let waiting = self.ring.distance(self.consumed, produced)?;
        self.produced = produced;
        if ahead >= waiting {
            return Ok(None);
        }
        let mut entry = E::new_zeroed();
        self.ring.block.read(self.ring.offset(self.consumed.wrapping_add(ahead)), entry.as_mut_bytes()).map_err(|_| Corrupt)?;
        Ok(Some(entry))
    }

    /// Asks to be woken at the next entry, or only at the next urgent one. The caller must look for entries once more
    /// before it sleeps.
    pub fn arm(&self, wake: Wake) {
        let value = match wake {
            Wake::Any => ARMED_ANY,
            Wake::Urgent => ARMED_URGENT,
        };
        self.ring.block.word32(RING_ARMED).store(value, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
