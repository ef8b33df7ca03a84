//! The mapped memory of applications, by the endpoint's names for it.
//!
//! A name carries the generation of its place, so that the name of memory that is gone never reaches another
//! application's memory that came to the same place.

use std::sync::atomic::Ordering;

use weft_proto::transport::{AppId, AtomicOp, MemId, Memory, MemoryGone};
use weft_verbs::shm::Block;

/// Bits of a name that tell the place; the others count generations.
const PLACE_BITS: u32 = 16;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    mapped: Option<(AppId, Block)>,
}

/// All mapped regions.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    places: Vec<Place>,
    free: Vec<u32>,
}

const fn index(mem: MemId) -> usize {
    (mem.0 & PLACE_MASK) as usize
}

impl Mappings {
    /// Takes memory in; gives it back if there is no place for it.
    pub(crate) fn insert(&mut self, owner: AppId, block: Block) -> Result<MemId, Block> {
        let number = match self.free.pop() {
            Some(number) => number,
            None => match u32::try_from(self.places.len()) {
                Ok(number) if number <= PLACE_MASK => {
                    self.places.push(Place::default());
                    number
                }
                _ => return Err(block),
            },
        };
        let place = &mut self.places[number as usize];
        place.mapped = Some((owner, block));
        Ok(MemId(place.generation << PLACE_BITS | number))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    fn find(&self, mem: MemId) -> Result<&Block, MemoryGone> {
        let place = self.places.get(index(mem)).filter(|place| place.generation == mem.0 >> PLACE_BITS);
        place.and_then(|place| place.mapped.as_ref()).map(|(_, block)| block).ok_or(MemoryGone)
    }

    /// Lets go of memory.
    pub(crate) fn remove(&mut self, mem: MemId) -> Option<Block> {
        self.find(mem).ok()?;
        self.vacate(index(mem))
    }

    /// Lets go of everything of an application.
    pub(crate) fn remove_all(&mut self, owner: AppId) -> Vec<Block> {
        let owned = |place: &Place| place.mapped.as_ref().is_some_and(|(app, _)| *app == owner);
        let places: Vec<usize> = (0..self.places.len()).filter(|at| owned(&self.places[*at])).collect();
        places.into_iter().filter_map(|at| self.vacate(at)).collect()
    }

    fn vacate(&mut self, at: usize) -> Option<Block> {
        let place = self.places.get_mut(at)?;
        let (_, block) = place.mapped.take()?;
        place.generation = place.generation.wrapping_add(1) & PLACE_MASK;
        self.free.push(u32::try_from(at).ok()?);
        Some(block)
    }
}

impl Memory for Mappings {
    fn read(&self, mem: MemId, offset: u64, out: &mut [u8]) -> Result<(), MemoryGone> {
        self.find(mem)?.read(offset, out).map_err(|_| MemoryGone)
    }

    fn write(&mut self, mem: MemId, offset: u64, data: &[u8]) -> Result<(), MemoryGone> {
        self.find(mem)?;
        let (_, block) = self.places.get_mut(index(mem)).and_then(|place| place.mapped.as_mut()).ok_or(MemoryGone)?;
        block.write(offset, data).map_err(|_| MemoryGone)
    }

    /// In one step, also as the application's own atomic operations see it.
    fn atomic(&mut self, mem: MemId, offset: u64, op: AtomicOp) -> Result<u64, MemoryGone> {
        let word = self.find(mem)?.atomic(offset).map_err(|_| MemoryGone)?;
        Ok(match op {
            AtomicOp::FetchAdd { add } => word.fetch_add(add, Ordering::SeqCst),
            AtomicOp::CompareSwap { compare, swap } => {
                word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|old| old)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;

    fn block(len: usize) -> Block {
        Block::create("test", len).unwrap().0
    }

    #[test]
    fn the_name_of_memory_that_is_gone_opens_nothing() {
        let mut mappings = Mappings::default();
        let first = mappings.insert(AppId(1), block(64)).unwrap();
        mappings.write(first, 60, b"abcd").unwrap();
        assert_eq!(mappings.write(first, 61, b"abcd"), Err(MemoryGone));
        assert_eq!(mappings.read(first, u64::MAX, &mut [0]), Err(MemoryGone));
        assert_eq!(mappings.remove_all(AppId(1)).len(), 1);
        let second = mappings.insert(AppId(2), block(64)).unwrap();
        assert_ne!(first, second);
        assert_eq!(mappings.read(first, 0, &mut [0]), Err(MemoryGone));
        assert_eq!(mappings.write(first, 0, &[0]), Err(MemoryGone));
        assert!(mappings.remove(first).is_none());
        assert!(mappings.remove_all(AppId(1)).is_empty());
        assert!(mappings.read(second, 60, &mut [0; 4]).is_ok());
    }

    #[test]
    fn atomics_and_the_applications_own_operations_on_a_word_lose_nothing_of_each_other() {
        const ROUNDS: u64 = 1_000_000;
        let (theirs, fd) = Block::create("test", 64).unwrap();
        let mut mappings = Mappings::default();
        let mem = mappings.insert(AppId(1), Block::map(&fd, 64).unwrap()).unwrap();
        let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let (mut swapped, own) = (0, AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    theirs.atomic(8).unwrap().fetch_add(1, Ordering::Relaxed);
                    own.fetch_add(1, Ordering::Relaxed);
                    begun.store(true, Ordering::Relaxed);
                }
            });
            while !begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            for _ in 0..ROUNDS {
                let compare = mappings.atomic(mem, 8, AtomicOp::FetchAdd { add: 1 }).unwrap() + 1;
                let old = mappings.atomic(mem, 8, AtomicOp::CompareSwap { compare, swap: compare + 1 }).unwrap();
                swapped += u64::from(old == compare);
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(theirs.atomic(8).unwrap().load(Ordering::Relaxed), ROUNDS + swapped + own.load(Ordering::Relaxed));
        for offset in [1, 60, 64, u64::MAX - 7] {
            assert_eq!(mappings.atomic(mem, offset, AtomicOp::FetchAdd { add: 1 }), Err(MemoryGone), "{offset}");
        }
    }
}
