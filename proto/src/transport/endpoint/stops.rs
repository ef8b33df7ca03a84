//! What stop control means for the transport: who may send what, who waits, who is woken.

use crate::stop::{CONTROL_PRIORITY, Obedience, Stage, Verdict};
use crate::time::Instant;
use crate::transport::endpoint::Endpoint;
use crate::transport::qp::Permit;
use crate::wire::MacAddr;

impl Endpoint {
    /// Destinations that may be sent to again: those that wait for them get a turn. To be called when stop control may have
    /// released somebody, before [`Self::wants_transmit`] is asked.
    pub fn handle_released(&mut self, now: Instant, stops: &mut Obedience) {
        while let Some(dst) = stops.poll_released() {
            while let Some(slot) = self.parking.take(dst) {
                self.wake(now, slot);
            }
        }
        if stops.is_idle() {
            self.wake_everybody(now);
        }
    }

    /// Nobody holds us back.
    pub(super) fn wake_everybody(&mut self, now: Instant) {
        while let Some(slot) = self.parking.take_any() {
            self.wake(now, slot);
        }
    }

    fn wake(&mut self, now: Instant, slot: usize) {
        if let Some(qp) = self.qp(slot) {
            qp.go_on(now);
        }
        self.touch(slot);
    }

    /// What a queue pair may send now. If that is not all that it has to send, it is parked.
    pub(super) fn permit(&mut self, now: Instant, slot: usize, stops: &Obedience) -> Permit {
        let Some(qp) = self.slots[slot].qp.as_deref() else { return Permit::Everything };
        let Some(dst) = qp.link().map(|link| link.agreement.peer) else { return Permit::Everything };
        let data = self.until(now, slot, dst, qp.priority, stops);
        if data == Ok(()) {
            self.hold(now, slot, false);
            return Permit::Everything;
        }
        let control = self.until(now, slot, dst, CONTROL_PRIORITY, stops);
        let waits = qp.has_business() || control.is_err() && qp.owes();
        let priority = if control.is_ok() { qp.priority } else { CONTROL_PRIORITY };
        if waits {
            self.parking.park(slot, dst, priority, data.err().flatten());
        } else {
            self.leave_parking(now, slot);
        }
        self.hold(now, slot, waits);
        if control.is_ok() { Permit::Control } else { Permit::Nothing }
    }

    /// Whether frames of a priority may go; if not, when to ask again, unless others are before them.
    fn until(&self, now: Instant, slot: usize, dst: MacAddr, priority: u8, stops: &Obedience) -> Result<(), Option<Instant>> {
        match stops.verdict(now, dst, priority, Stage::Build) {
            Verdict::Closed { until } => Err(Some(until)),
            Verdict::Open if self.parking.is_behind(slot, dst, priority) => Err(None),
            Verdict::Open => Ok(()),
        }
    }

    fn hold(&mut self, now: Instant, slot: usize, held: bool) {
        let Some(qp) = self.qp(slot) else { return };
        if held { qp.hold(now) } else { qp.go_on(now) }
    }

    /// A queue pair has nothing to wait for any more, or is about to go.
    pub(super) fn leave_parking(&mut self, now: Instant, slot: usize) {
        if let Some(lot) = self.parking.leave(slot) {
            self.parking.set_deadline(lot, now);
        }
    }

    /// A queue pair has had its turn, in which it sent a frame of the given priority, or none. If it had been called, it is the
    /// turn of the next one.
    pub(super) fn end_turn(&mut self, now: Instant, slot: usize, sent: Option<u8>, stops: &Obedience) {
        let over = sent.map_or_else(|| self.parking.is_called(slot), |priority| self.parking.ends_turn(slot, priority));
        let Some(lot) = over.then(|| self.parking.leave(slot)).flatten() else { return };
        let next = self.parking.first(lot).and_then(|first| self.slots[first].qp.as_deref());
        let Some((dst, priority)) = next.and_then(|qp| Some((qp.link()?.agreement.peer, qp.priority))) else { return };
        match stops.verdict(now, dst, priority, Stage::Build) {
            Verdict::Open => self.call(now, lot),
            Verdict::Closed { until } => self.parking.set_deadline(lot, until),
        }
    }

    fn call(&mut self, now: Instant, lot: usize) {
        if let Some(slot) = self.parking.call(lot) {
            self.wake(now, slot);
        }
    }

    /// The time of some lots has come.
    pub(super) fn call_due(&mut self, now: Instant) {
        while let Some(lot) = self.parking.pop_due(now) {
            self.call(now, lot);
        }
    }
}
