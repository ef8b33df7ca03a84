//! The speed of an output: when the next frame may leave.
//!
//! The pacer keeps the instant at which the wire is free again. Waiting frames leave at exactly the configured
//! rate even if the owner wakes late, because a late frame is booked at the instant when it should have left. That
//! debt is bounded by [`CATCH_UP`], and a wire that had nothing to send earns none.

use crate::time::{Duration, Instant};
use crate::units::BitRate;

/// Bytes that a frame takes on the wire beside its own: preamble and start delimiter 8, FCS 4, inter-frame gap 12
/// (IEEE 802.3 3.1.1 and 4.4.2). A link of 1 Gbit/s thus carries 1514-byte frames at 984 Mbit/s.
pub const FRAME_OVERHEAD: u64 = 24;

/// How far behind the owner may be without the link losing rate, and hence the longest burst, as time on the wire.
/// One millisecond is the step of the kernel's `epoll_wait` timeout and 20 times its usual timer slack of 50 us,
/// while the burst (250 kB at 2 Gbit/s) still fits one virtual output queue of the default limit.
pub const CATCH_UP: Duration = Duration::from_millis(1);

/// Bits of a byte times nanoseconds of a second: `bytes * BIT_NANOS / rate` is a time.
const BIT_NANOS: u64 = 8_000_000_000;

/// Paces one output.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    rate: Option<BitRate>,
    free_at: Instant,
    /// What the division of the last frame's time left over, in units of 1/rate ns: at 100 Gbit/s a short frame
    /// lasts 6.7 ns, so rounding each to a whole nanosecond would cost 4 % of the rate.
    remainder: u64,
}

impl Pacer {
    /// A pacer whose wire is free from `now` on.
    pub(crate) const fn new(rate: Option<BitRate>, now: Instant) -> Self {
        Self { rate, free_at: now, remainder: 0 }
    }

    /// The first frame after a pause starts to wait.
    pub(crate) fn handle_backlog(&mut self, now: Instant) {
        if self.free_at < now {
            self.free_at = now;
            self.remainder = 0;
        }
    }

    /// When the next frame may leave; always, without a rate.
    pub(crate) fn ready_at(&self) -> Instant {
        self.rate.map_or(Instant::ZERO, |_| self.free_at)
    }

    /// Books a frame that leaves now, and returns the instant at which it left by the wire's own clock.
    pub(crate) fn book(&mut self, now: Instant, bytes: u64) -> Instant {
        let Some(rate) = self.rate else { return now };
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(CATCH_UP.as_nanos()));
        let start = self.free_at.max(earliest);
        let bits_per_second = rate.bits_per_second();
        let cost = (bytes + FRAME_OVERHEAD).saturating_mul(BIT_NANOS).saturating_add(self.remainder);
        self.free_at = start + Duration::from_nanos(cost / bits_per_second);
        self.remainder = cost % bits_per_second;
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;

    fn pacer(bits: u64) -> Pacer {
        Pacer::new(BitRate::new(bits), Instant::ZERO)
    }

    /// Bytes on the wire of frames of `bytes` that an owner waking every `step` ns sends within `span` ns.
    fn sent(pacer: &mut Pacer, bytes: u64, step: u64, span: u64) -> u64 {
        let mut sent = 0;
        for now in (0..span).step_by(usize::try_from(step).unwrap()).map(Instant::from_nanos) {
            while pacer.ready_at() <= now {
                pacer.book(now, bytes);
                sent += bytes + FRAME_OVERHEAD;
            }
        }
        sent
    }

    #[test]
    fn the_rate_is_met_at_any_speed_frame_size_and_wake_up_interval() {
        // 4,294,968 kbit/s is just beyond what 32 bits of bits per second hold.
        for (bits, bytes) in [(100 * GBIT, 60), (10 * GBIT, 60), (4_294_968_000, 1514), (10_000_000, 1514), (2 * GBIT, 9018)] {
            for step in [30_000, 250_000, 1_000_000] {
                let span = 200_000_000;
                let expected = bits / 8 / 5;
                let sent = sent(&mut pacer(bits), bytes, step, span);
                let slack = expected / 100 + bytes + FRAME_OVERHEAD + bits / 8 / 1000;
                assert!(sent.abs_diff(expected) <= slack, "{bits} bit/s, {bytes} bytes, every {step} ns: {sent} instead of {expected}");
            }
        }
    }

    #[test]
    fn a_short_frame_at_100_gbit_keeps_the_fractions_of_its_nanoseconds() {
        let mut pacer = pacer(100 * GBIT);
        (0..1000).for_each(|_| _ = pacer.book(Instant::ZERO, 60));
        assert_eq!(pacer.ready_at(), Instant::from_nanos(6720));
    }

    #[test]
    fn a_late_owner_makes_up_for_at_most_the_catch_up_time() {
        let mut pacer = pacer(GBIT);
        let late = Instant::from_nanos(5_000_000);
        let frames = core::iter::from_fn(|| (pacer.ready_at() <= late).then(|| pacer.book(late, 1226))).count();
        assert_eq!(frames, 101, "10 us each: those of one millisecond and the one that goes now");
    }

    #[test]
    fn an_idle_wire_earns_no_burst() {
        let mut pacer = pacer(GBIT);
        pacer.book(Instant::ZERO, 1226);
        let later = Instant::from_nanos(50_000);
        pacer.handle_backlog(later);
        assert_eq!(pacer.book(later, 1226), later);
        assert_eq!(pacer.ready_at(), Instant::from_nanos(60_000));
    }

    #[test]
    fn a_late_frame_is_booked_at_the_instant_when_it_should_have_left() {
        let mut pacer = pacer(GBIT);
        pacer.book(Instant::ZERO, 1226);
        assert_eq!(pacer.book(Instant::from_nanos(13_000), 1226), Instant::from_nanos(10_000));
        assert_eq!(pacer.ready_at(), Instant::from_nanos(20_000));
    }

    #[test]
    fn a_clock_that_steps_back_neither_stops_nor_opens_the_wire() {
        let mut pacer = pacer(GBIT);
        pacer.handle_backlog(Instant::from_nanos(100_000));
        pacer.book(Instant::from_nanos(100_000), 1226);
        let free_at = pacer.ready_at();
        pacer.handle_backlog(Instant::from_nanos(99_000));
        assert_eq!(pacer.ready_at(), free_at);
    }

    #[test]
    fn without_a_rate_frames_leave_at_once() {
        let mut pacer = Pacer::new(None, Instant::ZERO);
        let now = Instant::from_nanos(7);
        assert_eq!((pacer.ready_at(), pacer.book(now, 9000), pacer.ready_at()), (Instant::ZERO, now, Instant::ZERO));
    }
}
