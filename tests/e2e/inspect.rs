//! What a person looks at while traffic flows, as JSON and as tables.

use std::ffi::OsStr;

use serde_json::Value;

use crate::failure::{Ongoing, USUAL, slow_lab};
use crate::support::{Background, LONG, Lab, Topology, within};

fn serve(lab: &Lab) -> Background {
    let server = lab.ctl_background("b", &[OsStr::new("serve")]);
    server.says("answering", LONG);
    server
}

#[test]
fn an_ongoing_transfer_can_be_looked_at_from_everywhere() {
    let lab = slow_lab(USUAL);
    let mut ongoing = Ongoing::start(&lab);

    let status = lab.json("a", &["status"]);
    assert_eq!((&status["node"], &status["qps"], &status["applications"]), (&Value::from("a"), &Value::from(1), &Value::from(1)));
    let qp = &lab.json("a", &["qp", "show"])[0];
    assert_eq!((qp["state"].as_str(), qp["peer_name"].as_str(), qp["recovery"].as_str()), (Some("established"), Some("b"), Some("irn")));
    assert!(qp["counters"]["sent_bytes"].as_u64().unwrap() > 0 && qp["srtt_us"].as_u64().unwrap() > 0, "{qp}");
    let peer = &lab.json("b", &["peer", "show"])[0];
    assert_eq!((peer["name"].as_str(), peer["qps"].as_u64()), (Some("a"), Some(1)));
    assert_eq!(peer["incarnation"], status["incarnation"]);
    let addresses = lab.json("s", &["fdb", "show"]);
    assert!(
        addresses.as_array().unwrap().iter().any(|entry| entry["mac"] == status["endpoint_mac"] && entry["port"] == "a"),
        "{addresses}"
    );
    // The slow port behind which frames wait is the one to b.
    let waiting = |queue: &Value| queue["output"] == "b" && queue["input"] == "a" && queue["frames"].as_u64().unwrap() > 0;
    assert!(within(LONG, || lab.json("s", &["queue", "show"]).as_array().unwrap().iter().any(waiting)));

    for (node, arguments, words) in [
        ("a", ["qp", "show"], ["STATE", "established"]),
        ("a", ["peer", "show"], ["INCARNATION", "b"]),
        ("a", ["port", "show"], ["RX-FRAMES", "eth0"]),
        ("s", ["port", "show"], ["ROLE", "switch"]),
        ("s", ["fdb", "show"], ["AGE", "b"]),
        ("s", ["queue", "show"], ["LIMIT", "b"]),
    ] {
        let table = lab.ctl(node, &arguments).ok().stdout;
        assert!(table.lines().count() >= 2 && words.iter().all(|word| table.contains(word)), "{node} {arguments:?}: {table}");
    }
    let status = lab.ctl("s", &["status"]).ok().stdout;
    assert!(status.contains("node s") && status.contains("none (no host port)"), "{status}");
    assert!(ongoing.sender.is_running(), "the transfer was over before everything had been looked at");
}

#[test]
fn ping_and_bench_measure_a_lossy_path() {
    let lossy = "rate: 1Gbit, loss: 0.5%,";
    let lab = Lab::up(&Topology { link_a: lossy, link_b: lossy, ..Topology::default() });
    let _server = serve(&lab);
    let ping = lab.json("a", &["ping", "b", "--count", "20", "--interval", "5ms", "--timeout", "5s"]);
    assert_eq!((&ping["sent"], &ping["answered"]), (&Value::from(20), &Value::from(20)));
    assert!(ping["round_trip"]["p50_us"].as_f64().unwrap() > 0.0);
    let text = lab.ctl("a", &["ping", "b", "--count", "2", "--interval", "1ms", "--timeout", "5s"]).ok().stdout;
    assert!(text.contains("seq=2") && text.contains("2 sent, 2 answered"), "{text}");

    for operation in ["write", "send"] {
        let arguments = ["bench", operation, "--to", "b", "--size", "16KiB", "--count", "150", "--depth", "8"];
        let result = lab.json("a", &arguments);
        assert_eq!((&result["operation"], &result["messages"]), (&Value::from(operation), &Value::from(150)));
        assert_eq!(result["bytes"], 150 << 14);
        for key in ["goodput_bps", "messages_per_second", "daemon_cpu_ns_per_byte"] {
            assert!(result[key].as_f64().unwrap() > 0.0, "{key}: {result}");
        }
        assert!(result["latency"]["p99_us"].as_f64().unwrap() >= result["latency"]["p50_us"].as_f64().unwrap());
        let text = lab.ctl("a", &arguments).ok().stdout;
        assert!(text.contains("goodput") && text.contains("p99"), "{text}");
    }
}

#[test]
fn commands_without_somebody_at_the_other_end_say_what_to_do() {
    let lab = Lab::up(&Topology { config: "{}", ..Topology::default() });
    let file = lab.folder.file("data", b"data");
    let file = file.to_str().unwrap();
    let nobody = lab.ctl("a", &["cp", file, "b:"]).fails(3);
    assert!(nobody.contains("start `weftctl receive DIR` there"), "{nobody}");
    let nobody = lab.ctl("a", &["ping", "b", "--count", "1"]).fails(3);
    assert!(nobody.contains("start `weftctl serve`"), "{nobody}");
    let unknown = lab.ctl("a", &["cp", file, "c:"]).fails(2);
    assert!(unknown.contains('c') && unknown.contains("hosts"), "{unknown}");
    lab.kill("b");
    let silent = lab.ctl("a", &["cp", file, "b:"]).fails(3);
    assert!(silent.contains("b does not answer"), "{silent}");
    let no_daemon = lab.ctl("b", &["status"]).fails(3);
    assert!(no_daemon.contains("weftd"), "{no_daemon}");
}
