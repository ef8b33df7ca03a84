//! Stop control at a host port: a host with the local transport on one side and a link on the other.

use super::*;
use crate::stop::config::{Combine, Criterion, Detector, RateRule, Request, SecondSign, WatchConfig};
use crate::stop::fixtures;
use crate::stop::{StopConfig, Verdict};
use crate::switch::FlowControl;
use crate::wire::{MacControl, StopMessage};

const LINK: PortId = A;
const X: MacAddr = station(1);
const Y: MacAddr = station(2);

pub(super) fn stop_config() -> StopConfig {
    StopConfig { mac: station(0), obey: Some(fixtures::obey_config()), ..fixtures::config(RateRule::Absolute) }
}

/// A host on a link of 100 Mbit/s, on which a frame of 101 bytes takes 10 us.
fn host() -> Bench {
    let link = PortConfig { rate: mbit(100), ..PortConfig::new(PortRole::Host) };
    let mut bench = Bench::new(&SwitchConfig { frames: 1024, ..SwitchConfig::default() }, &[PortConfig::new(PortRole::Local), link]);
    bench.switch.set_stop(Some(stop_config()));
    bench.now = Instant::from_nanos(1_000_000_000);
    bench
}

impl Bench {
    /// The local transport sends a frame of 101 bytes.
    fn emit(&mut self, dst: MacAddr, priority: u8) {
        let frame = self.build(&header(station(0), dst), 101);
        self.pool.set_priority(&frame, priority);
        self.ingest(LOCAL, frame);
    }

    /// A control packet comes in.
    fn control(&mut self, src: MacAddr, message: StopMessage) {
        let frame = self.pool.alloc().unwrap();
        let header = Ethernet { ethertype: EtherType::STOP, ..header(src, station(0)) };
        let len = message.emit_frame(self.pool.room_mut(&frame), &header, None).unwrap();
        self.pool.set_len(&frame, len);
        self.ingest(LINK, frame);
    }

    fn stop(&mut self, src: MacAddr, priority: u8, timer: u8, rate: u8) {
        self.control(src, StopMessage::Stop { priority, timer, rate });
    }

    /// Frames that leave during `micros`, looked for once a microsecond: when, and to whom.
    fn leave(&mut self, micros: u64) -> Vec<(u64, MacAddr)> {
        let mut left = Vec::new();
        for micro in 0..micros {
            self.switch.egress(self.now, &mut self.pool, LINK, 64, &mut self.out);
            for frame in self.out.drain(..) {
                left.push((micro, Ethernet::parse(self.pool.bytes(&frame)).unwrap().0.dst));
                self.pool.free(frame);
            }
            self.wait(Duration::from_micros(1));
        }
        left
    }
}

#[test]
fn frames_to_a_host_that_asked_wait_and_those_behind_them_take_their_places() {
    let mut bench = host();
    bench.stop(X, 15, 10, 0);
    [X, Y, X, Y].into_iter().for_each(|dst| bench.emit(dst, 0));
    assert_eq!(bench.leave(100), [(0, Y), (10, Y)]);
    assert_eq!(bench.leave(50), [(0, X), (10, X)]);
}

#[test]
fn other_destinations_get_every_frame_when_they_would_have_got_it_from_a_host_that_sends_to_them_alone() {
    let run = |hot: bool| {
        let mut bench = host();
        if hot {
            bench.stop(X, 15, 255, 0);
        }
        let mut left = Vec::new();
        for round in 0..20 {
            if hot {
                bench.emit(X, 0);
            }
            bench.emit(Y, round % 16);
            bench.emit(station(3), 0);
            left.push(bench.leave(25));
        }
        left
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_cancel_packet_lets_out_what_waits_at_the_rate_of_the_link_and_in_order() {
    let mut bench = host();
    bench.stop(X, 15, 255, 0);
    (0..5).for_each(|_| bench.emit(X, 0));
    assert_eq!(bench.leave(1_000), []);
    bench.control(X, StopMessage::Cancel);
    assert_eq!(bench.leave(100), [(0, X), (10, X), (20, X), (30, X), (40, X)]);
}

#[test]
fn a_host_whose_link_was_idle_during_a_stop_does_not_catch_up() {
    let mut bench = host();
    bench.emit(X, 0);
    bench.leave(1);
    bench.stop(X, 15, 50, 0);
    (0..4).for_each(|_| bench.emit(X, 0));
    assert_eq!(bench.leave(600), [(500, X), (510, X), (520, X), (530, X)]);
}

#[test]
fn a_slower_destination_leaves_the_rest_of_the_link_to_others() {
    let mut bench = host();
    bench.stop(X, 15, 100, 4);
    for _ in 0..10 {
        bench.emit(X, 0);
        bench.emit(Y, 0);
    }
    let left = bench.leave(200);
    let of = |dst| left.iter().filter(|(_, to)| *to == dst).map(|(at, _)| *at).collect::<Vec<_>>();
    assert_eq!(of(X), [0, 40, 80, 120, 160]);
    assert_eq!(of(Y).len(), 10);
}

#[test]
fn frames_of_a_sufficient_priority_pass_those_that_wait() {
    let mut bench = host();
    bench.stop(X, 9, 20, 0);
    [0, 8, 9, 15].into_iter().for_each(|priority| bench.emit(X, priority));
    assert_eq!(bench.leave(150), [(0, X), (10, X)]);
    assert_eq!(bench.leave(100).len(), 2);
}

#[test]
fn frames_of_a_strict_class_pass_those_that_waited() {
    let mut bench = host();
    bench.switch.reconfigure(&SwitchConfig { frames: 1024, strict: 1, ..SwitchConfig::default() });
    bench.stop(X, 15, 10, 0);
    (0..3).for_each(|_| bench.emit(X, 0));
    assert_eq!(bench.leave(100), []);
    let vlan = Some(VlanTag { priority: 7, drop_eligible: false, id: 0 });
    let urgent = bench.build(&Ethernet { vlan, ..header(station(0), Y) }, 101);
    bench.ingest(LOCAL, urgent);
    assert_eq!(bench.leave(40), [(0, Y), (10, X), (20, X), (30, X)]);
}

#[test]
fn frames_of_one_kind_keep_their_order() {
    let mut bench = host();
    bench.switch.reconfigure(&SwitchConfig { frames: 1024, strict: 1, ..SwitchConfig::default() });
    let vlan = Some(VlanTag { priority: 7, drop_eligible: false, id: 0 });
    let emit = |bench: &mut Bench, length| {
        let frame = bench.build(&Ethernet { vlan, ..header(station(0), X) }, length);
        bench.ingest(LOCAL, frame);
    };
    bench.stop(X, 15, 10, 0);
    emit(&mut bench, 101);
    bench.leave(100);
    emit(&mut bench, 226);
    let lengths = (0..2).flat_map(|_| {
        let lengths = bench.receive_some(LINK, 1);
        bench.wait(Duration::from_micros(50));
        lengths
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [101, 226]);
}

/// A host on a link that honours PAUSE.
fn host_with_pause() -> Bench {
    let link = PortConfig { rate: mbit(100), flow_control: FlowControl::Pause, ..PortConfig::new(PortRole::Host) };
    let mut bench = Bench::new(&SwitchConfig { frames: 1024, ..SwitchConfig::default() }, &[PortConfig::new(PortRole::Local), link]);
    bench.switch.set_stop(Some(stop_config()));
    bench.now = Instant::from_nanos(1_000_000_000);
    bench
}

#[test]
fn a_paused_link_carries_no_stop_packets_until_the_pause_is_over() {
    let mut bench = host_with_pause();
    bench.mac_control(LINK, &MacControl::Pause { time: 100 });
    let now = bench.now;
    bench.switch.stop_mut().unwrap().stop(now, X, |request| request);
    assert_eq!(bench.leave(500), []);
    let due = bench.switch.poll_timeout(|_| true).unwrap();
    assert!(due > bench.now && due <= bench.now + Duration::from_micros(20), "{due:?} at {:?}", bench.now);
    assert_eq!(bench.leave(30).len(), 1);
}

#[test]
fn a_paused_link_lets_out_nothing_that_waited_and_names_the_end_of_the_pause() {
    let mut bench = host_with_pause();
    bench.stop(X, 15, 10, 0);
    bench.emit(X, 0);
    bench.leave(1);
    // 100 quanta of 512 bits take 512 us.
    bench.mac_control(LINK, &MacControl::Pause { time: 100 });
    assert_eq!(bench.leave(500), []);
    let due = bench.switch.poll_timeout(|_| true).unwrap();
    assert!(due > bench.now && due <= bench.now + Duration::from_micros(20), "{due:?} at {:?}", bench.now);
    assert_eq!(bench.leave(30).len(), 1);
}

#[test]
fn while_everything_waits_the_switch_names_the_end_of_the_stop_as_its_deadline() {
    let mut bench = host();
    bench.stop(X, 15, 10, 0);
    bench.emit(X, 0);
    assert_eq!(bench.leave(10), []);
    assert_eq!(bench.switch.poll_timeout(|_| true), Some(bench.now + Duration::from_micros(90)));
    assert_eq!(bench.switch.queued(LINK), 1);
}

#[test]
fn a_port_that_goes_down_loses_what_was_set_aside() {
    let mut bench = host();
    bench.stop(X, 15, 255, 0);
    bench.emit(X, 0);
    bench.leave(1);
    bench.set_up(LINK, false);
    bench.assert_drops(&[(DropReason::PortDown, 1)]);
}

#[test]
fn control_packets_leave_ahead_of_all_data_and_of_the_rate() {
    let mut bench = host();
    (0..3).for_each(|_| bench.emit(Y, 0));
    assert_eq!(bench.leave(1), [(0, Y)]);
    let now = bench.now;
    bench.switch.stop_mut().unwrap().stop(now, X, |_| Request { priority: 15, timer: 10, rate: 0 });
    assert_eq!(bench.switch.poll_timeout(|_| true), Some(Instant::ZERO));
    // It takes the wire for 84 bytes, 6.72 us, which the others wait longer.
    assert_eq!(bench.leave(40), [(0, X), (16, Y), (26, Y)]);
    assert_eq!(bench.switch.port_counters(LINK).generated, 1);
}

#[test]
fn control_packets_that_are_refused_are_drops_and_those_for_others_pass_like_any_frame() {
    let mut bench = host();
    let unknown = Ethernet { ethertype: EtherType::STOP, ..header(X, station(0)) };
    let frame = bench.build(&unknown, 60);
    bench.pool.bytes_mut(&frame)[14] = 0x50;
    bench.ingest(LINK, frame);
    bench.assert_drops(&[(DropReason::UnknownCommand, 1)]);
    // A host exchanges frames with its own transport only, so this one has nowhere to go.
    bench.send_frame(LINK, &Ethernet { ethertype: EtherType::STOP, ..header(X, Y) }, 60);
    bench.assert_drops(&[(DropReason::UnknownCommand, 1), (DropReason::NoOutput, 1)]);
}

#[test]
fn a_switch_port_forwards_control_packets_and_obeys_none() {
    let mut bench = Bench::with(|_, _| {});
    bench.switch.set_stop(Some(stop_config()));
    bench.send(B, X, Y);
    bench.receive();
    bench.send_frame(C, &Ethernet { ethertype: EtherType::STOP, ..header(Y, X) }, 60);
    assert_eq!(bench.receive(), [0, 0, 1, 0]);
    assert!(bench.switch.stop().unwrap().obedience().unwrap().is_idle());
}

#[test]
fn other_settings_let_out_what_waited_under_the_old_ones() {
    let mut bench = host();
    bench.stop(X, 15, 255, 0);
    (0..2).for_each(|_| bench.emit(X, 0));
    assert_eq!(bench.leave(10), []);
    bench.switch.set_stop(None);
    assert_eq!(bench.leave(20), [(0, X), (10, X)]);
}

/// Frames of two hosts every 20 us, half the link, with so many octets of preamble; how many hosts are asked to stop.
fn asked_with_preambles_of(octets: u8) -> usize {
    let criterion = |threshold, micros| Criterion { threshold, period: Duration::from_micros(micros), stages: 1 };
    let delimiter = Detector { detect: criterion(4, 100), resolve: criterion(8, 200) };
    let second_sign = SecondSign { sources: true, delay: None };
    let watch = WatchConfig { volume: None, gap: None, delimiter: Some(delimiter), combine: Combine::Any, second_sign };
    let mut bench = host();
    bench.switch.set_stop(Some(StopConfig { watch: Some(watch), ..stop_config() }));
    for round in 0..20 {
        let frame = bench.build(&header(if round % 2 == 0 { X } else { Y }, station(0)), 101);
        bench.pool.set_preamble(&frame, octets);
        bench.ingest(LINK, frame);
        bench.wait(Duration::from_micros(20));
    }
    bench.switch.stop().unwrap().asked().count()
}

#[test]
fn a_link_that_reports_short_preambles_is_believed_and_one_that_reports_none_is_not_asked() {
    assert_eq!([4, 8, 0].map(asked_with_preambles_of), [2, 0, 0]);
}

#[test]
fn nothing_leaves_for_a_host_while_it_is_stopped_whatever_comes_in_between() {
    let mut rng = Rng::from_seed(11);
    let mut bench = host();
    let mut waited = 0;
    for _ in 0..30_000 {
        let mut pick = |bound: u64| u8::try_from(rng.below(bound)).unwrap();
        let (dst, priority) = (station(1 + pick(3)), pick(16));
        match pick(8) {
            0 => bench.stop(dst, priority, pick(40), pick(4) * pick(4)),
            1 => bench.control(dst, StopMessage::Cancel),
            2..5 if bench.pool.available() > 700 => bench.emit(dst, priority),
            _ => {
                let obedience = bench.switch.stop().unwrap().obedience().unwrap();
                let now = bench.now;
                let closed: Vec<_> = (1..4)
                    .flat_map(|host| (0..16).map(move |priority| (station(host), priority)))
                    .filter(|&(dst, priority)| obedience.verdict(now, dst, priority, crate::stop::Stage::Depart) != Verdict::Open)
                    .collect();
                bench.switch.egress(now, &mut bench.pool, LINK, 1, &mut bench.out);
                for frame in core::mem::take(&mut bench.out) {
                    let dst = Ethernet::parse(bench.pool.bytes(&frame)).unwrap().0.dst;
                    assert!(!closed.contains(&(dst, bench.pool.priority(&frame))), "{dst}");
                    bench.pool.free(frame);
                }
                waited += usize::from(!closed.is_empty() && bench.switch.queued(LINK) > 0);
                bench.wait(Duration::from_micros(u64::from(pick(12))));
            }
        }
    }
    assert!(waited > 1_000, "{waited}");
}
