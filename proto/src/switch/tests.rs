//! The whole switch: dialogues for each rule, then random operations against the conservation law.

use super::*;
use crate::drops::{DropCounts, DropReason};
use crate::pool::{FrameRef, Offload};
use crate::time::Duration;
use crate::units::BitRate;
use crate::wire::eth::{EtherType, Ethernet, VlanTag};
use alloc::collections::BTreeSet;
use alloc::vec;

mod operations;
mod pausing;
mod stops;
mod traffic;
mod vlans;

pub(super) const LOCAL: PortId = PortId(0);
pub(super) const A: PortId = PortId(1);
pub(super) const B: PortId = PortId(2);
pub(super) const C: PortId = PortId(3);

/// The station with this number; number 0 is the local transport.
pub(super) const fn station(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

/// A switch on a table with its pool and clock. Checks the balance after everything it does.
pub(super) struct Bench {
    pub(super) switch: Switch,
    pub(super) pool: Pool,
    pub(super) now: Instant,
    pub(super) out: Vec<FrameRef>,
}

impl Bench {
    pub(super) fn new(config: &SwitchConfig, ports: &[PortConfig]) -> Self {
        let mut switch = Switch::new(config, ports, Rng::from_seed(7));
        switch.set_static(station(0), LOCAL).unwrap();
        Self { switch, pool: Pool::new(1024, 2048, 32), now: Instant::ZERO, out: Vec::with_capacity(1024) }
    }

    /// The local transport and three switch ports, changed by `change`.
    pub(super) fn with(change: impl FnOnce(&mut SwitchConfig, &mut [PortConfig])) -> Self {
        let mut config = SwitchConfig { frames: 1024, ..SwitchConfig::default() };
        let mut ports = vec![PortConfig::new(PortRole::Switch); 4];
        ports[0].role = PortRole::Local;
        change(&mut config, &mut ports);
        Self::new(&config, &ports)
    }

    pub(super) fn build(&mut self, header: &Ethernet, length: usize) -> FrameRef {
        let frame = self.pool.alloc().expect("the pool of a bench is large enough");
        let room = self.pool.room_mut(&frame);
        room[..length].fill(0);
        header.emit(room).unwrap();
        self.pool.set_len(&frame, length);
        frame
    }

    pub(super) fn ingest(&mut self, port: PortId, frame: FrameRef) {
        self.switch.ingest(self.now, &mut self.pool, port, frame);
        self.check();
    }

    pub(super) fn send_frame(&mut self, port: PortId, header: &Ethernet, length: usize) {
        let frame = self.build(header, length);
        self.ingest(port, frame);
    }

    /// A frame of 100 bytes between two stations.
    pub(super) fn send(&mut self, port: PortId, src: MacAddr, dst: MacAddr) {
        self.send_frame(port, &header(src, dst), 100);
    }

    /// The lengths of up to `budget` frames that leave through a port now.
    pub(super) fn receive_some(&mut self, port: PortId, budget: usize) -> Vec<usize> {
        self.switch.egress(self.now, &mut self.pool, port, budget, &mut self.out);
        assert!(self.out.len() <= budget);
        let lengths = self.out.iter().map(|frame| self.pool.bytes(frame).len()).collect();
        self.out.drain(..).for_each(|frame| self.pool.free(frame));
        self.check();
        lengths
    }

    /// How many frames leave through each port now.
    pub(super) fn receive(&mut self) -> Vec<usize> {
        (0..self.switch.ports()).map(|index| self.receive_some(port_id(index), 1000).len()).collect()
    }

    pub(super) fn wait(&mut self, span: Duration) {
        self.now += span;
        self.switch.handle_timeout(self.now, &mut self.pool);
        self.check();
    }

    pub(super) fn set_up(&mut self, port: PortId, up: bool) {
        self.switch.set_port_up(&mut self.pool, port, up);
        self.check();
    }

    /// All drops of the switch, both sides of all ports.
    pub(super) fn drops(&self) -> DropCounts {
        let mut drops = DropCounts::default();
        for index in 0..self.switch.ports() {
            let counters = self.switch.port_counters(port_id(index));
            for (reason, frames) in counters.received_drops.nonzero().chain(counters.sent_drops.nonzero()) {
                drops.add(reason, frames);
            }
        }
        drops
    }

    /// Expects exactly these drops since the start.
    #[track_caller]
    pub(super) fn assert_drops(&self, expected: &[(DropReason, u64)]) {
        assert_eq!(self.drops().nonzero().collect::<Vec<_>>(), expected);
    }

    /// Conservation, and no buffer held by anybody but the switch.
    #[track_caller]
    pub(super) fn check(&self) {
        let totals = self.switch.totals();
        assert!(totals.conserved(), "{totals:?}");
        assert!(self.pool.in_use() as u64 <= totals.queued, "{} buffers for {totals:?}", self.pool.in_use());
        assert!(totals.queued == 0 || self.pool.in_use() > 0);
        let by_queue: u64 = (0..self.switch.ports()).map(|index| self.switch.queued(port_id(index))).sum();
        assert!(by_queue <= totals.queued);
    }
}

pub(super) const fn header(src: MacAddr, dst: MacAddr) -> Ethernet {
    Ethernet { dst, src, vlan: None, ethertype: EtherType::TRANSPORT }
}

fn tagged(src: MacAddr, dst: MacAddr, priority: u8) -> Ethernet {
    Ethernet { vlan: Some(VlanTag { priority, drop_eligible: false, id: 5 }), ..header(src, dst) }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn mbit(mbit: u64) -> Option<BitRate> {
    BitRate::new(mbit * 1_000_000)
}

#[test]
fn unknown_addresses_flood_until_the_station_is_heard() {
    let mut bench = Bench::with(|_, _| {});
    bench.send(A, station(1), station(2));
    assert_eq!(bench.receive(), [0, 0, 1, 1]);
    bench.send(B, station(2), station(1));
    assert_eq!(bench.receive(), [0, 1, 0, 0]);
    bench.send(A, station(1), station(2));
    assert_eq!(bench.receive(), [0, 0, 1, 0]);
    assert_eq!(bench.switch.totals(), Totals { ingested: 3, flooded: 1, sent: 4, ..Totals::default() });
    assert_eq!(bench.switch.fdb(bench.now).count(), 3);
}

#[test]
fn a_silent_station_is_flooded_to_again_after_its_age() {
    let mut bench = Bench::with(|config, _| config.mac_ageing = Duration::from_secs(300));
    bench.send(B, station(2), station(1));
    bench.receive();
    bench.wait(Duration::from_secs(300));
    bench.send(A, station(1), station(2));
    assert_eq!(bench.receive(), [0, 0, 1, 0]);
    bench.wait(millis(1));
    bench.send(A, station(1), station(2));
    assert_eq!(bench.receive(), [0, 0, 1, 1]);
}

#[test]
fn groups_flood_to_everybody_but_the_sender_and_share_one_buffer() {
    let mut bench = Bench::with(|_, _| {});
    bench.send(A, station(1), MacAddr::BROADCAST);
    assert_eq!((bench.pool.in_use(), bench.switch.totals().queued), (1, 3));
    assert_eq!(bench.receive(), [1, 0, 1, 1]);
    assert_eq!(bench.pool.in_use(), 0);
    assert_eq!(bench.switch.port_counters(A).flooded, 2);
}

#[test]
fn the_local_transport_gets_its_own_address_and_no_unknown_ones() {
    let mut bench = Bench::with(|_, _| {});
    bench.send(A, station(1), station(0));
    assert_eq!(bench.receive(), [1, 0, 0, 0]);
    bench.send(A, station(0), station(9));
    bench.receive();
    bench.send(B, station(2), station(0));
    assert_eq!(bench.receive(), [1, 0, 0, 0], "nobody takes the local address over");
}

#[test]
fn host_ports_exchange_frames_with_the_local_transport_alone() {
    let mut bench = Bench::with(|_, ports| (ports[1].role, ports[2].role) = (PortRole::Host, PortRole::Host));
    bench.send(A, station(1), MacAddr::BROADCAST);
    assert_eq!(bench.receive(), [1, 0, 0, 0]);
    bench.send(C, station(3), MacAddr::BROADCAST);
    assert_eq!(bench.receive(), [1, 0, 0, 0]);
    bench.send(LOCAL, station(0), MacAddr::BROADCAST);
    assert_eq!(bench.receive(), [0, 1, 1, 1]);
    bench.send(LOCAL, station(0), station(1));
    assert_eq!(bench.receive(), [0, 1, 0, 0]);
    bench.assert_drops(&[]);
    bench.send(B, station(2), station(1));
    bench.send(B, station(2), station(3));
    bench.send(B, station(2), station(9));
    assert_eq!(bench.receive(), [0, 0, 0, 0]);
    bench.assert_drops(&[(DropReason::NoOutput, 3)]);
}

#[test]
fn a_frame_never_goes_back_where_it_came_from() {
    let mut bench = Bench::with(|_, _| {});
    bench.send(A, station(1), MacAddr::BROADCAST);
    bench.receive();
    bench.send(A, station(2), station(1));
    bench.send(A, station(1), station(1));
    assert_eq!(bench.receive(), [0, 0, 0, 0]);
    bench.assert_drops(&[(DropReason::NoOutput, 2)]);
}

#[test]
fn invalid_sources_reserved_groups_and_mac_control_end_here() {
    let mut bench = Bench::with(|_, _| {});
    bench.send(A, MacAddr::ZERO, station(2));
    bench.send(A, MacAddr::BROADCAST, station(2));
    for last in 0..16 {
        bench.send(A, station(1), MacAddr([0x01, 0x80, 0xc2, 0, 0, last]));
    }
    bench.send_frame(A, &Ethernet { ethertype: EtherType(0x8808), ..header(station(1), station(2)) }, 60);
    assert_eq!(bench.receive(), [0, 0, 0, 0]);
    bench.assert_drops(&[(DropReason::InvalidSource, 2), (DropReason::ReservedAddress, 16), (DropReason::MacControl, 1)]);
    assert_eq!(bench.switch.fdb(bench.now).count(), 1, "nothing is learned from them");
    bench.send(A, station(1), MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x10]));
    assert_eq!(bench.receive(), [1, 0, 1, 1], "the first group that is not reserved");
}

#[test]
fn a_frame_without_a_whole_header_is_dropped() {
    let mut bench = Bench::with(|_, _| {});
    let short = bench.build(&header(station(1), station(2)), 14);
    bench.pool.set_len(&short, 13);
    bench.ingest(A, short);
    let cut = bench.build(&tagged(station(1), station(2), 0), 18);
    bench.pool.set_len(&cut, 17);
    bench.ingest(A, cut);
    let empty = bench.build(&header(station(1), station(2)), 14);
    bench.pool.set_len(&empty, 0);
    bench.ingest(A, empty);
    bench.assert_drops(&[(DropReason::Truncated, 3)]);
}

#[test]
fn the_output_limits_the_payload_and_a_super_frame_by_its_segments() {
    let mut bench = Bench::with(|_, ports| ports[2].mtu = 500);
    bench.send(B, station(2), station(0));
    bench.send_frame(B, &tagged(station(2), station(0), 0), 100);
    bench.send_frame(A, &header(station(1), station(2)), 514);
    bench.send_frame(A, &tagged(station(1), station(2), 0), 518);
    assert_eq!(bench.receive_some(B, 9).len(), 2);
    bench.send_frame(A, &header(station(1), station(2)), 515);
    bench.send_frame(A, &tagged(station(1), station(2), 0), 519);
    bench.assert_drops(&[(DropReason::Oversize, 2)]);
    for gso_size in [460, 461] {
        let frame = bench.build(&header(station(1), station(2)), 1500);
        bench.pool.set_offload(&frame, Offload { gso_type: 1, header_len: 54, gso_size, ..Offload::default() });
        bench.ingest(A, frame);
    }
    assert_eq!(bench.receive_some(B, 9).len(), 1);
    bench.assert_drops(&[(DropReason::Oversize, 3)]);
    bench.send_frame(A, &header(station(1), MacAddr::BROADCAST), 1514);
    assert_eq!(bench.receive_some(C, 9), [1514], "the other outputs of a flood are judged by their own limits");
    bench.assert_drops(&[(DropReason::Oversize, 4)]);
}

#[test]
fn a_full_queue_refuses_the_newest_and_leaves_other_outputs_alone() {
    let mut bench = Bench::with(|config, _| config.voq_limit_bytes = 1000);
    bench.send(B, station(2), station(0));
    bench.send(C, station(3), station(0));
    (0..15).for_each(|_| bench.send(A, station(1), station(2)));
    bench.send(A, station(1), station(3));
    bench.assert_drops(&[(DropReason::QueueFull, 5)]);
    assert_eq!(bench.switch.queued(B), 10);
    let full = bench.switch.voqs_of(B).find(|voq| voq.counters.queued.frames > 0).unwrap();
    assert_eq!((full.input, full.output, full.class), (A, B, 0));
    assert_eq!(full.counters.refused, Traffic { frames: 5, bytes: 500 });
    assert_eq!(bench.receive(), [2, 0, 10, 1]);
}

#[test]
fn what_waits_from_one_input_to_one_output_is_the_sum_of_its_classes() {
    let mut bench = Bench::with(|config, _| config.classes = 4);
    bench.send(C, station(3), station(0));
    bench.send(B, station(2), station(0));
    for priority in [0, 3, 3] {
        let vlan = Some(VlanTag { priority, drop_eligible: false, id: 1 });
        bench.send_frame(A, &Ethernet { vlan, ..header(station(1), station(3)) }, 200);
    }
    bench.send(B, station(2), station(3));
    assert_eq!(bench.switch.queued_from(A, C), Traffic { frames: 3, bytes: 600 });
    assert_eq!(bench.switch.queued_from(B, C), Traffic { frames: 1, bytes: 100 });
    assert_eq!(bench.switch.queued_from(C, A), Traffic::default());
    let listed = bench.switch.voqs_of(C).filter(|voq| voq.input == A).map(|voq| voq.counters.queued.frames);
    assert_eq!(listed.sum::<u64>(), 3);
}

#[test]
fn a_port_that_goes_down_loses_its_frames_and_addresses_counted() {
    let mut bench = Bench::with(|_, ports| {
        ports[2].impair_egress.delay = millis(1);
        ports[2].impair_ingress.delay = millis(1);
    });
    bench.switch.set_static(station(5), B).unwrap();
    bench.send(B, station(2), station(0));
    bench.wait(millis(1));
    bench.send(B, station(2), station(0));
    (0..3).for_each(|_| bench.send(A, station(1), station(2)));
    assert_eq!(bench.receive_some(B, 2).len(), 0, "two of three are in the delay line now");
    bench.set_up(B, false);
    bench.assert_drops(&[(DropReason::PortDown, 4)]);
    assert_eq!(bench.switch.port_counters(B).sent_drops.of(DropReason::PortDown), 3);
    bench.send(A, station(1), station(5));
    bench.send(B, station(2), station(0));
    bench.assert_drops(&[(DropReason::PortDown, 6)]);
    bench.send(A, station(1), station(2));
    assert_eq!(bench.receive(), [1, 0, 0, 1], "the station behind it is flooded to the ports that are up");
    assert!(!bench.switch.is_port_up(B));
    bench.set_up(B, true);
    bench.send(A, station(1), station(5));
    bench.receive_some(B, 9);
    bench.wait(millis(1));
    assert_eq!(bench.receive_some(B, 9).len(), 1);
}

#[test]
fn a_flood_with_every_other_port_down_has_no_output() {
    let mut bench = Bench::with(|_, _| {});
    [LOCAL, B, C].into_iter().for_each(|port| bench.set_up(port, false));
    bench.send(A, station(1), MacAddr::BROADCAST);
    bench.assert_drops(&[(DropReason::NoOutput, 1)]);
}

#[test]
fn impairments_of_both_directions_are_counted_at_their_side() {
    let mut bench = Bench::with(|_, ports| {
        ports[1].impair_ingress.loss_ppm = 1_000_000;
        ports[2].impair_egress.loss_ppm = 1_000_000;
    });
    bench.send(A, station(1), MacAddr::BROADCAST);
    bench.send(C, station(3), MacAddr::BROADCAST);
    assert_eq!(bench.receive(), [1, 1, 0, 0]);
    assert_eq!(bench.switch.port_counters(A).received_drops.of(DropReason::ImpairedLoss), 1);
    assert_eq!(bench.switch.port_counters(B).sent_drops.of(DropReason::ImpairedLoss), 1);
    bench.assert_drops(&[(DropReason::ImpairedLoss, 2)]);
}

#[test]
fn a_full_delay_line_and_a_missing_buffer_have_their_own_reasons() {
    let mut bench = Bench::with(|config, ports| {
        config.frames = 2;
        ports[1].impair_ingress.delay = millis(1);
        ports[2].impair_ingress.corrupt_ppm = 1_000_000;
    });
    (0..3).for_each(|_| bench.send(A, station(1), station(0)));
    bench.assert_drops(&[(DropReason::ImpairedFull, 1)]);
    bench.pool = Pool::new(1, 2048, 0);
    let original = bench.build(&header(station(2), station(0)), 100);
    let shared = bench.pool.share(&original);
    bench.switch.ingest(bench.now, &mut bench.pool, B, shared);
    assert_eq!(bench.drops().of(DropReason::NoBuffer), 1);
    bench.pool.free(original);
}

#[test]
fn duplicates_are_balanced_as_frames_that_came_into_being_here() {
    let mut bench = Bench::with(|_, ports| {
        ports[1].impair_ingress.duplicate_ppm = 1_000_000;
        ports[2].impair_egress.duplicate_ppm = 1_000_000;
    });
    bench.send(A, station(1), MacAddr::BROADCAST);
    assert_eq!(bench.receive(), [2, 0, 4, 2]);
    let expected = Totals { ingested: 1, duplicated: 3, flooded: 4, sent: 8, ..Totals::default() };
    assert_eq!(bench.switch.totals(), expected);
    assert_eq!(bench.switch.port_counters(B).egress_impairment.duplicated, 2);
}

#[test]
fn learning_and_forwarding_wait_for_the_ingress_delay() {
    let mut bench = Bench::with(|_, ports| ports[1].impair_ingress.delay = millis(5));
    bench.send(A, station(1), station(0));
    assert_eq!(bench.switch.poll_timeout(|_| true), Some(Instant::ZERO + millis(5)));
    bench.wait(millis(4));
    assert_eq!((bench.receive()[0], bench.switch.fdb(bench.now).count()), (0, 1));
    bench.wait(millis(1));
    assert_eq!((bench.receive()[0], bench.switch.fdb(bench.now).count()), (1, 2));
    assert_eq!(bench.switch.poll_timeout(|_| true), None);
}

#[test]
fn the_deadline_is_the_next_departure_of_a_port_that_can_send() {
    let mut bench = Bench::with(|_, ports| (ports[2].rate, ports[3].rate) = (mbit(8), mbit(16)));
    assert_eq!(bench.switch.poll_timeout(|_| true), None);
    (0..2).for_each(|_| bench.send(LOCAL, station(0), MacAddr::BROADCAST));
    assert_eq!(bench.switch.poll_timeout(|port| port == B), Some(Instant::ZERO));
    assert_eq!(bench.receive(), [0, 2, 1, 1]);
    // 124 bytes on the wire.
    assert_eq!(bench.switch.poll_timeout(|_| true), Some(Instant::from_nanos(62_000)));
    assert_eq!(bench.switch.poll_timeout(|port| port != C), Some(Instant::from_nanos(124_000)));
    assert_eq!(bench.switch.poll_timeout(|_| false), None);
}

#[test]
fn the_delay_line_follows_the_rate() {
    let mut bench = Bench::with(|_, ports| {
        ports[2].rate = mbit(8);
        ports[2].impair_egress.delay = millis(1);
    });
    bench.switch.set_static(station(2), B).unwrap();
    (0..3).for_each(|_| bench.send(A, station(1), station(2)));
    let mut arrivals = vec![];
    while let Some(deadline) = bench.switch.poll_timeout(|_| true) {
        bench.now = bench.now.max(deadline);
        for _ in bench.receive_some(B, 8) {
            arrivals.push(bench.now.as_nanos());
        }
    }
    assert_eq!(arrivals, [1_000_000, 1_124_000, 1_248_000]);
}

#[test]
fn a_late_owner_does_not_lengthen_the_delay_of_a_link() {
    let mut bench = Bench::with(|_, ports| {
        ports[2].rate = mbit(8);
        ports[2].impair_egress.delay = millis(1);
    });
    bench.switch.set_static(station(2), B).unwrap();
    (0..2).for_each(|_| bench.send(A, station(1), station(2)));
    bench.receive_some(B, 8);
    bench.wait(Duration::from_micros(300));
    bench.receive_some(B, 8);
    bench.wait(Duration::from_micros(823));
    assert_eq!(bench.receive_some(B, 8).len(), 1);
    assert_eq!(bench.switch.poll_timeout(|_| true), Some(Instant::from_nanos(1_124_000)), "124 us on the wire after the first");
}

#[test]
fn a_call_takes_no_more_frames_from_the_queues_than_its_budget_even_if_all_are_lost() {
    let mut bench = Bench::with(|_, ports| ports[2].impair_egress.loss_ppm = 1_000_000);
    bench.switch.set_static(station(2), B).unwrap();
    (0..10).for_each(|_| bench.send(A, station(1), station(2)));
    assert_eq!(bench.receive_some(B, 4).len(), 0);
    bench.assert_drops(&[(DropReason::ImpairedLoss, 4)]);
    assert_eq!(bench.switch.poll_timeout(|_| true), Some(Instant::ZERO), "there is more to do at once");
}

#[test]
fn port_settings_change_under_waiting_frames() {
    let mut bench = Bench::with(|_, ports| ports[2].rate = BitRate::new(1000));
    bench.switch.set_static(station(2), B).unwrap();
    (0..3).for_each(|_| bench.send(A, station(1), station(2)));
    assert_eq!(bench.receive_some(B, 8).len(), 1);
    let faster = PortConfig { rate: None, mtu: 50, ..PortConfig::new(PortRole::Switch) };
    bench.switch.reconfigure_port(bench.now, B, &faster);
    assert_eq!(bench.switch.port_config(B), &faster);
    assert_eq!(bench.receive_some(B, 8).len(), 2);
    bench.send(A, station(1), station(2));
    bench.assert_drops(&[(DropReason::Oversize, 1)]);
}

#[test]
fn limits_and_ageing_change_while_traffic_flows() {
    let mut bench = Bench::with(|_, _| {});
    bench.send(B, station(2), station(0));
    (0..3).for_each(|_| bench.send(A, station(1), station(2)));
    let tighter = SwitchConfig { voq_limit_bytes: 300, mac_ageing: Duration::from_secs(1), ..SwitchConfig::default() };
    bench.switch.reconfigure(&tighter);
    bench.send(A, station(1), station(2));
    bench.assert_drops(&[(DropReason::QueueFull, 1)]);
    bench.wait(Duration::from_secs(2));
    assert_eq!(bench.switch.fdb(bench.now).count(), 1);
}
