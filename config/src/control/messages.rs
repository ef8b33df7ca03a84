//! The results of the control protocol. Times in the units of their names, addresses as text, counters since the daemon's start.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PAGE;

/// Frames dropped, by [`weft_proto::DropReason::label`]; reasons that did not occur are absent.
pub type Drops = BTreeMap<String, u64>;

/// A part of a list. Lists may change between two requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// Entries of the whole list.
    pub total: u64,
    /// Entries in front of this part.
    pub offset: u64,
    /// At most [`PAGE`] entries.
    pub items: Vec<T>,
}

impl<T> Page<T> {
    /// The part of `all` that starts at `offset`.
    pub fn of(all: impl ExactSizeIterator<Item = T>, offset: u64) -> Self {
        let total = u64::try_from(all.len()).unwrap_or(u64::MAX);
        let items = all.skip(usize::try_from(offset).unwrap_or(usize::MAX)).take(PAGE).collect();
        Self { total, offset, items }
    }

    /// Where the next part starts; `None` after the last.
    pub fn next_offset(&self) -> Option<u64> {
        let next = self.offset.saturating_add(u64::try_from(self.items.len()).ok()?);
        (!self.items.is_empty() && next < self.total).then_some(next)
    }
}

/// The daemon at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The node's name.
    pub node: String,
    /// The daemon's version.
    pub version: String,
    /// Seconds since its start.
    pub uptime_seconds: u64,
    /// Its process.
    pub pid: u32,
    /// The configuration file.
    pub config_file: String,
    /// Its ports.
    pub ports: Vec<PortSummary>,
    /// The endpoint's address; absent without a host port.
    pub endpoint_mac: Option<String>,
    /// The endpoint's incarnation, new at every start; absent without a host port.
    pub incarnation: Option<u64>,
    /// Queue pairs.
    pub qps: u32,
    /// Attached applications.
    pub applications: u32,
}

/// A port at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSummary {
    /// Name.
    pub name: String,
    /// `host` or `switch`.
    pub role: String,
    /// `pnet` or `packet`, as chosen.
    pub backend: String,
    /// The link carries frames.
    pub up: bool,
}

/// A network port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// Name.
    pub name: String,
    /// Linux interface.
    pub interface: String,
    /// `host` or `switch`.
    pub role: String,
    /// `pnet` or `packet`, as chosen.
    pub backend: String,
    /// The link carries frames.
    pub up: bool,
    /// The interface's address; absent while the interface is gone.
    pub mac: Option<String>,
    /// Largest Ethernet payload in bytes.
    pub mtu: u32,
    /// Egress rate; absent if unlimited.
    pub rate_bps: Option<u64>,
    /// What went through.
    pub counters: PortCounters,
    /// `none`, `pause` or `pfc`.
    #[serde(default)]
    pub flow_control: String,
    /// What flow control did.
    #[serde(default)]
    pub flow: FlowCounters,
    /// Faults on purpose, of frames received.
    pub impaired_ingress: ImpairCounters,
    /// Faults on purpose, of frames sent.
    pub impaired_egress: ImpairCounters,
}

/// What went through a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received, without FCS.
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent, without FCS.
    pub tx_bytes: u64,
    /// Frames dropped here.
    pub drops: Drops,
    /// Times that the link went up or down.
    pub link_changes: u64,
}

/// What flow control (PAUSE, PFC) did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCounters {
    /// Frames sent that ask the other end of the link to stop or to go on.
    pub sent: u64,
    /// Frames received from it.
    pub received: u64,
    /// Those whose request to stop was ignored, because the watchdog had tripped.
    pub ignored: u64,
    /// How long nothing was sent at the other end's request; with PFC, of at least one priority.
    pub paused_us: u64,
    /// Times that the watchdog ended a pause.
    pub watchdog_trips: u64,
}

/// Faults on purpose that happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImpairCounters {
    /// Frames lost.
    pub lost: u64,
    /// Frames sent twice.
    pub duplicated: u64,
    /// Frames damaged.
    pub corrupted: u64,
    /// Frames held back so that others pass.
    pub reordered: u64,
}

/// Another node that this one is connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerInfo {
    /// Address.
    pub mac: String,
    /// Its name in `hosts`, if it has one.
    pub name: Option<String>,
    /// Queue pairs connected to it.
    pub qps: u32,
    /// Seconds since its last frame.
    pub last_heard_seconds: u64,
    /// Smoothed round trip; absent before the first measurement.
    pub rtt_us: Option<u64>,
    /// Its incarnation.
    pub incarnation: Option<u64>,
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpInfo {
    /// Number, as in frames.
    pub qp: u32,
    /// The owner.
    pub application: u32,
    /// `reset`, `connecting`, `established`, `closing`, `error`, ...
    pub state: String,
    /// The peer's address, once there is one.
    pub peer: Option<String>,
    /// The peer's name in `hosts`, if it has one.
    pub peer_name: Option<String>,
    /// The peer's queue pair number.
    pub peer_qp: Option<u32>,
    /// Priority for stop control, 0 to 15.
    #[serde(default)]
    pub priority: u8,
    /// Recovery mode asked for: `irn`, `irn-strict` or `go-back-n`.
    pub recovery_offered: String,
    /// Recovery mode agreed on.
    pub recovery: Option<String>,
    /// Payload bytes per packet.
    pub payload: u32,
    /// Most packets in flight; absent if only the bitmap bounds it.
    pub window_cap: Option<u32>,
    /// Packets sent and not acknowledged.
    pub in_flight: u32,
    /// Send requests outstanding.
    pub sq_used: u32,
    /// Most send requests outstanding.
    pub sq_depth: u32,
    /// Receive requests posted.
    pub rq_used: u32,
    /// Most receive requests posted.
    pub rq_depth: u32,
    /// Smoothed round trip; absent before the first measurement.
    pub srtt_us: Option<u64>,
    /// Round trip variation.
    pub rttvar_us: Option<u64>,
    /// Round trips: median, 99th percentile and longest; absent before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_percentiles_us: Option<[u64; 3]>,
    /// How far ahead of a gap a packet of the peer has arrived at most, in packets.
    #[serde(default)]
    pub farthest_early: u32,
    /// How congestion control holds it back, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Congestion>,
    /// What went through.
    pub counters: QpCounters,
    /// Everything that it counts, under the names of the transport (`weft_proto::transport::QpCounters`), nanoseconds where the
    /// name says so. Only in the answer about one queue pair: lists would grow too long.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
}

/// Congestion control of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Congestion {
    /// `timely`, `dcqcn`, `aimd`, `dctcp` or `swift`.
    pub algorithm: String,
    /// Its window in thousandths of a packet, if it has one.
    pub window_milli_packets: Option<u64>,
    /// Its rate, if it has one.
    pub rate_bps: Option<u64>,
}

/// What went through a queue pair, or through all of them. Packets unless the name says bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpCounters {
    /// Sent, retransmissions included.
    pub sent: u64,
    /// Received and accepted for the first time.
    pub received: u64,
    /// Payload bytes sent for the first time.
    pub sent_bytes: u64,
    /// Payload bytes received for the first time.
    pub received_bytes: u64,
    /// Sent again because of what the peer reported.
    pub retransmitted_fast: u64,
    /// Sent again after a time-out.
    pub retransmitted_timeout: u64,
    /// Sent again to ask about a silent peer's last packets.
    pub retransmitted_probe: u64,
    /// Received again.
    pub duplicates: u64,
    /// Received before an earlier one.
    pub out_of_order: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// Negative acknowledgements sent.
    pub nacks_sent: u64,
    /// Negative acknowledgements received.
    pub nacks_received: u64,
    /// Receiver-not-ready answers sent.
    pub rnr_sent: u64,
    /// Receiver-not-ready answers received.
    pub rnr_received: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
}

impl QpCounters {
    /// Sent again, for whatever cause.
    pub const fn retransmitted(&self) -> u64 {
        self.retransmitted_fast + self.retransmitted_timeout + self.retransmitted_probe
    }
}

/// The last events of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpTrace {
    /// Its number.
    pub qp: u32,
    /// Oldest first.
    pub events: Vec<QpEvent>,
}

/// Something that happened to a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpEvent {
    /// Nanoseconds from the event to the answer; of packets in a row, from the first.
    pub ago_ns: u64,
    /// `sent`, `sent_again`, `arrived`, `arrived_early`, `dropped`, `refused`, `ack_sent`, `ack_received`, `loss`, `probe`, `timeout`, `held`,
    /// `unusable`, `connected`, `state` or `failed`.
    pub event: String,
    /// Which packets: `requests`, or `responses` to READs and atomics; each has numbers of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// The number of the packet, of the first of several, or what an acknowledgement acknowledges up to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub psn: Option<u32>,
    /// Packets in a row that the event stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
    /// Cause, reason, kind or state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A learned address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbEntry {
    /// Address.
    pub mac: String,
    /// The port that it was seen on; `local` is the node itself.
    pub port: String,
    /// Seconds since its last frame.
    pub age_seconds: u64,
}

/// A virtual output queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueInfo {
    /// Port that frames leave by.
    pub output: String,
    /// Port that frames came in by.
    pub input: String,
    /// Traffic class, 0 to 7.
    pub class: u8,
    /// Frames waiting.
    pub frames: u64,
    /// Bytes waiting.
    pub bytes: u64,
    /// Most bytes waiting.
    pub limit_bytes: u64,
    /// Frames dropped because the queue was full.
    pub drops: u64,
}

/// A host with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// Name.
    pub name: String,
    /// Address.
    pub mac: String,
}

/// Sums over the whole node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// All ports together.
    pub ports: PortCounters,
    /// All queue pairs together, closed ones included.
    pub transport: QpCounters,
    /// Frames that the endpoint dropped.
    pub transport_drops: Drops,
    /// Frames that the switch dropped.
    pub switch_drops: Drops,
    /// Flow control of all ports.
    #[serde(default)]
    pub flow: FlowCounters,
    /// Faults on purpose, in both directions of all ports.
    pub impaired: ImpairCounters,
    /// Frames waiting in the switch.
    pub queued_frames: u64,
    /// Frame buffers of the pool.
    pub buffers: u64,
    /// Frame buffers in use.
    pub buffers_used: u64,
}

/// The effective configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigText {
    /// Where it was read.
    pub file: String,
    /// Every key with its value, as YAML.
    pub yaml: String,
}

/// What a reload changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Where it was read.
    pub file: String,
    /// One line per change, `key: old -> new`.
    pub changes: Vec<String>,
}

/// The daemon is about to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopping {
    /// Its process, to wait for.
    pub pid: u32,
}
