//! Stop control in the words of the control protocol: shown, and steered by hand.

use std::collections::BTreeMap;

use weft_config::control::{
    ControlError, Drops, ErrorCode, PAGE, Page, StopAsked, StopAsker, StopCancelled, StopCounters, StopEvent, StopEvents, StopInfo,
    StopPort, StopSent,
};
use weft_config::defaults::MAX_STOP_RATE;
use weft_proto::stop::config::{PRIORITIES, Request};
use weft_proto::stop::{self, AskedView, AskerView, Release, Share, Standing, Station, StopRecord, WatchView};
use weft_proto::wire::MacAddr;
use weft_proto::{Duration, Instant, PortId};

use super::detail::port_name;
use super::node::Node;
use crate::clock::Moment;
use crate::worker::Plane;

/// What differs from the configuration in a request by hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByHand {
    pub priority: Option<u8>,
    pub timer: Option<u8>,
    pub rate: Option<u8>,
}

/// Asks the worker about its station.
fn ask<T: Send + 'static>(node: &Node, question: impl FnOnce(Instant, &mut Station) -> T + Send + 'static) -> Result<T, ControlError> {
    node.worker.ask(move |now, plane: &mut Plane| plane.stop_control().map(|station| question(now, station)))?.ok_or_else(off)
}

fn off() -> ControlError {
    let hint = "write a section `stop: {}` into its configuration and run `weftctl reload`; it takes a host port";
    ControlError::new(ErrorCode::BadRequest, "stop control is off on this node", hint)
}

// ---- shown

/// Plain values, copied between two batches.
#[derive(Debug)]
struct Copied {
    now: Instant,
    config: stop::StopConfig,
    watches: Vec<WatchView>,
    askers: Vec<AskerView>,
    asked: Vec<AskedView>,
    counters: stop::StopCounters,
    refused: weft_proto::DropCounts,
}

impl Copied {
    fn of(now: Instant, station: &Station) -> Self {
        Self {
            now,
            config: station.config().clone(),
            watches: station.watches().collect(),
            askers: station.obedience().map(|obedience| obedience.views(now).collect()).unwrap_or_default(),
            asked: station.asked().collect(),
            counters: station.counters(),
            refused: station.refused().clone(),
        }
    }
}

/// All of it, with a part of each list.
pub(super) fn show(node: &Node, offset: u64) -> Result<StopInfo, ControlError> {
    let mut copied = ask(node, |now, station| Copied::of(now, station))?;
    copied.askers.sort_unstable_by_key(|view| view.host);
    copied.asked.sort_unstable_by_key(|view| view.host);
    let Copied { now, config, watches, askers, asked, counters, refused } = copied;
    let names = names(node);
    Ok(StopInfo {
        mac: config.mac.to_string(),
        obeys: config.obey.is_some(),
        detects: config.watch.is_some(),
        ports: watches.iter().map(|view| port(node, now, view)).collect(),
        askers: Page::of(askers.iter().map(|view| asker(&names, now, view)), offset),
        asked: Page::of(asked.iter().map(|view| asked_host(node, &names, now, view)), offset),
        counters: counts(&counters),
        refused: refused.nonzero().map(|(reason, frames)| (reason.label().to_owned(), frames)).collect::<Drops>(),
    })
}

type Names = BTreeMap<MacAddr, String>;

fn names(node: &Node) -> Names {
    node.config.hosts.iter().map(|(name, &mac)| (mac, name.clone())).collect()
}

fn port(node: &Node, now: Instant, view: &WatchView) -> StopPort {
    let [volume, gap, delimiter] = view.signs;
    StopPort {
        port: port_name(node, view.port),
        congested_us: view.congested_since.map(|since| now.since(since).as_micros()),
        volume,
        gap,
        delimiter,
        sources: view.sources,
        congestions: view.congestions,
    }
}

fn asker(names: &Names, now: Instant, view: &AskerView) -> StopAsker {
    let plain = |standing: &str| StopAsker {
        mac: view.host.to_string(),
        name: names.get(&view.host).cloned(),
        standing: standing.to_owned(),
        below: None,
        share_permille: None,
        since_us: None,
        remaining_us: None,
        stopped_us: view.stopped.as_micros(),
        stops: view.stops,
    };
    match view.standing {
        Standing::Free => plain("free"),
        Standing::Resuming => plain("resuming"),
        Standing::Ignored { since } => StopAsker { since_us: Some(now.since(since).as_micros()), ..plain("ignored") },
        Standing::Held { below, share, since, until } => StopAsker {
            below: Some(below),
            share_permille: Some(share.permille()),
            since_us: Some(now.since(since).as_micros()),
            remaining_us: Some(until.since(now).as_micros()),
            ..plain(if share == Share::NONE { "stopped" } else { "slowed" })
        },
    }
}

fn asked_host(node: &Node, names: &Names, now: Instant, view: &AskedView) -> StopAsked {
    let Request { priority, timer, rate } = view.request;
    StopAsked {
        mac: view.host.to_string(),
        name: names.get(&view.host).cloned(),
        priority,
        timer,
        rate,
        since_us: now.since(view.since).as_micros(),
        remaining_us: view.until.since(now).as_micros(),
        port: view.port.map(|port| port_name(node, port)),
        times: view.asked,
    }
}

const fn counts(counters: &stop::StopCounters) -> StopCounters {
    StopCounters {
        stops_sent: counters.stops_sent,
        refreshes_sent: counters.refreshes_sent,
        cancels_sent: counters.cancels_sent,
        stops_received: counters.stops_received,
        cancels_received: counters.cancels_received,
        obeyed: counters.obeyed,
        extended: counters.extended,
        expired: counters.expired,
        cancelled: counters.cancelled,
        capped: counters.capped,
        stopped_us: Duration::from_nanos(counters.stopped_nanos).as_micros(),
        late_frames: counters.late_frames,
        late_frames_max: counters.late_frames_max,
        congestions: counters.congestions,
    }
}

// ---- events

/// Events from number `since` on, a page at most; without it none, only where they go on.
pub(super) fn events(node: &Node, since: Option<u64>) -> Result<StopEvents, ControlError> {
    let (wanted, next, records) = ask(node, move |_, station| {
        let journal = station.journal();
        let wanted = first_wanted(since, journal.next());
        (wanted, journal.next(), journal.since(wanted).take(PAGE).copied().collect::<Vec<StopRecord>>())
    })?;
    let first = records.first().map_or(next, |record| record.number);
    let (names, moment) = (names(node), Moment::now());
    let events: Vec<_> = records.iter().map(|record| event(node, &names, &moment, record)).collect();
    Ok(StopEvents { next: first + events.len() as u64, missed: first - wanted, events })
}

/// Numbers beyond the next are those of an earlier life of stop control: a reload begins at 0 again.
const fn first_wanted(since: Option<u64>, next: u64) -> u64 {
    match since {
        Some(since) if since <= next => since,
        Some(_) => 0,
        None => next,
    }
}

fn event(node: &Node, names: &Names, moment: &Moment, record: &StopRecord) -> StopEvent {
    use stop::StopEvent as Event;
    let plain = |word: &str| StopEvent {
        number: record.number,
        unix_ns: moment.wall_of(record.at),
        event: word.to_owned(),
        ..StopEvent::default()
    };
    let of_host = |word: &str, host: MacAddr| StopEvent { mac: Some(host.to_string()), name: names.get(&host).cloned(), ..plain(word) };
    let of_port = |word: &str, port: PortId| StopEvent { port: Some(port_name(node, port)), ..plain(word) };
    match record.event {
        Event::Congested { port, sources } => StopEvent { sources: Some(sources), ..of_port("congested", port) },
        Event::Resolved { port } => of_port("resolved", port),
        Event::Asked { host, request: Request { priority, timer, rate } } => {
            StopEvent { below: Some(priority), rate: Some(rate), timer: Some(timer), ..of_host("asked", host) }
        }
        Event::Cancelled { host } => of_host("cancelled", host),
        Event::Obeyed { host, below, share, until } => StopEvent {
            below: Some(below),
            share_permille: Some(share.permille()),
            for_us: Some(until.since(record.at).as_micros()),
            ..of_host("obeyed", host)
        },
        Event::Released { host, cause } => StopEvent { cause: Some(cause_word(cause).to_owned()), ..of_host("released", host) },
        Event::Runaway { host } => of_host("runaway", host),
        Event::Forgiven { host } => of_host("forgiven", host),
    }
}

const fn cause_word(cause: Release) -> &'static str {
    match cause {
        Release::Expired => "expired",
        Release::Cancelled => "cancelled",
        Release::Capped => "capped",
    }
}

// ---- steered

/// Asks a host to stop, once.
pub(super) fn send(node: &Node, host: &str, by_hand: ByHand) -> Result<StopSent, ControlError> {
    check_range("priority", by_hand.priority, PRIORITIES - 1)?;
    check_range("rate", by_hand.rate, MAX_STOP_RATE)?;
    let mac = host_of(node, host)?;
    let change = move |usual: Request| Request {
        priority: by_hand.priority.unwrap_or(usual.priority),
        timer: by_hand.timer.unwrap_or(usual.timer),
        rate: by_hand.rate.unwrap_or(usual.rate),
    };
    let asked = ask(node, move |now, station| {
        station.stop(now, mac, change);
        station.asked().find(|view| view.host == mac)
    })?;
    let request = asked.map(|view| view.request).ok_or_else(|| {
        ControlError::new(ErrorCode::Busy, "as many hosts are asked as this node remembers", "wait, or raise stop.table_size")
    })?;
    let Request { priority, timer, rate } = request;
    Ok(StopSent { mac: mac.to_string(), name: names(node).remove(&mac), priority, timer, rate })
}

/// Tells a host that it may send again.
pub(super) fn cancel(node: &Node, host: &str) -> Result<StopCancelled, ControlError> {
    let mac = host_of(node, host)?;
    if !ask(node, move |now, station| station.cancel(now, mac))? {
        let message = format!("{host} is not asked to stop: its timer ran out, or it never was");
        return Err(ControlError::new(ErrorCode::BadRequest, message, "`weftctl stop show` lists those that are"));
    }
    Ok(StopCancelled { mac: mac.to_string(), name: names(node).remove(&mac) })
}

fn check_range(field: &str, value: Option<u8>, most: u8) -> Result<(), ControlError> {
    let refusal =
        |value| ControlError::new(ErrorCode::BadRequest, format!("{field} {value} is out of range"), format!("allowed are 0 to {most}"));
    value.filter(|&value| value > most).map_or(Ok(()), |value| Err(refusal(value)))
}

/// The address of a host that is named as in `hosts`, or by its address.
fn host_of(node: &Node, host: &str) -> Result<MacAddr, ControlError> {
    // Whether it is on comes first: names mean nothing to a node without it.
    ask(node, |_, _| ())?;
    let known = node.config.hosts.get(host).copied();
    let mac = known.or_else(|| host.parse().ok().filter(|mac: &MacAddr| mac.is_station())).ok_or_else(|| {
        let message = format!("{host:?} is neither a name in hosts of the configuration nor a host's Ethernet address");
        ControlError::new(ErrorCode::BadRequest, message, "add it to hosts and run `weftctl reload`, or write its address")
    })?;
    if node.endpoint.is_some_and(|(own, _)| own == mac) {
        let message = format!("{host} is this node itself");
        return Err(ControlError::new(ErrorCode::BadRequest, message, "name the host that is to stop sending to this node"));
    }
    Ok(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_follows_events_goes_on_where_they_were_or_from_the_start_of_a_new_life() {
        assert_eq!([first_wanted(None, 7), first_wanted(Some(5), 7), first_wanted(Some(7), 7), first_wanted(Some(8), 7)], [7, 5, 7, 0]);
    }
}
