//! The worker: one thread that owns ports, switch, transport and the applications' rings, and moves everything.
//!
//! Round after round: run the jobs of the control thread, read the clock once, [`Plane::breathe`], publish counters
//! now and then. When a round moved nothing for `worker.spin`, it blocks until a frame, a doorbell, a job or a
//! deadline. It takes no lock that anybody holds for long (the board is only tried) and never waits for another thread.
//!
//! | module | owns |
//! | --- | --- |
//! | `plane` | the breath: what moves, in which order |
//! | `interface`, `local` | the two kinds of port of the switch |
//! | `budget` | how much the local transport may send |
//! | `sleep` | blocking |
//! | `handle` | jobs from other threads |
//! | `publish` | counters to the board |

mod budget;
mod handle;
mod interface;
mod local;
mod plane;
mod publish;
mod sleep;

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use mio::unix::SourceFd;
use mio::{Interest, Token};
use rustix::thread::{CpuSet, sched_setaffinity};
use weft_proto::time::earliest;
use weft_proto::{Duration, Instant};

pub use handle::{Job, WorkerHandle, WorkerSilent, WorkerThread};
pub use local::{Local, Mailbox};
pub use plane::{Parts, Plane};

use crate::clock::Clock;
use crate::snapshot::Board;
use handle::Jobs;
use sleep::Sleeper;

/// A busy worker shows its counters this often.
const PUBLISH_EVERY: Duration = Duration::from_millis(10);
/// The longest sleep: a sign of life for whoever watches over the worker.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Jobs between two batches: an application that asks for much must not hold up the frames of others.
const JOBS_PER_TURN: usize = 32;
/// Behind the ports, which are numbered from zero.
const APPLICATIONS: Token = Token(1 << 16);

/// How the worker uses its processor.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Look for work this long before blocking.
    pub spin: Duration,
    /// Processor to stay on.
    pub cpu: Option<u32>,
}

/// The worker.
#[derive(Debug)]
pub struct Worker {
    plane: Plane,
    pace: Pace,
    clock: Clock,
    sleeper: Sleeper,
    jobs: Jobs,
    board: Arc<Board>,
    /// Descriptors of the ports as registered: number and generation.
    watched: Vec<Option<(RawFd, u32)>>,
    busy_at: Instant,
    published_at: Instant,
}

impl Worker {
    /// A worker for this data plane that shows its counters on `board`, and the handle to send it jobs.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn new(plane: Plane, pace: Pace, board: Arc<Board>) -> io::Result<(Self, WorkerHandle)> {
        let sleeper = Sleeper::new()?;
        let (handle, jobs) = WorkerHandle::new(sleeper.waker());
        let clock = Clock::new();
        let now = clock.now();
        let watched = vec![None; plane.interfaces.len()];
        let mut worker = Self { plane, pace, clock, sleeper, jobs, board, watched, busy_at: now, published_at: now };
        worker.watch_ports()?;
        worker.watch_applications()?;
        worker.board.breathe(now);
        worker.plane.publish(now, &worker.board);
        Ok((worker, handle))
    }

    /// Works until [`Plane::stop`] is done.
    pub fn run(&mut self) {
        self.pin();
        while !self.plane.is_stopped(self.clock.now()) {
            self.turn();
        }
        self.plane.close();
        self.plane.publish(self.clock.now(), &self.board);
    }

    /// One round.
    fn turn(&mut self) {
        let now = self.clock.tick();
        self.board.breathe(now);
        self.run_jobs(now);
        if self.plane.reopen_ports(now) {
            self.watch_or_warn();
        }
        if self.plane.breathe(now) > 0 {
            self.busy_at = now;
            self.publish_now_and_then(now);
        } else if now.since(self.busy_at) >= self.pace.spin {
            self.rest(now);
        }
    }

    fn run_jobs(&mut self, now: Instant) {
        for job in self.jobs.try_iter().take(JOBS_PER_TURN) {
            job(now, &mut self.plane);
            self.busy_at = now;
        }
    }

    fn publish_now_and_then(&mut self, now: Instant) {
        if now.since(self.published_at) >= PUBLISH_EVERY && self.plane.publish_in_passing(now, &self.board) {
            self.published_at = now;
        }
    }

    /// Blocks, unless something is due or an application has rung meanwhile.
    fn rest(&mut self, now: Instant) {
        self.publish_now_and_then(now);
        let due = earliest(self.plane.poll_timeout(now), Some(now + LONGEST_SLEEP));
        let stale = (self.busy_at >= self.published_at).then(|| self.published_at + PUBLISH_EVERY);
        let deadline = earliest(due, stale).unwrap_or(now);
        if deadline <= now || !self.jobs.is_empty() {
            return;
        }
        if self.plane.prepare_sleep() {
            self.plane.counters.sleeps += 1;
            if let Err(error) = self.sleeper.sleep(deadline) {
                tracing::error!(%error, "the worker cannot wait; it goes on without sleeping");
            }
            self.plane.finish_sleep();
        }
    }

    fn watch_or_warn(&mut self) {
        if let Err(error) = self.watch_ports() {
            tracing::error!(%error, "a port cannot be waited on; its frames are seen late");
        }
    }

    /// Registers descriptors that are new since last time. The kernel forgot the old ones when they were closed.
    fn watch_ports(&mut self) -> io::Result<()> {
        for (index, interface) in self.plane.interfaces.iter().enumerate() {
            let current = interface.port.fd().map(|fd| (fd, interface.port.generation()));
            if current == self.watched[index] {
                continue;
            }
            if let Some((fd, _)) = current {
                self.sleeper.registry().register(&mut SourceFd(&fd), Token(index), Interest::READABLE)?;
            }
            self.watched[index] = current;
        }
        Ok(())
    }

    fn watch_applications(&self) -> io::Result<()> {
        let Some(local) = &self.plane.local else { return Ok(()) };
        self.sleeper.registry().register(&mut SourceFd(&local.wake_fd()), APPLICATIONS, Interest::READABLE)
    }

    fn pin(&self) {
        let Some(cpu) = self.pace.cpu.and_then(|cpu| usize::try_from(cpu).ok()) else { return };
        let mut set = CpuSet::new();
        set.set(cpu);
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::warn!(cpu, %error, "worker.cpu: cannot stay on this processor; going on without");
        }
    }
}

#[cfg(test)]
mod tests;
