//! Commands that a lab runs in its nodes: wait for them without missing a signal, end them in time.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::process::{Process, end_all, readable};
use crate::exit::{Exit, failure};

/// Longer than any command here may take: as good as without limit.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// Signals that ask this program to end, remembered instead of obeyed at once, so that it can clean up.
#[derive(Debug)]
pub(crate) struct Interrupt {
    wake: UnixStream,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    pub(crate) fn register() -> io::Result<Self> {
        let (wake, write) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let signal = Arc::new(AtomicUsize::new(0));
        for (number, value) in [(SIGINT, 2), (SIGTERM, 15), (SIGHUP, 1)] {
            signal_hook::flag::register_usize(number, Arc::clone(&signal), value)?;
            signal_hook::low_level::pipe::register(number, write.try_clone()?)?;
        }
        Ok(Self { wake, signal })
    }

    /// The signal that came, if any, and forgets it.
    fn take(&self) -> Option<u8> {
        let mut bytes = [0; 16];
        while matches!(io::Read::read(&mut &self.wake, &mut bytes), Ok(read) if read > 0) {}
        u8::try_from(self.signal.swap(0, Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }

    /// An error if a signal came.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.take().map_or(Ok(()), |signal| Err(interrupted(signal)))
    }
}

/// The error of a command that a signal cut short.
pub(crate) fn interrupted(signal: u8) -> anyhow::Error {
    failure(Exit::Signal(signal), "interrupted; everything is cleaned up")
}

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum Waited {
    Exited(ExitStatus),
    Interrupted(u8),
    TimedOut,
}

/// Waits for `child` to end, a signal, or the end of `limit`.
pub(crate) fn wait(child: &mut Child, interrupt: &Interrupt, limit: Duration) -> io::Result<Waited> {
    let descriptor = descriptor_of(child)?;
    match readable(&[descriptor.as_fd(), interrupt.wake.as_fd()], limit) {
        Some(0) => Ok(Waited::Exited(child.wait()?)),
        Some(_) => Ok(interrupt.take().map_or(Waited::TimedOut, Waited::Interrupted)),
        None => Ok(Waited::TimedOut),
    }
}

/// Waits for a command in the foreground. Ctrl-C at a terminal reaches it too, and what it means is its decision.
pub(crate) fn wait_command(child: &mut Child, interrupt: &Interrupt) -> io::Result<Waited> {
    loop {
        match wait(child, interrupt, FOREVER)? {
            Waited::Interrupted(2) if io::IsTerminal::is_terminal(&io::stdin()) => {}
            ended => return Ok(ended),
        }
    }
}

/// Waits until there is something to read, or the end of the stream.
pub(crate) fn wait_output(stream: &impl rustix::fd::AsFd, interrupt: &Interrupt, limit: Duration) -> anyhow::Result<bool> {
    match readable(&[stream.as_fd(), interrupt.wake.as_fd()], limit) {
        Some(0) => Ok(true),
        Some(_) => interrupt.check().map(|()| false),
        None => Ok(false),
    }
}

/// Ends `child`, which may have ended already: SIGTERM, then after `grace` SIGKILL.
pub(crate) fn end(child: &mut Child, grace: Duration) {
    let process = i32::try_from(child.id()).ok().and_then(Process::of);
    end_all(process.as_slice(), grace);
    let _ = child.wait();
}

/// The exit code that stands for `status`, as shells have it.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| signal + 128);
    status.code().or_else(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn descriptor_of(child: &Child) -> io::Result<OwnedFd> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(pidfd_open(pid.ok_or(io::ErrorKind::NotFound)?, PidfdFlags::empty())?)
}
