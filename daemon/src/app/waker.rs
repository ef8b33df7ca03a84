//! How a sleeping worker is woken by any of its applications.
//!
//! Each application has an eventfd of its own, which it could also read or leave full, so it can only oversleep its own
//! wake-ups. All of them hang in one epoll instance, edge-triggered, so that the worker waits for a single descriptor
//! and never reads or writes an eventfd, which an application could have made blocking.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// The doorbells of all applications.
#[derive(Debug)]
pub(crate) struct Waker {
    epoll: OwnedFd,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    pub(crate) fn add(&self, doorbell: &OwnedFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, doorbell, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?)
    }

    /// Must come before `doorbell` is dropped: the application's copy would keep it in the set.
    pub(crate) fn remove(&self, doorbell: &OwnedFd) {
        // Fails only if it is not in the set.
        let _ = epoll::delete(&self.epoll, doorbell);
    }

    /// Readable when an application rang.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Makes the descriptor unreadable until the next ring.
    pub(crate) fn clear(&self) {
        let mut events = [MaybeUninit::uninit(); 64];
        // What remains ready beyond 64 applications wakes the worker once more, and an error just as well.
        let _ = epoll::wait(&self.epoll, &mut events[..], Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }));
    }
}
