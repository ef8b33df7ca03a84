//! The commands against real daemons: two hosts on one cable, in a lab.
//!
//! The daemon is this test program, started through a script, so that these tests need no other crate's binary.

mod stage;

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use stage::{Stage, eventually, text};

/// Long enough to be cut short, on any machine.
const LONG: usize = 96 << 20;

#[test]
fn files_arrive_whole_with_their_names_and_permissions() {
    let stage = Stage::up();
    let odd = std::ffi::OsStr::from_bytes(b"odd\nname \xff*");
    let contents = [("long".as_ref(), vec![7; 3_000_001]), ("empty".as_ref(), Vec::new()), (odd, b"odd".to_vec())];
    let mut arguments = vec!["cp".as_ref()];
    let paths: Vec<_> = contents.iter().map(|(name, content)| stage.file(name, content)).collect();
    arguments.extend(paths.iter().map(|path| path.as_os_str()));
    arguments.extend(["b:", "--json"].map(std::ffi::OsStr::new));
    fs::set_permissions(&paths[0], fs::Permissions::from_mode(0o750)).unwrap();

    let receiver = stage.receive(&["--once"]);
    let output = stage.inside("a", &arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (status, error) = receiver.end();
    assert!(status.success(), "one transfer was enough: {error}");

    for (name, content) in &contents {
        assert!(fs::read(stage.arrived(name)).unwrap() == *content, "{}", name.display());
    }
    assert_eq!(fs::metadata(stage.arrived("long".as_ref())).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(report["bytes"], 3_000_004);
    assert_eq!(report["files"][1]["sha256_received"], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert!(report["files"].as_array().unwrap().iter().all(|file| file["sha256_sent"] == file["sha256_received"]));
    assert!(report["retransmissions"].is_u64() && report["recovery"] == "irn", "{report}");
}

#[test]
fn what_exists_is_replaced_only_if_the_receiver_says_so_and_the_sender_hears_why() {
    let stage = Stage::up();
    let file = stage.file("file".as_ref(), b"new");
    fs::write(stage.arrived("file".as_ref()), b"old").unwrap();
    let receiver = stage.receive(&[]);
    let error = stage.fails("a", &["cp".as_ref(), file.as_os_str(), "b:".as_ref()], 1);
    assert!(error.contains("exists already") && error.contains("--overwrite"), "{error}");
    assert_eq!(fs::read(stage.arrived("file".as_ref())).unwrap(), b"old");
    let busy = stage.fails("b", &["receive".as_ref(), "/tmp".as_ref()], 1);
    assert!(busy.contains("--service"), "{busy}");
    assert!(receiver.interrupt().success(), "an interrupted receiver has done its work");

    let _receiver = stage.receive(&["--overwrite"]);
    stage.ok("a", &["cp".as_ref(), file.as_os_str(), "b:".as_ref()]);
    assert_eq!(fs::read(stage.arrived("file".as_ref())).unwrap(), b"new");
}

/// Starts a long transfer, has `cut` cut it short when it is under way; what both sides say. Nothing of the file may be left.
fn cut_short(stage: &Stage, cut: impl FnOnce(&stage::Running)) -> [(Option<i32>, String); 2] {
    let file = stage.file("file".as_ref(), &vec![7; LONG]);
    let receiver = stage.receive(&["--once"]);
    let sender = stage.start("a", &["cp".as_ref(), file.as_os_str(), "b:".as_ref()]);
    let part = stage.arrived("file.part".as_ref());
    assert!(eventually(|| fs::metadata(&part).is_ok_and(|meta| meta.len() > 0)), "the transfer does not start");
    cut(&sender);
    let ends = [sender, receiver].map(|side| {
        let (status, error) = side.end();
        (status.code(), error)
    });
    assert_eq!(fs::read_dir(part.parent().unwrap()).unwrap().count(), 0, "{ends:?}");
    ends
}

#[test]
fn a_daemon_killed_in_the_middle_ends_both_commands_and_after_a_restart_all_is_well() {
    for (victim, at_sender, at_receiver) in
        [("b", "no answer any more", "this host went away"), ("a", "this host went away", "no answer any more")]
    {
        let stage = Stage::up();
        let [sender, receiver] = cut_short(&stage, |_| stage.lab(&["kill", stage::LAB, victim]));
        assert!(sender.0 == Some(3) && sender.1.contains(at_sender), "{sender:?}");
        assert!(receiver.0 == Some(3) && receiver.1.contains(at_receiver), "{receiver:?}");
        stage.lab(&["restart", stage::LAB, victim]);
        let small = stage.file("small".as_ref(), b"again");
        let _receiver = stage.receive(&[]);
        stage.ok("a", &["cp".as_ref(), small.as_os_str(), "b:".as_ref()]);
        assert_eq!(fs::read(stage.arrived("small".as_ref())).unwrap(), b"again");
    }
}

#[test]
fn an_interrupted_copy_leaves_nothing_on_the_other_side() {
    let stage = Stage::up();
    let [sender, receiver] = cut_short(&stage, |sender| sender.signal(Signal::INT));
    assert_eq!(sender.0, Some(130), "{sender:?}");
    assert!(receiver.0.is_some_and(|code| code != 0), "{receiver:?}");
}

#[test]
fn measurements_tell_what_was_measured_and_the_lists_show_it() {
    let stage = Stage::up();
    let nobody = stage.fails("a", &["ping".as_ref(), "b".as_ref()], 3);
    assert!(nobody.contains("weftctl serve"), "{nobody}");
    let _serve = stage.listen("b", &["serve".as_ref()]);
    let json = |words: &[&str]| -> serde_json::Value {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        serde_json::from_slice(&stage.ok("a", &words).stdout).unwrap()
    };
    let ping = json(&["ping", "b", "--count", "3", "--interval", "1ms", "--timeout", "10s", "--json"]);
    assert!(ping["answered"] == 3 && ping["loss"] == 0.0, "{ping}");
    let write = json(&["bench", "write", "--to", "b", "--size", "10000", "--count", "50", "--json"]);
    assert!(write["bytes"] == 500_000 && write["messages"] == 50 && write["goodput_bps"].as_f64() > Some(0.0), "{write}");
    let send = json(&["bench", "send", "--to", "b", "--size", "100", "--count", "500", "--depth", "7", "--json"]);
    assert!(send["messages"] == 500 && send["latency"]["max_us"].as_f64() >= send["latency"]["p50_us"].as_f64(), "{send}");
    let latency = json(&["bench", "latency", "--to", "b", "--count", "20", "--recovery", "go-back-n", "--json"]);
    assert!(latency["count"] == 20 && latency["recovery"] == "go-back-n", "{latency}");

    assert_eq!(json(&["status", "--json"])["node"], "a");
    assert_eq!(json(&["port", "show", "--json"])[0]["name"], "eth0");
    assert!(json(&["counters", "--json"])["transport"]["sent_bytes"].as_u64() >= Some(500_000));
    for list in ["peer", "qp", "fdb", "queue"] {
        assert!(json(&[list, "show", "--json"]).is_array(), "{list}");
        assert!(!stage.ok("a", &[list.as_ref(), "show".as_ref()]).stdout.is_empty(), "{list}");
    }
    assert!(text(&stage.ok("a", &["config".as_ref(), "show".as_ref()])).contains("node: a"));
    assert!(text(&stage.ok("a", &["reload".as_ref()])).contains("nothing has changed"));
}

const STOPPING: &str = "
name: pair
nodes:
  a: { kind: host, stop: { tick: 1ms, detect: off } }
  b: { kind: host, stop: { tick: 1ms, obey: { longest: 60s } } }
links: [ { ends: [a, b] } ]
";

#[test]
fn stop_control_is_shown_steered_and_followed() {
    let stage = Stage::up_with(STOPPING);
    let ok = |node: &str, words: &[&str]| {
        let words: Vec<_> = words.iter().map(std::ffi::OsStr::new).collect();
        text(&stage.ok(node, &words))
    };
    assert!(ok("a", &["stop", "show"]).contains("obeys, does not ask by itself"));
    let sent = ok("a", &["stop", "send", "b", "--timer", "255", "--rate", "4"]);
    assert_eq!(sent.trim(), "b is asked to stop frames below 15 for 255 ticks, rate 4");
    let obeyed = ok("b", &["stop", "watch", "--all", "--count", "1"]);
    assert!(obeyed.contains("obeyed") && obeyed.contains("  a  ") && obeyed.contains("rate 25.0%"), "{obeyed}");
    let line = ok("b", &["stop", "watch", "--all", "--count", "1", "--json"]);
    let event: serde_json::Value = serde_json::from_str(line.trim()).unwrap();
    assert_eq!((&event["event"], &event["name"], event["number"].as_u64()), (&"obeyed".into(), &"a".into(), Some(0)), "{event}");
    let shown: serde_json::Value = serde_json::from_str(&ok("b", &["stop", "show", "--json"])).unwrap();
    assert_eq!((&shown["askers"]["items"][0]["name"], shown["ports"].as_array().unwrap().len()), (&"a".into(), 1), "{shown}");
}

#[test]
fn stop_control_refuses_what_cannot_be_and_a_watch_ends_when_asked_to() {
    let stage = Stage::up_with(STOPPING);
    let fails = |node: &str, words: &[&str], code| stage.fails(node, &words.iter().map(std::ffi::OsStr::new).collect::<Vec<_>>(), code);
    assert!(fails("a", &["stop", "send", "nobody"], 1).contains("neither a name in hosts"));
    assert!(fails("a", &["stop", "send", "a"], 1).contains("a is this node itself"));
    assert!(fails("a", &["stop", "cancel", "b"], 1).contains("b is not asked to stop"));
    assert!(fails("a", &["stop", "send", "b", "--rate", "16"], 2).contains("16 is not in 0..=15"));
    let said = stage.ok("a", &["stop", "send", "b"].map(std::ffi::OsStr::new));
    assert!(said.status.success());
    let watch = stage.listen("a", &["stop", "watch", "--all"].map(std::ffi::OsStr::new));
    assert!(watch.interrupt().success(), "an interrupted watch has done its work");
}
