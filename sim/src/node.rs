//! A node: a switch, and in a host an endpoint as one of its ports. Driven exactly as the daemon's worker drives them.

use weft_proto::stop::{Station, StopConfig};
use weft_proto::switch::{FlowControl, PortConfig, PortRole, Switch, SwitchConfig};
use weft_proto::time::earliest;
use weft_proto::transport::{Endpoint, EndpointConfig, MemId, Memory, MemoryGone};
use weft_proto::wire::MacAddr;
use weft_proto::wire::eth::{ETH_HEADER, VLAN_HEADER};
use weft_proto::{BitRate, FrameRef, Instant, Pool, PortId, Rng};

use crate::application::Applications;

/// Frames that a port hands out at once; with a rate it is one at a time.
const BATCH: usize = 64;

/// Source of the frames that a port makes itself; nobody answers them.
const PORT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);

/// What a node is.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its switch.
    pub switch: SwitchConfig,
    /// What makes it a host, with one cable.
    pub host: Option<HostConfig>,
}

/// What a host has besides.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Its transport; the address says which host it is.
    pub endpoint: EndpointConfig,
    /// Its stop control, if it has it.
    pub stop: Option<StopConfig>,
}

/// Application memory that holds nothing: what is in the frames does not matter here.
#[derive(Debug)]
pub struct Void;

impl Memory for Void {
    fn read(&self, _: MemId, _: u64, out: &mut [u8]) -> Result<(), MemoryGone> {
        out.fill(0);
        Ok(())
    }

    fn write(&mut self, _: MemId, _: u64, _: &[u8]) -> Result<(), MemoryGone> {
        Ok(())
    }
}

/// The transport of a host with its applications.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) endpoint: Endpoint,
    pub(crate) applications: Applications,
    pub(crate) mac: MacAddr,
    port: PortId,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) switch: Switch,
    pub(crate) local: Option<Local>,
    voq_limit: u64,
    longest: u64,
    /// Ports with a cable.
    cables: usize,
    pub(crate) out: Vec<FrameRef>,
}

impl Node {
    /// A node whose ports lead to cables of these rates.
    pub(crate) fn new(config: &NodeConfig, rates: &[(BitRate, FlowControl)], seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let NodeConfig { switch: settings, host } = config;
        let role = if host.is_some() { PortRole::Host } else { PortRole::Switch };
        let mut ports: Vec<_> = rates
            .iter()
            .map(|&(rate, flow_control)| PortConfig { rate: Some(rate), flow_control, mac: PORT_MAC, ..PortConfig::new(role) })
            .collect();
        let port = port_id(ports.len());
        if host.is_some() {
            ports.push(PortConfig::new(PortRole::Local));
        }
        let longest = ports.iter().map(|port| port.mtu).max().unwrap_or(0) + ETH_HEADER + VLAN_HEADER;
        let mut switch = Switch::new(settings, &ports, rng.fork());
        let local = host.as_ref().map(|HostConfig { endpoint, stop }| {
            switch.set_static(endpoint.mac, port).expect("room for one address");
            switch.set_stop(stop.clone());
            let mac = endpoint.mac;
            let mut endpoint = Endpoint::new(endpoint.clone(), rng.fork());
            let mut applications = Applications::default();
            applications.open(&mut endpoint);
            Local { endpoint, applications, mac, port }
        });
        Self { switch, local, voq_limit: settings.voq_limit_bytes, longest: longest as u64, cables: rates.len(), out: Vec::new() }
    }

    /// What came in at `now` has been ingested: does all that is due.
    pub(crate) fn run(&mut self, now: Instant, pool: &mut Pool) {
        self.switch.handle_timeout(now, pool);
        for port in (0..self.cables).map(port_id) {
            self.switch.handle_quiet(now, port);
        }
        let Some(local) = &mut self.local else { return };
        local.deliver(now, pool, &mut self.switch, &mut self.out);
        local.applications.run(now, &mut local.endpoint);
        local.run_timers(now, &mut self.switch);
        let waiting: u64 = (0..self.cables).map(|cable| self.switch.queued_from(local.port, port_id(cable)).bytes).sum();
        let room = self.voq_limit.saturating_sub(waiting) / self.longest;
        local.transmit(now, pool, &mut self.switch, room);
        local.applications.run(now, &mut local.endpoint);
    }

    /// Puts the frames that leave through a port now into `out`.
    pub(crate) fn send(&mut self, now: Instant, pool: &mut Pool, port: PortId) {
        self.switch.egress(now, pool, port, BATCH, &mut self.out);
    }

    /// When it has something to do if nothing comes in.
    pub(crate) fn due(&self) -> Option<Instant> {
        let local = self.local.as_ref().and_then(|local| earliest(local.endpoint.poll_timeout(), local.applications.poll_timeout()));
        earliest(local, self.switch.poll_timeout(|_| true))
    }
}

impl Local {
    fn deliver(&mut self, now: Instant, pool: &mut Pool, switch: &mut Switch, frames: &mut Vec<FrameRef>) {
        loop {
            switch.egress(now, pool, self.port, BATCH, frames);
            if frames.is_empty() {
                return;
            }
            for frame in frames.drain(..) {
                self.endpoint.handle_frame(now, pool.bytes(&frame), &mut Void);
                pool.free(frame);
            }
        }
    }

    fn run_timers(&mut self, now: Instant, switch: &mut Switch) {
        let mut stops = switch.stop_mut().and_then(Station::obedience_mut);
        if let Some(stops) = &mut stops {
            self.endpoint.handle_released(now, stops);
        }
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout_within(now, stops.as_deref());
        }
    }

    fn transmit(&mut self, now: Instant, pool: &mut Pool, switch: &mut Switch, room: u64) {
        for _ in 0..room {
            let Some(frame) = pool.alloc() else { return };
            let stops = switch.stop_mut().and_then(Station::obedience_mut);
            let Some(sent) = self.endpoint.poll_transmit_within(now, pool.room_mut(&frame), &Void, stops) else {
                return pool.free(frame);
            };
            pool.set_len(&frame, sent.len);
            pool.set_priority(&frame, sent.priority);
            switch.ingest(now, pool, self.port, frame);
        }
    }
}

/// The port of an index.
pub(crate) fn port_id(index: usize) -> PortId {
    PortId(u16::try_from(index).unwrap_or(u16::MAX))
}
