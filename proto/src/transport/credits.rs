//! End-to-end credits: the receiver says with its acknowledgements how many receives are posted, and the sender begins
//! no message for which there is none (InfiniBand vol. 1, 9.7.7.2).
//!
//! Nobody waits for ever, whatever is lost: a sender without credit and with nothing in flight sends one packet after a
//! time-out. Its answer says how things stand; receiver-not-ready remains for that packet. Acknowledgements that carry
//! no credits change nothing here, and credits rounded down are at least one while a receive is posted.

use crate::time::{Duration, Instant};
use crate::wire::headers::Credits;

/// The sender's side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CreditGate {
    /// Messages for receives before this may begin; `None` = all.
    limit: Option<u32>,
    /// The receiver has said something about credits.
    told: bool,
    /// Without credit: when one packet may go nevertheless.
    probe_at: Option<Instant>,
    /// It may go now.
    probe_due: bool,
}

impl CreditGate {
    /// The receiver has `credits` receives beyond those for messages before number `acknowledged`. Receives are never
    /// taken back, so the limit only grows.
    pub(super) fn grant(&mut self, acknowledged: u32, credits: Credits) {
        self.told = true;
        let granted = credits.receives().map(|receives| acknowledged.wrapping_add(receives));
        self.limit = match (self.limit, granted) {
            (Some(old), Some(new)) if is_before(new, old) => Some(old),
            (_, granted) => granted,
        };
    }

    /// The receiver had nothing for the message for this receive. If it never spoke of credits that is all we know.
    pub(super) const fn refuse(&mut self, recv_sn: u32) {
        if !self.told {
            self.limit = Some(recv_sn);
        }
    }

    /// True if the receiver will tell when it has a receive for this message, so that there is no need to ask soon.
    pub(super) fn will_come(&self, recv_sn: u32) -> bool {
        self.told && !self.covers(recv_sn)
    }

    /// True if the message for this receive has credit.
    pub(super) fn covers(&self, recv_sn: u32) -> bool {
        self.limit.is_none_or(|limit| is_before(recv_sn, limit))
    }

    /// True if a packet of the message for this receive may go: it has credit, or nothing has been in flight for `wait`.
    pub(super) fn admits(&mut self, now: Instant, recv_sn: u32, in_flight: bool, wait: Duration) -> bool {
        if in_flight || self.covers(recv_sn) {
            self.rest();
            return self.covers(recv_sn);
        }
        self.probe_due || *self.probe_at.get_or_insert(now + wait) <= now
    }

    /// No message waits for credit.
    pub(super) const fn rest(&mut self) {
        self.probe_at = None;
        self.probe_due = false;
    }

    /// Time has passed. The deadline goes, also if the packet cannot leave yet.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.probe_due |= self.probe_at.take_if(|at| *at <= now).is_some();
    }

    /// When the packet without credit may go.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.probe_at
    }
}

/// Serial number order, for numbers less than 2^31 apart.
const fn is_before(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 1 << 31
}

/// The receiver's side: what the sender has been told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CreditsTold {
    last: Option<Credits>,
    /// It was told that there is no receive, and no message has come since: it waits to hear of one.
    waits: bool,
}

impl CreditsTold {
    /// An acknowledgement with these credits leaves.
    pub(super) fn tell(&mut self, credits: Credits) {
        self.last = Some(credits);
        self.waits |= credits.receives() == Some(0);
    }

    /// A packet of a message that takes a receive came: the sender has credit, or probes and gets an answer.
    pub(super) const fn heard(&mut self) {
        self.waits = false;
    }

    /// True if the sender may wait to hear of these credits. Until it sends something each step up is told anew: the
    /// last word may have been lost.
    pub(super) fn is_news(&self, credits: Credits) -> bool {
        self.waits && self.last != Some(credits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_micros(10);

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    #[test]
    fn a_limit_only_grows_over_the_wrap_and_is_none_before_the_first_word() {
        let mut gate = CreditGate::default();
        assert!(gate.covers(0) && gate.covers(u32::MAX));
        gate.grant(u32::MAX - 1, Credits::of(3));
        assert!(gate.covers(0) && !gate.covers(1));
        // An answer that was overtaken.
        gate.grant(u32::MAX - 1, Credits::of(1));
        assert!(gate.covers(0) && !gate.covers(1));
        gate.grant(1, Credits::of(2));
        assert!(gate.covers(2) && !gate.covers(3));
        gate.grant(1, Credits::UNLIMITED);
        assert!(gate.covers(1000));
    }

    #[test]
    fn without_credit_a_packet_goes_only_after_a_wait_with_nothing_in_flight() {
        let mut gate = CreditGate::default();
        gate.grant(5, Credits::of(0));
        assert!(!gate.admits(at(0), 5, true, WAIT));
        assert_eq!(gate.deadline(), None, "what is in flight brings an answer");
        assert!(!gate.admits(at(1), 5, false, WAIT));
        assert_eq!(gate.deadline(), Some(at(11)));
        assert!(!gate.admits(at(10), 5, false, WAIT));
        gate.handle_timeout(at(11));
        assert_eq!(gate.deadline(), None, "a deadline that has passed is none, though the packet may have to wait for the port");
        assert!(gate.admits(at(12), 5, false, WAIT));
        assert!(!gate.admits(at(12), 5, true, WAIT) && !gate.admits(at(13), 5, false, WAIT), "one packet, then another wait");
        gate.grant(5, Credits::of(1));
        assert!(gate.admits(at(14), 5, true, WAIT) && gate.deadline().is_none());
    }

    #[test]
    fn a_sender_that_was_told_of_no_receive_hears_of_each_step_up_until_it_sends() {
        let mut told = CreditsTold::default();
        assert!(!told.is_news(Credits::of(1)), "it never asked");
        told.tell(Credits::of(0));
        assert!(told.is_news(Credits::of(1)));
        told.tell(Credits::of(1));
        assert!(!told.is_news(Credits::of(1)) && told.is_news(Credits::of(2)));
        told.heard();
        assert!(!told.is_news(Credits::of(3)));
    }
}
