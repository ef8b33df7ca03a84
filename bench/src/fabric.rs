//! Hosts around one switch in virtual time, to see what congestion control does: real endpoints, the real switch,
//! cables with a delay, and a clock that jumps to the next instant at which something happens.
//!
//! All senders write to the last host, so that its port is where they meet.

use std::collections::VecDeque;

use weft_proto::switch::{Impairment, Marking, PortConfig, PortRole, Switch, SwitchConfig};
use weft_proto::transport::congestion::{Algorithm, Settings};
use weft_proto::transport::{
    Access, AppId, BdpCap, CqId, Data, Endpoint, EndpointConfig, Event, MemId, QpCounters, QpInit, QpNum, SendOp, SendWork, SgList, Sge,
};
use weft_proto::wire::{Body, EtherType, MacAddr, Packet};
use weft_proto::{BitRate, DropReason, Duration, FrameRef, Instant, Pool, PortId, Rng, time};
use weft_sim::node::Void;

const APP: AppId = AppId(1);
const MTU: usize = 1500;
/// A transmitter takes frames for this long ahead, like a network card's queue.
const AHEAD: Duration = Duration::from_micros(20);
/// How often the queue is looked at.
const SAMPLE: Duration = Duration::from_micros(10);
/// Time for connections to come about before anything is measured.
const WARM_UP: Duration = Duration::from_millis(2);

/// A scene.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Hosts that send.
    pub senders: usize,
    /// Congestion control of all hosts.
    pub congestion: Settings,
    /// Bytes of each message.
    pub message: u32,
    /// Messages that each sender keeps outstanding.
    pub depth: u32,
    /// Speed of every cable and port.
    pub rate: BitRate,
    /// One way from a host to the switch or back.
    pub delay: Duration,
    /// Frames that the switch has room for.
    pub frames: usize,
    /// When the switch marks.
    pub marking: Option<Marking>,
    /// Sender `i` begins this much later than sender `i - 1`.
    pub stagger: Duration,
    /// Every so often, the receiver does nothing for so long, as a thread that has lost its processor.
    pub stall: Option<(Duration, Duration)>,
    /// Frames lost on the receiver's cable, parts per million.
    pub loss_ppm: u32,
    /// Congestion notifications get lost.
    pub lose_notifications: bool,
    /// How long to measure.
    pub span: Duration,
}

impl Setup {
    /// Senders with the daemon's defaults on 10 Gbit/s, with an idle round trip of 50 us as between two daemons.
    pub fn new(algorithm: Algorithm, senders: usize) -> Self {
        let rate = BitRate::megabits(10_000);
        Self {
            senders,
            congestion: Settings::new(algorithm, rate),
            message: 128 << 10,
            depth: 4,
            rate,
            delay: Duration::from_micros(12),
            frames: 4096,
            marking: Some(Marking::threshold(EtherType::TRANSPORT, 128 << 10)),
            stagger: Duration::ZERO,
            stall: None,
            loss_ppm: 0,
            lose_notifications: false,
            span: Duration::from_millis(100),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Bits of completed messages per second.
    pub goodput: f64,
    /// Jain's index over the bytes that senders completed in the second half.
    pub fairness: f64,
    /// Completion times of messages, sorted, in microseconds.
    pub completions: Vec<u64>,
    /// Frames dropped at the receiver's port.
    pub drops: u64,
    /// Frames marked there.
    pub marked: u64,
    /// The senders' counters, summed.
    pub counters: QpCounters,
    /// Bytes waiting for the receiver's port, mean and most.
    pub queue: (f64, u64),
    /// Queue pairs that failed.
    pub failures: u64,
}

impl Outcome {
    /// The completion time that `part` of 1000 messages stay below, in microseconds.
    pub fn completion(&self, part: usize) -> u64 {
        self.completions.get((self.completions.len() * part / 1000).min(self.completions.len().saturating_sub(1))).copied().unwrap_or(0)
    }

    /// Packets sent again.
    pub const fn retransmissions(&self) -> u64 {
        self.counters.retransmitted()
    }
}

/// One direction of a cable.
#[derive(Debug, Default)]
struct Cable {
    free_at: Instant,
    frames: VecDeque<(Instant, FrameRef)>,
}

impl Cable {
    fn ready_at(&self) -> Instant {
        Instant::from_nanos(self.free_at.as_nanos().saturating_sub(AHEAD.as_nanos()))
    }

    fn pop_due(&mut self, now: Instant) -> Option<FrameRef> {
        self.frames.pop_front_if(|(at, _)| *at <= now).map(|(_, frame)| frame)
    }

    fn next(&self) -> Option<Instant> {
        self.frames.front().map(|(at, _)| *at)
    }
}

#[derive(Debug)]
struct Host {
    endpoint: Endpoint,
    up: Cable,
    down: Cable,
}

/// A sender's side of a connection.
#[derive(Debug)]
struct Flow {
    qp: QpNum,
    lkey: u32,
    begins: Instant,
    posted: VecDeque<Instant>,
    completed: u64,
    /// Of these, in the second half.
    late: u64,
}

/// The scene at work.
#[derive(Debug)]
pub struct Fabric {
    setup: Setup,
    now: Instant,
    pool: Pool,
    switch: Switch,
    hosts: Vec<Host>,
    flows: Vec<Flow>,
    rkey: u32,
    half_time: Instant,
    next_sample: Instant,
    samples: (u64, u64, u64),
    outcome: Outcome,
}

impl Fabric {
    /// Connected hosts that have sent nothing.
    ///
    /// # Panics
    /// If a connection does not come about: a bug.
    pub fn new(setup: Setup) -> Self {
        let count = setup.senders + 1;
        let config = SwitchConfig { frames: setup.frames, voq_limit_bytes: 1 << 20, marking: setup.marking, ..SwitchConfig::default() };
        let port = PortConfig { rate: Some(setup.rate), ..PortConfig::new(PortRole::Switch) };
        let mut ports = vec![port; count];
        ports[setup.senders].impair_egress = Impairment { loss_ppm: setup.loss_ppm, ..Impairment::NONE };
        let mut switch = Switch::new(&config, &ports, Rng::from_seed(1));
        (0..count).for_each(|host| switch.set_static(mac(host), port_of(host)).expect("room for an address"));
        let hosts = (0..count).map(|host| new_host(&setup, host)).collect();
        let mut fabric = Self {
            pool: Pool::new(setup.frames + count * 256, MTU + 64, 32),
            now: Instant::from_nanos(1),
            switch,
            hosts,
            flows: Vec::new(),
            rkey: 0,
            half_time: Instant::ZERO,
            next_sample: Instant::from_nanos(u64::MAX),
            samples: (0, 0, 0),
            outcome: Outcome::default(),
            setup,
        };
        fabric.connect();
        fabric
    }

    fn connect(&mut self) {
        let full = Access { local_write: true, remote_write: true, ..Access::default() };
        let receiver = self.setup.senders;
        let length = u64::from(self.setup.message);
        self.rkey = self.hosts[receiver].endpoint.register(APP, MemId(0), 0, length, full).expect("room for a region").rkey;
        self.hosts[receiver].endpoint.listen(APP, 1).expect("a free service");
        for host in 0..receiver {
            let endpoint = &mut self.hosts[host].endpoint;
            let keys = endpoint.register(APP, MemId(0), 0, length, full).expect("room for a region");
            let qp = endpoint.create_qp(APP, QpInit::new(CqId(0), self.setup.depth)).expect("room for a queue pair");
            endpoint.connect(self.now, APP, qp, mac(receiver), 1, &[]).expect("a fresh queue pair");
            self.flows.push(Flow { qp, lkey: keys.lkey, begins: Instant::ZERO, posted: VecDeque::new(), completed: 0, late: 0 });
        }
        self.run_until(self.now + WARM_UP);
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let stands = self.hosts[index].endpoint.view_of(flow.qp).is_some_and(|view| view.peer_qp.is_some());
            assert!(stands, "connection {index} does not stand");
            flow.begins = self.now + self.setup.stagger * index as u64;
        }
    }

    /// Lets everybody send for the time of the scene and tells what came of it.
    pub fn run(mut self) -> Outcome {
        self.next_sample = self.now;
        self.half_time = self.now + self.setup.span.div(2);
        self.run_until(self.now + self.setup.span);
        self.finish()
    }

    fn run_until(&mut self, end: Instant) {
        while self.now < end {
            self.post();
            self.transmit();
            self.forward();
            self.deliver();
            self.collect();
            self.sample();
            self.now = self.next_instant().map_or(end, |at| at.max(self.now + Duration::from_nanos(1))).min(end);
        }
    }

    fn post(&mut self) {
        for (host, flow) in self.hosts.iter_mut().zip(&mut self.flows) {
            while flow.begins != Instant::ZERO && flow.begins <= self.now && flow.posted.len() < self.setup.depth as usize {
                let local = SgList::new(&[Sge { addr: 0, len: self.setup.message, lkey: flow.lkey }]).expect("one entry");
                let work = SendWork::new(0, SendOp::Write { remote_addr: 0, rkey: self.rkey }, Data::List(local));
                if host.endpoint.post_send(self.now, APP, flow.qp, work).is_err() {
                    break;
                }
                flow.posted.push_back(self.now);
            }
        }
    }

    /// Endpoints send as much as their cables take.
    fn transmit(&mut self) {
        for host in &mut self.hosts {
            while host.up.ready_at() <= self.now && host.endpoint.wants_transmit() {
                let Some(frame) = self.pool.alloc() else { break };
                let Some(sent) = host.endpoint.poll_transmit(self.now, self.pool.room_mut(&frame), &Void) else {
                    self.pool.free(frame);
                    break;
                };
                self.pool.set_len(&frame, sent.len);
                if self.setup.lose_notifications && is_notification(self.pool.bytes(&frame)) {
                    self.pool.free(frame);
                    continue;
                }
                host.up.free_at = host.up.free_at.max(self.now) + self.setup.rate.time_for(sent.len as u64 + 24);
                host.up.frames.push_back((host.up.free_at + self.setup.delay, frame));
            }
        }
    }

    fn forward(&mut self) {
        for index in 0..self.hosts.len() {
            while let Some(frame) = self.hosts[index].up.pop_due(self.now) {
                self.switch.ingest(self.now, &mut self.pool, port_of(index), frame);
            }
        }
        let mut out = Vec::new();
        for (index, host) in self.hosts.iter_mut().enumerate() {
            self.switch.egress(self.now, &mut self.pool, port_of(index), 64, &mut out);
            host.down.frames.extend(out.drain(..).map(|frame| (self.now + self.setup.delay, frame)));
        }
    }

    /// True while the receiver has lost its processor, and when it gets it back.
    fn stalled(&self, host: usize) -> Option<Instant> {
        let (period, length) = self.setup.stall.filter(|_| host == self.setup.senders)?;
        let into = self.now.as_nanos() % period.as_nanos();
        (into < length.as_nanos()).then(|| Instant::from_nanos(self.now.as_nanos() - into + length.as_nanos()))
    }

    fn deliver(&mut self) {
        for index in 0..self.hosts.len() {
            if self.stalled(index).is_some() {
                continue;
            }
            let host = &mut self.hosts[index];
            while let Some(frame) = host.down.pop_due(self.now) {
                host.endpoint.handle_frame(self.now, self.pool.bytes(&frame), &mut Void);
                self.pool.free(frame);
            }
            host.endpoint.handle_timeout(self.now);
        }
    }

    fn collect(&mut self) {
        for (index, host) in self.hosts.iter_mut().enumerate() {
            while let Some((_, _, completion)) = host.endpoint.poll_completion() {
                let Some(flow) = self.flows.get_mut(index) else { continue };
                let Some(posted) = flow.posted.pop_front() else { continue };
                self.outcome.completions.push(self.now.since(posted).as_micros());
                flow.completed += u64::from(completion.byte_len);
                flow.late += if self.now >= self.half_time { u64::from(completion.byte_len) } else { 0 };
            }
            while let Some((_, event)) = host.endpoint.poll_event() {
                match event {
                    Event::ConnectRequest { request, .. } => {
                        let qp = host.endpoint.create_qp(APP, QpInit::new(CqId(0), 1)).expect("room for a queue pair");
                        host.endpoint.accept(self.now, APP, request, qp, &[]).expect("an open request");
                    }
                    Event::QpFailed { .. } => self.outcome.failures += 1,
                    _ => {}
                }
            }
        }
    }

    fn sample(&mut self) {
        if self.now < self.next_sample {
            return;
        }
        self.next_sample = self.now + SAMPLE;
        let bottleneck = port_of(self.setup.senders);
        let bytes: u64 = (0..self.setup.senders).map(|host| self.switch.queued_from(port_of(host), bottleneck).bytes).sum();
        self.samples = (self.samples.0 + 1, self.samples.1 + bytes, self.samples.2.max(bytes));
    }

    fn next_instant(&self) -> Option<Instant> {
        let mut next = self.switch.poll_timeout(|_| true);
        for (index, host) in self.hosts.iter().enumerate() {
            let takes = time::earliest(host.down.next(), host.endpoint.poll_timeout());
            next = time::earliest(next, takes.map(|at| self.stalled(index).map_or(at, |end| at.max(end))));
            next = time::earliest(next, host.up.next());
            next = time::earliest(next, host.endpoint.wants_transmit().then(|| host.up.ready_at()));
        }
        let begins = self.flows.iter().map(|flow| flow.begins).filter(|&at| at > self.now).min();
        time::earliest(next, begins)
    }

    #[allow(clippy::cast_precision_loss)]
    fn finish(mut self) -> Outcome {
        let bottleneck = self.switch.port_counters(port_of(self.setup.senders));
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.completions.sort_unstable();
        outcome.drops = bottleneck.sent_drops.of(DropReason::QueueFull);
        outcome.marked = bottleneck.marked;
        self.hosts[..self.setup.senders].iter().for_each(|host| outcome.counters.add(&host.endpoint.counters()));
        let completed: u64 = self.flows.iter().map(|flow| flow.completed).sum();
        let shares: Vec<f64> = self.flows.iter().map(|flow| flow.late as f64).collect();
        let sum: f64 = shares.iter().sum();
        outcome.goodput = completed as f64 * 8.0 / (self.setup.span.as_nanos() as f64 / 1e9);
        outcome.fairness = sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>()).max(1.0);
        outcome.queue = (self.samples.1 as f64 / self.samples.0.max(1) as f64, self.samples.2);
        outcome
    }
}

fn new_host(setup: &Setup, host: usize) -> Host {
    // As `bdp_cap: auto` gives: 1 ms at the link's rate.
    let cap = setup.rate.bytes_in(Duration::from_millis(1)) / MTU as u64 + 1;
    let config = EndpointConfig {
        congestion: setup.congestion,
        bdp_cap: u32::try_from(cap).map_or(BdpCap::Off, |cap| BdpCap::Packets(cap.clamp(128, 1024))),
        max_qps: 128,
        ..EndpointConfig::new(mac(host))
    };
    Host { endpoint: Endpoint::new(config, Rng::from_seed(host as u64)), up: Cable::default(), down: Cable::default() }
}

fn is_notification(frame: &[u8]) -> bool {
    Packet::parse(frame).is_ok_and(|packet| packet.body == Body::CongestionNotification)
}

fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, u8::try_from(host).unwrap_or(u8::MAX)])
}

fn port_of(host: usize) -> PortId {
    PortId(u16::try_from(host).unwrap_or(u16::MAX))
}
