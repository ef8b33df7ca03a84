//! Frame buffers: one pool of fixed chunks, handed around by reference-counted handles.
//!
//! The pool is shaped like an AF_XDP UMEM: one page-aligned block, equal chunks, frames at an offset inside
//! their chunk. A [`FrameRef`] is neither `Clone` nor `Copy`: whoever holds it must queue it, pass it on or give
//! it back with [`Pool::free`]. Flooding shares one buffer among several outputs ([`Pool::share`]); the chunk is
//! free again when the last handle is back. [`Pool::in_use`] is what the leak checks of the tests look at.

use alloc::vec;
use alloc::vec::Vec;

use crate::time::Instant;

/// A handle to a frame in a [`Pool`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame must be queued, sent or freed"]
pub struct FrameRef(u32);

/// What ordinary traffic of the kernel leaves undone: the `virtio_net_hdr` of the frame, in its native meaning.
/// Ports that can carry it pass it through; the others finish the work or drop the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// `VIRTIO_NET_HDR_F_*`: bit 0 = checksum still to be computed, bit 1 = checksum known good.
    pub flags: u8,
    /// `VIRTIO_NET_HDR_GSO_*`: 0 = an ordinary frame.
    pub gso_type: u8,
    /// Bytes of headers in front of the payload to be segmented.
    pub header_len: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// Where checksumming starts, from the start of the frame.
    pub checksum_start: u16,
    /// Where the checksum goes, from `checksum_start`.
    pub checksum_offset: u16,
}

impl Offload {
    /// True if the frame is a super-frame that somebody has yet to segment.
    pub const fn is_super_frame(&self) -> bool {
        self.gso_type != 0
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    offset: u32,
    len: u32,
    holders: u32,
    offload: Offload,
    priority: u8,
    /// 0 = unknown.
    preamble: u8,
    arrived: Instant,
}

/// Fixed frame buffers and their bookkeeping.
pub struct Pool {
    memory: Vec<u8>,
    base: usize,
    chunk: usize,
    headroom: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// Alignment of the block, one page, as a UMEM needs it.
const PAGE: usize = 4096;

impl Pool {
    /// A pool of `frames` chunks of `chunk` bytes, of which `headroom` stay free in front of a new frame.
    ///
    /// # Panics
    /// If the headroom leaves no room for a frame, or the pool would have more than 2^32 frames.
    pub fn new(frames: usize, chunk: usize, headroom: usize) -> Self {
        assert!(headroom < chunk, "headroom {headroom} leaves no room in a chunk of {chunk} bytes");
        let count = u32::try_from(frames).expect("at most 2^32 frames");
        let memory = vec![0; frames * chunk + PAGE];
        let base = memory.as_ptr().align_offset(PAGE);
        Self { memory, base, chunk, headroom, slots: vec![Slot::default(); frames], free: (0..count).rev().collect() }
    }

    /// Takes a free chunk; its frame is empty and starts after the headroom. `None` if all are in use.
    pub fn alloc(&mut self) -> Option<FrameRef> {
        let index = self.free.pop()?;
        // The headroom is below the chunk size, which fits: a chunk is at most a few pages.
        let offset = u32::try_from(self.headroom).unwrap_or(0);
        self.slots[index as usize] = Slot { offset, holders: 1, ..Slot::default() };
        Some(FrameRef(index))
    }

    /// Gives one handle back; the chunk is free again after the last.
    pub fn free(&mut self, frame: FrameRef) {
        let slot = &mut self.slots[frame.0 as usize];
        debug_assert!(slot.holders > 0, "a frame was freed twice");
        slot.holders -= 1;
        if slot.holders == 0 {
            self.free.push(frame.0);
        }
    }

    /// A second handle to the same bytes. A shared frame must not be written to.
    pub fn share(&mut self, frame: &FrameRef) -> FrameRef {
        self.slots[frame.0 as usize].holders += 1;
        FrameRef(frame.0)
    }

    /// True if more than one handle to the frame exists.
    pub fn is_shared(&self, frame: &FrameRef) -> bool {
        self.slots[frame.0 as usize].holders > 1
    }

    /// A private copy of a frame, or `None` if no chunk is free.
    pub fn copy(&mut self, frame: &FrameRef) -> Option<FrameRef> {
        let copy = self.alloc()?;
        let (from, to) = (frame.0 as usize, copy.0 as usize);
        let holders = self.slots[to].holders;
        self.slots[to] = Slot { holders, ..self.slots[from] };
        let start = self.base + from * self.chunk + self.slots[from].offset as usize;
        let target = self.base + to * self.chunk + self.slots[from].offset as usize;
        self.memory.copy_within(start..start + self.slots[from].len as usize, target);
        Some(copy)
    }

    /// The frame's bytes.
    pub fn bytes(&self, frame: &FrameRef) -> &[u8] {
        let slot = &self.slots[frame.0 as usize];
        let start = self.base + frame.0 as usize * self.chunk + slot.offset as usize;
        &self.memory[start..start + slot.len as usize]
    }

    /// The frame's bytes, to be changed in place. Only for a frame that is not shared.
    pub fn bytes_mut(&mut self, frame: &FrameRef) -> &mut [u8] {
        debug_assert!(!self.is_shared(frame), "a shared frame must not be written to");
        let slot = &self.slots[frame.0 as usize];
        let start = self.base + frame.0 as usize * self.chunk + slot.offset as usize;
        &mut self.memory[start..start + slot.len as usize]
    }

    /// All room from the frame's start to the end of its chunk, for a writer that calls [`Pool::set_len`] afterwards.
    pub fn room_mut(&mut self, frame: &FrameRef) -> &mut [u8] {
        let end = self.base + (frame.0 as usize + 1) * self.chunk;
        let start = self.base + frame.0 as usize * self.chunk + self.slots[frame.0 as usize].offset as usize;
        &mut self.memory[start..end]
    }

    /// Bytes that fit behind the headroom of a new frame.
    pub const fn capacity(&self) -> usize {
        self.chunk - self.headroom
    }

    /// Declares the first `len` bytes of the room to be the frame.
    ///
    /// # Panics
    /// If `len` exceeds the room.
    pub fn set_len(&mut self, frame: &FrameRef, len: usize) {
        let slot = &mut self.slots[frame.0 as usize];
        assert!(slot.offset as usize + len <= self.chunk, "frame of {len} bytes in a chunk of {}", self.chunk);
        slot.len = u32::try_from(len).unwrap_or(0);
    }

    /// Moves the frame's start `bytes` forward into the headroom and returns whether there was room.
    /// The new bytes hold whatever was there before.
    pub fn grow_front(&mut self, frame: &FrameRef, bytes: usize) -> bool {
        let slot = &mut self.slots[frame.0 as usize];
        let Some(bytes) = u32::try_from(bytes).ok().filter(|&b| b <= slot.offset) else { return false };
        slot.offset -= bytes;
        slot.len += bytes;
        true
    }

    /// What the kernel left undone in this frame.
    pub fn offload(&self, frame: &FrameRef) -> Offload {
        self.slots[frame.0 as usize].offload
    }

    /// Records what the kernel left undone.
    pub fn set_offload(&mut self, frame: &FrameRef, offload: Offload) {
        self.slots[frame.0 as usize].offload = offload;
    }

    /// The stop control priority of a frame that this host sends, 0 to 15.
    pub fn priority(&self, frame: &FrameRef) -> u8 {
        self.slots[frame.0 as usize].priority
    }

    /// Sets that priority.
    pub fn set_priority(&mut self, frame: &FrameRef, priority: u8) {
        self.slots[frame.0 as usize].priority = priority;
    }

    /// Octets of preamble that a frame arrived with; `None` if its link does not say.
    pub fn preamble(&self, frame: &FrameRef) -> Option<u8> {
        Some(self.slots[frame.0 as usize].preamble).filter(|&octets| octets > 0)
    }

    /// Sets them. For links that see them, which no socket of Linux does.
    pub fn set_preamble(&mut self, frame: &FrameRef, octets: u8) {
        self.slots[frame.0 as usize].preamble = octets;
    }

    /// When a frame arrived, as exactly as its port knows; [`Instant::ZERO`] if it does not.
    pub fn arrived(&self, frame: &FrameRef) -> Instant {
        self.slots[frame.0 as usize].arrived
    }

    /// Sets that time.
    pub fn set_arrived(&mut self, frame: &FrameRef, at: Instant) {
        self.slots[frame.0 as usize].arrived = at;
    }

    /// Chunks that are free.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Chunks that somebody holds.
    pub fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pool").field("chunk", &self.chunk).field("in_use", &self.in_use()).field("available", &self.available()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_chunk_is_free_after_its_last_handle() {
        let mut pool = Pool::new(1, 256, 32);
        let frame = pool.alloc().unwrap();
        assert!(pool.alloc().is_none());
        let twin = pool.share(&frame);
        pool.free(frame);
        assert_eq!(pool.in_use(), 1);
        pool.free(twin);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn headroom_takes_a_header_in_front_and_no_more() {
        let mut pool = Pool::new(1, 64, 8);
        let frame = pool.alloc().unwrap();
        pool.room_mut(&frame)[..3].copy_from_slice(b"abc");
        pool.set_len(&frame, 3);
        assert!(pool.grow_front(&frame, 4));
        assert_eq!(&pool.bytes(&frame)[4..], b"abc");
        assert!(!pool.grow_front(&frame, 5));
        pool.free(frame);
    }

    #[test]
    fn a_copy_has_the_same_bytes_in_another_chunk() {
        let mut pool = Pool::new(2, 64, 8);
        let frame = pool.alloc().unwrap();
        pool.room_mut(&frame)[..3].copy_from_slice(b"abc");
        pool.set_len(&frame, 3);
        let copy = pool.copy(&frame).unwrap();
        pool.bytes_mut(&copy)[0] = b'x';
        assert_eq!((pool.bytes(&frame), pool.bytes(&copy)), (&b"abc"[..], &b"xbc"[..]));
        pool.free(frame);
        pool.free(copy);
    }
}
