#![allow(clippy::cast_possible_truncation, clippy::cast_lossless)]
use super::bitmap::WINDOW;
use super::*;
use crate::time::{Duration, Instant, Timestamp};
use crate::transport::Psn;
use crate::units::BitRate;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use proptest::prelude::*;
use std::vec;

const RTO: RtoBounds =
    RtoBounds { low: Duration::from_micros(100), high: Duration::from_micros(320), longest: Duration::from_secs(1), adaptive: true };

fn sender(start: u32, loss: LossRule, cap: u32) -> Sender {
    let profile = match loss {
        LossRule::Recency => Profile::of(Recovery::Irn),
        LossRule::FirstGap => Profile { rto_adaptive: true, ..Profile::of(Recovery::IrnStrict) },
        LossRule::GoBackN => Profile::of(Recovery::GoBackN),
    };
    let (window, ack_delay) = (Window::fixed(cap), Duration::from_micros(20));
    Sender::new(Psn::new(start), SenderConfig { profile, window, rto: RTO, retry_count: 7, ack_delay, tail_asks: true })
}

const fn micros(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

fn ack(cumulative: u32) -> Feedback<'static> {
    Feedback { cumulative: Psn::new(cumulative), negative: false, trigger: None, bitmap: &[], rtt: None, echoed: None }
}

fn send_new(sender: &mut Sender, now: Instant, count: u32) {
    for _ in 0..count {
        let pick = sender.pick(now, true).unwrap();
        assert!(matches!(pick, Pick::New(_)), "{pick:?}");
        sender.on_sent(now, pick, 0);
    }
}

// ---- bitmap

#[derive(Clone, Debug)]
enum BitmapStep {
    Insert(u32),
    InsertRun(u32, u32),
    Advance(u32),
}

fn bitmap_step() -> impl Strategy<Value = BitmapStep> {
    prop_oneof![
        4 => (0..WINDOW + 70).prop_map(BitmapStep::Insert),
        2 => (0..WINDOW, 0u32..300).prop_map(|(from, len)| BitmapStep::InsertRun(from, len)),
        2 => (0..WINDOW + 70).prop_map(BitmapStep::Advance),
        1 => prop_oneof![Just(0), Just(1), Just(63), Just(64), Just(65), Just(128)].prop_map(BitmapStep::Advance),
    ]
}

fn insert_both(bitmap: &mut Bitmap, model: &mut [bool], bit: u32) {
    let fresh = model.get_mut(bit as usize).is_some_and(|slot| !core::mem::replace(slot, true));
    assert_eq!(bitmap.insert(bit), fresh, "bit {bit}");
}

fn compare(bitmap: &Bitmap, model: &[bool]) {
    let ones: Vec<u32> = (0..WINDOW).filter(|&bit| model[bit as usize]).collect();
    assert_eq!((bitmap.len(), bitmap.is_empty(), bitmap.highest()), (ones.len() as u32, ones.is_empty(), ones.last().copied()));
    for bit in (0..WINDOW + 1).step_by(31).chain([63, 64, 65, WINDOW - 1, WINDOW]) {
        assert_eq!(bitmap.contains(bit), model.get(bit as usize).copied().unwrap_or(false), "bit {bit}");
        let clear = (bit..WINDOW).find(|&bit| !model[bit as usize]).unwrap_or(WINDOW);
        assert_eq!(bitmap.first_clear(bit), clear, "first clear from {bit}");
    }
}

proptest! {
    #[test]
    fn the_bitmap_agrees_with_a_list_of_booleans(steps in prop::collection::vec(bitmap_step(), 1..60)) {
        let (mut bitmap, mut model) = (Bitmap::default(), vec![false; WINDOW as usize]);
        for step in steps {
            match step {
                BitmapStep::Insert(bit) => insert_both(&mut bitmap, &mut model, bit),
                BitmapStep::InsertRun(from, len) => (from..from + len).for_each(|bit| insert_both(&mut bitmap, &mut model, bit)),
                BitmapStep::Advance(by) => {
                    bitmap.advance(by);
                    model.drain(..(by.min(WINDOW)) as usize);
                    model.resize(WINDOW as usize, false);
                }
            }
            compare(&bitmap, &model);
        }
    }
}

// ---- receiver

/// The receiver without windows and wraps: positions are counted without bound.
#[derive(Default)]
struct ReceiverModel {
    expected: u64,
    marks: BTreeMap<u64, Mark>,
}

impl ReceiverModel {
    fn classify(&self, position: u64) -> Arrival {
        match position {
            _ if position < self.expected || self.marks.contains_key(&position) => Arrival::Duplicate,
            _ if position == self.expected => Arrival::Expected,
            _ if position - self.expected >= u64::from(WINDOW) => Arrival::OutOfWindow,
            _ => Arrival::Early,
        }
    }

    fn accept(&mut self, position: u64, mark: Mark) -> Advance {
        self.marks.insert(position, mark);
        let mut advance = Advance::default();
        while let Some(mark) = self.marks.remove(&self.expected) {
            self.expected += 1;
            advance.packets += 1;
            advance.messages += u32::from(mark != Mark::Inner);
            advance.completions += u32::from(mark == Mark::Completes);
        }
        advance
    }
}

fn mark() -> impl Strategy<Value = Mark> {
    prop_oneof![Just(Mark::Inner), Just(Mark::Ends), Just(Mark::Completes)]
}

proptest! {
    #[test]
    fn the_receiver_agrees_with_a_map_of_unbounded_positions(
        start in prop_oneof![0u32..1 << 24, (1u32 << 24) - 50..1 << 24],
        arrivals in prop::collection::vec((prop_oneof![8 => -3i64..8, 2 => -40i64..1100], mark()), 1..300),
    ) {
        let (mut receiver, mut model) = (Receiver::new(Psn::new(start)), ReceiverModel::default());
        let mut messages = 0;
        for (ahead, mark) in arrivals {
            let Some(position) = model.expected.checked_add_signed(ahead) else { continue };
            let psn = Psn::new(start).plus(position as u32);
            let arrival = receiver.classify(psn);
            prop_assert_eq!(arrival, model.classify(position));
            if matches!(arrival, Arrival::Expected | Arrival::Early) {
                let advance = receiver.accept(psn, mark);
                messages += advance.messages;
                prop_assert_eq!(advance, model.accept(position, mark));
            }
            prop_assert_eq!(receiver.expected(), Psn::new(start).plus(model.expected as u32));
            prop_assert_eq!((receiver.msn(), receiver.early()), (messages, model.marks.len() as u32));
            let arrived: BTreeSet<u64> = (0..u64::from(WINDOW)).filter(|bit| receiver.arrived()[(bit / 64) as usize] >> (bit % 64) & 1 == 1).collect();
            prop_assert_eq!(arrived, model.marks.keys().map(|position| position - model.expected).collect::<BTreeSet<_>>());
        }
    }
}

// ---- sender

/// Everything that a sender may be told, over a path that loses, delays and doubles.
#[derive(Clone, Debug)]
enum SenderStep {
    Slots(u8),
    /// The receiver gets the packet in flight with this rank and answers; the answer arrives or not.
    Arrive {
        rank: u8,
        answered: bool,
    },
    /// An answer of earlier comes again.
    Stale(u8),
    Wait(u16),
    NotReady,
}

fn sender_step() -> impl Strategy<Value = SenderStep> {
    prop_oneof![
        4 => (1u8..12).prop_map(SenderStep::Slots),
        8 => (0u8..20, prop::bool::weighted(0.8)).prop_map(|(rank, answered)| SenderStep::Arrive { rank, answered }),
        1 => any::<u8>().prop_map(SenderStep::Stale),
        3 => (1u16..200).prop_map(SenderStep::Wait),
        1 => Just(SenderStep::NotReady),
    ]
}

struct SenderBench {
    now: Instant,
    start: Psn,
    sender: Sender,
    receiver: Receiver,
    keeps_early: bool,
    /// Positions sent and still under way, oldest first.
    wire: Vec<u64>,
    answers: Vec<(Psn, bool, Psn, [u64; 16])>,
    /// What the sender has been told: arrived positions.
    told: BTreeSet<u64>,
    acknowledged: u64,
    sent: u64,
}

impl SenderBench {
    fn new(start: u32, loss: LossRule, cap: u32) -> Self {
        Self {
            now: Instant::from_nanos(1),
            start: Psn::new(start),
            sender: sender(start, loss, cap),
            receiver: Receiver::new(Psn::new(start)),
            keeps_early: loss != LossRule::GoBackN,
            wire: Vec::new(),
            answers: Vec::new(),
            told: BTreeSet::new(),
            acknowledged: 0,
            sent: 0,
        }
    }

    fn position(&self, psn: Psn) -> u64 {
        self.acknowledged + u64::from(psn.distance_from(self.start.plus(self.acknowledged as u32)).expect("not behind"))
    }

    fn slot(&mut self, has_new: bool) -> bool {
        let Some(pick) = self.sender.pick(self.now, has_new) else { return false };
        match pick {
            Pick::New(psn) => {
                assert_eq!(self.position(psn), self.sent, "new packets are consecutive");
                self.wire.push(self.sent);
                self.sent += 1;
            }
            Pick::Again { psn, .. } => {
                let position = self.position(psn);
                assert!(position < self.sent, "only what was sent is sent again");
                assert!(!self.told.contains(&position), "{position} is known to have arrived");
                self.wire.push(position);
            }
        }
        self.sender.on_sent(self.now, pick, 0);
        assert!(self.sender.in_flight() <= self.sender.cap());
        true
    }

    fn arrive(&mut self, index: usize, answered: bool) {
        let position = self.wire.remove(index);
        let psn = self.start.plus(position as u32);
        let arrival = self.receiver.classify(psn);
        let kept = arrival == Arrival::Expected || arrival == Arrival::Early && self.keeps_early;
        if kept {
            self.receiver.accept(psn, Mark::Ends);
        }
        let answer = (self.receiver.expected(), arrival == Arrival::Early, psn, self.receiver.arrived());
        self.answers.push(answer);
        if answered {
            self.acknowledge(answer);
        }
    }

    fn acknowledge(&mut self, (cumulative, negative, trigger, bitmap): (Psn, bool, Psn, [u64; 16])) {
        let before = self.start.plus(self.acknowledged as u32);
        let feedback = Feedback { cumulative, negative, trigger: Some(trigger), bitmap: &bitmap, rtt: None, echoed: None };
        let result = self.sender.on_ack(self.now, feedback);
        let Some(steps) = cumulative.distance_from(before) else {
            assert_eq!(result, Err(BadAck), "older than what is known");
            return;
        };
        let acked = result.expect("true");
        assert_eq!(acked.cumulative, steps);
        self.acknowledged += u64::from(steps);
        if self.keeps_early {
            let base = self.acknowledged;
            self.told.extend((1..1024).filter(|bit| bitmap[(bit / 64) as usize] >> (bit % 64) & 1 == 1).map(|bit| base + bit));
            if negative {
                self.told.insert(self.position(trigger));
            }
        }
        let acknowledged = self.acknowledged;
        self.told.retain(|&position| position >= acknowledged);
        assert_eq!(self.sender.unacknowledged(), self.start.plus(acknowledged as u32));
        assert_eq!(u64::from(self.sender.in_flight()), self.sent - acknowledged);
    }

    fn step(&mut self, step: &SenderStep) {
        match *step {
            SenderStep::Slots(count) => (0..count).for_each(|_| _ = self.slot(true)),
            SenderStep::Arrive { rank, answered } if !self.wire.is_empty() => self.arrive(rank as usize % self.wire.len(), answered),
            SenderStep::Stale(index) if !self.answers.is_empty() => self.acknowledge(self.answers[index as usize % self.answers.len()]),
            SenderStep::Wait(time) => {
                self.now += Duration::from_micros(u64::from(time));
                self.sender.on_timeout(self.now);
            }
            SenderStep::NotReady => self.sender.on_receiver_not_ready(self.now),
            SenderStep::Arrive { .. } | SenderStep::Stale(_) => {}
        }
    }

    /// From now on nothing is lost: everything sent is acknowledged after finitely many round trips.
    fn drain(&mut self) {
        for _ in 0..5000 {
            while self.slot(false) {}
            if self.sent == self.acknowledged {
                assert_eq!((self.sender.deadline(), self.sender.in_recovery()), (None, false));
                return;
            }
            while !self.wire.is_empty() {
                self.now += Duration::from_micros(1);
                self.arrive(0, true);
            }
            if self.sent > self.acknowledged {
                let deadline = self.sender.deadline().expect("something is in flight");
                self.now = self.now.max(deadline);
                assert_ne!(self.sender.on_timeout(self.now), Timeout::Exhausted);
            }
        }
        panic!("{} of {} acknowledged", self.acknowledged, self.sent);
    }
}

proptest! {
    #[test]
    fn the_sender_loses_nothing_and_never_resends_what_it_knows_to_have_arrived(
        start in prop_oneof![0u32..1 << 24, (1u32 << 24) - 60..1 << 24],
        loss in prop_oneof![Just(LossRule::Recency), Just(LossRule::FirstGap), Just(LossRule::GoBackN)],
        cap in prop_oneof![1u32..4, 4u32..100, Just(WINDOW)],
        steps in prop::collection::vec(sender_step(), 1..200),
    ) {
        let mut bench = SenderBench::new(start, loss, cap);
        steps.iter().for_each(|step| bench.step(step));
        bench.drain();
    }

    #[test]
    fn an_acknowledgement_of_packets_never_sent_changes_nothing(sent in 0u32..50, beyond in 1u32..1 << 23, bits in any::<[u64; 16]>()) {
        let mut sender = sender(5, LossRule::Recency, 100);
        send_new(&mut sender, micros(1), sent);
        let feedback = Feedback { cumulative: Psn::new(5).plus(sent + beyond), negative: true, trigger: None, bitmap: &bits, rtt: None, echoed: None };
        prop_assert_eq!(sender.on_ack(micros(2), feedback), Err(BadAck));
        prop_assert_eq!((sender.in_flight(), sender.unacknowledged(), sender.in_recovery()), (sent, Psn::new(5), false));
    }
}

#[test]
fn three_hundred_selectively_acknowledged_packets_behind_one_hole_are_all_counted() {
    let mut sender = sender(0, LossRule::Recency, 400);
    send_new(&mut sender, micros(1), 301);
    let mut bitmap = [u64::MAX; 16];
    bitmap[0] &= !1;
    let feedback =
        Feedback { cumulative: Psn::new(0), negative: true, trigger: Some(Psn::new(300)), bitmap: &bitmap, rtt: None, echoed: None };
    assert_eq!(sender.on_ack(micros(20), feedback).unwrap().selective, 300);
    let again = sender.pick(micros(20), true);
    assert_eq!(again, Some(Pick::Again { psn: Psn::new(0), cause: Cause::Fast }));
}

#[test]
fn a_lost_retransmission_is_noticed_without_a_timeout_by_the_recency_rule() {
    let mut sender = sender(0, LossRule::Recency, 100);
    send_new(&mut sender, micros(0), 8);
    let gap = |trigger: u32| Feedback {
        cumulative: Psn::new(0),
        negative: true,
        trigger: Some(Psn::new(trigger)),
        bitmap: &[],
        rtt: None,
        echoed: None,
    };
    for trigger in 1..8 {
        sender.on_ack(micros(10), gap(trigger)).unwrap();
    }
    let again = Pick::Again { psn: Psn::new(0), cause: Cause::Fast };
    assert_eq!(sender.pick(micros(10), true), Some(again));
    sender.on_sent(micros(10), again, 0);
    send_new(&mut sender, micros(11), 4);
    for trigger in 8..12 {
        sender.on_ack(micros(21), gap(trigger)).unwrap();
    }
    assert_eq!(sender.pick(micros(21), true), Some(again), "packets sent after the retransmission have arrived, it has not");
    assert_eq!(sender.timeouts(), 0);
}

// ---- round-trip times

proptest! {
    #[test]
    fn time_outs_stay_above_their_bounds_and_grow_with_each_in_a_row(samples in prop::collection::vec(1u64..10_000, 0..50), timeouts in 0u8..20) {
        let mut rtt = RttEstimator::new(RTO);
        samples.iter().for_each(|&sample| rtt.sample(Instant::ZERO, Duration::from_micros(sample)));
        let (few, many) = (rtt.timeout(true, timeouts), rtt.timeout(false, timeouts));
        prop_assert!(few >= RTO.low && many >= RTO.high && many >= few);
        prop_assert!(rtt.timeout(true, timeouts + 1) >= few);
        prop_assert!(rtt.timeout(true, u8::MAX) <= rtt.timeout(true, 0).saturating_mul(64));
        prop_assert_eq!(rtt.smallest(), samples.iter().min().map(|&sample| Duration::from_micros(sample)));
        if let (Some(smoothed), Some(most)) = (rtt.smoothed(), samples.iter().max()) {
            prop_assert!(smoothed <= Duration::from_micros(*most));
        }
    }

    #[test]
    fn the_strict_mode_does_not_measure(samples in prop::collection::vec(1u64..100_000, 0..20)) {
        let mut rtt = RttEstimator::new(RtoBounds { adaptive: false, ..RTO });
        samples.iter().for_each(|&sample| rtt.sample(Instant::ZERO, Duration::from_micros(sample)));
        prop_assert_eq!((rtt.timeout(true, 0), rtt.timeout(false, 0)), (RTO.low, RTO.high));
    }
}

// ---- acknowledgements

proptest! {
    #[test]
    fn every_arrival_is_answered_in_time(
        recovery in prop_oneof![Just(Recovery::Irn), Just(Recovery::IrnStrict), Just(Recovery::GoBackN)],
        every in 1u32..10,
        arrivals in prop::collection::vec((any::<bool>(), any::<bool>(), 0u64..30), 1..100),
    ) {
        let delay = Duration::from_micros(50);
        let mut acker = Acker::new(Profile::of(recovery), AckTiming { every, delay });
        let (mut now, mut expected, mut oldest) = (Instant::ZERO, Psn::new(0), None);
        for (request, answer, pause) in arrivals {
            expected = expected.next();
            acker.on_arrival(now, Arrival::Expected, expected.previous(), expected, request);
            oldest = oldest.or(Some(now));
            prop_assert!(acker.is_due() || acker.deadline().is_some_and(|at| Some(at) <= oldest.map(|at| at + delay)), "nothing is forgotten");
            prop_assert!(!(request || every == 1 || recovery == Recovery::IrnStrict) || acker.is_due());
            if answer {
                while acker.poll().is_some() {
                    oldest = None;
                }
            }
            now += Duration::from_micros(pause);
            acker.handle_timeout(now, expected);
        }
    }
}

#[test]
fn go_back_n_reports_a_gap_once_and_a_new_one_anew() {
    let mut acker = Acker::new(Profile::of(Recovery::GoBackN), AckTiming { every: 8, delay: Duration::from_micros(50) });
    let early = |acker: &mut Acker, psn: u32, expected: u32| {
        acker.on_arrival(Instant::ZERO, Arrival::Early, Psn::new(psn), Psn::new(expected), false);
        acker.poll().map(|reply| reply.negative)
    };
    assert_eq!((early(&mut acker, 2, 1), early(&mut acker, 3, 1)), (Some(true), None));
    acker.on_arrival(Instant::ZERO, Arrival::Expected, Psn::new(1), Psn::new(2), false);
    assert_eq!(early(&mut acker, 5, 2), Some(true));
}

#[test]
fn a_gap_is_reported_when_it_opens_and_what_follows_is_coalesced() {
    let mut acker = Acker::new(Profile::of(Recovery::Irn), AckTiming { every: 3, delay: Duration::from_micros(50) });
    let mut early = |psn: u32, urgent: bool| {
        acker.on_arrival(Instant::ZERO, Arrival::Early, Psn::new(psn), Psn::new(1), urgent);
        acker.poll().map(|reply| reply.negative)
    };
    assert_eq!([early(2, true), early(3, false), early(4, false), early(5, false)], [Some(true), None, None, Some(true)]);
    assert_eq!((early(6, false), acker.deadline()), (None, Some(Instant::ZERO + Duration::from_micros(50))));
}

#[test]
fn a_gap_opens_where_the_packet_before_is_missing() {
    let mut receiver = Receiver::new(Psn::new(10));
    assert!(!receiver.opens_gap(Psn::new(10)), "the expected packet opens none");
    assert!(receiver.opens_gap(Psn::new(11)));
    receiver.accept(Psn::new(11), Mark::Inner);
    assert_eq!([12, 13, 9].map(|psn| receiver.opens_gap(Psn::new(psn))), [false, true, false]);
}

#[test]
fn go_back_n_goes_back_again_for_a_second_loss_but_not_for_a_second_report() {
    let mut sender = sender(0, LossRule::GoBackN, 64);
    send_new(&mut sender, micros(0), 30);
    let report = |sender: &mut Sender, cumulative: u32, trigger: u32| {
        let feedback = Feedback {
            cumulative: Psn::new(cumulative),
            negative: true,
            trigger: Some(Psn::new(trigger)),
            bitmap: &[],
            rtt: None,
            echoed: None,
        };
        sender.on_ack(micros(10), feedback).unwrap();
    };
    let again = |sender: &mut Sender, count: u32| {
        for _ in 0..count {
            let pick = sender.pick(micros(11), true).unwrap();
            assert!(matches!(pick, Pick::Again { .. }), "{pick:?}");
            sender.on_sent(micros(11), pick, 0);
        }
    };
    report(&mut sender, 10, 11);
    again(&mut sender, 10);
    report(&mut sender, 10, 12);
    assert_eq!(sender.pick(micros(12), true), Some(Pick::Again { psn: Psn::new(20), cause: Cause::Fast }), "the gap is being filled");
    report(&mut sender, 15, 16);
    assert_eq!(sender.pick(micros(12), true), Some(Pick::Again { psn: Psn::new(15), cause: Cause::Fast }), "a new gap");
}

#[test]
fn no_timeout_grows_beyond_the_longest() {
    let mut rtt = RttEstimator::new(RtoBounds { longest: Duration::from_millis(5), ..RTO });
    rtt.sample(Instant::ZERO, Duration::from_millis(2));
    assert_eq!([0, 1, 6].map(|timeouts| rtt.timeout(true, timeouts)), [Duration::from_millis(5); 3], "2 x 2 ms + 4 x 1 ms is more");
    assert_eq!(
        RttEstimator::new(RtoBounds { longest: Duration::ZERO, ..RTO }).timeout(false, 3),
        RTO.high,
        "but never below what is configured"
    );
}

#[test]
fn a_needless_timeout_sends_one_packet_again_and_not_the_window() {
    let positive = |cumulative: u32, echoed: u64| Feedback { echoed: Some(Timestamp::floor(micros(echoed))), ..ack(cumulative) };
    let mut sender = sender(0, LossRule::Recency, 64);
    send_new(&mut sender, micros(0), 1);
    sender.on_ack(micros(50), positive(1, 0)).unwrap();
    send_new(&mut sender, micros(100), 40);
    // The receiver does not run for a while, then answers for what it had all along.
    assert_eq!(sender.on_timeout(micros(2_000)), Timeout::Retransmit);
    let pick = sender.pick(micros(2_000), false).unwrap();
    assert_eq!(pick, Pick::Again { psn: Psn::new(1), cause: Cause::Timeout });
    sender.on_sent(micros(2_000), pick, 0);
    let acked = sender.on_ack(micros(2_200), positive(17, 100)).unwrap();
    assert_eq!((acked.spurious, acked.lost), (1, false), "what arrived was sent before the time-out");
    assert_eq!(sender.pick(micros(2_200), false), None, "the rest was sent after what has just arrived");
    // But when only the packet sent again arrives, what was sent before it is lost.
    assert_eq!(sender.on_timeout(micros(9_000)), Timeout::Retransmit);
    let pick = sender.pick(micros(9_000), false).unwrap();
    sender.on_sent(micros(9_000), pick, 0);
    assert_eq!(sender.on_ack(micros(9_200), positive(18, 9_000)).unwrap().spurious, 0);
    assert_eq!(sender.pick(micros(9_200), false), Some(Pick::Again { psn: Psn::new(18), cause: Cause::Fast }));
}

/// A sender that has measured round trips of 20 us and has `count` packets out since 1,000 us.
fn warm(profile: Profile, count: u32) -> Sender {
    let (window, ack_delay) = (Window::fixed(64), Duration::from_micros(20));
    let rto = RtoBounds { adaptive: profile.rto_adaptive, low: Duration::from_micros(200), high: Duration::from_millis(1), ..RTO };
    let mut sender = Sender::new(Psn::new(0), SenderConfig { profile, window, rto, retry_count: 7, ack_delay, tail_asks: true });
    for n in 0..30 {
        send_new(&mut sender, micros(n * 30), 1);
        let echo = Feedback { rtt: Some(Duration::from_micros(20)), ..ack(n as u32 + 1) };
        sender.on_ack(micros(n * 30 + 20), echo).unwrap();
    }
    send_new(&mut sender, micros(1_000), count);
    sender
}

fn resend(sender: &mut Sender, now: Instant) -> (u32, Cause) {
    let pick = sender.pick(now, false).expect("something to send again");
    sender.on_sent(now, pick, 0);
    match pick {
        Pick::Again { psn, cause } => (psn.value(), cause),
        Pick::New(psn) => panic!("new {psn:?}"),
    }
}

#[test]
fn after_two_round_trips_of_silence_the_last_packet_is_a_probe_and_only_one() {
    let mut sender = warm(Profile::of(Recovery::Irn), 5);
    let due = sender.deadline().unwrap();
    assert!(due >= micros(1_040) && due < micros(1_045), "two smoothed round trips: {due:?}");
    assert_eq!(sender.on_timeout(due), Timeout::Probe);
    assert_eq!(resend(&mut sender, due), (34, Cause::Probe));
    assert_eq!(sender.deadline(), Some(due + Duration::from_millis(1)), "after the probe there is only the time-out, begun anew");
    assert!(!sender.in_recovery());
    // Its answer shows that the three before it are missing: they are sent again at once.
    let answer =
        Feedback { negative: true, trigger: Some(Psn::new(34)), bitmap: &[0b1_0000], echoed: Some(Timestamp::floor(due)), ..ack(30) };
    let acked = sender.on_ack(due + Duration::from_micros(20), answer).unwrap();
    assert_eq!((acked.lost, acked.probe_helped, acked.spurious), (true, true, 0));
    assert_eq!([0; 4].map(|_| resend(&mut sender, due + Duration::from_micros(30)).0), [30, 31, 32, 33]);
    assert_eq!(sender.timeouts(), 0);
}

#[test]
fn a_single_packet_waits_for_a_late_acknowledgement_before_it_is_a_probe() {
    let sender = warm(Profile::of(Recovery::Irn), 1);
    let due = sender.deadline().unwrap();
    assert!(due >= micros(1_060) && due < micros(1_065), "two round trips and the acknowledgement's delay: {due:?}");
    for strict in [Recovery::IrnStrict, Recovery::SelectiveNoSack, Recovery::GoBackN] {
        assert_eq!(warm(Profile::of(strict), 1).deadline(), Some(micros(1_200)), "{strict:?} has no probes");
    }
}

#[test]
fn where_the_last_packet_asks_for_nothing_a_probe_waits_for_the_late_acknowledgement() {
    let config = |tail_asks| SenderConfig {
        profile: Profile::of(Recovery::Irn),
        window: Window::fixed(64),
        rto: RtoBounds { low: Duration::from_micros(200), ..RTO },
        retry_count: 7,
        ack_delay: Duration::from_micros(50),
        tail_asks,
    };
    let due = [true, false].map(|tail_asks| {
        let mut sender = Sender::new(Psn::new(0), config(tail_asks));
        send_new(&mut sender, micros(0), 1);
        sender.on_ack(micros(20), Feedback { rtt: Some(Duration::from_micros(20)), ..ack(1) }).unwrap();
        send_new(&mut sender, micros(100), 3);
        sender.deadline()
    });
    assert_eq!(due, [Some(micros(140)), Some(micros(190))]);
}

#[test]
fn a_probe_whose_original_had_arrived_helped_nobody_and_is_counted_as_needless() {
    let mut sender = warm(Profile::of(Recovery::Irn), 5);
    assert_eq!(sender.on_timeout(micros(1_100)), Timeout::Probe);
    resend(&mut sender, micros(1_100));
    let late = Feedback { echoed: Some(Timestamp::floor(micros(1_000))), ..ack(35) };
    let acked = sender.on_ack(micros(1_110), late).unwrap();
    assert_eq!((acked.spurious, acked.probe_helped, acked.lost), (1, false, false));
    let duplicate = Feedback { trigger: Some(Psn::new(34)), ..ack(35) };
    assert_eq!(sender.on_ack(micros(1_130), duplicate).unwrap().spurious, 0, "the duplicate is the same probe");
    assert_eq!(sender.deadline(), None);
}

#[test]
fn a_lost_retransmission_waits_for_the_short_time_out_however_many_are_missing() {
    let mut sender = warm(Profile::of(Recovery::Irn), 12);
    let holes = Feedback { negative: true, trigger: Some(Psn::new(41)), ..ack(30) };
    sender.on_ack(micros(1_020), holes).unwrap();
    (0..11).for_each(|_| _ = resend(&mut sender, micros(1_025)));
    assert_eq!((sender.outstanding(), sender.in_flight()), (11, 12));
    assert_eq!(sender.deadline(), Some(micros(1_225)));
}

#[test]
fn reordering_once_seen_is_tolerated_and_forgotten_after_sixteen_quiet_recoveries() {
    let mut sender = warm(Profile::of(Recovery::Irn), 12);
    // Packet 30 comes after 31 to 35: five packets late, and not sent again.
    let early = |to: u32| ((1u64 << (to - 30)) - 1) & !1;
    let bits = [early(33)];
    sender.on_ack(micros(1_020), Feedback { negative: true, bitmap: &bits, ..ack(30) }).unwrap();
    sender.on_ack(micros(1_021), ack(36)).unwrap();
    assert_eq!(sender.reordering_threshold(), 3, "30 and the others came by one acknowledgement, only the 2 known before count");
    let mut recency = recency::Recency::new();
    let (sent, rtt) = (recency::Sent::default(), RttEstimator::new(RTO));
    recency.on_reordered(sent, 8);
    assert_eq!(recency.threshold(), 9);
    (0..15).for_each(|_| recency.on_recovered());
    recency.on_spurious(&rtt);
    (0..15).for_each(|_| recency.on_recovered());
    assert_eq!(recency.threshold(), 18);
    recency.on_recovered();
    assert_eq!(recency.threshold(), 3);
}

#[test]
fn an_acknowledgement_says_once_per_window_that_there_was_a_loss() {
    for recovery in [Recovery::Irn, Recovery::IrnStrict, Recovery::SelectiveNoSack, Recovery::GoBackN] {
        let mut sender = warm(Profile::of(recovery), 12);
        let gap = |trigger: u32| Feedback { negative: true, trigger: Some(Psn::new(trigger)), ..ack(30) };
        let told = [34, 35, 36].map(|trigger| sender.on_ack(micros(1_020), gap(trigger)).unwrap().lost);
        assert_eq!(told, [true, false, false], "{recovery:?}");
    }
}

#[test]
fn without_sack_one_hole_is_known_at_a_time() {
    let mut sender = warm(Profile::of(Recovery::SelectiveNoSack), 12);
    // 30, 33 and 36 are lost. What the bitmap says is not believed.
    let gap = |cumulative: u32| Feedback { negative: true, trigger: Some(Psn::new(41)), bitmap: &[0xfff], ..ack(cumulative) };
    for (at, hole) in [(1_020, 30), (1_040, 33), (1_060, 36)] {
        sender.on_ack(micros(at), gap(hole)).unwrap();
        assert_eq!(resend(&mut sender, micros(at)), (hole, Cause::Fast));
        sender.on_ack(micros(at + 1), gap(hole)).unwrap();
        assert_eq!(sender.pick(micros(at + 1), false), None, "each once");
    }
    sender.on_ack(micros(1_080), ack(42)).unwrap();
    assert_eq!((sender.in_recovery(), sender.in_flight(), sender.timeouts()), (false, 0, 0));
}

#[test]
fn the_automatic_window_follows_the_smallest_round_trip_once_per_round_trip_and_never_cuts_what_is_in_flight() {
    let rate = BitRate::new(10_000_000_000).unwrap();
    let mut rtt = RttEstimator::new(RTO);
    let mut window = Window::auto(rate, 1500, WINDOW);
    assert_eq!(window.cap(), 834, "10 Gbit/s for 1 ms are 1,250,000 bytes");
    let mut at = |micros_now: u64, sample: u64, in_flight| {
        rtt.sample(micros(micros_now), Duration::from_micros(sample));
        window.on_round_trip(micros(micros_now), &rtt, in_flight);
        window.cap()
    };
    assert_eq!(at(100, 100, 0), 500, "600 us");
    assert_eq!(at(150, 50, 0), 500, "not before a round trip has passed");
    assert_eq!(at(300, 900, 0), 459, "550 us: the smallest counts");
    assert_eq!(at(9_000_000, 1_000_000, 700), 700, "what is in flight is in flight");
    assert_eq!(at(19_000_000, 100_000, 0), WINDOW, "and after some seconds a longer path is believed");
    assert_eq!(Window::auto(rate, 1500, 64).cap(), 64, "the peer keeps track of no more");
    assert_eq!(Window::auto(BitRate::new(1_000_000).unwrap(), 1500, WINDOW).cap(), window::MIN_AUTO_CAP);
}

#[test]
fn waiting_for_the_window_is_timed_and_waiting_for_the_application_is_not() {
    let mut sender = sender(0, LossRule::Recency, 2);
    send_new(&mut sender, micros(10), 2);
    assert_eq!(sender.pick(micros(10), false), None);
    assert_eq!(sender.pick(micros(15), true), None);
    assert_eq!(sender.pick(micros(20), true), None);
    sender.on_ack(micros(40), ack(2)).unwrap();
    send_new(&mut sender, micros(40), 1);
    assert_eq!((sender.take_window_limited(), sender.take_window_limited()), (Duration::from_micros(25), Duration::ZERO));
}
