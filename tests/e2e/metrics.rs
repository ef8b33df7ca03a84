//! The daemons' numbers, read by a parser of the Prometheus format that is not ours.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use prometheus_parse::{Scrape, Value};

use crate::helper::{Role, result};
use crate::support::{LONG, Lab, Receiver, Topology, copy_ok, pattern, run, skip, within};

const BAD_LINK: &str = "rate: 1Gbit, loss: 1%, duplicate: 0.5%, corrupt: 0.5%,";
/// The worker publishes its numbers a few times a second.
const PUBLISHED: Duration = Duration::from_secs(10);

/// The answer of the node's metrics server, head and body.
fn get(lab: &Lab, node: &str, path: &str) -> (String, String) {
    let told = run(Role::Http { path: path.to_owned() }.command(lab, node), LONG).ok();
    let (head, body) = result(&told.stdout).split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// All samples of one scrape.
struct Samples {
    text: String,
    samples: Vec<prometheus_parse::Sample>,
}

impl Samples {
    fn of(lab: &Lab, node: &str) -> Self {
        let (head, text) = get(lab, node, "/metrics");
        assert!(head.starts_with("HTTP/1.") && head.contains(" 200 "), "{head}");
        assert!(head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
        let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap();
        Self { samples: scrape.samples, text }
    }

    /// The sum over all samples of the metric that have these labels.
    fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> u64 {
        let matching: Vec<_> = self
            .samples
            .iter()
            .filter(|sample| sample.metric == metric && labels.iter().all(|(name, value)| sample.labels.get(name) == Some(value)))
            .collect();
        assert!(!matching.is_empty(), "no {metric} with {labels:?}");
        let value = |sample: &prometheus_parse::Sample| match sample.value {
            Value::Counter(value) | Value::Gauge(value) => value as u64,
            ref other => panic!("{metric}: {other:?}"),
        };
        matching.into_iter().map(value).sum()
    }

    /// Everything that counts frames, to see whether it stands still.
    fn frames(&self) -> BTreeMap<String, u64> {
        let names =
            ["weft_port_received_frames_total", "weft_port_sent_frames_total", "weft_port_dropped_frames_total", "weft_queue_frames"];
        names.iter().map(|name| ((*name).to_owned(), self.sum(name, &[]))).collect()
    }
}

/// A scrape of every node, taken while nothing moves.
fn quiet(lab: &Lab) -> [Samples; 3] {
    let scrape = || ["a", "b", "s"].map(|node| Samples::of(lab, node));
    let frames = |samples: &[Samples; 3]| samples.each_ref().map(Samples::frames);
    let mut last = scrape();
    let still = within(Duration::from_secs(20), || {
        std::thread::sleep(Duration::from_millis(500));
        let next = scrape();
        let still = frames(&last) == frames(&next);
        last = next;
        still
    });
    assert!(still, "frames go on crossing a lab in which nothing happens");
    last
}

/// A lab through which a file has gone.
fn used_lab() -> Lab {
    let lab = Lab::up(&Topology { link_a: BAD_LINK, link_b: BAD_LINK, ..Topology::default() });
    let receiver = Receiver::start(&lab, "b", "in", &["--once"]);
    copy_ok(&lab, ("a", "b"), &[lab.folder.file("data", &pattern(21, 3 << 20))], &[]);
    receiver.wait(LONG).ok();
    lab
}

#[test]
fn every_frame_is_accounted_for_across_three_daemons() {
    let lab = used_lab();
    let [a, b, s] = quiet(&lab);
    let (received, sent) = ("weft_port_received_frames_total", "weft_port_sent_frames_total");
    // Along the cables: what one end sent, the other received.
    for (name, host) in [("a", &a), ("b", &b)] {
        assert_eq!(host.sum("weft_port_kernel_dropped_frames_total", &[]), 0);
        assert_eq!(s.sum("weft_port_kernel_dropped_frames_total", &[("port", name)]), 0);
        assert_eq!(host.sum(sent, &[("port", "eth0")]), s.sum(received, &[("port", name)]), "{name} to s");
        assert_eq!(s.sum(sent, &[("port", name)]), host.sum(received, &[("port", "eth0")]), "s to {name}");
        // Inside a host: the transport's frames are the local port's.
        assert_eq!(host.sum("weft_transport_sent_frames_total", &[]), host.sum(received, &[("port", "local")]));
        assert_eq!(host.sum("weft_transport_received_frames_total", &[]), host.sum(sent, &[("port", "local")]));
    }
    // Inside each node: in, and doubled on purpose, is out, dropped, or waiting.
    for (node, samples) in [("a", &a), ("b", &b), ("s", &s)] {
        let doubled = lab.json(node, &["counters"])["impaired"]["duplicated"].as_u64().unwrap();
        let entered = samples.sum(received, &[]) + doubled;
        let left = samples.sum(sent, &[]) + samples.sum("weft_port_dropped_frames_total", &[]) + samples.sum("weft_queue_frames", &[]);
        assert_eq!(entered, left, "{node}");
        assert_eq!(samples.sum("weft_queue_frames", &[]), 0, "{node}");
    }
}

#[test]
fn metrics_say_what_was_dropped_and_agree_with_the_control_socket() {
    let lab = used_lab();
    let [a, b, s] = quiet(&lab);
    let version = lab.json("a", &["status"])["version"].as_str().unwrap().to_owned();
    for samples in [&a, &b, &s] {
        assert_eq!(samples.sum("weft_build_info", &[("version", &version)]), 1);
    }
    let dropped = |samples: &Samples, reason| samples.sum("weft_port_dropped_frames_total", &[("reason", reason)]);
    assert!(dropped(&s, "impaired_loss") > 0);
    assert_eq!(dropped(&a, "impaired_loss") + dropped(&b, "impaired_loss"), 0, "only the switch loses frames on purpose");
    let damaged = ["a", "b"].map(|node| lab.json(node, &["counters"])["transport_drops"]["bad_icrc"].as_u64().unwrap_or(0));
    assert!(damaged[1] > 0, "no damaged frame reached b, which received thousands");
    for (samples, damaged) in [(&a, damaged[0]), (&b, damaged[1])] {
        assert_eq!(samples.sum("weft_transport_dropped_frames_total", &[("reason", "bad_icrc")]), damaged);
    }
    assert!(a.sum("weft_transport_retransmissions_total", &[]) > 0);
    assert_eq!(a.sum("weft_transport_payload_bytes_total", &[("direction", "sent")]) >> 20, 3);

    for (node, samples) in [("a", &a), ("b", &b), ("s", &s)] {
        for port in lab.json(node, &["port", "show"]).as_array().unwrap() {
            let label = [("port", port["name"].as_str().unwrap())];
            for (metric, counter) in [
                ("weft_port_received_frames_total", "rx_frames"),
                ("weft_port_received_bytes_total", "rx_bytes"),
                ("weft_port_sent_frames_total", "tx_frames"),
                ("weft_port_sent_bytes_total", "tx_bytes"),
            ] {
                assert_eq!(port["counters"][counter], samples.sum(metric, &label), "{node}: {metric}{label:?}");
            }
            let drops: u64 = port["counters"]["drops"].as_object().unwrap().values().map(|frames| frames.as_u64().unwrap()).sum();
            assert_eq!(samples.sum("weft_port_dropped_frames_total", &label), drops, "{node}: {label:?}");
            assert_eq!(samples.sum("weft_port_up", &label), 1);
        }
    }
    check_with_promtool(&s.text);
}

fn check_with_promtool(text: &str) {
    let command =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut promtool) = command else { return skip("promtool check metrics", "promtool is not installed") };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_went_to_a_peer_is_told_under_its_name_and_stays_when_the_connection_is_gone() {
    let lab = used_lab();
    let [a, b, s] = quiet(&lab);
    let to_b = [("peer", "b"), ("direction", "sent")];
    assert_eq!(a.sum("weft_peer_payload_bytes_total", &to_b), a.sum("weft_transport_payload_bytes_total", &[("direction", "sent")]));
    assert_eq!(a.sum("weft_peer_payload_bytes_total", &to_b) >> 20, 3);
    let from_a = [("peer", "a"), ("direction", "received")];
    assert_eq!(a.sum("weft_peer_payload_bytes_total", &to_b), b.sum("weft_peer_payload_bytes_total", &from_a));
    assert_eq!((a.sum("weft_peer_connections_total", &[("peer", "b")]), a.sum("weft_peer_queue_pairs", &[("peer", "b")])), (1, 0));
    assert!(a.sum("weft_peer_retransmissions_total", &[("peer", "b")]) > 0);
    assert_eq!(a.sum("weft_peer_retransmissions_total", &[]), a.sum("weft_transport_retransmissions_total", &[]));
    assert_eq!(a.sum("weft_peer_packets_total", &[("peer", "other")]), 0);
    assert!(!s.text.contains("weft_peer_queue_pairs{"), "a switch has no peers");
    assert!(!a.text.contains("qp="), "there are no series per queue pair");
    check_with_promtool(&a.text);
}

#[test]
fn the_health_of_a_node_and_the_cable_of_a_port_can_be_watched() {
    let lab = Lab::up(&Topology::default());
    for node in ["a", "b", "s"] {
        let (head, body) = get(&lab, node, "/healthz");
        assert!(head.contains(" 200 "), "{node}: {head}: {body}");
    }
    assert!(get(&lab, "a", "/nothing").0.contains(" 404 "));
    lab.link("a", "s", "down");
    assert!(within(PUBLISHED, || Samples::of(&lab, "a").sum("weft_port_up", &[("port", "eth0")]) == 0));
    assert!(within(PUBLISHED, || Samples::of(&lab, "s").sum("weft_port_up", &[("port", "a")]) == 0));
    assert_eq!(Samples::of(&lab, "s").sum("weft_port_up", &[("port", "b")]), 1);
}
