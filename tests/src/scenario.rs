//! What one seed draws: every parameter of a world, from the speed of its cables to the misbehaviour of its applications.

use weft_proto::switch::{Impairment, Marking, SwitchConfig};
use weft_proto::transport::congestion::{Algorithm, Settings};
use weft_proto::transport::{BdpCap, EndpointConfig, Recovery};
use weft_proto::wire::{EtherType, MacAddr};
use weft_proto::{BitRate, Duration, Rng};

/// Queues are marked from a few frames on, so that marks are common.
const MARKING: Marking = Marking { ethertype: EtherType::TRANSPORT, kmin: 5_000, kmax: 30_000, pmax_ppm: 500_000 };

/// Everything that is drawn before a world starts. Printed with the seed when a world fails.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of all this and of all that is drawn later.
    pub seed: u64,
    /// Hosts around the switch.
    pub hosts: usize,
    /// Connections that are made while faults last.
    pub flows: usize,
    /// How long faults last.
    pub faults_end: Duration,
    /// How bad the links are, both directions.
    pub impairment: Impairment,
    /// Disturbances from outside: closing, restarting, unplugging.
    pub disturbances: usize,
    /// One in so many requests is faulty on purpose (wrong key, receive too short); 0 = none.
    pub faulty_one_in: u64,
    /// Longest message in bytes.
    pub message_max: u64,
    /// Messages per connection and direction, at most.
    pub messages_max: u64,
    /// Longest time between two actions of an application.
    pub think: Duration,
    /// Speed of the cables.
    pub cable_rate: BitRate,
    /// Delay of the cables, one way.
    pub cable_delay: Duration,
    /// Speed of the switch's ports, if they are slower than the cables.
    pub port_rate: Option<BitRate>,
    /// Bytes per virtual output queue.
    pub voq_limit_bytes: u64,
    /// Classes of the switch.
    pub classes: u8,
    /// The first connection of the first host starts shortly before the sequence numbers wrap.
    pub near_wrap: bool,
    /// Configuration of all endpoints, but for the address and the mode.
    pub endpoint: EndpointConfig,
}

/// One of a few values.
pub fn one_of<T: Copy>(rng: &mut Rng, values: &[T]) -> T {
    values[usize::try_from(rng.below(values.len() as u64)).unwrap_or(0)]
}

/// A span between `low` and `high`, evenly.
pub fn span(rng: &mut Rng, low: Duration, high: Duration) -> Duration {
    low + Duration::from_nanos(rng.below((high - low).as_nanos() + 1))
}

fn rate(mbit: u64) -> BitRate {
    BitRate::new(mbit * 1_000_000).expect("not zero")
}

impl Scenario {
    /// The scenario of a seed, and the generator for all later draws.
    pub fn draw(seed: u64) -> (Self, Rng) {
        let mut rng = Rng::from_seed(seed);
        let gbit = one_of(&mut rng, &[1, 2, 10, 40]);
        let message_max = one_of(&mut rng, &[100, 5_000, 50_000, 200_000]);
        let scenario = Self {
            seed,
            hosts: usize::try_from(2 + rng.below(3)).unwrap_or(2),
            flows: usize::try_from(1 + rng.below(5)).unwrap_or(1),
            faults_end: span(&mut rng, Duration::from_millis(1), Duration::from_millis(12)),
            impairment: draw_impairment(&mut rng),
            disturbances: usize::try_from(rng.below(4)).unwrap_or(0),
            faulty_one_in: one_of(&mut rng, &[0, 0, 0, 40]),
            message_max,
            messages_max: if message_max > 20_000 { 12 } else { 40 },
            think: one_of(&mut rng, &[5, 50, 400]).pipe(Duration::from_micros),
            cable_rate: rate(gbit * 1000),
            cable_delay: span(&mut rng, Duration::from_nanos(200), Duration::from_micros(30)),
            port_rate: one_of(&mut rng, &[None, None, Some(rate(gbit * 500))]),
            voq_limit_bytes: one_of(&mut rng, &[64 << 10, 256 << 10]),
            classes: one_of(&mut rng, &[1, 2, 8]),
            near_wrap: rng.below(4) == 0,
            endpoint: draw_endpoint(&mut rng),
        };
        (scenario, rng)
    }

    /// True if the links are good enough that giving up a peer can only be a mistake. A round trip fails if the frame
    /// or its answer is hit on one of its two links; at 5 % eight such failures in a row have a chance of 4e-11.
    pub const fn forbids_giving_up(&self) -> bool {
        4 * (self.impairment.loss_ppm + self.impairment.corrupt_ppm) <= 50_000
    }

    /// The address of a host.
    pub fn mac(host: usize) -> MacAddr {
        MacAddr([2, 0, 0, 0, 1, u8::try_from(host).unwrap_or(u8::MAX)])
    }

    /// The configuration of the switch.
    pub fn switch_config(&self, frames: usize) -> SwitchConfig {
        SwitchConfig {
            voq_limit_bytes: self.voq_limit_bytes,
            classes: self.classes,
            frames,
            marking: Some(MARKING),
            ..SwitchConfig::default()
        }
    }
}

/// `value.pipe(f)` reads in the order in which things happen.
trait Pipe: Sized {
    fn pipe<T>(self, f: impl FnOnce(Self) -> T) -> T {
        f(self)
    }
}

impl Pipe for u64 {}

fn draw_impairment(rng: &mut Rng) -> Impairment {
    if rng.below(6) == 0 {
        return Impairment::NONE;
    }
    let mut some = |values: &[u32]| one_of(rng, values);
    Impairment {
        loss_ppm: some(&[0, 1_000, 10_000, 50_000]),
        duplicate_ppm: some(&[0, 0, 10_000, 100_000]),
        corrupt_ppm: some(&[0, 0, 2_000]),
        reorder_ppm: some(&[0, 0, 10_000, 300_000]),
        reorder_delay: Duration::from_micros(some(&[5, 50, 300]).into()),
        delay: Duration::from_micros(some(&[0, 5, 60]).into()),
        jitter: Duration::from_micros(some(&[0, 0, 20, 100]).into()),
    }
}

fn draw_congestion(rng: &mut Rng) -> Settings {
    let all = [Algorithm::None, Algorithm::Timely, Algorithm::Dcqcn, Algorithm::Aimd, Algorithm::Dctcp, Algorithm::Swift];
    Settings::new(one_of(rng, &all), rate(10_000))
}

fn draw_endpoint(rng: &mut Rng) -> EndpointConfig {
    let rto_low = Duration::from_micros(one_of(rng, &[100, 400]));
    EndpointConfig {
        mac: MacAddr::ZERO,
        ethertype: EtherType::TRANSPORT,
        priority: one_of(rng, &[None, None, Some(5)]),
        mtu: one_of(rng, &[512, 1500, 1500, 4096]),
        recovery: draw_recovery(rng),
        bdp_cap: draw_cap(rng),
        started: 1,
        rto_low,
        rto_high: rto_low.saturating_mul(3),
        retry_count: 7,
        rnr_retry: one_of(rng, &[7, 7, 3]),
        rnr_delay: Duration::from_micros(one_of(rng, &[10, 640, 2_560])),
        ack_delay: Duration::from_micros(one_of(rng, &[0, 20, 100])),
        ack_every: u32::try_from(one_of(rng, &[1, 4, 16])).unwrap_or(1),
        keepalive: Duration::from_millis(one_of(rng, &[5, 50])),
        connect_timeout: Duration::from_millis(3),
        connect_retries: 12,
        max_qps: 64,
        max_regions: 1024,
        max_reads: one_of(rng, &[1, 2, 16]),
        congestion: draw_congestion(rng),
        ..EndpointConfig::new(MacAddr::ZERO)
    }
}

fn draw_cap(rng: &mut Rng) -> BdpCap {
    let auto = BdpCap::Auto { rate: rate(10_000) };
    one_of(rng, &[BdpCap::Packets(1), BdpCap::Packets(5), BdpCap::Packets(64), BdpCap::Packets(300), BdpCap::Off, auto])
}

/// One of the recovery modes, the default most often.
pub fn draw_recovery(rng: &mut Rng) -> Recovery {
    one_of(rng, &[Recovery::Irn, Recovery::Irn, Recovery::IrnStrict, Recovery::SelectiveNoSack, Recovery::GoBackN])
}

/// A generator whose owner, if it draws 64 bits for itself, then 32 for a queue pair and 16 for a tag, draws a starting
/// PSN less than `window` before the wrap. Searched from `hint` on; callers look at the wire to see whether it worked.
pub fn rng_near_wrap(hint: u64, window: u32) -> Rng {
    (hint..).map(Rng::from_seed).find(|rng| first_psn(rng.clone()) > 0x00ff_ffff - window).unwrap_or_else(|| Rng::from_seed(hint))
}

fn first_psn(mut rng: Rng) -> u32 {
    rng.next_u64();
    rng.next_u32();
    rng.next_u32();
    rng.next_u32() & 0x00ff_ffff
}
