//! Stop control as people read it. Pure: answers in, text out.

use weft_config::control::{StopAsked, StopAsker, StopCancelled, StopCounters, StopEvent, StopInfo, StopPort, StopSent};
use weft_proto::stop::EVERYTHING;

use crate::show::lines;
use crate::show::tables::{drops, or_none, table};
use crate::text;

fn micros(span: u64) -> String {
    text::nanoseconds(span.saturating_mul(1000))
}

fn span(span: Option<u64>) -> String {
    or_none(span.map(micros))
}

fn host<'a>(name: Option<&'a str>, mac: &'a str) -> &'a str {
    name.unwrap_or(mac)
}

fn below(priority: u8) -> String {
    if priority >= EVERYTHING { "all".to_owned() } else { format!("below {priority}") }
}

fn percent(permille: u32) -> String {
    format!("{}.{}%", permille / 10, permille % 10)
}

pub(super) fn info(info: &StopInfo) -> String {
    let obeys = if info.obeys { "obeys" } else { "does not obey" };
    let detects = if info.detects { "asks by itself" } else { "does not ask by itself" };
    let mut parts = vec![format!("stop control of {}: {obeys}, {detects}", info.mac)];
    parts.push(match info.askers.items.as_slice() {
        [] => "no host asked this node to stop".to_owned(),
        askers => format!("hosts that asked this node to stop\n{}", lines(&askers_table(askers))),
    });
    parts.push(match info.asked.items.as_slice() {
        [] => "this node asks nobody to stop".to_owned(),
        asked => format!("hosts that this node asks to stop\n{}", lines(&asked_table(asked))),
    });
    if !info.ports.is_empty() {
        parts.push(format!("watched ports\n{}", lines(&ports_table(&info.ports))));
    }
    parts.push(counters(&info.counters));
    if !info.refused.is_empty() {
        parts.push(format!("refused: {}", drops(&info.refused)));
    }
    parts.join("\n\n")
}

fn askers_table(askers: &[StopAsker]) -> comfy_table::Table {
    let mut table = table(&["HOST", "STANDING", "FRAMES", ">RATE", ">SINCE", ">REMAINING", ">STOPPED", ">STOPS"]);
    for asker in askers {
        table.add_row([
            host(asker.name.as_deref(), &asker.mac).to_owned(),
            asker.standing.clone(),
            or_none(asker.below.map(below)),
            or_none(asker.share_permille.map(percent)),
            span(asker.since_us),
            span(asker.remaining_us),
            micros(asker.stopped_us),
            asker.stops.to_string(),
        ]);
    }
    table
}

fn asked_table(asked: &[StopAsked]) -> comfy_table::Table {
    let mut table = table(&["HOST", "BECAUSE OF", "FRAMES", ">RATE", ">TIMER", ">SINCE", ">REMAINING", ">TIMES"]);
    for entry in asked {
        table.add_row([
            host(entry.name.as_deref(), &entry.mac).to_owned(),
            entry.port.as_ref().map_or_else(|| "an operator".to_owned(), |port| format!("port {port}")),
            below(entry.priority),
            entry.rate.to_string(),
            entry.timer.to_string(),
            micros(entry.since_us),
            micros(entry.remaining_us),
            entry.times.to_string(),
        ]);
    }
    table
}

fn ports_table(ports: &[StopPort]) -> comfy_table::Table {
    let sign = |sign: Option<bool>| or_none(sign.map(|sign| if sign { "yes" } else { "no" }));
    let mut table = table(&["PORT", "CONGESTED", ">FOR", "VOLUME", "GAP", "DELIMITER", ">SOURCES", ">TIMES"]);
    for port in ports {
        table.add_row([
            port.port.clone(),
            if port.congested_us.is_some() { "YES" } else { "no" }.to_owned(),
            span(port.congested_us),
            sign(port.volume),
            sign(port.gap),
            sign(port.delimiter),
            port.sources.to_string(),
            port.congestions.to_string(),
        ]);
    }
    table
}

fn counters(counters: &StopCounters) -> String {
    let StopCounters { stops_sent, refreshes_sent, cancels_sent, stops_received, cancels_received, .. } = *counters;
    let StopCounters { obeyed, extended, expired, cancelled, capped, stopped_us, .. } = *counters;
    let StopCounters { late_frames, late_frames_max, congestions, .. } = *counters;
    format!(
        "sent:     {stops_sent} stop, {refreshes_sent} again, {cancels_sent} cancel; {congestions} congestions\n\
         received: {stops_received} stop, {cancels_received} cancel\n\
         stops:    {obeyed} obeyed, {extended} extended; {expired} expired, {cancelled} cancelled, {capped} capped; {} in all\n\
         late:     {late_frames} frames after a stop packet, at most {late_frames_max} after one",
        micros(stopped_us)
    )
}

pub(super) fn sent(sent: &StopSent) -> String {
    let timer = if sent.timer == 0 { "for its own time".to_owned() } else { format!("for {} ticks", sent.timer) };
    let host = host(sent.name.as_deref(), &sent.mac);
    format!(
        "{host} is asked to stop frames {} {timer}, rate {}",
        if sent.priority == 0 { "of its choice".to_owned() } else { below(sent.priority) },
        sent.rate
    )
}

pub(super) fn cancelled(cancelled: &StopCancelled) -> String {
    format!("{} may send again", host(cancelled.name.as_deref(), &cancelled.mac))
}

/// One line: time of day in UTC, what, who, the rest.
pub(super) fn event(event: &StopEvent) -> String {
    let who = event.name.as_deref().or(event.mac.as_deref()).or(event.port.as_deref()).unwrap_or("-");
    let parts = [
        event.sources.map(|sources| text::count(sources.try_into().unwrap_or(usize::MAX), "source")),
        event.below.map(below),
        event.share_permille.map(|share| format!("rate {}", percent(share))),
        event.rate.map(|rate| format!("rate {rate}")),
        event.timer.map(|timer| format!("timer {timer}")),
        event.for_us.map(|span| format!("for {}", micros(span))),
        event.cause.clone(),
    ];
    let line = format!(
        "{}  {:<9}  {:<17}  {}",
        time_of_day(event.unix_ns),
        event.event,
        who,
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    );
    line.trim_end().to_owned()
}

fn time_of_day(unix_ns: u64) -> String {
    let (seconds, micros) = (unix_ns / 1_000_000_000 % 86_400, unix_ns / 1000 % 1_000_000);
    format!("{:02}:{:02}:{:02}.{micros:06}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use weft_config::control::Page;

    use super::*;

    fn rows(text: &str) -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    fn example() -> StopInfo {
        let asker = StopAsker {
            mac: "02:00:00:00:00:0b".to_owned(),
            name: Some("b".to_owned()),
            standing: "slowed".to_owned(),
            below: Some(15),
            share_permille: Some(500),
            since_us: Some(1500),
            remaining_us: Some(500),
            stopped_us: 2_000_000,
            stops: 7,
        };
        let asked = StopAsked {
            mac: "02:00:00:00:00:0c".to_owned(),
            name: None,
            priority: 16,
            timer: 200,
            rate: 0,
            since_us: 10,
            remaining_us: 20,
            port: Some("eth0".to_owned()),
            times: 3,
        };
        let port = StopPort {
            port: "eth0".to_owned(),
            congested_us: Some(900),
            volume: Some(true),
            gap: Some(false),
            delimiter: None,
            sources: 4,
            congestions: 6,
        };
        StopInfo {
            mac: "02:00:00:00:00:0a".to_owned(),
            obeys: true,
            detects: false,
            ports: vec![port],
            askers: Page { total: 1, offset: 0, items: vec![asker] },
            asked: Page { total: 1, offset: 0, items: vec![asked] },
            counters: StopCounters { stops_sent: 11, extended: 12, late_frames_max: 13, ..StopCounters::default() },
            refused: [("stop_replay".to_owned(), 9)].into(),
        }
    }

    #[test]
    fn who_holds_whom_back_stands_in_tables_with_what_is_counted() {
        let text = info(&example());
        let rows = rows(&text);
        for row in [
            "stop control of 02:00:00:00:00:0a: obeys, does not ask by itself",
            "b slowed below 15 50.0% 1.50 ms 500 us 2.00 s 7",
            "02:00:00:00:00:0c port eth0 all 0 200 10.0 us 20.0 us 3",
            "eth0 YES 900 us yes no - 4 6",
            "sent: 11 stop, 0 again, 0 cancel; 0 congestions",
            "late: 0 frames after a stop packet, at most 13 after one",
        ] {
            assert!(rows.iter().any(|found| found == row), "{row}: {text}");
        }
        assert!(text.ends_with("stop_replay 9") || text.contains("stop_replay"), "{text}");
    }

    #[test]
    fn a_quiet_node_says_so() {
        let none = |total| Page { total, offset: 0, items: Vec::new() };
        let quiet = StopInfo { askers: Page { total: 0, offset: 0, items: Vec::new() }, asked: none(0), ..example() };
        let text = info(&quiet);
        assert!(text.contains("no host asked this node to stop") && text.contains("this node asks nobody to stop"), "{text}");
    }

    #[test]
    fn an_event_is_one_line_with_its_time_of_day() {
        let obeyed = StopEvent {
            unix_ns: (86_400 + 3661) * 1_000_000_000 + 42_000,
            event: "obeyed".to_owned(),
            name: Some("b".to_owned()),
            below: Some(15),
            share_permille: Some(0),
            for_us: Some(2000),
            ..StopEvent::default()
        };
        assert_eq!(rows(&event(&obeyed)), ["01:01:01.000042 obeyed b below 15, rate 0.0%, for 2.00 ms"]);
        let congested =
            StopEvent { event: "congested".to_owned(), port: Some("eth0".to_owned()), sources: Some(1), ..StopEvent::default() };
        assert_eq!(rows(&event(&congested)), ["00:00:00.000000 congested eth0 1 source"]);
        let resolved = StopEvent { event: "resolved".to_owned(), port: Some("eth0".to_owned()), ..StopEvent::default() };
        assert!(event(&resolved).ends_with("eth0"));
    }

    #[test]
    fn what_was_asked_by_hand_is_repeated() {
        let sent_to = |priority, timer| sent(&StopSent { mac: "m".to_owned(), name: Some("b".to_owned()), priority, timer, rate: 0 });
        assert_eq!(sent_to(15, 200), "b is asked to stop frames below 15 for 200 ticks, rate 0");
        assert_eq!(sent_to(0, 0), "b is asked to stop frames of its choice for its own time, rate 0");
        assert_eq!(cancelled(&StopCancelled { mac: "m".to_owned(), name: None }), "m may send again");
    }
}
