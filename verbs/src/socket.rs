//! Messages with file descriptors over `SOCK_SEQPACKET` Unix sockets.
//!
//! One message is one packet: a message is never seen in parts, and a sender that dies in mid-message has sent nothing.
//! Never interprets messages. The application's `Context` and the daemon's attach server call it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

use crate::protocol::{MAX_FDS, MAX_MESSAGE};

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The descriptors that came along.
    pub fds: Vec<OwnedFd>,
}

fn new_socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?)
}

/// Connects to the socket at `path`. The socket does not block.
///
/// # Errors
/// The system's error, such as `NotFound`, `ConnectionRefused` or `PermissionDenied`.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// A listening socket at `path`. The socket does not block.
///
/// # Errors
/// `AddrInUse` if something is at `path`, or the system's error.
pub fn listen(path: &Path, backlog: i32) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// The next connection of a listening socket, or `None` if nobody waits. The socket does not block.
///
/// # Errors
/// The system's error.
pub fn accept(listener: impl AsFd) -> io::Result<Option<OwnedFd>> {
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(Some(socket)),
        // The peer gave up between connecting and now: as good as nobody.
        Err(Errno::WOULDBLOCK | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Sends a message whole, without blocking.
///
/// # Errors
/// `WouldBlock` if the receiver does not keep up; `InvalidInput` for more than [`MAX_FDS`] descriptors.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message into `buffer` (of [`MAX_MESSAGE`] bytes), without blocking; `None` if the other side has closed.
/// Descriptors beyond [`MAX_FDS`] are never installed, those of a refused message are closed.
///
/// # Errors
/// `WouldBlock` if there is none; `InvalidData` if it has too many bytes or descriptors.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<Received>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut again = || rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags);
    let message = match again() {
        // The other side closed with messages of ours unread. That is reported once, and what it had sent comes after it.
        Err(Errno::CONNRESET) => again()?,
        other => other?,
    };
    let mut fds = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            fds.extend(received);
        }
    }
    if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if message.bytes == 0 && fds.is_empty() {
        return Ok(None);
    }
    let bytes = buffer.get(..message.bytes).unwrap_or_default().to_vec();
    Ok(Some(Received { bytes, fds }))
}

/// A buffer for [`receive`].
pub fn receive_buffer() -> Vec<u8> {
    vec![0; MAX_MESSAGE]
}

/// Waits until one of `fds` has `what` (or is closed), or until `deadline`. True if one has.
///
/// # Errors
/// The system's error.
pub fn wait(fds: &[BorrowedFd<'_>], what: PollFlags, deadline: Instant) -> io::Result<bool> {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, what)).collect();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut polled, Some(&timeout)) {
            Err(Errno::INTR) => {}
            other => return Ok(other? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn pair() -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn a_message_comes_whole_with_its_descriptors() {
        let (ours, theirs) = pair();
        let null = File::open("/dev/null").unwrap();
        send(&ours, b"first", &[null.as_fd(), null.as_fd()]).unwrap();
        send(&ours, b"second", &[]).unwrap();
        let mut buffer = receive_buffer();
        let first = receive(&theirs, &mut buffer).unwrap().unwrap();
        assert_eq!((first.bytes.as_slice(), first.fds.len()), (b"first".as_slice(), 2));
        let second = receive(&theirs, &mut buffer).unwrap().unwrap();
        assert_eq!((second.bytes.as_slice(), second.fds.len()), (b"second".as_slice(), 0));
        assert_eq!(receive(&theirs, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(ours);
        assert!(receive(&theirs, &mut buffer).unwrap().is_none());
    }

    #[test]
    fn what_was_said_before_hanging_up_is_heard_although_our_message_was_not_read() {
        let (ours, theirs) = pair();
        send(&theirs, b"unread", &[]).unwrap();
        send(&ours, b"no room", &[]).unwrap();
        drop(ours);
        let mut buffer = receive_buffer();
        assert_eq!(receive(&theirs, &mut buffer).unwrap().unwrap().bytes, b"no room");
        assert!(receive(&theirs, &mut buffer).unwrap().is_none());
    }

    #[test]
    fn messages_too_long_and_floods_of_descriptors_are_refused_and_nothing_stays_open() {
        let (ours, theirs) = pair();
        let mut buffer = receive_buffer();
        send(&ours, &vec![b'x'; MAX_MESSAGE + 1], &[]).unwrap();
        assert_eq!(receive(&theirs, &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);

        let (watched, other_end) = io::pipe().unwrap();
        send_flood(&ours, &other_end);
        drop(other_end);
        assert_eq!(receive(&theirs, &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);
        // The pipe has come to its end, so every copy of its other end is closed.
        assert!(wait(&[watched.as_fd()], PollFlags::IN, Instant::now()).unwrap());
    }

    fn send_flood(socket: &OwnedFd, fd: impl AsFd) {
        let flood = [fd.as_fd(); 100];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(100))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&flood)));
        rustix::net::sendmsg(socket, &[IoSlice::new(b"flood")], &mut control, SendFlags::empty()).unwrap();
    }
}
