//! Flow control in the switch: frames that ask a port to be silent end there, and frames that ask its other end leave first.

use crate::drops::DropReason;
use crate::pool::{FrameRef, Pool};
use crate::switch::config::CLASSES_MAX;
use crate::switch::flow::FlowControl;
use crate::switch::{Switch, port_id};
use crate::time::{Instant, earliest};
use crate::units::{BitRate, PortId};
use crate::wire::MacControl;
use crate::wire::eth::{ETH_HEADER, EtherType, Ethernet};
use crate::wire::mac_control::MAC_CONTROL_GROUP;

impl Switch {
    /// Takes a MAC control frame that is for a port with flow control; gives any other frame back.
    pub(super) fn take_pause(
        &mut self,
        now: Instant,
        pool: &mut Pool,
        port: PortId,
        header: &Ethernet,
        frame: FrameRef,
    ) -> Option<FrameRef> {
        if header.ethertype != EtherType::MAC_CONTROL || self.ports[port.index()].flow.kind == FlowControl::None || !header.src.is_station()
        {
            return Some(frame);
        }
        match self.handle_pause(now, pool, port, header, &frame) {
            Ok(()) => pool.free(frame),
            Err(reason) => self.drop_received(pool, port, frame, reason),
        }
        None
    }

    fn handle_pause(&mut self, now: Instant, pool: &Pool, port: PortId, header: &Ethernet, frame: &FrameRef) -> Result<(), DropReason> {
        let mac = self.ports[port.index()].config.mac;
        if header.vlan.is_some() || header.dst != MAC_CONTROL_GROUP && header.dst != mac {
            return Err(DropReason::MacControl);
        }
        let message = MacControl::parse(pool.bytes(frame).get(ETH_HEADER..).unwrap_or(&[]))?;
        self.settle_pauses(now, port);
        let (classes, input) = (self.classes, &mut self.ports[port.index()]);
        let rate = input.pause_rate();
        input.flow.handle(now, &message, rate, &mut input.counters.flow)?;
        input.hold(now, classes);
        Ok(())
    }

    /// Ends pauses that are over, and returns the frame that leaves before all others, if one is due, with the instant of its
    /// departure. The wire is free.
    pub(super) fn depart_pause(&mut self, now: Instant, pool: &mut Pool, port: PortId) -> Option<(FrameRef, Instant)> {
        if self.ports[port.index()].flow.kind == FlowControl::None {
            return None;
        }
        self.settle_pauses(now, port);
        let levels = self.levels(port);
        let output = &mut self.ports[port.index()];
        if !output.up || output.flow.poll_ask(&self.flow, &levels).is_none_or(|due| due > now) {
            return None;
        }
        let Some(frame) = pool.alloc() else {
            output.flow.handle_no_buffer(now);
            return None;
        };
        let message = output.flow.ask(now, &self.flow, &levels, self.classes, output.pause_rate());
        let bytes = message.emit(output.config.mac);
        pool.room_mut(&frame)[..bytes.len()].copy_from_slice(&bytes);
        pool.set_len(&frame, bytes.len());
        output.counters.flow.sent += 1;
        Some((frame, output.pacer.book(now, bytes.len() as u64)))
    }

    /// When a port's flow control has something to do that moves frames.
    pub(super) fn poll_pause(&self, index: usize) -> Option<Instant> {
        let port = &self.ports[index];
        if port.flow.kind == FlowControl::None || !port.up {
            return None;
        }
        let ask = port.flow.poll_ask(&self.flow, &self.levels(port_id(index)));
        let asks = self.stop.as_ref().is_some_and(|stop| stop.wants_transmit());
        let waits = port.drr.has_parked() || port.held.len() > 0 || asks;
        let release = if waits { port.flow.poll_release(self.flow.watchdog) } else { None };
        earliest(ask, release).map(|due| due.max(port.pacer.ready_at()))
    }

    fn settle_pauses(&mut self, now: Instant, port: PortId) {
        let (watchdog, classes, port) = (self.flow.watchdog, self.classes, &mut self.ports[port.index()]);
        if let Some(ended) = port.flow.advance(now, watchdog, &mut port.counters.flow) {
            port.hold(ended, classes);
        }
    }

    /// Bytes that wait and came in through a port: per class with PFC, else all of them in the first place.
    fn levels(&self, port: PortId) -> [u64; CLASSES_MAX] {
        let mut levels = [0; CLASSES_MAX];
        let per_class = self.ports[port.index()].flow.kind == FlowControl::Pfc;
        for class in 0..self.classes {
            levels[if per_class { class } else { 0 }] += self.queues.buffered(port.index() * self.classes + class);
        }
        levels
    }
}

impl super::port::Port {
    /// The rate that pause times are counted at.
    fn pause_rate(&self) -> BitRate {
        self.config.rate.unwrap_or(self.config.link_rate)
    }

    /// Classes are held as flow control says from `at` on. A wire that was silent until then earned no burst.
    fn hold(&mut self, at: Instant, classes: usize) {
        let was_idle = self.drr.is_empty();
        self.drr.hold(self.flow.held(classes));
        if was_idle && !self.drr.is_empty() {
            self.pacer.handle_backlog(at);
        }
    }
}
