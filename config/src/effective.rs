//! The effective configuration as a document: every key with its value, as an operator would write it.

mod stop;

use std::collections::BTreeMap;

use serde_yaml::{Mapping, Value};
use weft_proto::Duration;
use weft_proto::switch::FlowConfig;
use weft_proto::transport::Paths;
use weft_proto::wire::EtherType;

use crate::Config;
use crate::defaults;
use crate::model::{
    Applications, BdpCap, Congestion, Control, Impairment, Marking, Port, PortImpairment, Switch, Transport, Words, Worker,
};
use crate::units;

/// The whole configuration as YAML. [`Config::from_yaml`] reads it back to an equal one.
pub fn effective_yaml(config: &Config) -> String {
    serde_yaml::to_string(&document(config)).unwrap_or_else(|error| format!("# the configuration cannot be printed: {error}\n"))
}

/// Every value with the path of its key, as in `ports[0].rate`.
pub(crate) fn flat(config: &Config) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    flatten(String::new(), &document(config), &mut values);
    values
}

fn flatten(path: String, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Mapping(entries) => {
            for (key, value) in entries {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(format!("{path}{dot}{}", plain(key)), value, into);
            }
        }
        Value::Sequence(items) => {
            for (index, item) in items.iter().enumerate() {
                flatten(format!("{path}[{index}]"), item, into);
            }
        }
        value => drop(into.insert(path, plain(value))),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        _ => String::new(),
    }
}

pub(crate) fn group<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Mapping(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn document(config: &Config) -> Value {
    group([
        ("version", defaults::VERSION.into()),
        ("node", config.node.as_str().into()),
        ("control", control(&config.control)),
        ("applications", applications(&config.applications)),
        ("metrics", metrics(config)),
        ("ports", Value::Sequence(config.ports.iter().map(port).collect())),
        ("switch", switch(&config.switch)),
        ("transport", transport(&config.transport)),
        ("stop", config.stop.as_ref().map_or_else(|| "off".into(), stop::stop)),
        ("hosts", Value::Mapping(config.hosts.iter().map(|(name, mac)| (name.as_str().into(), mac.to_string().into())).collect())),
        ("worker", worker(&config.worker)),
        ("log", config.log.word().into()),
    ])
}

fn control(control: &Control) -> Value {
    group([("socket", control.socket.to_string_lossy().into()), ("mode", mode(control.mode))])
}

fn applications(applications: &Applications) -> Value {
    group([
        ("socket", applications.socket.to_string_lossy().into()),
        ("mode", mode(applications.mode)),
        ("max_applications", applications.max_applications.into()),
        ("max_qps_per_application", applications.max_qps_per_application.into()),
        ("max_srqs_per_application", applications.max_srqs_per_application.into()),
        ("max_regions_per_application", applications.max_regions_per_application.into()),
        ("max_memory_per_application", units::bytes_text(applications.max_memory_per_application).into()),
    ])
}

fn metrics(config: &Config) -> Value {
    match config.metrics {
        Some(listen) => group([("enabled", true.into()), ("listen", listen.to_string().into())]),
        None => group([("enabled", false.into())]),
    }
}

fn port(port: &Port) -> Value {
    group([
        ("name", port.name.as_str().into()),
        ("interface", port.interface.as_str().into()),
        ("role", port.role.word().into()),
        ("backend", port.backend.word().into()),
        ("rate", port.rate.map_or_else(|| "none".into(), |rate| units::rate_text(rate).into())),
        ("mtu", port.mtu.map_or_else(|| "auto".into(), Value::from)),
        ("vlans", port.vlans.as_deref().map_or_else(|| "all".into(), vlans)),
        ("flow_control", port.flow_control.word().into()),
        ("impair", port_impairment(&port.impair)),
    ])
}

fn vlans(ids: &[u16]) -> Value {
    Value::Sequence(ids.iter().map(|&id| id.into()).collect())
}

fn port_impairment(impair: &PortImpairment) -> Value {
    group([("ingress", impairment(&impair.ingress)), ("egress", impairment(&impair.egress)), ("seed", impair.seed.into())])
}

pub(crate) fn impairment(impairment: &Impairment) -> Value {
    group([
        ("loss", impairment.loss.to_string().into()),
        ("duplicate", impairment.duplicate.to_string().into()),
        ("corrupt", impairment.corrupt.to_string().into()),
        ("reorder", impairment.reorder.to_string().into()),
        ("reorder_delay", duration(impairment.reorder_delay)),
        ("delay", duration(impairment.delay)),
        ("jitter", duration(impairment.jitter)),
    ])
}

fn switch(switch: &Switch) -> Value {
    let weights: Mapping = (0_u64..).zip(&switch.weights).map(|(class, &weight)| (class.into(), weight.into())).collect();
    group([
        ("mac_table_size", switch.mac_table_size.into()),
        ("mac_ageing", duration(switch.mac_ageing)),
        ("voq_limit", units::bytes_text(switch.voq_limit).into()),
        ("classes", Value::from(switch.classes())),
        ("weights", Value::Mapping(weights)),
        ("quantum", switch.quantum.into()),
        ("strict_classes", switch.strict_classes.into()),
        ("marking", marking(switch.marking)),
        ("flow_control", flow_control(&switch.flow_control)),
    ])
}

fn flow_control(flow: &FlowConfig) -> Value {
    group([
        ("xoff", units::bytes_text(flow.xoff).into()),
        ("xon", units::bytes_text(flow.xon).into()),
        ("pause_time", duration(flow.pause_time)),
        ("watchdog", duration(flow.watchdog)),
    ])
}

fn marking(marking: Option<Marking>) -> Value {
    let Some(marking) = marking else { return group([("enabled", false.into())]) };
    group([
        ("enabled", true.into()),
        ("kmin", units::bytes_text(marking.kmin).into()),
        ("kmax", units::bytes_text(marking.kmax).into()),
        ("pmax", marking.pmax.to_string().into()),
    ])
}

fn transport(transport: &Transport) -> Value {
    group([
        ("ethertype", ethertype(transport.ethertype)),
        ("recovery", transport.recovery.word().into()),
        ("bdp_fc", if transport.bdp_cap == BdpCap::Off { "off" } else { "on" }.into()),
        ("bdp_cap", bdp_cap(transport.bdp_cap)),
        ("congestion", transport.congestion.algorithm.word().into()),
        ("congestion_parameters", congestion_parameters(&transport.congestion)),
        ("rto_low", duration(transport.rto_low)),
        ("rto_high", duration(transport.rto_high)),
        ("retry_count", transport.retry_count.into()),
        ("rnr_retry", transport.rnr_retry.into()),
        ("rnr_delay", duration(transport.rnr_delay)),
        ("ack_delay", duration(transport.ack_delay)),
        ("ack_every", transport.ack_every.into()),
        ("keepalive", duration(transport.keepalive)),
        ("peer_timeout", duration(transport.peer_timeout)),
        ("connect_timeout", duration(transport.connect_timeout)),
        ("connect_retries", transport.connect_retries.into()),
        ("max_reads", transport.max_reads.into()),
        ("max_qps", transport.max_qps.into()),
        ("max_srqs", transport.max_srqs.into()),
        ("max_regions", transport.max_regions.into()),
        ("priority", transport.priority.map_or_else(|| "none".into(), Value::from)),
        ("paths", if transport.paths == Paths::OFF { "off".into() } else { vlans(transport.paths.ids()) }),
    ])
}

fn congestion_parameters(congestion: &Congestion) -> Value {
    group([
        ("first_window", congestion.first_window.into()),
        ("queueing_delay", duration(congestion.queueing_delay)),
        ("flow_scaling", duration(congestion.flow_scaling)),
        ("timely_low", duration(congestion.timely_low)),
        ("timely_high", duration(congestion.timely_high)),
        ("notification_interval", duration(congestion.notification_interval)),
        ("min_rate", units::rate_text(congestion.min_rate).into()),
    ])
}

fn worker(worker: &Worker) -> Value {
    group([
        ("spin", duration(worker.spin)),
        ("batch", worker.batch.into()),
        ("frames", worker.frames.into()),
        ("cpu", worker.cpu.map_or_else(|| "none".into(), Value::from)),
    ])
}

fn bdp_cap(cap: BdpCap) -> Value {
    match cap {
        BdpCap::Auto | BdpCap::Off => "auto".into(),
        BdpCap::Packets(packets) => packets.into(),
    }
}

fn duration(span: Duration) -> Value {
    units::duration_text(span).into()
}

/// Octal digits, which YAML quotes as they look like a number.
fn mode(mode: u32) -> Value {
    format!("{mode:04o}").into()
}

/// In hexadecimal, the form that everybody knows EtherTypes in.
fn ethertype(ethertype: EtherType) -> Value {
    format!("{:#06x}", ethertype.0).into()
}
