//! The node file: from a document to a [`Config`], with every check that needs more than one value.

mod congestion;
mod stop;
mod pausing;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use weft_proto::Duration;
use weft_proto::switch::FlowControl;
use weft_proto::transport::paths::{MAX_PATHS, VLAN_IDS};
use weft_proto::transport::{Paths, Recovery};
use weft_proto::wire::{EtherType, MacAddr};

use crate::defaults;
use crate::document::{Node, Value};
use crate::model::{
    Applications, Backend, BdpCap, Config, Control, Impairment, LogLevel, Port, PortImpairment, Role, Switch, Transport, Worker,
};
use crate::problem::harmless;
use crate::scalar;
use crate::section::Section;
use crate::units::{self, Probability};

/// Reads the whole file.
pub(crate) fn config(root: Section<'_>) -> Config {
    root.require("version", defaults::VERSION, scalar::version);
    let ports = ports(&root);
    let transport = transport(root.section("transport"));
    let hosts = hosts(&root);
    let config = Config {
        node: root.require("node", String::new(), scalar::name),
        control: control(root.section("control")),
        applications: applications(root.section("applications"), &transport),
        metrics: metrics(root.section("metrics")),
        switch: switch(root.section("switch"), largest_frame(&ports)),
        stop: stop::stop(&root, &ports, &transport, &hosts),
        ports,
        transport,
        hosts,
        worker: worker(root.section("worker")),
        log: root.read("log", LogLevel::Info, scalar::word),
    };
    check_across(&root, &config);
    root.finish();
    config
}

/// What must hold between sections.
fn check_across(root: &Section<'_>, config: &Config) {
    if config.control.socket == config.applications.socket {
        root.complain_same("applications.socket", "control.socket", &config.control.socket.display().to_string());
    }
    if config.transport.ethertype == EtherType::VLAN {
        root.complain("transport.ethertype", format!("{:#06x} is that of 802.1Q tags; choose another", config.transport.ethertype.0));
    }
}

/// Notes a contradiction at `key` if `low` exceeds `high`.
fn check_order<T: PartialOrd + Display>(section: &Section<'_>, (key, low): (&str, T), (high_key, high): (&str, T)) {
    if low > high {
        section.complain(key, format!("{low} is above {high_key}, which is {high}; lower the one or raise the other"));
    }
}

fn control(section: Section<'_>) -> Control {
    let control = Control {
        socket: section.read("socket", PathBuf::from(defaults::CONTROL_SOCKET), scalar::socket),
        mode: section.read("mode", defaults::CONTROL_MODE, scalar::mode),
    };
    section.finish();
    control
}

fn applications(section: Section<'_>, transport: &Transport) -> Applications {
    // A node with few queue pairs gives no application more than it has.
    let max_qps = defaults::MAX_QPS_PER_APPLICATION.min(transport.max_qps);
    let max_srqs = defaults::MAX_SRQS_PER_APPLICATION.min(transport.max_srqs);
    let max_regions = defaults::MAX_REGIONS_PER_APPLICATION.min(transport.max_regions);
    let limits = Applications {
        socket: section.read("socket", PathBuf::from(defaults::APPLICATIONS_SOCKET), scalar::socket),
        mode: section.read("mode", defaults::APPLICATIONS_MODE, scalar::mode),
        max_applications: section.read("max_applications", defaults::MAX_APPLICATIONS, scalar::integer(1..=defaults::LIMIT_APPLICATIONS)),
        max_qps_per_application: section.read("max_qps_per_application", max_qps, scalar::integer(1..=defaults::LIMIT_QPS)),
        max_srqs_per_application: section.read("max_srqs_per_application", max_srqs, scalar::integer(1..=defaults::LIMIT_SRQS)),
        max_regions_per_application: section.read("max_regions_per_application", max_regions, scalar::integer(1..=defaults::LIMIT_REGIONS)),
        max_memory_per_application: section.read(
            "max_memory_per_application",
            defaults::MAX_MEMORY_PER_APPLICATION,
            scalar::bytes(defaults::MEMORY_PER_APPLICATION),
        ),
    };
    check_order(&section, ("max_qps_per_application", limits.max_qps_per_application), ("transport.max_qps", transport.max_qps));
    check_order(&section, ("max_srqs_per_application", limits.max_srqs_per_application), ("transport.max_srqs", transport.max_srqs));
    let regions = limits.max_regions_per_application;
    check_order(&section, ("max_regions_per_application", regions), ("transport.max_regions", transport.max_regions));
    section.finish();
    limits
}

fn metrics(section: Section<'_>) -> Option<SocketAddr> {
    let listen = section.read("listen", defaults::METRICS_LISTEN, scalar::listen);
    let enabled = section.read("enabled", true, scalar::boolean);
    section.finish();
    enabled.then_some(listen)
}

/// The ports, their names and interfaces unique.
fn ports(root: &Section<'_>) -> Vec<Port> {
    let items = root.require_list("ports", "- { interface: eth0, role: host }");
    if items.len() > defaults::MAX_PORTS {
        root.complain("ports", format!("{} ports; at most {} are allowed", items.len(), defaults::MAX_PORTS));
    }
    let mut taken = BTreeMap::new();
    let mut ports = Vec::new();
    for (index, item) in items.iter().take(defaults::MAX_PORTS).enumerate() {
        let section = root.item(item);
        let port = port(&section, index);
        for (key, value) in [("name", &port.name), ("interface", &port.interface)] {
            if let Some(other) = taken.insert((key, value.clone()), &item.path).filter(|_| !value.is_empty()) {
                section.complain(key, format!("\"{value}\" is also the {key} of {other}; each port needs its own"));
            }
        }
        section.finish();
        ports.push(port);
    }
    ports
}

fn port(section: &Section<'_>, index: usize) -> Port {
    let interface = section.require("interface", String::new(), scalar::interface);
    let seed = u64::try_from(index).unwrap_or(0) + 1;
    let port = Port {
        name: port_name(section, &interface),
        interface,
        role: section.require("role", Role::Host, scalar::word),
        backend: section.read("backend", Backend::Auto, scalar::word),
        rate: section.read("rate", None, scalar::or_keyword("none", scalar::rate)),
        mtu: section.read("mtu", None, scalar::or_keyword("auto", scalar::integer(defaults::MIN_MTU..=defaults::MAX_MTU))),
        vlans: section.read("vlans", None, scalar::or_keyword("all", vlan_list(0..=*VLAN_IDS.end(), usize::from(u16::MAX)))),
        flow_control: section.read("flow_control", FlowControl::None, scalar::word),
        impair: port_impairment(section.section("impair"), seed),
    };
    check_rate(section, &port);
    port
}

/// By default the interface's name, which may hold characters that a port's name may not.
fn port_name(section: &Section<'_>, interface: &str) -> String {
    if !section.has("name") && !interface.is_empty() && scalar::check_name(interface).is_err() {
        section.complain("name", format!("is missing, and the interface's name \"{interface}\" cannot stand in for it"));
    }
    section.read("name", interface.to_owned(), scalar::name)
}

fn check_rate(section: &Section<'_>, port: &Port) {
    let (Some(rate), most) = (port.rate, defaults::MAX_FRAME_TIME) else { return };
    let frame = frame_of(port);
    if rate.time_for(frame.into()) > most {
        let shown = units::rate_text(rate);
        section.complain("rate", format!("{shown} is too slow: one frame of {frame} bytes would take more than {most}"));
    }
}

/// Bytes of the largest frame of a port.
fn frame_of(port: &Port) -> u32 {
    port.mtu.unwrap_or(defaults::USUAL_MTU) + defaults::FRAME_OVERHEAD
}

fn largest_frame(ports: &[Port]) -> u32 {
    ports.iter().map(frame_of).max().unwrap_or(defaults::USUAL_MTU + defaults::FRAME_OVERHEAD)
}

fn port_impairment(section: Section<'_>, seed: u64) -> PortImpairment {
    let impair = PortImpairment {
        ingress: impaired_direction(section.section("ingress")),
        egress: impaired_direction(section.section("egress")),
        seed: section.read("seed", seed, scalar::integer(0..=u64::MAX)),
    };
    section.finish();
    impair
}

fn impaired_direction(section: Section<'_>) -> Impairment {
    let impairment = impairment(&section);
    section.finish();
    impairment
}

/// The keys of an impairment, among whatever else `section` has.
pub(crate) fn impairment(section: &Section<'_>) -> Impairment {
    let chance = |key| section.read(key, Probability::NEVER, scalar::probability);
    let span = |key, default| section.read(key, default, scalar::duration(Duration::ZERO, defaults::MAX_IMPAIRMENT_DELAY));
    let impairment = Impairment {
        loss: chance("loss"),
        duplicate: chance("duplicate"),
        corrupt: chance("corrupt"),
        reorder: chance("reorder"),
        reorder_delay: span("reorder_delay", defaults::REORDER_DELAY),
        delay: span("delay", Duration::ZERO),
        jitter: span("jitter", Duration::ZERO),
    };
    if impairment.reorder > Probability::NEVER && impairment.reorder_delay == Duration::ZERO {
        section.complain("reorder_delay", "0s holds no frame back, but reorder asks for it; write how long, as in 100us");
    }
    impairment
}

fn switch(section: Section<'_>, largest_frame: u32) -> Switch {
    let classes = section.read("classes", defaults::CLASSES, scalar::integer(1..=defaults::CLASSES));
    let voq_limit = section.read("voq_limit", defaults::VOQ_LIMIT, scalar::bytes(1..=defaults::MAX_VOQ_LIMIT));
    let switch = Switch {
        mac_table_size: section.read("mac_table_size", defaults::MAC_TABLE_SIZE, scalar::integer(1..=defaults::MAX_MAC_TABLE_SIZE)),
        mac_ageing: section.read("mac_ageing", defaults::MAC_AGEING, scalar::duration(defaults::MIN_MAC_AGEING, defaults::MAX_MAC_AGEING)),
        voq_limit,
        strict_classes: pausing::strict_classes(&section, classes),
        marking: congestion::marking(section.section("marking"), voq_limit),
        flow_control: pausing::flow_control(section.section("flow_control"), voq_limit),
        weights: weights(&section, classes),
        quantum: section.read("quantum", defaults::QUANTUM, scalar::integer(defaults::MIN_QUANTUM..=defaults::MAX_QUANTUM)),
    };
    if switch.voq_limit < u64::from(largest_frame) {
        let shown = units::bytes_text(switch.voq_limit);
        section.complain("voq_limit", format!("{shown} holds no frame: the largest one of these ports has {largest_frame} bytes"));
    }
    section.finish();
    switch
}

/// `weights: { CLASS: WEIGHT }`; classes left out have weight 1.
fn weights(section: &Section<'_>, classes: u32) -> Vec<u32> {
    let group = section.section("weights");
    let keys = (0..classes).zip(CLASS_KEYS).map(|(_, key)| key);
    let weights = keys.map(|key| group.read(key, defaults::WEIGHT, scalar::integer(1..=defaults::MAX_WEIGHT))).collect();
    group.finish();
    weights
}

fn transport(section: Section<'_>) -> Transport {
    let rto = || scalar::duration(defaults::MIN_RTO, defaults::MAX_RTO);
    let keepalive = scalar::duration(defaults::MIN_KEEPALIVE, defaults::MAX_KEEPALIVE);
    let connect_timeout = scalar::duration(defaults::MIN_CONNECT_TIMEOUT, defaults::MAX_CONNECT_TIMEOUT);
    let bdp_cap = bdp_cap(&section);
    let rto_low = section.read("rto_low", defaults::RTO_LOW, rto());
    let rto_high = rto_low.saturating_mul(defaults::RTO_HIGH_PER_LOW).min(defaults::MAX_RTO);
    let keepalive = section.read("keepalive", defaults::KEEPALIVE, keepalive);
    let peer_timeout = keepalive.saturating_mul(defaults::PEER_TIMEOUT_PER_KEEPALIVE).min(defaults::MAX_PEER_TIMEOUT);
    let ack_delay = rto_low.div(defaults::ACK_DELAY_PART);
    let ack_every = if let BdpCap::Packets(cap) = bdp_cap { defaults::ACK_EVERY.min(cap) } else { defaults::ACK_EVERY };
    let transport = Transport {
        ethertype: section.read("ethertype", defaults::TRANSPORT_ETHERTYPE, scalar::ethertype(defaults::MIN_ETHERTYPE..=u16::MAX)),
        recovery: section.read("recovery", Recovery::Irn, scalar::word),
        bdp_cap,
        congestion: congestion::congestion(&section),
        rto_low,
        rto_high: section.read("rto_high", rto_high, rto()),
        retry_count: section.read("retry_count", defaults::RETRY_COUNT, scalar::integer(1..=defaults::MAX_RETRY_COUNT)),
        rnr_retry: section.read("rnr_retry", defaults::RNR_RETRY, scalar::integer(0..=defaults::MAX_RNR_RETRY)),
        rnr_delay: section.read("rnr_delay", defaults::RNR_DELAY, scalar::duration(defaults::MIN_RNR_DELAY, defaults::MAX_RNR_DELAY)),
        ack_delay: section.read("ack_delay", ack_delay, scalar::duration(Duration::ZERO, defaults::MAX_RTO)),
        ack_every: section.read("ack_every", ack_every, scalar::integer(1..=defaults::MAX_ACK_EVERY)),
        keepalive,
        peer_timeout: section.read("peer_timeout", peer_timeout, scalar::duration(defaults::MIN_PEER_TIMEOUT, defaults::MAX_PEER_TIMEOUT)),
        connect_timeout: section.read("connect_timeout", defaults::CONNECT_TIMEOUT, connect_timeout),
        connect_retries: section.read("connect_retries", defaults::CONNECT_RETRIES, scalar::integer(1..=defaults::MAX_CONNECT_RETRIES)),
        max_reads: section.read("max_reads", defaults::MAX_READS, scalar::integer(1..=defaults::LIMIT_READS)),
        max_srqs: section.read("max_srqs", defaults::MAX_SRQS, scalar::integer(1..=defaults::LIMIT_SRQS)),
        max_qps: section.read("max_qps", defaults::MAX_QPS, scalar::integer(1..=defaults::LIMIT_QPS)),
        max_regions: section.read("max_regions", defaults::MAX_REGIONS, scalar::integer(1..=defaults::LIMIT_REGIONS)),
        priority: section.read("priority", None, scalar::or_keyword("none", scalar::integer(0..=7))),
        paths: section.read("paths", Paths::OFF, paths),
    };
    check_timing(&section, &transport);
    section.finish();
    transport
}

/// What must hold between the timers and windows.
fn check_timing(section: &Section<'_>, transport: &Transport) {
    check_order(section, ("rto_low", transport.rto_low), ("rto_high", transport.rto_high));
    if transport.peer_timeout <= transport.keepalive {
        let (limit, keepalive) = (transport.peer_timeout, transport.keepalive);
        section.complain(
            "peer_timeout",
            format!("{limit} is not above keepalive, which is {keepalive}: no peer could answer in time; raise the one or lower the other"),
        );
    }
    if transport.recovery == Recovery::IrnStrict {
        // It acknowledges every packet at once.
        return;
    }
    if transport.ack_delay >= transport.rto_low {
        let (delay, rto) = (transport.ack_delay, transport.rto_low);
        section.complain(
            "ack_delay",
            format!("{delay} is not below rto_low, which is {rto}: every late acknowledgement would look like a loss"),
        );
    }
    if let BdpCap::Packets(cap) = transport.bdp_cap
        && transport.ack_every > cap
    {
        let every = transport.ack_every;
        section.complain("ack_every", format!("{every} is above bdp_cap, which is {cap}: the sender would always wait for ack_delay"));
    }
}

/// `bdp_fc: on|off` and `bdp_cap: auto|PACKETS`.
fn bdp_cap(section: &Section<'_>) -> BdpCap {
    let on = section.read("bdp_fc", true, on_off);
    let cap = section.read("bdp_cap", BdpCap::Auto, auto_or_packets);
    if !on && cap != BdpCap::Auto {
        section.complain("bdp_cap", String::from("has no meaning while bdp_fc is off: leave one of them out"));
    }
    if on { cap } else { BdpCap::Off }
}

/// YAML 1.1 readers take `on` and `off` for booleans; ours does not.
fn on_off(node: &Node) -> Result<bool, String> {
    match scalar::text(node)? {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("expected on or off, found \"{other}\"")),
    }
}

fn auto_or_packets(node: &Node) -> Result<BdpCap, String> {
    match scalar::text(node) {
        Ok("auto") => Ok(BdpCap::Auto),
        _ => match scalar::integer(1..=defaults::MAX_BDP_CAP)(node) {
            Ok(packets) => Ok(BdpCap::Packets(packets)),
            Err(message) => Err(format!("{message}; or write auto")),
        },
    }
}

/// `off` or a list of VLANs.
fn paths(node: &Node) -> Result<Paths, String> {
    let ids = scalar::or_keyword("off", vlan_list(VLAN_IDS, MAX_PATHS))(node)?;
    Ok(ids.and_then(|ids| Paths::new(&ids)).unwrap_or_default())
}

/// One to `most` VLAN identifiers, each once, as in `[10, 20]`.
fn vlan_list(range: RangeInclusive<u16>, most: usize) -> impl FnOnce(&Node) -> Result<Vec<u16>, String> {
    move |node| {
        let Value::List(items) = &node.value else {
            return Err(format!("expected a list of VLANs, as in [10, 20], found {}", node.shown()));
        };
        let ids: Vec<u16> = items.iter().map(|item| scalar::integer(range.clone())(item)).collect::<Result<_, _>>()?;
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("VLAN {} is named twice; name each once", pair[0])),
            None if ids.is_empty() => Err("the list is empty; name at least one VLAN".to_owned()),
            None if ids.len() > most => Err(format!("{} VLANs; at most {most} are allowed", ids.len())),
            None => Ok(ids),
        }
    }
}

/// `hosts: { NAME: ADDRESS }`, the addresses unique.
fn hosts(root: &Section<'_>) -> BTreeMap<String, MacAddr> {
    let section = root.section("hosts");
    let mut owners = BTreeMap::new();
    let mut hosts = BTreeMap::new();
    for entry in section.entries() {
        match host(&entry.key, &entry.node) {
            Ok(mac) => {
                if let Some(other) = owners.insert(mac, &entry.key).filter(|other| *other != &entry.key) {
                    section.complain_entry(
                        entry,
                        format!("{mac} is also the address of {}; each host needs its own", harmless(other, defaults::MAX_NAME)),
                    );
                }
                hosts.insert(entry.key.clone(), mac);
            }
            Err(message) => section.complain_entry(entry, message),
        }
    }
    hosts
}

fn host(name: &str, node: &Node) -> Result<MacAddr, String> {
    scalar::check_name(name)?;
    scalar::station(node)
}

fn worker(section: Section<'_>) -> Worker {
    let worker = Worker {
        spin: section.read("spin", defaults::SPIN, scalar::duration(Duration::ZERO, defaults::MAX_SPIN)),
        batch: section.read("batch", defaults::BATCH, scalar::integer(1..=defaults::MAX_BATCH)),
        frames: section.read("frames", defaults::FRAMES, scalar::integer(defaults::FRAMES_PER_BATCH..=defaults::MAX_FRAMES)),
        cpu: section.read("cpu", None, scalar::or_keyword("none", scalar::integer(0..=defaults::MAX_CPU))),
    };
    let least = worker.batch * defaults::FRAMES_PER_BATCH;
    if worker.frames < least {
        let (frames, batch) = (worker.frames, worker.batch);
        section.complain("frames", format!("{frames} are too few for batches of {batch}; at least {least} are needed"));
    }
    section.finish();
    worker
}

/// The keys of `switch.weights`.
const CLASS_KEYS: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];
