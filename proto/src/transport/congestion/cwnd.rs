//! What the laws with a window share: its bounds, its start, and that it shrinks at most once per round trip.

use crate::time::{Duration, Instant};
use crate::transport::congestion::{Share, Window};

/// A congestion window between bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cwnd {
    value: Window,
    least: Window,
    most: Window,
    /// Nothing has been heard of congestion: the window doubles with each round trip (slow start, RFC 5681 3.1).
    starting: bool,
    /// When it shrank.
    shrank: Option<Instant>,
}

impl Cwnd {
    /// A window that starts at `first` packets.
    pub(super) fn new(first: Window, least: Window, most: Window) -> Self {
        let most = most.max(Window::ONE);
        Self { value: first.clamp(least, most), least, most, starting: true, shrank: None }
    }

    pub(super) const fn get(self) -> Window {
        self.value
    }

    /// The path is full: from now on the window grows slowly.
    pub(super) const fn end_start(&mut self) {
        self.starting = false;
    }

    /// `acked` packets arrived; `outstanding` are still out. A window that its owner does not fill does not grow
    /// (RFC 7661), or an idle flow would gather the right to a burst.
    pub(super) fn grow(&mut self, increment: Share, acked: u32, outstanding: u32) {
        if outstanding.saturating_add(acked).saturating_mul(2) < self.value.whole() {
            return;
        }
        let grown = if self.starting { self.value.plus(acked) } else { self.value.increased(increment, acked) };
        self.value = grown.clamp(self.least, self.most);
    }

    /// Keeps this much of the window, if the last time is a round trip ago. True if it did.
    pub(super) fn shrink(&mut self, now: Instant, rtt: Duration, keep: Share) -> bool {
        self.starting = false;
        if self.shrank.is_some_and(|at| now < at + rtt) {
            return false;
        }
        self.shrank = Some(now);
        self.value = self.value.scaled(keep).clamp(self.least, self.most);
        true
    }

    /// Nothing gets through: back to at most `window`.
    pub(super) fn collapse(&mut self, now: Instant, window: Window) {
        self.starting = false;
        self.shrank = Some(now);
        self.value = self.value.min(window).clamp(self.least, self.most);
    }
}
