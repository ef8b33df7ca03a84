#![allow(clippy::cast_possible_truncation, clippy::cast_lossless)]
mod observe;
mod stops;

use super::*;
use crate::transport::*;
use crate::wire::EtherType;
use crate::wire::Tail;
use alloc::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

/// Application memory for tests: one growable block per number.
#[derive(Default)]
struct Blocks(Vec<Vec<u8>>);

impl Memory for Blocks {
    fn read(&self, mem: MemId, offset: u64, out: &mut [u8]) -> Result<(), MemoryGone> {
        let at = offset as usize;
        out.copy_from_slice(self.0.get(mem.0 as usize).and_then(|b| b.get(at..at + out.len())).ok_or(MemoryGone)?);
        Ok(())
    }

    fn write(&mut self, mem: MemId, offset: u64, data: &[u8]) -> Result<(), MemoryGone> {
        let at = offset as usize;
        self.0.get_mut(mem.0 as usize).and_then(|b| b.get_mut(at..at + data.len())).ok_or(MemoryGone)?.copy_from_slice(data);
        Ok(())
    }
}

const APP: AppId = AppId(1);
const CQ: CqId = CqId(0);
const SERVICE: u16 = 7;
const FULL: Access = Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };

fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host as u8 + 1])
}

fn config(host: usize, recovery: Recovery) -> EndpointConfig {
    EndpointConfig {
        recovery,
        bdp_cap: BdpCap::Packets(64),
        rto_low: Duration::from_micros(100),
        rto_high: Duration::from_micros(320),
        rnr_retry: 3,
        rnr_delay: Duration::from_micros(640),
        ack_delay: Duration::from_micros(20),
        ack_every: 8,
        keepalive: Duration::from_millis(100),
        connect_timeout: Duration::from_millis(1),
        connect_retries: 5,
        ..EndpointConfig::new(mac(host))
    }
}

/// Two hosts and a wire with 5 us each way. `filter` sees every frame and says whether it passes.
struct Pair {
    now: Instant,
    hosts: [Endpoint; 2],
    memory: [Blocks; 2],
    wire: Vec<(Instant, usize, Vec<u8>)>,
    completions: [Vec<Completion>; 2],
    events: [Vec<Event>; 2],
}

const DELAY: Duration = Duration::from_micros(5);

impl Pair {
    fn new(recovery: Recovery) -> Self {
        Self {
            now: Instant::from_nanos(1),
            hosts: [0, 1].map(|host| Endpoint::new(config(host, recovery), Rng::from_seed(host as u64 + 1))),
            memory: [Blocks::default(), Blocks::default()],
            wire: Vec::new(),
            completions: [Vec::new(), Vec::new()],
            events: [Vec::new(), Vec::new()],
        }
    }

    fn region(&mut self, host: usize, bytes: Vec<u8>) -> (MemId, Keys) {
        let mem = MemId(self.memory[host].0.len() as u32);
        let len = bytes.len() as u64;
        self.memory[host].0.push(bytes);
        (mem, self.hosts[host].register(APP, mem, 0, len, FULL).unwrap())
    }

    fn queue_pair(&mut self, host: usize) -> QpNum {
        self.hosts[host].create_qp(APP, QpInit::new(CQ, 64)).unwrap()
    }

    fn connected(recovery: Recovery) -> (Self, [QpNum; 2]) {
        let mut pair = Self::new(recovery);
        let qps = pair.connect();
        (pair, qps)
    }

    fn connect(&mut self) -> [QpNum; 2] {
        let qps = [self.queue_pair(0), self.queue_pair(1)];
        self.hosts[1].listen(APP, SERVICE).unwrap();
        self.hosts[0].connect(self.now, APP, qps[0], mac(1), SERVICE, b"hello").unwrap();
        self.run(Duration::from_micros(50), |_, _| true);
        let request = self.events[1].iter().find_map(|event| match event {
            Event::ConnectRequest { request, private, .. } if private == b"hello" => Some(*request),
            _ => None,
        });
        self.hosts[1].accept(self.now, APP, request.expect("a request"), qps[1], b"welcome").unwrap();
        self.run(Duration::from_micros(50), |_, _| true);
        assert!(self.events.iter().all(|events| events.iter().any(|e| matches!(e, Event::Established { .. }))), "{:?}", self.events);
        self.events = Default::default();
        qps
    }

    fn run(&mut self, span: Duration, mut filter: impl FnMut(usize, &[u8]) -> bool) {
        let end = self.now + span;
        let mut buffer = [0; 1518];
        for _ in 0..1_000_000 {
            for host in 0..2 {
                while let Some(sent) = self.hosts[host].poll_transmit(self.now, &mut buffer, &self.memory[host]) {
                    assert_eq!(sent.dst, mac(1 - host));
                    if filter(host, &buffer[..sent.len]) {
                        self.wire.push((self.now + DELAY, 1 - host, buffer[..sent.len].to_vec()));
                    }
                }
                while let Some((_, _, completion)) = self.hosts[host].poll_completion() {
                    self.completions[host].push(completion);
                }
                while let Some((_, event)) = self.hosts[host].poll_event() {
                    self.events[host].push(event);
                }
            }
            let arrival = self.wire.iter().map(|(at, ..)| *at).min();
            let next = [arrival, self.hosts[0].poll_timeout(), self.hosts[1].poll_timeout()].into_iter().flatten().min();
            match next {
                Some(at) if at <= end => self.now = at.max(self.now),
                _ => {
                    self.now = end;
                    return;
                }
            }
            let due: Vec<_> = self.wire.extract_if(.., |(at, ..)| *at <= self.now).collect();
            for (_, host, frame) in due {
                self.hosts[host].handle_frame(self.now, &frame, &mut self.memory[host]);
            }
            self.hosts.iter_mut().for_each(|host| host.handle_timeout(self.now));
        }
        panic!("the world does not come to rest");
    }

    fn settle(&mut self) {
        self.run(Duration::from_millis(50), |_, _| true);
    }

    fn counters(&self, host: usize) -> QpCounters {
        self.hosts[host].counters()
    }
}

fn sges(keys: Keys, addr: u64, len: u32) -> SgList {
    SgList::new(&[Sge { addr, len, lkey: keys.lkey }]).unwrap()
}

fn send(wr_id: u64, local: SgList) -> SendWork {
    SendWork::new(wr_id, SendOp::Send, Data::List(local))
}

fn write(wr_id: u64, local: SgList, remote_addr: u64, rkey: u32) -> SendWork {
    SendWork { op: SendOp::Write { remote_addr, rkey }, ..send(wr_id, local) }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn is_data(frame: &[u8]) -> bool {
    frame[26] < 0x0c
}

const MODES: [Recovery; 3] = [Recovery::Irn, Recovery::IrnStrict, Recovery::GoBackN];

#[test]
fn a_write_arrives_byte_for_byte_with_one_completion_in_every_mode() {
    for mode in MODES {
        let (mut pair, [a, _]) = Pair::connected(mode);
        let data = pattern(300_000);
        let (_, local) = pair.region(0, data.clone());
        let (target, remote) = pair.region(1, vec![0; data.len()]);
        pair.hosts[0].post_send(pair.now, APP, a, write(5, sges(local, 0, data.len() as u32), 0, remote.rkey)).unwrap();
        let mut frames = 0;
        pair.run(Duration::from_millis(100), |_, frame| {
            frames += u32::from(is_data(frame));
            frames % 37 != 0 || !is_data(frame)
        });
        assert_eq!(pair.memory[1].0[target.0 as usize], data, "{mode:?}");
        assert_eq!(pair.completions[0].len(), 1, "{mode:?}");
        assert_eq!((pair.completions[0][0].wr_id, pair.completions[0][0].status), (5, Status::Success));
        assert!(pair.counters(0).retransmitted_fast > 0, "{mode:?}");
    }
}

#[test]
fn sends_fill_posted_receives_in_order_with_immediate_and_length() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let data = pattern(4000);
    let (_, local) = pair.region(0, data.clone());
    let (buffer, recv) = pair.region(1, vec![0; 8000]);
    for i in 0..2 {
        pair.hosts[1].post_recv(APP, b, RecvWork { wr_id: 10 + i, local: sges(recv, i * 4000, 4000) }).unwrap();
    }
    pair.hosts[0].post_send(pair.now, APP, a, send(1, sges(local, 0, 4000))).unwrap();
    pair.hosts[0].post_send(pair.now, APP, a, SendWork { imm: Some(77), ..send(2, sges(local, 0, 0)) }).unwrap();
    // The first packet of the first message is lost: the second message is complete before the first, and told after it.
    let mut lost = false;
    pair.run(Duration::from_millis(50), |host, frame| host == 1 || !is_data(frame) || core::mem::replace(&mut lost, true));
    let told: Vec<_> = pair.completions[1].iter().map(|c| (c.wr_id, c.byte_len, c.imm, c.op)).collect();
    assert_eq!(told, [(10, 4000, None, CompletionOp::Recv), (11, 0, Some(77), CompletionOp::Recv)]);
    assert_eq!(&pair.memory[1].0[buffer.0 as usize][..4000], &data[..]);
    assert_eq!(pair.completions[0].iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_write_with_immediate_whose_last_packet_comes_first_is_told_once_all_is_there() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let data = pattern(3 * 1400);
    let (_, local) = pair.region(0, data.clone());
    let (target, remote) = pair.region(1, vec![0; data.len()]);
    pair.hosts[1].post_recv(APP, b, RecvWork { wr_id: 9, local: SgList::default() }).unwrap();
    let work = SendWork { imm: Some(0xdead), ..write(1, sges(local, 0, data.len() as u32), 0, remote.rkey) };
    pair.hosts[0].post_send(pair.now, APP, a, work).unwrap();
    let mut seen = 0;
    pair.run(Duration::from_millis(50), |host, frame| {
        seen += u32::from(host == 0 && is_data(frame));
        host == 1 || !is_data(frame) || seen >= 3
    });
    let [told] = pair.completions[1][..] else { panic!("{:?}", pair.completions) };
    assert_eq!((told.wr_id, told.byte_len, told.imm, told.op), (9, data.len() as u32, Some(0xdead), CompletionOp::RecvWriteImm));
    assert_eq!(pair.memory[1].0[target.0 as usize], data);
}

#[test]
fn the_lost_last_acknowledgement_is_given_again_and_nothing_is_delivered_twice() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, pattern(10));
    let (_, recv) = pair.region(1, vec![0; 20]);
    for i in 0..2 {
        pair.hosts[1].post_recv(APP, b, RecvWork { wr_id: i, local: sges(recv, i * 10, 10) }).unwrap();
    }
    pair.hosts[0].post_send(pair.now, APP, a, send(1, sges(local, 0, 10))).unwrap();
    let mut lost = false;
    pair.run(Duration::from_millis(50), |host, _| host == 0 || core::mem::replace(&mut lost, true));
    assert_eq!(pair.completions[1].len(), 1);
    assert_eq!(pair.completions[0].len(), 1);
    assert_eq!(pair.counters(1).duplicates_received, 1);
    assert_eq!(pair.hosts[1].drops().of(crate::DropReason::Duplicate), 1);
}

#[test]
fn a_receiver_that_is_not_ready_delays_the_sender_and_costs_no_retry() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, pattern(10));
    let (_, recv) = pair.region(1, vec![0; 10]);
    pair.hosts[0].post_send(pair.now, APP, a, send(1, sges(local, 0, 10))).unwrap();
    let mut sent = Vec::new();
    let start = pair.now;
    pair.run(Duration::from_micros(500), |host, frame| {
        sent.push((host, is_data(frame)));
        true
    });
    assert_eq!(sent, [(0, true), (1, false)], "one packet, one answer, then quiet for the delay of 640 us");
    pair.hosts[1].post_recv(APP, b, RecvWork { wr_id: 3, local: sges(recv, 0, 10) }).unwrap();
    pair.settle();
    assert!(pair.now.since(start) > Duration::from_micros(640));
    assert_eq!(pair.completions[1].len(), 1);
    assert_eq!((pair.counters(1).rnr_sent, pair.counters(0).rnr_received, pair.counters(0).timeouts), (1, 1, 0));
}

#[test]
fn a_silent_peer_costs_an_error_and_flushes_everything_in_bounded_time() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, pattern(100));
    for i in 0..5 {
        pair.hosts[0].post_send(pair.now, APP, a, SendWork { signaled: i == 4, ..send(i, sges(local, 0, 10)) }).unwrap();
    }
    pair.run(Duration::from_millis(200), |host, _| host == 1);
    let ends: Vec<_> = pair.completions[0].iter().map(|c| (c.wr_id, c.status)).collect();
    let flushed = (1..5).map(|i| (i, Status::Flushed));
    assert_eq!(ends, [(0, Status::RetryExceeded)].into_iter().chain(flushed).collect::<Vec<_>>());
    assert_eq!(pair.events[0], [Event::QpFailed { qp: a, status: Status::RetryExceeded }]);
}

#[test]
fn a_refused_key_fails_the_request_at_both_ends_and_touches_nothing() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, pattern(100));
    let (target, remote) = pair.region(1, vec![0; 100]);
    pair.hosts[0].post_send(pair.now, APP, a, write(1, sges(local, 0, 100), 0, remote.rkey ^ 1)).unwrap();
    pair.settle();
    assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [Status::RemoteAccess]);
    assert!(pair.events[1].contains(&Event::QpFailed { qp: b, status: Status::PeerAccess }));
    assert_eq!(pair.memory[1].0[target.0 as usize], [0; 100]);
}

#[test]
fn a_write_of_nothing_needs_no_key() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    pair.hosts[0].post_send(pair.now, APP, a, write(1, SgList::default(), 0, 0xffff_ffff)).unwrap();
    pair.settle();
    assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Success]);
}

#[test]
fn frames_of_an_earlier_connection_reach_no_new_queue_pair() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, pattern(1000));
    let (target, remote) = pair.region(1, vec![0; 1000]);
    let mut old = Vec::new();
    pair.hosts[0].post_send(pair.now, APP, a, write(1, sges(local, 0, 1000), 0, remote.rkey)).unwrap();
    pair.run(Duration::from_millis(1), |host, frame| {
        if host == 0 {
            old.push(frame.to_vec());
        }
        true
    });
    pair.hosts[0].destroy_qp(pair.now, APP, a).unwrap();
    pair.settle();
    pair.hosts[1].destroy_qp(pair.now, APP, b).unwrap();
    pair.settle();
    pair.connect();
    pair.memory[1].0[target.0 as usize].fill(0);
    for frame in old {
        pair.hosts[1].handle_frame(pair.now, &frame, &mut pair.memory[1]);
    }
    assert_eq!(pair.memory[1].0[target.0 as usize], [0; 1000]);
    assert!(pair.hosts[1].drops().of(crate::DropReason::UnknownQueuePair) > 0);
}

#[test]
fn every_queue_pair_destroyed_at_any_moment_leaves_one_completion_per_request() {
    for cut in 0..40 {
        let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
        let (_, local) = pair.region(0, pattern(5000));
        let (_, recv) = pair.region(1, vec![0; 5000]);
        for i in 0..10 {
            pair.hosts[1].post_recv(APP, b, RecvWork { wr_id: i, local: sges(recv, 0, 5000) }).unwrap();
            pair.hosts[0].post_send(pair.now, APP, a, send(i, sges(local, 0, 5000))).unwrap();
        }
        pair.run(Duration::from_micros(cut), |_, _| true);
        pair.hosts[(cut % 2) as usize].destroy_qp(pair.now, APP, [a, b][(cut % 2) as usize]).unwrap();
        pair.settle();
        for host in 0..2 {
            let told: BTreeSet<_> = pair.completions[host].iter().map(|c| c.wr_id).collect();
            assert_eq!((told.len(), pair.completions[host].len()), (10, 10), "cut at {cut} us, host {host}");
        }
    }
}

#[test]
fn an_idle_connection_notices_a_dead_peer() {
    let (mut pair, [_, b]) = Pair::connected(Recovery::Irn);
    pair.run(Duration::from_millis(350), |_, _| true);
    assert!(pair.events[1].is_empty(), "signs of life keep an idle connection up");
    pair.run(Duration::from_millis(350), |host, _| host == 1);
    assert_eq!(pair.events[1], [Event::QpFailed { qp: b, status: Status::RetryExceeded }]);
}

#[test]
fn a_restarted_peer_is_recognised_and_its_old_connections_fail() {
    let (mut pair, [_, b]) = Pair::connected(Recovery::Irn);
    pair.hosts[0] = Endpoint::new(config(0, Recovery::Irn), Rng::from_seed(99));
    let again = pair.queue_pair(0);
    pair.hosts[0].connect(pair.now, APP, again, mac(1), SERVICE, b"hello").unwrap();
    pair.run(Duration::from_micros(50), |_, _| true);
    assert!(pair.events[1].contains(&Event::QpFailed { qp: b, status: Status::PeerRestarted }));
}

#[test]
fn connection_refusals_say_why() {
    let mut pair = Pair::new(Recovery::Irn);
    let qp = pair.queue_pair(0);
    pair.hosts[0].connect(pair.now, APP, qp, mac(1), SERVICE, b"").unwrap();
    pair.settle();
    assert!(matches!(pair.events[0][..], [Event::ConnectFailed { reason: ConnectFailure::NoListener, .. }]), "{:?}", pair.events);
    let qp = pair.queue_pair(0);
    pair.hosts[0].connect(pair.now, APP, qp, mac(1), SERVICE, b"").unwrap();
    pair.run(Duration::from_millis(50), |_, _| false);
    assert!(matches!(pair.events[0][1..], [Event::ConnectFailed { reason: ConnectFailure::Unreachable, .. }]), "{:?}", pair.events);
}

#[test]
fn connecting_survives_the_loss_of_any_one_message() {
    for lost in 0..4 {
        let mut pair = Pair::new(Recovery::Irn);
        let qps = [pair.queue_pair(0), pair.queue_pair(1)];
        pair.hosts[1].listen(APP, SERVICE).unwrap();
        pair.hosts[0].connect(pair.now, APP, qps[0], mac(1), SERVICE, b"").unwrap();
        let mut count = 0;
        let mut filter = |_: usize, _: &[u8]| {
            count += 1;
            count - 1 != lost
        };
        pair.run(Duration::from_millis(2), &mut filter);
        let Some(Event::ConnectRequest { request, .. }) = pair.events[1].first() else { panic!("no request") };
        pair.hosts[1].accept(pair.now, APP, *request, qps[1], b"").unwrap();
        pair.run(Duration::from_millis(5), &mut filter);
        for host in 0..2 {
            assert!(pair.events[host].iter().any(|e| matches!(e, Event::Established { .. })), "message {lost} lost, host {host}");
        }
    }
}

#[test]
fn the_recovery_mode_is_the_one_that_both_sides_speak() {
    for (active, passive, agreed) in [
        (Recovery::Irn, Recovery::Irn, Recovery::Irn),
        (Recovery::GoBackN, Recovery::Irn, Recovery::GoBackN),
        (Recovery::Irn, Recovery::GoBackN, Recovery::GoBackN),
        (Recovery::IrnStrict, Recovery::Irn, Recovery::IrnStrict),
    ] {
        let mut pair = Pair::new(active);
        pair.hosts[1] = Endpoint::new(config(1, passive), Rng::from_seed(5));
        let [a, b] = pair.connect();
        assert_eq!(pair.hosts[0].view_of(a).unwrap().recovery, Some(agreed));
        assert_eq!(pair.hosts[1].view_of(b).unwrap().recovery, Some(agreed));
    }
}

#[test]
fn released_applications_leave_nothing_behind() {
    let (mut pair, _) = Pair::connected(Recovery::Irn);
    pair.region(0, vec![0; 10]);
    assert_eq!(pair.hosts[0].release(pair.now, APP).len(), 1);
    pair.settle();
    assert!(pair.hosts[0].is_quiet());
    assert_eq!((pair.hosts[0].qp_count(), pair.hosts[0].region_count()), (0, 0));
    assert!(matches!(pair.events[1][..], [Event::Disconnected { .. }]));
}

#[test]
fn an_operator_sees_both_ends_of_a_connection() {
    let (pair, [a, b]) = Pair::connected(Recovery::Irn);
    let view = pair.hosts[0].view_of(a).unwrap();
    assert_eq!((view.peer, view.peer_qp, view.depth), (Some(mac(1)), Some(b), (64, 64)));
    assert_eq!(view.peer_incarnation, Some(pair.hosts[1].incarnation()));
}

#[test]
fn a_sign_of_life_takes_nothing_from_the_depth_of_the_send_queue() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    pair.run(Duration::from_millis(101), |_, _| false);
    assert_eq!(pair.counters(0).keepalives_sent, 1);
    for i in 0..64 {
        pair.hosts[0].post_send(pair.now, APP, a, send(i, SgList::default())).expect("as many as agreed");
    }
    assert_eq!(pair.hosts[0].post_send(pair.now, APP, a, send(64, SgList::default())), Err(PostError::QueueFull));
}

#[test]
fn the_request_with_the_bad_key_is_the_one_that_is_blamed() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, recv) = pair.region(1, vec![0; 10]);
    pair.hosts[1].post_recv(APP, b, RecvWork { wr_id: 1, local: sges(recv, 0, 10) }).unwrap();
    let ((_, keys), (_, gone)) = (pair.region(0, pattern(100)), pair.region(0, pattern(10)));
    let bad = Keys { lkey: keys.lkey ^ 1, ..keys };
    // One key is bad when the request is posted, one when its turn comes.
    for (wr_id, keys) in [(1, keys), (2, gone), (3, bad), (4, keys)] {
        pair.hosts[0].post_send(pair.now, APP, a, send(wr_id, sges(keys, 0, 10))).unwrap();
    }
    pair.hosts[0].deregister(APP, gone.lkey).unwrap();
    pair.settle();
    let ends: Vec<_> = pair.completions[0].iter().map(|c| (c.wr_id, c.status)).collect();
    let [good, blamed, flushed] = [Status::Success, Status::LocalProtection, Status::Flushed];
    assert_eq!(ends, [(1, good), (2, blamed), (3, flushed), (4, flushed)]);
    assert_eq!(pair.events[0], [Event::SendQueueFailed { qp: a, status: Status::LocalProtection }]);
}

/// A request to connect from host 0, from the life of it that began at millisecond `started`.
fn request(ethertype: EtherType, started: u64, local_id: u32) -> Vec<u8> {
    use crate::wire::packet::{Base, Body, CONNECTION_QP, Packet};
    use crate::wire::{ConnectionKind, ConnectionMessage, Ethernet, RecoveryOffer, Refusal};
    let message = ConnectionMessage {
        kind: ConnectionKind::Request,
        refusal: Refusal::None,
        recovery: RecoveryOffer(3),
        local_id,
        remote_id: 0,
        incarnation: started << 22,
        service: SERVICE,
        tag: 0,
        qp: QpNum(5),
        psn: Psn::new(0),
        payload_max: 1000,
        window: 64,
        initiator_depth: 0,
        responder_resources: 0,
        private: &[],
    };
    let base = Base::new(0, CONNECTION_QP, Psn::new(0));
    let eth = Ethernet { dst: mac(1), src: mac(0), vlan: None, ethertype };
    let mut out = [0; 300];
    let len = Packet { eth, base, body: Body::Connection(message) }.emit(&mut out).unwrap();
    out[..len].to_vec()
}

#[test]
fn only_a_valid_request_of_a_later_life_ends_the_connections_of_an_earlier_one() {
    let (mut pair, [_, b]) = Pair::connected(Recovery::Irn);
    let mut hear = |frame: &[u8]| {
        let Pair { hosts, memory, now, .. } = &mut pair;
        hosts[1].handle_frame(*now, frame, &mut memory[1]);
        hosts[1].view_of(b).unwrap().state
    };
    assert_eq!(hear(&request(EtherType(0x0800), 2, 1)), QpState::ReadyToSend, "not our EtherType");
    assert_eq!(hear(&request(EtherType::TRANSPORT, 2, 0)), QpState::ReadyToSend, "not valid");
    assert_eq!(hear(&request(EtherType::TRANSPORT, 0, 1)), QpState::ReadyToSend, "held up since an earlier life");
    assert_eq!(hear(&request(EtherType::TRANSPORT, 2, 1)), QpState::Error);
    let drops = pair.hosts[1].drops();
    use crate::DropReason::{BadField, ForeignEtherType, StaleConnection};
    assert_eq!([ForeignEtherType, BadField, StaleConnection].map(|reason| drops.of(reason)), [1, 1, 1]);
}

#[test]
fn requests_that_nobody_answers_do_not_take_all_the_room() {
    let (mut pair, _) = Pair::connected(Recovery::Irn);
    for id in 1..1000 {
        let frame = request(EtherType::TRANSPORT, 1, id);
        let Pair { hosts, memory, now, .. } = &mut pair;
        hosts[1].handle_frame(*now, &frame, &mut memory[1]);
    }
    let asked = core::iter::from_fn(|| pair.hosts[1].poll_event()).count();
    assert!(asked <= 64, "{asked} requests wait");
    let qp = pair.queue_pair(1);
    pair.hosts[1].connect(pair.now, APP, qp, mac(0), SERVICE, b"").expect("room for our own connections");
}

#[test]
fn a_message_for_another_than_the_next_receive_is_refused() {
    use crate::wire::packet::{Base, Body, Packet};
    use crate::wire::{Ethernet, Position};
    let (mut pair, [_, b]) = Pair::connected(Recovery::Irn);
    let (_, recv) = pair.region(1, vec![0; 20]);
    for wr_id in 0..2 {
        pair.hosts[1].post_recv(APP, b, RecvWork { wr_id, local: sges(recv, wr_id * 10, 10) }).unwrap();
    }
    let link = pair.hosts[1].slots[slot_of(b)].qp.as_ref().unwrap().link().unwrap().agreement;
    let base = Base { ack_request: true, ..Base::new(link.tag, b, link.peer_psn) };
    let eth = Ethernet { dst: mac(1), src: mac(0), vlan: None, ethertype: EtherType::TRANSPORT };
    let body = Body::Send { position: Position::Only, recv_sn: 1, offset: 0, tail: Tail::None, payload: b"x" };
    let mut frame = [0; 100];
    let len = Packet { eth, base, body }.emit(&mut frame).unwrap();
    pair.hosts[1].handle_frame(pair.now, &frame[..len], &mut pair.memory[1]);
    let ends: Vec<_> = core::iter::from_fn(|| pair.hosts[1].poll_completion()).map(|(_, _, c)| (c.wr_id, c.status)).collect();
    assert_eq!(ends, [(0, Status::Flushed), (1, Status::Flushed)]);
}
