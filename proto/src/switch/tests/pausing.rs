//! PAUSE, PFC and strict priority in the whole switch.

use super::*;
use crate::switch::flow::{FlowConfig, FlowControl};
use crate::wire::MacControl;
use crate::wire::mac_control::MAC_CONTROL_GROUP;
use proptest::prelude::*;

/// 512 us at 1 Gbit/s.
const TIME: u16 = 1000;
const FLOW: FlowConfig = FlowConfig { xoff: 1000, xon: 400, pause_time: Duration::from_micros(512), watchdog: Duration::from_millis(400) };

/// All three switch ports of a kind, at 1 Gbit/s; station `n` is behind port `n`.
fn bench(kind: FlowControl) -> Bench {
    let mut bench = Bench::with(|config, ports| {
        config.flow = FLOW;
        for (number, port) in (0..).zip(ports) {
            (port.rate, port.mac) = (mbit(1000), station(100 + number));
            port.flow_control = if number > 0 { kind } else { FlowControl::None };
        }
    });
    for (number, port) in [(1, A), (2, B), (3, C)] {
        bench.switch.set_static(station(number), port).unwrap();
    }
    bench
}

impl Bench {
    pub(super) fn mac_control(&mut self, port: PortId, message: &MacControl) {
        let bytes = message.emit(station(50));
        self.bytes(port, &bytes);
    }

    fn bytes(&mut self, port: PortId, bytes: &[u8]) {
        let frame = self.pool.alloc().unwrap();
        self.pool.room_mut(&frame)[..bytes.len()].copy_from_slice(bytes);
        self.pool.set_len(&frame, bytes.len());
        self.ingest(port, frame);
    }

    fn send_priority(&mut self, port: PortId, to: u8, priority: u8) {
        self.send_frame(port, &tagged(station(9), station(to), priority), 100);
    }

    /// What leaves through a port now: its MAC control frames, and the priorities of the others.
    fn leaving(&mut self, port: PortId) -> (Vec<MacControl>, Vec<u8>) {
        self.switch.egress(self.now, &mut self.pool, port, 1000, &mut self.out);
        let (mut control, mut data) = (vec![], vec![]);
        for frame in self.out.drain(..) {
            let (header, payload) = Ethernet::parse(self.pool.bytes(&frame)).unwrap();
            if header.ethertype == EtherType::MAC_CONTROL {
                assert_eq!((header.dst, header.src), (MAC_CONTROL_GROUP, station(100 + u8::try_from(port.0).unwrap())));
                control.push(MacControl::parse(payload).unwrap());
            } else {
                data.push(header.vlan.map_or(0, |tag| tag.priority));
            }
            self.pool.free(frame);
        }
        self.check();
        (control, data)
    }

    fn micros(&mut self, micros: u64) {
        self.wait(Duration::from_micros(micros));
    }
}

fn pause(time: u16) -> MacControl {
    MacControl::Pause { time }
}

#[test]
fn a_paused_port_sends_nothing_until_its_time_is_over_and_names_that_instant() {
    let mut bench = bench(FlowControl::Pause);
    bench.mac_control(B, &pause(TIME));
    assert_eq!(bench.switch.poll_timeout(|_| true), None, "nothing waits");
    (0..3).for_each(|_| bench.send(A, station(1), station(2)));
    assert_eq!(bench.leaving(B), (vec![], vec![]));
    assert_eq!(bench.switch.poll_timeout(|_| true), Some(Instant::ZERO + Duration::from_micros(512)));
    assert_eq!(bench.switch.poll_timeout(|port| port != B), None);
    bench.send(A, station(1), station(3));
    assert_eq!(bench.leaving(C).1.len(), 1, "other ports go on");
    bench.micros(511);
    assert_eq!(bench.leaving(B).1.len(), 0);
    bench.micros(1);
    assert_eq!(bench.leaving(B).1.len(), 1);
    bench.micros(10);
    assert_eq!(bench.leaving(B).1.len(), 2);
    let counters = bench.switch.port_counters(B).flow;
    assert_eq!((counters.received, counters.paused), (1, Duration::from_micros(512)));
    assert_eq!(bench.switch.totals().consumed, 1);
    bench.assert_drops(&[]);
}

#[test]
fn a_pause_of_zero_lets_the_port_go_at_once_and_it_makes_up_for_nothing() {
    let mut bench = bench(FlowControl::Pause);
    bench.mac_control(B, &pause(TIME));
    (0..9).for_each(|_| bench.send(A, station(1), station(2)));
    bench.leaving(B);
    bench.micros(300);
    bench.mac_control(B, &pause(0));
    assert_eq!(bench.switch.poll_timeout(|_| true), Some(bench.now));
    assert_eq!(bench.leaving(B).1.len(), 1, "the wire earned no burst while it was silent");
}

#[test]
fn a_port_without_flow_control_drops_mac_control_frames_as_ever() {
    let mut bench = bench(FlowControl::None);
    bench.mac_control(B, &pause(TIME));
    let to_us = Ethernet { ethertype: EtherType::MAC_CONTROL, ..header(station(2), station(102)) };
    bench.send_frame(B, &to_us, 60);
    bench.assert_drops(&[(DropReason::ReservedAddress, 1), (DropReason::MacControl, 1)]);
    bench.send(A, station(1), station(2));
    assert_eq!(bench.leaving(B).1.len(), 1);
}

#[test]
fn what_is_no_request_to_this_port_is_dropped_with_its_reason_and_changes_nothing() {
    let mut bench = bench(FlowControl::Pause);
    let good = pause(TIME).emit(station(50));
    let mut unknown = good;
    unknown[15] = 2;
    bench.bytes(B, &unknown);
    bench.bytes(B, &good[..17]);
    bench.mac_control(B, &MacControl::Pfc { enabled: 0xff, times: [TIME; 8] });
    let mut elsewhere = good;
    elsewhere[..6].copy_from_slice(&station(77).0);
    bench.bytes(B, &elsewhere);
    let mut invalid = good;
    invalid[6] = 1;
    bench.bytes(B, &invalid);
    bench.bytes(B, &[&good[..12], &[0x81, 0, 0, 0], &good[12..]].concat());
    bench.assert_drops(&[
        (DropReason::Truncated, 1),
        (DropReason::UnknownOpcode, 1),
        (DropReason::InvalidSource, 1),
        (DropReason::MacControl, 3),
    ]);
    bench.send(A, station(1), station(2));
    assert_eq!(bench.leaving(B).1.len(), 1);
    let mut own = good;
    own[..6].copy_from_slice(&station(102).0);
    bench.bytes(B, &own);
    bench.send(A, station(1), station(2));
    assert_eq!(bench.leaving(B).1.len(), 0, "its own address is as good as the group");
}

#[test]
fn a_full_input_is_asked_to_stop_ahead_of_its_data_and_let_go_when_the_queue_has_drained() {
    let mut bench = bench(FlowControl::Pause);
    bench.mac_control(B, &pause(TIME));
    bench.send(C, station(3), station(1));
    (0..9).for_each(|_| bench.send(A, station(1), station(2)));
    assert_eq!(bench.leaving(A).0, [], "900 bytes");
    bench.micros(10);
    bench.send(C, station(3), station(1));
    bench.send(A, station(1), station(2));
    assert_eq!(bench.leaving(A), (vec![pause(TIME)], vec![]));
    let first = bench.now;
    bench.micros(1);
    assert_eq!(bench.leaving(A), (vec![], vec![0]), "then the wire is free for data");
    assert_eq!(bench.leaving(C).0, [], "nothing that came in there waits");
    bench.leaving(B);
    let again = first + Duration::from_micros(256);
    assert_eq!(bench.switch.poll_timeout(|_| true), Some(again));
    bench.wait(again.since(bench.now));
    assert_eq!(bench.leaving(A), (vec![pause(TIME)], vec![]));
    bench.mac_control(B, &pause(0));
    let mut told = vec![];
    for _ in 0..10 {
        bench.micros(1);
        bench.leaving(B);
        told.extend(bench.leaving(A).0);
    }
    assert_eq!(told, [pause(0)]);
    assert_eq!(bench.switch.port_counters(A).flow.sent, 3);
    assert_eq!(bench.switch.totals().generated, 3);
}

#[test]
fn a_paused_port_still_asks_its_other_end_to_stop() {
    let mut bench = bench(FlowControl::Pause);
    bench.mac_control(A, &pause(TIME));
    bench.mac_control(B, &pause(TIME));
    (0..20).for_each(|_| bench.send(A, station(1), station(2)));
    (0..20).for_each(|_| bench.send(B, station(2), station(1)));
    assert_eq!(bench.leaving(A), (vec![pause(TIME)], vec![]));
    assert_eq!(bench.leaving(B), (vec![pause(TIME)], vec![]));
}

#[test]
fn frames_made_here_pass_the_impaired_link_like_others() {
    let mut bench = bench(FlowControl::Pause);
    let lossy = PortConfig { impair_egress: Impairment { loss_ppm: 1_000_000, ..Impairment::NONE }, ..bench.switch.port_config(A).clone() };
    bench.switch.reconfigure_port(bench.now, A, &lossy);
    bench.mac_control(B, &pause(TIME));
    (0..20).for_each(|_| bench.send(A, station(1), station(2)));
    assert_eq!(bench.leaving(A), (vec![], vec![]));
    bench.assert_drops(&[(DropReason::ImpairedLoss, 1)]);
    assert_eq!(bench.switch.totals().generated, 1);
}

#[test]
fn without_a_buffer_the_request_comes_later_and_the_switch_does_not_spin() {
    let mut bench = bench(FlowControl::Pause);
    bench.mac_control(B, &pause(TIME));
    (0..20).for_each(|_| bench.send(A, station(1), station(2)));
    bench.leaving(B);
    let taken: Vec<_> = core::iter::from_fn(|| bench.pool.alloc()).collect();
    bench.switch.egress(bench.now, &mut bench.pool, A, 9, &mut bench.out);
    assert!(bench.out.is_empty());
    assert!(bench.switch.poll_timeout(|_| true) > Some(bench.now));
    taken.into_iter().for_each(|frame| bench.pool.free(frame));
    bench.micros(50);
    assert_eq!(bench.leaving(A).0, [pause(TIME)]);
}

#[test]
fn pfc_holds_back_one_priority_and_asks_for_one() {
    let mut bench = bench(FlowControl::Pfc);
    let mut times = [0; 8];
    times[3] = TIME;
    let stop = MacControl::Pfc { enabled: 1 << 3, times };
    bench.mac_control(B, &stop);
    for priority in [3, 1] {
        (0..12).for_each(|_| bench.send_priority(A, 2, priority));
    }
    let mut left = vec![];
    for _ in 0..12 {
        left.extend(bench.leaving(B).1);
        bench.micros(1);
    }
    assert_eq!(left, [1; 12]);
    assert_eq!(bench.leaving(A).0, [stop], "what came with priority 1 has left again");
    bench.mac_control(B, &MacControl::Pfc { enabled: 1 << 3, times: [0; 8] });
    assert_eq!(bench.leaving(B).1, [3]);
}

#[test]
fn a_silence_that_ends_while_the_wire_is_busy_is_not_looked_at_before_the_wire_is_free() {
    let mut bench = bench(FlowControl::Pfc);
    let mut times = [0; 8];
    (times[1], times[2]) = (10, 11);
    bench.mac_control(B, &MacControl::Pfc { enabled: 0b110, times });
    [1, 2].into_iter().for_each(|priority| bench.send_priority(A, 2, priority));
    assert_eq!(bench.leaving(B).1, []);
    bench.wait(Duration::from_nanos(5120));
    assert_eq!(bench.leaving(B).1, [1]);
    // 124 bytes last 992 ns, beyond the 512 ns that are left of the other silence.
    assert_eq!(bench.switch.poll_timeout(|_| true), Some(Instant::from_nanos(6112)));
}

#[test]
fn a_storm_ends_by_itself_and_the_back_pressure_with_it() {
    let mut bench = bench(FlowControl::Pause);
    let mut said = vec![];
    (0..12).for_each(|_| bench.send(A, station(1), station(2)));
    for _ in 0..5000 {
        bench.mac_control(B, &pause(TIME));
        bench.leaving(B);
        said.extend(bench.leaving(A).0);
        bench.micros(200);
    }
    let counters = bench.switch.port_counters(B).flow;
    assert_eq!((counters.watchdog_trips, counters.paused), (1, FLOW.watchdog));
    assert_eq!(said.pop(), Some(pause(0)), "the last word upstream is to go on");
    assert!(said.iter().all(|&word| word == pause(TIME)) && said.len() <= 1 + 400_000 / 256, "{}", said.len());
    bench.send(A, station(1), station(2));
    bench.micros(1);
    assert_eq!((bench.leaving(B).1.len(), bench.switch.queued(B)), (1, 0));
    bench.assert_drops(&[]);
}

#[test]
fn a_port_that_went_down_or_changed_its_mind_is_not_paused_any_more() {
    let mut bench = bench(FlowControl::Pause);
    bench.mac_control(B, &pause(u16::MAX));
    bench.set_up(B, false);
    bench.set_up(B, true);
    bench.send(A, station(1), station(2));
    assert_eq!(bench.leaving(B).1.len(), 1);
    bench.micros(1);
    bench.mac_control(B, &pause(u16::MAX));
    bench.send(A, station(1), station(2));
    assert_eq!(bench.leaving(B).1.len(), 0);
    let without = PortConfig { flow_control: FlowControl::None, ..bench.switch.port_config(B).clone() };
    bench.switch.reconfigure_port(bench.now, B, &without);
    assert_eq!(bench.leaving(B).1.len(), 1);
}

#[test]
fn strict_classes_overtake_and_stop_control_is_of_the_highest() {
    let mut bench = Bench::with(|config, _| (config.strict, config.control) = (1, Some(EtherType::STOP)));
    bench.switch.set_static(station(2), B).unwrap();
    for priority in [0, 5, 7] {
        (0..2).for_each(|_| bench.send_frame(A, &tagged(station(1), station(2), priority), 100 + usize::from(priority)));
    }
    bench.send_frame(A, &Ethernet { ethertype: EtherType::STOP, ..header(station(1), station(2)) }, 60);
    assert_eq!(bench.receive_some(B, 9), [107, 107, 60, 100, 100, 105, 105]);
    (0..2).for_each(|_| bench.send_frame(A, &tagged(station(1), station(2), 0), 100));
    (0..2).for_each(|_| bench.send_frame(A, &tagged(station(1), station(2), 7), 107));
    bench.switch.reconfigure(&SwitchConfig { frames: 1024, ..SwitchConfig::default() });
    assert_eq!(bench.receive_some(B, 9), [100, 100, 107, 107]);
}

/// Two senders at full speed and a receiver at half of one's: bytes that reached it, and frames lost in the switch.
fn incast(kind: FlowControl) -> (u64, u64) {
    let mut bench = bench(kind);
    let ports: Vec<_> = [A, B, C].map(|port| bench.switch.port_config(port).clone()).into();
    bench.switch.reconfigure(&SwitchConfig {
        // Room for what is on its way when a sender hears of it: 64 kB here.
        flow: FlowConfig { xoff: 20_000, xon: 10_000, ..FLOW },
        voq_limit_bytes: 64_000,
        ..SwitchConfig::default()
    });
    bench.switch.reconfigure_port(bench.now, C, &PortConfig { rate: mbit(500), ..ports[2].clone() });
    let (mut silent_until, mut delivered) = ([Instant::ZERO; 2], 0);
    let word = |silent: &mut Instant, now: Instant, message: &MacControl| {
        if let MacControl::Pause { time } = *message {
            *silent = now + crate::wire::mac_control::quanta_time(time, BitRate::megabits(1000));
        }
    };
    for _ in 0..20_000 {
        for (index, port) in [A, B].into_iter().enumerate() {
            if silent_until[index] <= bench.now {
                bench.send_frame(port, &header(station(1), station(3)), 1476);
            }
            for message in bench.leaving(port).0 {
                word(&mut silent_until[index], bench.now, &message);
            }
        }
        delivered += bench.receive_some(C, 100).iter().sum::<usize>() as u64;
        bench.micros(12);
    }
    (delivered, bench.drops().of(DropReason::QueueFull))
}

#[test]
fn an_incast_loses_nothing_with_pause_and_much_without() {
    let (with, lost_with) = incast(FlowControl::Pause);
    let (without, lost_without) = incast(FlowControl::None);
    assert_eq!(lost_with, 0);
    assert!(lost_without > 10_000, "{lost_without}");
    assert!(with.abs_diff(without) < without / 100, "the receiver is as busy: {with} and {without} bytes");
}

proptest! {
    #[test]
    fn a_silent_port_sends_no_data_and_a_silent_priority_none_of_its_own(
        pfc in any::<bool>(),
        steps in prop::collection::vec((0_u8..10, 1_u16..4, 0_u8..8, any::<u8>(), 0_u16..3000), 1..200),
    ) {
        let kind = if pfc { FlowControl::Pfc } else { FlowControl::Pause };
        let mut bench = bench(kind);
        // When the silence of each priority of each port ends.
        let mut until = [[Instant::ZERO; 8]; 4];
        for (what, port, priority, enabled, number) in steps {
            match what {
                0..5 => bench.send_priority(PortId(port), 1 + u8::try_from(number % 3).unwrap(), priority),
                5 => {
                    let (mask, message) =
                        if pfc { (enabled, MacControl::Pfc { enabled, times: [number; 8] }) } else { (0xff, pause(number)) };
                    let end = bench.now + crate::wire::mac_control::quanta_time(number, BitRate::megabits(1000));
                    (0..8).filter(|index| mask >> index & 1 == 1).for_each(|index| until[usize::from(port)][index] = end);
                    bench.mac_control(PortId(port), &message);
                }
                6 => bench.micros(u64::from(number) / 10),
                _ => {
                    let (_, data) = bench.leaving(PortId(port));
                    for priority in data {
                        prop_assert!(until[usize::from(port)][usize::from(priority)] <= bench.now, "priority {}", priority);
                    }
                }
            }
        }
        // Everything leaves in the end: nobody is forgotten.
        for _ in 0..10_000 {
            let Some(deadline) = bench.switch.poll_timeout(|_| true) else { break };
            bench.wait(deadline.since(bench.now));
            bench.receive();
        }
        prop_assert_eq!((bench.switch.totals().queued, bench.pool.in_use()), (0, 0));
    }
}
