#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use std::collections::VecDeque;

use weft_config::model::{Backend, Impairment, Port as PortModel, PortImpairment, Role};
use weft_proto::switch::{FlowControl, SwitchConfig};
use weft_proto::wire::{EtherType, Ethernet, MacAddr};
use weft_proto::{BitRate, DropReason, Pool, Rng};

use super::*;
use crate::port::{HEADROOM, Port, PortCounters, RxOutcome, TxOutcome};

const CHUNK: usize = 2048;
const BATCH: usize = 32;

fn settings(name: &str) -> PortModel {
    let none = Impairment::default();
    PortModel {
        name: name.into(),
        interface: name.into(),
        role: Role::Switch,
        backend: Backend::Auto,
        rate: None,
        mtu: Some(1500),
        vlans: None,
        flow_control: FlowControl::None,
        impair: PortImpairment { ingress: none, egress: none, seed: 1 },
    }
}

/// The far end of a cable: sends and receives frames as a host would.
struct Station {
    port: Port,
    pool: Pool,
    queue: VecDeque<weft_proto::FrameRef>,
    counters: PortCounters,
    received: Vec<weft_proto::FrameRef>,
}

impl Station {
    fn new(port: Port) -> Self {
        let pool = Pool::new(256, CHUNK, HEADROOM);
        let (queue, received) = (VecDeque::with_capacity(256), Vec::with_capacity(256));
        Self { port, pool, queue, counters: PortCounters::default(), received }
    }

    fn send(&mut self, src: u8, dst: u8, len: usize) {
        let frame = self.pool.alloc().unwrap();
        let header = Ethernet { dst: mac(dst), src: mac(src), vlan: None, ethertype: EtherType(0x0800) };
        header.emit(self.pool.room_mut(&frame)).unwrap();
        self.pool.set_len(&frame, len);
        self.queue.push_back(frame);
        assert_eq!(self.port.tx(&mut self.pool, &mut self.queue, &mut self.counters), TxOutcome::Drained);
    }

    /// Takes what arrived and returns how much it was.
    fn receive(&mut self) -> usize {
        while self.port.rx(&mut self.pool, &mut self.received, BATCH, &mut self.counters) == RxOutcome::More {}
        let count = self.received.len();
        self.received.drain(..).for_each(|frame| self.pool.free(frame));
        count
    }
}

fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, last])
}

/// A switch of `ports` ports with a station at each.
fn switch(ports: &[PortModel], frames: usize, depth: usize) -> (Plane, Vec<Station>) {
    let mut stations = Vec::new();
    let mut ends = Vec::new();
    for settings in ports {
        let (near, far) = Port::memory_pair(depth);
        ends.push((near, settings.clone()));
        stations.push(Station::new(far));
    }
    (plane(ends, None, frames), stations)
}

fn plane(ports: Vec<(Port, PortModel)>, local: Option<Local>, frames: usize) -> Plane {
    let config = SwitchConfig { frames, ..SwitchConfig::default() };
    let pool = Pool::new(frames, CHUNK, HEADROOM);
    Plane::new(Parts { pool, switch: config, ports, local, batch: BATCH, rng: Rng::from_seed(1) })
}

/// A transport with the address `mac(0)`.
fn local() -> Local {
    let yaml = "version: 1\nnode: a\nports:\n  - { name: eth0, interface: eth0, role: host }\n";
    let config = weft_config::Config::from_yaml(yaml, "test").unwrap();
    let endpoint = weft_proto::transport::Endpoint::new(crate::translate::endpoint(&config, mac(0), 1500, 1), Rng::from_seed(2));
    let waker = Arc::new(mio::Waker::new(mio::Poll::new().unwrap().registry(), Token(0)).unwrap());
    let mailbox = Mailbox { updates: crossbeam::channel::unbounded().0, waker };
    Local::new(endpoint, mac(0), crate::app::AppTable::new().unwrap(), mailbox)
}

fn at(micros: u64) -> Instant {
    Instant::ZERO + Duration::from_micros(micros)
}

fn assert_conserved(plane: &Plane) {
    let totals = plane.switch().totals();
    assert!(totals.conserved(), "{totals:?}");
}

#[test]
fn a_frame_crosses_the_switch_in_one_breath() {
    let (mut plane, mut stations) = switch(&[settings("a"), settings("b")], 64, 64);
    stations[0].send(1, 2, 100);
    assert_eq!(plane.breathe(at(0)), 2, "one in, one out");
    assert_eq!((stations[0].receive(), stations[1].receive()), (0, 1));
    assert_eq!(plane.breathe(at(1)), 0);
    assert_eq!(plane.pool.in_use(), 0);
    assert_conserved(&plane);
}

#[test]
fn a_blocked_port_keeps_its_frames_and_is_asked_again_later() {
    let (mut plane, mut stations) = switch(&[settings("a"), settings("b")], 64, 2);
    for _ in 0..2 {
        stations[0].send(1, 2, 100);
    }
    plane.breathe(at(0));
    for _ in 0..2 {
        stations[0].send(1, 2, 100);
    }
    plane.breathe(at(1));
    assert_eq!(plane.pool.in_use(), 2);
    let due = plane.poll_timeout(at(1)).unwrap();
    assert_eq!(due, at(51));
    assert_eq!(stations[1].receive(), 2);
    plane.breathe(at(2));
    assert_eq!(stations[1].receive(), 0, "the kernel is not asked before its time");
    plane.breathe(due);
    assert_eq!((stations[1].receive(), plane.pool.in_use()), (2, 0));
    assert_conserved(&plane);
}

#[test]
fn a_breath_takes_at_most_a_batch_from_each_port_and_knows_that_more_waits() {
    let (mut plane, mut stations) = switch(&[settings("a"), settings("b"), settings("c")], 256, 128);
    // Make all of them known, so that nothing is flooded.
    for (station, address) in stations.iter_mut().zip(1..) {
        station.send(address, 9, 60);
    }
    plane.breathe(at(0));
    stations.iter_mut().for_each(|station| assert!(station.receive() > 0));
    for _ in 0..BATCH + 5 {
        stations[0].send(1, 3, 60);
    }
    stations[1].send(2, 3, 60);
    plane.breathe(at(1));
    let inputs: Vec<u64> = (0..2).map(|port| plane.switch().port_counters(weft_proto::PortId(port)).received.frames).collect();
    assert_eq!(inputs, [1 + BATCH as u64, 2], "the busy port does not starve the other");
    assert!(plane.poll_timeout(at(1)).is_some(), "five frames still wait in the port");
    plane.breathe(at(2));
    plane.breathe(at(3));
    assert_eq!(stations[2].receive(), BATCH + 6);
    assert_conserved(&plane);
}

#[test]
fn the_transport_takes_in_a_breath_what_all_ports_brought() {
    let cables: Vec<_> = (0..3).map(|_| Port::memory_pair(128)).collect();
    let (ends, far): (Vec<_>, Vec<_>) = cables.into_iter().map(|(near, far)| ((near, settings("a")), Station::new(far))).unzip();
    let mut plane = plane(ends, Some(local()), 1024);
    for mut station in far {
        (0..2 * BATCH).for_each(|_| station.send(1, 0, 60));
    }
    for round in 0..2 {
        plane.breathe(at(round));
        assert_eq!(plane.switch().queued(weft_proto::PortId(3)), 0);
    }
    assert_eq!(plane.endpoint().unwrap().frames().0, 6 * BATCH as u64);
}

#[test]
fn the_queue_of_the_transport_is_shown_as_it_is_now() {
    let (near, far) = Port::memory_pair(64);
    let mut plane = plane(vec![(near, settings("a"))], Some(local()), 64);
    Station::new(far).send(1, 0, 60);
    plane.receive(at(0));
    let board = Board::default();
    for time in 0..2 {
        assert!(plane.publish(at(time), &board));
        assert_eq!(board.read().ports[1].queued.frames, 1);
    }
}

/// So many frames of 976 bytes on their way to a port of this rate, after one breath.
fn behind_a_slow_port(bits_per_second: u64, frames: usize) -> (Plane, Vec<Station>) {
    let mut slow = settings("b");
    slow.rate = BitRate::new(bits_per_second);
    let (mut plane, mut stations) = switch(&[settings("a"), slow], 64, 64);
    for _ in 0..frames {
        stations[0].send(1, 2, 976);
    }
    plane.breathe(at(0));
    (plane, stations)
}

#[test]
fn a_rate_is_kept_and_its_next_departure_is_a_deadline() {
    let (mut plane, mut stations) = behind_a_slow_port(8_000_000, 3);
    assert_eq!(stations[1].receive(), 1);
    // 976 bytes and 24 around them at a byte per microsecond.
    assert_eq!(plane.poll_timeout(at(0)), Some(at(1000)));
    plane.breathe(at(999));
    assert_eq!(stations[1].receive(), 0);
    plane.breathe(at(1000));
    assert_eq!(stations[1].receive(), 1);
}

#[test]
fn a_changed_rate_applies_to_the_frames_that_wait() {
    let (mut plane, mut stations) = behind_a_slow_port(8_000, 3);
    assert_eq!(stations[1].receive(), 1);
    plane.reconfigure_port(at(1), 1, &settings("b"));
    plane.breathe(at(1));
    assert_eq!(stations[1].receive(), 2);
}

#[test]
fn stopping_waits_for_queues_until_its_deadline_and_counts_what_is_left() {
    let (mut plane, _stations) = behind_a_slow_port(8_000_000, 3);
    plane.stop(at(1500));
    assert!(!plane.is_stopped(at(1)));
    plane.breathe(at(1000));
    assert!(!plane.is_stopped(at(1000)));
    assert!(plane.is_stopped(at(1500)));
    plane.close();
    assert_eq!(plane.switch().port_counters(weft_proto::PortId(1)).sent_drops.of(DropReason::PortDown), 1);
    assert_eq!(plane.pool.in_use(), 0);
    assert_conserved(&plane);
}

#[test]
fn an_empty_pool_leaves_frames_in_the_port_and_loses_none() {
    let (mut plane, mut stations) = switch(&[settings("a"), settings("b")], 1, 64);
    for _ in 0..2 {
        stations[0].send(1, 2, 100);
    }
    plane.breathe(at(0));
    assert_eq!((stations[1].receive(), plane.counters.pool_exhausted), (1, 1));
    let due = plane.poll_timeout(at(0)).unwrap();
    plane.breathe(due);
    assert_eq!((stations[1].receive(), plane.switch().totals().dropped), (1, 0));
}

#[test]
fn the_board_shows_what_the_plane_counted() {
    let (mut plane, mut stations) = switch(&[settings("a"), settings("b")], 64, 64);
    stations[0].send(1, 2, 100);
    plane.breathe(at(0));
    plane.breathe(at(1));
    let board = Board::default();
    assert!(plane.publish(at(1), &board));
    let snapshot = board.read();
    let names: Vec<_> = snapshot.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(snapshot.ports[0].counters.received.bytes, 100);
    assert_eq!(snapshot.ports[1].counters.sent.frames, 1);
    assert_eq!((snapshot.worker.breaths, snapshot.worker.busy_breaths), (2, 1));
    assert_eq!((snapshot.worker.frames_in_use, snapshot.worker.frames_total), (0, 64));
}

#[test]
fn jobs_run_and_answer_while_the_worker_sleeps_and_it_ends_when_told() {
    let (plane, _stations) = switch(&[settings("a"), settings("b")], 64, 64);
    let board = Arc::new(Board::default());
    let (worker, handle) = Worker::new(plane, Pace { spin: Duration::ZERO, cpu: None }, board).unwrap();
    let (ended, end) = crossbeam::channel::bounded(1);
    let thread = WorkerThread::start(worker, move || assert!(ended.send(()).is_ok())).unwrap();
    assert_eq!(handle.ask(|_, plane| plane.switch().ports()), Ok(2));
    handle.send(|now, plane| plane.stop(now)).unwrap();
    end.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
    assert!(thread.join());
    assert_eq!(handle.ask(|_, _| ()), Err(WorkerSilent));
}

#[test]
fn a_worker_that_panics_is_reported() {
    let (plane, _stations) = switch(&[settings("a"), settings("b")], 64, 64);
    let (worker, handle) = Worker::new(plane, Pace { spin: Duration::ZERO, cpu: None }, Arc::default()).unwrap();
    let (ended, end) = crossbeam::channel::bounded(1);
    let thread = WorkerThread::start(worker, move || assert!(ended.send(()).is_ok())).unwrap();
    handle.send(|_, _| panic!("on purpose")).unwrap();
    end.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
    assert!(!thread.join());
}
