//! The validated configuration: typed, complete, free of contradictions.
//!
//! An `Option` here is a choice ("none", "automatic"), never a value still to be defaulted.

mod stop;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use weft_proto::switch::{FlowConfig, FlowControl};
use weft_proto::transport::congestion::Algorithm;
use weft_proto::transport::{Paths, Recovery};
use weft_proto::wire::{EtherType, MacAddr};
use weft_proto::{BitRate, Duration};

use crate::defaults;
use crate::units::Probability;

pub use stop::{Detect, Stop, Threshold, Volume, VolumeCriterion};

/// What a node does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The node's name, for people and metrics.
    pub node: String,
    /// Administration.
    pub control: Control,
    /// Local applications.
    pub applications: Applications,
    /// Where Prometheus may scrape; `None` = nowhere.
    pub metrics: Option<SocketAddr>,
    /// Network ports, at least one, in the order of the file.
    pub ports: Vec<Port>,
    /// The software switch.
    pub switch: Switch,
    /// The transport endpoint.
    pub transport: Transport,
    /// Receiver-driven stop control; `None` = off altogether.
    pub stop: Option<Stop>,
    /// Names of other hosts.
    pub hosts: BTreeMap<String, MacAddr>,
    /// The packet thread.
    pub worker: Worker,
    /// How much to log.
    pub log: LogLevel,
}

/// The administration socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Absolute path.
    pub socket: PathBuf,
    /// File mode bits.
    pub mode: u32,
}

/// The socket that applications attach to, and what each may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applications {
    /// Absolute path.
    pub socket: PathBuf,
    /// File mode bits.
    pub mode: u32,
    /// Attached at a time.
    pub max_applications: u32,
    /// Queue pairs of each.
    pub max_qps_per_application: u32,
    /// Shared receive queues of each.
    pub max_srqs_per_application: u32,
    /// Regions of each.
    pub max_regions_per_application: u32,
    /// Bytes of registered memory of each.
    pub max_memory_per_application: u64,
}

/// What a port takes from its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Only our own EtherTypes; the kernel keeps the rest.
    Host,
    /// Every frame.
    Switch,
}

/// How frames get in and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The daemon chooses.
    Auto,
    /// AF_PACKET through pnet: portable.
    Pnet,
    /// AF_PACKET in batches.
    Packet,
}

/// A network port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Unique name.
    pub name: String,
    /// Linux interface, unique.
    pub interface: String,
    /// What it takes.
    pub role: Role,
    /// How it gets it.
    pub backend: Backend,
    /// Egress rate; `None` = as fast as the interface takes it.
    pub rate: Option<BitRate>,
    /// Largest Ethernet payload in bytes; `None` = as the interface says.
    pub mtu: Option<u32>,
    /// VLANs whose frames it carries, 0 = frames without one; `None` = all.
    pub vlans: Option<Vec<u16>>,
    /// Whether the two ends of its link may stop each other.
    pub flow_control: FlowControl,
    /// Faults on purpose.
    pub impair: PortImpairment,
}

/// Faults on purpose, in both directions of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortImpairment {
    /// Of frames received.
    pub ingress: Impairment,
    /// Of frames sent.
    pub egress: Impairment,
    /// The same seed gives the same draws. By default the port's index plus 1, so that ports differ.
    pub seed: u64,
}

/// Faults of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairment {
    /// Frames lost.
    pub loss: Probability,
    /// Frames that arrive twice.
    pub duplicate: Probability,
    /// Frames with a flipped bit.
    pub corrupt: Probability,
    /// Frames held back by `reorder_delay`.
    pub reorder: Probability,
    /// How long a reordered frame is held back.
    pub reorder_delay: Duration,
    /// Delay of every frame.
    pub delay: Duration,
    /// Random additional delay, from zero to this.
    pub jitter: Duration,
}

impl Impairment {
    /// True if frames pass untouched.
    pub fn is_none(&self) -> bool {
        *self == Self { reorder_delay: self.reorder_delay, ..Self::default() }
    }
}

/// The software switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Learned addresses.
    pub mac_table_size: u32,
    /// A silent address is forgotten after this.
    pub mac_ageing: Duration,
    /// Bytes per virtual output queue.
    pub voq_limit: u64,
    /// Share of each class in the deficit round robin; as many entries as classes, 1 to 8.
    pub weights: Vec<u32>,
    /// Bytes that a turn gives to weight 1.
    pub quantum: u32,
    /// So many of the highest classes are served before all others.
    pub strict_classes: u8,
    /// When transport frames are marked; `None` = never.
    pub marking: Option<Marking>,
    /// When ports with flow control ask the other end of their link to stop, and how long they obey it.
    pub flow_control: FlowConfig,
}

/// When the switch marks transport frames as having met a long queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    /// Bytes waiting for an output up to which nothing is marked.
    pub kmin: u64,
    /// Bytes from which everything is marked.
    pub kmax: u64,
    /// Share marked at `kmax`.
    pub pmax: Probability,
}

impl Switch {
    /// Number of traffic classes.
    pub const fn classes(&self) -> usize {
        self.weights.len()
    }
}

/// The bound on packets in flight (BDP-FC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BdpCap {
    /// From the link's rate and the measured round trip.
    Auto,
    /// None but the bitmap.
    Off,
    /// So many packets.
    Packets(u32),
}

impl BdpCap {
    /// The bound as the transport takes it, on a link of `rate`.
    pub const fn on_link(self, rate: BitRate) -> weft_proto::transport::BdpCap {
        match self {
            Self::Auto => weft_proto::transport::BdpCap::Auto { rate },
            Self::Off => weft_proto::transport::BdpCap::Off,
            Self::Packets(packets) => weft_proto::transport::BdpCap::Packets(packets),
        }
    }
}

/// Congestion control: the algorithm, and the parameters that are worth turning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// Which one.
    pub algorithm: Algorithm,
    /// Packets with which a window starts.
    pub first_window: u32,
    /// Swift: queueing delay that counts as congestion.
    pub queueing_delay: Duration,
    /// Swift: most that this grows for small windows.
    pub flow_scaling: Duration,
    /// TIMELY: queueing delay up to which the rate grows.
    pub timely_low: Duration,
    /// TIMELY: queueing delay from which the rate falls.
    pub timely_high: Duration,
    /// DCQCN: shortest time between notifications.
    pub notification_interval: Duration,
    /// Lowest rate of TIMELY and DCQCN.
    pub min_rate: BitRate,
}

/// The transport endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// EtherType of its frames.
    pub ethertype: EtherType,
    /// Offered recovery mode.
    pub recovery: Recovery,
    /// Most packets in flight per queue pair.
    pub bdp_cap: BdpCap,
    /// Congestion control.
    pub congestion: Congestion,
    /// Lower bound of the short retransmission time-out.
    pub rto_low: Duration,
    /// Lower bound of the long retransmission time-out.
    pub rto_high: Duration,
    /// Time-outs in a row before a queue pair fails.
    pub retry_count: u8,
    /// Receiver-not-ready retries; 7 = endless.
    pub rnr_retry: u8,
    /// How long a sender waits after our receiver-not-ready answer.
    pub rnr_delay: Duration,
    /// Latest acknowledgement after the first unacknowledged packet.
    pub ack_delay: Duration,
    /// Acknowledge at the latest every so many packets.
    pub ack_every: u32,
    /// Ask an idle peer for a sign of life this often.
    pub keepalive: Duration,
    /// Give up a peer that something is wanted from after this time of silence.
    pub peer_timeout: Duration,
    /// Wait for an answer to a connection message.
    pub connect_timeout: Duration,
    /// Attempts for a connection message.
    pub connect_retries: u8,
    /// READs and atomics outstanding per queue pair, and answered at a time.
    pub max_reads: u8,
    /// Most queue pairs of the node.
    pub max_qps: u32,
    /// Most shared receive queues of the node.
    pub max_srqs: u32,
    /// Most regions of the node.
    pub max_regions: u32,
    /// 802.1p priority of frames sent; `None` = untagged.
    pub priority: Option<u8>,
    /// VLANs that a queue pair's packets are spread over.
    pub paths: Paths,
}

/// The packet thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Look for work this long before sleeping.
    pub spin: Duration,
    /// Frames per batch.
    pub batch: u32,
    /// Frame buffers in the pool.
    pub frames: u32,
    /// Processor to stay on; `None` = the kernel's choice.
    pub cpu: Option<u32>,
}

/// How much to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// Failures only.
    Error,
    /// And what is odd.
    Warn,
    /// And what changes.
    Info,
    /// And decisions.
    Debug,
    /// And everything.
    Trace,
}

/// The words of an enumeration, as the file spells them.
pub trait Words: Sized + Copy + PartialEq + 'static {
    /// Each word with its meaning.
    const WORDS: &'static [(&'static str, Self)];

    /// The word for a value.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("?", |(word, _)| word)
    }

    /// The value of a word.
    fn from_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|&(_, value)| value)
    }
}

impl Words for Role {
    const WORDS: &'static [(&'static str, Self)] = &[("host", Self::Host), ("switch", Self::Switch)];
}

impl Words for Backend {
    const WORDS: &'static [(&'static str, Self)] = &[("auto", Self::Auto), ("pnet", Self::Pnet), ("packet", Self::Packet)];
}

impl Words for FlowControl {
    const WORDS: &'static [(&'static str, Self)] = &[("none", Self::None), ("pause", Self::Pause), ("pfc", Self::Pfc)];
}

impl Words for Recovery {
    const WORDS: &'static [(&'static str, Self)] =
        &[("irn", Self::Irn), ("irn-strict", Self::IrnStrict), ("selective-no-sack", Self::SelectiveNoSack), ("go-back-n", Self::GoBackN)];
}

impl Words for Algorithm {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("timely", Self::Timely),
        ("dcqcn", Self::Dcqcn),
        ("aimd", Self::Aimd),
        ("dctcp", Self::Dctcp),
        ("swift", Self::Swift),
    ];
}

impl Words for LogLevel {
    const WORDS: &'static [(&'static str, Self)] =
        &[("error", Self::Error), ("warn", Self::Warn), ("info", Self::Info), ("debug", Self::Debug), ("trace", Self::Trace)];
}

impl Config {
    /// The host port that gives the endpoint its address and MTU: the first one, if there is any.
    pub fn host_port(&self) -> Option<&Port> {
        self.ports.iter().find(|port| port.role == Role::Host)
    }

    /// The rate that the transport reckons with: that of the host port, else [`defaults::LINK_RATE`].
    pub fn link_rate(&self) -> BitRate {
        self.host_port().and_then(|port| port.rate).unwrap_or(defaults::LINK_RATE)
    }
}
