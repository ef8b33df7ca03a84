//! Incast, as `weftctl lab incast --json` runs it: one switch, then two, each with nothing, PAUSE, stop and rate.

use std::time::Duration;

use serde_json::Value;

use crate::support::{Lab, run};

/// What is left of a victim's goodput in the lab, in percent.
fn left(line: &Value, victim: usize) -> f64 {
    line["lab"]["victims"][victim]["percent"].as_f64().unwrap()
}

#[test]
fn stop_control_saves_frames_and_victims_that_nothing_and_pause_do_not() {
    let lab = Lab::new();
    let told = run(lab.weftctl(["lab", "incast", "--json", "--seconds", "1"]), Duration::from_secs(500)).ok();
    assert_eq!(told.stdout.lines().count(), 1, "{}", told.stdout);
    let report = told.json();
    let lines = report["lines"].as_array().unwrap();
    let names: Vec<_> = lines.iter().map(|line| (line["switches"].as_u64().unwrap(), line["setting"].as_str().unwrap())).collect();
    let expected: Vec<_> = [1, 2].into_iter().flat_map(|count| ["nothing", "PAUSE", "stop", "rate"].map(|name| (count, name))).collect();
    assert_eq!(names, expected);
    let counted = |line: &Value, what: &str| line["lab"][what].as_u64().unwrap();
    for stage in lines.chunks(4) {
        let [nothing, pause, stop, rate] = stage else { unreachable!("four each") };
        // On a machine with other things to do a stop packet may come late, so that some frames are lost all the same.
        assert!(counted(nothing, "frames_lost") > counted(stop, "frames_lost"), "{report:#}");
        assert_eq!(counted(nothing, "control_frames"), 0, "{report:#}");
        assert!([pause, stop, rate].iter().all(|line| counted(line, "control_frames") > 0), "{report:#}");
        assert!(left(stop, 0) > left(pause, 0) && left(rate, 0) > left(pause, 0), "{report:#}");
    }
    // With two switches PAUSE reaches the victim that has nothing to do with it.
    assert!(left(&lines[6], 1) > left(&lines[5], 1), "{report:#}");
    assert_eq!(lab.folder.names("run"), [""; 0]);
}
