//! What each setting makes of the same incast.

use weft_proto::BitRate;
use weft_sim::incast::{Report, Scene, Setting, run};

fn report(setting: Setting, two_stages: bool) -> Report {
    run(&Scene::new(setting, two_stages, BitRate::megabits(100)))
}

#[test]
fn with_nothing_the_switch_loses_frames() {
    assert!(report(Setting::Nothing, false).lost_later > 100);
    assert!(report(Setting::Nothing, true).lost_later > 100);
}

#[test]
fn pause_loses_nothing_and_silences_the_victim_behind_the_same_link() {
    let report = report(Setting::Pause, false);
    assert_eq!(report.lost, 0);
    assert!(report.victims[0].left() < 50.0, "{report:?}");
    assert!(report.utilisation > 90.0 && report.control_frames > 0, "{report:?}");
}

#[test]
fn pause_spreads_over_the_link_between_switches_to_a_victim_that_has_nothing_to_do_with_it() {
    let report = report(Setting::Pause, true);
    assert_eq!(report.lost, 0);
    assert!(report.victims.iter().all(|victim| victim.left() < 50.0), "{report:?}");
}

/// What stop control is for, in one stage and in two.
fn keeps_its_promise(setting: Setting) {
    for two_stages in [false, true] {
        let report = report(setting, two_stages);
        assert_eq!(report.lost_later, 0, "{report:?}");
        assert!(report.victims.iter().all(|victim| victim.left() >= 90.0), "{report:?}");
        assert!(report.utilisation >= 90.0, "{report:?}");
        assert!(report.latency[1] <= report.latency[0].saturating_mul(2), "{report:?}");
    }
}

#[test]
fn stopping_loses_nothing_and_leaves_victims_and_the_hot_link_busy_and_urgent_frames_fast() {
    keeps_its_promise(Setting::Stop);
}

#[test]
fn slowing_down_loses_nothing_and_leaves_victims_and_the_hot_link_busy_and_urgent_frames_fast() {
    keeps_its_promise(Setting::Rate);
}

#[test]
fn the_same_scene_gives_the_same_numbers() {
    let once = || format!("{:?}", report(Setting::Stop, false));
    assert_eq!(once(), once());
}
