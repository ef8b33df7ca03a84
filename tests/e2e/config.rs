//! The files that come with the repository, and changes of a running daemon's.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{LONG, Lab, Receiver, Topology, copy_ok, pattern, run, within};

fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy")).join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn every_example_is_a_valid_configuration() {
    let lab = Lab::new();
    for file in yaml_files("examples") {
        let told = run(lab.weftctl(["config".as_ref(), "check".as_ref(), file.as_os_str()]), LONG).ok();
        assert!(told.stdout.contains(": valid"), "{}", told.stdout);
    }
    let wrong = lab.folder.file("wrong.yaml", b"version: 1\nnode: a\nprots: []\n");
    let error = run(lab.weftctl(["config".as_ref(), "check".as_ref(), wrong.as_os_str()]), LONG).fails(2);
    assert!(error.contains("wrong.yaml") && error.contains("prots"), "{error}");
}

#[test]
fn every_topology_comes_up_with_valid_configurations_for_its_nodes() {
    for file in yaml_files("labs") {
        let mut lab = Lab::new();
        lab.name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        lab.bring_up(&file).ok();
        for node in lab.status()["nodes"].as_array().unwrap() {
            let name = node["name"].as_str().unwrap();
            assert_eq!(node["daemon"], "running", "{}: {name}", file.display());
            let config = lab.node_file(name, "weftd.yaml");
            run(lab.weftctl(["config".as_ref(), "check".as_ref(), config.as_os_str()]), LONG).ok();
        }
        lab.down();
    }
}

/// Replaces text in the configuration file of s.
fn edit(lab: &Lab, from: &str, to: &str) {
    let file = lab.node_file("s", "weftd.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "no {from} in {text}");
    std::fs::write(file, text.replace(from, to)).unwrap();
}

/// Moves a file; how many frames the switch lost on purpose meanwhile.
fn losses_of_a_transfer(lab: &Lab, name: &str) -> u64 {
    let lost = || lab.json("s", &["counters"])["impaired"]["lost"].as_u64().unwrap();
    let before = lost();
    let receiver = Receiver::start(lab, "b", "in", &["--once"]);
    copy_ok(lab, ("a", "b"), &[lab.folder.file(name, &pattern(31, 1 << 20))], &[]);
    receiver.wait(LONG).ok();
    lost() - before
}

#[test]
fn a_changed_loss_rate_applies_to_a_running_daemon() {
    let lab = Lab::up(&Topology { link_a: "loss: 2%,", ..Topology::default() });
    assert!(losses_of_a_transfer(&lab, "one") > 0);
    edit(&lab, "loss: 2%", "loss: 0%");
    let told = lab.json("s", &["reload"]);
    let changes: Vec<_> = told["changes"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert_eq!(changes, ["ports[0].impair.egress.loss: 2% -> 0%", "ports[0].impair.ingress.loss: 2% -> 0%"]);
    assert_eq!(losses_of_a_transfer(&lab, "two"), 0);
    assert!(lab.ctl("s", &["reload"]).ok().stdout.contains("nothing has changed"));

    // The signal does the same, for those who have no right to the control socket but to the process.
    edit(&lab, "loss: 0%", "loss: 1.5%");
    let pid = i32::try_from(lab.node("s")["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::HUP).unwrap();
    let running = || lab.ctl("s", &["config", "show"]).ok().stdout;
    assert!(within(LONG, || running().contains("loss: 1.5%")), "{}", running());
    assert_eq!(lab.node("s")["daemon"], "running");
}

#[test]
fn a_changed_node_name_is_refused_and_changes_nothing() {
    let lab = Lab::up(&Topology { link_a: "loss: 2%,", ..Topology::default() });
    edit(&lab, "node: s", "node: t");
    edit(&lab, "loss: 2%", "loss: 0%");
    let refused = lab.ctl("s", &["reload"]).fails(2);
    assert!(refused.contains("node: s -> t") && refused.contains("restart weftd"), "{refused}");
    assert_eq!(lab.json("s", &["status"])["node"], "s");
    let running = lab.ctl("s", &["config", "show"]).ok().stdout;
    assert!(running.contains("node: s") && running.contains("loss: 2%"), "half of the file was taken over: {running}");

    edit(&lab, "node: t", "nodes: t");
    let faulty = lab.ctl("s", &["reload"]).fails(2);
    assert!(faulty.contains("nodes") && faulty.contains("nothing has changed"), "{faulty}");
}
