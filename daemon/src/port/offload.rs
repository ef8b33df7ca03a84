//! What the kernel leaves undone in ordinary traffic, and how to carry it or finish it.
//!
//! The kernel's stack hands frames to a virtual interface with an unfinished checksum, or as super-frames that a
//! network card would cut up. A packet socket describes both in a header in front of the frame (`virtio_net_hdr`,
//! virtio 1.2 section 5.1.6). Pure: no socket here.

use etherparse::{LaxSlicedPacket, TransportSlice};
use weft_proto::pool::Offload;
use weft_proto::wire::eth::VLAN_HEADER;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum field holds the sum of the pseudo header only.
pub(super) const NEEDS_CHECKSUM: u8 = 1;
/// Bytes of a VLAN tag.
const TAG: u16 = 4;
const _: () = assert!(TAG as usize == VLAN_HEADER);
/// Where the checksum is in a TCP and in a UDP header (RFC 9293 section 3.1, RFC 768).
const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;

/// The header in front of each frame on a socket with `PACKET_VNET_HDR`; fields in the machine's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    header_len: u16,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

/// Bytes of the header on the socket.
pub(super) const VNET_HEADER: usize = size_of::<VnetHeader>();
const _: () = assert!(VNET_HEADER == 10);

impl From<VnetHeader> for Offload {
    fn from(header: VnetHeader) -> Self {
        let VnetHeader { flags, gso_type, header_len, gso_size, checksum_start, checksum_offset } = header;
        Self { flags, gso_type, header_len, gso_size, checksum_start, checksum_offset }
    }
}

impl From<Offload> for VnetHeader {
    fn from(offload: Offload) -> Self {
        let Offload { flags, gso_type, header_len, gso_size, checksum_start, checksum_offset } = offload;
        Self { flags, gso_type, header_len, gso_size, checksum_start, checksum_offset }
    }
}

/// The same description for the same frame with a VLAN tag put in front of its type field.
pub(super) fn behind_tag(offload: Offload) -> Offload {
    let shift = |field: u16| if field == 0 { 0 } else { field.saturating_add(TAG) };
    Offload { header_len: shift(offload.header_len), checksum_start: shift(offload.checksum_start), ..offload }
}

/// Finds the checksum that the kernel left unfinished, where only the fact is known, not the place.
/// `None` if the frame is neither TCP nor UDP over IP.
pub(super) fn locate_checksum(frame: &[u8]) -> Option<Offload> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let (header, checksum_offset) = match packet.transport? {
        TransportSlice::Tcp(tcp) => (tcp.slice(), TCP_CHECKSUM),
        TransportSlice::Udp(udp) => (udp.slice(), UDP_CHECKSUM),
        _ => return None,
    };
    // Both slices are of the same frame, so the difference of their starts is the offset in it.
    let start = header.as_ptr().addr().checked_sub(frame.as_ptr().addr())?;
    let checksum_start = u16::try_from(start).ok()?;
    Some(Offload { flags: NEEDS_CHECKSUM, checksum_start, checksum_offset, ..Offload::default() })
}

/// Computes the checksum that `offload` asks for into the frame. False, and no change, if its place is outside the frame.
pub(super) fn finish_checksum(frame: &mut [u8], offload: Offload) -> bool {
    let start = usize::from(offload.checksum_start);
    let field = start + usize::from(offload.checksum_offset);
    if field + 2 > frame.len() {
        return false;
    }
    // The field holds the pseudo header's sum, so summing over it includes that. A sum of zero would mean
    // "no checksum" in UDP and is sent as all ones, its equal in ones' complement (RFC 768).
    let sum = !ones_complement_sum(&frame[start..]);
    let sum = if sum == 0 { u16::MAX } else { sum };
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// The sum of RFC 1071 over big-endian 16-bit words, an odd last byte padded with zero.
fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let mut words = bytes.chunks_exact(2);
    // 64 KiB of words of 16 bits stay far below 2^64.
    let mut sum: u64 = words.by_ref().map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    if let [last] = words.remainder() {
        sum += u64::from(*last) << 8;
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    /// A finished frame, and the same frame as a kernel with checksum offload hands it over.
    fn unfinished(ipv6: bool, tcp: bool, payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let ip = if ipv6 { ethernet.ipv6([1; 16], [2; 16], 64) } else { ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) };
        let mut whole = Vec::new();
        if tcp { ip.tcp(1, 2, 3, 4).write(&mut whole, payload) } else { ip.udp(1, 2).write(&mut whole, payload) }.unwrap();
        let place = locate_checksum(&whole).unwrap();
        let (start, offset) = (usize::from(place.checksum_start), usize::from(place.checksum_offset));
        let mut partial = whole.clone();
        // The pseudo header's sum is what remains of the whole sum without the segment.
        partial[start + offset..start + offset + 2].fill(0);
        let rest = u64::from(!u16::from_be_bytes([whole[start + offset], whole[start + offset + 1]]))
            + u64::from(!ones_complement_sum(&partial[start..]));
        let pseudo = (rest % 0xffff) as u16;
        partial[start + offset..start + offset + 2].copy_from_slice(&pseudo.to_be_bytes());
        (whole, partial)
    }

    #[test]
    fn finishing_an_unfinished_checksum_gives_the_frame_that_etherparse_builds() {
        for (ipv6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            for payload in [&b""[..], b"x", b"even", b"odd payload"] {
                let (whole, mut partial) = unfinished(ipv6, tcp, payload);
                let place = locate_checksum(&partial).unwrap();
                assert!(finish_checksum(&mut partial, place));
                assert_eq!(partial, whole, "ipv6 {ipv6}, tcp {tcp}, payload {payload:?}");
            }
        }
    }

    #[test]
    fn a_checksum_outside_the_frame_is_refused() {
        let place = |checksum_start, checksum_offset| Offload { checksum_start, checksum_offset, ..Offload::default() };
        let mut frame = [0; 40];
        for bad in [place(40, 0), place(34, 5), place(u16::MAX, u16::MAX), place(0, 39)] {
            assert!(!finish_checksum(&mut frame, bad));
        }
        assert!(finish_checksum(&mut frame, place(34, 4)));
    }

    #[test]
    fn frames_without_a_transport_checksum_have_none_to_locate() {
        for frame in [&[][..], &[0; 14], &[0xff; 60]] {
            assert_eq!(locate_checksum(frame), None);
        }
    }

    #[test]
    fn a_tag_moves_the_places_in_the_frame_and_nothing_else() {
        let before = Offload { flags: 1, gso_type: 1, header_len: 66, gso_size: 1448, checksum_start: 34, checksum_offset: 16 };
        let after = behind_tag(before);
        assert_eq!(after, Offload { header_len: 70, checksum_start: 38, ..before });
        assert_eq!(behind_tag(Offload::default()), Offload::default());
    }

    #[test]
    fn the_vnet_header_carries_every_field_both_ways() {
        let offload = Offload { flags: 1, gso_type: 2, header_len: 3, gso_size: 4, checksum_start: 5, checksum_offset: 6 };
        assert_eq!(Offload::from(VnetHeader::from(offload)), offload);
    }
}
