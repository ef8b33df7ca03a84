//! The data plane: pool, switch, network ports and local transport, and the breath that moves frames between them.
//!
//! A breath is one round of small stages with one `now`, each bounded by a batch, so that no side can starve the
//! others. It never waits, never allocates per frame, and leaves every frame that it cannot move where it is.

use weft_config::model;
use weft_proto::stop::{Station, StopConfig};
use weft_proto::switch::{PortConfig, PortRole, Switch, SwitchConfig};
use weft_proto::time::earliest;
use weft_proto::transport::Endpoint;
use weft_proto::{FrameRef, Instant, Pool, PortId, Rng};

use super::budget::Budget;
use super::interface::{Interface, RETRY};
use super::local::Local;
use crate::app::AppCommand;
use crate::link::LinkEvent;
use crate::port::{Port, PortState};
use crate::snapshot::WorkerSnapshot;
use crate::translate;

/// What a data plane is made of.
#[derive(Debug)]
pub struct Parts {
    /// Frame buffers, large enough for the longest frame of any port.
    pub pool: Pool,
    /// Settings of the switch.
    pub switch: SwitchConfig,
    /// The network ports with their settings, in the order of the configuration.
    pub ports: Vec<(Port, model::Port)>,
    /// The local transport, if this node has one.
    pub local: Option<Local>,
    /// Most frames that a stage moves per port.
    pub batch: usize,
    /// For the switch: keys of its table, and impairments without a seed.
    pub rng: Rng,
}

/// See the module.
#[derive(Debug)]
pub struct Plane {
    pub(super) pool: Pool,
    pub(super) switch: Switch,
    pub(super) interfaces: Vec<Interface>,
    pub(super) local: Option<Local>,
    pub(super) counters: WorkerSnapshot,
    budget: Budget,
    batch: usize,
    /// Frames between two stages; empty between two breaths.
    frames: Vec<FrameRef>,
    /// Set by [`Plane::stop`].
    stop_at: Option<Instant>,
    /// Events of stop control up to this number have been looked through for alarms.
    pub(super) alarmed: u64,
}

impl Plane {
    /// A data plane of these parts. Port `i` of the configuration is `PortId(i)`, the local transport the one behind the last.
    pub fn new(parts: Parts) -> Self {
        let Parts { mut pool, switch: switch_config, ports, mut local, batch, rng } = parts;
        let mut configs: Vec<PortConfig> = ports.iter().map(|(port, config)| translate::port(config, port.mtu(), port.mac())).collect();
        let local_id = port_id(configs.len());
        if local.is_some() {
            // It takes whatever the others take.
            let mtu = configs.iter().map(|config| config.mtu).max().unwrap_or(0);
            configs.push(PortConfig { mtu, ..PortConfig::new(PortRole::Local) });
        }
        let mut switch = Switch::new(&switch_config, &configs, rng);
        if let Some(local) = &mut local {
            local.attach(local_id, &mut switch);
        }
        let number = |(index, (port, config))| Interface::new(port, config, port_id(index), batch);
        let interfaces: Vec<Interface> = ports.into_iter().enumerate().map(number).collect();
        for interface in interfaces.iter().filter(|interface| !interface.up) {
            switch.set_port_up(&mut pool, interface.id(), false);
        }
        let budget = Budget::new(switch_config.voq_limit_bytes, interfaces.len());
        let counters = WorkerSnapshot { frames_total: (pool.available() + pool.in_use()) as u64, ..Default::default() };
        Self { pool, switch, interfaces, local, counters, budget, batch, frames: Vec::with_capacity(batch), stop_at: None, alarmed: 0 }
    }

    /// One round. Returns the number of frames and requests that moved.
    pub fn breathe(&mut self, now: Instant) -> usize {
        self.sync_links(now);
        let mut moved = self.receive(now);
        self.switch.handle_timeout(now, &mut self.pool);
        if let Some(local) = &mut self.local {
            moved += local.take_requests(now, self.batch);
            moved += local.deliver(now, &mut self.pool, &mut self.switch, &mut self.frames, self.batch);
            local.run_timers(now, &mut self.switch);
            if local.wants_transmit() {
                let outputs = self.interfaces.iter().filter(|interface| interface.up).map(Interface::output);
                let frames = self.budget.frames(now, &self.pool, &self.switch, local.id(), outputs).min(self.batch);
                moved += local.transmit(now, &mut self.pool, &mut self.switch, frames);
                self.budget.note_use(now, &self.switch, local.id());
            }
        }
        moved += self.send(now);
        if let Some(local) = &mut self.local {
            local.complete(now);
        }
        self.counters.breaths += 1;
        self.counters.busy_breaths += u64::from(moved > 0);
        moved
    }

    fn sync_links(&mut self, now: Instant) {
        for interface in &mut self.interfaces {
            interface.sync(now, &mut self.pool, &mut self.switch);
        }
    }

    pub(super) fn receive(&mut self, now: Instant) -> usize {
        let mut moved = 0;
        for interface in &mut self.interfaces {
            interface.receive(&mut self.pool, &mut self.frames, self.batch);
            moved += self.frames.len();
            for frame in self.frames.drain(..) {
                self.switch.ingest(now, &mut self.pool, interface.id(), frame);
            }
            if interface.is_quiet() {
                self.switch.handle_quiet(now, interface.id());
            }
        }
        self.counters.pool_exhausted += u64::from(self.pool.available() == 0);
        moved
    }

    fn send(&mut self, now: Instant) -> usize {
        let mut moved = 0;
        for interface in &mut self.interfaces {
            self.switch.egress(now, &mut self.pool, interface.id(), interface.room(self.batch), &mut self.frames);
            moved += self.frames.len();
            interface.send(now, &mut self.pool, &mut self.frames);
        }
        moved
    }

    /// When the next breath has something to do, even if nothing comes in.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let can_send = |port: PortId| self.interfaces.get(port.index()).is_none_or(Interface::can_send);
        let ports = self.interfaces.iter().filter_map(|interface| interface.poll_timeout(now)).min();
        let held_back = self.local.as_ref().is_some_and(Local::wants_transmit).then(|| now + RETRY);
        let local = earliest(self.local.as_ref().and_then(Local::poll_timeout), held_back);
        let due = earliest(earliest(ports, local), self.switch.poll_timeout(can_send));
        earliest(due, self.stop_at)
    }

    /// Opens ports anew whose time has come; says whether there is another descriptor to wait on.
    pub fn reopen_ports(&mut self, now: Instant) -> bool {
        self.interfaces.iter_mut().fold(false, |opened, interface| interface.port.handle_timeout(now) | opened)
    }

    /// News about the interfaces of the machine.
    pub fn handle_link(&mut self, event: &LinkEvent) {
        for interface in &mut self.interfaces {
            if interface.port.handle_link(event) && interface.config.role == model::Role::Host {
                warn_if_renamed(self.local.as_ref(), interface);
            }
        }
    }

    /// Does what an application asked the control thread for.
    pub fn execute(&mut self, now: Instant, command: AppCommand) {
        if let Some(local) = &mut self.local {
            local.execute(now, command);
        }
    }

    /// Takes over what can change of the switch's settings.
    pub fn reconfigure_switch(&mut self, config: &SwitchConfig) {
        self.budget.voq_limit = config.voq_limit_bytes;
        self.switch.reconfigure(config);
    }

    /// Takes up stop control, gives it other settings, or ends it. Other settings begin with nobody asked and nobody obeyed.
    pub fn set_stop(&mut self, stop: Option<StopConfig>) {
        let before = self.switch.stop().map(|station| station.config());
        // When it began to run is no setting.
        let same = |old: &StopConfig, new: &StopConfig| *old == StopConfig { started: old.started, ..new.clone() };
        if before.is_none() && stop.is_none() || before.zip(stop.as_ref()).is_some_and(|(old, new)| same(old, new)) {
            return;
        }
        // Without a transport there is no host port, whose filter this is.
        let transport = self.endpoint().map(|endpoint| endpoint.config().ethertype);
        let ethertypes = transport.map(|transport| translate::host_ethertypes(transport, stop.as_ref().map(|stop| stop.ethertype)));
        for interface in &mut self.interfaces {
            interface.set_stop(ethertypes.clone().unwrap_or_default(), stop.is_some());
        }
        self.switch.set_stop(stop);
        self.alarmed = 0;
    }

    /// Takes over changed settings of a port.
    pub fn reconfigure_port(&mut self, now: Instant, port: usize, config: &model::Port) {
        if let Some(interface) = self.interfaces.get_mut(port) {
            interface.reconfigure(now, &mut self.switch, config);
        }
    }

    /// The switch, to be looked at.
    pub const fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Stop control, if this node has it.
    pub fn stop_control(&mut self) -> Option<&mut Station> {
        self.switch.stop_mut()
    }

    /// Begins the end: what is queued, and what closes connections, may still leave until `deadline`.
    pub fn stop(&mut self, deadline: Instant) {
        self.stop_at = Some(deadline);
    }

    /// The local transport, to be looked at.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        self.local.as_ref().map(Local::endpoint)
    }

    /// True once [`Plane::stop`] has run its course.
    pub(super) fn is_stopped(&self, now: Instant) -> bool {
        self.stop_at.is_some_and(|deadline| now >= deadline || self.is_drained())
    }

    /// True if no frame waits anywhere to leave this node.
    fn is_drained(&self) -> bool {
        let local = self.local.as_ref().is_none_or(Local::is_drained);
        local && self.switch.totals().queued == 0 && self.interfaces.iter().all(Interface::is_drained)
    }

    /// Says to the applications that the worker is about to sleep; false if one of them has rung already.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        self.local.as_mut().is_none_or(Local::prepare_sleep)
    }

    /// Takes that back.
    pub(super) fn finish_sleep(&mut self) {
        if let Some(local) = &mut self.local {
            local.finish_sleep();
        }
    }

    /// The end: what is still queued is dropped, counted.
    pub fn close(&mut self) {
        for interface in &mut self.interfaces {
            self.switch.set_port_up(&mut self.pool, interface.id(), false);
            interface.close(&mut self.pool);
        }
        if let Some(local) = &self.local {
            self.switch.set_port_up(&mut self.pool, local.id(), false);
        }
    }
}

/// The transport keeps the address that it started with: its peers know it by that.
fn warn_if_renamed(local: Option<&Local>, interface: &Interface) {
    let (old, new) = (local.map(Local::mac), interface.port.mac());
    if interface.port.state() != PortState::Absent && old.is_some_and(|old| old != new) {
        tracing::warn!(port = %interface.config.name, address = %new, "the interface has another address than the transport; restart weftd, or set the old one");
    }
}

/// The port of an index; the configuration has at most 256.
fn port_id(index: usize) -> PortId {
    PortId(u16::try_from(index).unwrap_or(u16::MAX))
}
