//! How the daemon starts, refuses to start, and ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{Namespace, eventually};

const HOST_A: &str = "  - { name: eth0, interface: va, role: host }";

/// Runs weftd to its end and returns its exit code and what it said.
fn run(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn it_runs_unprivileged_on_a_veth_and_ends_on_sigterm_and_sigint_without_leaving_files() {
    let namespace = Namespace::with_cable();
    for signal in [Signal::TERM, Signal::INT] {
        let mut weftd = namespace.host("a");
        let status = weftd.ask("status");
        assert_eq!((status["node"].as_str(), status["ports"][0]["up"].as_bool()), (Some("a"), Some(true)), "{status}");
        assert_eq!(status["endpoint_mac"], "02:00:00:00:00:0a");
        assert_eq!(fs::metadata(&weftd.control).unwrap().permissions().mode() & 0o777, 0o660);
        weftd.signal(signal);
        assert_eq!(weftd.wait().code(), Some(0));
        assert!(!weftd.control.exists() && !weftd.app.exists());
    }
}

#[test]
fn a_daemon_that_was_killed_can_be_started_again() {
    let namespace = Namespace::with_cable();
    let mut first = namespace.host("a");
    first.signal(Signal::KILL);
    first.wait();
    assert!(first.control.exists(), "a killed daemon cannot clean up");
    let second = namespace.start("a");
    second.ask("status");
    second.stop();
}

#[test]
fn a_second_daemon_on_the_same_sockets_refuses_and_leaves_the_first_alone() {
    let namespace = Namespace::with_cable();
    let first = namespace.host("a");
    let (code, said) = run(namespace.weftd(&namespace.path("a.yaml")));
    assert_eq!(code, Some(1));
    assert!(said.contains("control.socket") && said.contains("in use by another daemon"), "{said}");
    first.ask("status");
    first.stop();
}

#[test]
fn a_missing_interface_is_named_with_its_key() {
    let namespace = Namespace::with_cable();
    let file = namespace.configure("a", "  - { name: eth0, interface: nonesuch, role: host }", "metrics: { enabled: false }");
    let (code, said) = run(namespace.weftd(&file));
    assert_eq!(code, Some(1));
    assert!(said.contains("ports[0]") && said.contains("nonesuch") && said.contains("ip link"), "{said}");
    assert!(!namespace.path("a.sock").exists());
}

#[test]
fn a_process_without_rights_is_told_which_it_needs() {
    let namespace = Namespace::with_cable();
    let file = namespace.configure("a", HOST_A, "metrics: { enabled: false }");
    // A further user namespace keeps the network but not the capabilities over it.
    let mut command = namespace.command("unshare");
    command.arg("--user").arg(env!("CARGO_BIN_EXE_weftd")).arg("--config").arg(file);
    let (code, said) = run(command);
    assert_eq!(code, Some(1));
    assert!(said.contains("CAP_NET_RAW") && said.contains("CAP_NET_ADMIN") && said.contains("va"), "{said}");
}

#[test]
fn a_taken_metrics_address_is_named_with_its_key() {
    let namespace = Namespace::with_cable();
    namespace.configure("a", HOST_A, "metrics: { listen: \"127.0.0.1:9470\" }");
    let first = namespace.start("a");
    let file = namespace.configure("b", "  - { name: eth0, interface: vb, role: host }", "metrics: { listen: \"127.0.0.1:9470\" }");
    let (code, said) = run(namespace.weftd(&file));
    assert_eq!(code, Some(1));
    assert!(said.contains("metrics.listen") && said.contains("127.0.0.1:9470"), "{said}");
    first.stop();
}

#[test]
fn a_faulty_configuration_has_its_own_exit_code_and_check_starts_nothing() {
    let namespace = Namespace::with_cable();
    let good = namespace.configure("a", HOST_A, "metrics: { enabled: false }");
    let mut check = Command::new(env!("CARGO_BIN_EXE_weftd"));
    check.arg("--check").arg("--config").arg(&good);
    assert_eq!(run(check).0, Some(0));
    assert!(!namespace.path("a.sock").exists());
    let bad = namespace.configure("a", HOST_A, "surprise: 1");
    let (code, said) = run(namespace.weftd(&bad));
    assert_eq!(code, Some(2));
    assert!(said.contains("surprise"), "{said}");
    let mut wrong = Command::new(env!("CARGO_BIN_EXE_weftd"));
    wrong.args(["--log", "loud"]);
    let (code, said) = run(wrong);
    assert_eq!(code, Some(2));
    assert!(said.contains("error, warn, info, debug or trace"), "{said}");
}

#[test]
fn metrics_and_health_are_served() {
    let namespace = Namespace::with_cable();
    namespace.configure("a", HOST_A, "metrics: { listen: \"127.0.0.1:9470\" }");
    let weftd = namespace.start("a");
    let metrics = namespace.http(9470, "/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    let body = metrics.split_once("\r\n\r\n").unwrap().1;
    let scrape = prometheus_parse::Scrape::parse(body.lines().map(|line| Ok(line.to_owned()))).unwrap();
    let up = scrape.samples.iter().find(|s| s.metric == "weft_port_up" && s.labels.get("port") == Some("eth0")).unwrap();
    assert_eq!(up.value, prometheus_parse::Value::Gauge(1.0));
    assert!(namespace.http(9470, "/healthz").starts_with("HTTP/1.1 200"));
    weftd.stop();
}

#[test]
fn an_interface_that_goes_and_comes_back_is_used_again() {
    let namespace = Namespace::with_cable();
    let weftd = namespace.host("a");
    let up = || weftd.ask("status")["ports"][0]["up"].as_bool().unwrap();
    namespace.run("ip link set vb down");
    assert!(eventually(|| (!up()).then_some(())).is_some(), "the lost carrier goes unnoticed");
    namespace.run("ip link set vb up");
    assert!(eventually(|| up().then_some(())).is_some(), "the carrier is back");
    namespace.run("ip link del va");
    assert!(eventually(|| (!up()).then_some(())).is_some(), "the deleted interface goes unnoticed");
    namespace.run(
        "ip link add va address 02:00:00:00:00:0a type veth peer name vb address 02:00:00:00:00:0b; ip link set va up; ip link set vb up",
    );
    assert!(eventually(|| up().then_some(())).is_some(), "the new interface is not used; {}", namespace.log("a"));
    weftd.stop();
}
