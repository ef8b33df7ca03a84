//! The way in: impairment, checks, learning, look-up, admission to a queue.

use crate::drops::DropReason;
use crate::pool::{FrameRef, Pool};
use crate::switch::config::PortRole;
use crate::switch::vlans::vlan_of;
use crate::switch::{Switch, classify, port_id};
use crate::time::Instant;
use crate::units::PortId;
use crate::wire::eth::{EtherType, Ethernet};

impl Switch {
    /// A frame came in through `port`. It is queued, or dropped and counted.
    pub fn ingest(&mut self, now: Instant, pool: &mut Pool, port: PortId, frame: FrameRef) {
        let input = &mut self.ports[port.index()];
        input.counters.received.count(pool.bytes(&frame).len() as u64);
        if !input.up {
            return self.drop_received(pool, port, frame, DropReason::PortDown);
        }
        if input.ingress.is_transparent() {
            return self.forward(now, pool, port, frame);
        }
        input.ingress.handle_frame(now, pool, frame, &mut input.counters.received_drops);
        self.release_ingress(now, pool, port);
    }

    /// Lets frames in whose ingress delay is over, and stop control know the time.
    pub fn handle_timeout(&mut self, now: Instant, pool: &mut Pool) {
        if let Some(stop) = &mut self.stop {
            stop.handle_timeout(now);
            self.stop_seen_at = now;
        }
        for index in 0..self.ports.len() {
            if !self.ports[index].ingress.is_transparent() {
                self.release_ingress(now, pool, port_id(index));
            }
        }
    }

    /// From the end of the ingress delay to the queues.
    fn forward(&mut self, now: Instant, pool: &mut Pool, input: PortId, frame: FrameRef) {
        let header = match Ethernet::parse(pool.bytes(&frame)) {
            Ok((header, _)) => header,
            Err(reason) => return self.drop_received(pool, input, frame, reason),
        };
        let Some(frame) = self.take_pause(now, pool, input, &header, frame) else { return };
        if let Some(reason) = refusal(&header) {
            return self.drop_received(pool, input, frame, reason);
        }
        let Some(frame) = self.watch(now, pool, input, &header, frame) else { return };
        let vlan = vlan_of(&header);
        if !self.ports[input.index()].config.vlans.contain(vlan) {
            return self.drop_received(pool, input, frame, DropReason::VlanNotMember);
        }
        self.fdb.learn(now, (vlan, header.src), input);
        if header.dst.is_group() {
            return self.flood(now, pool, input, &header, frame);
        }
        match self.fdb.lookup(now, (vlan, header.dst)) {
            None => self.flood(now, pool, input, &header, frame),
            Some(output) if !self.ports[output.index()].config.vlans.contain(vlan) => {
                self.drop_received(pool, input, frame, DropReason::VlanNotMember);
            }
            Some(output) if self.reaches(input, output) => self.enqueue(now, pool, input, output, &header, frame),
            Some(_) => self.drop_received(pool, input, frame, DropReason::NoOutput),
        }
    }

    fn flood(&mut self, now: Instant, pool: &mut Pool, input: PortId, header: &Ethernet, frame: FrameRef) {
        let mut last = None;
        for index in 0..self.ports.len() {
            let output = port_id(index);
            if self.floods(input, output, header)
                && let Some(previous) = last.replace(output)
            {
                let copy = pool.share(&frame);
                self.ports[input.index()].counters.flooded += 1;
                self.enqueue(now, pool, input, previous, header, copy);
            }
        }
        match last {
            Some(output) => self.enqueue(now, pool, input, output, header, frame),
            None => self.drop_received(pool, input, frame, DropReason::NoOutput),
        }
    }

    fn reaches(&self, input: PortId, output: PortId) -> bool {
        input != output && self.ports[input.index()].config.role.reaches(self.ports[output.index()].config.role)
    }

    fn floods(&self, input: PortId, output: PortId, header: &Ethernet) -> bool {
        let port = &self.ports[output.index()];
        let wanted = header.dst.is_group() || port.config.role != PortRole::Local;
        port.up && wanted && self.reaches(input, output) && port.config.vlans.contain(vlan_of(header))
    }

    fn enqueue(&mut self, now: Instant, pool: &mut Pool, input: PortId, output: PortId, header: &Ethernet, frame: FrameRef) {
        let local = input.index() * self.classes + classify::class(header, self.classes, self.control);
        let queue = output.index() * self.ports.len() * self.classes + local;
        let port = &mut self.ports[output.index()];
        let pushed = match port.refusal(pool, header, &frame) {
            Some(reason) => Err((frame, reason)),
            None => self.queues.push(pool, queue, frame).map_err(|frame| (frame, DropReason::QueueFull)),
        };
        match pushed {
            Ok(true) => port.handle_backlog(now, local),
            Ok(false) => {}
            Err((frame, reason)) => {
                port.counters.sent_drops.count(reason);
                pool.free(frame);
            }
        }
    }

    fn release_ingress(&mut self, now: Instant, pool: &mut Pool, port: PortId) {
        while let Some(frame) = self.ports[port.index()].ingress.line_mut().pop_due(now) {
            self.forward(now, pool, port, frame);
        }
    }

    pub(super) fn drop_received(&mut self, pool: &mut Pool, port: PortId, frame: FrameRef, reason: DropReason) {
        self.ports[port.index()].counters.received_drops.count(reason);
        pool.free(frame);
    }
}

/// Why no switch forwards this frame, if so.
fn refusal(header: &Ethernet) -> Option<DropReason> {
    if !header.src.is_station() {
        return Some(DropReason::InvalidSource);
    }
    if header.dst.is_reserved() {
        return Some(DropReason::ReservedAddress);
    }
    (header.ethertype == EtherType::MAC_CONTROL).then_some(DropReason::MacControl)
}
