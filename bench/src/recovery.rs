//! Two endpoints and the link between them in virtual time: how much gets through, by recovery mode and fault.

use weft_proto::transport::{
    Access, AppId, BdpCap, CqId, Data, Endpoint, EndpointConfig, Event, MemId, QpCounters, QpInit, Recovery, SendOp, SendWork, SgList, Sge,
    Status,
};
use weft_proto::wire::MacAddr;
use weft_proto::{BitRate, Duration, Instant, Rng};
use weft_sim::node::Void;

const APP: AppId = AppId(1);
const MESSAGE: u32 = 1 << 20;
/// Bytes that a frame takes on the wire beside what is in it: preamble, FCS and gap.
const FRAMING: u64 = 24;

/// What disturbs the link, both ways.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Frames lost, in a million.
    pub loss_ppm: u64,
    /// Every frame is late by up to so many frame times, evenly: as many later ones may overtake it.
    pub reorder: u64,
}

/// The link and the work.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Rate of the link.
    pub rate: BitRate,
    /// Delay one way.
    pub delay: Duration,
    /// Bytes that the switch's queue holds.
    pub queue: u64,
    /// Messages of 1 MiB to write.
    pub messages: u64,
    /// Seed of the losses.
    pub seed: u64,
}

/// What became of it.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// From the first post to the last completion.
    pub time: Duration,
    /// Bytes of messages.
    pub bytes: u64,
    /// The sender's counters.
    pub sender: QpCounters,
    /// The receiver's counters.
    pub receiver: QpCounters,
}

/// One direction: a transmitter and the switch's queue, served at the link's rate, then the cable.
#[derive(Debug)]
struct Wire {
    free_at: Instant,
    frames: Vec<(Instant, Vec<u8>)>,
    rng: Rng,
}

impl Wire {
    /// True if the transmitter takes another frame: it holds the queue's bytes at most.
    fn has_room(&self, now: Instant, setup: &Setup) -> bool {
        self.free_at.since(now) < setup.rate.time_for(setup.queue)
    }

    fn push(&mut self, now: Instant, frame: &[u8], setup: &Setup, faults: Faults) {
        let time = setup.rate.time_for(frame.len() as u64 + FRAMING);
        self.free_at = self.free_at.max(now) + time;
        // Drawn for every frame, so that equal seeds lose equal frames.
        let (lost, late) = (self.rng.below(1_000_000) < faults.loss_ppm, self.rng.below(faults.reorder + 1));
        if !lost {
            self.frames.push((self.free_at + setup.delay + setup.rate.time_for(1524) * late, frame.to_vec()));
        }
    }

    fn next(&self) -> Option<Instant> {
        self.frames.iter().map(|(at, _)| *at).min()
    }

    fn pop_due(&mut self, now: Instant) -> Option<Vec<u8>> {
        let next = self.next().filter(|&at| at <= now)?;
        let index = self.frames.iter().position(|(at, _)| *at == next)?;
        Some(self.frames.remove(index).1)
    }
}

struct World {
    now: Instant,
    hosts: [Endpoint; 2],
    wires: [Wire; 2],
    setup: Setup,
    faults: Faults,
    buffer: Vec<u8>,
}

fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host + 1])
}

fn config(host: u8, recovery: Recovery, rate: BitRate) -> EndpointConfig {
    let usual = EndpointConfig { recovery, bdp_cap: BdpCap::Auto { rate }, ..EndpointConfig::new(mac(host)) };
    match recovery {
        // The paper's fixed time-outs.
        Recovery::IrnStrict => EndpointConfig { rto_low: Duration::from_micros(100), rto_high: Duration::from_micros(320), ..usual },
        _ => usual,
    }
}

impl World {
    fn new(recovery: Recovery, setup: Setup) -> Self {
        let hosts = [0, 1].map(|host| Endpoint::new(config(host, recovery, setup.rate), Rng::from_seed(u64::from(host))));
        let wires = [0, 1].map(|wire| Wire { free_at: Instant::ZERO, frames: Vec::new(), rng: Rng::from_seed(setup.seed + wire) });
        Self { now: Instant::from_nanos(1), hosts, wires, setup, faults: Faults { loss_ppm: 0, reorder: 0 }, buffer: vec![0; 2048] }
    }

    /// Everything that happens at this instant.
    fn settle(&mut self) {
        for host in 0..2 {
            while let Some(frame) = self.wires[1 - host].pop_due(self.now) {
                self.hosts[host].handle_frame(self.now, &frame, &mut Void);
                self.transmit(host);
            }
            self.hosts[host].handle_timeout(self.now);
            self.transmit(host);
        }
    }

    /// Time moves on to whatever comes next.
    fn advance(&mut self) {
        let rooms = self.wires.iter().map(|wire| wire.free_at).filter(|&at| at > self.now);
        let arrivals = self.wires.iter().filter_map(Wire::next);
        let timers = self.hosts.iter().filter_map(Endpoint::poll_timeout);
        let next = rooms.chain(arrivals).chain(timers).min().expect("keepalives never end");
        self.now = next.max(self.now + Duration::from_nanos(1));
    }

    fn transmit(&mut self, host: usize) {
        while self.wires[host].has_room(self.now, &self.setup) {
            let Some(sent) = self.hosts[host].poll_transmit(self.now, &mut self.buffer, &Void) else { break };
            self.wires[host].push(self.now, &self.buffer[..sent.len], &self.setup, self.faults);
        }
    }

    /// Steps until an event comes.
    fn event(&mut self, host: usize) -> Event {
        loop {
            if let Some((_, event)) = self.hosts[host].poll_event() {
                return event;
            }
            self.settle();
            self.advance();
        }
    }
}

/// Runs the work under a recovery mode.
///
/// # Panics
/// If a message does not get through: a bug.
pub fn run(recovery: Recovery, setup: Setup, faults: Faults) -> Outcome {
    let mut world = World::new(recovery, setup);
    let access = Access { local_write: true, remote_write: true, ..Access::default() };
    let keys = [0, 1].map(|host: usize| world.hosts[host].register(APP, MemId(0), 0, u64::from(MESSAGE), access).expect("room"));
    let qps = [0, 1].map(|host: usize| world.hosts[host].create_qp(APP, QpInit::new(CqId(0), 64)).expect("room"));
    world.hosts[1].listen(APP, 1).expect("a free service");
    world.hosts[0].connect(world.now, APP, qps[0], mac(1), 1, &[]).expect("a fresh queue pair");
    let Event::ConnectRequest { request, .. } = world.event(1) else { panic!("no request") };
    world.hosts[1].accept(world.now, APP, request, qps[1], &[]).expect("a fresh queue pair");
    assert!(matches!(world.event(0), Event::Established { .. }));
    world.faults = faults;
    let local = Data::List(SgList::new(&[Sge { addr: 0, len: MESSAGE, lkey: keys[0].lkey }]).expect("one entry"));
    let (start, mut posted, mut done) = (world.now, 0, 0);
    while done < setup.messages {
        while posted < setup.messages && posted < done + 8 {
            let work = SendWork::new(posted, SendOp::Write { remote_addr: 0, rkey: keys[1].rkey }, local);
            world.hosts[0].post_send(world.now, APP, qps[0], work).expect("room");
            posted += 1;
        }
        world.settle();
        while let Some((_, _, completion)) = world.hosts[0].poll_completion() {
            assert_eq!((completion.wr_id, completion.status), (done, Status::Success), "{recovery:?} {faults:?}");
            done += 1;
        }
        if done < setup.messages {
            world.advance();
        }
    }
    let [sender, receiver] = [0, 1].map(|host: usize| world.hosts[host].counters());
    Outcome { time: world.now.since(start), bytes: setup.messages * u64::from(MESSAGE), sender, receiver }
}

impl Outcome {
    /// Gbit/s of messages.
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    pub fn goodput(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.time.as_nanos() as f64
    }

    /// Packets sent again.
    pub const fn again(&self) -> u64 {
        self.sender.retransmitted()
    }
}
