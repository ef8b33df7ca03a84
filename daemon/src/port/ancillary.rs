//! What the kernel says about a frame beside its bytes: the VLAN tag it took out, the state of its checksum, when it arrived.
//!
//! Pure: reads the bytes of control messages, receives nothing.

use weft_proto::wire::eth::{ETH_HEADER, VLAN_HEADER};
use weft_proto::{FrameRef, Pool};

/// `TP_STATUS_*` of `linux/if_packet.h`.
const CHECKSUM_NOT_READY: u32 = 1 << 3;
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;
/// `PACKET_AUXDATA` as a type of control message.
pub(super) const PACKET_AUXDATA: i32 = 8;
/// `SO_TIMESTAMPNS_NEW` of `asm-generic/socket.h`, also as a type of control message.
pub(super) const TIMESTAMP: i32 = 64;
/// The tag type if the kernel does not name it: 802.1Q.
const TPID_DEFAULT: u16 = 0x8100;

/// Length, level and type in front of a control message (`struct cmsghdr`).
const CONTROL_HEADER: usize = size_of::<usize>() + 8;
/// `struct tpacket_auxdata`.
const AUXDATA: usize = 20;
/// `struct __kernel_timespec`.
const TIMESPEC: usize = 16;
/// Room for one auxiliary message and one time, rounded up to their alignment.
pub(super) const CONTROL_LEN: usize = 2 * CONTROL_HEADER + TIMESPEC + aligned(AUXDATA);

const fn aligned(len: usize) -> usize {
    len.next_multiple_of(size_of::<usize>())
}

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
    /// When the frame arrived by the wall clock, in nanoseconds since 1970; only if asked for.
    pub(super) arrived: Option<u64>,
}

impl Auxiliary {
    /// Reads the control messages of a buffer that the kernel filled to `len` bytes.
    pub(super) fn parse(control: &Control, len: usize) -> Self {
        let mut read = Self::default();
        let mut rest = &control.0[..len.min(CONTROL_LEN)];
        // Each step takes at least a header off the rest.
        while let Some((level, kind, data, behind)) = next_message(rest) {
            match (level, kind) {
                (libc::SOL_PACKET, PACKET_AUXDATA) => {
                    let auxdata = Self::from_auxdata(data).unwrap_or_default();
                    (read.tag, read.checksum_missing) = (auxdata.tag, auxdata.checksum_missing);
                }
                (libc::SOL_SOCKET, TIMESTAMP) => read.arrived = nanos_of(data),
                _ => {}
            }
            rest = behind;
        }
        read
    }

    fn from_auxdata(data: &[u8]) -> Option<Self> {
        // status, len, snaplen: u32 each; mac, net, vlan_tci, vlan_tpid: u16 each
        let status = native_u32(data)?;
        let tci = native_u16(data.get(16..)?)?;
        let named = native_u16(data.get(18..)?)?;
        let tpid = if status & VLAN_TPID_VALID != 0 { named } else { TPID_DEFAULT };
        // The valid bit decides, not the value: a priority tag with VID 0 and PCP 0 has a TCI of zero.
        let tag = (status & VLAN_VALID != 0).then_some(Tag { tpid, tci });
        Some(Self { tag, checksum_missing: status & CHECKSUM_NOT_READY != 0, arrived: None })
    }
}

/// Level, type and data of the first message, and what is behind it. Its length is the kernel's, the room is ours.
fn next_message(bytes: &[u8]) -> Option<(i32, i32, &[u8], &[u8])> {
    let word = size_of::<usize>();
    let len = usize::from_ne_bytes(*bytes.first_chunk()?);
    let (header, data) = bytes.get(..len)?.split_at_checked(CONTROL_HEADER)?;
    let field = |at| native_u32(&header[at..]).map(u32::cast_signed);
    Some((field(word)?, field(word + 4)?, data, bytes.get(aligned(len)..).unwrap_or_default()))
}

/// Nanoseconds of a `struct __kernel_timespec`.
fn nanos_of(data: &[u8]) -> Option<u64> {
    let seconds = i64::from_ne_bytes(*data.first_chunk()?);
    let nanos = i64::from_ne_bytes(*data.get(8..)?.first_chunk()?);
    u64::try_from(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?).ok()
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
    fn the_time_of_arrival_stands_in_front_of_the_rest_or_behind_it_or_not_at_all() {
        let mut time = Vec::new();
        time.extend((CONTROL_HEADER + TIMESPEC).to_ne_bytes());
        time.extend(libc::SOL_SOCKET.to_ne_bytes());
        time.extend(TIMESTAMP.to_ne_bytes());
        time.extend([5_i64.to_ne_bytes(), 7_i64.to_ne_bytes()].concat());
        let auxdata = &control(0x51, 9, 0x8100).0[..CONTROL_HEADER + aligned(AUXDATA)];
        for order in [[auxdata, &time], [&time, auxdata]] {
            let both = Auxiliary::parse(&Control(order.concat().try_into().unwrap()), CONTROL_LEN);
            assert_eq!((both.arrived, both.tag), (Some(5_000_000_007), Some(Tag { tpid: 0x8100, tci: 9 })));
        }
        assert_eq!(Auxiliary::parse(&control(0x51, 9, 0x8100), CONTROL_LEN).arrived, None);
    }

    #[test]
    fn a_message_that_claims_to_be_longer_or_shorter_than_it_can_be_ends_the_reading() {
        for len in [0, 1, CONTROL_HEADER - 1, CONTROL_LEN + 1, usize::MAX] {
            let mut bad = control(0x51, 9, 0x8100);
            bad.0[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(Auxiliary::parse(&bad, CONTROL_LEN), Auxiliary::default(), "{len}");
        }
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
