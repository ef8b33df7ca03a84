//! Marking: telling senders of a queue before it is full.
//!
//! The curve is that of RED and DCQCN on the queue as it is now: no frame below `kmin`, a share that rises to `pmax` at
//! `kmax`, every frame above. With `kmin` = `kmax` it is DCTCP's single threshold.
//!
//! Queues here are one per input, so an incast of 64 senders fills 64 short queues, and what a frame waits is their
//! sum. The thresholds are those of the output: each of its busy queues has an equal part, as in MQ-ECN (Bai et al.,
//! NSDI 2016), but no less than one frame beside the one that leaves, which is no queue. A frame is marked when it
//! leaves, by what waits behind it: the news is then as fresh as can be.

use crate::rng::Rng;
use crate::wire::eth::EtherType;

/// When to mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    /// EtherType of the frames that can be marked: that of the transport.
    pub ethertype: EtherType,
    /// Bytes waiting for an output up to which nothing is marked.
    pub kmin: u64,
    /// Bytes from which everything is marked, at least `kmin`.
    pub kmax: u64,
    /// Share marked at `kmax`, parts per million.
    pub pmax_ppm: u32,
}

impl Marking {
    /// DCTCP's: every frame above one threshold.
    pub const fn threshold(ethertype: EtherType, bytes: u64) -> Self {
        Self { ethertype, kmin: bytes, kmax: bytes, pmax_ppm: 1_000_000 }
    }

    /// Whether to mark a frame of `frame` bytes that leaves a queue in which `queued` bytes remain, one of `busy`
    /// queues of its output.
    pub(super) fn marks(&self, queued: u64, frame: u64, busy: u32, rng: &mut Rng) -> bool {
        if queued <= frame {
            return false;
        }
        let share = |threshold: u64| (threshold / u64::from(busy.max(1))).max(frame);
        let (kmin, kmax) = (share(self.kmin), share(self.kmax));
        if queued <= kmin {
            return false;
        }
        if queued > kmax {
            return true;
        }
        let position = u128::from(self.pmax_ppm) * u128::from(queued - kmin) / u128::from(kmax - kmin).max(1);
        rng.chance(u32::try_from(position).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(marking: &Marking, queued: u64, busy: u32) -> usize {
        let mut rng = Rng::from_seed(1);
        (0..10_000).filter(|_| marking.marks(queued, 1500, busy, &mut rng)).count()
    }

    #[test]
    fn the_share_of_marked_frames_rises_between_the_thresholds() {
        let marking = Marking { kmin: 10_000, kmax: 110_000, pmax_ppm: 200_000, ..Marking::threshold(EtherType::TRANSPORT, 0) };
        assert_eq!(marked(&marking, 10_000, 1), 0);
        assert!((900..1100).contains(&marked(&marking, 60_000, 1)), "half of 20 %");
        assert!((1800..2200).contains(&marked(&marking, 110_000, 1)));
        assert_eq!(marked(&marking, 110_001, 1), 10_000);
    }

    #[test]
    fn busy_queues_share_the_threshold_but_a_single_waiting_frame_is_no_queue() {
        let marking = Marking::threshold(EtherType::TRANSPORT, 64_000);
        assert_eq!([64_000, 64_001].map(|queued| marked(&marking, queued, 1)), [0, 10_000]);
        assert_eq!([16_000, 16_001].map(|queued| marked(&marking, queued, 4)), [0, 10_000]);
        assert_eq!([1_500, 1_501].map(|queued| marked(&marking, queued, 1000)), [0, 10_000]);
    }
}
