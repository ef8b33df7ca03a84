//! Tail-loss probes (RFC 8985, section 7): when nothing is heard for about two round trips, the last packet is sent
//! again. Its acknowledgement tells what is missing, long before the time-out would.

use crate::time::{Duration, Instant};
use crate::transport::Psn;

/// The state of probing: idle, due, or out.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Prober {
    /// The last time that a new packet was sent or something new was heard.
    start: Instant,
    /// A probe shall be sent.
    due: bool,
    /// The probe that is out; there is one at a time.
    out: Option<Psn>,
}

/// After so long a silence a probe is sent: two round trips, and the time that the receiver may wait before it
/// acknowledges the last packets (RFC 8985, 7.2).
pub(super) fn patience(smoothed: Duration, ack_delay: Duration) -> Duration {
    smoothed.saturating_mul(2) + ack_delay
}

impl Prober {
    /// A new packet was sent, or one newly acknowledged: the silence begins anew, and a probe not yet sent is not needed.
    pub(super) const fn on_activity(&mut self, now: Instant) {
        self.start = now;
        self.due = false;
    }

    /// The silence counts from `now` on.
    pub(super) fn postpone(&mut self, now: Instant) {
        self.start = self.start.max(now);
    }

    /// When a probe becomes due by silence; `None` while one is due or out.
    pub(super) fn deadline(&self, patience: Duration) -> Option<Instant> {
        (!self.due && self.out.is_none()).then(|| self.start + patience)
    }

    /// The silence has lasted long enough.
    pub(super) const fn on_silence(&mut self) {
        self.due = true;
    }

    /// True if a probe shall be sent.
    pub(super) const fn is_due(&self) -> bool {
        self.due
    }

    /// A probe is on its way.
    pub(super) const fn on_sent(&mut self, psn: Psn) {
        *self = Self { start: self.start, due: false, out: Some(psn) };
    }

    /// True if this packet is the probe that is out.
    pub(super) fn is_out(&self, psn: Psn) -> bool {
        self.out == Some(psn)
    }

    /// True if a probe is out.
    pub(super) const fn is_probing(&self) -> bool {
        self.out.is_some()
    }

    /// The probe is answered, or something else has taken over.
    pub(super) const fn end(&mut self) {
        *self = Self { start: self.start, due: false, out: None };
    }

    /// Everything before `unacknowledged` has arrived.
    pub(super) fn on_cumulative(&mut self, unacknowledged: Psn) {
        if self.out.is_some_and(|psn| psn.is_before(unacknowledged)) {
            self.end();
        }
    }
}
