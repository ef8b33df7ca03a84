//! Labs with a stand-in for the daemon: namespaces, cables, supervisor and cleaning up, as root and as an ordinary user.
//!
//! The stand-in is this test program, started through a script: it opens the sockets of a daemon, answers every request on the control
//! socket, and every datagram to port 7007 with its node's name. Every test has a runtime folder of its own.

mod stage;
mod stand_in;

use rustix::process::Signal;
use serde_json::Value;
use stage::{Stage, eventually, signal, text};

const PAIR: &str = "
name: pair
nodes: { a: {kind: host}, b: {kind: host} }
links: [ { ends: [ { node: a, ip: 10.9.0.1/24 }, { node: b, ip: 10.9.0.2/24 } ] } ]
";

fn node<'a>(status: &'a Value, name: &str) -> &'a Value {
    status["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).unwrap()
}

/// The whole life of a lab, seen through the commands.
fn live_through(stage: &Stage) {
    stage.ok(&["lab", "up", &stage.topology(PAIR), "--weftd", &stage.weftd()]);
    let status = stage.status("pair");
    assert_eq!(status["state"], "up");
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(node(&status, "a")["daemon"], "running");
    let socket = text(&stage.ok(&["lab", "exec", "pair", "a", "sh", "-c", "echo $WEFT_NODE $WEFT_SOCKET"]));
    assert_eq!(socket.trim(), format!("a {}", node(&status, "a")["control_socket"].as_str().unwrap()));

    assert_eq!(stage.ask("pair", "a", "10.9.0.2"), "b", "a datagram crosses the cable");
    stage.ok(&["lab", "link", "pair", "a", "b", "down"]);
    assert_eq!(stage.ask("pair", "a", "10.9.0.2"), "nobody", "a pulled cable carries nothing");
    stage.ok(&["lab", "link", "pair", "a", "b", "up"]);
    assert_eq!(stage.ask("pair", "a", "10.9.0.2"), "b");

    stage.ok(&["lab", "kill", "pair", "b"]);
    let dead = stage.status("pair");
    assert_eq!(node(&dead, "b")["daemon"], "dead");
    assert!(node(&dead, "b")["reason"].as_str().unwrap().contains("signal 9"));
    assert_eq!(node(&dead, "a")["daemon"], "running", "only the daemon of b was killed");
    assert_eq!(stage.ask("pair", "a", "10.9.0.2"), "nobody");
    stage.ok(&["lab", "restart", "pair", "b"]);
    assert_eq!(stage.ask("pair", "a", "10.9.0.2"), "b", "the namespace has outlived its daemon");

    stage.ok(&["lab", "down", "pair"]);
    stage.assert_nothing_left();
}

#[test]
fn root_brings_a_lab_up_works_in_it_and_takes_it_down() {
    live_through(&Stage::new());
}

#[test]
fn an_ordinary_user_does_the_same_in_a_user_namespace() {
    if let Some(stage) = Stage::of_ordinary_user() {
        live_through(&stage);
    }
}

#[test]
fn down_removes_what_a_killed_supervisor_left() {
    let stage = Stage::new();
    stage.ok(&["lab", "up", &stage.topology(PAIR), "--weftd", &stage.weftd()]);
    let mut straggler = stage.spawn(&["lab", "exec", "pair", "a", "sleep", "600"]);
    assert!(eventually(|| stage.processes().iter().any(|process| process.contains("sleep"))));
    signal(stage.status("pair")["supervisor_pid"].as_i64().unwrap(), Signal::KILL);
    assert!(eventually(|| stage.status("pair")["state"] == "crashed"));
    assert!(eventually(|| node(&stage.status("pair"), "b")["daemon"] == "dead"), "daemons die with their supervisor");

    let refused = stage.fails(&["lab", "exec", "pair", "a", "true"], 3);
    assert!(refused.contains("weftctl lab down pair"), "{refused}");
    stage.ok(&["lab", "down", "pair"]);
    assert!(!straggler.wait().unwrap().success(), "the command in the namespace was ended");
    stage.assert_nothing_left();
}

#[test]
fn a_crashed_lab_does_not_keep_its_name() {
    let stage = Stage::new();
    let up = ["lab", "up", &stage.topology(PAIR), "--weftd", &stage.weftd()];
    stage.ok(&up);
    signal(stage.status("pair")["supervisor_pid"].as_i64().unwrap(), Signal::KILL);
    assert!(eventually(|| stage.status("pair")["state"] == "crashed"));
    stage.ok(&up);
    assert_eq!(stage.status("pair")["state"], "up");
    stage.ok(&["lab", "down", "pair"]);
    stage.assert_nothing_left();
}

#[test]
fn two_labs_run_at_once_but_not_under_one_name() {
    let stage = Stage::new();
    let other = stage.topology(&PAIR.replace("name: pair", "name: other"));
    stage.ok(&["lab", "up", &other, "--weftd", &stage.weftd()]);
    let pair = stage.topology(PAIR);
    stage.ok(&["lab", "up", &pair, "--weftd", &stage.weftd()]);
    let twice = stage.fails(&["lab", "up", &pair, "--weftd", &stage.weftd()], 2);
    assert!(twice.contains("lab pair is up already"), "{twice}");
    assert_eq!(stage.ask("pair", "a", "10.9.0.2"), "b");
    assert_eq!(stage.ask("other", "b", "10.9.0.1"), "a", "the same addresses in another lab do not disturb");
    stage.ok(&["lab", "down", "pair"]);
    assert_eq!(stage.ask("other", "b", "10.9.0.1"), "a");
    stage.ok(&["lab", "down", "other"]);
    stage.assert_nothing_left();
}

#[test]
fn run_ends_with_the_code_of_its_command_and_leaves_nothing() {
    let stage = Stage::new();
    let topology = stage.topology(PAIR);
    let run = ["lab", "run", &topology, "--weftd", &stage.weftd(), "--", "a", "sh", "-c", "exit 42"];
    stage.fails(&run, 42);
    stage.assert_nothing_left();
}

#[test]
fn run_that_is_told_to_end_takes_its_lab_along() {
    for (number, code) in [(Signal::TERM, Some(143)), (Signal::INT, Some(130)), (Signal::KILL, None)] {
        let stage = Stage::new();
        let topology = stage.topology(PAIR);
        let run = ["lab", "run", &topology, "--weftd", &stage.weftd(), "--", "a", "sleep", "600"];
        let mut run = stage.spawn(&run);
        assert!(eventually(|| stage.processes().iter().any(|process| process.starts_with("sleep"))));
        signal(run.id().into(), number);
        assert_eq!(run.wait().unwrap().code(), code, "{number:?}");
        assert!(eventually(|| stage.processes().is_empty()), "{number:?}: {:?}", stage.processes());
        stage.assert_nothing_left();
    }
}

#[test]
fn a_daemon_that_does_not_start_is_explained_by_its_log() {
    let stage = Stage::new();
    let faulty = stage.script("faulty", "echo 'ports[0]: no such interface' >&2; exit 3");
    let error = stage.fails(&["lab", "up", &stage.topology(PAIR), "--weftd", &faulty], 1);
    assert!(error.contains("node a: its daemon exited with code 3"), "{error}");
    assert!(error.contains("    ports[0]: no such interface"), "{error}");
    stage.assert_nothing_left();
}

#[test]
fn a_demo_that_fails_says_where_and_leaves_nothing() {
    let stage = Stage::new();
    let error = stage.fails(&["lab", "demo", "--size", "1MiB", "--weftd", &stage.weftd()], 1);
    assert!(error.contains("weftctl receive on b"), "{error}");
    stage.assert_nothing_left();
}

#[test]
fn faults_of_the_user_have_their_own_exit_codes() {
    let stage = Stage::new();
    let bad = stage.topology("{name: x, nodes: {a: {kind: host}}, links: []}");
    assert!(stage.fails(&["lab", "up", &bad, "--weftd", &stage.weftd()], 2).contains("nodes.a"));
    assert!(stage.fails(&["lab", "up", "missing.yaml", "--weftd", &stage.weftd()], 2).contains("missing.yaml"));
    assert!(stage.fails(&["lab", "down", "../.."], 3).contains("no lab ../.."));
    assert!(stage.fails(&["lab", "exec", "nowhere", "a", "true"], 3).contains("no lab nowhere"));
}
