//! Daemons die in mid-transfer: whoever is concerned is told in time, and after a restart everything works again.

use std::path::PathBuf;
use std::time::Duration;

use crate::support::{Background, LONG, Lab, Receiver, Topology, copy, copy_ok, part_size, pattern, within};

/// Slow enough that a transfer of this size is still going on when something happens to it.
const SLOW: &str = "rate: 40Mbit,";
const SIZE: usize = 24 << 20;
/// The usual number of retries: one to two seconds without an answer. The time-outs double up to 64 times the measured round
/// trip, so a small window in front of a slow link keeps all of them short.
pub(crate) const USUAL: &str = "{ transport: { bdp_cap: 16 } }";
/// About three times as patient.
pub(crate) const PATIENT: &str = "{ transport: { bdp_cap: 16, retry_count: 20 } }";
/// Longer than any bound here.
pub(crate) const VERY_PATIENT: &str = "{ transport: { bdp_cap: 16, retry_count: 100 } }";
/// Well above what it takes with the usual patience, on a busy machine too, and below [`VERY_PATIENT`] and the minute after which
/// `weftctl` gives up by itself.
const BOUND: Duration = Duration::from_secs(20);

/// A transfer from a to b that has begun.
pub(crate) struct Ongoing {
    pub(crate) receiver: Receiver,
    pub(crate) sender: Background,
    pub(crate) content: Vec<u8>,
}

pub(crate) fn slow_lab(config: &'static str) -> Lab {
    Lab::up(&Topology { link_a: SLOW, link_b: SLOW, config, ..Topology::default() })
}

impl Ongoing {
    pub(crate) fn start(lab: &Lab) -> Self {
        let content = pattern(7, SIZE);
        let file = lab.folder.file("big", &content);
        let receiver = Receiver::start(lab, "b", "in", &["--once"]);
        let sender = copy(lab, ("a", "b"), &[file], &[]);
        let folder = lab.folder.path().join("in");
        assert!(within(LONG, || part_size(&folder, "big") >= 1 << 20), "the transfer does not begin");
        Self { receiver, sender, content }
    }

    /// It must go on, and the file arrive as it was sent.
    pub(crate) fn completes(self, lab: &Lab) {
        let report = self.sender.wait(LONG).ok();
        self.receiver.wait(LONG).ok();
        let arrived = std::fs::read(lab.folder.path().join("in/big")).unwrap();
        assert!(arrived == self.content, "{}", report.stdout);
        std::fs::remove_file(lab.folder.path().join("in/big")).unwrap();
    }
}

/// Nothing of the broken transfer is left, and another one goes through.
fn works_again(lab: &Lab) {
    assert_eq!(lab.folder.names("in"), [""; 0], "an incomplete file is left");
    let content = pattern(8, 300_000);
    let file: PathBuf = lab.folder.file("next", &content);
    let receiver = Receiver::start(lab, "b", "in", &["--once"]);
    copy_ok(lab, ("a", "b"), &[file], &[]);
    receiver.wait(LONG).ok();
    assert!(std::fs::read(lab.folder.path().join("in/next")).unwrap() == content);
    std::fs::remove_file(lab.folder.path().join("in/next")).unwrap();
}

#[test]
fn the_receivers_daemon_dies() {
    let lab = slow_lab(USUAL);
    let ongoing = Ongoing::start(&lab);
    lab.kill("b");
    let receiver = ongoing.receiver.wait(BOUND).fails(3);
    assert!(receiver.contains("weftd on this host went away"), "{receiver}");
    let sender = ongoing.sender.wait(BOUND).fails(3);
    assert!(sender.contains("no answer any more"), "{sender}");
    lab.restart("b");
    works_again(&lab);
}

#[test]
fn the_senders_daemon_dies() {
    let lab = slow_lab(USUAL);
    let ongoing = Ongoing::start(&lab);
    lab.kill("a");
    let sender = ongoing.sender.wait(BOUND).fails(3);
    assert!(sender.contains("weftd on this host went away"), "{sender}");
    let receiver = ongoing.receiver.wait(BOUND).fails(3);
    assert!(receiver.contains("no answer any more"), "{receiver}");
    lab.restart("a");
    works_again(&lab);
}

#[test]
fn a_receiver_that_stays_outlives_a_sender_whose_daemon_dies() {
    let lab = slow_lab(USUAL);
    let receiver = Receiver::start(&lab, "b", "in", &[]);
    let sender = copy(&lab, ("a", "b"), &[lab.folder.file("big", &pattern(7, SIZE))], &[]);
    let folder = lab.folder.path().join("in");
    assert!(within(LONG, || part_size(&folder, "big") >= 1 << 20), "the transfer does not begin");
    lab.kill("a");
    sender.wait(BOUND).fails(3);
    receiver.command.says(r#""event":"failed""#, BOUND);
    assert_eq!(lab.folder.names("in"), [""; 0], "an incomplete file is left");
    lab.restart("a");
    copy_ok(&lab, ("a", "b"), &[lab.folder.file("next", b"next")], &[]);
    assert_eq!(lab.folder.names("in"), ["next"]);
}

#[test]
fn a_daemon_that_was_restarted_is_recognised_by_its_peer() {
    let lab = slow_lab(VERY_PATIENT);
    let incarnation = || lab.json("b", &["status"])["incarnation"].clone();
    let before = incarnation();
    let ongoing = Ongoing::start(&lab);
    lab.kill("b");
    lab.restart("b");
    assert_ne!(incarnation(), before);
    ongoing.receiver.wait(BOUND).fails(3);
    // The sender is so patient that only what the new daemon says can end its connection with the old one.
    let receiver = Receiver::start(&lab, "a", "in-a", &["--once"]);
    copy_ok(&lab, ("b", "a"), &[lab.folder.file("hello", b"hello")], &[]);
    receiver.wait(LONG).ok();
    let sender = ongoing.sender.wait(BOUND).fails(3);
    assert!(sender.contains("its weftd was restarted"), "{sender}");
    works_again(&lab);
}

#[test]
fn the_switchs_daemon_dies_for_good() {
    let lab = slow_lab(USUAL);
    let ongoing = Ongoing::start(&lab);
    lab.kill("s");
    let sender = ongoing.sender.wait(BOUND).fails(3);
    assert!(sender.contains("no answer any more"), "{sender}");
    let receiver = ongoing.receiver.wait(BOUND).fails(3);
    assert!(receiver.contains("no answer any more"), "{receiver}");
    lab.restart("s");
    works_again(&lab);
}

#[test]
fn the_switchs_daemon_is_back_before_the_hosts_give_up() {
    let lab = slow_lab(VERY_PATIENT);
    let ongoing = Ongoing::start(&lab);
    lab.kill("s");
    lab.restart("s");
    ongoing.completes(&lab);
}
