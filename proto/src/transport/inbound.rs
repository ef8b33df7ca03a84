//! A packet stream as it comes in: what has arrived and what is to be answered, requests and responses alike.

use crate::drops::DropReason;
use crate::time::Instant;
use crate::transport::Psn;
use crate::transport::irn::{AckTiming, Acker, Advance, Answer, Arrival, Mark, Profile, Receiver};
use crate::wire::packet::Base;

/// The receiving end of a packet stream.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) receiver: Receiver,
    pub(super) acker: Acker,
    keeps_early: bool,
}

/// What happens in order while a packet stream moves on.
pub(super) trait Turns<E> {
    /// The packet at which something happens next, if it has arrived.
    fn next(&self) -> Option<Psn>;
    /// Everything before that packet is here.
    fn run(&mut self) -> Result<(), E>;
}

impl Inbound {
    /// A stream whose first packet will be `start`.
    pub(super) fn new(start: Psn, profile: Profile, timing: AckTiming) -> Self {
        Self { receiver: Receiver::new(start), acker: Acker::new(profile, timing), keeps_early: profile.keeps_early }
    }

    /// The in-order point.
    pub(super) const fn expected(&self) -> Psn {
        self.receiver.expected()
    }

    /// True if a packet with this number would be kept.
    pub(super) fn wants(&self, psn: Psn) -> bool {
        match self.receiver.classify(psn) {
            Arrival::Expected => true,
            Arrival::Early => self.keeps_early,
            Arrival::Duplicate | Arrival::OutOfWindow => false,
        }
    }

    /// Where a packet lies; one that is not wanted is answered and dropped.
    pub(super) fn classify(&mut self, now: Instant, base: &Base) -> Result<Arrival, DropReason> {
        let arrival = self.receiver.classify(base.psn);
        let reason = match arrival {
            Arrival::Duplicate => DropReason::Duplicate,
            Arrival::OutOfWindow => DropReason::OutOfWindow,
            Arrival::Early if !self.keeps_early => DropReason::OutOfOrder,
            Arrival::Expected | Arrival::Early => return Ok(arrival),
        };
        self.acker.on_arrival(now, arrival, base.psn, self.receiver.expected(), base.ack_request);
        Err(reason)
    }

    /// Takes a packet that [`Self::classify`] wanted, once its data is in place.
    pub(super) fn accept(&mut self, now: Instant, arrival: Arrival, base: &Base, mark: Mark) -> Advance {
        let opens_gap = self.receiver.opens_gap(base.psn);
        let advance = self.receiver.accept(base.psn, mark);
        let urgent = base.ack_request || opens_gap || advance.packets > 1;
        self.acker.on_arrival(now, arrival, base.psn, self.receiver.expected(), urgent);
        advance
    }

    /// Something other than a packet is to be told.
    pub(super) fn owe_news(&mut self) {
        self.acker.owe_news(self.receiver.expected());
    }

    /// The same in steps: `turn` is asked for the next packet at which something happens in order, and carries it out
    /// once everything before it is here. If that fails, the in-order point stays before it.
    pub(super) fn accept_in_turns<E>(
        &mut self,
        now: Instant,
        arrival: Arrival,
        base: &Base,
        mark: Mark,
        mut turn: impl Turns<E>,
    ) -> (Advance, Result<(), E>) {
        let opens_gap = self.receiver.opens_gap(base.psn);
        self.receiver.insert(base.psn, mark);
        let mut advance = Advance::default();
        let result = loop {
            let barrier = turn.next();
            advance = advance.and(self.receiver.step(barrier));
            if barrier != Some(self.receiver.expected()) {
                break Ok(());
            }
            if let Err(error) = turn.run() {
                break Err(error);
            }
        };
        let urgent = base.ack_request || opens_gap || advance.packets > 1;
        self.acker.on_arrival(now, arrival, base.psn, self.receiver.expected(), urgent);
        (advance, result)
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.acker.handle_timeout(now, self.receiver.expected());
    }

    /// The next acknowledgement.
    pub(super) fn poll(&mut self) -> Option<Answer> {
        self.acker.answer(&self.receiver)
    }
}
