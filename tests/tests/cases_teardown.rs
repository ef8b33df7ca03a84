//! Class of fault: closing, dying, restarting and giving memory back while frames are under way.

use weft_proto::transport::{CommandError, ConnectFailure, CqId, Endpoint, EndpointConfig, Event, QpInit, Recovery, Status};
use weft_proto::wire::{Body, ConnectionKind, ConnectionMessage, Packet};
use weft_proto::{DropReason, Duration, Rng};
use weft_tests::pair::{APP, FULL, Fate, Pair, SERVICE, config, mac, pattern, send, sges, write};

const PASS: fn(&weft_tests::pair::Seen<'_>) -> Fate = |_| Fate::Pass;

#[test]
fn a_queue_pair_destroyed_at_any_moment_flushes_each_request_once_and_later_frames_are_strangers() {
    let mut strangers = 0;
    for moment in 0..10_000 {
        let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
        let (_, local) = pair.region(0, &pattern(5000));
        let (_, recv) = pair.region(1, &[0; 5000]);
        for i in 0..64 {
            pair.receive(1, b, i, sges(recv, 0, 5000));
            pair.post(0, a, send(i, sges(local, 0, 5000)));
        }
        pair.run(Duration::from_nanos(moment * 6), PASS);
        let victim = usize::try_from(moment % 2).unwrap();
        pair.hosts[victim].destroy_qp(pair.now, APP, [a, b][victim]).unwrap();
        pair.settle();
        for host in 0..2 {
            let told: Vec<_> = pair.completions[host].iter().map(|c| c.wr_id).collect();
            assert_eq!(told, (0..64).collect::<Vec<_>>(), "moment {moment}, host {host}");
        }
        strangers += pair.hosts[victim].drops().of(DropReason::UnknownQueuePair);
        assert_eq!(pair.hosts[victim].qp_count(), 0);
    }
    assert!(strangers > 0);
}

#[test]
fn closing_towards_a_dead_peer_is_bounded() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, &pattern(10));
    pair.post(0, a, send(1, sges(local, 0, 10)));
    pair.hosts[0].destroy_qp(pair.now, APP, a).unwrap();
    // Five messages, one millisecond apart.
    pair.run(Duration::from_millis(6), |_| Fate::Drop);
    assert!(pair.hosts[0].is_quiet());
    assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Flushed]);
}

#[test]
fn a_write_that_was_under_way_when_its_target_closed_does_not_land() {
    for (recovery, destroy) in [(Recovery::Irn, false), (Recovery::GoBackN, false), (Recovery::IrnStrict, true)] {
        let (mut pair, [a, b]) = Pair::connected(recovery);
        let (_, local) = pair.region(0, &pattern(1000));
        let (inbox, remote) = pair.region(1, &[0; 1000]);
        pair.post(0, a, write(1, sges(local, 0, 1000), 0, remote.rkey));
        // The packets leave, and their target closes before they arrive.
        pair.run(Duration::from_micros(1), PASS);
        if destroy {
            pair.hosts[1].destroy_qp(pair.now, APP, b).unwrap();
        } else {
            pair.hosts[1].disconnect(pair.now, APP, b).unwrap();
        }
        pair.settle();
        assert_eq!(pair.bytes(1, inbox), [0; 1000], "{recovery:?}: the application may have reused its memory");
        assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Flushed]);
    }
}

#[test]
fn an_idle_peer_notices_that_the_other_end_closed_though_no_goodbye_arrived() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    pair.hosts[1].disconnect(pair.now, APP, b).unwrap();
    // The goodbyes are lost; the queue pair still exists there, and must not answer signs of life.
    pair.run(Duration::from_millis(10), |_| Fate::Drop);
    pair.run(Duration::from_millis(300), PASS);
    assert_eq!(pair.events[0], [Event::QpFailed { qp: a, status: Status::RetryExceeded }]);
}

#[test]
fn memory_given_back_is_out_of_reach_at_once_and_its_key_does_not_open_its_successor() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let data = pattern(1 << 20);
    let (_, local) = pair.region(0, &data);
    let (first, old) = pair.region(1, &vec![0; data.len()]);
    pair.post(0, a, write(1, sges(local, 0, 1 << 20), 0, old.rkey));
    pair.run(Duration::from_micros(26), PASS);
    let placed = pair.bytes(1, first).iter().filter(|&&byte| byte != 0).count();
    assert!(placed > 0 && placed < data.len() / 2, "somewhere on the way");
    pair.hosts[1].deregister(APP, old.lkey).unwrap();
    pair.memory[1].give_back(first);
    let (second, new) = pair.region(1, &vec![0; data.len()]);
    assert_eq!(old.rkey >> 16, new.rkey >> 16, "the same slot");
    pair.settle();
    assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [Status::RemoteAccess]);
    assert!(pair.bytes(1, second).iter().all(|&byte| byte == 0));
    assert_eq!(pair.memory[1].take_violation(), None);
}

#[test]
fn a_late_write_reaches_neither_memory_nor_queue_pair_of_a_retried_request() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, &pattern(1000));
    let (old, remote) = pair.region(1, &[0; 1000]);
    let mut late = Vec::new();
    pair.post(0, a, write(1, sges(local, 0, 1000), 0, remote.rkey));
    pair.run(Duration::from_micros(1), |seen| {
        if seen.request().is_some() {
            late.push(seen.bytes.to_vec());
        }
        Fate::Drop
    });
    // The client gives up, takes everything down and starts again in the same memory and slot.
    pair.hosts[1].destroy_qp(pair.now, APP, b).unwrap();
    pair.hosts[1].deregister(APP, remote.lkey).unwrap();
    pair.settle();
    pair.events.iter_mut().for_each(Vec::clear);
    pair.connect();
    pair.hosts[1].register(APP, old, 0, 1000, FULL).unwrap();
    late.iter().for_each(|frame| pair.deliver(1, frame));
    assert_eq!(pair.bytes(1, old), [0; 1000]);
    assert_eq!(pair.hosts[1].drops().of(DropReason::UnknownQueuePair), late.len() as u64);
}

#[test]
fn a_peer_of_another_version_is_refused_with_the_reason() {
    let mut pair = Pair::new(Recovery::Irn);
    let qp = pair.queue_pair(0);
    pair.hosts[0].connect(pair.now, APP, qp, mac(1), SERVICE, b"").unwrap();
    let mut asked = Vec::new();
    pair.run(Duration::from_micros(1), |seen| {
        asked = seen.bytes.to_vec();
        Fate::Drop
    });
    // The version is the second byte of the message, behind Ethernet 14, Weft 12, BTH 12 and DETH 8.
    let changed = weft_tests::fuzz::repair_checksum(&{
        asked[47] = 9;
        asked
    });
    pair.deliver(1, &changed);
    pair.run(Duration::from_micros(20), PASS);
    assert!(matches!(pair.events[0][..], [Event::ConnectFailed { reason: ConnectFailure::VersionMismatch, .. }]), "{:?}", pair.events);
    assert_eq!(pair.hosts[1].drops().of(DropReason::UnsupportedVersion), 1);
    // A frame format of another version is dropped and counted, nothing else.
    let mut foreign = changed;
    foreign[16] = 9;
    pair.deliver(1, &foreign);
    assert_eq!(pair.hosts[1].drops().of(DropReason::UnsupportedVersion), 2);
}

#[test]
fn more_queue_pairs_than_allowed_are_refused_by_name_and_those_that_exist_work() {
    let many = |host| EndpointConfig { max_qps: 1100, keepalive: Duration::from_secs(10), ..config(host, Recovery::Irn) };
    let mut pair = Pair::with(vec![many(0), many(1)], |host| Rng::from_seed(host + 1));
    let qps: Vec<_> = (0..1100).map(|_| pair.connect()).collect();
    let init = QpInit::new(CqId(0), 1);
    assert_eq!(pair.hosts[0].create_qp(APP, init), Err(CommandError::LimitReached));
    let (_, local) = pair.region(0, &pattern(8));
    let (inbox, remote) = pair.region(1, &[0; 8 * 1100]);
    for (i, [a, _]) in (0..).zip(&qps) {
        pair.post(0, *a, write(i, sges(local, 0, 8), i * 8, remote.rkey));
    }
    pair.settle();
    assert_eq!(pair.completions[0].len(), 1100);
    assert!(pair.bytes(1, inbox).chunks(8).all(|chunk| chunk == pattern(8)));
    // One that is destroyed makes room for one.
    pair.hosts[0].destroy_qp(pair.now, APP, qps[0][0]).unwrap();
    assert!(pair.hosts[0].create_qp(APP, init).is_ok());
}

#[test]
fn a_connection_refused_for_want_of_room_leaves_the_queue_pair_as_it_was() {
    let few = |host| EndpointConfig { max_qps: 2, ..config(host, Recovery::Irn) };
    let mut pair: Pair = Pair::with(vec![few(0), few(1)], |host| Rng::from_seed(host + 1));
    // Goodbyes that nobody answers linger until they are given up.
    for _ in 0..130 {
        let qp = pair.queue_pair(0);
        pair.hosts[0].connect(pair.now, APP, qp, mac(1), SERVICE, b"").unwrap();
        pair.hosts[0].destroy_qp(pair.now, APP, qp).unwrap();
    }
    let qp = pair.queue_pair(0);
    assert_eq!(pair.hosts[0].connect(pair.now, APP, qp, mac(1), SERVICE, b""), Err(CommandError::LimitReached));
    pair.run(Duration::from_millis(50), |_| Fate::Drop);
    assert_eq!(pair.hosts[0].connect(pair.now, APP, qp, mac(1), SERVICE, b""), Ok(()), "with room it works");
}

#[test]
fn a_restarted_peer_says_that_it_does_not_know_the_connection_and_all_of_them_end_at_once() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let idle: Vec<_> = (0..20).map(|_| pair.connect()[0]).collect();
    let (old, new) = (pair.hosts[1].incarnation(), Endpoint::new(config(1, Recovery::Irn), Rng::from_seed(77)));
    assert_ne!(old, new.incarnation());
    pair.hosts[1] = new;
    let (_, local) = pair.region(0, &pattern(10));
    pair.post(0, a, send(1, sges(local, 0, 10)));
    // One round trip.
    pair.run(Duration::from_micros(11), PASS);
    assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [Status::PeerRestarted]);
    let failed = |qp| pair.events[0].contains(&Event::QpFailed { qp, status: Status::PeerRestarted });
    assert!(failed(a) && idle.into_iter().all(failed), "{:?}", pair.events);
    assert!(pair.hosts[0].is_quiet(), "there is nobody to say goodbye to");
    // And a new connection stands at once.
    pair.events[0].clear();
    pair.hosts[1].listen(APP, SERVICE).unwrap();
    pair.connect();
}

#[test]
fn a_host_that_connects_to_a_restarted_peer_ends_what_it_had_with_the_old_one() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    pair.hosts[1] = Endpoint::new(config(1, Recovery::Irn), Rng::from_seed(77));
    pair.hosts[1].listen(APP, SERVICE).unwrap();
    let b = pair.queue_pair(0);
    pair.hosts[0].connect(pair.now, APP, b, mac(1), SERVICE, b"").unwrap();
    pair.run(Duration::from_micros(20), PASS);
    let (request, c) = (pair.requests[1].pop().unwrap(), pair.queue_pair(1));
    pair.hosts[1].accept(pair.now, APP, request, c, b"").unwrap();
    pair.run(Duration::from_micros(20), PASS);
    assert_eq!(pair.events[0][0], Event::QpFailed { qp: a, status: Status::PeerRestarted });
    assert!(matches!(pair.events[0][1..], [Event::Established { qp, .. }] if qp == b));
}

#[test]
fn seven_clients_go_on_while_the_eighth_dies_again_and_again() {
    let mut pair = Pair::with((0..9).map(|host| config(host, Recovery::Irn)).collect(), |host| Rng::from_seed(host + 1));
    let (inbox, remote) = pair.region(0, &[0; 8 * 20_000]);
    let good: Vec<_> = (1..8).map(|host| (host, pair.connect_hosts([host, 0])[0], pair.region(host, &pattern(20_000)).1)).collect();
    for round in 0..10 {
        pair.events.iter_mut().for_each(Vec::clear);
        let victim = pair.connect_hosts([8, 0])[0];
        let local = pair.region(8, &pattern(20_000)).1;
        pair.post(8, victim, write(1, sges(local, 0, 20_000), 7 * 20_000, remote.rkey));
        for (host, qp, local) in &good {
            pair.post(*host, *qp, write(round, sges(*local, 0, 20_000), (*host as u64 - 1) * 20_000, remote.rkey));
        }
        pair.run(Duration::from_micros(3 + round), PASS);
        pair.hosts[8] = Endpoint::new(config(8, Recovery::Irn), Rng::from_seed(1000 + round));
        pair.hosts[8].listen(APP, SERVICE).unwrap();
        pair.run(Duration::from_millis(5), PASS);
    }
    for (host, ..) in good {
        let told: Vec<_> = pair.completions[host].iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(told, (0..10).map(|round| (round, Status::Success)).collect::<Vec<_>>());
        assert_eq!(&pair.bytes(0, inbox)[(host - 1) * 20_000..host * 20_000], pattern(20_000));
    }
}

#[test]
fn a_sign_of_life_takes_no_place_in_the_queue_of_the_application() {
    // The other side would ask only after the test.
    let patient = EndpointConfig { keepalive: Duration::from_secs(60), peer_timeout: Duration::from_secs(300), ..config(1, Recovery::Irn) };
    let mut pair: Pair = Pair::with(vec![config(0, Recovery::Irn), patient], |host| Rng::from_seed(host + 1));
    let init = QpInit::new(CqId(0), 1);
    let a = pair.hosts[0].create_qp(APP, init).unwrap();
    pair.hosts[0].connect(pair.now, APP, a, mac(1), SERVICE, b"").unwrap();
    pair.run(Duration::from_micros(20), PASS);
    let (request, b) = (pair.requests[1].pop().unwrap(), pair.queue_pair(1));
    pair.hosts[1].accept(pair.now, APP, request, b, b"").unwrap();
    pair.run(Duration::from_micros(20), PASS);
    let (_, local) = pair.region(0, &pattern(10));
    let (inbox, remote) = pair.region(1, &[0; 10]);
    let mut asked = false;
    while !asked {
        pair.run(Duration::from_millis(1), |seen| {
            asked |= seen.from == 0 && seen.request().is_some();
            if asked { Fate::Drop } else { Fate::Pass }
        });
    }
    pair.post(0, a, write(1, sges(local, 0, 10), 0, remote.rkey));
    pair.settle();
    assert_eq!(pair.bytes(1, inbox), pattern(10));
    assert_eq!(pair.completions[0].len(), 1);
}

#[test]
fn a_storm_of_repeated_requests_is_not_stored() {
    let (mut pair, [..]) = Pair::connected(Recovery::Irn);
    let mut request = Vec::new();
    let qp = pair.queue_pair(0);
    pair.hosts[0].connect(pair.now, APP, qp, mac(1), SERVICE, b"").unwrap();
    pair.run(Duration::from_micros(20), |seen| {
        if seen.from == 0 {
            request = seen.bytes.to_vec();
        }
        Fate::Pass
    });
    let (open, b) = (pair.requests[1].pop().unwrap(), pair.queue_pair(1));
    pair.hosts[1].accept(pair.now, APP, open, b, b"").unwrap();
    // All in one batch, before the host can send.
    (0..1000).for_each(|_| pair.deliver(1, &request));
    let mut answers = 0;
    pair.run(Duration::from_micros(1), |seen| {
        answers += u32::from(seen.from == 1);
        Fate::Pass
    });
    assert_eq!(answers, 1);
}

#[test]
fn a_goodbye_of_an_earlier_connection_whose_number_is_used_again_closes_nothing() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    pair.hosts[1].disconnect(pair.now, APP, b).unwrap();
    let mut frames = Vec::new();
    pair.run(Duration::from_nanos(1), |seen| {
        let Body::Connection(message) = seen.packet.body else { return Fate::Pass };
        assert_eq!(message.kind, ConnectionKind::DisconnectRequest);
        // Our number of the connection is right, the peer's is of another one; then the true message.
        for local_id in [message.local_id ^ 1 << 31, message.local_id] {
            let mut frame = vec![0; 2048];
            let len = Packet { body: Body::Connection(ConnectionMessage { local_id, ..message }), ..seen.packet }.emit(&mut frame).unwrap();
            frame.truncate(len);
            frames.push(frame);
        }
        Fate::Drop
    });
    let ends = [0, 1].map(|n: usize| {
        pair.deliver(0, &frames[n]);
        pair.run(Duration::from_nanos(1), PASS);
        pair.events[0].clone()
    });
    assert_eq!(ends, [vec![], vec![Event::Disconnected { qp: a }]]);
}
