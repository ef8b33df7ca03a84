//! The way out: the next frame of an output at its rate, through its impaired link.

use alloc::vec::Vec;

use crate::drops::DropReason;
use crate::pool::{FrameRef, Pool};
use crate::switch::Switch;
use crate::time::Instant;
use crate::units::PortId;
use crate::wire::eth::EtherType;
use crate::wire::mark_congestion;

impl Switch {
    /// Appends to `out` at most `budget` frames that may leave through `port` now. The caller sends or frees them.
    pub fn egress(&mut self, now: Instant, pool: &mut Pool, port: PortId, budget: usize, out: &mut Vec<FrameRef>) {
        if self.ports[port.index()].egress.is_transparent() {
            for _ in 0..budget {
                let Some((frame, _)) = self.depart(now, pool, port) else { return };
                self.hand_out(pool, port, frame, out);
            }
        } else {
            self.egress_impaired(now, pool, port, budget, out);
        }
    }

    /// The next frame of an output at its rate, and the instant of its departure.
    fn depart(&mut self, now: Instant, pool: &mut Pool, port: PortId) -> Option<(FrameRef, Instant)> {
        if let Some(control) = self.depart_control(now, pool, port) {
            return Some(control);
        }
        if self.ports[port.index()].pacer.ready_at() > now {
            return None;
        }
        if let Some(first) = self.depart_pause(now, pool, port) {
            return Some(first);
        }
        if self.is_stop_port(port) || self.ports[port.index()].held.len() > 0 {
            return self.depart_obedient(now, pool, port);
        }
        let (frame, bytes) = self.next_queued(pool, port)?;
        Some((frame, self.ports[port.index()].pacer.book(now, bytes)))
    }

    /// Takes the frame whose turn it is out of its queue, with its length.
    pub(super) fn next_queued(&mut self, pool: &mut Pool, port: PortId) -> Option<(FrameRef, u64)> {
        let base = port.index() * self.ports.len() * self.classes;
        let output = &mut self.ports[port.index()];
        let local = output.drr.select(|local| self.queues.head_bytes(base + local as usize))?;
        let (frame, bytes) = self.queues.pop(base + local as usize)?;
        if let Some(marking) = &self.marking {
            let queued = self.queues.counters(base + local as usize).queued.bytes;
            if marking.marks(queued, bytes, output.drr.busy(), &mut self.rng) && mark(pool, &frame, marking.ethertype) {
                output.counters.marked += 1;
            }
        }
        output.drr.charge(bytes, self.queues.head_bytes(base + local as usize) == 0);
        Some((frame, bytes))
    }

    /// Departures go into the delay line, and what is due comes out: at most `budget` of each, so that a call stays short.
    fn egress_impaired(&mut self, now: Instant, pool: &mut Pool, port: PortId, budget: usize, out: &mut Vec<FrameRef>) {
        let (mut sent, mut departed) = (0, 0);
        while sent < budget {
            if let Some(frame) = self.ports[port.index()].egress.line_mut().pop_due(now) {
                self.hand_out(pool, port, frame, out);
                sent += 1;
                continue;
            }
            if departed == budget {
                return;
            }
            let Some((frame, departure)) = self.depart(now, pool, port) else { return };
            departed += 1;
            let output = &mut self.ports[port.index()];
            output.egress.handle_frame(departure, pool, frame, &mut output.counters.sent_drops);
        }
    }

    fn hand_out(&mut self, pool: &Pool, port: PortId, frame: FrameRef, out: &mut Vec<FrameRef>) {
        self.ports[port.index()].counters.sent.count(pool.bytes(&frame).len() as u64);
        out.push(frame);
    }

    pub(super) fn flush(&mut self, pool: &mut Pool, port: PortId) {
        let per_output = self.ports.len() * self.classes;
        let output = &mut self.ports[port.index()];
        for queue in port.index() * per_output..(port.index() + 1) * per_output {
            while let Some(frame) = self.queues.flush(queue) {
                output.counters.sent_drops.count(DropReason::PortDown);
                pool.free(frame);
            }
        }
        output.flush(pool);
        self.flush_held(pool, port);
    }
}

/// Marks a frame, if it is one of the transport's and nobody else holds it.
fn mark(pool: &mut Pool, frame: &FrameRef, ethertype: EtherType) -> bool {
    !pool.is_shared(frame) && mark_congestion(pool.bytes_mut(frame), ethertype)
}
