//! The other threads' end of the worker: jobs go in, answers come back.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam::channel::{self, Receiver, Sender};
use mio::Waker;
use thiserror::Error;
use weft_proto::Instant;

use super::{Plane, Worker};

/// Something to be done between two batches, with everything the worker owns at hand. It must be short.
pub type Job = Box<dyn FnOnce(Instant, &mut Plane) + Send>;

/// How long an answer may take. A breath is far below a millisecond.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

/// The worker does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the worker does not answer")]
pub struct WorkerSilent;

/// The receiving end, for the worker.
pub(super) type Jobs = Receiver<Job>;

/// Sends jobs to a worker. Clones send to the same one.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    jobs: Sender<Job>,
    waker: Arc<Waker>,
}

impl WorkerHandle {
    /// A handle that wakes the worker with `waker`, and the end that the worker takes jobs from.
    pub(super) fn new(waker: Arc<Waker>) -> (Self, Jobs) {
        // Not bounded here: each asker is bounded in what it may leave unanswered.
        let (jobs, taken) = channel::unbounded();
        (Self { jobs, waker }, taken)
    }

    /// Has the worker run `job` at its next batch boundary.
    ///
    /// # Errors
    /// If the worker has ended.
    pub fn send(&self, job: impl FnOnce(Instant, &mut Plane) + Send + 'static) -> Result<(), WorkerSilent> {
        self.jobs.send(Box::new(job)).map_err(|_| WorkerSilent)?;
        self.waker.wake().map_err(|_| WorkerSilent)
    }

    /// Has the worker run `job` and waits for its answer.
    ///
    /// # Errors
    /// If the worker does not answer within a second.
    pub fn ask<T: Send + 'static>(&self, job: impl FnOnce(Instant, &mut Plane) -> T + Send + 'static) -> Result<T, WorkerSilent> {
        let (answer, answered) = channel::bounded(1);
        // The asker may have given up: then nobody is left to be told.
        self.send(move |now, worker| drop(answer.send(job(now, worker))))?;
        answered.recv_timeout(PATIENCE).map_err(|_| WorkerSilent)
    }
}

/// A worker on its thread.
#[derive(Debug)]
pub struct WorkerThread {
    thread: JoinHandle<()>,
}

/// Calls its function when the thread ends, also by a panic.
struct AtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl WorkerThread {
    /// Starts `worker`; `at_end` is called on its thread when it ends for whatever reason.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(mut worker: Worker, at_end: impl Fn() + Send + 'static) -> io::Result<Self> {
        let run = move || {
            let _end = AtEnd(at_end);
            worker.run();
        };
        Ok(Self { thread: thread::Builder::new().name("weft-worker".into()).spawn(run)? })
    }

    /// True once the worker has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end; false if it was a panic.
    pub fn join(self) -> bool {
        self.thread.join().is_ok()
    }
}
