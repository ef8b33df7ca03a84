//! The example configurations of the repository are valid and say what their comments say.

use std::path::{Path, PathBuf};

use weft_config::Config;
use weft_config::model::Role;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples")
}

fn load(name: &str) -> Config {
    Config::load(&examples().join(name)).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn every_example_of_a_node_is_valid() {
    for name in ["two-hosts-a.yaml", "two-hosts-b.yaml", "switch.yaml", "stop-control.yaml"] {
        load(name);
    }
}

#[test]
fn the_two_hosts_know_each_other_and_agree_on_the_transport() {
    let (a, b) = (load("two-hosts-a.yaml"), load("two-hosts-b.yaml"));
    assert_eq!((a.node.as_str(), b.node.as_str()), ("a", "b"));
    assert!(a.hosts.contains_key("b") && b.hosts.contains_key("a"));
    assert_eq!(a.transport, b.transport);
}

#[test]
fn the_receiver_of_an_incast_asks_by_name_and_detects_by_the_rate_of_its_link() {
    let config = load("stop-control.yaml");
    let stop = config.stop.unwrap();
    let spared = config.hosts["storage"];
    assert_eq!(stop.ask.requests.iter().map(|(host, request)| (*host, request.rate)).collect::<Vec<_>>(), [(spared, 8)]);
    let volume = stop.detect.unwrap().volume.unwrap();
    assert_eq!(volume.detect.bytes_on(config.ports[0].rate.unwrap()), 200_000, "80% of 250 kB in 200 us");
}

#[test]
fn the_switch_has_no_endpoint_and_one_impaired_port() {
    let switch = load("switch.yaml");
    assert!(switch.ports.iter().all(|port| port.role == Role::Switch));
    assert_eq!(switch.host_port(), None);
    let impaired: Vec<_> = switch.ports.iter().filter(|port| !port.impair.egress.is_none()).map(|port| port.name.as_str()).collect();
    assert_eq!(impaired, ["to-c"]);
    assert_eq!(switch.switch.weights, [1, 1, 1, 1, 1, 4, 8, 1]);
}
