//! The transport: reliable connected queue pairs over lossy Ethernet.
//!
//! | module | owns |
//! | --- | --- |
//! | `endpoint` | all of a host's queue pairs, regions and connections; the face to the driver |
//! | `qp` | one queue pair: its states, its queues, its two halves |
//! | `requester` | work requests to packets |
//! | `responder` | packets to memory and receives |
//! | `state` | the states of a queue pair |
//! | `credits` | what the sender knows of the receiver's receives |
//! | `srq` | receives that queue pairs share |
//! | `ring` | queues that grow, with entries found by position |
//! | `reads` | READs and atomics that we asked for |
//! | `responses` | READs and atomics that we answer |
//! | `inbound` | a packet stream as it comes in |
//! | [`irn`] | what is in flight, what arrived, what is lost, what to acknowledge |
//! | [`congestion`] | how much may be in flight, and how fast |
//! | `connection`, `directory` | the life of a connection, and where to find it among thousands |
//! | [`paths`] | over which VLANs a queue pair's packets go |
//! | [`trace`] | the last events of a queue pair |
//! | `peers` | totals per connected host |
//! | [`region`] | keys and access checks |
//! | [`work`] | requests and completions |

mod bucket;
pub mod congestion;
mod connection;
pub mod counters;
mod credits;
mod directory;
mod endpoint;
mod inbound;
pub mod irn;
mod link;
pub mod paths;
mod peers;
pub mod psn;
mod qp;
mod reads;
pub mod region;
mod requester;
mod responder;
mod responses;
mod ring;
mod srq;
mod state;
pub mod trace;
pub mod work;

pub use counters::{ConnectionCounters, QpCounters};
pub use endpoint::{Endpoint, QpView, Transmit};

pub use paths::Paths;
pub use peers::{MAX_PEERS, PeerTotals};
pub use psn::Psn;
pub use region::{Access, Keys, MemId, Memory, MemoryGone};
pub use state::QpState;
pub use trace::{TraceEvent, TraceRecord};
pub use work::{AtomicOp, Completion, CompletionOp, Data, Inline, RecvWork, SendOp, SendWork, SgList, Sge, Status};

use alloc::vec::Vec;

use crate::time::Duration;
use crate::units::BitRate;
use crate::wire::{EtherType, MacAddr};

/// A queue pair number: 24 bits on the wire; slot in the low 16, generation in the high 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNum(pub u32);

/// The owner of queue pairs and regions: one attached application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppId(pub u32);

/// A completion queue, named by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqId(pub u32);

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SrqId(pub u32);

/// A connection request waiting for the application's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u32);

/// How losses are recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// Selective retransmission, coalesced acknowledgements with a SACK bitmap, adaptive time-outs: the default.
    Irn,
    /// Selective retransmission exactly as the paper has it: one out-of-order arrival is a loss, an acknowledgement per packet, fixed time-outs.
    IrnStrict,
    /// Selective retransmission without a bitmap of what arrived: of the packets in flight, only the one that the
    /// receiver misses first is known to be missing. For comparison.
    SelectiveNoSack,
    /// Out-of-order packets are dropped and everything from the gap on is sent again, as RoCE does.
    GoBackN,
}

/// The bound on packets in flight of a queue pair (the paper's BDP-FC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BdpCap {
    /// None but the bitmap.
    Off,
    /// So many packets.
    Packets(u32),
    /// From the link's rate and the measured round trip; see [`irn::Window::auto`].
    Auto {
        /// Rate of the link.
        rate: BitRate,
    },
}

impl BdpCap {
    /// The window of a connection whose peer keeps track of `limit` packets ahead of a gap, with frames of `frame` bytes.
    pub fn window(self, frame: u32, limit: u32) -> irn::Window {
        match self {
            Self::Off => irn::Window::fixed(limit),
            Self::Packets(packets) => irn::Window::fixed(packets.min(limit)),
            Self::Auto { rate } => irn::Window::auto(rate, frame, limit),
        }
    }
}

/// Limits and timing of the endpoint; validated by `weft-config`.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// Our address on the Ethernet.
    pub mac: MacAddr,
    /// EtherType of transport frames.
    pub ethertype: EtherType,
    /// 802.1p priority of frames sent, or untagged.
    pub priority: Option<u8>,
    /// Largest Ethernet payload (interface MTU) in bytes.
    pub mtu: usize,
    /// Offered recovery mode.
    pub recovery: Recovery,
    /// BDP-FC: most packets in flight per queue pair.
    pub bdp_cap: BdpCap,
    /// When the node started, in milliseconds of a clock that restarts do not turn back (the wall clock): tells a restarted
    /// peer's messages from those of its earlier life.
    pub started: u64,
    /// Lower bound of the short retransmission time-out.
    pub rto_low: Duration,
    /// Lower bound of the long retransmission time-out.
    pub rto_high: Duration,
    /// Time-outs in a row before the queue pair fails.
    pub retry_count: u8,
    /// Receiver-not-ready retries before the queue pair fails; 7 = endless (InfiniBand 9.7.5.2.8).
    pub rnr_retry: u8,
    /// How long a sender waits after a receiver-not-ready answer of ours.
    pub rnr_delay: Duration,
    /// Congestion control.
    pub congestion: congestion::Settings,
    /// Acknowledge at the latest this long after the first unacknowledged packet.
    pub ack_delay: Duration,
    /// Acknowledge at the latest every so many packets.
    pub ack_every: u32,
    /// Ask a peer for a sign of life when an idle connection has been silent for this long, or up to a quarter less:
    /// each connection draws its own, so that they do not all ask at once.
    pub keepalive: Duration,
    /// Wait for an answer to a connection message.
    pub connect_timeout: Duration,
    /// Attempts for a connection message.
    pub connect_retries: u8,
    /// A peer that something is wanted from is given up after this time without a sign of life, even if retries are left;
    /// the retries may give it up earlier. So a request fails at most this long after it was posted or the peer was last
    /// heard, and a dead peer of an idle connection is noticed within `keepalive` + `peer_timeout`. Above `keepalive`.
    pub peer_timeout: Duration,
    /// VLANs that each queue pair spreads its packets over; [`Paths::OFF`] = none.
    pub paths: Paths,
    /// READs and atomics that a queue pair may have outstanding, and those that it answers at a time (InfiniBand's
    /// initiator depth and responder resources), 1 to 255.
    pub max_reads: u8,
    /// Most queue pairs.
    pub max_qps: u32,
    /// Most regions.
    pub max_regions: u32,
    /// Most shared receive queues.
    pub max_srqs: u32,
}

impl EndpointConfig {
    /// The usual limits and timing, for a host with this address.
    pub const fn new(mac: MacAddr) -> Self {
        Self {
            mac,
            ethertype: EtherType::TRANSPORT,
            priority: None,
            mtu: 1500,
            recovery: Recovery::Irn,
            bdp_cap: BdpCap::Packets(256),
            started: 1,
            rto_low: Duration::from_millis(1),
            rto_high: Duration::from_millis(4),
            retry_count: 7,
            rnr_retry: 7,
            rnr_delay: Duration::from_millis(1),
            congestion: congestion::Settings::new(congestion::Algorithm::None, BitRate::megabits(10_000)),
            ack_delay: Duration::from_micros(100),
            ack_every: 16,
            keepalive: Duration::from_secs(1),
            connect_timeout: Duration::from_millis(100),
            connect_retries: 10,
            peer_timeout: Duration::from_secs(5),
            paths: Paths::OFF,
            max_reads: 16,
            max_qps: 64,
            max_regions: 64,
            max_srqs: 64,
        }
    }

    /// The priority of a queue pair that names none: the one whose frames have the 802.1p priority of this endpoint.
    pub fn default_priority(&self) -> u8 {
        self.priority.map_or(0, |class| 2 * class.min(7))
    }
}

/// What a new queue pair needs to know.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// Completions of the send queue.
    pub send_cq: CqId,
    /// Completions of the receive queue.
    pub recv_cq: CqId,
    /// Most send requests outstanding.
    pub sq_depth: u32,
    /// Most receive requests outstanding.
    pub rq_depth: u32,
    /// Take receives from this shared queue; `rq_depth` is then not used.
    pub srq: Option<SrqId>,
    /// Recovery mode to offer instead of the endpoint's.
    pub recovery: Option<Recovery>,
    /// Priority for stop control, 0 (stops first) to 15, instead of the endpoint's ([`EndpointConfig::default_priority`]). Half of it
    /// is the 802.1p priority of its frames.
    pub priority: Option<u8>,
}

impl QpInit {
    /// A queue pair that completes everything in one queue, with room for `depth` requests each way.
    pub const fn new(cq: CqId, depth: u32) -> Self {
        Self { send_cq: cq, recv_cq: cq, sq_depth: depth, rq_depth: depth, srq: None, recovery: None, priority: None }
    }
}

/// News for an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer wants to connect to a service that the application listens on.
    ConnectRequest {
        /** To be accepted or rejected. */
        request: RequestId,
        /** The service. */
        service: u16,
        /** Who asks. */
        peer: MacAddr,
        /** Up to 192 bytes from the peer. */
        private: Vec<u8>,
    },
    /// The connection stands; the queue pair may send.
    Established {
        /** The queue pair. */
        qp: QpNum,
        /** The peer's private data. */
        private: Vec<u8>,
        /** The recovery mode agreed on. */
        recovery: Recovery,
    },
    /// The connection did not come about.
    ConnectFailed {
        /** The queue pair. */
        qp: QpNum,
        /** Why. */
        reason: ConnectFailure,
        /** The peer's private data, if it answered. */
        private: Vec<u8>,
    },
    /// The peer closed the connection, or our own disconnect is done; all work is flushed.
    Disconnected {
        /** The queue pair. */
        qp: QpNum,
    },
    /// All requests begun before a drain was asked for are done.
    SendQueueDrained {
        /** The queue pair. */
        qp: QpNum,
    },
    /// A request was refused before any of it was sent: the requests behind it are flushed, receiving goes on.
    SendQueueFailed {
        /** The queue pair. */
        qp: QpNum,
        /** Why. */
        status: Status,
    },
    /// A shared receive queue holds fewer receives than its limit. Told once each time the limit is set.
    SrqLimit {
        /** The queue. */
        srq: SrqId,
    },
    /// The queue pair failed; all work is flushed.
    QpFailed {
        /** The queue pair. */
        qp: QpNum,
        /** Why. */
        status: Status,
    },
}

/// Why a connection did not come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectFailure {
    /// Nobody answered.
    Unreachable,
    /// The peer's application said no.
    Rejected,
    /// Nobody listens on that service there.
    NoListener,
    /// The peer has no room.
    NoResources,
    /// The peer speaks another version.
    VersionMismatch,
}

/// Why a command to the endpoint was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandError {
    /// No such queue pair, or it belongs to another application.
    NoSuchQp,
    /// No such region, or it belongs to another application.
    NoSuchRegion,
    /// No such shared receive queue, or it belongs to another application.
    NoSuchSrq,
    /// No such connection request, or it is another application's.
    NoSuchRequest,
    /// The state of the queue pair does not allow it, or queue pairs still use the shared receive queue.
    WrongState,
    /// A table is full.
    LimitReached,
    /// A depth, length, priority or address is out of range.
    BadArgument,
    /// Another application listens on the service.
    ServiceInUse,
}

/// Why a work request was not taken. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PostError {
    /// No such queue pair, or it belongs to another application.
    NoSuchQp,
    /// No such shared receive queue, or it belongs to another application.
    NoSuchSrq,
    /// As many requests as the queue holds are outstanding.
    QueueFull,
    /// The queue pair is not connected (send), or takes its receives from a shared queue (receive).
    WrongState,
    /// The message is longer than [`work::MAX_MESSAGE`], or has more than 2^23 packets of the connection's size.
    TooLong,
}
