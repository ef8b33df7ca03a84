use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use prometheus_parse::{Scrape, Value};
use weft_proto::stop::{StopCounters, WatchView};
use weft_proto::switch::{FlowCounters, Traffic};
use weft_proto::transport::PeerTotals;
use weft_proto::wire::MacAddr;
use weft_proto::{DropReason, Duration, Instant};

use super::*;
use crate::snapshot::{PortSnapshot, StopSnapshot, TransportSnapshot};

fn full_board() -> Arc<Board> {
    let board = Arc::new(Board::default());
    board.try_publish(|snapshot| {
        let mut port = PortSnapshot { name: "eth0".into(), up: true, ..Default::default() };
        port.counters.received = Traffic { frames: 7, bytes: 700 };
        port.counters.received_drops.add(DropReason::ImpairedLoss, 2);
        port.io_drops.add(DropReason::ImpairedLoss, 1);
        port.counters.flow = FlowCounters { sent: 14, received: 15, ignored: 16, paused: Duration::from_millis(1500), watchdog_trips: 17 };
        (port.kernel_drops, port.send_refusals, port.reopens) = (11, 12, 13);
        snapshot.ports = vec![port, PortSnapshot { name: "od\"d\\\nname".into(), ..Default::default() }];
        let mut transport = TransportSnapshot::default();
        transport.counters.retransmitted_timeout = 4;
        snapshot.transport = Some(transport);
        snapshot.peers = [None, Some(B), Some(C)].map(totals).into();
        snapshot.stop = Some(stop());
        snapshot.worker.breaths = 10;
        snapshot.worker.busy_breaths = 4;
    });
    board.set_hosts(&[("b".to_owned(), B), ("other".to_owned(), C)].into());
    board
}

fn stop() -> StopSnapshot {
    let counters =
        StopCounters { refreshes_sent: 21, cancels_received: 22, capped: 23, late_frames: 24, late_frames_max: 25, ..Default::default() };
    let mut refused = weft_proto::DropCounts::default();
    refused.add(DropReason::StopReplay, 26);
    let watch = WatchView {
        port: weft_proto::PortId(0),
        congested_since: Some(Instant::from_nanos(1)),
        signs: [Some(true), None, None],
        sources: 2,
        congestions: 27,
    };
    let stopped = vec![(B, Duration::from_millis(1500))];
    StopSnapshot {
        counters,
        refused,
        stopped,
        stopped_by_others: Duration::from_millis(250),
        watches: vec![watch],
        stopping: 28,
        asked: 29,
    }
}

const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);
const C: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0c]);

fn totals(peer: Option<MacAddr>) -> PeerTotals {
    let number = peer.map_or(1, |mac| mac.0[5].into());
    let mut totals = PeerTotals { peer, queue_pairs: 2, connections: 5, ..PeerTotals::default() };
    totals.rtt = peer.map(|_| Duration::from_micros(number));
    (totals.counters.bytes_received, totals.counters.retransmitted_fast) = (number * 100, number);
    totals
}

fn scrape(text: &str) -> Scrape {
    Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap()
}

fn value(scrape: &Scrape, name: &str, labels: &[(&str, &str)]) -> Value {
    let fits = |s: &&prometheus_parse::Sample| s.metric == name && labels.iter().all(|&(k, v)| s.labels.get(k) == Some(v));
    let found: Vec<_> = scrape.samples.iter().filter(fits).collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}");
    found[0].value.clone()
}

#[test]
fn a_foreign_parser_reads_every_family_with_its_kind_and_help() {
    let text = Metrics::new(full_board()).unwrap().text().unwrap();
    let scrape = scrape(&text);
    for family in CATALOGUE {
        let samples: Vec<_> = scrape.samples.iter().filter(|s| s.metric == family.name).collect();
        assert!(!samples.is_empty(), "{} has no sample", family.name);
        let counter = samples.iter().all(|s| matches!(s.value, Value::Counter(_)));
        assert_eq!(counter, family.kind == Kind::Counter, "{}", family.name);
        assert_eq!(scrape.docs.get(family.name).map(String::as_str), Some(family.help));
    }
}

#[test]
fn numbers_arrive_under_their_labels() {
    let scrape = scrape(&Metrics::new(full_board()).unwrap().text().unwrap());
    assert_eq!(value(&scrape, "weft_port_received_bytes_total", &[("port", "eth0")]), Value::Counter(700.0));
    for (name, number) in [("kernel_dropped_frames", 11.0), ("send_refusals", 12.0), ("reopens", 13.0)] {
        assert_eq!(value(&scrape, &format!("weft_port_{name}_total"), &[("port", "eth0")]), Value::Counter(number));
    }
    for (direction, number) in [("sent", 14.0), ("received", 15.0), ("ignored", 16.0)] {
        let labels = [("port", "eth0"), ("direction", direction)];
        assert_eq!(value(&scrape, "weft_port_flow_control_frames_total", &labels), Value::Counter(number));
    }
    assert_eq!(value(&scrape, "weft_port_paused_seconds_total", &[("port", "eth0")]), Value::Counter(1.5));
    assert_eq!(value(&scrape, "weft_port_pause_watchdog_trips_total", &[("port", "eth0")]), Value::Counter(17.0));
    let loss = [("port", "eth0"), ("reason", "impaired_loss")];
    assert_eq!(value(&scrape, "weft_port_dropped_frames_total", &loss), Value::Counter(3.0));
    assert_eq!(value(&scrape, "weft_transport_retransmissions_total", &[("cause", "timeout")]), Value::Counter(4.0));
    assert_eq!(value(&scrape, "weft_worker_batches_total", &[("kind", "idle")]), Value::Counter(6.0));
}

#[test]
fn stop_control_is_counted_by_command_reason_outcome_peer_and_port() {
    let scrape = scrape(&Metrics::new(full_board()).unwrap().text().unwrap());
    for (name, label, number) in [
        ("sent_packets", ("command", "refresh"), 21.0),
        ("received_packets", ("command", "cancel"), 22.0),
        ("stops", ("outcome", "capped"), 23.0),
        ("refused_packets", ("reason", "stop_replay"), 26.0),
        ("refused_packets", ("reason", "stop_bad_tag"), 0.0),
        ("stopped_seconds", ("peer", "b"), 1.5),
        ("stopped_seconds", ("peer", "other"), 0.25),
        ("congestions", ("port", "eth0"), 27.0),
    ] {
        assert_eq!(value(&scrape, &format!("weft_stop_{name}_total"), &[label]), Value::Counter(number), "{name}");
    }
    assert_eq!(value(&scrape, "weft_stop_late_frames_total", &[]), Value::Counter(24.0));
    for (name, number) in [("late_frames_max", 25.0), ("stopping_hosts", 28.0), ("asked_hosts", 29.0)] {
        assert_eq!(value(&scrape, &format!("weft_stop_{name}"), &[]), Value::Gauge(number));
    }
    assert_eq!(value(&scrape, "weft_stop_congested", &[("port", "eth0")]), Value::Gauge(1.0));
}

#[test]
fn a_peer_has_its_name_or_its_address_and_what_is_left_is_other() {
    let scrape = scrape(&Metrics::new(full_board()).unwrap().text().unwrap());
    for (peer, number) in [("b", 11.0), ("02:00:00:00:00:0c", 12.0), ("other", 1.0)] {
        let received = [("peer", peer), ("direction", "received")];
        assert_eq!(value(&scrape, "weft_peer_payload_bytes_total", &received), Value::Counter(number * 100.0));
        assert_eq!(value(&scrape, "weft_peer_retransmissions_total", &[("peer", peer), ("cause", "loss")]), Value::Counter(number));
        assert_eq!(value(&scrape, "weft_peer_connections_total", &[("peer", peer)]), Value::Counter(5.0));
    }
    assert_eq!(value(&scrape, "weft_peer_round_trip_seconds", &[("peer", "b")]), Value::Gauge(11e-6));
    let round_trips = scrape.samples.iter().filter(|sample| sample.metric == "weft_peer_round_trip_seconds");
    assert_eq!(round_trips.count(), 2, "what was not measured is not shown");
}

#[test]
fn every_drop_reason_is_there_before_its_first_drop() {
    let scrape = scrape(&Metrics::new(full_board()).unwrap().text().unwrap());
    let of_port = |s: &&prometheus_parse::Sample| s.metric == "weft_port_dropped_frames_total" && s.labels.get("port") == Some("eth0");
    let reasons: BTreeSet<_> = scrape.samples.iter().filter(of_port).filter_map(|s| s.labels.get("reason")).collect();
    assert_eq!(reasons, DropReason::ALL.iter().map(|r| r.label()).collect());
}

#[test]
fn names_follow_the_conventions() {
    let mut names = BTreeSet::new();
    for family in CATALOGUE {
        assert!(names.insert(family.name), "{} is there twice", family.name);
        assert!(family.name.starts_with("weft_"), "{}", family.name);
        assert_eq!(family.name.ends_with("_total"), family.kind == Kind::Counter, "{}", family.name);
        assert!(family.help.ends_with('.'), "{}", family.name);
    }
}

#[test]
fn the_page_of_metrics_is_the_catalogue() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    if std::env::var_os("WEFT_WRITE_DOCS").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == page(), "docs/metrics.md is out of date: run the daemon's tests once with WEFT_WRITE_DOCS=1");
}

fn early() -> Instant {
    Instant::ZERO + Duration::from_secs(9)
}

fn late() -> Instant {
    Instant::ZERO + Duration::from_secs(10)
}

fn fetch(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address().unwrap()).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: weft\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn start(clock: fn() -> Instant) -> Server {
    Server::start("127.0.0.1:0".parse().unwrap(), full_board(), clock).unwrap()
}

#[test]
fn the_server_answers_its_two_paths_and_no_other() {
    let server = start(early);
    let metrics = fetch(&server, "GET /metrics");
    assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("text/plain; version=0.0.4"), "{metrics}");
    assert!(metrics.contains("weft_port_received_frames_total{port=\"eth0\"} 7"), "{metrics}");
    assert!(fetch(&server, "GET /healthz").starts_with("HTTP/1.1 200"));
    assert!(fetch(&server, "GET /").starts_with("HTTP/1.1 404"));
    assert!(fetch(&server, "GET /metrics/../etc/passwd").starts_with("HTTP/1.1 404"));
    assert!(fetch(&server, "POST /metrics").starts_with("HTTP/1.1 405"));
}

#[test]
fn head_is_get_without_the_page() {
    let server = start(early);
    let answer = fetch(&server, "HEAD /healthz");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Content-Length: 3\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(fetch(&server, "nonsense").starts_with("HTTP/1.1 400"));
}

/// Far longer than any client is waited for: reached only if something hangs.
const HANGS_AFTER: std::time::Duration = std::time::Duration::from_secs(30);

/// Runs `action` on another thread and panics if it does not end.
fn must_end<T: Send + 'static>(action: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(action()));
    ended.recv_timeout(HANGS_AFTER).expect("it hangs")
}

/// While `client` misbehaves, the next client is served; and the server ends while another one misbehaves.
fn survives(client: fn(SocketAddr) -> TcpStream, board: Arc<Board>) {
    let server = Server::start("127.0.0.1:0".parse().unwrap(), board, early).unwrap();
    let address = server.address().unwrap();
    let _first = must_end(move || client(address));
    let (server, answer) = must_end(move || {
        let answer = fetch(&server, "GET /healthz");
        (server, answer)
    });
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let _second = must_end(move || client(address));
    must_end(move || drop(server));
}

#[test]
fn a_client_that_says_nothing_is_given_up() {
    survives(|address| TcpStream::connect(address).unwrap(), full_board());
}

#[test]
fn a_client_that_does_not_read_is_given_up() {
    let board = Arc::new(Board::default());
    // A page that no socket buffer holds.
    let port = |number| PortSnapshot { name: format!("port{number}"), ..Default::default() };
    board.try_publish(|snapshot| snapshot.ports = (0..4000).map(port).collect());
    let client = |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        stream
    };
    survives(client, board);
}

#[test]
fn a_head_without_end_is_refused() {
    let client = |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
        // The server may have hung up before all of it is sent.
        let _ = stream.write_all(head.as_bytes());
        stream
    };
    survives(client, full_board());
    let server = start(early);
    let mut stream = TcpStream::connect(server.address().unwrap()).unwrap();
    write!(stream, "{:x<8192}", "GET /metrics HTTP/1.1\r\nX: ").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[test]
fn a_silent_worker_is_unhealthy() {
    let answer = fetch(&start(late), "GET /healthz");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("has not run for 10 s"), "{answer}");
}

#[test]
fn a_taken_address_is_named_with_the_key() {
    let server = start(early);
    let error = Server::start(server.address().unwrap(), full_board(), early).unwrap_err().to_string();
    assert!(error.starts_with("metrics.listen: cannot listen on 127.0.0.1:"), "{error}");
    assert!(error.contains("metrics.enabled: false"), "{error}");
}
