//! Lists that only the worker has: address table, queues, queue pairs, peers.
//!
//! The worker copies plain values between two batches; they become text here.

use std::collections::BTreeMap;

use weft_config::control::{Congestion, ControlError, ErrorCode, FdbEntry, Page, PeerInfo, QpInfo, QueueInfo};
use weft_config::model::Words;
use weft_proto::switch::VoqStatus;
use weft_proto::transport::{QpNum, QpState, QpView};
use weft_proto::wire::MacAddr;
use weft_proto::{Duration, Instant, PortId, switch};

use super::node::Node;
use super::show;
use crate::snapshot::LOCAL;
use crate::worker::WorkerSilent;

/// The name of a port of the switch.
pub(super) fn port_name(node: &Node, port: PortId) -> String {
    node.config.ports.get(port.index()).map_or_else(|| LOCAL.to_owned(), |port| port.name.clone())
}

/// The address table, ordered by address so that pages fit together.
pub(super) fn addresses(node: &Node, offset: u64) -> Result<Page<FdbEntry>, WorkerSilent> {
    let (now, mut entries) = node.worker.ask(|now, worker| (now, worker.switch().fdb(now).collect::<Vec<_>>()))?;
    entries.sort_unstable_by_key(|entry| entry.mac);
    let line = |entry: switch::FdbEntry| FdbEntry {
        mac: entry.mac.to_string(),
        port: port_name(node, entry.port),
        age_seconds: if entry.is_static { 0 } else { seconds(now.since(entry.seen)) },
    };
    Ok(Page::of(entries.into_iter().map(line), offset))
}

/// The virtual output queues that were ever used.
pub(super) fn queues(node: &Node, offset: u64) -> Result<Page<QueueInfo>, WorkerSilent> {
    let used = |voq: &VoqStatus| voq.counters.enqueued.frames + voq.counters.refused.frames > 0;
    let queues: Vec<VoqStatus> = node.worker.ask(move |_, worker| {
        let outputs = 0..u16::try_from(worker.switch().ports()).unwrap_or(u16::MAX);
        outputs.flat_map(|output| worker.switch().voqs_of(PortId(output))).filter(used).collect()
    })?;
    let line = |voq: VoqStatus| QueueInfo {
        output: port_name(node, voq.output),
        input: port_name(node, voq.input),
        class: voq.class,
        frames: voq.counters.queued.frames,
        bytes: voq.counters.queued.bytes,
        limit_bytes: node.config.switch.voq_limit,
        drops: voq.counters.refused.frames,
    };
    Ok(Page::of(queues.into_iter().map(line), offset))
}

/// Queue pairs, by number.
pub(super) fn queue_pairs(node: &Node, offset: u64) -> Result<Page<QpInfo>, WorkerSilent> {
    let (_, views) = views(node)?;
    Ok(Page::of(views.into_iter().map(|view| queue_pair(node, &view)), offset))
}

/// One queue pair.
pub(super) fn queue_pair_of(node: &Node, qp: u32) -> Result<QpInfo, ControlError> {
    let view = node.worker.ask(move |_, plane| plane.endpoint()?.view_of(QpNum(qp)))?;
    let view = view.ok_or_else(|| no_such_queue_pair(qp))?;
    let counts = view.counters.each().map(|(name, count, _)| (name.to_owned(), count)).collect();
    Ok(QpInfo { counts, ..queue_pair(node, &view) })
}

/// The refusal of a question about a queue pair that does not exist.
pub(super) fn no_such_queue_pair(qp: u32) -> ControlError {
    let message = format!("there is no queue pair {qp}: it was closed, or never existed");
    ControlError::new(ErrorCode::BadRequest, message, "`weftctl qp show` lists those that exist")
}

/// The hosts that queue pairs are connected to, by address.
pub(super) fn peers(node: &Node, offset: u64) -> Result<Page<PeerInfo>, WorkerSilent> {
    let (now, views) = views(node)?;
    let mut peers: BTreeMap<MacAddr, Vec<QpView>> = BTreeMap::new();
    for view in views {
        if let Some(mac) = view.peer {
            peers.entry(mac).or_default().push(view);
        }
    }
    let line = |(mac, qps): (MacAddr, Vec<QpView>)| {
        let heard = qps.iter().filter_map(|qp| qp.last_heard).max().unwrap_or(now);
        PeerInfo {
            mac: mac.to_string(),
            name: name_of(node, mac),
            qps: u32::try_from(qps.len()).unwrap_or(u32::MAX),
            last_heard_seconds: seconds(now.since(heard)),
            rtt_us: qps.iter().filter_map(|qp| qp.rtt).map(|(rtt, _)| rtt.as_micros()).min(),
            incarnation: qps.iter().find_map(|qp| qp.peer_incarnation),
        }
    };
    Ok(Page::of(peers.into_iter().map(line), offset))
}

fn views(node: &Node) -> Result<(Instant, Vec<QpView>), WorkerSilent> {
    node.worker.ask(|now, plane| (now, plane.endpoint().map(|endpoint| endpoint.views().collect()).unwrap_or_default()))
}

fn queue_pair(node: &Node, view: &QpView) -> QpInfo {
    QpInfo {
        qp: view.number.0,
        application: view.owner.0,
        state: state_label(view.state).to_owned(),
        peer: view.peer.map(|mac| mac.to_string()),
        peer_name: view.peer.and_then(|mac| name_of(node, mac)),
        peer_qp: view.peer_qp.map(|number| number.0),
        priority: view.priority,
        recovery_offered: view.recovery_offered.word().to_owned(),
        recovery: view.recovery.map(|recovery| recovery.word().to_owned()),
        payload: view.payload,
        window_cap: (view.cap > 0).then_some(view.cap),
        in_flight: view.in_flight,
        sq_used: view.outstanding.0,
        sq_depth: view.depth.0,
        rq_used: view.outstanding.1,
        rq_depth: view.depth.1,
        srtt_us: view.rtt.map(|(rtt, _)| rtt.as_micros()),
        rttvar_us: view.rtt.map(|(_, variation)| variation.as_micros()),
        rtt_percentiles_us: view.rtt_percentiles.map(|spans| spans.map(Duration::as_micros)),
        farthest_early: view.farthest_early,
        congestion: view.congestion.map(|view| Congestion {
            algorithm: view.algorithm.word().to_owned(),
            window_milli_packets: view.window.map(|window| window.millis()),
            rate_bps: view.rate.map(weft_proto::BitRate::bits_per_second),
        }),
        counters: show::queue_pair_counters(&view.counters),
        counts: BTreeMap::new(),
    }
}

pub(super) const fn state_label(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "reset",
        QpState::Init => "connecting",
        QpState::ReadyToReceive => "accepting",
        QpState::ReadyToSend => "established",
        QpState::SendQueueDrain => "draining",
        QpState::SendQueueError => "send-error",
        QpState::Error => "error",
    }
}

/// The name of a host in the configuration.
fn name_of(node: &Node, mac: MacAddr) -> Option<String> {
    node.config.hosts.iter().find(|&(_, &known)| known == mac).map(|(name, _)| name.clone())
}

const fn seconds(span: Duration) -> u64 {
    span.as_nanos() / 1_000_000_000
}
