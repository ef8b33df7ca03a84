//! Memory shared between an application and the daemon: creation, verification, mapping, bounded access.
//!
//! This module holds all unsafe code of the crate. It never hands out a slice of shared memory, because the other
//! process may write it at any time: bytes are copied in and out, control words are reached through atomics.
//! Both sides call it: the daemon for rings it creates and regions it is given, the application for the opposite.
#![allow(unsafe_code)] // mmap, and copies to and from memory that Rust does not own

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{FallocateFlags, FileType, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// `f_type` of tmpfs, where memfds live (`linux/magic.h`).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Why a file descriptor cannot serve as shared memory.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// Another kind of file, huge pages included: touching those may fault when the pool is empty.
    #[error("shared memory must be an ordinary memfd (memfd_create without MFD_HUGETLB)")]
    NotMemfd,
    /// The owner could truncate it, and whoever touches the lost pages dies.
    #[error("shared memory must carry F_SEAL_SHRINK: create the memfd with MFD_ALLOW_SEALING and seal it before passing it")]
    NotSealed,
    /// Shorter than announced.
    #[error("shared memory has {has} bytes, {needs} were announced")]
    TooShort {
        /** Bytes of the file. */
        has: u64,
        /** Bytes announced. */
        needs: u64,
    },
    /// No bytes, or more than the address space has.
    #[error("{0} bytes cannot be mapped")]
    BadLength(u64),
    /// The kernel refused.
    #[error("cannot {what} shared memory: {source}")]
    Os {
        /** What was tried. */
        what: &'static str,
        /** What the kernel said. */
        source: io::Error,
    },
}

fn os(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> ShmError {
    move |errno| ShmError::Os { what, source: errno.into() }
}

/// The range lies outside of the block. Nothing was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("range outside of the mapped memory")]
pub struct OutOfRange;

/// A mapped piece of shared memory; unmapped when dropped.
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Block {}
// SAFETY: `&self` only reads bytes and reaches atomics; writing bytes needs `&mut self`.
unsafe impl Sync for Block {}

impl Block {
    /// A new block of `len` zero bytes and the memfd to share it by. Its size is sealed.
    ///
    /// # Errors
    /// When the kernel has no memory, address space or descriptors left.
    pub fn create(name: &str, len: usize) -> Result<(Self, OwnedFd), ShmError> {
        let size = u64::try_from(len).map_err(|_| ShmError::BadLength(u64::MAX))?;
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(os("create"))?;
        // Allocated now: later, a system out of memory would kill whoever touches a page first.
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, size).map_err(os("allocate"))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(os("seal"))?;
        let block = Self::map(&fd, size)?;
        Ok((block, fd))
    }

    /// Maps the first `len` bytes of a memfd that the other side sent, after checking that touching them cannot fault.
    ///
    /// # Errors
    /// [`ShmError`] names what is wrong with the descriptor.
    pub fn map(fd: impl AsFd, len: u64) -> Result<Self, ShmError> {
        verify(fd.as_fd(), len)?;
        let size = usize::try_from(len).ok().filter(|&size| size > 0).ok_or(ShmError::BadLength(len))?;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing that exists is replaced.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd, 0) }
            .map_err(os("map"))?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(ShmError::BadLength(len))?;
        Ok(Self { start, len: size })
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Never: an empty block cannot be mapped.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of `len` bytes at `offset`, if they lie inside.
    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, OutOfRange> {
        let offset = usize::try_from(offset).map_err(|_| OutOfRange)?;
        let end = offset.checked_add(len).ok_or(OutOfRange)?;
        if end > self.len {
            return Err(OutOfRange);
        }
        // SAFETY: `offset <= len`, inside (or one past) the mapping.
        Ok(unsafe { self.start.as_ptr().add(offset) })
    }

    /// Copies `out.len()` bytes at `offset` into `out`. Bytes that the other side writes meanwhile may come torn.
    ///
    /// # Errors
    /// [`OutOfRange`] if they do not all lie inside.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfRange> {
        let source = self.at(offset, out.len())?;
        // SAFETY: `at` checked the source range; `out` is private memory, so the ranges do not overlap. The mapping is
        // memory outside of Rust's objects: a concurrent write by the other process can only change which bytes come.
        unsafe { std::ptr::copy_nonoverlapping(source.cast_const(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies `data` to `offset`.
    ///
    /// # Errors
    /// [`OutOfRange`] if it does not all fit inside.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), OutOfRange> {
        let target = self.at(offset, data.len())?;
        // SAFETY: `at` checked the target range; `data` is private memory, so the ranges do not overlap, and `&mut self`
        // keeps other users of this mapping in this process away.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), target, data.len()) };
        Ok(())
    }

    /// Reads up to `len` bytes of `file` at `file_offset` straight to `offset`; returns how many came (0 = end of file).
    ///
    /// # Errors
    /// `InvalidInput` for a range outside of the block, else the system's error.
    pub fn read_from(&mut self, offset: u64, len: usize, file: impl AsFd, file_offset: u64) -> io::Result<usize> {
        let target = self.at(offset, len).map_err(invalid)?;
        let position = libc::off_t::try_from(file_offset).map_err(invalid)?;
        // SAFETY: `at` checked that the kernel may write `len` bytes there.
        let count = unsafe { libc::pread(file.as_fd().as_raw_fd(), target.cast::<c_void>(), len, position) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Writes up to `len` bytes at `offset` straight to `file` at `file_offset`; returns how many went.
    ///
    /// # Errors
    /// As for [`Block::read_from`].
    pub fn write_to(&self, offset: u64, len: usize, file: impl AsFd, file_offset: u64) -> io::Result<usize> {
        let source = self.at(offset, len).map_err(invalid)?;
        let position = libc::off_t::try_from(file_offset).map_err(invalid)?;
        // SAFETY: `at` checked that the kernel may read `len` bytes there.
        let count = unsafe { libc::pwrite(file.as_fd().as_raw_fd(), source.cast_const().cast::<c_void>(), len, position) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// The 32-bit control word at `offset`, a constant of [`crate::layout`].
    ///
    /// # Panics
    /// If the word is not aligned inside the block: the caller checked the block's length when mapping it.
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len, "control word outside of its block");
        // SAFETY: in bounds and aligned (a mapping starts at a page); atomics may be shared with another process.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// The 64-bit control word at `offset`, a constant of [`crate::layout`].
    ///
    /// # Panics
    /// As for [`Block::word32`].
    pub fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len, "control word outside of its block");
        // SAFETY: as in `word32`.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }
}

impl Block {
    /// The eight bytes at `offset` as one number that both sides may change in one step.
    ///
    /// # Errors
    /// [`OutOfRange`] if they do not all lie inside, or `offset` is not a multiple of 8.
    pub fn atomic(&self, offset: u64) -> Result<&AtomicU64, OutOfRange> {
        let start = self.at(offset, size_of::<AtomicU64>())?;
        if !offset.is_multiple_of(8) {
            return Err(OutOfRange);
        }
        // SAFETY: `at` checked the range, a mapping starts at a page and the offset is a multiple of 8; atomics may be
        // shared with another process. The reference borrows `self`, so the mapping stays.
        Ok(unsafe { AtomicU64::from_ptr(start.cast()) })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map` and nothing borrowed from it outlives `self`.
        // It fails only for a bad range, which this is not; there is nobody to tell.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// Checks that `len` bytes of `fd` can be touched without a fault: a memfd whose owner can no longer truncate it.
/// Only memfds can carry `F_SEAL_SHRINK`; files on a mounted tmpfs, which may be full, are born sealed against it.
fn verify(fd: rustix::fd::BorrowedFd<'_>, len: u64) -> Result<(), ShmError> {
    let status = rustix::fs::fstat(fd).map_err(os("inspect"))?;
    let system = rustix::fs::fstatfs(fd).map_err(os("inspect"))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile || u64::try_from(system.f_type).ok() != Some(TMPFS_MAGIC) {
        return Err(ShmError::NotMemfd);
    }
    if !rustix::fs::fcntl_get_seals(fd).map_err(os("inspect"))?.contains(SealFlags::SHRINK) {
        return Err(ShmError::NotSealed);
    }
    let has = u64::try_from(status.st_size).unwrap_or(0);
    if has < len { Err(ShmError::TooShort { has, needs: len }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
