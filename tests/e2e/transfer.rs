//! Files cross a switch that loses, repeats, overtakes and damages frames.

use rustix::process::Signal;
use serde_json::Value;

use crate::helper::Role;
use crate::support::{Background, LONG, Lab, Receiver, Topology, copy, copy_ok, pattern, sha256, within};

const BAD_LINK: &str = "rate: 1Gbit, loss: 1%, reorder: 1%, reorder_delay: 100us, duplicate: 0.5%, corrupt: 0.2%,";

/// One transfer from a to b under `recovery`; what `cp` reports.
fn transfer(recovery: &str, seed: u64) -> Value {
    let lab = Lab::up(&Topology { link_a: BAD_LINK, link_b: BAD_LINK, ..Topology::default() });
    let content = pattern(seed, 3 << 20);
    let file = lab.folder.file("data.bin", &content);
    let receiver = Receiver::start(&lab, "b", "in", &["--once"]);
    let report = copy_ok(&lab, ("a", "b"), &[file], &["--recovery", recovery]);
    let told = receiver.wait(LONG).ok().stdout;

    let digest = sha256(&content);
    let arrived = std::fs::read(lab.folder.path().join("in/data.bin")).unwrap();
    assert!(arrived == content, "{recovery}: what arrived is not what was sent");
    assert_eq!(report["files"][0]["sha256_sent"], *digest);
    assert_eq!(report["files"][0]["sha256_received"], *digest);
    assert_eq!(report["bytes"], content.len());
    let received: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!((&received["event"], &received["sha256"]), (&Value::from("received"), &Value::from(digest)));

    let switch = lab.json("s", &["counters"]);
    assert!(switch["switch_drops"]["impaired_loss"].as_u64().unwrap() > 0, "the link lost nothing: {switch}");
    for kind in ["duplicated", "corrupted", "reordered"] {
        assert!(switch["impaired"][kind].as_u64().unwrap() > 0, "nothing was {kind}: {switch}");
    }
    report
}

#[test]
fn a_file_crosses_a_bad_link_intact_under_irn() {
    let report = transfer("irn", 1);
    assert_eq!(report["recovery"], "irn");
    assert!(report["retransmissions"].as_u64().unwrap() > 0);
    assert!(report["goodput_bps"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_file_crosses_a_bad_link_intact_under_irn_strict() {
    let report = transfer("irn-strict", 2);
    assert_eq!(report["recovery"], "irn-strict");
    assert!(report["retransmissions"].as_u64().unwrap() > 0);
}

#[test]
fn a_file_crosses_a_bad_link_intact_under_go_back_n() {
    let report = transfer("go-back-n", 3);
    assert_eq!(report["recovery"], "go-back-n");
    assert!(report["retransmissions"].as_u64().unwrap() > 0);
}

#[test]
fn transfers_in_both_directions_at_once_do_not_mix() {
    let lab = Lab::up(&Topology { link_a: "rate: 500Mbit, loss: 0.5%,", link_b: "rate: 500Mbit, loss: 0.5%,", ..Topology::default() });
    let (one, other) = (pattern(4, 2 << 20), pattern(5, 2 << 20));
    let files = [lab.folder.file("one", &one), lab.folder.file("other", &other)];
    let receivers = [Receiver::start(&lab, "b", "in-b", &["--once"]), Receiver::start(&lab, "a", "in-a", &["--once"])];
    let there = copy(&lab, ("a", "b"), &files[..1], &[]);
    let back = copy(&lab, ("b", "a"), &files[1..], &[]);
    there.wait(LONG).ok();
    back.wait(LONG).ok();
    receivers.into_iter().for_each(|receiver| drop(receiver.wait(LONG).ok()));
    assert!(std::fs::read(lab.folder.path().join("in-b/one")).unwrap() == one);
    assert!(std::fs::read(lab.folder.path().join("in-a/other")).unwrap() == other);
}

#[test]
fn a_receiver_that_has_everything_succeeds_though_the_sender_hung_up_before_its_last_words() {
    let lab = Lab::up(&Topology::default());
    let receiver = Receiver::start(&lab, "b", "in", &["--once"]);
    let go = lab.folder.path().join("go");
    let sender = Background::start(Role::Hasty { go: go.clone() }.command(&lab, "a"));
    sender.says("connected", LONG);
    // Not scheduled for a while, as on a busy machine.
    receiver.command.signal(Signal::STOP);
    std::fs::write(go, b"").unwrap();
    sender.wait(LONG).ok();
    assert!(within(LONG, || lab.json("b", &["qp", "show"])[0]["state"] == "error"), "{}", lab.json("b", &["qp", "show"]));
    receiver.command.signal(Signal::CONT);
    receiver.wait(LONG).ok();
    assert_eq!(lab.folder.names("in"), ["empty"]);
}
