//! An Ethernet interface whose other end is this process, so that a test decides when it takes frames.

#![allow(unsafe_code, reason = "the request that makes such an interface has no safe wrapper")]

use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::skip;

/// Makes an interface. It lives as long as the file, from which the frames that it sends can be read without waiting.
/// `None`, with a word to the reader, where this user may not.
pub fn create(name: &str) -> Option<File> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let file = match options.open("/dev/net/tun") {
        Ok(file) => file,
        Err(error) => {
            skip(&format!("cannot open /dev/net/tun: {error}"));
            return None;
        }
    };
    // SAFETY: an ifreq is made of integers and a pointer, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_TAP | libc::IFF_NO_PI).unwrap();
    // SAFETY: the kernel reads and writes one ifreq, which lives through the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    Some(file)
}

/// Takes frames off the interface until none is left, and returns how many of them had this EtherType.
pub fn drain(file: &mut File, ethertype: u16) -> usize {
    let mut buffer = [0; 2048];
    let mut frames = 0;
    while file.read(&mut buffer).is_ok() {
        frames += usize::from(buffer[12..14] == ethertype.to_be_bytes());
    }
    frames
}
