//! Completion queues.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use weft_proto::transport::{Completion, CqId, QpNum};

use crate::error::Error;
use crate::layout::CompletionEntry;
use crate::link::{self, Link};
use crate::protocol::Command;
use crate::ring::{Consumer, Wake};
use crate::socket;
use crate::srq::{SrqShared, origin};
use crate::window::Windows;

/// Spin for so long before sleeping: about what going to sleep and being woken costs.
const SPIN: Duration = Duration::from_micros(20);
/// Look whether the daemon still lives once per so many polls that found nothing, for applications that only poll.
const POLLS_PER_CHECK: u32 = 4096;

/// Where the outstanding requests are that complete in a queue.
#[derive(Debug, Default)]
struct Users {
    queue_pairs: BTreeMap<QpNum, Arc<Windows>>,
    /// By tag. Held weakly: the queue pairs keep them.
    srqs: BTreeMap<u32, Weak<SrqShared>>,
}

/// What the queue pairs of a completion queue share with it.
#[derive(Debug)]
pub(crate) struct CqShared {
    link: Arc<Link>,
    id: CqId,
    users: Mutex<Users>,
}

impl CqShared {
    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, qp: QpNum, windows: &Arc<Windows>) {
        self.users().queue_pairs.entry(qp).or_insert_with(|| Arc::clone(windows));
    }

    pub(crate) fn remove(&self, qp: QpNum) {
        self.users().queue_pairs.remove(&qp);
    }

    pub(crate) fn add_srq(&self, srq: &Arc<SrqShared>) {
        let srqs = &mut self.users().srqs;
        srqs.retain(|_, known| known.strong_count() > 0);
        srqs.insert(srq.tag(), Arc::downgrade(srq));
    }
}

impl Drop for CqShared {
    fn drop(&mut self) {
        self.link.farewell(Command::DestroyCq { cq: self.id });
    }
}

/// Where finished work requests of one or more queue pairs are reported, in the order in which they finished.
///
/// Poll it, or [wait](Self::wait) for something to poll. Completions of a queue pair that was dropped are skipped.
#[derive(Debug)]
pub struct CompletionQueue {
    shared: Arc<CqShared>,
    ring: Consumer<CompletionEntry>,
    wake: OwnedFd,
    empty_polls: u32,
    /// Entries at the front of the ring that were found not to be urgent.
    calm: u32,
}

impl CompletionQueue {
    pub(crate) fn new(link: Arc<Link>, id: CqId, capacity: u32, ring: OwnedFd, wake: OwnedFd) -> Result<Self, Error> {
        let shared = Arc::new(CqShared { link, id, users: Mutex::default() });
        Ok(Self { shared, ring: Consumer::map(ring, capacity)?, wake, empty_polls: 0, calm: 0 })
    }

    pub(crate) const fn shared(&self) -> &Arc<CqShared> {
        &self.shared
    }

    /// The queue's name, as in [`Event::CqOverrun`](crate::Event::CqOverrun).
    pub fn id(&self) -> CqId {
        self.shared.id
    }

    /// Appends up to `most` completions to `out` and returns how many. Never waits.
    ///
    /// # Errors
    /// [`Error::DaemonGone`]: outstanding requests will never complete.
    pub fn poll(&mut self, out: &mut Vec<Completion>, most: usize) -> Result<usize, Error> {
        if !self.has_entries()? {
            self.check_now_and_then()?;
            return Ok(0);
        }
        let before = out.len();
        let users = self.shared.users();
        while out.len() - before < most {
            let Some(entry) = self.ring.pop().map_err(|_| Error::Protocol("completion ring"))? else { break };
            let completion = entry.decode().map_err(|_| Error::Protocol("completion entry"))?;
            self.calm = self.calm.saturating_sub(1);
            out.extend(users.translate(completion));
        }
        self.ring.release();
        Ok(out.len() - before)
    }

    /// Waits until there is a completion to poll, up to `timeout`; false if none came.
    ///
    /// # Errors
    /// As for [`CompletionQueue::poll`], within `timeout` or as soon as the daemon is gone.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.wait_for(Wake::Any, timeout)
    }

    /// Waits until there is a solicited or failed completion to poll, perhaps behind others, up to `timeout`; false if
    /// none came. Others do not wake the application.
    ///
    /// # Errors
    /// As for [`CompletionQueue::wait`].
    pub fn wait_solicited(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.wait_for(Wake::Urgent, timeout)
    }

    fn wait_for(&mut self, wake: Wake, timeout: Duration) -> Result<bool, Error> {
        let start = Instant::now();
        let deadline = link::deadline(timeout);
        while start.elapsed() < SPIN.min(timeout) {
            if self.has(wake)? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        loop {
            self.ring.arm(wake);
            if self.has(wake)? {
                return Ok(true);
            }
            self.check()?;
            if !self.sleep(deadline)? {
                return self.has(wake);
            }
        }
    }

    fn has(&mut self, wake: Wake) -> Result<bool, Error> {
        match wake {
            Wake::Any => self.has_entries(),
            Wake::Urgent => self.has_urgent(),
        }
    }

    fn has_urgent(&mut self) -> Result<bool, Error> {
        while let Some(entry) = self.ring.peek_ahead(self.calm).map_err(|_| Error::Protocol("completion ring"))? {
            if entry.is_urgent() {
                return Ok(true);
            }
            self.calm += 1;
        }
        Ok(false)
    }

    /// The next completion, waiting for one up to `timeout`. `None` if none came.
    ///
    /// # Errors
    /// As for [`CompletionQueue::wait`].
    pub fn next_completion(&mut self, timeout: Duration) -> Result<Option<Completion>, Error> {
        let deadline = link::deadline(timeout);
        let mut found = Vec::with_capacity(1);
        // More than one round only if completions of dropped queue pairs come first.
        while self.wait(deadline.saturating_duration_since(Instant::now()))? {
            self.poll(&mut found, 1)?;
            if let Some(completion) = found.pop() {
                return Ok(Some(completion));
            }
        }
        Ok(None)
    }

    fn has_entries(&mut self) -> Result<bool, Error> {
        self.ring.has_entries().map_err(|_| Error::Protocol("completion ring"))
    }

    fn check_now_and_then(&mut self) -> Result<(), Error> {
        self.empty_polls += 1;
        if self.empty_polls < POLLS_PER_CHECK {
            return if self.shared.link.is_gone() { Err(Error::DaemonGone) } else { Ok(()) };
        }
        self.empty_polls = 0;
        self.check()
    }

    /// Looks at the daemon's connection.
    fn check(&self) -> Result<(), Error> {
        self.shared.link.pump();
        if self.shared.link.is_gone() { Err(Error::DaemonGone) } else { Ok(()) }
    }

    /// Sleeps until the worker wakes us, a message comes or the daemon dies. False at the deadline.
    fn sleep(&self, deadline: Instant) -> Result<bool, Error> {
        let system = |source| Error::System { what: "wait for a completion", source };
        let woken = socket::wait(&[self.wake.as_fd(), self.shared.link.fd()], PollFlags::IN, deadline).map_err(system)?;
        let mut bytes = [0; 64];
        // Leftover bytes cost one idle round; the end of the stream means that the daemon is gone.
        if woken && matches!(rustix::net::recv(&self.wake, &mut bytes, rustix::net::RecvFlags::DONTWAIT), Ok((0, _))) {
            self.shared.link.mark_gone();
        }
        Ok(woken)
    }
}

impl Users {
    /// Puts the application's name for the request in, and makes room in its queue.
    fn translate(&self, completion: Completion) -> Option<Completion> {
        let shared = origin(completion.wr_id).filter(|_| completion.op.is_receive());
        // The place is free again even if the queue pair that took the receive was dropped.
        let shared = shared.map(|(tag, place)| self.srqs.get(&tag).and_then(Weak::upgrade)?.places.retire(place));
        let windows = self.queue_pairs.get(&completion.qp)?;
        let wr_id = match shared {
            Some(name) => name?,
            None if completion.op.is_receive() => windows.recv.retire(completion.wr_id),
            None => windows.send.retire(completion.wr_id),
        };
        Some(Completion { wr_id, ..completion })
    }
}
