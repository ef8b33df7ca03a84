//! Swift (Kumar et al., SIGCOMM 2020): additive increase while the delay is below a target, multiplicative decrease
//! in proportion to the excess, and windows below one packet by pacing.
//!
//! The paper's target is a base for the fabric plus a constant per hop, which it reads off the IP header, plus a term
//! for the number of competing flows. Frames here have no hop count, and software at the ends adds tens of
//! microseconds that no table knows. So base and hops are measured: the smallest round trip of the last seconds. The
//! target is that plus [`Settings::queueing_delay`], plus the paper's flow scaling. The flow alone on its path thus
//! always has a target above what the path takes, however long that is.
//!
//! The second change: a loss counts only if it has a queue for company, or is one of many. Ethernet loses frames for
//! other reasons, and halving for each would cost more than the losses.
//!
//! The third: what counts against the target is the smallest sample of a round trip, not each sample. A
//! thread that loses its processor for a moment delays some packets, a queue delays all.

use crate::time::{Duration, Instant};
use crate::transport::congestion::cwnd::Cwnd;
use crate::transport::congestion::units::Smallest;
use crate::transport::congestion::{Report, Settings, Share, Window};

/// Packets added per round trip (the paper's `ai`).
const INCREASE: Share = Share::WHOLE;
/// How strongly an excess counts (the paper's `beta`).
const BETA: Share = Share::ratio(4, 5);
/// Most that one decrease takes (the paper's `max_mdf`).
const MOST_DECREASE: Share = Share::ratio(1, 2);
/// Smallest window: one packet in a thousand round trips.
const LEAST: Window = Window::part(Share::ratio(1, 1000));
/// Windows between which the target depends on the window (the paper's `fs_min_cwnd` and `fs_max_cwnd`).
const SCALED: (Window, Window) = (Window::part(Share::ratio(1, 10)), Window::packets(100));
/// One in so many packets lost in a round trip is congestion even if no delay is seen (a short queue in front of a slow
/// port). BBR version 2 tolerates one in 50; two lossy links in a row are near that.
const LOSS_PART: u32 = 20;
/// Time-outs in a row that empty the window (the paper's `RETX_RESET_THRESHOLD`).
const RESET_AFTER: u8 = 5;

/// The state of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swift {
    pub(super) cwnd: Cwnd,
    queueing: Duration,
    /// Added to the target of the smallest windows (the paper's `fs_range`).
    range: Duration,
    smallest: Smallest,
    /// The round trip in progress: when it ends, and its smallest sample.
    ends: Instant,
    round: Duration,
    /// Losses and arrivals in it.
    lost: u32,
    delivered: u32,
    /// The last sample saw half of the queue that counts as congestion.
    queue_seen: bool,
    timeouts: u8,
}

impl Swift {
    pub(super) fn new(settings: &Settings, cap: Window) -> Self {
        Self {
            cwnd: Cwnd::new(settings.first_window(), LEAST, cap),
            queueing: settings.queueing_delay,
            range: settings.flow_scaling,
            smallest: Smallest::new(),
            ends: Instant::ZERO,
            round: Duration::MAX,
            lost: 0,
            delivered: 0,
            queue_seen: false,
            timeouts: 0,
        }
    }

    /// Returns true if the window shrank.
    pub(super) fn on_ack(&mut self, report: &Report) -> bool {
        self.timeouts = 0;
        self.delivered = self.delivered.saturating_add(report.delivered);
        let Some(rtt) = report.rtt else { return false };
        let smallest = self.smallest.sample(report.now, rtt);
        self.queue_seen = rtt >= smallest + self.queueing.div(2);
        let target = self.target(smallest);
        if rtt < target {
            self.cwnd.grow(INCREASE, report.delivered, report.outstanding);
        } else {
            self.cwnd.end_start();
        }
        self.round = self.round.min(rtt);
        report.now >= self.ends && self.end_round(report.now, rtt, target)
    }

    fn end_round(&mut self, now: Instant, rtt: Duration, target: Duration) -> bool {
        self.ends = now + rtt;
        (self.lost, self.delivered) = (0, 0);
        let delay = core::mem::replace(&mut self.round, Duration::MAX);
        if delay < target {
            return false;
        }
        let excess = Share::ratio(delay.saturating_sub(target).as_nanos(), delay.as_nanos());
        let keep = BETA.times(excess).rest().max(MOST_DECREASE.rest());
        self.cwnd.shrink(now, rtt, keep)
    }

    /// Grows as the window shrinks: with many flows the queue is longer, by the root of their number (the paper's
    /// section 3.3: `alpha / sqrt(cwnd) + beta`, between 0 and `fs_range`).
    fn target(&self, smallest: Duration) -> Duration {
        let (low, high) = (SCALED.0.inverse_root(), SCALED.1.inverse_root());
        let root = self.cwnd.get().inverse_root().clamp(high, low);
        let position = Share::ratio(root.excess(high), low.excess(high));
        smallest + self.queueing + Duration::from_nanos(position.of(self.range.as_nanos()))
    }

    pub(super) fn on_loss(&mut self, now: Instant, rtt: Duration) -> bool {
        self.timeouts = 0;
        self.lost = self.lost.saturating_add(1);
        let many = self.lost > 1 && self.lost.saturating_mul(LOSS_PART) > self.delivered.max(self.cwnd.get().whole());
        (self.queue_seen || many) && self.cwnd.shrink(now, rtt, MOST_DECREASE.rest())
    }

    pub(super) fn on_timeout(&mut self, now: Instant, rtt: Duration) {
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts >= RESET_AFTER {
            self.cwnd.collapse(now, LEAST);
        } else {
            self.cwnd.shrink(now, rtt, MOST_DECREASE.rest());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::congestion::tests::{CAP, RTT, at, report, settings};

    /// A window of ten packets on a path of 50 us, past its start. Target: 50 + 200 + flow scaling.
    fn ten() -> Swift {
        let mut swift = Swift::new(&Settings { flow_scaling: Duration::ZERO, ..settings() }, CAP);
        swift.smallest.sample(at(0), RTT);
        swift.cwnd.end_start();
        swift
    }

    fn delayed(now: Instant, micros: u64) -> Report {
        Report { rtt: Some(Duration::from_micros(micros)), ..report(now, 1) }
    }

    #[test]
    fn below_the_target_a_window_of_acknowledgements_adds_one_packet() {
        let mut swift = ten();
        (0..10).for_each(|_| _ = swift.on_ack(&delayed(at(1), 249)));
        assert!((10_900..=11_000).contains(&swift.cwnd.get().millis()), "{}", swift.cwnd.get());
    }

    #[test]
    fn the_decrease_is_in_proportion_to_the_excess_and_at_most_half() {
        let mut swift = ten();
        // 1 - 0.8 * (500 - 250) / 500 = 0.6.
        assert!(swift.on_ack(&delayed(at(1), 500)));
        assert_eq!(swift.cwnd.get().millis(), 6000);
        // 1 - 0.8 * (10,000 - 250) / 10,000 = 0.22, but never below a half.
        assert!(swift.on_ack(&delayed(at(20), 10_000)));
        assert_eq!(swift.cwnd.get().millis(), 3000);
        assert!(!swift.on_ack(&delayed(at(20), 10_000)), "once per round trip");
    }

    #[test]
    fn one_late_packet_of_many_is_no_queue() {
        let mut swift = ten();
        let after = |micros| at(1) + Duration::from_micros(micros);
        let before = swift.cwnd.get();
        for (time, delay) in [(0, 60), (10, 900), (20, 60), (70, 900)] {
            assert!(!swift.on_ack(&delayed(after(time), delay)), "its round had a sample of 60 us");
        }
        assert!(swift.cwnd.get() >= before);
    }

    #[test]
    fn small_windows_have_a_higher_target() {
        let mut swift = Swift::new(&Settings { flow_scaling: Duration::from_micros(100), ..settings() }, CAP);
        let target = |window| {
            swift.cwnd = Cwnd::new(window, LEAST, CAP);
            swift.target(RTT).as_micros()
        };
        // alpha = 100 / (1/sqrt(0.1) - 1/sqrt(100)) = 32.66, beta = -3.27: at 1 packet 29.4, at 16 packets 4.9.
        let targets: std::vec::Vec<u64> =
            [LEAST, Window::part(Share::ratio(1, 10)), Window::ONE, Window::packets(16), Window::packets(100)].map(target).into();
        assert_eq!(targets, [350, 350, 279, 254, 250]);
    }

    #[test]
    fn time_outs_halve_the_window_and_the_fifth_empties_it() {
        let mut swift = ten();
        (1..=4).for_each(|n| swift.on_timeout(at(n * 20), RTT));
        assert_eq!(swift.cwnd.get().millis(), 625);
        swift.on_timeout(at(100), RTT);
        assert_eq!(swift.cwnd.get(), LEAST);
        swift.on_ack(&delayed(at(101), 50));
        assert!(swift.cwnd.get() > Window::ONE, "one acknowledgement below the target brings it back");
    }

    #[test]
    fn a_loss_counts_with_a_queue_or_with_many_others() {
        let mut swift = ten();
        swift.on_ack(&delayed(at(1), 100));
        assert!(!swift.on_loss(at(1), RTT), "one in ten, and no queue");
        assert!(swift.on_loss(at(1), RTT), "two in ten");
        let mut swift = ten();
        swift.on_ack(&delayed(at(1), 160));
        assert!(swift.on_loss(at(1), RTT), "a queue of 110 us");
    }

    #[test]
    fn a_longer_path_is_learned_after_the_memory_of_the_shorter_one_fades() {
        let mut swift = ten();
        for milli in 1..30_000 {
            swift.on_ack(&delayed(Instant::from_nanos(milli * 1_000_000), 2_000));
        }
        assert!(swift.cwnd.get() > Window::packets(50), "{}", swift.cwnd.get());
    }
}
