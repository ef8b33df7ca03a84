//! Completion queues.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use weft_proto::transport::{Completion, CompletionOp, CqId, QpNum};

use crate::error::Error;
use crate::layout::CompletionEntry;
use crate::link::Link;
use crate::protocol::Command;
use crate::qp::Windows;
use crate::ring::Consumer;
use crate::socket;

/// Spin for so long before sleeping: about what going to sleep and being woken costs.
const SPIN: Duration = Duration::from_micros(20);
/// Look whether the daemon still lives once per so many polls that found nothing, for applications that only poll.
const POLLS_PER_CHECK: u32 = 4096;

/// Outstanding requests by queue pair.
type QueuePairs = BTreeMap<QpNum, Arc<Windows>>;

/// What the queue pairs of a completion queue share with it.
#[derive(Debug)]
pub(crate) struct CqShared {
    link: Arc<Link>,
    id: CqId,
    queue_pairs: Mutex<QueuePairs>,
}

impl CqShared {
    fn queue_pairs(&self) -> MutexGuard<'_, QueuePairs> {
        self.queue_pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, qp: QpNum, windows: &Arc<Windows>) {
        self.queue_pairs().entry(qp).or_insert_with(|| Arc::clone(windows));
    }

    pub(crate) fn remove(&self, qp: QpNum) {
        self.queue_pairs().remove(&qp);
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
}

impl CompletionQueue {
    pub(crate) fn new(link: Arc<Link>, id: CqId, capacity: u32, ring: OwnedFd, wake: OwnedFd) -> Result<Self, Error> {
        let shared = Arc::new(CqShared { link, id, queue_pairs: Mutex::new(QueuePairs::new()) });
        Ok(Self { shared, ring: Consumer::map(ring, capacity)?, wake, empty_polls: 0 })
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
        let queue_pairs = self.shared.queue_pairs();
        while out.len() - before < most {
            let Some(entry) = self.ring.pop().map_err(|_| Error::Protocol("completion ring"))? else { break };
            let completion = entry.decode().map_err(|_| Error::Protocol("completion entry"))?;
            out.extend(translate(&queue_pairs, completion));
        }
        self.ring.release();
        Ok(out.len() - before)
    }

    /// Waits until there is a completion to poll, up to `timeout`; false if none came.
    ///
    /// # Errors
    /// As for [`CompletionQueue::poll`], within `timeout` or as soon as the daemon is gone.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        let start = Instant::now();
        let deadline = start + timeout;
        while start.elapsed() < SPIN.min(timeout) {
            if self.has_entries()? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        loop {
            self.ring.arm();
            if self.has_entries()? {
                return Ok(true);
            }
            self.check()?;
            if !self.sleep(deadline)? {
                return self.has_entries();
            }
        }
    }

    /// The next completion, waiting for one up to `timeout`. `None` if none came.
    ///
    /// # Errors
    /// As for [`CompletionQueue::wait`].
    pub fn next_completion(&mut self, timeout: Duration) -> Result<Option<Completion>, Error> {
        let deadline = Instant::now() + timeout;
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

/// Puts the application's name for the request in, and makes room in its queue.
fn translate(queue_pairs: &QueuePairs, completion: Completion) -> Option<Completion> {
    let windows = queue_pairs.get(&completion.qp)?;
    let window = match completion.op {
        op if op.is_receive() => &windows.recv,
        _ => &windows.send,
    };
    Some(Completion { wr_id: window.retire(completion.wr_id), ..completion })
}
