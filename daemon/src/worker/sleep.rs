//! How the worker waits: blocked until a frame, a doorbell, a command or a deadline.
//!
//! Deadlines are a timer descriptor because the time-out of `epoll_wait` counts in milliseconds and ours are
//! often tens of microseconds. The poll is edge-triggered: whoever registers a descriptor must have found it
//! empty before the worker sleeps, or its edge has been used up.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};
use weft_proto::Instant;

const TIMER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);
/// Which descriptor became ready does not matter, every stage looks for itself: a few events are as good as many.
const EVENTS: usize = 16;

/// Where the worker blocks.
#[derive(Debug)]
pub(super) struct Sleeper {
    poll: Poll,
    events: Events,
    timer: OwnedFd,
    waker: Arc<Waker>,
}

impl Sleeper {
    /// A sleeper that only its timer and its waker can wake.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub(super) fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        Ok(Self { poll, events: Events::with_capacity(EVENTS), timer, waker })
    }

    /// Where descriptors that shall wake the worker are registered, under any token below `usize::MAX - 1`.
    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// What other threads wake the worker with.
    pub(super) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Blocks until something happens, at the latest `until` (on the monotonic clock).
    ///
    /// # Errors
    /// If the kernel refuses to wait, which it does not for valid descriptors.
    pub(super) fn sleep(&mut self, until: Instant) -> io::Result<()> {
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &alarm(until))?;
        match self.poll.poll(&mut self.events, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }
}

/// A single alarm. Zero would disarm the timer, so the earliest alarm is one nanosecond after the origin.
fn alarm(until: Instant) -> Itimerspec {
    let nanos = until.as_nanos().max(1);
    let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
    let rest = i64::try_from(nanos % 1_000_000_000).unwrap_or(0);
    Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: Timespec { tv_sec: seconds, tv_nsec: rest } }
}
