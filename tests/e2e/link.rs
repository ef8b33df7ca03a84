//! Cables that fail.

use std::time::Duration;

use crate::failure::{Ongoing, PATIENT, slow_lab};
use crate::support::{LONG, Receiver, copy_ok};

const BOUND: Duration = Duration::from_secs(30);
/// Longer than the short time-outs, far shorter than the hosts' patience.
const FLAP: Duration = Duration::from_millis(300);

#[test]
fn a_transfer_survives_a_cable_that_is_pulled_for_a_moment() {
    let lab = slow_lab(PATIENT);
    let ongoing = Ongoing::start(&lab);
    for (node, neighbour) in [("a", "s"), ("s", "b")] {
        lab.link(node, neighbour, "down");
        std::thread::sleep(FLAP);
        lab.link(node, neighbour, "up");
        // The connection is proven to be alive again before the next cable goes.
        assert_eq!(lab.json("a", &["qp", "show"])[0]["state"], "established");
    }
    ongoing.completes(&lab);
    let port = &lab.json("a", &["port", "show"])[0];
    assert!(port["counters"]["link_changes"].as_u64().unwrap() >= 2, "a has not noticed: {port}");
}

#[test]
fn a_cable_that_stays_away_is_an_error_in_time_and_works_when_it_is_back() {
    let lab = slow_lab(PATIENT);
    let ongoing = Ongoing::start(&lab);
    lab.link("s", "b", "down");
    let sender = ongoing.sender.wait(BOUND).fails(3);
    assert!(sender.contains("no answer any more"), "{sender}");
    let receiver = ongoing.receiver.wait(BOUND).fails(3);
    assert!(receiver.contains("no answer any more"), "{receiver}");
    let ports = lab.json("s", &["port", "show"]);
    let up: Vec<_> = ports.as_array().unwrap().iter().map(|port| (port["name"].as_str().unwrap(), port["up"].as_bool().unwrap())).collect();
    assert_eq!(up, [("a", true), ("b", false)]);

    lab.link("s", "b", "up");
    let receiver = Receiver::start(&lab, "b", "in", &["--once"]);
    copy_ok(&lab, ("a", "b"), &[lab.folder.file("next", b"next")], &[]);
    receiver.wait(LONG).ok();
}
