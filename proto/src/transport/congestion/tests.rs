//! What holds for every law, whatever happens; each law's own steps are tested in its file.

use super::*;
use proptest::prelude::*;

/// Most packets in flight in these tests.
pub(super) const CAP: Window = Window::packets(200);
/// The round trip of [`report`].
pub(super) const RTT: Duration = Duration::from_micros(50);
const ALL: [Algorithm; 5] = [Algorithm::Timely, Algorithm::Dcqcn, Algorithm::Aimd, Algorithm::Dctcp, Algorithm::Swift];

pub(super) const fn settings() -> Settings {
    Settings::new(Algorithm::None, BitRate::megabits(10_000))
}

/// So many milliseconds after the start.
pub(super) const fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// `delivered` packets arrived after the usual round trip, and the window was full.
pub(super) const fn report(now: Instant, delivered: u32) -> Report {
    Report { now, delivered, outstanding: 1000, marked: 0, rtt: Some(RTT) }
}

fn controller(algorithm: Algorithm) -> Controller {
    Controller::new(&Settings { algorithm, ..settings() }, 200)
}

/// True if the outputs are within their bounds.
fn is_sane(controller: &Controller) -> bool {
    let window = controller.window().is_none_or(|window| window <= CAP && window >= Window::part(Share::ratio(1, 1000)));
    let rate = controller.rate().is_none_or(|rate| rate <= settings().link_rate && rate >= settings().min_rate);
    window && rate
}

#[derive(Clone, Debug)]
enum Happening {
    Ack(u32, u32, u32, Option<u64>),
    Loss,
    Timeout,
    Notification,
    Sent(u64, bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (any::<u32>(), any::<u32>(), any::<u32>(), proptest::option::of(any::<u64>())).prop_map(|(d, o, m, r)| Happening::Ack(d, o, m, r)),
        4 => (0..300u32, 0..300u32, 0..300u32, proptest::option::of(0..5_000_000u64)).prop_map(|(d, o, m, r)| Happening::Ack(d, o, m, r)),
        1 => Just(Happening::Loss),
        1 => Just(Happening::Timeout),
        2 => Just(Happening::Notification),
        4 => (0..100_000_000u64, any::<bool>()).prop_map(|(bytes, again)| Happening::Sent(bytes, again)),
    ]
}

fn happen(controller: &mut Controller, now: Instant, happening: &Happening) {
    match *happening {
        Happening::Ack(delivered, outstanding, marked, rtt) => {
            controller.on_ack(Report { now, delivered, outstanding, marked, rtt: rtt.map(Duration::from_nanos) });
        }
        Happening::Loss => _ = controller.on_loss(now),
        Happening::Timeout => _ = controller.on_timeout(now),
        Happening::Notification => _ = controller.on_notification(now),
        Happening::Sent(bytes, again) => _ = controller.on_sent(now, bytes, again),
    }
}

proptest! {
    #[test]
    fn outputs_stay_within_bounds_and_recover_whatever_happened(
        algorithm in prop::sample::select(ALL.to_vec()),
        story in prop::collection::vec((0..3_000_000u64, happening()), 0..150),
    ) {
        let mut controller = controller(algorithm);
        let mut now = at(1);
        for (pause, happening) in &story {
            now += Duration::from_nanos(*pause);
            happen(&mut controller, now, happening);
            prop_assert!(is_sane(&controller), "{happening:?}: {controller:?}");
        }
        // Whatever the story was, on a quiet path of 50 us full speed comes back. 21 s cover the memory of round trips.
        for _ in 0..42_000 {
            now += Duration::from_micros(500);
            controller.on_sent(now, 1500, false);
            controller.on_ack(report(now, 200));
        }
        prop_assert!(controller.window().is_none_or(|window| window >= Window::packets(190)), "{controller:?}");
        prop_assert!(controller.rate().is_none_or(|rate| rate >= BitRate::megabits(9_500)), "{controller:?}");
    }

    #[test]
    fn losses_within_a_round_trip_count_once(algorithm in prop::sample::select(alloc::vec![Algorithm::Aimd, Algorithm::Dctcp, Algorithm::Swift]), losses in 2..50u64) {
        let mut controller = controller(algorithm);
        controller.on_ack(report(at(1), 10));
        let slower = (0..losses).filter(|n| controller.on_loss(at(2) + Duration::from_nanos(n * 1000).min(Duration::from_micros(49))));
        prop_assert_eq!(slower.count(), 1);
    }
}

#[test]
fn a_controller_is_small() {
    assert!(size_of::<Controller>() <= 192, "{} bytes per queue pair", size_of::<Controller>());
    assert!(size_of::<Gate>() <= 256, "{} bytes per queue pair", size_of::<Gate>());
}
