//! The administration socket's answers as tables. Pure: answers in, text out.

use std::fmt::Display;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use weft_config::control::{
    Counters, Drops, FdbEntry, FlowCounters, ImpairCounters, PeerInfo, PortCounters, PortInfo, QpCounters, QpInfo, QueueInfo, Status,
};

use super::lines;
use crate::text;

const NONE: &str = "-";

/// A table whose columns named in capitals with a leading `>` are right-aligned numbers.
pub(crate) fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(columns.iter().map(|column| column.trim_start_matches('>')));
    for (column, name) in table.column_iter_mut().zip(columns) {
        if name.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_padding((0, 2));
    }
    table
}

pub(crate) fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

const fn link(up: bool) -> &'static str {
    if up { "up" } else { "DOWN" }
}

pub(super) fn status(status: &Status) -> String {
    let mut text = format!(
        "node {}: weftd {}, process {}, up {}\nconfiguration {}\nendpoint {}, {}, {}",
        status.node,
        status.version,
        status.pid,
        text::seconds(status.uptime_seconds),
        status.config_file,
        status.endpoint_mac.as_deref().unwrap_or("none (no host port)"),
        text::count(status.qps.try_into().unwrap_or(usize::MAX), "queue pair"),
        text::count(status.applications.try_into().unwrap_or(usize::MAX), "application")
    );
    if !status.ports.is_empty() {
        let mut ports = table(&["PORT", "ROLE", "BACKEND", "LINK"]);
        for port in &status.ports {
            ports.add_row([&port.name, &port.role, &port.backend, link(port.up)]);
        }
        text.push_str("\n\n");
        text.push_str(&lines(&ports));
    }
    text
}

pub(super) fn ports(ports: &[PortInfo]) -> Table {
    let mut table = table(&[
        "PORT",
        "INTERFACE",
        "ROLE",
        "LINK",
        "MAC",
        ">MTU",
        ">RATE",
        ">RX-FRAMES",
        ">RX-BYTES",
        ">TX-FRAMES",
        ">TX-BYTES",
        "DROPS",
        "FLOW CONTROL",
        "IMPAIRED IN",
        "IMPAIRED OUT",
    ]);
    for port in ports {
        let counters = &port.counters;
        table.add_row([
            port.name.clone(),
            port.interface.clone(),
            port.role.clone(),
            link(port.up).to_owned(),
            or_none(port.mac.as_ref()),
            port.mtu.to_string(),
            or_none(port.rate_bps.and_then(weft_proto::BitRate::new).map(weft_config::units::rate_text)),
            counters.rx_frames.to_string(),
            text::bytes(counters.rx_bytes),
            counters.tx_frames.to_string(),
            text::bytes(counters.tx_bytes),
            drops(&counters.drops),
            flow_control(&port.flow_control, &port.flow),
            impaired(&port.impaired_ingress),
            impaired(&port.impaired_egress),
        ]);
    }
    table
}

pub(crate) fn drops(drops: &Drops) -> String {
    named(drops.iter().map(|(reason, frames)| (reason.as_str(), *frames)))
}

/// The kind, and what it did: `pause: sent 3, paused_us 1500`.
fn flow_control(kind: &str, counters: &FlowCounters) -> String {
    if matches!(kind, "" | "none") {
        return named(each_flow(counters));
    }
    format!("{kind}: {}", named(each_flow(counters)))
}

fn each_flow(counters: &FlowCounters) -> impl Iterator<Item = (&'static str, u64)> {
    let FlowCounters { sent, received, ignored, paused_us, watchdog_trips } = *counters;
    [("sent", sent), ("received", received), ("ignored", ignored), ("paused_us", paused_us), ("watchdog_trips", watchdog_trips)].into_iter()
}

fn impaired(counters: &ImpairCounters) -> String {
    named(each_impairment(counters))
}

fn each_impairment(counters: &ImpairCounters) -> impl Iterator<Item = (&'static str, u64)> {
    let ImpairCounters { lost, duplicated, corrupted, reordered } = *counters;
    [("lost", lost), ("duplicated", duplicated), ("corrupted", corrupted), ("reordered", reordered)].into_iter()
}

/// The counts that are not zero, as in `lost 7, reordered 2`.
fn named<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> String {
    let shown: Vec<_> = counts.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")).collect();
    if shown.is_empty() { NONE.to_owned() } else { shown.join(", ") }
}

pub(super) fn peers(peers: &[PeerInfo]) -> Table {
    let mut table = table(&["PEER", "MAC", ">QPS", ">RTT", ">HEARD", "INCARNATION"]);
    for peer in peers {
        table.add_row([
            or_none(peer.name.as_ref()),
            peer.mac.clone(),
            peer.qps.to_string(),
            or_none(peer.rtt_us.map(|rtt| format!("{rtt} us"))),
            format!("{} ago", text::seconds(peer.last_heard_seconds)),
            or_none(peer.incarnation.map(|number| format!("{number:x}"))),
        ]);
    }
    table
}

pub(super) fn queue_pairs(queue_pairs: &[QpInfo]) -> Table {
    let mut table = table(&[
        ">QP",
        ">APP",
        "STATE",
        "PEER",
        ">PEER-QP",
        "RECOVERY",
        ">IN-FLIGHT",
        ">CAP",
        ">SQ",
        ">RQ",
        ">RTT",
        ">SENT",
        ">RECEIVED",
        ">AGAIN",
        ">TIMEOUTS",
    ]);
    for qp in queue_pairs {
        table.add_row([
            qp.qp.to_string(),
            qp.application.to_string(),
            qp.state.clone(),
            or_none(qp.peer_name.as_ref().or(qp.peer.as_ref())),
            or_none(qp.peer_qp),
            qp.recovery.clone().unwrap_or_else(|| format!("({})", qp.recovery_offered)),
            qp.in_flight.to_string(),
            or_none(qp.window_cap),
            format!("{}/{}", qp.sq_used, qp.sq_depth),
            format!("{}/{}", qp.rq_used, qp.rq_depth),
            or_none(qp.srtt_us.map(|rtt| format!("{rtt} us"))),
            text::bytes(qp.counters.sent_bytes),
            text::bytes(qp.counters.received_bytes),
            qp.counters.retransmitted().to_string(),
            qp.counters.timeouts.to_string(),
        ]);
    }
    table
}

pub(super) fn addresses(entries: &[FdbEntry]) -> Table {
    let mut table = table(&["MAC", "PORT", ">AGE"]);
    for entry in entries {
        table.add_row([entry.mac.clone(), entry.port.clone(), text::seconds(entry.age_seconds)]);
    }
    table
}

pub(super) fn queues(queues: &[QueueInfo]) -> Table {
    let mut table = table(&["OUTPUT", "INPUT", ">CLASS", ">FRAMES", ">BYTES", ">LIMIT", ">DROPS"]);
    for queue in queues {
        table.add_row([
            queue.output.clone(),
            queue.input.clone(),
            queue.class.to_string(),
            queue.frames.to_string(),
            text::bytes(queue.bytes),
            text::bytes(queue.limit_bytes),
            queue.drops.to_string(),
        ]);
    }
    table
}

pub(super) fn counters(counters: &Counters) -> String {
    let mut table = table(&["COUNTER", ">VALUE"]);
    let mut section = |title: &str, rows: Vec<(String, u64)>| {
        for (name, value) in rows {
            table.add_row([format!("{title}.{name}"), value.to_string()]);
        }
    };
    section("ports", port_rows(&counters.ports));
    section("ports.drops", drop_rows(&counters.ports.drops));
    section("switch.drops", drop_rows(&counters.switch_drops));
    section("switch.flow_control", each_flow(&counters.flow).map(owned).collect());
    section("switch.impaired", each_impairment(&counters.impaired).map(owned).collect());
    section("switch", vec![("queued_frames".to_owned(), counters.queued_frames)]);
    section("transport", transport_rows(&counters.transport));
    section("transport.drops", drop_rows(&counters.transport_drops));
    section("buffers", vec![("total".to_owned(), counters.buffers), ("used".to_owned(), counters.buffers_used)]);
    lines(&table)
}

fn owned((name, value): (&str, u64)) -> (String, u64) {
    (name.to_owned(), value)
}

fn drop_rows(drops: &Drops) -> Vec<(String, u64)> {
    drops.iter().map(|(reason, frames)| (reason.clone(), *frames)).collect()
}

fn port_rows(ports: &PortCounters) -> Vec<(String, u64)> {
    [
        ("rx_frames", ports.rx_frames),
        ("rx_bytes", ports.rx_bytes),
        ("tx_frames", ports.tx_frames),
        ("tx_bytes", ports.tx_bytes),
        ("link_changes", ports.link_changes),
    ]
    .into_iter()
    .map(owned)
    .collect()
}

/// Every counter under the name that `--json` gives it, so that none is forgotten when one is added.
fn transport_rows(counters: &QpCounters) -> Vec<(String, u64)> {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(counters) else { return Vec::new() };
    fields.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect()
}

#[cfg(test)]
mod tests;
