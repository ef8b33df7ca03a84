//! MAC control frames: PAUSE (IEEE 802.3x, 802.3 annex 31B) and priority-based flow control (802.1Qbb, 802.3 annex 31D).
//!
//! ```text
//!  0        2
//!  | 0x0001 | time                                | zeros to 46 bytes    PAUSE
//!  | 0x0101 | 0 (8), enabled (8) | time 0 .. time 7 | zeros to 46 bytes    PFC
//! ```
//!
//! Times are in quanta of 512 bit times of the link; 0 = send again. Bit `p` of `enabled` says that time `p` counts.

use crate::drops::DropReason;
use crate::time::Duration;
use crate::units::BitRate;
use crate::wire::eth::{ETH_HEADER, EtherType, Ethernet, MIN_FRAME, MacAddr};

/// Where MAC control frames go: a group that no bridge forwards.
pub const MAC_CONTROL_GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x01]);
/// Priorities that PFC tells apart.
pub const PRIORITIES: usize = 8;

const OPCODE_PAUSE: u16 = 0x0001;
const OPCODE_PFC: u16 = 0x0101;
/// Bit times of a quantum.
const QUANTUM_BITS: u128 = 512;
const SECOND_NANOS: u128 = 1_000_000_000;

/// What a station asks of the one at the other end of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacControl {
    /// Send nothing.
    Pause {
        /// For so many quanta; 0 = send again.
        time: u16,
    },
    /// Send nothing of some priorities.
    Pfc {
        /// A bit per priority that is meant.
        enabled: u8,
        /// For so many quanta; 0 = send again.
        times: [u16; PRIORITIES],
    },
}

impl MacControl {
    /// The meaning of the bytes behind the Ethernet header. What follows the fields is padding.
    ///
    /// # Errors
    /// [`DropReason::Truncated`] if a field is missing, [`DropReason::UnknownOpcode`] for anything but PAUSE and PFC.
    pub fn parse(payload: &[u8]) -> Result<Self, DropReason> {
        match word(payload, 0)? {
            OPCODE_PAUSE => Ok(Self::Pause { time: word(payload, 1)? }),
            OPCODE_PFC => {
                let [_, enabled] = word(payload, 1)?.to_be_bytes();
                let mut times = [0; PRIORITIES];
                for (index, time) in times.iter_mut().enumerate() {
                    *time = word(payload, 2 + index)?;
                }
                Ok(Self::Pfc { enabled, times })
            }
            _ => Err(DropReason::UnknownOpcode),
        }
    }

    /// The whole frame.
    pub fn emit(&self, src: MacAddr) -> [u8; MIN_FRAME] {
        let mut frame = [0; MIN_FRAME];
        let header = Ethernet { dst: MAC_CONTROL_GROUP, src, vlan: None, ethertype: EtherType::MAC_CONTROL };
        // A minimum frame has room for a header.
        let _ = header.emit(&mut frame);
        let mut words = frame[ETH_HEADER..].chunks_exact_mut(2);
        let mut put = |value: u16| words.next().into_iter().for_each(|word| word.copy_from_slice(&value.to_be_bytes()));
        match *self {
            Self::Pause { time } => [OPCODE_PAUSE, time].into_iter().for_each(put),
            Self::Pfc { enabled, times } => {
                [OPCODE_PFC, u16::from(enabled)].into_iter().for_each(&mut put);
                times.into_iter().for_each(put);
            }
        }
        frame
    }
}

/// The field of this number, all being 16 bits long.
fn word(payload: &[u8], index: usize) -> Result<u16, DropReason> {
    payload.get(2 * index..2 * index + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]])).ok_or(DropReason::Truncated)
}

/// The quanta that make up a time on a link, rounded up, at least one and at most what fits the field.
pub fn quanta(span: Duration, rate: BitRate) -> u16 {
    let bits = u128::from(span.as_nanos()) * u128::from(rate.bits_per_second());
    u16::try_from(bits.div_ceil(SECOND_NANOS * QUANTUM_BITS)).unwrap_or(u16::MAX).max(1)
}

/// How long so many quanta are on a link.
pub fn quanta_time(quanta: u16, rate: BitRate) -> Duration {
    let nanos = u128::from(quanta) * QUANTUM_BITS * SECOND_NANOS / u128::from(rate.bits_per_second());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SRC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn message() -> impl Strategy<Value = MacControl> {
        prop_oneof![
            any::<u16>().prop_map(|time| MacControl::Pause { time }),
            any::<(u8, [u16; 8])>().prop_map(|(enabled, times)| MacControl::Pfc { enabled, times }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(message in message()) {
            let frame = message.emit(SRC);
            let (header, payload) = Ethernet::parse(&frame).unwrap();
            prop_assert_eq!((header.dst, header.src, header.ethertype), (MAC_CONTROL_GROUP, SRC, EtherType::MAC_CONTROL));
            prop_assert_eq!(MacControl::parse(payload), Ok(message));
        }

        #[test]
        fn any_bytes_have_a_meaning_or_a_reason(payload in prop::collection::vec(any::<u8>(), 0..80)) {
            let known = payload.len() >= 2 && [[0, 1], [1, 1]].contains(&[payload[0], payload[1]]);
            prop_assert!(known || MacControl::parse(&payload).is_err());
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_standard() {
        let pause = MacControl::Pause { time: 0x1234 }.emit(SRC);
        assert_eq!(pause[..18], [1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 0x08, 0, 1, 0x12, 0x34]);
        assert!(pause[18..].iter().all(|&byte| byte == 0));
        let pfc = MacControl::Pfc { enabled: 0x81, times: [1, 0, 0, 0, 0, 0, 0, 0xffff] }.emit(SRC);
        assert_eq!(pfc[14..20], [1, 1, 0, 0x81, 0, 1]);
        assert_eq!(pfc[32..36], [0xff, 0xff, 0, 0]);
    }

    #[test]
    fn short_payloads_and_other_opcodes_have_their_reasons() {
        let frame = MacControl::Pfc { enabled: 1, times: [7; 8] }.emit(SRC);
        for length in 0..20 {
            assert_eq!(MacControl::parse(&frame[14..14 + length]), Err(DropReason::Truncated), "{length} bytes");
        }
        assert_eq!(MacControl::parse(&[0, 1, 0]), Err(DropReason::Truncated));
        assert_eq!(MacControl::parse(&[0, 2, 0, 0]), Err(DropReason::UnknownOpcode));
        let mut reserved = frame;
        reserved[16] = 0xff;
        assert_eq!(MacControl::parse(&reserved[14..34]), Ok(MacControl::Pfc { enabled: 1, times: [7; 8] }), "reserved bits say nothing");
    }

    #[test]
    fn quanta_are_512_bit_times_rounded_up() {
        let gbit = BitRate::megabits(1000);
        assert_eq!(quanta_time(1, gbit), Duration::from_nanos(512));
        assert_eq!(quanta_time(u16::MAX, BitRate::megabits(10_000)), Duration::from_nanos(3_355_392));
        assert_eq!([0, 512, 513, 1024].map(|nanos| quanta(Duration::from_nanos(nanos), gbit)), [1, 1, 2, 2]);
        assert_eq!(quanta(Duration::from_secs(1 << 30), gbit), u16::MAX);
    }
}
