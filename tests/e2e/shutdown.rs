//! Ends in good order.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::{Ongoing, VERY_PATIENT, slow_lab};
use crate::support::{LONG, Lab, Topology, within};

/// Far below the patience of the daemons here: whoever ends within it was told.
const TOLD: Duration = Duration::from_secs(10);
/// Command lines of the processes with the mark of this lab.
fn processes(lab: &Lab) -> Vec<String> {
    let mark = lab.folder.path().to_str().unwrap();
    let read = |pid: &Path, file: &str| std::fs::read(pid.join(file)).map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "));
    let entries = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let pairs = entries.filter_map(|pid| Some((read(&pid, "cmdline").ok()?, read(&pid, "environ").ok()?)));
    pairs.filter(|(cmdline, environ)| cmdline.contains(mark) || environ.contains(mark)).map(|(cmdline, _)| cmdline).collect()
}

/// Those of `namespaces` that some process lives in or holds open.
fn held(namespaces: &BTreeSet<u64>) -> BTreeSet<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let inode = |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.ino());
    let mut held = BTreeSet::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
        let open = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
        held.extend(open.chain([process.join("ns/net")]).filter_map(|path| inode(&path)));
    }
    held.intersection(namespaces).copied().collect()
}

#[test]
fn a_lab_that_goes_down_leaves_nothing_behind() {
    let mut lab = Lab::up(&Topology::default());
    let state = std::fs::read(lab.runtime_folder().join("state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    let nodes = state["nodes"].as_array().unwrap();
    let namespaces: BTreeSet<_> = nodes.iter().map(|node| node["namespace"]["inode"].as_u64().unwrap()).collect();
    assert_eq!((namespaces.len(), held(&namespaces).len()), (3, 3));
    // Three daemons and the supervisor.
    assert_eq!(processes(&lab).len(), 4, "{:?}", processes(&lab));

    lab.down();
    assert_eq!(processes(&lab), [""; 0]);
    assert_eq!(held(&namespaces), BTreeSet::new());
    assert_eq!(lab.folder.names("run"), [""; 0]);
}

/// Asks the daemon of `node` to end, as a service manager does.
fn terminate(lab: &Lab, node: &str) {
    let pid = lab.node(node)["pid"].as_i64().unwrap();
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::TERM).unwrap();
}

fn ended_cleanly(lab: &Lab, node: &str) {
    assert!(within(LONG, || lab.node(node)["daemon"] == "dead"));
    assert_eq!(lab.node(node)["reason"], "exited with code 0");
    let log = std::fs::read_to_string(lab.node_file(node, "weftd.log")).unwrap();
    assert!(log.contains("weftd ended"), "{log}");
}

#[test]
fn a_receivers_daemon_that_ends_tells_the_sender() {
    let lab = slow_lab(VERY_PATIENT);
    let ongoing = Ongoing::start(&lab);
    terminate(&lab, "b");
    let sender = ongoing.sender.wait(TOLD).fails(3);
    assert!(sender.contains("the other side closed the connection"), "{sender}");
    let receiver = ongoing.receiver.wait(TOLD).fails(3);
    assert!(receiver.contains("weftd on this host went away"), "{receiver}");
    ended_cleanly(&lab, "b");
}

#[test]
fn a_senders_daemon_that_ends_tells_the_receiver() {
    let lab = slow_lab(VERY_PATIENT);
    let ongoing = Ongoing::start(&lab);
    terminate(&lab, "a");
    let receiver = ongoing.receiver.wait(TOLD).fails(3);
    assert!(receiver.contains("the other side closed the connection"), "{receiver}");
    let sender = ongoing.sender.wait(TOLD).fails(3);
    assert!(sender.contains("weftd on this host went away"), "{sender}");
    ended_cleanly(&lab, "a");
    assert_eq!(lab.folder.names("in"), [""; 0], "an incomplete file is left");
}

#[test]
fn a_command_that_is_interrupted_ends_in_order_and_tells_the_other_side() {
    let lab = slow_lab(VERY_PATIENT);
    let ongoing = Ongoing::start(&lab);
    ongoing.sender.signal(Signal::INT);
    let sender = ongoing.sender.wait(TOLD).fails(130);
    assert!(sender.contains("interrupted"), "{sender}");
    ongoing.receiver.wait(TOLD).fails(3);
    assert_eq!(lab.folder.names("in"), [""; 0], "an incomplete file is left");
    // The daemons have let go of everything that belonged to the two.
    for node in ["a", "b"] {
        assert!(within(LONG, || lab.json(node, &["qp", "show"]).as_array().unwrap().is_empty()), "{node}");
        assert_eq!(lab.json(node, &["status"])["applications"], 0);
    }
}
