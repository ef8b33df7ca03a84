//! Asking an idle peer for a sign of life.

use crate::time::Instant;
use crate::transport::irn::Pick;
use crate::transport::requester::{Plan, Requester, SendQueue};
use crate::transport::work::Data;
use crate::wire::headers::Position;
use crate::wire::packet::Body;

impl Requester {
    /// True if no packet is in flight and none is asked for yet.
    pub(in crate::transport) fn is_idle(&self) -> bool {
        self.sender.in_flight() == 0 && !self.keepalive
    }

    /// Asks the peer for a sign of life, unless something else does by then.
    pub(in crate::transport) const fn ask_for_life(&mut self) {
        self.keepalive = true;
    }

    /// True if the peer is to be asked for a sign of life.
    pub(in crate::transport) const fn wants_life(&self) -> bool {
        self.keepalive
    }

    /// Whether the next packet asks for a sign of life: only between messages, and only if no other packet does.
    pub(super) fn keepalive_may_start(&self, queue: &SendQueue) -> bool {
        self.keepalive && self.sender.in_flight() == 0 && queue.slot(queue.cursor).packets_sent == 0
    }

    /// A sign of life, if that is all that may be sent.
    pub(in crate::transport) fn plan_life(&mut self, now: Instant, queue: &SendQueue) -> Option<Plan> {
        let waits = self.rnr_until.is_some_and(|until| now < until);
        let pick = if waits || !self.keepalive_may_start(queue) { None } else { self.sender.pick(now, true) }?;
        Some(keepalive_plan(pick, self.locate(pick, true, queue).0))
    }
}

/// A sign of life: a WRITE of nothing, which is acknowledged, retried and given up like any other packet.
pub(super) const fn keepalive_plan(pick: Pick, position: u32) -> Plan {
    Plan {
        pick,
        body: Body::Write { position: Position::Only, va: 0, rkey: 0, length: 0, imm: None, payload: &[] },
        payload_len: 0,
        solicited: false,
        ack_request: true,
        keepalive: true,
        data: Data::EMPTY,
        offset: 0,
        work: position,
        recv_sn: 0,
    }
}
