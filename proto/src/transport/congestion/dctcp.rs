//! DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257): the window shrinks in proportion to the share of marked packets.

use crate::time::{Duration, Instant};
use crate::transport::congestion::cwnd::Cwnd;
use crate::transport::congestion::{Report, Settings, Share, Window};

/// Weight of the newest round in the share of marked packets (RFC 8257 3.3: 1/16).
const GAIN: Share = Share::ratio(1, 16);

/// The state of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dctcp {
    pub(super) cwnd: Cwnd,
    /// Share of packets marked, averaged. Starts at the whole, so that the first mark halves the window (RFC 8257 3.3).
    alpha: Share,
    /// The round in progress: when it ends, and what arrived in it.
    ends: Instant,
    delivered: u32,
    marked: u32,
}

impl Dctcp {
    /// RFC 8257 keeps two packets at least; with 64 senders into one port one is enough of a queue.
    pub(super) fn new(settings: &Settings, cap: Window) -> Self {
        let cwnd = Cwnd::new(settings.first_window(), Window::ONE, cap);
        Self { cwnd, alpha: Share::WHOLE, ends: Instant::ZERO, delivered: 0, marked: 0 }
    }

    /// Returns true if the window shrank.
    pub(super) fn on_ack(&mut self, report: &Report, rtt: Duration) -> bool {
        self.delivered = self.delivered.saturating_add(report.delivered);
        self.marked = self.marked.saturating_add(report.marked);
        if report.now >= self.ends {
            self.end_round(report.now, rtt);
        }
        if report.marked > 0 {
            return self.cwnd.shrink(report.now, rtt, self.alpha.times(Share::ratio(1, 2)).rest());
        }
        self.cwnd.grow(Share::WHOLE, report.delivered, report.outstanding);
        false
    }

    fn end_round(&mut self, now: Instant, rtt: Duration) {
        if self.delivered > 0 {
            let share = Share::ratio(u64::from(self.marked.min(self.delivered)), u64::from(self.delivered));
            self.alpha = self.alpha.average(GAIN, share);
        }
        self.ends = now + rtt;
        (self.delivered, self.marked) = (0, 0);
    }

    pub(super) fn on_loss(&mut self, now: Instant, rtt: Duration) -> bool {
        self.cwnd.shrink(now, rtt, Share::ratio(1, 2))
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
    fn alpha_follows_the_marked_share_and_the_window_keeps_one_less_half_of_it() {
        let mut dctcp = Dctcp::new(&settings(), CAP);
        dctcp.alpha = Share::ratio(1, 2);
        dctcp.ends = at(1);
        // A quarter marked: alpha = 15/16 * 1/2 + 1/16 * 1/4 = 0.484375; 10 packets keep 1 - 0.2421875 of 10 = 7.578.
        assert!(dctcp.on_ack(&Report { marked: 4, ..report(at(1), 16) }, RTT));
        assert_eq!(dctcp.alpha.per_mille(), 484);
        assert_eq!(dctcp.cwnd.get().millis(), 7578);
        assert!(!dctcp.on_ack(&Report { marked: 4, ..report(at(1), 16) }, RTT), "once per round trip");
    }

    #[test]
    fn a_path_without_marks_lets_alpha_decay_to_nothing() {
        let mut dctcp = Dctcp::new(&settings(), CAP);
        for round in 1..200 {
            dctcp.on_ack(&report(at(round), 10), RTT);
        }
        assert_eq!(dctcp.alpha.per_mille(), 0);
        assert_eq!(dctcp.cwnd.get(), CAP);
    }

    #[test]
    fn more_marks_than_packets_count_as_all_of_them() {
        let mut dctcp = Dctcp::new(&settings(), CAP);
        dctcp.on_ack(&Report { marked: 30_000, ..report(at(1), 1) }, RTT);
        assert_eq!((dctcp.alpha, dctcp.cwnd.get()), (Share::WHOLE, Window::packets(5)));
    }
}
