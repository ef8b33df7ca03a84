//! Packet sockets: the options and calls that no safe wrapper exists for, one function each.
//!
//! Owns no state. Called by the two AF_PACKET backends when they open and read a socket.

#![allow(unsafe_code, reason = "setsockopt, bind and recvmsg on packet sockets have no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::ancillary::{Auxiliary, CONTROL_LEN, Control, PACKET_AUXDATA, TIMESTAMP};

// linux/if_packet.h and asm-generic/socket.h; the C library's bindings lack these on some targets.
const PACKET_ADD_MEMBERSHIP: c_int = 1;
const PACKET_STATISTICS: c_int = 6;
const PACKET_VNET_HDR: c_int = 15;
const PACKET_QDISC_BYPASS: c_int = 20;
const PACKET_IGNORE_OUTGOING: c_int = 23;
const PACKET_MR_PROMISC: u16 = 1;
/// `AF_PACKET` in the width of an address.
const FAMILY: libc::sa_family_t = 17;
/// Every EtherType (`linux/if_ether.h`).
const ETH_P_ALL: u16 = 3;

/// Switches of a packet socket.
#[derive(Clone, Copy, Debug)]
pub(super) enum Switch {
    /// Say about each frame which tag was taken out and whether its checksum is finished.
    Auxdata,
    /// Put the description of unfinished work in front of each frame.
    VnetHeader,
    /// Hand frames to the driver without a queueing discipline.
    QdiscBypass,
    /// Do not show frames that this machine sends.
    IgnoreOutgoing,
}

impl Switch {
    const fn name(self) -> c_int {
        match self {
            Self::Auxdata => PACKET_AUXDATA,
            Self::VnetHeader => PACKET_VNET_HDR,
            Self::QdiscBypass => PACKET_QDISC_BYPASS,
            Self::IgnoreOutgoing => PACKET_IGNORE_OUTGOING,
        }
    }
}

/// `struct packet_mreq`.
#[repr(C)]
struct Membership {
    index: c_int,
    kind: u16,
    address_len: u16,
    address: [u8; 8],
}

/// `struct tpacket_stats`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Statistics {
    packets: u32,
    drops: u32,
}

/// A packet socket that hears nothing before it is bound: protocol 0, so that no frame of another interface slips in.
pub(super) fn packet_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?)
}

/// Turns a switch on.
pub(super) fn turn_on(socket: BorrowedFd<'_>, switch: Switch) -> io::Result<()> {
    let on: c_int = 1;
    set_option(socket, libc::SOL_PACKET, switch.name(), &on)
}

/// Says about each frame when it arrived, or does so no more.
pub(super) fn set_timestamps(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, TIMESTAMP, &c_int::from(on))
}

/// Hears every frame on the interface, not only those for its address, for as long as the socket lives.
pub(super) fn join_promiscuous(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let membership = Membership { index: signed(index), kind: PACKET_MR_PROMISC, address_len: 0, address: [0; 8] };
    set_option(socket, libc::SOL_PACKET, PACKET_ADD_MEMBERSHIP, &membership)
}

/// Lets only the frames through that the program accepts.
pub(super) fn attach_filter(socket: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // `program` outlives the call, and the kernel only reads it.
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}

/// Binds to every EtherType of one interface; a bind to a single one would take one socket per EtherType.
pub(super) fn bind(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: FAMILY,
        sll_protocol: ETH_P_ALL.to_be(),
        sll_ifindex: signed(index),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = len_of::<libc::sockaddr_ll>();
    // SAFETY: `address` is a complete sockaddr_ll of `len` bytes that lives through the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

/// Frames that the kernel dropped for want of room since the last call: reading resets the kernel's count.
pub(super) fn take_drops(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut statistics = Statistics::default();
    let mut len = len_of::<Statistics>();
    let value = (&raw mut statistics).cast::<c_void>();
    // SAFETY: `value` points to `len` writable bytes of plain integers, and both live through the call.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_PACKET, PACKET_STATISTICS, value, &raw mut len) })?;
    Ok(u64::from(statistics.drops))
}

/// The true length of the next frame and what the kernel says about it; the frame stays where it is.
pub(super) fn peek(socket: BorrowedFd<'_>) -> io::Result<(usize, Auxiliary)> {
    let mut control = Control::EMPTY;
    // SAFETY: a msghdr is made of integers and pointers, for which zero means "none".
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_LEN;
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: the message names one buffer, `control`, with its true length; it lives through the call.
    let len = check_len(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) })?;
    Ok((len, Auxiliary::parse(&control, message.msg_controllen)))
}

/// Turns the result of a call that returns -1 for an error into a count.
pub(super) fn check(result: c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The kernel's interface numbers are positive and fit into the signed field that it keeps them in.
fn signed(index: u32) -> c_int {
    c_int::try_from(index).unwrap_or(0)
}

/// Every type here has a few bytes.
fn len_of<T>() -> socklen_t {
    socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

/// `T` must be the type that the kernel reads for this option.
fn set_option<T>(socket: impl AsFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let len = len_of::<T>();
    let value = (&raw const *value).cast::<c_void>();
    // SAFETY: `value` points to `len` readable bytes for the time of the call; the kernel copies them.
    check(unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, value, len) }).map(drop)
}
