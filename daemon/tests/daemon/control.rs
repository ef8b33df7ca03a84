//! The admin socket of a running daemon.

use std::fs;
use std::io::Write;
use std::net::Shutdown;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Namespace, Weftd, eventually, read_line};

fn request(id: u64, kind: &str) -> String {
    json!({"version": 1, "id": id, "request": {"type": kind}}).to_string() + "\n"
}

#[test]
fn every_request_has_an_answer_of_its_shape() {
    let namespace = Namespace::with_cable();
    let weftd = namespace.host("a");
    let ports = weftd.ask("ports");
    assert_eq!((&ports["items"][0]["interface"], &ports["items"][0]["mtu"]), (&json!("va"), &json!(1500)), "{ports}");
    assert_eq!(weftd.ask("hosts")["total"], 2);
    assert_eq!(weftd.ask("qps")["total"], 0);
    assert_eq!(weftd.ask("peers")["total"], 0);
    assert_eq!(weftd.ask("queues")["total"], 0);
    let addresses = weftd.ask("fdb");
    assert_eq!(addresses["items"][0], json!({"mac": "02:00:00:00:00:0a", "port": "local", "age_seconds": 0}));
    assert_eq!(weftd.ask("counters")["buffers_used"], 0);
    assert!(weftd.ask("config")["yaml"].as_str().unwrap().contains("mac_ageing"));
    weftd.stop();
}

#[test]
fn several_requests_on_one_connection_are_answered_in_order_also_after_a_half_close() {
    let namespace = Namespace::with_cable();
    let weftd = namespace.host("a");
    let mut stream = weftd.connect();
    let lines: String = (1..=40).map(|id| request(id, "status")).collect();
    stream.write_all(lines.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    for id in 1..=40 {
        assert_eq!(read_line(&mut stream)["id"], id);
    }
    assert_eq!(read_line(&mut stream), Value::Null, "the daemon hangs up afterwards");
    weftd.stop();
}

#[test]
fn what_is_no_request_is_refused_with_a_reason_and_others_are_served_on() {
    let namespace = Namespace::with_cable();
    let weftd = namespace.host("a");
    let code = |line: &str| weftd.line(line)["error"]["code"].as_str().unwrap_or("none").to_owned();
    assert_eq!(code("not json"), "bad_json");
    assert_eq!(code("{}"), "bad_version");
    assert_eq!(code(r#"{"version":1,"request":{"type":"status"}}"#), "bad_request");
    assert_eq!(code(r#"{"version":1,"id":1,"request":{"type":"frobnicate"}}"#), "unknown_request");
    assert_eq!(code(&"x".repeat(100_000)), "too_long");
    let mut broken = weftd.connect();
    broken.write_all(b"not json\n").unwrap();
    assert_eq!(read_line(&mut broken)["error"]["code"], "bad_json");
    assert_eq!(read_line(&mut broken), Value::Null, "a broken stream is hung up on");
    weftd.ask("status");
    weftd.stop();
}

#[test]
fn many_silent_clients_do_not_keep_others_out() {
    let namespace = Namespace::with_cable();
    let weftd = namespace.host("a");
    let silent: Vec<_> = (0..weft_daemon::control::MAX_CLIENTS * 2)
        .map(|_| {
            let mut stream = weftd.connect();
            stream.write_all(b"{\"version\":1,").unwrap();
            stream
        })
        .collect();
    weftd.ask("status");
    drop(silent);
    weftd.stop();
}

#[test]
fn a_request_ends_the_daemon() {
    let namespace = Namespace::with_cable();
    let mut weftd = namespace.host("a");
    assert_eq!(weftd.ask("shutdown")["pid"], weftd.child.id());
    assert_eq!(weftd.wait().code(), Some(0));
}

/// Replaces text in the node's configuration.
fn edit(namespace: &Namespace, from: &str, to: &str) {
    let file = namespace.path("a.yaml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from));
    fs::write(&file, text.replace(from, to)).unwrap();
}

fn rate(weftd: &Weftd) -> Value {
    weftd.ask("ports")["items"][0]["rate_bps"].clone()
}

#[test]
fn a_reload_takes_over_what_can_change_and_names_what_cannot() {
    let namespace = Namespace::with_cable();
    let weftd = namespace.host("a");
    edit(&namespace, "role: host", "role: host, rate: 2Gbit");
    edit(&namespace, "hosts: {", "hosts: { c: \"02:00:00:00:00:0c\",");
    let reloaded = weftd.ask("reload");
    assert_eq!(reloaded["changes"].as_array().unwrap().len(), 2, "{reloaded}");
    assert_eq!((rate(&weftd), &weftd.ask("hosts")["total"]), (json!(2_000_000_000), &json!(3)));
    edit(&namespace, "rate: 2Gbit", "rate: 3Gbit");
    edit(&namespace, "interface: va", "interface: vb");
    let refusal = weftd.refusal("reload");
    assert_eq!(refusal["code"], "restart_needed");
    assert!(refusal["message"].as_str().unwrap().contains("ports[0].interface"), "{refusal}");
    assert_eq!(rate(&weftd), json!(2_000_000_000), "nothing of a refused reload is applied");
    edit(&namespace, "version: 1", "version: 9");
    assert_eq!(weftd.refusal("reload")["code"], "bad_config");
    weftd.stop();
}

#[test]
fn sighup_reloads() {
    let namespace = Namespace::with_cable();
    let weftd = namespace.host("a");
    edit(&namespace, "role: host", "role: host, rate: 2Gbit");
    weftd.signal(Signal::HUP);
    assert!(eventually(|| (rate(&weftd) == json!(2_000_000_000)).then_some(())).is_some(), "{}", namespace.log("a"));
    weftd.stop();
}
