//! Echo requests through a raw socket, for machines without `ping`.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use rustix::net::sockopt::Timeout;
use rustix::net::sockopt::set_socket_timeout;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};

use crate::support::pattern;

/// Payloads: empty, odd, a full frame (1500 less 20 of IPv4 and 8 of ICMP), several fragments.
const SIZES: [usize; 6] = [0, 1, 56, 1001, 1472, 8000];
const ROUNDS: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(5);
/// Of the IPv4 header that a raw socket delivers, without options.
const IP_HEADER: usize = 20;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// Sends requests to `address`, one at a time, and compares the answers; how many there were.
pub(super) fn ping(address: &str) -> String {
    let address: Ipv4Addr = address.parse().unwrap();
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
    let mut number = 0;
    for size in SIZES.repeat(usize::from(ROUNDS)) {
        number += 1;
        let payload = pattern(number.into(), size);
        sendto(&socket, &message(ECHO_REQUEST, number, &payload), SendFlags::empty(), &SocketAddrV4::new(address, 0)).unwrap();
        let answer = message(ECHO_REPLY, number, &payload);
        let start = Instant::now();
        let mut bytes = vec![0; 1 << 16];
        // Other echoes may pass by; the one that is wanted comes in time or not at all.
        while recv(&socket, &mut bytes, RecvFlags::empty()).map(|(len, _)| bytes[IP_HEADER..len] != answer).expect("no answer") {
            assert!(start.elapsed() < PATIENCE, "no answer to request {number} of {size} bytes");
        }
    }
    format!("{number} answers")
}

/// An ICMP message (RFC 792) with identifier 0x5746.
fn message(kind: u8, number: u16, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0x57, 0x46];
    message.extend(number.to_be_bytes());
    message.extend(payload);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
