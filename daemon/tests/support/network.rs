//! Interfaces and addresses by netlink, in the namespace of the calling thread.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use weft_daemon::link::{Link, find};

use super::until;

/// Makes two interfaces that are connected, the second in `elsewhere` if given. Both are down.
pub fn create_pair(name: &str, peer: &str, elsewhere: Option<&File>) {
    let mut other = named(peer);
    other.attributes.extend(elsewhere.map(|namespace| LinkAttribute::NetNsFd(namespace.as_raw_fd())));
    let mut message = named(name);
    let data = LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other)));
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), data]));
    request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL);
}

/// Deletes an interface and with it its peer.
pub fn delete(name: &str) {
    request(RouteNetlinkMessage::DelLink(by_index(name)), 0);
}

/// Switches interfaces on and waits until they are ready.
pub fn set_up(names: &[&str]) {
    names.iter().for_each(|name| switch_on(name));
    until("ready interfaces", || names.iter().all(|name| interface(name).up).then_some(()));
}

/// Switches an interface on.
pub fn switch_on(name: &str) {
    set_flag(name, LinkFlags::Up);
}

/// Switches an interface off.
pub fn set_down(name: &str) {
    set_flag(name, LinkFlags::empty());
}

/// Sets the MTU of an interface.
pub fn set_mtu(name: &str, mtu: u32) {
    let mut message = by_index(name);
    message.attributes.push(LinkAttribute::Mtu(mtu));
    request(RouteNetlinkMessage::SetLink(message), 0);
}

/// Gives an interface an address in a network of 24 bits.
pub fn add_address(name: &str, address: [u8; 4]) {
    let address = IpAddr::V4(Ipv4Addr::from(address));
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = 24;
    message.header.index = interface(name).index;
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL);
}

/// What the kernel knows about an interface that must exist.
pub fn interface(name: &str) -> Link {
    find(name).unwrap().unwrap_or_else(|| panic!("no interface {name}"))
}

fn set_flag(name: &str, value: LinkFlags) {
    let mut message = by_index(name);
    message.header.flags = value;
    message.header.change_mask = LinkFlags::Up;
    request(RouteNetlinkMessage::SetLink(message), 0);
}

fn named(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message
}

fn by_index(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = interface(name).index;
    message
}

/// How many listeners want every frame of an interface, not only those for its address.
pub fn promiscuous_listeners(name: &str) -> u32 {
    let answer = exchange(RouteNetlinkMessage::GetLink(named(name)), NLM_F_REQUEST);
    let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = answer else { panic!("no interface {name}") };
    let count = link.attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::Promiscuity(count) => Some(count),
        _ => None,
    });
    count.unwrap()
}

/// Asks the kernel for a change and panics if it refuses.
fn request(message: RouteNetlinkMessage, flags: u16) {
    let what = format!("{message:?}");
    let NetlinkPayload::Error(verdict) = exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags) else { panic!("no verdict on {what}") };
    assert_eq!(verdict.raw_code(), 0, "{}: {what}", verdict.to_io());
}

/// Sends a message to the kernel and returns its answer.
fn exchange(message: RouteNetlinkMessage, flags: u16) -> NetlinkPayload<RouteNetlinkMessage> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    socket.send(&bytes, 0).unwrap();
    let (answer, _) = socket.recv_from_full().unwrap();
    NetlinkMessage::deserialize(&answer).unwrap().payload
}
