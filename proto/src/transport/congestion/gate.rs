//! What a stream asks before it sends: is there room in the window, and is it time.
//!
//! New packets need both. A packet sent again needs only the time: a lost packet keeps its place among those
//! outstanding until it arrives, so with a window that has just shrunk below their number nothing would ever go.
//! Instead, one window of retransmissions is spread over one round trip. That bounds what they add to a queue that
//! has just overflowed, as the pipe of RFC 6675 does, without a count of what is known to be lost; a burst of them
//! is what makes a plain window fail in an incast. What a time-out sends again asks nobody: it is one packet, time-outs
//! grow, and a time-out that had to wait for the pacer would be followed by the next one.

use crate::time::{Duration, Instant};
use crate::transport::congestion::{Controller, Report, Settings, View, Window};
use crate::transport::irn::{Cause, Pick};

/// Longest time between two packets: whatever is measured or claimed, a queue pair with work sends ten packets a
/// second (10,000 flows on a link of 1 Gbit/s have 8 each), and its peer hears of it before it gives it up.
const LONGEST_SPACING: Duration = Duration::from_millis(100);

/// What a gate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that congestion made us slower.
    pub decreases: u64,
    /// Time for which the pacer held packets back.
    pub paced: Duration,
}

/// Congestion control of one queue pair, shared by all of its streams.
#[derive(Clone, Debug)]
pub struct Gate {
    controller: Controller,
    /// How far behind the pacer may be without losing its rate: a sleeping thread wakes late.
    burst: Duration,
    /// When the next packet may leave.
    next: Instant,
    /// Since when a packet has been waiting for that.
    held: Option<Instant>,
    counts: Counts,
    /// Marked packets that the peer has reported, modulo 2^16.
    marked: u16,
}

impl Gate {
    /// A gate for a queue pair with at most `cap` packets in flight.
    pub fn new(settings: &Settings, cap: u32) -> Self {
        Self {
            controller: Controller::new(settings, cap),
            burst: settings.burst,
            next: Instant::ZERO,
            held: None,
            counts: Counts::default(),
            marked: 0,
        }
    }

    // ---- what streams ask

    /// True if a new packet may leave while `outstanding` are in flight and not known to have arrived, those of all
    /// streams together.
    pub fn permits(&mut self, now: Instant, outstanding: u32) -> bool {
        self.controller.is_open() || self.has_room(outstanding) && self.is_time(now)
    }

    /// True if a packet that a sender has picked may leave. One that acknowledgements show to be lost waits for the
    /// pacer; new ones were asked for with [`Self::permits`].
    pub fn permits_pick(&mut self, now: Instant, pick: Pick) -> bool {
        self.controller.is_open() || !matches!(pick, Pick::Again { cause: Cause::Fast, .. }) || self.is_time(now)
    }

    /// True if nothing more may follow a packet that leaves now, so that it had better ask for an acknowledgement.
    pub fn closes(&self, outstanding: u32) -> bool {
        !self.controller.is_open() && outstanding.saturating_add(1) >= self.room()
    }

    /// True if the window has room for a packet more than `outstanding`.
    pub fn has_room(&self, outstanding: u32) -> bool {
        self.controller.is_open() || outstanding < self.room()
    }

    /// A window below one packet still lets one out; the pacer makes up for it.
    fn room(&self) -> u32 {
        self.controller.window().map_or(u32::MAX, |window| window.whole().max(1))
    }

    fn is_time(&mut self, now: Instant) -> bool {
        self.release(now);
        if now < self.next {
            self.held.get_or_insert(now);
        }
        self.held.is_none()
    }

    /// The pacer's wait is over, if it is. To be called when [`Self::deadline`] has come.
    pub fn release(&mut self, now: Instant) {
        if self.next <= now
            && let Some(since) = self.held.take()
        {
            self.counts.paced = self.counts.paced + self.next.since(since);
        }
    }

    /// When a packet that waits for the pacer may leave.
    pub fn deadline(&self) -> Option<Instant> {
        self.held.map(|_| self.next)
    }

    // ---- what streams tell

    /// A packet of `bytes` bytes leaves, for the first time or `again`.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, again: bool) {
        if self.controller.is_open() {
            return;
        }
        let spacing = self.controller.on_sent(now, bytes, again).min(LONGEST_SPACING);
        let late = Instant::from_nanos(now.as_nanos().saturating_sub(self.burst.as_nanos()));
        self.next = self.next.max(late) + spacing;
    }

    /// An acknowledgement arrived: `delivered` packets more are known to have arrived, `outstanding` remain, and the
    /// peer counts `marked` packets that came marked so far.
    pub fn on_ack(&mut self, now: Instant, delivered: u32, outstanding: u32, marked: u16, rtt: Option<Duration>) {
        if self.controller.is_open() {
            return;
        }
        let report = Report { now, delivered, outstanding, marked: self.newly_marked(marked), rtt };
        self.counts.decreases += u64::from(self.controller.on_ack(report));
        // A wait that the window has outgrown ends early.
        self.next = self.next.min(now + self.controller.longest_spacing().min(LONGEST_SPACING));
    }

    /// Acknowledgements may overtake each other; the count of an older one is no news.
    fn newly_marked(&mut self, total: u16) -> u32 {
        let news = total.wrapping_sub(self.marked);
        if news > u16::MAX / 2 {
            return 0;
        }
        self.marked = total;
        u32::from(news)
    }

    /// A packet was lost that was sent after the last loss for which this returned true: it made us slower.
    pub fn on_loss(&mut self, now: Instant) -> bool {
        let slower = self.controller.on_loss(now);
        self.counts.decreases += u64::from(slower);
        slower
    }

    /// Nothing was heard for the retransmission time-out.
    pub fn on_timeout(&mut self, now: Instant) {
        self.counts.decreases += u64::from(self.controller.on_timeout(now));
    }

    /// The peer says that packets came marked.
    pub fn on_notification(&mut self, now: Instant) {
        self.counts.decreases += u64::from(self.controller.on_notification(now));
    }

    // ---- for people

    /// What was counted since this was last asked.
    pub fn take_counts(&mut self) -> Counts {
        core::mem::take(&mut self.counts)
    }

    /// The window, unless the algorithm has none.
    pub fn window(&self) -> Option<Window> {
        self.controller.window()
    }

    /// What an operator wants to know; `None` without congestion control.
    pub fn view(&self) -> Option<View> {
        self.controller.view()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Psn;
    use crate::transport::congestion::Algorithm;
    use crate::transport::congestion::tests::{RTT, at, settings};
    use crate::units::BitRate;

    const AGAIN: Pick = Pick::Again { psn: Psn::new(0), cause: Cause::Fast };

    fn gate(algorithm: Algorithm) -> Gate {
        Gate::new(&Settings { algorithm, ..settings() }, 100)
    }

    #[test]
    fn without_an_algorithm_everything_passes_and_nothing_is_due() {
        let mut gate = gate(Algorithm::None);
        gate.on_sent(at(1), 1500, true);
        assert!(gate.permits(at(1), u32::MAX) && gate.permits_pick(at(1), AGAIN) && !gate.closes(1000));
        gate.on_ack(at(1), 1, 1, 9, Some(RTT));
        assert!(!gate.on_loss(at(1)));
        gate.on_timeout(at(1));
        gate.on_notification(at(1));
        assert!(gate.deadline().is_none() && gate.view().is_none() && gate.take_counts() == Counts::default());
    }

    #[test]
    fn a_window_closes_before_its_last_packet_and_opens_below() {
        let mut gate = gate(Algorithm::Aimd);
        assert!(gate.permits(at(1), 9) && !gate.permits(at(1), 10));
        assert!(gate.closes(9) && !gate.closes(8));
        assert!(gate.deadline().is_none(), "an acknowledgement opens it, not time");
    }

    #[test]
    fn a_rate_is_kept_by_a_driver_that_wakes_late() {
        let mut gate =
            Gate::new(&Settings { algorithm: Algorithm::Timely, link_rate: BitRate::new(1_000_000_000).unwrap(), ..settings() }, 100);
        let (start, step, mut sent) = (1_000_000, 40_000, 0);
        for now in (start..start + 100_000_000).step_by(step).map(Instant::from_nanos) {
            while gate.permits(now, 0) {
                gate.on_sent(now, 1250, false);
                sent += 1;
            }
        }
        // 10 us each: 10,000 in 100 ms, and those of the allowance of 50 us at the start.
        assert!((9_990..=10_006).contains(&sent), "{sent}");
    }

    #[test]
    fn a_packet_that_waits_for_the_pacer_has_a_deadline_until_it_is_released() {
        let mut gate = gate(Algorithm::Timely);
        (0..100).for_each(|_| gate.on_sent(at(1), 12_500, false));
        // 10 us each, less 50 us of allowance.
        assert!(!gate.permits(at(1), 0));
        assert_eq!(gate.deadline(), Some(at(1) + Duration::from_micros(950)));
        gate.release(at(1));
        assert!(gate.deadline().is_some());
        gate.release(at(2));
        assert!(gate.deadline().is_none());
        assert_eq!(gate.take_counts().paced, Duration::from_micros(950));
    }

    #[test]
    fn one_window_of_retransmissions_takes_one_round_trip() {
        let mut gate = gate(Algorithm::Aimd);
        gate.on_ack(at(1), 0, 10, 0, Some(RTT));
        let sent = (0..1_000).map(|micro| at(2) + Duration::from_micros(micro)).filter(|&now| {
            let permitted = gate.permits_pick(now, AGAIN);
            permitted.then(|| gate.on_sent(now, 1500, true));
            permitted
        });
        // A window of 10 packets every 50 us for 1 ms, and the allowance of one round trip.
        let sent = sent.count();
        assert!((195..=211).contains(&sent), "{sent}");
    }

    #[test]
    fn an_older_count_of_marks_is_no_news() {
        let mut gate = gate(Algorithm::Dctcp);
        assert_eq!(
            [65_530, 65_530, 4, 65_533, 5].map(|total| {
                if total == 65_530 {
                    gate.marked = 65_500;
                }
                gate.newly_marked(total)
            }),
            [30, 30, 10, 0, 1]
        );
    }
}
