//! Who is at the other end of a Unix socket.
//!
//! `rustix` reads the same, but into a process number that must not be zero; the kernel reports zero for a process
//! outside of the reader's PID namespace, which happens as soon as daemon and application live in different containers.
#![allow(unsafe_code)] // getsockopt

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The process that connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// Its number; `None` if it is not visible from here.
    pub(crate) pid: Option<i32>,
    pub(crate) uid: u32,
}

/// Reads `SO_PEERCRED` (unix(7)): what was true when the process connected.
pub(crate) fn peer_of(socket: impl AsFd) -> io::Result<Credentials> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(io::Error::other)?;
    // SAFETY: `peer` and `len` outlive the call, and `len` is the size of `peer`, which is plain numbers.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut peer).cast(),
            std::ptr::from_mut(&mut len),
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Credentials { pid: Some(peer.pid).filter(|pid| *pid != 0), uid: peer.uid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let expected = Credentials { pid: i32::try_from(std::process::id()).ok(), uid: rustix::process::getuid().as_raw() };
        assert_eq!(peer_of(&socket).unwrap(), expected);
        assert!(peer_of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
