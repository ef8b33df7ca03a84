//! Processes, told apart for good: a process number alone may have been given to somebody else meanwhile.

use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process by number and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Clock ticks from boot to its start (field 22 of proc_pid_stat(5)).
    pub(crate) start_time: u64,
}

impl Process {
    /// The process that has the number `pid` now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, start_time: start_time(pid)? })
    }

    /// This process.
    pub(crate) fn own() -> io::Result<Self> {
        Self::of(rustix::process::getpid().as_raw_nonzero().get()).ok_or_else(|| io::Error::other("/proc is not readable"))
    }

    /// Whether it runs; one that is dead but not yet waited for does not.
    pub(crate) fn is_alive(self) -> bool {
        start_time(self.pid) == Some(self.start_time)
    }

    /// Sends `signal` to exactly this process; nothing happens if it has ended.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
        // The descriptor is opened before the check, so the number cannot change hands in between.
        if !self.is_alive() {
            return Ok(());
        }
        match pidfd_send_signal(descriptor, signal) {
            Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until it has ended; false if it still runs after `limit`.
    pub(crate) fn wait_end(self, limit: Duration) -> bool {
        let descriptor = Pid::from_raw(self.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let (Some(descriptor), true) = (descriptor, self.is_alive()) else { return !self.is_alive() };
        readable(&[descriptor.as_fd()], limit).is_some()
    }
}

/// Ends all `processes`: asks with SIGTERM, waits for `grace` in all, then kills.
pub(crate) fn end_all(processes: &[Process], grace: Duration) {
    let deadline = Instant::now() + grace;
    for process in processes {
        let _ = process.signal(Signal::TERM);
    }
    for process in processes {
        if !process.wait_end(deadline.saturating_duration_since(Instant::now())) {
            let _ = process.signal(Signal::KILL);
            process.wait_end(Duration::from_secs(1));
        }
    }
}

/// Index of a descriptor that can be read (or has hung up) within `limit`; `None` when time is up.
pub(crate) fn readable(descriptors: &[rustix::fd::BorrowedFd<'_>], limit: Duration) -> Option<usize> {
    let deadline = Instant::now() + limit;
    let mut set: Vec<_> = descriptors.iter().map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN)).collect();
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok()?;
        match poll(&mut set, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(_) | Ok(0) => return None,
            Ok(_) => return set.iter().position(|entry| !entry.revents().is_empty()),
        }
    }
}

fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may itself hold spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    // Fields 4 to 21 lie between the state (3) and the start time (22).
    (state != "Z" && state != "X").then(|| fields.nth(18)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recycled_process_number_is_not_the_process() {
        let own = Process::own().unwrap();
        assert!(own.is_alive());
        let other = Process { start_time: own.start_time + 1, ..own };
        assert!(!other.is_alive());
        // Would end this test if it were sent.
        other.signal(Signal::KILL).unwrap();
    }

    #[test]
    fn a_process_that_nobody_waited_for_counts_as_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = Process::of(i32::try_from(child.id()).unwrap());
        if let Some(process) = process {
            assert!(process.wait_end(Duration::from_secs(10)));
            assert!(!process.is_alive());
        }
        child.wait().unwrap();
    }
}
