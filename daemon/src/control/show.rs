//! Snapshots in the words of the control protocol.

use std::collections::BTreeMap;

use weft_config::Config;
use weft_config::control::{
    Counters, Drops, FlowCounters, HostInfo, ImpairCounters, Page, PortCounters, PortInfo, PortSummary, QpCounters,
};
use weft_config::model::{Port, Words};
use weft_proto::switch::{self, ImpairmentCounters};
use weft_proto::wire::MacAddr;
use weft_proto::{DropCounts, DropReason, transport};

use crate::snapshot::{PortSnapshot, Snapshot};

/// The configured ports with their state. The snapshot has them in the same order, and the local port behind them.
fn network_ports<'a>(config: &'a Config, snapshot: &'a Snapshot) -> impl ExactSizeIterator<Item = (&'a Port, &'a PortSnapshot)> {
    config.ports.iter().zip(&snapshot.ports)
}

/// The ports at a glance.
pub(super) fn port_summaries(config: &Config, snapshot: &Snapshot) -> Vec<PortSummary> {
    let summary = |(port, state): (&Port, &PortSnapshot)| PortSummary {
        name: port.name.clone(),
        role: port.role.word().to_owned(),
        backend: state.backend.to_owned(),
        up: state.up,
    };
    network_ports(config, snapshot).map(summary).collect()
}

/// The ports in full.
pub(super) fn ports(config: &Config, snapshot: &Snapshot, offset: u64) -> Page<PortInfo> {
    Page::of(network_ports(config, snapshot).map(|(port, state)| port_info(port, state)), offset)
}

fn port_info(port: &Port, state: &PortSnapshot) -> PortInfo {
    PortInfo {
        name: port.name.clone(),
        interface: port.interface.clone(),
        role: port.role.word().to_owned(),
        backend: state.backend.to_owned(),
        up: state.up,
        mac: state.mac.map(|mac| mac.to_string()),
        mtu: u32::try_from(state.mtu).unwrap_or(u32::MAX),
        rate_bps: port.rate.map(|rate| rate.bits_per_second()),
        counters: port_counters(state),
        flow_control: port.flow_control.word().to_owned(),
        flow: flow(&state.counters.flow),
        impaired_ingress: impaired(&state.counters.ingress_impairment, &state.counters.received_drops),
        impaired_egress: impaired(&state.counters.egress_impairment, &state.counters.sent_drops),
    }
}

fn port_counters(state: &PortSnapshot) -> PortCounters {
    PortCounters {
        rx_frames: state.counters.received.frames,
        rx_bytes: state.counters.received.bytes,
        tx_frames: state.counters.sent.frames,
        tx_bytes: state.counters.sent.bytes,
        drops: drops(|reason| state.drops(reason)),
        link_changes: state.link_changes,
    }
}

const fn flow(counters: &switch::FlowCounters) -> FlowCounters {
    FlowCounters {
        sent: counters.sent,
        received: counters.received,
        ignored: counters.ignored,
        paused_us: counters.paused.as_micros(),
        watchdog_trips: counters.watchdog_trips,
    }
}

fn impaired(counters: &ImpairmentCounters, drops: &DropCounts) -> ImpairCounters {
    ImpairCounters {
        lost: drops.of(DropReason::ImpairedLoss),
        duplicated: counters.duplicated,
        corrupted: counters.corrupted,
        reordered: counters.reordered,
    }
}

fn drops(of: impl Fn(DropReason) -> u64) -> Drops {
    DropReason::ALL.iter().map(|&reason| (reason.label().to_owned(), of(reason))).filter(|&(_, frames)| frames > 0).collect()
}

/// Sums over the node.
pub(super) fn counters(config: &Config, snapshot: &Snapshot) -> Counters {
    let mut sums = Counters {
        transport: snapshot.transport.map(|t| queue_pair_counters(&t.counters)).unwrap_or_default(),
        transport_drops: drops(|reason| snapshot.transport_drops.of(reason)),
        switch_drops: drops(|reason| snapshot.ports.iter().map(|port| port.drops(reason) - port.io_drops.of(reason)).sum()),
        queued_frames: snapshot.ports.iter().map(|port| port.queued.frames).sum(),
        buffers: snapshot.worker.frames_total,
        buffers_used: snapshot.worker.frames_in_use,
        ..Counters::default()
    };
    for (port, state) in network_ports(config, snapshot) {
        let info = port_info(port, state);
        add_port(&mut sums.ports, info.counters);
        add_flow(&mut sums.flow, info.flow);
        add_impaired(&mut sums.impaired, info.impaired_ingress);
        add_impaired(&mut sums.impaired, info.impaired_egress);
    }
    sums
}

fn add_port(sum: &mut PortCounters, port: PortCounters) {
    sum.rx_frames += port.rx_frames;
    sum.rx_bytes += port.rx_bytes;
    sum.tx_frames += port.tx_frames;
    sum.tx_bytes += port.tx_bytes;
    sum.link_changes += port.link_changes;
    for (reason, frames) in port.drops {
        *sum.drops.entry(reason).or_default() += frames;
    }
}

const fn add_flow(sum: &mut FlowCounters, port: FlowCounters) {
    sum.sent += port.sent;
    sum.received += port.received;
    sum.ignored += port.ignored;
    sum.paused_us += port.paused_us;
    sum.watchdog_trips += port.watchdog_trips;
}

fn add_impaired(sum: &mut ImpairCounters, port: ImpairCounters) {
    sum.lost += port.lost;
    sum.duplicated += port.duplicated;
    sum.corrupted += port.corrupted;
    sum.reordered += port.reordered;
}

/// The transport's counters in the protocol's words.
pub(super) const fn queue_pair_counters(counters: &transport::QpCounters) -> QpCounters {
    QpCounters {
        sent: counters.packets_sent + counters.retransmitted(),
        received: counters.packets_received,
        sent_bytes: counters.bytes_sent,
        received_bytes: counters.bytes_received,
        retransmitted_fast: counters.retransmitted_fast,
        retransmitted_timeout: counters.retransmitted_timeout,
        retransmitted_probe: counters.retransmitted_probe,
        duplicates: counters.duplicates_received,
        out_of_order: counters.early_received,
        acks_sent: counters.acks_sent,
        acks_received: counters.acks_received,
        nacks_sent: counters.naks_sent,
        nacks_received: counters.naks_received,
        rnr_sent: counters.rnr_sent,
        rnr_received: counters.rnr_received,
        timeouts: counters.timeouts,
    }
}

/// The names of hosts.
pub(super) fn hosts(hosts: &BTreeMap<String, MacAddr>, offset: u64) -> Page<HostInfo> {
    Page::of(hosts.iter().map(|(name, mac)| HostInfo { name: name.clone(), mac: mac.to_string() }), offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_beyond_the_first_time_was_sent_again_for_one_of_the_causes_told() {
        let counted = transport::QpCounters {
            packets_sent: 100,
            retransmitted_fast: 1,
            retransmitted_timeout: 2,
            retransmitted_probe: 4,
            ..transport::QpCounters::default()
        };
        let told = queue_pair_counters(&counted);
        assert_eq!((told.retransmitted(), told.sent - told.retransmitted()), (7, 100));
    }
}
