//! `stop`: receiver-driven stop control, with every check that needs more than one value.

mod detect;

use std::collections::BTreeMap;

use weft_proto::stop::config::{
    Accept, AskConfig, DestinationPresets, ObeyConfig, Presets, PriorityRule, RateRule, Request, Targets, TimerRule,
};
use weft_proto::wire::stop::STOP_ETHERTYPES;
use weft_proto::wire::{EtherType, MacAddr};
use weft_proto::{BitRate, Duration};

use crate::defaults;
use crate::document::{Node, Value};
use crate::model::{Port, Role, Stop, Transport};
use crate::problem::quoted;
use crate::scalar;
use crate::section::{Section, closest};
use crate::units::Probability;

type Hosts = BTreeMap<String, MacAddr>;

/// The whole section; `None` if it is absent or says `off`.
pub(super) fn stop(root: &Section<'_>, ports: &[Port], transport: &Transport, hosts: &Hosts) -> Option<Stop> {
    let section = root.section_or_off("stop").filter(|_| root.has("stop"))?;
    if !ports.iter().any(|port| port.role == Role::Host) {
        root.complain(
            "stop",
            "this node has no host port, the only kind that stop control watches and holds back; give a port role: host, or remove stop",
        );
    }
    let tick = section.read("tick", defaults::STOP_TICK, scalar::duration(defaults::MIN_STOP_TICK, defaults::MAX_STOP_TICK));
    let detect = detect::detect(&section, ports);
    let (obey, mut ask) = (obey(&section, ports, hosts, tick), ask(section.section("ask"), hosts));
    let destinations = destinations(&section, hosts, ask.request, obey.is_some());
    ask.requests = destinations.iter().filter_map(|(&host, destination)| Some((host, destination.ask?))).collect();
    let presets = destinations.iter().map(|(&host, destination)| (host, destination.presets));
    let presets = presets.filter(|(_, presets)| *presets != DestinationPresets::default()).collect();
    let stop = Stop {
        ethertype: ethertype(&section, transport),
        priority: section.read("priority", None, scalar::or_keyword("none", scalar::integer(0..=7))),
        key_file: section.read("key_file", None, scalar::or_keyword("none", scalar::path)),
        tick,
        rate_rule: section.read("rate_rule", RateRule::Absolute, scalar::word),
        table_size: section.read("table_size", defaults::STOP_TABLE_SIZE, scalar::integer(1..=defaults::MAX_STOP_TABLE_SIZE)),
        ask,
        obey: obey.map(|obey| ObeyConfig { destinations: presets, ..obey }),
        detect,
    };
    section.finish();
    Some(stop)
}

/// The rate of the host port, or what is taken for it.
fn link_rate(ports: &[Port]) -> BitRate {
    ports.iter().find(|port| port.role == Role::Host).and_then(|port| port.rate).unwrap_or(defaults::LINK_RATE)
}

fn ethertype(section: &Section<'_>, transport: &Transport) -> EtherType {
    let ethertype = section.read("ethertype", defaults::STOP_ETHERTYPE, scalar::ethertype(STOP_ETHERTYPES));
    if ethertype == transport.ethertype {
        section.complain("ethertype", format!("{:#06x} is also transport.ethertype; each needs its own", ethertype.0));
    }
    ethertype
}

// ---- asking

fn ask(section: Section<'_>, hosts: &Hosts) -> AskConfig {
    let usual = Request { priority: defaults::STOP_PRIORITY, timer: defaults::STOP_TIMER, rate: defaults::STOP_RATE };
    let targets = section.read("targets", None, scalar::or_keyword("contributing", |node| list_of_hosts(node, hosts)));
    let ask = AskConfig {
        targets: targets.map_or(Targets::Contributing, Targets::Listed),
        request: request(&section, usual),
        requests: Vec::new(),
        preset_timer: section.read("assumed_timer", defaults::STOP_TIMER, scalar::integer(1..=u8::MAX)),
    };
    section.finish();
    ask
}

fn request(section: &Section<'_>, usual: Request) -> Request {
    Request {
        priority: section.read("priority", usual.priority, priority),
        timer: section.read("timer", usual.timer, scalar::integer(0..=u8::MAX)),
        rate: section.read("rate", usual.rate, scalar::integer(0..=defaults::MAX_STOP_RATE)),
    }
}

fn priority(node: &Node) -> Result<u8, String> {
    scalar::integer(0..=defaults::STOP_PRIORITY)(node)
}

// ---- obeying

fn obey(stop: &Section<'_>, ports: &[Port], hosts: &Hosts, tick: Duration) -> Option<ObeyConfig> {
    let section = stop.section_or_off("obey")?;
    let accept = section.read("accept", None, scalar::or_keyword("anyone", |node| list_of_hosts(node, hosts)));
    let (least, most) = defaults::STOP_LONGEST_RANGE;
    let drained = link_rate(ports).time_for(defaults::STOP_LONGEST_BYTES).as_nanos();
    let longest = Duration::from_nanos(drained.next_multiple_of(1_000_000)).max(defaults::STOP_LONGEST).min(most);
    let obey = ObeyConfig {
        accept: accept.map_or(Accept::Anyone, Accept::Listed),
        timer_rule: section.read("timer_rule", TimerRule::Packet, scalar::word),
        priority_rule: section.read("priority_rule", PriorityRule::Packet, scalar::word),
        presets: Presets {
            timer: section.read("timer", defaults::STOP_TIMER, scalar::integer(1..=u8::MAX)),
            priority: section.read("priority", defaults::STOP_PRIORITY, priority),
        },
        destinations: Vec::new(),
        resume_jitter: section.read("resume_jitter", Duration::ZERO, scalar::duration(Duration::ZERO, defaults::MAX_RESUME_JITTER)),
        longest: section.read("longest", longest, scalar::duration(least, most)),
        budget_permille: section.read("budget", defaults::STOP_BUDGET_PERMILLE, permille),
        forgive_after: section.read(
            "forgive_after",
            defaults::STOP_FORGIVE_AFTER,
            scalar::duration(least, defaults::MAX_STOP_FORGIVE_AFTER),
        ),
    };
    let timer = tick.saturating_mul(u64::from(obey.presets.timer));
    if timer > obey.longest {
        let (ticks, longest) = (obey.presets.timer, obey.longest);
        section.complain(
            "longest",
            format!("{longest} is below the preset timer, {ticks} ticks of {tick}; raise the one, or lower obey.timer or tick"),
        );
    }
    section.finish();
    Some(obey)
}

/// A share in thousandths.
fn permille(node: &Node) -> Result<u32, String> {
    const PART: u32 = 1000;
    let parts = scalar::probability(node)?.parts_per_million();
    if parts == 0 || !parts.is_multiple_of(PART) {
        let found = Probability::from_parts_per_million(parts).unwrap_or_default();
        return Err(format!("{found} is out of range; allowed are 0.1% to 100% in steps of 0.1%"));
    }
    Ok(parts / PART)
}

// ---- particular hosts

/// What one host gets and is taken to mean.
#[derive(Clone, Copy, Debug)]
struct Destination {
    ask: Option<Request>,
    presets: DestinationPresets,
}

/// `destinations: { HOST: { ask: {...}, timer: T, priority: P } }`, ordered by address.
fn destinations(stop: &Section<'_>, hosts: &Hosts, usual: Request, obeys: bool) -> BTreeMap<MacAddr, Destination> {
    let section = stop.section("destinations");
    let mut known = BTreeMap::new();
    for entry in section.entries() {
        let host = host_named(&entry.key, hosts);
        let destination = destination(section.below(entry), usual, obeys);
        match host {
            Ok(host) if known.insert(host, destination).is_some() => {
                section.complain_entry(entry, format!("{host} is named twice; write each host once"));
            }
            Ok(_) => {}
            Err(message) => section.complain_entry(entry, message),
        }
    }
    known
}

fn destination(section: Section<'_>, usual: Request, obeys: bool) -> Destination {
    let ask = section.has("ask").then(|| {
        let ask = section.section("ask");
        let request = request(&ask, usual);
        ask.finish();
        request
    });
    let presets = DestinationPresets {
        timer: section.read("timer", None, |node| scalar::integer(1..=u8::MAX)(node).map(Some)),
        priority: section.read("priority", None, |node| priority(node).map(Some)),
    };
    for (key, given) in [("timer", presets.timer.is_some()), ("priority", presets.priority.is_some())] {
        if given && !obeys {
            section.complain(key, "has no meaning while stop.obey is off: leave one of them out");
        }
    }
    section.finish();
    Destination { ask, presets }
}

// ---- hosts

/// One or more hosts, each once, as in `[a, "02:00:00:00:00:0b"]`.
fn list_of_hosts(node: &Node, hosts: &Hosts) -> Result<Vec<MacAddr>, String> {
    let Value::List(items) = &node.value else {
        return Err(format!("expected a list of hosts, as in [a, b], found {}", node.shown()));
    };
    let mut found = Vec::new();
    for item in items {
        let host = host_named(scalar::text(item)?, hosts)?;
        if found.contains(&host) {
            return Err(format!("{host} is named twice; name each host once"));
        }
        found.push(host);
    }
    if found.is_empty() { Err("the list is empty; name at least one host".to_owned()) } else { Ok(found) }
}

/// The address of a host that is written as its name or as its address.
fn host_named(word: &str, hosts: &Hosts) -> Result<MacAddr, String> {
    if let Some(&mac) = hosts.get(word) {
        return Ok(mac);
    }
    let mac: Option<MacAddr> = word.parse().ok();
    mac.filter(|mac| mac.is_station()).ok_or_else(|| {
        let guess = closest(word, hosts.keys().map(String::as_str)).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
        format!(
            "{} is neither a name in hosts nor a host's Ethernet address; add it to hosts, or write its address in quotes{guess}",
            quoted(word)
        )
    })
}
