//! Application memory of a simulated host, which knows who may still touch which bytes.
//!
//! Every message of the world has bytes of its own, so "delivered" and "given back" can be enforced to the byte: once
//! a completion has been handed to the application its range is sealed, and a write into a sealed range, or any access to
//! a block that was deregistered, is a violation that the checks of the world report.

use std::cell::RefCell;
use std::ops::Range;

use weft_proto::transport::{MemId, Memory, MemoryGone};

/// What a byte holds before anything is delivered to it.
pub const CANARY: u8 = 0xee;

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    sealed: Vec<Range<usize>>,
    gone: bool,
}

/// All blocks of a host, by number.
#[derive(Debug, Default)]
pub struct Blocks {
    blocks: Vec<Block>,
    violation: RefCell<Option<String>>,
}

impl Blocks {
    /// A new block of `len` bytes, all [`CANARY`].
    ///
    /// # Panics
    /// After 2^32 blocks.
    pub fn add(&mut self, len: usize) -> MemId {
        let number = u32::try_from(self.blocks.len()).expect("fewer than 2^32 blocks");
        self.blocks.push(Block { bytes: vec![CANARY; len], sealed: Vec::new(), gone: false });
        MemId(number)
    }

    /// The bytes of a block.
    pub fn bytes(&self, mem: MemId) -> &[u8] {
        &self.blocks[mem.0 as usize].bytes
    }

    /// The bytes of a block, as the application itself writes them.
    pub fn bytes_mut(&mut self, mem: MemId) -> &mut [u8] {
        &mut self.blocks[mem.0 as usize].bytes
    }

    /// From now on nobody may write these bytes.
    pub fn seal(&mut self, mem: MemId, range: Range<usize>) {
        if !range.is_empty() {
            self.blocks[mem.0 as usize].sealed.push(range);
        }
    }

    /// From now on nobody may touch the block.
    pub fn give_back(&mut self, mem: MemId) {
        self.blocks[mem.0 as usize].gone = true;
    }

    /// What was done that must not be done, once.
    pub fn take_violation(&mut self) -> Option<String> {
        self.violation.take()
    }

    fn complain(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    fn range(&self, mem: MemId, offset: u64, len: usize) -> Result<Range<usize>, MemoryGone> {
        let block = self.blocks.get(mem.0 as usize).ok_or(MemoryGone)?;
        let start = usize::try_from(offset).map_err(|_| MemoryGone)?;
        let end = start.checked_add(len).filter(|&end| end <= block.bytes.len()).ok_or(MemoryGone)?;
        if block.gone {
            self.complain(format!("block {} was touched at {start} after it was given back", mem.0));
        }
        Ok(start..end)
    }
}

impl Memory for Blocks {
    fn read(&self, mem: MemId, offset: u64, out: &mut [u8]) -> Result<(), MemoryGone> {
        let range = self.range(mem, offset, out.len())?;
        out.copy_from_slice(&self.blocks[mem.0 as usize].bytes[range]);
        Ok(())
    }

    fn write(&mut self, mem: MemId, offset: u64, data: &[u8]) -> Result<(), MemoryGone> {
        let range = self.range(mem, offset, data.len())?;
        let block = &self.blocks[mem.0 as usize];
        if let Some(sealed) = block.sealed.iter().find(|sealed| sealed.start < range.end && range.start < sealed.end) {
            self.complain(format!("block {}: {range:?} written, though {sealed:?} had been completed", mem.0));
        }
        self.blocks[mem.0 as usize].bytes[range].copy_from_slice(data);
        Ok(())
    }
}

/// Fills `out` with the bytes of message `id`: different for each message and not periodic.
pub fn fill_pattern(id: u64, out: &mut [u8]) {
    for (chunk, index) in out.chunks_mut(8).zip(0u64..) {
        chunk.copy_from_slice(&pattern_word(id, index)[..chunk.len()]);
    }
}

/// Where `bytes` stop being the bytes of message `id`, if they do.
pub fn find_difference(id: u64, bytes: &[u8]) -> Option<usize> {
    let chunk = bytes.chunks(8).zip(0u64..).position(|(chunk, index)| chunk != &pattern_word(id, index)[..chunk.len()])?;
    let expected = pattern_word(id, chunk as u64);
    bytes[chunk * 8..].iter().zip(expected).position(|(&byte, expected)| byte != expected).map(|at| chunk * 8 + at)
}

/// Eight bytes of the pattern: a multiplicative hash of message and position.
fn pattern_word(id: u64, index: u64) -> [u8; 8] {
    let mixed = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ mixed >> 32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_into_a_sealed_range_is_a_violation_and_one_beside_it_is_not() {
        let mut blocks = Blocks::default();
        let mem = blocks.add(30);
        blocks.seal(mem, 10..20);
        blocks.write(mem, 0, &[0; 10]).unwrap();
        blocks.write(mem, 20, &[0; 10]).unwrap();
        assert_eq!(blocks.take_violation(), None);
        blocks.write(mem, 19, &[0; 2]).unwrap();
        assert!(blocks.take_violation().unwrap().contains("10..20"));
    }

    #[test]
    fn a_block_given_back_must_not_even_be_read() {
        let mut blocks = Blocks::default();
        let mem = blocks.add(30);
        blocks.give_back(mem);
        blocks.read(mem, 0, &mut [0; 4]).unwrap();
        assert!(blocks.take_violation().is_some());
    }

    #[test]
    fn the_first_wrong_byte_of_a_message_is_found() {
        let mut bytes = vec![0; 100];
        fill_pattern(7, &mut bytes);
        assert_eq!(find_difference(7, &bytes), None);
        assert!(find_difference(8, &bytes).is_some());
        bytes[77] ^= 1;
        assert_eq!(find_difference(7, &bytes), Some(77));
    }
}
