//! Signals as readable descriptors.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::lab::process::readable;

pub(super) struct Signals {
    terminate: UnixStream,
    child: UnixStream,
}

impl Signals {
    pub(super) fn register() -> io::Result<Self> {
        Ok(Self { terminate: pipe(&[SIGTERM, SIGINT, SIGHUP])?, child: pipe(&[SIGCHLD])? })
    }

    /// Readable when the lab is to end, and when a daemon has ended.
    pub(super) fn descriptors(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.terminate.as_fd(), self.child.as_fd())
    }

    pub(super) fn terminated(&self) -> bool {
        readable(&[self.terminate.as_fd()], Duration::ZERO).is_some()
    }

    pub(super) fn clear_child(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.child).read(&mut bytes), Ok(read) if read > 0) {}
    }
}

/// Gets a byte for each of `signals`.
fn pipe(signals: &[i32]) -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
    }
    Ok(read)
}
