//! What congestion control promises, in the simulated fabric.

#![allow(missing_docs)]

use weft_bench::fabric::{Fabric, Outcome, Setup};
use weft_proto::Duration;
use weft_proto::transport::congestion::Algorithm;

fn run(setup: Setup) -> Outcome {
    let outcome = Fabric::new(Setup { span: Duration::from_millis(20), ..setup }).run();
    assert_eq!(outcome.failures, 0);
    outcome
}

#[test]
fn sixty_four_senders_to_one_port_drop_nothing_with_swift_or_dctcp_and_most_without() {
    let none = run(Setup::new(Algorithm::None, 64));
    assert!(none.drops > 10_000, "{none:?}");
    for algorithm in [Algorithm::Swift, Algorithm::Dctcp] {
        let outcome = run(Setup::new(algorithm, 64));
        assert_eq!((outcome.drops, outcome.counters.timeouts), (0, 0), "{algorithm:?}");
        assert!(outcome.queue.1 < none.queue.1 / 4, "{algorithm:?}: {:?}, without {:?}", outcome.queue, none.queue);
        // In 20 ms of 64 such streams few messages complete; what counts is that the link was busy.
        assert!(outcome.counters.packets_sent > 15_500, "{algorithm:?}: {}", outcome.counters.packets_sent);
    }
}

#[test]
fn every_algorithm_leaves_a_flow_alone_that_is_alone() {
    let none = run(Setup::new(Algorithm::None, 1));
    for algorithm in [Algorithm::Timely, Algorithm::Dcqcn, Algorithm::Aimd, Algorithm::Dctcp, Algorithm::Swift] {
        let outcome = run(Setup::new(algorithm, 1));
        assert!(outcome.goodput > 0.97 * none.goodput, "{algorithm:?}: {} of {}", outcome.goodput, none.goodput);
    }
}

#[test]
fn swift_takes_no_notice_of_a_cable_that_loses_frames() {
    let lossy = |algorithm| run(Setup { loss_ppm: 10_000, ..Setup::new(algorithm, 1) });
    let (none, swift) = (lossy(Algorithm::None), lossy(Algorithm::Swift));
    assert!(swift.goodput > 0.95 * none.goodput, "{} of {}", swift.goodput, none.goodput);
}

#[test]
fn a_flow_that_comes_later_gets_its_half() {
    for algorithm in [Algorithm::Dctcp, Algorithm::Swift] {
        let outcome = run(Setup { stagger: Duration::from_millis(5), ..Setup::new(algorithm, 2) });
        assert!(outcome.fairness > 0.95, "{algorithm:?}: {}", outcome.fairness);
    }
}

#[test]
fn dcqcn_goes_by_acknowledgements_when_notifications_are_lost() {
    let setup = Setup::new(Algorithm::Dcqcn, 8);
    let (heard, lost) = (run(setup.clone()), run(Setup { lose_notifications: true, ..setup }));
    assert!(heard.counters.notifications_received > 100, "{heard:?}");
    assert_eq!(lost.counters.notifications_received, 0);
    let Outcome { counters, queue, goodput, drops, .. } = lost;
    assert!(counters.congestion_decreases > 100 && drops == 0, "{counters:?}");
    // Acknowledgements bring the news later, so the queue is longer; without any it is above 3 MB.
    assert!(heard.queue.0 < queue.0 && queue.0 < 600_000.0 && goodput > 6e9, "{queue:?} instead of {:?}, {goodput}", heard.queue);
}
