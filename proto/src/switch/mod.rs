//! The software switch: address table, virtual output queues, deficit round robin, pacing and impaired links.
//!
//! ```text
//!              +---------------------------- input port ---+   +------------- output port ----------------------+
//!   ingest --> | impairment -> checks -> learn -> look up  |-->| VOQ (input, class) -> DRR -> pacer -> impairment | --> egress
//!              +-------------------------------------------+   +-------------------------------------------------+
//! ```
//!
//! Called by the worker, per breath: [`Switch::handle_timeout`], [`Switch::ingest`] for every frame received,
//! [`Switch::egress`] for every port that can take frames, and [`Switch::poll_timeout`] before it sleeps.
//! Frames handed out are the caller's: what its port does not take stays in its transmit batch for the next try,
//! and reduces the next budget.
//!
//! Owns every frame between ingest and egress, each counted: frames in and copies made are frames out, dropped by
//! reason, or queued ([`Totals::conserved`]). Never reads a clock, never sends, and allocates only in commands.

mod classify;
mod config;
mod counters;
mod delay;
mod drr;
mod fdb;
mod impair;
mod marking;
mod pace;
mod port;
mod vlans;
mod voq;

use alloc::vec::Vec;

pub use config::{CLASSES_MAX, PortConfig, PortRole, SwitchConfig};
pub use counters::{FdbCounters, ImpairmentCounters, PortCounters, Totals, Traffic, VoqCounters};
pub use fdb::{FdbEntry, FdbFull};
pub use impair::Impairment;
pub use marking::Marking;
pub use pace::{CATCH_UP, FRAME_OVERHEAD};
pub use vlans::Vlans;

use crate::drops::DropReason;
use crate::pool::{FrameRef, Pool};
use crate::rng::Rng;
use crate::time::{Instant, earliest};
use crate::units::PortId;
use crate::wire::eth::{EtherType, Ethernet, MacAddr};
use crate::wire::mark_congestion;
use fdb::Fdb;
use port::Port;
use vlans::vlan_of;
use voq::Queues;

/// MAC control (PAUSE, PFC): ends at the station it reaches, whatever its destination (IEEE 802.3 31.3).
const MAC_CONTROL: EtherType = EtherType(0x8808);

/// One virtual output queue, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoqStatus {
    /// Where its frames came in.
    pub input: PortId,
    /// Where they go out.
    pub output: PortId,
    /// Their traffic class.
    pub class: u8,
    /// What happened to them.
    pub counters: VoqCounters,
}

/// A switch with a fixed set of ports.
#[derive(Debug)]
pub struct Switch {
    fdb: Fdb,
    ports: Vec<Port>,
    queues: Queues,
    classes: usize,
    quantum: u32,
    weights: [u32; CLASSES_MAX],
    marking: Option<Marking>,
    frames: usize,
    rng: Rng,
}

impl Switch {
    /// A switch whose ports are all up and whose tables are empty. Port `i` of `ports` is `PortId(i)`.
    ///
    /// # Panics
    /// If there are more ports than a [`PortId`] can name, or 2^32 frames.
    pub fn new(config: &SwitchConfig, ports: &[PortConfig], mut rng: Rng) -> Self {
        assert!(u16::try_from(ports.len()).is_ok(), "{} ports are more than a switch can number", ports.len());
        let classes = usize::from(config.classes).clamp(1, CLASSES_MAX);
        let queues = ports.len() * classes;
        let fdb = Fdb::new(config.mac_table_size, config.mac_ageing, ports.len(), &mut rng);
        let ports: Vec<_> = ports.iter().map(|port| Port::new(port, queues, config.frames, &mut rng)).collect();
        let mut switch = Self {
            fdb,
            queues: Queues::new(ports.len() * queues, config.frames, config.voq_limit_bytes),
            ports,
            classes,
            quantum: config.quantum,
            weights: config.weights,
            marking: config.marking,
            frames: config.frames,
            rng,
        };
        switch.apply_quanta();
        switch
    }

    /// Takes over what can change while traffic flows: ageing, queue limit, weights, quantum and marking. Table size, number
    /// of classes and room for frames stay.
    pub fn reconfigure(&mut self, config: &SwitchConfig) {
        self.fdb.set_ageing(config.mac_ageing);
        self.queues.set_limit_bytes(config.voq_limit_bytes);
        self.quantum = config.quantum;
        self.weights = config.weights;
        self.marking = config.marking;
        self.apply_quanta();
    }

    /// Gives a port new settings. Frames that wait in its queues and delay lines stay.
    pub fn reconfigure_port(&mut self, now: Instant, port: PortId, config: &PortConfig) {
        self.ports[port.index()].reconfigure(now, config, self.frames, &mut self.rng);
        self.apply_quanta();
    }

    /// Binds an address to a port in every VLAN: it is neither learned elsewhere nor forgotten.
    ///
    /// # Errors
    /// [`FdbFull`] if there is no room between other static entries.
    pub fn set_static(&mut self, mac: MacAddr, port: PortId) -> Result<(), FdbFull> {
        self.fdb.set_static(mac, port)
    }

    /// A port came up or went down. A port that goes down loses its waiting frames, counted, and what was learned
    /// behind it.
    pub fn set_port_up(&mut self, pool: &mut Pool, port: PortId, up: bool) {
        self.ports[port.index()].up = up;
        if !up {
            self.fdb.forget_port(port);
            self.flush(pool, port);
        }
    }

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

    /// Lets frames in whose ingress delay is over.
    pub fn handle_timeout(&mut self, now: Instant, pool: &mut Pool) {
        for index in 0..self.ports.len() {
            if !self.ports[index].ingress.is_transparent() {
                self.release_ingress(now, pool, port_id(index));
            }
        }
    }

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

    /// When [`Switch::handle_timeout`] or [`Switch::egress`] has something to do next; an instant in the past means now.
    /// Departures from ports for which `can_send` is false are left out, so that a blocked port does not keep its
    /// owner awake.
    pub fn poll_timeout(&self, can_send: impl Fn(PortId) -> bool) -> Option<Instant> {
        self.ports.iter().enumerate().fold(None, |deadline, (index, port)| {
            let departure = if can_send(port_id(index)) { port.departure() } else { None };
            earliest(deadline, earliest(departure, port.ingress.line().release()))
        })
    }

    /// Number of ports.
    pub const fn ports(&self) -> usize {
        self.ports.len()
    }

    /// True if the port is up.
    pub fn is_port_up(&self, port: PortId) -> bool {
        self.ports[port.index()].up
    }

    /// The settings of a port.
    pub fn port_config(&self, port: PortId) -> &PortConfig {
        &self.ports[port.index()].config
    }

    /// The counters of a port.
    pub fn port_counters(&self, port: PortId) -> PortCounters {
        self.ports[port.index()].counters()
    }

    /// Frames that wait to leave through a port: in its queues and in its egress delay line.
    pub fn queued(&self, port: PortId) -> u64 {
        let queued: u64 = self.voqs_of(port).map(|voq| voq.counters.queued.frames).sum();
        queued + self.ports[port.index()].egress.line().len() as u64
    }

    /// What waits in the queues from one input to one output, all classes together.
    pub fn queued_from(&self, input: PortId, output: PortId) -> Traffic {
        let first = (output.index() * self.ports.len() + input.index()) * self.classes;
        (first..first + self.classes)
            .map(|queue| self.queues.counters(queue).queued)
            .fold(Traffic::default(), |sum, queued| Traffic { frames: sum.frames + queued.frames, bytes: sum.bytes + queued.bytes })
    }

    /// The virtual output queues of one output.
    pub fn voqs_of(&self, output: PortId) -> impl Iterator<Item = VoqStatus> + '_ {
        let per_output = self.ports.len() * self.classes;
        (0..per_output).map(move |local| VoqStatus {
            input: port_id(local / self.classes),
            output,
            class: u8::try_from(local % self.classes).unwrap_or(0),
            counters: *self.queues.counters(output.index() * per_output + local),
        })
    }

    /// The addresses known at `now`, in no order.
    pub fn fdb(&self, now: Instant) -> impl Iterator<Item = FdbEntry> + '_ {
        self.fdb.iter(now)
    }

    /// The counters of the address table.
    pub const fn fdb_counters(&self) -> &FdbCounters {
        self.fdb.counters()
    }

    /// The balance of all frames, see [`Totals::conserved`].
    pub fn totals(&self) -> Totals {
        let mut totals = Totals { queued: self.queues.len() as u64, ..Totals::default() };
        for port in &self.ports {
            port.add_to(&mut totals);
        }
        totals
    }

    /// From the end of the ingress delay to the queues.
    fn forward(&mut self, now: Instant, pool: &mut Pool, input: PortId, frame: FrameRef) {
        let header = match Ethernet::parse(pool.bytes(&frame)) {
            Ok((header, _)) => header,
            Err(reason) => return self.drop_received(pool, input, frame, reason),
        };
        if let Some(reason) = refusal(&header) {
            return self.drop_received(pool, input, frame, reason);
        }
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
        let local = input.index() * self.classes + classify::class(header, self.classes);
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

    /// The next frame of an output at its rate, and the instant of its departure.
    fn depart(&mut self, now: Instant, pool: &mut Pool, port: PortId) -> Option<(FrameRef, Instant)> {
        let base = port.index() * self.ports.len() * self.classes;
        let output = &mut self.ports[port.index()];
        if output.pacer.ready_at() > now {
            return None;
        }
        let local = output.drr.select(|local| self.queues.head_bytes(base + local as usize))?;
        let (frame, bytes) = self.queues.pop(base + local as usize)?;
        if let Some(marking) = &self.marking {
            let queued = self.queues.counters(base + local as usize).queued.bytes;
            if marking.marks(queued, bytes, output.drr.busy(), &mut self.rng) && mark(pool, &frame, marking.ethertype) {
                output.counters.marked += 1;
            }
        }
        output.drr.charge(bytes, self.queues.head_bytes(base + local as usize) == 0);
        Some((frame, output.pacer.book(now, bytes)))
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

    fn drop_received(&mut self, pool: &mut Pool, port: PortId, frame: FrameRef, reason: DropReason) {
        self.ports[port.index()].counters.received_drops.count(reason);
        pool.free(frame);
    }

    fn flush(&mut self, pool: &mut Pool, port: PortId) {
        let per_output = self.ports.len() * self.classes;
        let output = &mut self.ports[port.index()];
        for queue in port.index() * per_output..(port.index() + 1) * per_output {
            while let Some(frame) = self.queues.flush(queue) {
                output.counters.sent_drops.count(DropReason::PortDown);
                pool.free(frame);
            }
        }
        output.flush(pool);
    }

    /// Every visit of the scheduler must be able to send the longest ordinary frame, so the quantum is at least that.
    fn apply_quanta(&mut self) {
        let longest = self.ports.iter().map(|port| port.frame_max()).max().unwrap_or(0);
        let quantum = u64::from(self.quantum).max(longest as u64);
        let weights = &self.weights[..self.classes];
        for port in &mut self.ports {
            port.drr.set_quanta(weights.iter().map(|&weight| quantum.saturating_mul(u64::from(weight.max(1)))).collect());
        }
    }
}

/// Marks a frame, if it is one of the transport's and nobody else holds it.
fn mark(pool: &mut Pool, frame: &FrameRef, ethertype: EtherType) -> bool {
    !pool.is_shared(frame) && mark_congestion(pool.bytes_mut(frame), ethertype)
}

/// Why no switch forwards this frame, if so.
fn refusal(header: &Ethernet) -> Option<DropReason> {
    if !header.src.is_station() {
        return Some(DropReason::InvalidSource);
    }
    if header.dst.is_reserved() {
        return Some(DropReason::ReservedAddress);
    }
    (header.ethertype == MAC_CONTROL).then_some(DropReason::MacControl)
}

/// The port of an index; [`Switch::new`] made sure that all fit.
fn port_id(index: usize) -> PortId {
    PortId(u16::try_from(index).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests;
