use super::*;

const WATCHDOG: Duration = Duration::from_millis(400);
const GBIT: BitRate = BitRate::megabits(1000);
const CONFIG: FlowConfig = FlowConfig { xoff: 1000, xon: 400, pause_time: Duration::from_micros(512), watchdog: WATCHDOG };
/// Quanta of the pause time at 1 Gbit/s.
const TIME: u16 = 1000;

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

/// One end of a link with its counters.
struct Desk {
    flow: Flow,
    counters: FlowCounters,
}

impl Desk {
    fn new(kind: FlowControl) -> Self {
        Self { flow: Flow::new(kind), counters: FlowCounters::default() }
    }

    fn hear(&mut self, now: Instant, message: MacControl) -> Result<(), DropReason> {
        self.flow.advance(now, WATCHDOG, &mut self.counters);
        self.flow.handle(now, &message, GBIT, &mut self.counters)
    }

    fn pause(&mut self, now: Instant, time: u16) {
        self.hear(now, MacControl::Pause { time }).unwrap();
    }

    fn held(&mut self, now: Instant) -> u8 {
        self.flow.advance(now, WATCHDOG, &mut self.counters);
        self.flow.held(8)
    }

    /// What is sent at `now` if so much waits per class.
    fn ask(&mut self, now: Instant, levels: &[u64]) -> Option<MacControl> {
        let mut padded = [0; CLASSES_MAX];
        padded[..levels.len()].copy_from_slice(levels);
        let due = self.flow.poll_ask(&CONFIG, &padded).is_some_and(|due| due <= now);
        due.then(|| self.flow.ask(now, &CONFIG, &padded, 8, GBIT))
    }
}

#[test]
fn a_pause_lasts_its_quanta_at_the_rate_of_the_link_and_no_longer() {
    let mut desk = Desk::new(FlowControl::Pause);
    assert_eq!(desk.held(at(0)), 0);
    desk.pause(at(100), TIME);
    assert_eq!(desk.held(at(100)), 0xff);
    assert_eq!(desk.flow.poll_release(WATCHDOG), Some(at(612)));
    assert_eq!(desk.held(at(611)), 0xff);
    assert_eq!(desk.flow.advance(at(700), WATCHDOG, &mut desk.counters), Some(at(612)), "it ended by its own clock");
    assert_eq!(desk.held(at(700)), 0);
    assert_eq!((desk.counters.received, desk.counters.paused), (1, Duration::from_micros(512)));
}

#[test]
fn a_later_pause_replaces_the_time_and_zero_ends_it() {
    let mut desk = Desk::new(FlowControl::Pause);
    desk.pause(at(0), TIME);
    desk.pause(at(500), TIME);
    assert_eq!(desk.held(at(1011)), 0xff);
    desk.pause(at(1011), 10);
    assert_eq!(desk.held(at(1017)), 0, "shorter than what was asked before");
    desk.pause(at(2000), TIME);
    desk.pause(at(2100), 0);
    assert_eq!(desk.held(at(2100)), 0);
    assert_eq!(desk.flow.poll_release(WATCHDOG), None);
    assert_eq!(desk.counters.received, 5);
    assert_eq!(desk.counters.paused, Duration::from_nanos(1_011_000 + 5_120 + 100_000));
}

#[test]
fn pfc_stops_the_priorities_named_and_no_others() {
    let mut desk = Desk::new(FlowControl::Pfc);
    let times = [0, 2 * TIME, 0, TIME, 9, 9, 9, 9];
    desk.hear(at(0), MacControl::Pfc { enabled: 0b1010, times }).unwrap();
    assert_eq!(desk.held(at(0)), 0b1010);
    assert_eq!(desk.flow.held(4), 0b0011, "with four classes two priorities share one");
    assert_eq!(desk.flow.held(1), 1);
    desk.hear(at(10), MacControl::Pfc { enabled: 0b0010, times: [0; 8] }).unwrap();
    assert_eq!(desk.held(at(10)), 0b1000, "the zero of priority 3 does not count");
    assert_eq!(desk.held(at(512)), 0);
    assert_eq!(desk.counters.paused, Duration::from_micros(512), "overlapping silences count once");
}

#[test]
fn the_two_kinds_do_not_understand_each_other() {
    let pfc = MacControl::Pfc { enabled: 1, times: [TIME; 8] };
    for (kind, message) in [(FlowControl::Pause, pfc), (FlowControl::Pfc, MacControl::Pause { time: TIME }), (FlowControl::None, pfc)] {
        let mut desk = Desk::new(kind);
        assert_eq!(desk.hear(at(0), message), Err(DropReason::MacControl));
        assert_eq!((desk.held(at(0)), desk.counters), (0, FlowCounters::default()));
    }
}

#[test]
fn a_port_asks_from_xoff_on_again_at_half_time_and_takes_it_back_at_xon() {
    let mut desk = Desk::new(FlowControl::Pause);
    assert_eq!(desk.ask(at(0), &[999]), None);
    assert_eq!(desk.ask(at(0), &[1000]), Some(MacControl::Pause { time: TIME }));
    assert_eq!(desk.ask(at(255), &[5000]), None);
    assert_eq!(desk.ask(at(256), &[401]), Some(MacControl::Pause { time: TIME }), "between the thresholds");
    assert_eq!(desk.ask(at(300), &[401]), None);
    assert_eq!(desk.ask(at(301), &[400]), Some(MacControl::Pause { time: 0 }));
    assert_eq!(desk.ask(at(900), &[999]), None);
    assert_eq!(desk.flow.poll_ask(&CONFIG, &[999, 0, 0, 0, 0, 0, 0, 0]), None);
}

#[test]
fn with_pfc_each_class_has_its_own_level_and_one_frame_speaks_for_all() {
    let mut desk = Desk::new(FlowControl::Pfc);
    let mut times = [0; 8];
    (times[0], times[2]) = (TIME, TIME);
    assert_eq!(desk.ask(at(0), &[1000, 999, 2000]), Some(MacControl::Pfc { enabled: 0b101, times }));
    times[0] = 0;
    assert_eq!(desk.ask(at(256), &[0, 999, 2000]), Some(MacControl::Pfc { enabled: 0b101, times }), "one goes on, one stays");
    assert_eq!(desk.ask(at(257), &[0, 999, 2000]), None);
}

#[test]
fn a_class_of_several_priorities_speaks_for_all_of_them() {
    let mut flow = Flow::new(FlowControl::Pfc);
    let levels = [0, 1000, 0, 0, 0, 0, 0, 0];
    let expected = MacControl::Pfc { enabled: 0xf0, times: [0, 0, 0, 0, TIME, TIME, TIME, TIME] };
    assert_eq!(flow.ask(at(0), &CONFIG, &levels, 2, GBIT), expected);
}

#[test]
fn equal_thresholds_of_zero_do_not_make_an_endless_row_of_frames() {
    let mut flow = Flow::new(FlowControl::Pause);
    let config = FlowConfig { xoff: 0, xon: 0, ..CONFIG };
    assert_eq!(flow.poll_ask(&config, &[0; 8]), None);
    flow.ask(at(0), &config, &[1, 0, 0, 0, 0, 0, 0, 0], 8, GBIT);
    flow.ask(at(0), &config, &[0; 8], 8, GBIT);
    assert_eq!(flow.poll_ask(&config, &[0; 8]), None);
}

#[test]
fn without_a_buffer_the_frame_is_tried_again_a_little_later() {
    let mut desk = Desk::new(FlowControl::Pause);
    desk.flow.handle_no_buffer(at(5));
    assert_eq!(desk.ask(at(54), &[1000]), None);
    assert_eq!(desk.ask(at(55), &[1000]), Some(MacControl::Pause { time: TIME }));
}

/// Asks for a pause every 200 us from `from` to `to`, and returns how long of that the port was silent at each of those instants.
fn storm(desk: &mut Desk, from: u64, to: u64) -> usize {
    let mut silent = 0;
    for now in (from..to).step_by(200) {
        desk.pause(at(now), TIME);
        silent += usize::from(desk.held(at(now)) != 0);
    }
    silent
}

#[test]
fn a_pause_without_end_is_obeyed_for_the_watchdogs_time_and_then_ignored_once_and_for_all() {
    let mut desk = Desk::new(FlowControl::Pause);
    assert_eq!(storm(&mut desk, 0, 20_000_000), 2000, "400 ms of 20 s");
    assert_eq!((desk.counters.watchdog_trips, desk.counters.paused), (1, WATCHDOG));
    assert_eq!(desk.counters.ignored, desk.counters.received - 2000);
}

#[test]
fn after_two_seconds_without_a_request_to_stop_pauses_are_obeyed_again() {
    let mut desk = Desk::new(FlowControl::Pause);
    storm(&mut desk, 0, 500_000);
    let last = 499_800;
    // Requests to go on neither end that state nor lengthen it.
    for now in (last..last + 1_999_000).step_by(100) {
        desk.pause(at(now), 0);
    }
    desk.pause(at(last + 1_999_999), TIME);
    assert_eq!(desk.held(at(last + 1_999_999)), 0);
    desk.pause(at(last + 4_000_000), TIME);
    assert_eq!(desk.held(at(last + 4_000_000)), 0xff);
    assert_eq!(desk.counters.watchdog_trips, 1);
}

#[test]
fn requests_to_go_on_are_no_storm_and_a_break_starts_the_watchdog_afresh() {
    let mut desk = Desk::new(FlowControl::Pause);
    for now in (0..2_000_000).step_by(100) {
        desk.pause(at(now), 0);
    }
    for round in 0..10 {
        let from = 3_000_000 + round * 400_000;
        assert_eq!(storm(&mut desk, from, from + 399_000), 1995);
        desk.pause(at(from + 399_100), 0);
    }
    assert_eq!((desk.counters.watchdog_trips, desk.counters.ignored), (0, 0));
    desk.pause(at(9_000_000), TIME);
    assert_eq!(desk.held(at(9_000_000)), 0xff);
}

#[test]
fn a_storm_in_one_priority_leaves_the_obedience_of_the_others() {
    let mut desk = Desk::new(FlowControl::Pfc);
    for now in (0..1_000_000).step_by(200) {
        desk.hear(at(now), MacControl::Pfc { enabled: 1, times: [TIME; 8] }).unwrap();
    }
    desk.hear(at(1_000_000), MacControl::Pfc { enabled: 3, times: [TIME; 8] }).unwrap();
    assert_eq!((desk.held(at(1_000_000)), desk.counters.watchdog_trips), (0b10, 1));
}
