//! One queue pair in full, and its last events. Pure: answers in, text out.

use comfy_table::Table;
use weft_config::control::{Congestion, QpEvent, QpInfo, QpTrace};

use super::lines;
use super::tables::{or_none, table};
use crate::text;

/// Everything about a queue pair, in sections.
pub(super) fn sections(qp: &QpInfo) -> String {
    let mut sections = vec![("connection", indented(connection(qp))), ("window", indented(window(qp)))];
    sections.extend(TOPICS.iter().map(|topic| (*topic, indented(counts(qp, topic)))).filter(|(_, rows)| !rows.is_empty()));
    sections.into_iter().map(|(title, rows)| format!("{title}\n{rows}")).collect::<Vec<_>>().join("\n\n")
}

/// The algorithm with its window and rate, as far as it has them.
fn congestion(congestion: &Congestion) -> String {
    let window = congestion.window_milli_packets.map(|milli| format!("window {:.3} packets", milli as f64 / 1000.0));
    let rate = congestion.rate_bps.map(|rate| format!("rate {}", text::rate(rate as f64)));
    [Some(congestion.algorithm.clone()), window, rate].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What counters are about, in the order shown.
const TOPICS: [&str; 6] = ["traffic", "loss and recovery", "congestion", "acknowledgements", "receiver not ready", "other"];

/// What a counter is about, by the words in its name.
fn topic(name: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match () {
        () if has(&["congestion", "paced", "marked", "notifications", "stop_limited"]) => "congestion",
        () if has(&["rnr"]) => "receiver not ready",
        () if has(&["retransmit", "timeout", "probe", "duplicate", "early"]) => "loss and recovery",
        () if has(&["acks", "naks"]) => "acknowledgements",
        () if has(&["packets", "bytes", "messages", "window"]) => "traffic",
        () => "other",
    }
}

type Rows = Vec<(&'static str, String)>;

fn indented(rows: Vec<(impl Into<String>, String)>) -> String {
    let rows: Vec<(String, String)> = rows.into_iter().map(|(name, value)| (name.into(), value)).collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.into_iter().map(|(name, value)| format!("  {name:width$}  {value}")).collect::<Vec<_>>().join("\n")
}

fn connection(qp: &QpInfo) -> Rows {
    vec![
        ("queue pair", qp.qp.to_string()),
        ("application", qp.application.to_string()),
        ("state", qp.state.clone()),
        ("peer", or_none(qp.peer.as_ref().map(|mac| qp.peer_name.as_ref().map_or_else(|| mac.clone(), |name| format!("{name} ({mac})"))))),
        ("peer's queue pair", or_none(qp.peer_qp)),
        ("recovery", recovery(qp)),
        ("priority", format!("{} of 0 to 15, 802.1p priority {}", qp.priority, qp.priority / 2)),
        ("payload of a packet", text::bytes(qp.payload.into())),
    ]
}

/// What was agreed on, and what was offered if that is something else.
fn recovery(qp: &QpInfo) -> String {
    match &qp.recovery {
        Some(agreed) if *agreed == qp.recovery_offered => agreed.clone(),
        Some(agreed) => format!("{agreed}: the peer does not speak {}, which was offered", qp.recovery_offered),
        None => format!("not agreed yet; {} is offered", qp.recovery_offered),
    }
}

fn window(qp: &QpInfo) -> Rows {
    vec![
        ("packets in flight", format!("{} of at most {}", qp.in_flight, or_none(qp.window_cap))),
        ("congestion control", qp.congestion.as_ref().map_or_else(|| "none holds it back".to_owned(), congestion)),
        ("send requests", format!("{} of {}", qp.sq_used, qp.sq_depth)),
        ("receives", format!("{} of {}", qp.rq_used, qp.rq_depth)),
        ("reordering", format!("a packet came at most {} ahead of a gap", text::count(qp.farthest_early as usize, "packet"))),
        ("round trips", or_none(qp.rtt_percentiles_us.map(|[p50, p99, max]| format!("p50 {p50}, p99 {p99}, max {max} us")))),
        ("round trip now", or_none(qp.srtt_us.map(|rtt| format!("{rtt} us, varies by {} us", qp.rttvar_us.unwrap_or(0))))),
    ]
}

/// Every counter about `about`, under the daemon's name for it, so that none is forgotten when one is added.
fn counts(qp: &QpInfo, about: &str) -> Vec<(String, String)> {
    let row = |(name, count): (&String, &u64)| match name.strip_suffix("_nanos") {
        Some(name) => (name.replace('_', " "), ago(*count)),
        None => (name.replace('_', " "), count.to_string()),
    };
    qp.counts.iter().filter(|(name, _)| topic(name) == about).map(row).collect()
}

/// The last events of a queue pair.
pub(super) fn trace(trace: &QpTrace) -> String {
    if trace.events.is_empty() {
        return format!("queue pair {} has not been connected: nothing is kept", trace.qp);
    }
    let mut table: Table = table(&[">AGO", "EVENT", ">PSN", ">PACKETS", "DETAIL"]);
    for event in &trace.events {
        table.add_row([ago(event.ago_ns), name(event), or_none(event.psn), or_none(event.packets), or_none(event.detail.as_ref())]);
    }
    lines(&table)
}

/// A span of time.
fn ago(nanoseconds: u64) -> String {
    let micros = nanoseconds as f64 / 1000.0;
    if micros < 1e6 { format!("{micros:.1} us") } else { format!("{:.3} s", micros / 1e6) }
}

/// `sent`, `sent again`, ..., with the word `response` where it is not a request.
fn name(event: &QpEvent) -> String {
    let what = if event.stream.as_deref() == Some("responses") { "response " } else { "" };
    format!("{what}{}", event.event.replace('_', " "))
}

#[cfg(test)]
mod tests {
    use weft_config::control::QpCounters;

    use super::*;

    fn qp() -> QpInfo {
        serde_json::from_value(serde_json::json!({
            "qp": 258, "application": 3, "state": "established", "peer": "02:00:00:00:00:0b", "peer_name": "b", "peer_qp": 7, "priority": 9,
            "recovery_offered": "irn", "recovery": "go-back-n", "payload": 1400, "window_cap": 256, "in_flight": 12,
            "sq_used": 1, "sq_depth": 32, "rq_used": 2, "rq_depth": 64, "srtt_us": 80, "rttvar_us": 9,
            "rtt_percentiles_us": [75, 900, 1000], "farthest_early": 5,
            "congestion": { "algorithm": "swift", "window_milli_packets": 2500, "rate_bps": null },
            "counters": QpCounters::default(),
            "counts": { "retransmitted_fast": 11, "timeouts": 0, "rnr_sent": 3, "paced_nanos": 1_500, "stop_limited_nanos": 2_500, "bytes_sent": 9 },
        }))
        .unwrap()
    }

    #[test]
    fn one_queue_pair_shows_everything_and_that_it_fell_back() {
        let text = sections(&qp());
        for words in [
            "b (02:00:00:00:00:0b)",
            "go-back-n: the peer does not speak irn",
            "9 of 0 to 15, 802.1p priority 4",
            "12 of at most 256",
            "swift, window 2.500 packets",
            "p50 75, p99 900, max 1000 us",
            "at most 5 packets ahead",
            "80 us, varies by 9 us",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let value = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().parse::<u64>().ok());
        assert_eq!((value("retransmitted fast "), value("timeouts "), value("rnr sent ")), (Some(11), Some(0), Some(3)));
        let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
        assert!(place("traffic") < place("bytes sent") && place("bytes sent") < place("loss and recovery"), "{text}");
        let time = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
        assert_eq!((time("paced "), time("stop limited ")), (Some("1.5 us"), Some("2.5 us")), "{text}");
        assert!(place("congestion\n") < place("paced "), "{text}");
        let agreed = sections(&QpInfo { recovery: Some("irn".to_owned()), ..qp() });
        assert!(!agreed.contains("offered"), "{agreed}");
    }

    #[test]
    fn events_stand_in_a_table_with_their_age() {
        let event = |ago_ns, event: &str, stream: &str| QpEvent {
            ago_ns,
            event: event.to_owned(),
            stream: Some(stream.to_owned()),
            psn: Some(77),
            packets: None,
            detail: Some("loss".to_owned()),
        };
        let events = vec![event(2_500_000_000, "sent_again", "requests"), event(1500, "sent_again", "responses")];
        let text = trace(&QpTrace { qp: 1, events });
        let rows: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(rows, ["AGO EVENT PSN PACKETS DETAIL", "2.500 s sent again 77 - loss", "1.5 us response sent again 77 - loss"]);
        assert!(trace(&QpTrace { qp: 9, events: Vec::new() }).contains("nothing is kept"));
    }
}
