//! AIMD as TCP has it (RFC 5681): slow start, one packet more per round trip, half on a loss, one on a time-out.
//! Its only signal is loss; of marks and delays it knows nothing.

use crate::time::{Duration, Instant};
use crate::transport::congestion::cwnd::Cwnd;
use crate::transport::congestion::{Report, Settings, Share, Window};

/// Kept after a loss (RFC 5681 3.1, equation 4).
const KEEP: Share = Share::ratio(1, 2);

/// The state of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aimd {
    pub(super) cwnd: Cwnd,
}

impl Aimd {
    pub(super) fn new(settings: &Settings, cap: Window) -> Self {
        Self { cwnd: Cwnd::new(settings.first_window(), Window::ONE, cap) }
    }

    pub(super) fn on_ack(&mut self, report: &Report) {
        self.cwnd.grow(Share::WHOLE, report.delivered, report.outstanding);
    }

    pub(super) fn on_loss(&mut self, now: Instant, rtt: Duration) -> bool {
        self.cwnd.shrink(now, rtt, KEEP)
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.cwnd.collapse(now, Window::ONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::congestion::tests::{CAP, RTT, at, report, settings};

    #[test]
    fn the_window_doubles_then_halves_then_grows_by_one_packet_a_round_trip() {
        let mut aimd = Aimd::new(&settings(), CAP);
        assert_eq!(aimd.cwnd.get(), Window::packets(10));
        aimd.on_ack(&report(at(1), 10));
        assert_eq!(aimd.cwnd.get(), Window::packets(20), "slow start");
        assert!(aimd.on_loss(at(1), RTT));
        assert_eq!(aimd.cwnd.get(), Window::packets(10));
        assert!(!aimd.on_loss(at(1) + RTT.div(2), RTT), "once per round trip");
        aimd.on_ack(&report(at(2), 10));
        assert_eq!(aimd.cwnd.get(), Window::packets(11));
        aimd.on_timeout(at(3));
        assert_eq!(aimd.cwnd.get(), Window::ONE);
    }
}
