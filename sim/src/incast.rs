//! Incast, the scenario that stop control is there for: eight senders write to one hot receiver through a switch with small
//! buffers, while victims use what the hot flows leave them.
//!
//! ```text
//!   one stage                                    two stages
//!   sender 1..8 --+        +-- hot receiver      sender 1..4 --+               +-- sender 5..8
//!                 | switch |                                   | left == right |-- hot receiver
//!   bystander ----+        +-- receivers 1, 2    receiver 1  --+               +-- receiver 2
//!                                                bystander   --+
//! ```
//!
//! Victim 1 goes from sender 1, which also sends to the hot receiver, to receiver 1; victim 2 from the bystander to receiver 2.
//! A ping-pong of high priority goes from sender 2 to the hot receiver.

use weft_proto::stop::StopConfig;
use weft_proto::stop::config::{AskConfig, Counting, Criterion, Detector, ObeyConfig, Presets, Request, WatchConfig};
use weft_proto::switch::{FRAME_OVERHEAD, FlowConfig, FlowControl, PortCounters, SwitchConfig};
use weft_proto::transport::{BdpCap, EndpointConfig};
use weft_proto::wire::{EtherType, MacAddr};
use weft_proto::{BitRate, DropReason, Duration};

use crate::application::{Flow, Load};
use crate::network::{Link, Network};
use crate::node::{HostConfig, NodeConfig};

/// Hosts that send to the hot receiver.
pub const SENDERS: usize = 8;
const HOT: usize = SENDERS;
const RECEIVERS: [usize; 2] = [SENDERS + 1, SENDERS + 2];
const BYSTANDER: usize = SENDERS + 3;
const HOSTS: usize = SENDERS + 4;
/// Frames that a node has room for: more than its queues may hold.
const FRAMES: usize = 4096;
/// What every sender may have in flight, whatever the setting: more than a queue of the switch holds.
const WINDOW: u32 = 128;
const WRITES: Load = Load::Write { message: 16 << 10, depth: 16 };
const PINGS: Load = Load::PingPong { message: 1024, interval: Duration::from_millis(5) };
/// Priorities of the ping-pong and of everything else.
const HIGH: u8 = 15;
const LOW: u8 = 0;
/// The victims begin at once, everything else when connections stand.
const CONNECTING: Duration = Duration::from_millis(20);

/// What keeps the switch from losing frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// Nothing.
    Nothing,
    /// PAUSE (IEEE 802.3x) on every cable.
    Pause,
    /// Stop control: the senders stop altogether.
    Stop,
    /// Stop control: the senders slow down to 2/16, and the one with a victim to 1/16. So 1/16 of the link is left for what
    /// waited when they were asked, and for the victim nearly all of its sender's.
    Rate,
}

impl Setting {
    /// All of them, from the one without anything.
    pub const ALL: [Self; 4] = [Self::Nothing, Self::Pause, Self::Stop, Self::Rate];
}

/// When a receiver sees congestion, and what it asks.
#[derive(Clone, Copy, Debug)]
pub struct Detection {
    /// The monitoring period.
    pub period: Duration,
    /// Full periods in a row until it asks.
    pub detect: u32,
    /// Emptier ones until it cancels.
    pub resolve: u32,
    /// Part of the link's rate from which a period is full, in percent.
    pub full: u64,
    /// Part below which it is emptier, in percent.
    pub empty: u64,
    /// For how long a stop packet holds.
    pub timer: Duration,
    /// Most time a released sender waits.
    pub jitter: Duration,
}

/// A scene.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// What is done about congestion.
    pub setting: Setting,
    /// One switch, or two.
    pub two_stages: bool,
    /// Of every host's cable; the cable between switches has ten times as much.
    pub rate: BitRate,
    /// Of every cable, one way.
    pub delay: Duration,
    /// Bytes that a virtual output queue of a switch holds.
    pub buffer: u64,
    /// Settings of stop control.
    pub detection: Detection,
    /// Time until the measurement.
    pub warm_up: Duration,
    /// Time of the measurement.
    pub span: Duration,
}

/// A victim's goodput in bits per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Victim {
    /// With nobody else there.
    pub alone: f64,
    /// With the hot flows.
    pub beside: f64,
}

impl Victim {
    /// What is left of it, in percent.
    pub fn left(&self) -> f64 {
        self.beside / self.alone * 100.0
    }
}

impl Detection {
    /// Settings that keep the switch from losing frames at a rate: two periods of some four full frames. A period must be long
    /// enough that one frame more or less makes no difference, and all of it, with a round trip, so short that what comes in
    /// meanwhile still fits the buffer.
    pub fn new(rate: BitRate) -> Self {
        let period = rate.time_for(4 * 1538);
        Self { period, detect: 2, resolve: 2, full: 80, empty: 40, timer: period.saturating_mul(10), jitter: Duration::ZERO }
    }
}

impl Scene {
    /// A scene on cables of a rate, with buffers as small switches have them.
    pub fn new(setting: Setting, two_stages: bool, rate: BitRate) -> Self {
        Self {
            setting,
            two_stages,
            rate,
            delay: Duration::from_micros(20),
            // Four senders fill the one queue between the switches.
            buffer: if two_stages { 128 << 10 } else { 64 << 10 },
            detection: Detection::new(rate),
            warm_up: Duration::from_millis(100),
            span: Duration::from_millis(500),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Frames lost in the switches since the hot flows began.
    pub lost: u64,
    /// Of these, after the warm-up.
    pub lost_later: u64,
    /// Goodput of the hot flows together, bits per second.
    pub hot: f64,
    /// Use of the hot receiver's link, percent.
    pub utilisation: f64,
    /// The two victims.
    pub victims: [Victim; 2],
    /// Control frames sent by anyone.
    pub control_frames: u64,
    /// The ping-pong's 99th percentile, without load and with it.
    pub latency: [Duration; 2],
    /// Frames sent again.
    pub retransmitted: u64,
}

/// What is counted at one moment.
#[derive(Clone, Debug, Default)]
struct Counts {
    lost: u64,
    hot: u64,
    victims: [u64; 2],
    pings: usize,
    link: u64,
    control_frames: u64,
}

/// A network with its loads.
#[derive(Debug)]
struct Incast {
    network: Network,
    hot: Vec<(usize, usize)>,
    victims: [(usize, usize); 2],
    pings: (usize, usize),
    switches: usize,
}

/// Runs a scene: first what is measured without the hot flows, then all together.
pub fn run(scene: &Scene) -> Report {
    let calm = measure(scene, false);
    let busy = measure(scene, true);
    let victims = [0, 1].map(|victim| Victim { alone: calm.victims[victim].beside, beside: busy.victims[victim].beside });
    Report { victims, latency: [calm.latency[1], busy.latency[1]], ..busy }
}

fn measure(scene: &Scene, hot: bool) -> Report {
    let mut incast = Incast::new(scene, hot);
    let start = incast.network.now() + CONNECTING + scene.warm_up;
    incast.network.run_until(start);
    let before = incast.counts();
    incast.network.run_until(start + scene.span);
    let after = incast.counts();
    incast.report(scene, &before, &after)
}

impl Incast {
    fn new(scene: &Scene, hot: bool) -> Self {
        let mut nodes: Vec<_> = (0..HOSTS).map(|host| host_config(scene, host)).collect();
        let switches = if scene.two_stages { 2 } else { 1 };
        nodes.extend((0..switches).map(|_| NodeConfig { switch: switch_config(scene.buffer), host: None }));
        let mut network = Network::new(&nodes, &links(scene), 1);
        let begins = network.now() + CONNECTING;
        let mut start = |from: usize, to: usize, load: Load| {
            let priority = if load == PINGS { HIGH } else { LOW };
            network.start(from, to, load, priority, begins)
        };
        let victims = [start(0, RECEIVERS[0], WRITES), start(BYSTANDER, RECEIVERS[1], WRITES)];
        let pings = start(1, HOT, PINGS);
        let hot = if hot { (0..SENDERS).map(|sender| start(sender, HOT, WRITES)).collect() } else { Vec::new() };
        Self { network, hot, victims, pings, switches }
    }

    fn switches(&self) -> std::ops::Range<usize> {
        HOSTS..HOSTS + self.switches
    }

    /// The switch behind which the hot receiver is.
    fn last_switch(&self) -> usize {
        HOSTS + self.switches - 1
    }

    fn counts(&self) -> Counts {
        let network = &self.network;
        let bytes = |flow: &(usize, usize)| network.flow(*flow).bytes;
        let ports = self.switches().flat_map(|node| counters_of(network, node));
        let pauses = (0..HOSTS + self.switches).flat_map(|node| counters_of(network, node)).map(|port| port.flow.sent);
        let stops = (0..HOSTS).filter_map(|host| network.switch(host).stop()).map(|stop| stop.counters());
        let hot_port = network.port_towards(self.last_switch(), HOT);
        let sent = network.switch(self.last_switch()).port_counters(hot_port).sent;
        Counts {
            lost: ports.map(|port| port.sent_drops.of(DropReason::QueueFull)).sum(),
            hot: self.hot.iter().map(bytes).sum(),
            victims: [bytes(&self.victims[0]), bytes(&self.victims[1])],
            pings: network.flow(self.pings).times.len(),
            link: sent.bytes + sent.frames * FRAME_OVERHEAD,
            control_frames: stops.map(|stop| stop.stops_sent + stop.refreshes_sent + stop.cancels_sent).chain(pauses).sum(),
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn report(&self, scene: &Scene, before: &Counts, after: &Counts) -> Report {
        let seconds = scene.span.as_nanos() as f64 / 1e9;
        let rate = |before: u64, after: u64| (after - before) as f64 * 8.0 / seconds;
        let beside = [0, 1].map(|victim| rate(before.victims[victim], after.victims[victim]));
        let pings = self.network.flow(self.pings);
        Report {
            lost: after.lost,
            lost_later: after.lost - before.lost,
            hot: rate(before.hot, after.hot),
            utilisation: rate(before.link, after.link) / scene.rate.bits_per_second() as f64 * 100.0,
            victims: beside.map(|beside| Victim { alone: beside, beside }),
            control_frames: after.control_frames - before.control_frames,
            latency: [Duration::ZERO, percentile(pings, before.pings, 99)],
            retransmitted: (0..HOSTS).map(|host| self.network.endpoint(host).counters().retransmitted()).sum(),
        }
    }
}

fn counters_of(network: &Network, node: usize) -> impl Iterator<Item = PortCounters> + '_ {
    let switch = network.switch(node);
    (0..switch.ports()).map(move |port| switch.port_counters(crate::node::port_id(port)))
}

/// The time that so many of 100 ping-pongs stay below, without the first `skip`.
fn percentile(flow: &Flow, skip: usize, part: usize) -> Duration {
    let mut times: Vec<_> = flow.times.iter().skip(skip).map(|(_, time)| *time).collect();
    times.sort_unstable();
    times.get((times.len() * part / 100).min(times.len().saturating_sub(1))).copied().unwrap_or(Duration::MAX)
}

fn links(scene: &Scene) -> Vec<Link> {
    let left = HOSTS;
    let right = if scene.two_stages { HOSTS + 1 } else { HOSTS };
    let is_left = |host: usize| host < SENDERS / 2 || host == BYSTANDER || host == RECEIVERS[0];
    let flow_control = if scene.setting == Setting::Pause { FlowControl::Pause } else { FlowControl::None };
    let link = |a, b, rate| Link { ends: [a, b], rate, delay: scene.delay, flow_control };
    let mut links: Vec<_> = (0..HOSTS).map(|host| link(host, if is_left(host) { left } else { right }, scene.rate)).collect();
    if scene.two_stages {
        let rate = BitRate::new(scene.rate.bits_per_second() * 10).unwrap_or(scene.rate);
        links.push(link(left, right, rate));
    }
    links
}

fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, u8::try_from(host + 1).unwrap_or(u8::MAX)])
}

fn switch_config(buffer: u64) -> SwitchConfig {
    let flow = FlowConfig { xoff: buffer / 2, xon: buffer / 4, ..FlowConfig::default() };
    SwitchConfig { frames: FRAMES, voq_limit_bytes: buffer, strict: 1, control: Some(EtherType::STOP), flow, ..SwitchConfig::default() }
}

fn host_config(scene: &Scene, host: usize) -> NodeConfig {
    let endpoint = EndpointConfig { bdp_cap: BdpCap::Packets(WINDOW), ..EndpointConfig::new(mac(host)) };
    NodeConfig { switch: switch_config(HOST_QUEUE), host: Some(HostConfig { endpoint, stop: stop_config(scene, host) }) }
}

/// Bytes that the own queue of a host holds.
const HOST_QUEUE: u64 = 16 << 10;

fn stop_config(scene: &Scene, host: usize) -> Option<StopConfig> {
    let rate = match scene.setting {
        Setting::Nothing | Setting::Pause => return None,
        Setting::Stop => 0,
        Setting::Rate => 2,
    };
    let detection = &scene.detection;
    let criterion = |percent: u64, stages: u32| {
        let threshold = scene.rate.bytes_in(detection.period) * percent / 100;
        Criterion { threshold, period: detection.period, stages }
    };
    let detector = Detector { detect: criterion(detection.full, detection.detect), resolve: criterion(detection.empty, detection.resolve) };
    let tick = detection.timer.div(100);
    let usual = StopConfig::new(mac(host), scene.rate);
    let request = |rate| Request { priority: 14, timer: 100, rate };
    Some(StopConfig {
        priority: Some(7),
        tick,
        table_size: 64,
        ask: AskConfig { request: request(rate), requests: vec![(mac(0), request(rate / 2))], preset_timer: 100, ..usual.ask },
        obey: Some(ObeyConfig {
            presets: Presets { timer: 100, priority: 14 },
            resume_jitter: detection.jitter,
            longest: Duration::from_secs(10),
            budget_permille: 950,
            forgive_after: Duration::from_millis(100),
            ..ObeyConfig::new()
        }),
        watch: Some(WatchConfig::of_volume(detector, Counting::Wire)),
        ..usual
    })
}
