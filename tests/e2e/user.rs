//! The same for an ordinary user, in a user namespace.

use crate::support::{LONG, Lab, Receiver, Topology, copy_ok, pattern, skip};

/// The user and group nobody.
const ORDINARY_USER: u32 = 65_534;

#[test]
fn an_ordinary_user_runs_a_lab_and_moves_a_file_through_it() {
    if !rustix::process::geteuid().is_root() {
        return skip("a lab of another user", "these tests run as an ordinary user already, so all the others show it");
    }
    let mut lab = Lab::of_user(ORDINARY_USER);
    let topology = lab.topology(&Topology { link_a: "loss: 1%,", addresses: true, ..Topology::default() });
    let up = lab.bring_up(&topology);
    if up.code() == Some(4) {
        return skip("a lab of an ordinary user", &up.stderr);
    }
    up.ok();
    let folder = lab.folder.sub("in");
    std::os::unix::fs::chown(folder, Some(ORDINARY_USER), Some(ORDINARY_USER)).unwrap();
    let content = pattern(51, 2 << 20);
    let file = lab.folder.file("data", &content);
    let receiver = Receiver::start(&lab, "b", "in", &["--once"]);
    copy_ok(&lab, ("a", "b"), &[file], &[]);
    receiver.wait(LONG).ok();
    assert!(std::fs::read(lab.folder.path().join("in/data")).unwrap() == content);
    let supervisor = lab.status()["supervisor_pid"].as_i64().unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(format!("/proc/{supervisor}")).unwrap());
    assert_eq!(owner, ORDINARY_USER);
    lab.down();
    assert_eq!(lab.folder.names("run"), [""; 0]);
}
