//! Stop control at the host ports: what comes in is watched, control packets are taken and made, and frames to those who
//! asked us to stop are set aside on their way out, so that none behind them has to wait.

use alloc::collections::VecDeque;

use crate::drops::DropReason;
use crate::pool::{FrameRef, Pool};
use crate::stop::{Arrival, Obedience, Stage, Station, Verdict};
use crate::switch::config::PortRole;
use crate::switch::flow::RETRY;
use crate::switch::{Switch, port_id};
use crate::time::{Instant, earliest};
use crate::units::PortId;
use crate::wire::eth::Ethernet;
use crate::wire::{MacAddr, sent_at};

/// Room for a control packet with a priority tag.
const CONTROL_MAX: usize = 64;

/// A frame that may not leave yet.
#[derive(Debug)]
struct Held {
    frame: FrameRef,
    bytes: u64,
    dst: MacAddr,
    priority: u8,
}

/// Frames of a port set aside, in the order in which they came out of their queues.
#[derive(Debug, Default)]
pub(super) struct Holding {
    frames: VecDeque<Held>,
    /// When the first of them may leave, as far as is known.
    due: Option<Instant>,
    /// How often obedience had changed when that was found out.
    changes: u64,
    /// Nothing could leave lately: the wire earns no credit for that time.
    idle: bool,
}

impl Holding {
    pub(super) fn reserve(&mut self, frames: usize) {
        self.frames.reserve(frames);
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What was found out about the frames holds no more.
    pub(super) fn look_again(&mut self) {
        self.due = (!self.frames.is_empty()).then_some(Instant::ZERO);
    }

    fn pop(&mut self) -> Option<Held> {
        let held = self.frames.pop_front();
        self.look_again();
        held
    }

    /// Takes the first frame that may leave now. Looks only when something may have changed.
    fn take_open(&mut self, now: Instant, obedience: &Obedience) -> Option<Held> {
        let changed = core::mem::replace(&mut self.changes, obedience.changes()) != obedience.changes();
        if self.frames.is_empty() || !changed && self.due.is_some_and(|due| due > now) {
            return None;
        }
        self.due = None;
        for index in 0..self.frames.len() {
            let Held { dst, priority, .. } = self.frames[index];
            match obedience.verdict(now, dst, priority, Stage::Depart) {
                Verdict::Open => {
                    let held = self.frames.remove(index);
                    // What is behind it has not been looked at.
                    self.look_again();
                    return held;
                }
                Verdict::Closed { until } => self.due = earliest(self.due, Some(until)),
            }
        }
        None
    }

    /// True if a frame of the same kind was set aside before: it goes first.
    fn has_before(&self, held: &Held) -> bool {
        self.frames.iter().any(|before| before.dst == held.dst && before.priority == held.priority)
    }

    fn set_aside(&mut self, held: Held, until: Instant) {
        self.frames.push_back(held);
        self.due = earliest(self.due, Some(until));
    }
}

impl Switch {
    /// True if stop control has a say about what a port receives and sends.
    pub(super) fn is_stop_port(&self, port: PortId) -> bool {
        self.stop.is_some() && self.ports[port.index()].config.role == PortRole::Host
    }

    /// A frame came in through a host port: it is watched, and if it is a control packet for us, taken.
    pub(super) fn watch(&mut self, now: Instant, pool: &mut Pool, port: PortId, header: &Ethernet, frame: FrameRef) -> Option<FrameRef> {
        let Some(stop) = &mut self.stop else { return Some(frame) };
        // Impairments take place on the way, so a frame that they delayed has not arrived before.
        let exact = Some(pool.arrived(&frame)).filter(|&at| at > Instant::ZERO && self.ports[port.index()].ingress.is_transparent());
        let at = exact.unwrap_or(now).min(now);
        let bytes = pool.bytes(&frame);
        if stop.is_watched(port) {
            let for_us = header.dst == stop.config().mac;
            let clock = || sent_at(&bytes[header.len()..], header, stop.config().transport);
            let sent = if stop.reads_clocks() { clock() } else { None };
            let preamble = pool.preamble(&frame);
            stop.observe(port, &Arrival { at, source: header.src, bytes: bytes.len() as u64, for_us, preamble, sent });
        }
        if !stop.is_control(header) {
            return Some(frame);
        }
        match stop.handle_control(now, at, header, &bytes[header.len()..]) {
            Ok(()) => {
                self.ports[port.index()].counters.consumed += 1;
                pool.free(frame);
            }
            Err(reason) => self.drop_received(pool, port, frame, reason),
        }
        None
    }

    /// The next control packet of a host port: it waits neither for its turn nor for the rate.
    pub(super) fn depart_control(&mut self, now: Instant, pool: &mut Pool, port: PortId) -> Option<(FrameRef, Instant)> {
        if !self.sends_control(now, port) {
            return None;
        }
        let Some(frame) = pool.alloc() else {
            self.control_retry_at = now + RETRY;
            return None;
        };
        let len = self.stop.as_mut().and_then(|stop| stop.poll_transmit(now, pool.room_mut(&frame).get_mut(..CONTROL_MAX)?));
        let Some(len) = len else {
            pool.free(frame);
            return None;
        };
        pool.set_len(&frame, len);
        let output = &mut self.ports[port.index()];
        output.counters.generated += 1;
        Some((frame, output.pacer.book(now, len as u64)))
    }

    /// True if a control packet waits that leaves through this port: the one behind which its receiver is, or the first.
    pub(super) fn sends_control(&self, now: Instant, port: PortId) -> bool {
        let output = &self.ports[port.index()];
        // A paused link carries MAC control frames only.
        if !self.is_stop_port(port) || !output.up || output.drr.holds(self.classes - 1) {
            return false;
        }
        let Some(host) = self.stop.as_ref().and_then(|stop| stop.next_host()) else { return false };
        let known = self.fdb.lookup(now, (0, host)).filter(|&known| self.is_stop_port(known) && self.ports[known.index()].up);
        known.or_else(|| self.first_stop_port()) == Some(port)
    }

    /// When the next control packet can leave a port.
    pub(super) fn control_departure(&self, port: PortId) -> Option<Instant> {
        let seen = self.stop_seen_at;
        self.sends_control(seen, port).then_some(self.control_retry_at)
    }

    fn first_stop_port(&self) -> Option<PortId> {
        (0..self.ports.len()).map(port_id).find(|&port| self.is_stop_port(port) && self.ports[port.index()].up)
    }

    /// The next frame of a host port that may leave as far as its receiver is concerned.
    pub(super) fn depart_obedient(&mut self, now: Instant, pool: &mut Pool, port: PortId) -> Option<(FrameRef, Instant)> {
        loop {
            // What was set aside is older than what is queued, but a strict class goes before everything.
            if !self.ports[port.index()].drr.has_strict()
                && let Some(held) = self.take_held(now, port)
            {
                self.begin_again(now, port);
                return Some(self.depart_to(now, port, held));
            }
            let Some((frame, bytes)) = self.next_queued(pool, port) else {
                self.ports[port.index()].held.idle = true;
                return None;
            };
            let held = Held { bytes, dst: destination(pool.bytes(&frame)), priority: pool.priority(&frame), frame };
            match self.verdict(now, &held) {
                Verdict::Open if !self.ports[port.index()].held.has_before(&held) => return Some(self.depart_to(now, port, held)),
                Verdict::Open => self.ports[port.index()].held.set_aside(held, now),
                Verdict::Closed { until } => self.ports[port.index()].held.set_aside(held, until),
            }
        }
    }

    fn take_held(&mut self, now: Instant, port: PortId) -> Option<Held> {
        let obedience = self.stop.as_deref().and_then(Station::obedience);
        let output = &mut self.ports[port.index()];
        // Classes that PAUSE or PFC silences stay silent; which class a frame was of is not known here any more.
        if output.drr.holds_any() {
            return None;
        }
        let holding = &mut output.held;
        match obedience {
            Some(obedience) => holding.take_open(now, obedience),
            None => holding.pop(),
        }
    }

    fn verdict(&self, now: Instant, held: &Held) -> Verdict {
        let obedience = self.stop.as_deref().and_then(Station::obedience);
        obedience.map_or(Verdict::Open, |obedience| obedience.verdict(now, held.dst, held.priority, Stage::Depart))
    }

    fn depart_to(&mut self, now: Instant, port: PortId, held: Held) -> (FrameRef, Instant) {
        if let Some(obedience) = self.stop.as_deref_mut().and_then(Station::obedience_mut) {
            obedience.book(now, held.dst, held.priority, held.bytes, Stage::Depart);
        }
        let output = &mut self.ports[port.index()];
        output.held.idle = false;
        (held.frame, output.pacer.book(now, held.bytes))
    }

    /// The first frame after a stop leaves: the wire earns no credit for the time in which nothing could. What is queued
    /// began to wait when it was queued.
    fn begin_again(&mut self, now: Instant, port: PortId) {
        let output = &mut self.ports[port.index()];
        if output.held.idle && output.drr.is_empty() {
            output.pacer.handle_backlog(now);
        }
    }

    /// Throws away what a port that went down had set aside.
    pub(super) fn flush_held(&mut self, pool: &mut Pool, port: PortId) {
        let output = &mut self.ports[port.index()];
        while let Some(held) = output.held.pop() {
            output.counters.sent_drops.count(DropReason::PortDown);
            pool.free(held.frame);
        }
    }
}

/// Whom a frame is for.
fn destination(bytes: &[u8]) -> MacAddr {
    bytes.first_chunk().map_or(MacAddr::ZERO, |octets| MacAddr(*octets))
}
