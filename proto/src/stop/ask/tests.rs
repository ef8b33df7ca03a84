//! Asking as dialogues with explicit times, in microseconds.

use super::*;
use crate::stop::fixtures::config;
use alloc::vec::Vec;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const PORT: PortId = PortId(0);
const SIGN: Cause = Cause::Sign(PORT);
const REQUEST: Request = Request { priority: 15, timer: 20, rate: 3 };

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1_000)
}

struct Desk {
    asking: Asking,
    journal: Journal,
}

impl Desk {
    fn new(rate_rule: RateRule) -> Self {
        let mut config = config(rate_rule);
        config.ask.requests = Vec::from([(B, Request { timer: 0, ..REQUEST })]);
        Self { asking: Asking::new(&config, &mut Rng::from_seed(1)), journal: Journal::new() }
    }

    fn ask(&mut self, micros: u64, host: MacAddr, cause: Cause) {
        let request = self.asking.request_for(host);
        self.asking.ask(at(micros), host, request, cause, &mut self.journal);
    }

    /// Packets that leave until then: when, to whom, and the rate field (`None`: cancel).
    fn until(&mut self, from: u64, to: u64) -> Vec<(u64, MacAddr, Option<u8>)> {
        let mut sent = Vec::new();
        for micros in from..to {
            self.asking.handle_timeout(at(micros));
            while let Some(Packet { host, message }) = self.asking.poll_packet(at(micros), &mut self.journal) {
                let rate = if let StopMessage::Stop { rate, .. } = message { Some(rate) } else { None };
                sent.push((micros, host, rate));
            }
        }
        sent
    }
}

#[test]
fn a_stop_packet_is_repeated_at_half_its_timer_until_the_signs_are_over() {
    let mut desk = Desk::new(RateRule::Absolute);
    desk.ask(5, A, SIGN);
    assert_eq!(desk.until(5, 400), [(5, A, Some(3)), (105, A, Some(3)), (205, A, Some(3)), (305, A, Some(3))]);
    desk.asking.cancel_all_of(at(400), PORT, &mut desk.journal);
    assert_eq!(desk.until(400, 2_000), [(400, A, None)]);
    assert_eq!((desk.journal.counts.stops_sent, desk.journal.counts.refreshes_sent, desk.journal.counts.cancels_sent), (1, 3, 1));
}

#[test]
fn a_timer_of_zero_is_repeated_at_half_of_what_the_other_side_is_believed_to_take() {
    let mut desk = Desk::new(RateRule::Absolute);
    desk.ask(0, B, SIGN);
    assert_eq!(desk.until(0, 600), [(0, B, Some(3)), (250, B, Some(3)), (500, B, Some(3))]);
}

#[test]
fn exactly_those_who_were_told_to_stop_are_told_that_it_is_over() {
    let mut desk = Desk::new(RateRule::Absolute);
    desk.ask(0, A, SIGN);
    desk.until(0, 1);
    // Asked, but the packet has not left.
    desk.ask(10, B, SIGN);
    desk.asking.cancel_all_of(at(10), PORT, &mut desk.journal);
    assert_eq!(desk.until(10, 500), [(10, A, None)]);
}

#[test]
fn another_port_s_relief_cancels_nothing() {
    let mut desk = Desk::new(RateRule::Absolute);
    desk.ask(0, A, SIGN);
    desk.asking.cancel_all_of(at(1), PortId(1), &mut desk.journal);
    assert!(desk.asking.is_asked(A));
}

#[test]
fn repetitions_leave_a_rate_as_it_is_where_the_rule_compounds_and_signs_that_arise_again_lower_it() {
    let mut desk = Desk::new(RateRule::Halving);
    desk.ask(0, A, SIGN);
    assert_eq!(desk.until(0, 150), [(0, A, Some(3)), (100, A, Some(0))]);
    desk.asking.ask_again(PORT);
    assert_eq!(desk.until(150, 300), [(150, A, Some(3)), (250, A, Some(0))]);
    let mut absolute = Desk::new(RateRule::Absolute);
    absolute.ask(0, A, SIGN);
    absolute.until(0, 1);
    absolute.asking.ask_again(PORT);
    assert_eq!(absolute.until(1, 90), []);
}

#[test]
fn what_was_asked_by_hand_is_asked_once_and_ends_with_its_timer() {
    let mut desk = Desk::new(RateRule::Absolute);
    desk.ask(0, A, Cause::Hand);
    assert_eq!(desk.until(0, 1_000), [(0, A, Some(3))]);
    assert!(!desk.asking.is_asked(A));
    desk.ask(1_000, A, Cause::Hand);
    desk.until(1_000, 1_010);
    assert!(desk.asking.cancel(at(1_010), A, &mut desk.journal) && !desk.asking.cancel(at(1_011), B, &mut desk.journal));
    assert_eq!(desk.until(1_010, 2_000), [(1_010, A, None)]);
}

#[test]
fn what_is_asked_by_hand_again_just_when_its_timer_ends_is_no_cancel_packet() {
    let mut desk = Desk::new(RateRule::Absolute);
    desk.ask(0, A, Cause::Hand);
    desk.until(0, 1);
    desk.ask(200, A, Cause::Hand);
    assert_eq!(desk.until(200, 1_000), [(200, A, Some(3))]);
}

#[test]
fn a_full_table_asks_no_more_hosts_and_those_released_make_room() {
    let mut desk = Desk::new(RateRule::Absolute);
    let host = |number| MacAddr([2, 0, 0, 0, 1, number]);
    (0..6).for_each(|number| desk.ask(0, host(number), SIGN));
    assert_eq!(desk.until(0, 1).len(), 4);
    desk.asking.cancel_all_of(at(1), PORT, &mut desk.journal);
    desk.until(1, 2);
    desk.ask(2, host(5), SIGN);
    assert_eq!(desk.until(2, 3), [(2, host(5), Some(3))]);
}
