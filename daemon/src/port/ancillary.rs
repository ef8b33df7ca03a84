//! What the kernel says about a frame beside its bytes: the VLAN tag it took out, and the state of its checksum.
//!
//! Pure: reads the bytes of a control message, receives nothing.

use weft_proto::wire::eth::{ETH_HEADER, VLAN_HEADER};
use weft_proto::{FrameRef, Pool};

/// `TP_STATUS_*` of `linux/if_packet.h`.
const CHECKSUM_NOT_READY: u32 = 1 << 3;
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;
/// `PACKET_AUXDATA` as a type of control message.
pub(super) const PACKET_AUXDATA: i32 = 8;
/// The tag type if the kernel does not name it: 802.1Q.
const TPID_DEFAULT: u16 = 0x8100;

/// Length, level and type in front of a control message (`struct cmsghdr`).
const CONTROL_HEADER: usize = size_of::<usize>() + 8;
/// `struct tpacket_auxdata`.
const AUXDATA: usize = 20;
/// Room for one auxiliary message, rounded up to its alignment.
pub(super) const CONTROL_LEN: usize = CONTROL_HEADER + AUXDATA.next_multiple_of(size_of::<usize>());

/// A buffer for control messages, aligned as the kernel wants them.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct Control(pub(super) [u8; CONTROL_LEN]);

impl Control {
    /// Holds no message.
    pub(super) const EMPTY: Self = Self([0; CONTROL_LEN]);
}

/// An outer tag, as it was on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    tpid: u16,
    tci: u16,
}

/// The auxiliary data of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Auxiliary {
    /// The outer tag that is missing from the frame's bytes.
    pub(super) tag: Option<Tag>,
    /// The transport checksum is still to be computed.
    pub(super) checksum_missing: bool,
}

impl Auxiliary {
    /// Reads the first control message of a buffer that the kernel filled to `len` bytes.
    pub(super) fn parse(control: &Control, len: usize) -> Self {
        let filled = &control.0[..len.min(CONTROL_LEN)];
        let Some((header, data)) = filled.split_at_checked(CONTROL_HEADER) else { return Self::default() };
        let word = size_of::<usize>();
        let level = native_u32(&header[word..]);
        let kind = native_u32(&header[word + 4..]);
        if level != Some(libc::SOL_PACKET.cast_unsigned()) || kind != Some(PACKET_AUXDATA.cast_unsigned()) {
            return Self::default();
        }
        Self::from_auxdata(data).unwrap_or_default()
    }

    fn from_auxdata(data: &[u8]) -> Option<Self> {
        // status, len, snaplen: u32 each; mac, net, vlan_tci, vlan_tpid: u16 each
        let status = native_u32(data)?;
        let tci = native_u16(data.get(16..)?)?;
        let named = native_u16(data.get(18..)?)?;
        let tpid = if status & VLAN_TPID_VALID != 0 { named } else { TPID_DEFAULT };
        // The valid bit decides, not the value: a priority tag with VID 0 and PCP 0 has a TCI of zero.
        let tag = (status & VLAN_VALID != 0).then_some(Tag { tpid, tci });
        Some(Self { tag, checksum_missing: status & CHECKSUM_NOT_READY != 0 })
    }
}

fn native_u32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn native_u16(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|word| u16::from_ne_bytes(*word))
}

/// Puts a tag back between the addresses and the type of a frame. False if the frame has no headroom for it
/// or no room for two addresses.
pub(super) fn insert_tag(pool: &mut Pool, frame: &FrameRef, tag: Tag) -> bool {
    const ADDRESSES: usize = ETH_HEADER - 2;
    if pool.bytes(frame).len() < ADDRESSES || !pool.grow_front(frame, VLAN_HEADER) {
        return false;
    }
    let bytes = pool.bytes_mut(frame);
    bytes.copy_within(VLAN_HEADER..VLAN_HEADER + ADDRESSES, 0);
    bytes[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tag.tpid.to_be_bytes());
    bytes[ADDRESSES + 2..ADDRESSES + 4].copy_from_slice(&tag.tci.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(status: u32, tci: u16, tpid: u16) -> Control {
        let mut bytes = Vec::new();
        bytes.extend((CONTROL_HEADER + AUXDATA).to_ne_bytes());
        bytes.extend(libc::SOL_PACKET.to_ne_bytes());
        bytes.extend(PACKET_AUXDATA.to_ne_bytes());
        bytes.extend(status.to_ne_bytes());
        bytes.extend([0; 12]);
        bytes.extend(tci.to_ne_bytes());
        bytes.extend(tpid.to_ne_bytes());
        bytes.resize(CONTROL_LEN, 0);
        Control(bytes.try_into().unwrap())
    }

    #[test]
    fn the_valid_bit_says_that_there_is_a_tag_even_if_it_is_all_zero() {
        let tag = |status, tci, tpid| Auxiliary::parse(&control(status, tci, tpid), CONTROL_LEN).tag;
        assert_eq!(tag(0x51, 0, 0x8100), Some(Tag { tpid: 0x8100, tci: 0 }));
        assert_eq!(tag(0x51, 0xa007, 0x88a8), Some(Tag { tpid: 0x88a8, tci: 0xa007 }));
        assert_eq!(tag(0x11, 7, 0), Some(Tag { tpid: 0x8100, tci: 7 }), "no TPID named");
        assert_eq!(tag(0x01, 7, 0x8100), None, "the TCI is left over from elsewhere");
    }

    #[test]
    fn the_unfinished_checksum_is_noticed() {
        assert!(Auxiliary::parse(&control(0x8, 0, 0), CONTROL_LEN).checksum_missing);
        assert!(!Auxiliary::parse(&control(0x81, 0, 0), CONTROL_LEN).checksum_missing);
    }

    #[test]
    fn a_short_or_foreign_control_message_says_nothing() {
        let full = control(0x59, 7, 0x8100);
        for len in 0..CONTROL_HEADER + AUXDATA {
            assert_eq!(Auxiliary::parse(&full, len), Auxiliary::default(), "{len} bytes");
        }
        let mut foreign = full;
        foreign.0[size_of::<usize>() + 4] = 99;
        assert_eq!(Auxiliary::parse(&foreign, CONTROL_LEN), Auxiliary::default());
    }

    #[test]
    fn a_tag_goes_between_the_addresses_and_the_type() {
        let mut pool = Pool::new(1, 128, 4);
        let frame = pool.alloc().unwrap();
        pool.room_mut(&frame)[..15].copy_from_slice(b"ddddddsssssstt!");
        pool.set_len(&frame, 15);
        assert!(insert_tag(&mut pool, &frame, Tag { tpid: 0x8100, tci: 0x0203 }));
        assert_eq!(pool.bytes(&frame), b"ddddddssssss\x81\x00\x02\x03tt!");
        assert!(!insert_tag(&mut pool, &frame, Tag { tpid: 0x8100, tci: 1 }), "the headroom is used up");
        pool.free(frame);
    }
}
