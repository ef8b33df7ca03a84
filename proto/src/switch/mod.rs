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

pub mod arbiter;
mod classify;
mod config;
mod counters;
mod delay;
mod drr;
mod egress;
mod fdb;
mod flow;
mod impair;
mod ingress;
mod marking;
mod pausing;
mod port;
mod stops;
mod vlans;
mod voq;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use crate::pace::{CATCH_UP, FRAME_OVERHEAD};
pub use config::{CLASSES_MAX, PortConfig, PortRole, SwitchConfig};
pub use counters::{FdbCounters, FlowCounters, ImpairmentCounters, PortCounters, Totals, Traffic, VoqCounters};
pub use fdb::{FdbEntry, FdbFull};
pub use flow::{FlowConfig, FlowControl, RESTORE};
pub use impair::Impairment;
pub use marking::Marking;
pub use vlans::Vlans;

use crate::pool::Pool;
use crate::rng::Rng;
use crate::stop::{Station, StopConfig};
use crate::time::{Instant, earliest};
use crate::units::PortId;
use crate::wire::eth::{EtherType, MacAddr};
use fdb::Fdb;
use port::Port;
use voq::Queues;

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
    strict: u8,
    control: Option<EtherType>,
    flow: FlowConfig,
    marking: Option<Marking>,
    frames: usize,
    rng: Rng,
    /// Stop control, if this host has it.
    stop: Option<Box<Station>>,
    /// When stop control last saw the time: what it says of ports is as of then.
    stop_seen_at: Instant,
    /// No buffer was free for a control packet: not before then.
    control_retry_at: Instant,
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
            queues: Queues::new(ports.len() * queues, queues, config.frames, config.voq_limit_bytes),
            ports,
            classes,
            quantum: config.quantum,
            weights: config.weights,
            strict: config.strict,
            control: config.control,
            flow: config.flow,
            marking: config.marking,
            frames: config.frames,
            rng,
            stop: None,
            stop_seen_at: Instant::ZERO,
            control_retry_at: Instant::ZERO,
        };
        switch.apply_quanta();
        switch
    }

    /// Takes over what can change while traffic flows: ageing, queue limit, weights, quantum, strict classes, flow
    /// control and marking. Table size, number of classes and room for frames stay.
    pub fn reconfigure(&mut self, config: &SwitchConfig) {
        self.fdb.set_ageing(config.mac_ageing);
        self.queues.set_limit_bytes(config.voq_limit_bytes);
        self.quantum = config.quantum;
        self.weights = config.weights;
        self.strict = config.strict;
        self.control = config.control;
        self.flow = config.flow;
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

    /// When [`Switch::handle_timeout`] or [`Switch::egress`] has something to do next; an instant in the past means now.
    /// Departures from ports for which `can_send` is false are left out, so that a blocked port does not keep its
    /// owner awake.
    pub fn poll_timeout(&self, can_send: impl Fn(PortId) -> bool) -> Option<Instant> {
        let stop = self.stop.as_ref().and_then(|stop| stop.poll_timeout());
        self.ports.iter().enumerate().fold(stop, |deadline, (index, port)| {
            let departure = if can_send(port_id(index)) { earliest(self.departure(port_id(index)), self.poll_pause(index)) } else { None };
            earliest(deadline, earliest(departure, port.ingress.line().release()))
        })
    }

    /// When the next frame leaves a port.
    fn departure(&self, port: PortId) -> Option<Instant> {
        let control = if self.stop.is_some() { self.control_departure(port) } else { None };
        earliest(control, self.ports[port.index()].departure())
    }

    /// Takes up stop control on the host ports, gives it other settings, or ends it.
    pub fn set_stop(&mut self, config: Option<StopConfig>) {
        let hosts: Vec<_> = (0..self.ports.len()).map(port_id).filter(|port| self.port_config(*port).role == PortRole::Host).collect();
        for host in &hosts {
            self.ports[host.index()].held.reserve(self.frames);
            self.ports[host.index()].held.look_again();
        }
        self.stop = config.map(|config| Box::new(Station::new(config, &hosts, self.rng.fork())));
    }

    /// Stop control, if this host has it.
    pub fn stop(&self) -> Option<&Station> {
        self.stop.as_deref()
    }

    /// Stop control, to be told something.
    pub fn stop_mut(&mut self) -> Option<&mut Station> {
        self.stop.as_deref_mut()
    }

    /// Nothing more came in through a port until `now`: its silence means something.
    pub fn handle_quiet(&mut self, now: Instant, port: PortId) {
        if let Some(stop) = &mut self.stop {
            stop.handle_quiet(now, port);
        }
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

    /// Frames that wait to leave through a port: in its queues, set aside by stop control, and in its egress delay line.
    pub fn queued(&self, port: PortId) -> u64 {
        let queued: u64 = self.voqs_of(port).map(|voq| voq.counters.queued.frames).sum();
        let port = &self.ports[port.index()];
        queued + (port.egress.line().len() + port.held.len()) as u64
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

    /// Every visit of the scheduler must be able to send the longest ordinary frame, so the quantum is at least that.
    fn apply_quanta(&mut self) {
        let longest = self.ports.iter().map(|port| port.frame_max()).max().unwrap_or(0);
        let quantum = u64::from(self.quantum).max(longest as u64);
        let weights = &self.weights[..self.classes];
        for port in &mut self.ports {
            let quanta = weights.iter().map(|&weight| quantum.saturating_mul(u64::from(weight.max(1)))).collect();
            port.drr.configure(quanta, usize::from(self.strict));
        }
    }
}

/// The port of an index; [`Switch::new`] made sure that all fit.
fn port_id(index: usize) -> PortId {
    PortId(u16::try_from(index).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests;
