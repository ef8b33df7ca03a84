//! What each setting makes of the same incast.

use std::collections::BTreeMap;

use weft_proto::BitRate;
use weft_sim::incast::{Report, Scene, Setting, run};

fn reports(two_stages: bool, megabits: u32) -> BTreeMap<&'static str, Report> {
    let names = ["nothing", "pause", "stop", "rate"];
    let report = |setting| run(&Scene::new(setting, two_stages, BitRate::megabits(megabits)));
    let reports: BTreeMap<_, _> = names.into_iter().zip(Setting::ALL.map(report)).collect();
    for (name, r) in &reports {
        println!(
            "{megabits:4} Mbit/s {name:8} lost {:5} later {:5} hot {:5.1} link {:5.1}% victims {:5.1}% {:5.1}% control {:5} p99 {:4} -> {:5} again {}",
            r.lost,
            r.lost_later,
            r.hot / 1e6,
            r.utilisation,
            r.victims[0].left(),
            r.victims[1].left(),
            r.control_frames,
            r.latency[0].as_micros(),
            r.latency[1].as_micros(),
            r.retransmitted,
        );
    }
    reports
}

#[test]
fn x() {
    for two in [false, true] {
        for m in [50, 100, 1000] {
            reports(two, m);
        }
    }
}
