//! The simulated world: hosts with endpoints and applications around one switch, in virtual time, from one seed.
//!
//! Owns the clock, every frame and every byte. [`World::step`] lets everybody act once and moves the clock to the next
//! instant at which something can happen; the invariants of `check` are looked at in every step. Nothing here
//! reads a clock or draws randomness from elsewhere than the seed, so a world runs the same way every time.

use std::collections::HashMap;

use weft_proto::stop::Station;
use weft_proto::switch::{PortConfig, PortRole, Switch};
use weft_proto::transport::{AppId, Endpoint, EndpointConfig, QpNum};
use weft_proto::{Duration, FrameRef, Instant, Pool, PortId, Rng, time};

use crate::disturb::Disturbance;
use crate::flow::Flow;
use crate::link::Link;
use crate::memory::Blocks;
use crate::scenario::{Scenario, rng_near_wrap};
use crate::stops::Stops;

/// Frame buffers of a world.
pub const FRAMES: usize = 2048;
/// Room for an Ethernet header and a tag in front of the payload.
const HEADERS: usize = 18;
/// Steps at one instant after which the world does nothing but spin.
const MAX_STALLED: u32 = 20_000;

/// A host: its endpoint, the memory of its applications, and the cable to its port of the switch.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    pub(crate) memory: Blocks,
    pub(crate) station: Station,
    pub(crate) up: Link,
    pub(crate) down: Link,
}

/// What happened in a world, to see that it was worth looking at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Connections planned.
    pub flows: u64,
    /// Connections through which every message went.
    pub complete: u64,
    /// Messages known to have been delivered.
    pub messages: u64,
    /// Request packets that were sent again.
    pub retransmissions: u64,
    /// Connections whose sequence numbers wrapped.
    pub wraps: u64,
    /// Requests and receives that ended otherwise than well.
    pub failures: u64,
    /// Steps taken.
    pub steps: u64,
    /// Time for which stop control held back what could have been sent.
    pub stopped: Duration,
}

/// A simulated world.
#[derive(Debug)]
pub struct World {
    pub(crate) scenario: Scenario,
    pub(crate) rng: Rng,
    pub(crate) now: Instant,
    pub(crate) pool: Pool,
    pub(crate) switch: Switch,
    pub(crate) hosts: Vec<Host>,
    pub(crate) flows: Vec<Flow>,
    /// Which end of which connection a queue pair belongs to.
    pub(crate) owners: HashMap<(usize, QpNum), (usize, usize)>,
    /// Ends whose queue pair was destroyed in this step.
    pub(crate) ending: Vec<(usize, usize)>,
    pub(crate) disturbances: Vec<(Instant, Disturbance)>,
    pub(crate) stops: Stops,
    /// A port was unplugged at some time, so that peers may have been given up.
    pub(crate) blackout: bool,
    /// Faults are over.
    pub(crate) calm: bool,
    pub(crate) summary: Summary,
    stalled: u32,
}

/// The port of the switch that a host is plugged into.
pub(crate) fn port_of(host: usize) -> PortId {
    PortId(u16::try_from(host).unwrap_or(u16::MAX))
}

impl World {
    /// The world of a seed.
    pub fn new(seed: u64) -> Self {
        let (scenario, mut rng) = Scenario::draw(seed);
        let pool = Pool::new(FRAMES, scenario.endpoint.mtu + HEADERS + 32, 32);
        let ports = vec![port_config(&scenario, true); scenario.hosts];
        let switch = Switch::new(&scenario.switch_config(FRAMES), &ports, rng.fork());
        let mut world = Self {
            hosts: Vec::new(),
            flows: Vec::new(),
            owners: HashMap::new(),
            ending: Vec::new(),
            disturbances: Vec::new(),
            stops: Stops::draw(&scenario, Instant::from_nanos(1)),
            now: Instant::from_nanos(1),
            blackout: false,
            calm: false,
            summary: Summary::default(),
            stalled: 0,
            scenario,
            rng,
            pool,
            switch,
        };
        world.add_hosts();
        world.plan_flows();
        world.plan_disturbances();
        world
    }

    /// What the seed has drawn.
    pub const fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// What has happened.
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }

    fn add_hosts(&mut self) {
        for host in 0..self.scenario.hosts {
            let rng = if host == 0 && self.scenario.near_wrap { rng_near_wrap(self.rng.next_u64() >> 1, 200) } else { self.rng.fork() };
            let link = || Link::new(self.scenario.cable_rate, self.scenario.cable_delay);
            let (up, down) = (link(), link());
            let endpoint = new_endpoint(&self.scenario, host, rng);
            let station = self.stops.station(&self.scenario, host);
            self.hosts.push(Host { endpoint, memory: Blocks::default(), station, up, down });
            self.listen(host);
        }
    }

    /// Every application listens on a service of its own.
    pub(crate) fn listen(&mut self, host: usize) {
        for app in 0..2 {
            self.hosts[host].endpoint.listen(AppId(app), service_of(AppId(app))).expect("a service of its own");
        }
    }

    /// A host loses all state but its memory.
    pub(crate) fn replace_endpoint(&mut self, host: usize) {
        let rng = self.rng.fork();
        // Every life begins later than the one before; the time of a world is short, so count in microseconds.
        self.scenario.endpoint.started = self.now.as_nanos() / 1000 + 2;
        self.hosts[host].endpoint = new_endpoint(&self.scenario, host, rng);
        self.owners.retain(|(owner, _), _| *owner != host);
        self.listen(host);
    }

    /// Everybody acts once, then time moves on.
    ///
    /// # Errors
    /// Which invariant is broken.
    pub fn step(&mut self) -> Result<(), String> {
        self.summary.steps += 1;
        self.disturb();
        self.say_stops();
        self.act();
        self.transmit();
        self.forward();
        self.deliver();
        self.collect()?;
        self.check()?;
        self.advance()
    }

    /// Endpoints send as much as their cables take.
    fn transmit(&mut self) {
        for host in &mut self.hosts {
            while host.up.has_room(self.now) && self.pool.available() > 0 {
                let Some(frame) = self.pool.alloc() else { break };
                let Some(sent) =
                    host.endpoint.poll_transmit_within(self.now, self.pool.room_mut(&frame), &host.memory, host.station.obedience_mut())
                else {
                    self.pool.free(frame);
                    break;
                };
                self.pool.set_len(&frame, sent.len);
                self.pool.set_priority(&frame, sent.priority);
                self.summary.wraps += u64::from(is_last_number(self.pool.bytes(&frame)));
                host.up.push(self.now, sent.len, frame);
            }
        }
    }

    /// Frames go through the switch.
    fn forward(&mut self) {
        for host in 0..self.hosts.len() {
            while let Some(frame) = self.hosts[host].up.pop_due(self.now) {
                self.switch.ingest(self.now, &mut self.pool, port_of(host), frame);
            }
        }
        self.switch.handle_timeout(self.now, &mut self.pool);
        let mut out: Vec<FrameRef> = Vec::new();
        for host in 0..self.hosts.len() {
            while self.hosts[host].down.has_room(self.now) {
                self.switch.egress(self.now, &mut self.pool, port_of(host), 1, &mut out);
                let Some(frame) = out.pop() else { break };
                let len = self.pool.bytes(&frame).len();
                self.hosts[host].down.push(self.now, len, frame);
            }
        }
    }

    /// Endpoints take what arrives, and notice the time.
    fn deliver(&mut self) {
        for host in &mut self.hosts {
            while let Some(frame) = host.down.pop_due(self.now) {
                host.endpoint.handle_frame(self.now, self.pool.bytes(&frame), &mut host.memory);
                self.pool.free(frame);
            }
            host.station.handle_timeout(self.now);
            let mut stops = host.station.obedience_mut();
            if let Some(stops) = &mut stops {
                host.endpoint.handle_released(self.now, stops);
            }
            if host.endpoint.poll_timeout().is_some_and(|at| at <= self.now) {
                host.endpoint.handle_timeout_within(self.now, stops.as_deref());
            }
        }
    }

    /// Moves the clock to the next instant at which something can happen.
    fn advance(&mut self) -> Result<(), String> {
        // If nobody has anything to do at all, time passes nevertheless.
        let next = self.next_instant().unwrap_or(self.now + Duration::from_millis(1));
        if next > self.now {
            self.now = next;
            self.stalled = 0;
            return Ok(());
        }
        self.stalled += 1;
        if self.stalled < MAX_STALLED { Ok(()) } else { Err(format!("the world spins: {}", self.what_is_due())) }
    }

    /// Who wants to act now, and does not.
    fn what_is_due(&self) -> String {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
        let switch = due(self.switch.poll_timeout(|_| true));
        let hosts = self.hosts.iter().map(|host| {
            let sends = host.endpoint.wants_transmit() && host.up.has_room(self.now);
            (due(host.endpoint.poll_timeout()), sends, due(host.up.next_arrival()), due(host.down.next_arrival()))
        });
        let applications = self.flows.iter().flat_map(|flow| &flow.sides).filter(|side| due(side.next_action)).count();
        let hosts: Vec<_> = hosts.collect();
        format!(
            "switch {switch}, hosts (timer, sends, up, down) {hosts:?}, applications {applications}, {} buffers free",
            self.pool.available()
        )
    }

    fn next_instant(&self) -> Option<Instant> {
        let mut next = self.switch.poll_timeout(|port| self.hosts[port.index()].down.has_room(self.now));
        let mut consider = |at: Option<Instant>| next = time::earliest(next, at);
        for (index, host) in self.hosts.iter().enumerate() {
            consider(host.up.next_arrival());
            consider(host.down.next_arrival());
            consider(host.endpoint.poll_timeout());
            consider(host.station.poll_timeout());
            // Without a free buffer it waits for one that comes back.
            let sends = host.endpoint.wants_transmit() && self.pool.available() > 0;
            consider(sends.then(|| host.up.ready_at()));
            // The switch may have a frame for a cable that is busy now.
            consider((self.switch.queued(port_of(index)) > 0 && !host.down.has_room(self.now)).then(|| host.down.ready_at()));
        }
        consider(self.disturbances.iter().map(|(at, _)| *at).min());
        consider(self.stops.next());
        consider(self.flows.iter().flat_map(|flow| &flow.sides).filter_map(|side| side.next_action).min());
        next
    }

    /// Faults are over: links are perfect, everything is plugged in, and new connections must succeed.
    pub fn calm_down(&mut self) {
        self.calm = true;
        self.disturbances.clear();
        self.stops.end();
        for host in 0..self.hosts.len() {
            self.switch.set_port_up(&mut self.pool, port_of(host), true);
            self.switch.reconfigure_port(self.now, port_of(host), &port_config(&self.scenario, false));
        }
        self.plan_proof();
    }

    /// The two memories that a connection joins, in the order of its ends.
    pub(crate) fn memories(hosts: &mut [Host], ends: [usize; 2]) -> [&mut Blocks; 2] {
        hosts.get_disjoint_mut(ends).expect("a connection joins two hosts").map(|host| &mut host.memory)
    }
}

/// The service that an application listens on.
pub(crate) fn service_of(app: AppId) -> u16 {
    10 + u16::try_from(app.0).unwrap_or(0)
}

fn port_config(scenario: &Scenario, impaired: bool) -> PortConfig {
    let mut port = PortConfig::new(PortRole::Switch);
    port.rate = scenario.port_rate;
    port.mtu = scenario.endpoint.mtu;
    if impaired {
        port.impair_ingress = scenario.impairment;
        port.impair_egress = scenario.impairment;
    }
    port
}

fn new_endpoint(scenario: &Scenario, host: usize, rng: Rng) -> Endpoint {
    Endpoint::new(EndpointConfig { mac: Scenario::mac(host), ..scenario.endpoint.clone() }, rng)
}

/// True for a request with the last sequence number before the wrap.
fn is_last_number(frame: &[u8]) -> bool {
    let start = if frame[12..14] == [0x81, 0x00] { HEADERS } else { HEADERS - 4 };
    // Behind the Ethernet header: 12 bytes of Weft header, then the BTH with its opcode in front and the PSN at 9.
    frame[start + 12] < 0x0c && frame[start + 21..start + 24] == [0xff; 3]
}
