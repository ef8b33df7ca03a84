//! Obeying as dialogues with explicit times, in microseconds.

use super::*;
use crate::stop::config::{DestinationPresets, Presets};
use crate::stop::fixtures::{config, obey_config};
use alloc::vec::Vec;

const X: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const Y: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn at(micros: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + micros * 1_000)
}

/// An obedience with its journal.
struct Desk {
    obedience: Obedience,
    journal: Journal,
}

impl Desk {
    fn of(rate_rule: RateRule, obey: &ObeyConfig) -> Self {
        Self { obedience: Obedience::new(&config(rate_rule), obey, Rng::from_seed(1)), journal: Journal::new() }
    }

    fn new() -> Self {
        Self::of(RateRule::Absolute, &obey_config())
    }

    fn try_stop(&mut self, micros: u64, host: MacAddr, (priority, timer, rate): (u8, u8, u8)) -> Result<(), DropReason> {
        let request = Request { priority, timer, rate };
        self.obedience.handle_timeout(at(micros), &mut self.journal);
        self.obedience.handle_stop(at(micros), at(micros), host, request, None, &mut self.journal)
    }

    #[track_caller]
    fn stop(&mut self, micros: u64, host: MacAddr, request: (u8, u8, u8)) {
        assert_eq!(self.try_stop(micros, host, request), Ok(()));
    }

    fn cancel(&mut self, micros: u64, host: MacAddr) {
        self.obedience.handle_cancel(at(micros), host, None, &mut self.journal);
    }

    fn pass(&mut self, micros: u64) -> &mut Self {
        self.obedience.handle_timeout(at(micros), &mut self.journal);
        self
    }

    /// Microseconds until which frames are held back; 0 = they may go.
    fn closed_until(&self, micros: u64, host: MacAddr, priority: u8) -> u64 {
        match self.obedience.verdict(at(micros), host, priority, Stage::Depart) {
            Verdict::Open => 0,
            Verdict::Closed { until } => until.since(at(0)).as_micros(),
        }
    }

    /// Sends frames of 101 bytes (10 us with their overhead of 24) whenever they may go, once a microsecond; when they went.
    fn sent(&mut self, span: core::ops::Range<u64>, host: MacAddr) -> Vec<u64> {
        let mut sent = Vec::new();
        for micros in span {
            self.pass(micros);
            while self.closed_until(micros, host, 0) == 0 && sent.len() < 1_000 {
                self.obedience.book(at(micros), host, 0, 101, Stage::Depart);
                sent.push(micros);
            }
        }
        sent
    }

    fn share(&self, host: MacAddr) -> Option<Share> {
        self.obedience.views(at(0)).find(|view| view.host == host).and_then(|view| match view.standing {
            Standing::Held { share, .. } => Some(share),
            _ => None,
        })
    }

    fn events(&self) -> Vec<StopEvent> {
        self.journal.since(0).map(|record| record.event).collect()
    }
}

#[test]
fn a_stop_packet_of_x_stops_frames_to_x_for_its_timer_and_no_others() {
    let mut desk = Desk::new();
    assert!(desk.obedience.is_idle());
    desk.stop(0, X, (15, 10, 0));
    assert_eq!([desk.closed_until(1, X, 0), desk.closed_until(99, X, 14)], [100, 100]);
    assert_eq!([desk.closed_until(1, Y, 0), desk.closed_until(100, X, 0)], [0, 0]);
    desk.pass(100).pass(200);
    assert!(desk.obedience.is_idle());
    assert_eq!(desk.journal.counts.expired, 1);
}

#[test]
fn timer_zero_means_the_preset_of_the_destination_or_else_of_all() {
    let destinations = Vec::from([(Y, DestinationPresets { timer: Some(7), priority: None })]);
    let mut desk = Desk::of(RateRule::Absolute, &ObeyConfig { destinations, ..obey_config() });
    desk.stop(0, X, (15, 0, 0));
    desk.stop(0, Y, (15, 0, 0));
    assert_eq!([desk.closed_until(1, X, 0), desk.closed_until(1, Y, 0)], [500, 70]);
}

#[test]
fn a_preset_timer_may_overrule_the_packet() {
    let mut desk = Desk::of(RateRule::Absolute, &ObeyConfig { timer_rule: TimerRule::Preset, ..obey_config() });
    desk.stop(0, X, (15, 200, 0));
    assert_eq!(desk.closed_until(1, X, 0), 500);
}

#[test]
fn a_further_stop_packet_restarts_the_timer_with_the_new_value() {
    let mut desk = Desk::new();
    desk.stop(0, X, (15, 10, 0));
    desk.stop(50, X, (15, 20, 0));
    assert_eq!(desk.closed_until(60, X, 0), 250);
    desk.stop(60, X, (15, 1, 0));
    assert_eq!(desk.closed_until(61, X, 0), 70, "shorter, too");
    assert_eq!((desk.journal.counts.obeyed, desk.journal.counts.extended), (1, 2));
}

#[test]
fn a_cancel_packet_ends_it_at_once_and_only_for_its_sender() {
    let mut desk = Desk::new();
    desk.stop(0, X, (15, 100, 0));
    desk.stop(0, Y, (15, 100, 0));
    desk.cancel(10, X);
    assert_eq!([desk.closed_until(10, X, 0), desk.closed_until(10, Y, 0)], [0, 1_000]);
    assert_eq!(desk.obedience.poll_released(), Some(X));
    desk.cancel(11, MacAddr([2, 0, 0, 0, 0, 7]));
    assert_eq!(desk.journal.counts.cancelled, 1);
}

#[test]
fn frames_of_lower_priority_are_meant_by_each_rule() {
    let destinations = Vec::from([(Y, DestinationPresets { timer: None, priority: Some(6) })]);
    let presets = Presets { timer: 50, priority: 3 };
    let lowest_free = |rule, host, field| {
        let obey = ObeyConfig { priority_rule: rule, presets, destinations: destinations.clone(), ..obey_config() };
        let mut desk = Desk::of(RateRule::Absolute, &obey);
        desk.stop(0, host, (field, 10, 0));
        (0..=16).find(|&priority| desk.closed_until(1, host, priority) == 0).unwrap()
    };
    let table =
        |rule, fields: &[u8]| fields.iter().map(|&field| (lowest_free(rule, X, field), lowest_free(rule, Y, field))).collect::<Vec<_>>();
    assert_eq!(table(PriorityRule::Packet, &[9, 0]), [(9, 9), (3, 6)]);
    assert_eq!(table(PriorityRule::Selector, &[0b0011, 0b0111, 0b1010, 0b1100]), [(3, 3), (3, 6), (10, 10), (16, 16)]);
    assert_eq!(table(PriorityRule::Local, &[9, 0]), [(3, 6), (3, 6)]);
    assert_eq!(table(PriorityRule::None, &[9, 0]), [(16, 16), (16, 16)]);
}

#[test]
fn a_rate_field_slows_down_to_sixteenths_and_the_full_rate_comes_back() {
    let mut desk = Desk::new();
    desk.stop(0, X, (15, 100, 4));
    // A quarter: every 40 us.
    assert_eq!(desk.sent(0..200, X), [0, 40, 80, 120, 160]);
    desk.stop(165, X, (15, 1, 1));
    desk.obedience.book(at(165), X, 0, 101, Stage::Depart);
    assert_eq!(desk.closed_until(166, X, 0), 175, "the end of the timer comes before the next turn");
    desk.stop(170, X, (15, 100, 4));
    desk.cancel(200, X);
    // What waits leaves at the rate of the link and not at once.
    assert_eq!(desk.sent(200..250, X), [200, 210, 220, 230, 240]);
    desk.pass(500);
    assert_eq!(desk.sent(500..501, X).len(), 1_000, "and then nothing is in the way");
}

#[test]
fn rules_that_depend_on_the_rate_so_far_compound_and_end_at_the_rate_before_the_first() {
    let mut desk = Desk::of(RateRule::Function, &obey_config());
    desk.stop(0, X, (15, 10, 7));
    assert_eq!(desk.share(X), Some(Share::sixteenths(14)));
    desk.stop(10, X, (15, 10, 3));
    assert_eq!(desk.share(X), Some(Share::sixteenths(9)));
    let mut halved = Desk::of(RateRule::Halving, &obey_config());
    halved.stop(0, X, (15, 10, 1));
    halved.stop(10, X, (15, 10, 2));
    assert_eq!(halved.share(X).map(Share::permille), Some(125));
    halved.pass(110);
    halved.stop(400, X, (15, 10, 1));
    assert_eq!(halved.share(X).map(Share::permille), Some(500), "the full rate was restored between");
}

#[test]
fn slowing_down_from_a_stop_wakes_those_who_wait() {
    let mut desk = Desk::new();
    desk.stop(0, X, (15, 100, 0));
    desk.stop(10, X, (15, 100, 8));
    assert_eq!(desk.obedience.poll_released(), Some(X));
    assert_eq!(desk.closed_until(11, X, 0), 0);
}

#[test]
fn resuming_waits_for_a_random_time_up_to_the_jitter() {
    let obey = ObeyConfig { resume_jitter: Duration::from_micros(50), ..obey_config() };
    let starts: Vec<u64> = (0..32)
        .map(|seed| {
            let mut desk =
                Desk { obedience: Obedience::new(&config(RateRule::Absolute), &obey, Rng::from_seed(seed)), journal: Journal::new() };
            desk.stop(0, X, (15, 10, 0));
            desk.sent(0..200, X)[0]
        })
        .collect();
    assert!(starts.iter().all(|start| (100..=151).contains(start)), "{starts:?}");
    assert!(starts.iter().max() > Some(&140) && starts.iter().min() < Some(&110), "{starts:?}");
}

#[test]
fn time_held_back_is_summed_and_half_the_rate_counts_half() {
    let mut desk = Desk::new();
    desk.stop(0, X, (15, 10, 0));
    desk.stop(1_000, X, (15, 10, 8));
    desk.pass(2_000);
    assert_eq!(desk.journal.counts.stopped_nanos, 150_000);
    assert_eq!(desk.obedience.views(at(2_000)).next().map(|view| view.stopped), Some(Duration::from_micros(150)));
}

#[test]
fn stopping_for_ever_ends_after_the_longest_time_in_one_alarm_and_stays_so() {
    let mut desk = Desk::new();
    let refused = (0..10_000).filter(|step| desk.try_stop(step * 100, X, (15, 255, 0)) == Err(DropReason::StopBudget)).count();
    // 20 ms are 200 packets.
    assert!((9_798..=9_800).contains(&refused), "{refused}");
    assert_eq!(desk.closed_until(1_000_000, X, 0), 0);
    let alarms = desk.events().iter().filter(|event| matches!(event, StopEvent::Runaway { .. })).count();
    assert_eq!((alarms, desk.journal.counts.capped, desk.journal.counts.obeyed), (1, 1, 1));
    assert!(desk.journal.counts.stopped_nanos <= 20_100_000, "{}", desk.journal.counts.stopped_nanos);
}

#[test]
fn slowing_down_may_last_as_long_as_the_budget_allows() {
    let mut desk = Desk::new();
    // Three quarters withheld, where nine tenths are allowed.
    (0..2_000).for_each(|step| desk.stop(step * 1_000, X, (15, 200, 4)));
    // Fifteen sixteenths: 20 ms of credit last for 20 / (0.9375 - 0.9) = 533 ms.
    let obeyed = (2_000..4_000).take_while(|step| desk.try_stop(step * 1_000, X, (15, 200, 1)).is_ok()).count();
    assert!((500..560).contains(&obeyed), "{obeyed}");
}

#[test]
fn a_host_that_was_quiet_is_forgiven_and_cancel_packets_are_no_sign_of_a_storm() {
    let mut desk = Desk::new();
    for step in 0..300 {
        let _ = desk.try_stop(step * 100, X, (15, 255, 0));
    }
    assert!(desk.events().contains(&StopEvent::Runaway { host: X }));
    (0..900).for_each(|step| desk.cancel(30_000 + step * 100, X));
    desk.pass(129_800);
    assert!(!desk.events().contains(&StopEvent::Forgiven { host: X }));
    desk.pass(129_900);
    assert!(desk.events().contains(&StopEvent::Forgiven { host: X }));
    desk.stop(150_000, X, (15, 10, 0));
    assert_eq!(desk.closed_until(150_001, X, 0), 150_100);
}

#[test]
fn stopping_and_cancelling_in_turn_runs_into_the_budget() {
    let mut desk = Desk::new();
    // 990 of 1000 us stopped, where 900 are allowed: 20 ms of credit last for 222 rounds.
    let mut rounds = 0;
    while rounds < 1_000 && desk.try_stop(rounds * 1_000, X, (15, 255, 0)).is_ok() {
        desk.cancel(rounds * 1_000 + 990, X);
        rounds += 1;
    }
    assert!((215..230).contains(&rounds), "{rounds}");
    // A receiver with nine other senders stops each for nine tenths of the time, for ever.
    let mut fair = Desk::new();
    for round in 0..1_000 {
        fair.stop(round * 1_000, X, (15, 255, 0));
        fair.cancel(round * 1_000 + 899, X);
    }
}

#[test]
fn a_receiver_that_dies_holds_us_back_for_one_timer() {
    let mut desk = Desk::new();
    (0..10).for_each(|step| desk.stop(step * 1_000, X, (15, 200, 0)));
    assert_eq!(desk.closed_until(9_001, X, 0), 11_000);
    desk.pass(11_000);
    assert_eq!(desk.closed_until(11_000, X, 0), 0);
}

#[test]
fn a_full_table_refuses_strangers_and_keeps_those_who_are_held() {
    let mut desk = Desk::new();
    let host = |number| MacAddr([2, 0, 0, 0, 1, number]);
    (0..4).for_each(|number| desk.stop(0, host(number), (15, 100, 0)));
    assert_eq!(desk.try_stop(1, X, (15, 100, 0)), Err(DropReason::StopTableFull));
    assert_eq!(desk.closed_until(1, X, 0), 0);
    assert!((0..4).all(|number| desk.closed_until(1, host(number), 0) == 1_000));
    desk.pass(1_000).pass(3_000);
    desk.stop(3_000, X, (15, 100, 0));
}

#[test]
fn frames_that_left_after_the_packet_came_in_are_counted() {
    let mut desk = Desk::new();
    for (micros, host, priority) in [(8, X, 0), (11, X, 0), (12, Y, 0), (13, X, 15), (14, X, 0)] {
        desk.obedience.book(at(micros), host, priority, 100, Stage::Depart);
    }
    let request = Request { priority: 15, timer: 10, rate: 0 };
    desk.obedience.handle_stop(at(20), at(10), X, request, None, &mut desk.journal).unwrap();
    assert_eq!((desk.journal.counts.late_frames, desk.journal.counts.late_frames_max), (2, 2));
}

#[test]
fn jitter_after_each_cancel_does_not_hold_a_host_back_beyond_its_budget() {
    let mut desk = Desk::of(RateRule::Absolute, &ObeyConfig { resume_jitter: Duration::from_millis(10), ..obey_config() });
    let mut open = 0;
    // A stop packet and at once a cancel packet, every 100 us for a second: the frames ask between them.
    for round in 0..10_000 {
        let now = round * 100;
        let _refused = desk.try_stop(now, X, (15, 1, 0));
        desk.cancel(now + 1, X);
        open += u64::from(desk.pass(now + 50).closed_until(now + 50, X, 0) == 0);
    }
    assert!(open >= 1_000, "open in {open} of 10000 looks, a tenth is promised");
}
