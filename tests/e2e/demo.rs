//! The demo, as `cargo demo --json` runs it.

use crate::support::{Lab, run};

#[test]
fn the_demo_prints_one_object_with_what_it_found_and_leaves_nothing() {
    let lab = Lab::new();
    let told = run(lab.weftctl(["lab", "demo", "--json", "--size", "8MiB"]), std::time::Duration::from_secs(110)).ok();
    assert_eq!(told.stdout.lines().count(), 1, "{}", told.stdout);
    let report = told.json();
    assert_eq!(report["bytes"], 8 << 20);
    for key in ["sha256_received", "sha256_received_go_back_n"] {
        assert_eq!(report[key], report["sha256_sent"], "{key}");
    }
    for key in ["goodput_bps", "retransmissions", "seconds"] {
        for recovery in ["irn", "go_back_n"] {
            assert!(report[key][recovery].as_f64().unwrap() > 0.0, "{key}.{recovery}: {report}");
        }
    }
    assert!(report["frames_dropped_by_impairment"].as_u64().unwrap() > 0);
    assert!(report["frames_dropped_by_reason"]["impaired_loss"].as_u64().unwrap() > 0);
    assert_eq!(lab.folder.names("run"), [""; 0]);
    assert_eq!(lab.folder.names(""), ["run"], "the demo's file is left");
}
