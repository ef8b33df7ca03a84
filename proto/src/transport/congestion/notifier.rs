//! The receiving side of DCQCN: when to tell a sender that its packets came marked.

use crate::time::{Duration, Instant};
use crate::transport::congestion::{Algorithm, Settings};

/// Notifications of one queue pair: one for a marked packet, then none for the interval (DCQCN, section 3.1).
#[derive(Clone, Copy, Debug)]
pub struct Notifier {
    interval: Duration,
    /// Nothing is sent before this; `None` = never.
    next: Option<Instant>,
    due: bool,
}

impl Notifier {
    /// The other algorithms take their signals from acknowledgements, so only DCQCN is served. Both ends of a
    /// connection are expected to use the same one; a sender with DCQCN whose peer sends no notifications goes by the
    /// marks that acknowledgements report.
    pub fn new(settings: &Settings) -> Self {
        let next = (settings.algorithm == Algorithm::Dcqcn).then_some(Instant::ZERO);
        Self { interval: settings.notification_interval, next, due: false }
    }

    /// A marked packet arrived.
    pub fn on_marked(&mut self, now: Instant) {
        if self.next.is_some_and(|next| next <= now) {
            self.due = true;
            self.next = Some(now + self.interval);
        }
    }

    /// True if a notification is due.
    pub const fn is_due(&self) -> bool {
        self.due
    }

    /// True if a notification is due; it then counts as sent.
    pub const fn poll(&mut self) -> bool {
        core::mem::replace(&mut self.due, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::congestion::tests::{at, settings};

    #[test]
    fn marked_packets_within_50_us_are_one_notification() {
        let mut notifier = Notifier::new(&Settings { algorithm: Algorithm::Dcqcn, ..settings() });
        let mut sent = 0;
        for micro in 0..200 {
            notifier.on_marked(at(1) + Duration::from_micros(micro));
            sent += u32::from(notifier.poll());
        }
        assert_eq!(sent, 4);
        let mut silent = Notifier::new(&Settings { algorithm: Algorithm::Dctcp, ..settings() });
        silent.on_marked(at(1));
        assert!(!silent.poll());
    }
}
