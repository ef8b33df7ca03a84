//! The stop control packet: a receiver asks one sender to stop or slow down.
//!
//! ```text
//!  0          4          8       16     20     24
//!  | command  | priority | timer | 0    | rate | padding to 46 bytes |
//! ```
//!
//! The padding is zeros, which are ignored, unless both sides share a key. Then it begins with a seal:
//!
//! ```text
//!  3          5         6              14        22
//!  | "WS"     | 1       | sequence     | tag     | zeros
//! ```
//!
//! The tag is SipHash-2-4 over both addresses, the EtherType and the bytes in front of it. Who knows nothing of it reads the
//! packet like any other.

use core::fmt;
use core::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::drops::DropReason;
use crate::wire::eth::Ethernet;

/// Bytes of a stop control packet behind the Ethernet header: the minimum payload of a frame.
pub const STOP_LEN: usize = 46;
/// EtherTypes that stop control packets may have: not assigned to anybody (the source's range).
pub const STOP_ETHERTYPES: core::ops::RangeInclusive<u16> = 0xff10..=0xfffe;

/// Bytes that may follow the minimum payload: the room of a tag that was taken out of a padded frame.
const STOP_SLACK: usize = 4;

/// Marks a seal, with its version.
const SEAL: [u8; 3] = *b"WS\x01";
/// Where the parts of a seal begin.
const SEAL_AT: usize = 3;
const SEQUENCE_AT: usize = 6;
const TAG_AT: usize = 14;
const TAG_END: usize = 22;

/// What a receiver asks of a sender, for frames addressed to the receiver only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMessage {
    /// Stop, or slow down.
    Stop {
        /// Frames of lower priority are meant, 0 to 15.
        priority: u8,
        /// Timer in units of the configured tick; 0 = the sender's own preset.
        timer: u8,
        /// 0 = stop altogether, n = n/16 of the rate, or what the sender's rule makes of it.
        rate: u8,
    },
    /// Send again.
    Cancel,
}

/// A secret that hosts share to know each other's control packets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StopKey(pub [u8; 16]);

impl fmt::Debug for StopKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StopKey(secret)")
    }
}

impl StopMessage {
    /// The meaning of the bytes behind the Ethernet header.
    ///
    /// # Errors
    /// [`DropReason::BadLength`] if not as long as the minimum payload, [`DropReason::UnknownCommand`] for
    /// commands other than stop and cancel.
    pub fn parse(payload: &[u8]) -> Result<Self, DropReason> {
        let fields = payload.get(..STOP_LEN).filter(|_| payload.len() <= STOP_LEN + STOP_SLACK).ok_or(DropReason::BadLength)?;
        match fields[0] >> 4 {
            0x0 => Ok(Self::Stop { priority: fields[0] & 0xf, timer: fields[1], rate: fields[2] & 0xf }),
            0xf => Ok(Self::Cancel),
            _ => Err(DropReason::UnknownCommand),
        }
    }

    /// The bytes behind the Ethernet header.
    pub fn emit(self) -> [u8; STOP_LEN] {
        let mut out = [0; STOP_LEN];
        match self {
            Self::Stop { priority, timer, rate } => {
                out[0] = priority & 0xf;
                out[1] = timer;
                out[2] = rate & 0xf;
            }
            Self::Cancel => out[0] = 0xf0,
        }
        out
    }

    /// Writes the whole frame, sealed with a key and a sequence number if there is one, and returns its length; `None` if it
    /// does not fit.
    pub fn emit_frame(self, out: &mut [u8], header: &Ethernet, seal: Option<(&StopKey, u64)>) -> Option<usize> {
        let at = header.len();
        let mut payload = self.emit();
        if let Some((key, sequence)) = seal {
            payload[SEAL_AT..SEQUENCE_AT].copy_from_slice(&SEAL);
            payload[SEQUENCE_AT..TAG_AT].copy_from_slice(&sequence.to_be_bytes());
            let tag = tag(key, header, &payload[..TAG_AT]);
            payload[TAG_AT..TAG_END].copy_from_slice(&tag);
        }
        out.get_mut(at..at + STOP_LEN)?.copy_from_slice(&payload);
        header.emit(out)?;
        Some(at + STOP_LEN)
    }
}

/// The sequence number of a sealed packet.
///
/// # Errors
/// [`DropReason::StopBadTag`] if there is no seal, or it was not made with this key for this frame.
pub fn sequence_of(key: &StopKey, header: &Ethernet, payload: &[u8]) -> Result<u64, DropReason> {
    let sealed = payload.get(..TAG_END).filter(|payload| payload[SEAL_AT..SEQUENCE_AT] == SEAL).ok_or(DropReason::StopBadTag)?;
    if !same(&tag(key, header, &sealed[..TAG_AT]), &sealed[TAG_AT..]) {
        return Err(DropReason::StopBadTag);
    }
    sealed[SEQUENCE_AT..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes)).ok_or(DropReason::StopBadTag)
}

fn tag(key: &StopKey, header: &Ethernet, bytes: &[u8]) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_key(&key.0);
    hasher.write(&header.dst.0);
    hasher.write(&header.src.0);
    hasher.write(&header.ethertype.0.to_be_bytes());
    hasher.write(bytes);
    hasher.finish().to_be_bytes()
}

/// Looks at all bytes, wherever the first difference is.
fn same(a: &[u8; 8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::eth::{EtherType, MacAddr};
    use alloc::format;

    const KEY: StopKey = StopKey([7; 16]);
    const STOP: StopMessage = StopMessage::Stop { priority: 3, timer: 40, rate: 5 };

    fn header() -> Ethernet {
        Ethernet { dst: MacAddr([2, 0, 0, 0, 0, 1]), src: MacAddr([2, 0, 0, 0, 0, 2]), vlan: None, ethertype: EtherType::STOP }
    }

    fn sealed(sequence: u64) -> [u8; 60] {
        let mut frame = [0; 60];
        assert_eq!(STOP.emit_frame(&mut frame, &header(), Some((&KEY, sequence))), Some(60));
        frame
    }

    #[test]
    fn a_plain_packet_is_a_minimum_frame_with_three_bytes_and_zeros() {
        let mut frame = [0xaa; 60];
        assert_eq!(STOP.emit_frame(&mut frame, &header(), None), Some(60));
        assert_eq!(&frame[12..18], &[0xff, 0x10, 0x03, 40, 5, 0]);
        assert!(frame[17..].iter().all(|&byte| byte == 0));
        assert_eq!(STOP.emit_frame(&mut frame[..59], &header(), None), None);
    }

    #[test]
    fn a_seal_is_ignored_by_those_without_a_key_and_opens_for_those_with_the_same() {
        let frame = sealed(9);
        assert_eq!(StopMessage::parse(&frame[14..]), Ok(STOP));
        assert_eq!(sequence_of(&KEY, &header(), &frame[14..]), Ok(9));
        assert_eq!(sequence_of(&StopKey([8; 16]), &header(), &frame[14..]), Err(DropReason::StopBadTag));
        let other = Ethernet { dst: MacAddr([2, 0, 0, 0, 0, 3]), ..header() };
        assert_eq!(sequence_of(&KEY, &other, &frame[14..]), Err(DropReason::StopBadTag), "made for another host");
        assert_eq!(sequence_of(&KEY, &header(), &STOP.emit()), Err(DropReason::StopBadTag), "a plain packet");
    }

    #[test]
    fn no_bit_that_means_anything_can_be_changed() {
        let frame = sealed(9);
        for bit in 14 * 8..(14 + TAG_END) * 8 {
            let mut forged = frame;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sequence_of(&KEY, &header(), &forged[14..]), Err(DropReason::StopBadTag), "bit {bit}");
        }
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", StopKey(*b"sixteen secrets!")), "StopKey(secret)");
    }
}
