//! Signals as readable sockets, so that the event loop is the only place where they act.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// The signals the daemon listens to.
#[derive(Debug)]
pub struct Signals {
    /// Becomes readable on SIGTERM or SIGINT.
    pub terminate: mio::net::UnixStream,
    /// Becomes readable on SIGHUP.
    pub reload: mio::net::UnixStream,
}

impl Signals {
    /// Takes over the signals of the process.
    ///
    /// # Errors
    /// If no socket pair can be made.
    pub fn take_over() -> io::Result<Self> {
        Ok(Self { terminate: listen(&[SIGTERM, SIGINT])?, reload: listen(&[SIGHUP])? })
    }
}

fn listen(signals: &[i32]) -> io::Result<mio::net::UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for &signal in signals {
        pipe::register(signal, writer.try_clone()?)?;
    }
    Ok(mio::net::UnixStream::from_std(reader))
}

/// Empties a signal's socket; true if the signal had come.
pub(super) fn drain(socket: &mut mio::net::UnixStream) -> bool {
    let mut bytes = [0; 16];
    let mut came = false;
    while socket.read(&mut bytes).is_ok_and(|count| count > 0) {
        came = true;
    }
    came
}
