//! What the kernel says about interfaces, through the route netlink socket.
//!
//! Owns the subscription and the picture of all interfaces of its network namespace. It changes nothing and decides
//! nothing: the ports do, from the events. If the kernel drops news for want of room, the picture is asked for again
//! and the difference becomes events, so a reader that misses steps still arrives at the truth.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use weft_proto::wire::MacAddr;

mod table;

use table::Table;

/// Group of the news about links (`RTNLGRP_LINK`).
const GROUP_LINK: u32 = 1;
/// Larger than any datagram of the kernel's dumps, which are at most 32 KiB.
const BUFFER: usize = 64 * 1024;

/// What is known about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number; a new interface under an old name has a new one.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its address; zero if it has none of 6 bytes.
    pub mac: MacAddr,
    /// Largest payload of a frame, in bytes.
    pub mtu: u32,
    /// Switched on, with carrier, and ready to send.
    pub up: bool,
    /// Speaks Ethernet.
    pub ethernet: bool,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The interface appeared, or was there when watching began.
    New,
    /// It carries frames now.
    Up,
    /// It was switched off, or lost its carrier.
    Down,
    /// Its MTU or its address is another.
    Changed,
    /// It was deleted, renamed or moved to another namespace; the rest is what was last known.
    Gone,
}

/// News about an interface, with its state after the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEvent {
    /// What changed.
    pub change: LinkChange,
    /// The interface.
    pub link: Link,
}

/// A subscription to the news about all interfaces of the network namespace that it was opened in.
#[derive(Debug)]
pub struct LinkMonitor {
    socket: Socket,
    buffer: Vec<u8>,
    table: Table,
    events: VecDeque<LinkEvent>,
    /// Number of the request whose answer is being read.
    sequence: u32,
    /// The answer is incomplete because something changed meanwhile.
    interrupted: bool,
    /// News were lost; what still waits in the socket is older than the loss.
    overrun: bool,
}

impl LinkMonitor {
    /// Subscribes. The interfaces that exist come first, as [`LinkChange::New`].
    ///
    /// # Errors
    /// If the kernel refuses the socket.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.add_membership(GROUP_LINK)?;
        socket.set_non_blocking(true)?;
        let mut monitor = Self {
            socket,
            buffer: vec![0; BUFFER],
            table: Table::default(),
            events: VecDeque::new(),
            sequence: 0,
            interrupted: false,
            overrun: false,
        };
        monitor.request_all()?;
        Ok(monitor)
    }

    /// The descriptor to wait on for reading.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The next event, without waiting. `None`: no news; wait for the descriptor.
    ///
    /// # Errors
    /// If the socket fails; a new monitor may still work.
    pub fn poll_event(&mut self) -> io::Result<Option<LinkEvent>> {
        while self.events.is_empty() {
            match self.socket.recv(&mut &mut self.buffer[..], 0) {
                Ok(len) => self.handle_datagram(len)?,
                // Only now: a stale message read after the question would count as part of its answer.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.overrun => self.request_all()?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.overrun = true,
                Err(error) => return Err(error),
            }
        }
        Ok(self.events.pop_front())
    }

    fn request_all(&mut self) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        (self.interrupted, self.overrun) = (false, false);
        self.table.begin_sweep();
        send(&self.socket, LinkMessage::default(), NLM_F_REQUEST | NLM_F_DUMP, self.sequence)
    }

    fn handle_datagram(&mut self, len: usize) -> io::Result<()> {
        let mut again = false;
        for message in messages(&self.buffer[..len.min(BUFFER)]) {
            let ours = message.header.sequence_number == self.sequence;
            self.interrupted |= ours && message.header.flags & NLM_F_DUMP_INTR != 0;
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) if is_plain(&link) => {
                    self.table.observe(read_link(link), &mut self.events);
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) if is_plain(&link) => {
                    self.table.remove(link.header.index, &mut self.events);
                }
                NetlinkPayload::Done(_) if ours && self.interrupted => again = true,
                NetlinkPayload::Done(_) if ours => self.table.end_sweep(&mut self.events),
                _ => {}
            }
        }
        if again { self.request_all() } else { Ok(()) }
    }
}

/// Looks an interface up by its name. `None` if there is none.
///
/// # Errors
/// If the kernel refuses the question.
pub fn find(name: &str) -> io::Result<Option<Link>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    let mut question = LinkMessage::default();
    question.attributes.push(LinkAttribute::IfName(name.to_owned()));
    send(&socket, question, NLM_F_REQUEST, 1)?;
    // The kernel has answered before the request returns, so this does not wait.
    let (answer, _) = socket.recv_from_full()?;
    for message in messages(&answer) {
        match message.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => return Ok(Some(read_link(link))),
            NetlinkPayload::Error(refusal) if refusal.raw_code() == -libc::ENODEV => return Ok(None),
            NetlinkPayload::Error(refusal) => return Err(refusal.to_io()),
            _ => {}
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer about an interface makes no sense"))
}

fn send(socket: &Socket, message: LinkMessage, flags: u16, sequence: u32) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = sequence;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(RouteNetlinkMessage::GetLink(message)));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map(drop)
}

/// The messages of a datagram, up to the first that cannot be delimited. One that cannot be understood is skipped.
fn messages(datagram: &[u8]) -> impl Iterator<Item = NetlinkMessage<RouteNetlinkMessage>> + '_ {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let len = rest.first_chunk().map(|len| u32::from_ne_bytes(*len))?;
        let len = usize::try_from(len).ok().filter(|&len| len >= NLMSG_HEADER && len <= rest.len())?;
        let message = NetlinkMessage::deserialize(&rest[..len]);
        rest = &rest[len.next_multiple_of(4).min(rest.len())..];
        Some(message.ok())
    })
    .flatten()
}

/// `struct nlmsghdr`.
const NLMSG_HEADER: usize = 16;

/// Bridges report their ports as links of their own family; leaving a bridge is no end of an interface.
fn is_plain(message: &LinkMessage) -> bool {
    message.header.interface_family == AddressFamily::Unspec
}

/// Switched on, with carrier, and its queues in operation: in between the kernel takes frames and loses them.
const READY: LinkFlags = LinkFlags::Up.union(LinkFlags::LowerUp).union(LinkFlags::Running);

fn read_link(message: LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        name: String::new(),
        mac: MacAddr::ZERO,
        mtu: 0,
        up: flags.contains(READY),
        ethernet: message.header.link_layer_type == LinkLayerType::Ether,
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Address(address) => link.mac = address.try_into().map_or(MacAddr::ZERO, MacAddr),
            _ => {}
        }
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(names: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for name in names {
            let mut message = LinkMessage::default();
            message.attributes.push(LinkAttribute::IfName((*name).to_owned()));
            let payload = NetlinkPayload::from(RouteNetlinkMessage::NewLink(message));
            let mut packet = NetlinkMessage::new(NetlinkHeader::default(), payload);
            packet.finalize();
            let start = bytes.len();
            bytes.resize((start + packet.buffer_len()).next_multiple_of(4), 0);
            packet.serialize(&mut bytes[start..start + packet.buffer_len()]);
        }
        bytes
    }

    #[test]
    fn a_datagram_holds_several_messages() {
        let bytes = datagram(&["eth0", "a", "lo"]);
        assert_eq!(messages(&bytes).count(), 3);
    }

    #[test]
    fn no_datagram_makes_the_reader_fail_or_run_forever() {
        let whole = datagram(&["eth0", "eth1"]);
        for cut in 0..whole.len() {
            assert!(messages(&whole[..cut]).count() < 2);
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[cut] = value;
                assert!(messages(&damaged).count() <= 2);
            }
        }
    }
}
