//! Registered memory.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use weft_proto::transport::Sge;

use crate::error::Error;
use crate::link::Link;
use crate::protocol::Command;
use crate::shm::{Block, OutOfRange};

/// Memory that messages are sent from and placed in: a memfd of this application that the daemon has mapped too.
///
/// Addresses are offsets: the first byte has address 0, for local work as for the peer. Bytes that a peer may be
/// writing at the moment can be read, but come in any mixture of old and new.
/// Dropping the region deregisters it, and that takes effect at once, whatever is in flight: a posted request that still
/// names it fails its queue pair with [`Status::LocalProtection`](crate::Status::LocalProtection) (see
/// [`Event::QpFailed`](crate::Event::QpFailed)), and a peer that still writes to it is refused.
/// So wait for the completions of its requests first.
#[derive(Debug)]
pub struct MemoryRegion {
    pub(crate) link: Arc<Link>,
    pub(crate) block: Block,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    pub(crate) registered: bool,
}

impl MemoryRegion {
    /// Bytes.
    pub const fn len(&self) -> usize {
        self.block.len()
    }

    /// Never.
    pub const fn is_empty(&self) -> bool {
        self.block.is_empty()
    }

    /// The key by which local work requests name this region.
    pub const fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key that lets a peer in, to be sent to it.
    pub const fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The scatter/gather entry of `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`OutOfRange`] if they do not lie inside.
    pub fn sge(&self, offset: u64, len: u32) -> Result<Sge, OutOfRange> {
        let end = offset.checked_add(u64::from(len)).ok_or(OutOfRange)?;
        if usize::try_from(end).map_err(|_| OutOfRange)? > self.len() {
            return Err(OutOfRange);
        }
        Ok(Sge { addr: offset, len, lkey: self.lkey })
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// [`OutOfRange`] if it does not fit inside; nothing was copied.
    pub fn copy_in(&mut self, offset: u64, data: &[u8]) -> Result<(), OutOfRange> {
        self.block.write(offset, data)
    }

    /// Copies the bytes at `offset` to `out`.
    ///
    /// # Errors
    /// [`OutOfRange`] if they do not lie inside; nothing was copied.
    pub fn copy_out(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfRange> {
        self.block.read(offset, out)
    }

    /// Reads up to `len` bytes of `file` at `file_offset` to `offset`, without a copy in between.
    /// Returns how many came: 0 at the end of the file.
    ///
    /// # Errors
    /// `InvalidInput` for a range outside of the region, else the system's error.
    pub fn read_from(&mut self, offset: u64, len: usize, file: impl AsFd, file_offset: u64) -> io::Result<usize> {
        self.block.read_from(offset, len, file, file_offset)
    }

    /// Writes up to `len` bytes at `offset` to `file` at `file_offset`, without a copy in between.
    /// Returns how many went.
    ///
    /// # Errors
    /// As for [`MemoryRegion::read_from`].
    pub fn write_to(&self, offset: u64, len: usize, file: impl AsFd, file_offset: u64) -> io::Result<usize> {
        self.block.write_to(offset, len, file, file_offset)
    }

    /// The eight bytes at `offset` as a number in the byte order of this machine, for atomic operations of this
    /// application on memory that atomics of peers change too. Both happen in one step each, in some order.
    ///
    /// # Errors
    /// [`OutOfRange`] if they do not all lie inside, or `offset` is not a multiple of 8.
    pub fn atomic(&self, offset: u64) -> Result<&AtomicU64, OutOfRange> {
        self.block.atomic(offset)
    }

    /// Deregisters the region and waits until the daemon has let go of it. As with dropping it, requests in flight that
    /// name it fail their queue pair.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] and [`Error::TimedOut`]: this application's mapping is gone all the same.
    pub fn deregister(mut self) -> Result<(), Error> {
        self.registered = false;
        self.link.request(Command::DeregisterMemory { lkey: self.lkey }, &[]).map(drop)
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if self.registered {
            self.link.farewell(Command::DeregisterMemory { lkey: self.lkey });
        }
    }
}
