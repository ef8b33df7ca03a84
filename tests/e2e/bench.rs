//! Measurements of every kind over a lossy path, and what the tools tell about the queue pairs under them.

use std::ffi::OsStr;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Background, LONG, Lab, Topology, within};

const LOSSY: &str = "rate: 1Gbit, loss: 1%,";

/// A lab whose links lose frames, with `weftctl serve` on b.
fn lossy_lab() -> (Lab, Background) {
    let lab = Lab::up(&Topology { link_a: LOSSY, link_b: LOSSY, ..Topology::default() });
    let server = lab.ctl_background("b", &[OsStr::new("serve")]);
    server.says("answering", LONG);
    (lab, server)
}

fn bench(lab: &Lab, arguments: &[&str]) -> Value {
    lab.json("a", &[&["bench"], arguments, &["--to", "b"]].concat())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn reads_and_atomics_over_a_lossy_path_move_what_is_there_and_apply_once() {
    let (lab, _server) = lossy_lab();
    // The command itself compares the bytes read, and the sum that the atomics leave.
    let read = bench(&lab, &["read", "--size", "16KiB", "--count", "200", "--depth", "8"]);
    assert_eq!((&read["operation"], &read["messages"], &read["bytes"]), (&"read".into(), &200.into(), &(200 << 14).into()));
    for operation in ["fetch-add", "compare-swap"] {
        let atomic = bench(&lab, &["atomic", "--operation", operation, "--count", "2000"]);
        assert_eq!((&atomic["operation"], &atomic["messages"], &atomic["size"]), (&operation.into(), &2000.into(), &8.into()));
        assert!(number(&atomic["retransmissions"]) > 0, "nothing was lost: {atomic}");
    }
    let counts = read["histogram"].as_array().unwrap().iter().map(|bucket| number(&bucket["count"]));
    assert_eq!(counts.sum::<u64>(), 200);
    for operation in ["send", "write", "read", "fetch-add", "compare-swap"] {
        let latency = bench(&lab, &["latency", "--operation", operation, "--count", "50"]);
        let spans = if operation == "send" { &latency["half_round_trip"] } else { &latency["round_trip"] };
        assert!(latency["count"] == 50 && spans["p50_us"].as_f64() > Some(0.0), "{operation}: {latency}");
    }
}

#[test]
fn many_queue_pairs_and_both_directions_at_once_are_measured_together() {
    let (lab, _server) = lossy_lab();
    for operation in [&["send"][..], &["write"], &["read"], &["atomic"]] {
        let load = ["--qps", "5", "--count", "40", "--depth", "4", "--both"];
        let both = bench(&lab, &[operation, &load].concat());
        assert_eq!((&both["queue_pairs"], &both["messages"]), (&5.into(), &200.into()), "{both}");
        let back = &both["back"];
        assert_eq!(number(&back["bytes"]), number(&back["messages"]) * number(&both["size"]));
        assert!(number(&back["messages"]) > 0 && back["goodput_bps"].as_f64() > Some(0.0), "{both}");
    }
    let alone = bench(&lab, &["write", "--qps", "40", "--count", "5", "--size", "4KiB"]);
    assert!(alone["messages"] == 200 && alone["back"].is_null(), "{alone}");
    // Their connections are closed again on both sides.
    for node in ["a", "b"] {
        assert!(within(LONG, || lab.json(node, &["qp", "show"]).as_array().unwrap().is_empty()), "{node}");
    }
}

#[test]
fn a_sweep_has_a_row_for_each_size_and_inline_bytes_arrive() {
    let (lab, _server) = lossy_lab();
    let table = lab.ctl("a", &["bench", "write", "--to", "b", "--sizes", "64..1KiB", "--count", "50"]).ok().stdout;
    let sizes: Vec<_> = table.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(sizes, ["64", "128", "256", "512", "1024"], "{table}");
    let lines = lab.ctl("a", &["bench", "send", "--to", "b", "--sizes", "16..64", "--count", "50", "--inline", "--json"]).ok().stdout;
    let results: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.iter().map(|result| number(&result["bytes"])).collect::<Vec<_>>(), [800, 1600, 3200]);
    let text = lab.ctl("a", &["bench", "latency", "--to", "b", "--count", "30", "--histogram"]).ok().stdout;
    assert!(text.contains("p99.9") && text.contains('#'), "{text}");
}

#[test]
fn measurements_that_cannot_be_say_which_option_to_change() {
    let (lab, _server) = lossy_lab();
    let fails = |arguments: &[&str], words: &str| {
        let error = lab.ctl("a", &[&["bench"], arguments, &["--to", "b"]].concat()).fails(2);
        assert!(error.contains(words), "{arguments:?}: {error}");
    };
    fails(&["send", "--size", "1MiB", "--depth", "1000"], "take less of --size, --depth or --qps");
    fails(&["write", "--size", "65", "--inline"], "take less with --size");
    fails(&["read", "--qps", "0"], "--qps");
    fails(&["write", "--sizes", "8KiB..64"], "--sizes");
    fails(&["latency", "--size", "4"], "take more with --size");
}

#[test]
fn an_interrupted_measurement_tells_what_there_was_until_then() {
    let (lab, _server) = lossy_lab();
    let arguments = ["bench", "write", "--to", "b", "--duration", "600s", "--qps", "2", "--json"].map(OsStr::new);
    let measuring = lab.ctl_background("a", &arguments);
    let sent = || lab.json("a", &["counters"])["transport"]["sent_bytes"].as_u64() > Some(1 << 20);
    assert!(within(LONG, sent), "nothing is sent");
    measuring.signal(Signal::INT);
    let ended = measuring.wait(LONG);
    let result = ended.json();
    assert!(result["interrupted"] == true && number(&result["messages"]) > 0, "{result}");
    assert!(ended.fails(130).contains("interrupted"));
}

#[test]
fn the_trace_of_a_queue_pair_shows_what_was_sent_again_and_why() {
    let (lab, _server) = lossy_lab();
    let mut measuring = lab.ctl_background("a", &["bench", "write", "--to", "b", "--duration", "600s"].map(OsStr::new));
    let queue_pair = || lab.json("a", &["qp", "show"])[0]["qp"].as_u64();
    assert!(within(LONG, || queue_pair().is_some()), "there is no queue pair");
    let qp = queue_pair().unwrap().to_string();
    let again = || {
        let trace = lab.json("a", &["qp", "trace", &qp]);
        let events = trace["events"].as_array().unwrap().clone();
        assert!(events.len() <= 64, "{trace}");
        events.into_iter().find(|event| event["event"] == "sent_again")
    };
    let mut event = None;
    assert!(within(LONG, || {
        event = event.take().or_else(again);
        event.is_some()
    }));
    let event = event.unwrap();
    assert!(event["psn"].is_u64() && event["stream"] == "requests" && event["detail"].is_string(), "{event}");

    let few = lab.json("a", &["qp", "trace", &qp, "--last", "3"]);
    assert_eq!(few["events"].as_array().unwrap().len(), 3);
    let table = lab.ctl("a", &["qp", "trace", &qp]).ok().stdout;
    assert!(table.contains("EVENT") && table.contains("ack received"), "{table}");
    let one = lab.ctl("a", &["qp", "show", &qp]).ok().stdout;
    assert!(one.contains("established") && one.contains("packets in flight") && one.contains("retransmitted fast"), "{one}");
    let none = lab.ctl("a", &["qp", "trace", "77"]).fails(1);
    assert!(none.contains("qp show"), "{none}");
    assert!(measuring.is_running());
}
