//! The rtnetlink requests that a lab needs, each sent and acknowledged in turn.
//!
//! A socket works in the network namespace of the thread that opened it, for as long as it lives.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use weft_proto::wire::MacAddr;

/// More than any acknowledgement here: it repeats the request, which holds a handful of short attributes.
const REPLY_CAPACITY: usize = 8192;

/// One end of a veth pair to be created.
#[derive(Clone, Debug)]
pub(crate) struct VethEnd<'a> {
    pub(crate) name: &'a str,
    pub(crate) mac: MacAddr,
    pub(crate) mtu: u32,
    pub(crate) namespace: BorrowedFd<'a>,
}

impl VethEnd<'_> {
    fn attributes(&self) -> Vec<LinkAttribute> {
        vec![
            LinkAttribute::IfName(self.name.to_owned()),
            LinkAttribute::Address(self.mac.0.to_vec()),
            LinkAttribute::Mtu(self.mtu),
            LinkAttribute::NetNsFd(self.namespace.as_raw_fd()),
        ]
    }
}

/// A route socket in one network namespace.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Creates a veth pair whose ends lie in the namespaces that they name.
    pub(crate) fn add_veth(&mut self, ends: [&VethEnd<'_>; 2]) -> io::Result<()> {
        let mut peer = LinkMessage::default();
        peer.attributes = ends[1].attributes();
        let mut link = LinkMessage::default();
        link.attributes = ends[0].attributes();
        link.attributes
            .push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer)))]));
        self.request(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Brings an interface up or down.
    pub(crate) fn set_up(&mut self, interface: &str, up: bool) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::IfName(interface.to_owned()));
        link.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        link.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Gives an interface an address.
    pub(crate) fn add_address(&mut self, interface: &str, ip: IpAddr, prefix: u8) -> io::Result<()> {
        let mut address = AddressMessage::default();
        address.header.family = if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        address.header.prefix_len = prefix;
        address.header.index = interface_index(interface)?;
        address.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
        self.request(RouteNetlinkMessage::NewAddress(address), NLM_F_CREATE | NLM_F_EXCL)
    }

    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        self.acknowledgement()
    }

    fn acknowledgement(&self) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(REPLY_CAPACITY);
        loop {
            buffer.clear();
            self.socket.recv(&mut buffer, 0)?;
            let reply = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&buffer)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            match reply.payload {
                NetlinkPayload::Error(error) if reply.header.sequence_number == self.sequence => {
                    return error.code.map_or(Ok(()), |_| Err(error.to_io()));
                }
                _ => {}
            }
        }
    }
}

fn interface_index(name: &str) -> io::Result<u32> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(socket, name)?)
}
