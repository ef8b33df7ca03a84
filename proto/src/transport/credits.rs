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
    /// Without credit: when one packet may go nevertheless.
    probe_at: Option<Instant>,
}

impl CreditGate {
    /// The receiver has `credits` receives beyond those for messages before number `acknowledged`. Receives are never
    /// taken back, so the limit only grows.
    pub(super) fn grant(&mut self, acknowledged: u32, credits: Credits) {
        let granted = credits.receives().map(|receives| acknowledged.wrapping_add(receives));
        self.limit = match (self.limit, granted) {
            (Some(old), Some(new)) if is_before(new, old) => Some(old),
            (_, granted) => granted,
        };
    }

    /// True if the message for this receive has credit.
    pub(super) fn covers(&self, recv_sn: u32) -> bool {
        self.limit.is_none_or(|limit| is_before(recv_sn, limit))
    }

    /// True if a packet of the message for this receive may go: it has credit, or nothing has been in flight for `wait`.
    pub(super) fn admits(&mut self, now: Instant, recv_sn: u32, in_flight: bool, wait: Duration) -> bool {
        if in_flight || self.covers(recv_sn) {
            self.probe_at = None;
            return self.covers(recv_sn);
        }
        *self.probe_at.get_or_insert(now + wait) <= now
    }

    /// No message waits for credit.
    pub(super) const fn rest(&mut self) {
        self.probe_at = None;
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
