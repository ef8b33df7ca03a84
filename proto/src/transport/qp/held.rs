//! A queue pair that stop control holds back: its clocks stand still, since it cannot blame its peer for what it may not send.

use crate::time::Instant;
use crate::transport::link::Link;
use crate::transport::qp::{Outgoing, QueuePair};
use crate::transport::trace::{Gate, TraceEvent};
use crate::wire::packet::Base;

/// What is known of being held back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// It is.
    pub(super) now: bool,
    /// Since when it could send otherwise.
    limited_since: Option<Instant>,
}

/// What a queue pair may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport) enum Permit {
    /// Whatever it likes.
    Everything,
    /// Answers and signs of life.
    Control,
    /// Not even that.
    Nothing,
}

impl Permit {
    pub(super) const fn allows_control(self) -> bool {
        matches!(self, Self::Everything | Self::Control)
    }

    pub(super) const fn allows_data(self) -> bool {
        matches!(self, Self::Everything)
    }
}

impl Outgoing {
    /// The priority of the packet, of a queue pair with the given one.
    pub(in crate::transport) const fn priority(&self, of_queue_pair: u8) -> u8 {
        match self {
            Self::Answer(..) => crate::stop::CONTROL_PRIORITY,
            Self::Request(_, plan) if plan.keepalive => crate::stop::CONTROL_PRIORITY,
            Self::Request(..) | Self::Response(..) => of_queue_pair,
        }
    }
}

impl QueuePair {
    /// True if there are packets to send, or some of those sent may have to be sent again.
    pub(in crate::transport) fn has_business(&self) -> bool {
        let Some(link) = self.link.as_ref().filter(|_| self.state.sends()) else { return false };
        let responses = link.responder.responses.as_ref();
        self.send_queue.has_unsent()
            || link.requester.sender.in_flight() > 0
            || responses.is_some_and(|responses| responses.has_unsent() || responses.sender.in_flight() > 0)
    }

    /// True if an answer or a sign of life is due.
    pub(in crate::transport) fn owes(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.owes() || self.state.sends() && link.requester.wants_life())
    }

    /// It may send no data. Called again and again meanwhile.
    pub(in crate::transport) fn hold(&mut self, now: Instant) {
        let Some(link) = &mut self.link else { return };
        if !self.held.now {
            self.held.now = true;
            link.rest(now);
        }
        if !link.wants_to_send(&self.send_queue) {
            self.end_limit(now);
        } else if self.held.limited_since.is_none() {
            self.held.limited_since = Some(now);
            self.trace.note(now, TraceEvent::Held(Gate::Stopped));
        }
    }

    /// It may send again.
    pub(in crate::transport) fn go_on(&mut self, now: Instant) {
        if !self.held.now {
            return;
        }
        self.held.now = false;
        self.end_limit(now);
        if let Some(link) = &mut self.link {
            link.go_on(now);
        }
    }

    fn end_limit(&mut self, now: Instant) {
        if let Some(since) = self.held.limited_since.take() {
            self.counters.stop_limited_nanos += now.since(since).as_nanos();
        }
    }

    /// A sign of life, which may go when data may not.
    pub(super) fn poll_life(&mut self, now: Instant) -> Option<Outgoing> {
        let link = self.link.as_mut()?;
        let plan = link.requester.plan_life(now, &self.send_queue)?;
        let base = Base { ack_request: true, ..link.base(now, plan.pick.psn()) };
        Some(Outgoing::Request(base, plan))
    }
}

impl Link {
    /// Nothing may be sent for a while.
    fn rest(&mut self, now: Instant) {
        self.requester.sender.rest(now);
        if let Some(responses) = &mut self.responder.responses {
            responses.sender.rest(now);
        }
    }

    /// Something may be sent again: waiting for the peer begins now.
    fn go_on(&mut self, now: Instant) {
        self.requester.sender.go_on(now);
        if let Some(responses) = &mut self.responder.responses {
            responses.sender.go_on(now);
        }
    }
}
