//! Class of fault: peers that fall silent, forget, or say goodbye without being heard.

use weft_proto::transport::{Endpoint, EndpointConfig, Event, Recovery, SgList, Status};
use weft_proto::wire::Body;
use weft_proto::wire::connection::{ConnectionKind, Refusal};
use weft_proto::{DropReason, Duration, Rng};
use weft_tests::pair::{APP, Fate, Pair, SERVICE, Seen, config, pattern, send, sges, write};

const PASS: fn(&Seen<'_>) -> Fate = |_| Fate::Pass;

/// The kind of a connection message.
fn kind(seen: &Seen<'_>) -> Option<ConnectionKind> {
    match seen.packet.body {
        Body::Connection(message) => Some(message.kind),
        _ => None,
    }
}

/// True if it says that a connection is not known.
fn is_unknown(seen: &Seen<'_>) -> bool {
    matches!(seen.packet.body, Body::Connection(message) if message.kind == ConnectionKind::Reject && message.refusal == Refusal::UnknownConnection)
}

#[test]
fn a_silent_peer_is_given_up_within_its_time_though_retries_are_left() {
    let patient = |host| EndpointConfig { retry_count: 100, peer_timeout: Duration::from_millis(300), ..config(host, Recovery::Irn) };
    let mut pair: Pair = Pair::with(vec![patient(0), patient(1)], |host| Rng::from_seed(host + 1));
    let [a, _] = pair.connect();
    let (_, local) = pair.region(0, &pattern(10));
    // Silence before the request does not count.
    pair.run(Duration::from_millis(60), |_| Fate::Drop);
    pair.post(0, a, send(1, sges(local, 0, 10)));
    pair.run(Duration::from_millis(299), |_| Fate::Drop);
    assert!(pair.completions[0].is_empty());
    pair.run(Duration::from_millis(1), |_| Fate::Drop);
    assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [Status::RetryExceeded]);
}

#[test]
fn a_dead_peer_of_an_idle_connection_is_noticed_within_keepalive_and_peer_timeout() {
    let patient = |host| EndpointConfig { retry_count: 100, peer_timeout: Duration::from_millis(300), ..config(host, Recovery::Irn) };
    let mut pair: Pair = Pair::with(vec![patient(0), patient(1)], |host| Rng::from_seed(host + 1));
    let [a, _] = pair.connect();
    pair.run(Duration::from_millis(374), |_| Fate::Drop);
    assert!(pair.events[0].is_empty(), "asked after three quarters of the interval at the earliest");
    pair.run(Duration::from_millis(27), |_| Fate::Drop);
    assert_eq!(pair.events[0], [Event::QpFailed { qp: a, status: Status::RetryExceeded }]);
}

#[test]
fn a_receiver_that_is_not_ready_for_longer_than_the_peer_timeout_is_not_taken_for_dead() {
    let patient = |host| EndpointConfig {
        rnr_retry: 7,
        rnr_delay: Duration::from_millis(655),
        peer_timeout: Duration::from_millis(300),
        ..config(host, Recovery::Irn)
    };
    let mut pair: Pair = Pair::with(vec![patient(0), patient(1)], |host| Rng::from_seed(host + 1));
    let [a, b] = pair.connect();
    let (_, local) = pair.region(0, &pattern(10));
    let (_, recv) = pair.region(1, &[0; 10]);
    pair.post(0, a, send(1, sges(local, 0, 10)));
    pair.run(Duration::from_secs(2), PASS);
    assert!(pair.completions[0].is_empty());
    pair.receive(1, b, 2, sges(recv, 0, 10));
    pair.run(Duration::from_secs(1), PASS);
    assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Success]);
}

#[test]
fn each_message_of_a_close_may_be_lost_and_both_sides_end_as_disconnected_with_the_last_acknowledgement_honoured() {
    for lost in [None, Some(ConnectionKind::DisconnectRequest), Some(ConnectionKind::DisconnectReply)] {
        for (closer, destroy) in [(0, false), (1, false), (0, true), (1, true)] {
            let (mut pair, qps) = Pair::connected(Recovery::Irn);
            let (_, local) = pair.region(0, &pattern(10));
            let (inbox, remote) = pair.region(1, &[0; 10]);
            // The bytes arrive, but no acknowledgement of them does.
            pair.post(0, qps[0], write(1, sges(local, 0, 10), 0, remote.rkey));
            pair.run(Duration::from_micros(6), |seen| if seen.is_ack() { Fate::Drop } else { Fate::Pass });
            assert_eq!(pair.bytes(1, inbox), pattern(10));
            if destroy {
                pair.hosts[closer].destroy_qp(pair.now, APP, qps[closer]).unwrap();
            } else {
                pair.hosts[closer].disconnect(pair.now, APP, qps[closer]).unwrap();
            }
            let (mut first, mut unknown) = (true, 0);
            pair.run(Duration::from_millis(20), |seen| {
                unknown += u32::from(is_unknown(seen));
                let hit = seen.is_ack() || lost.is_some() && kind(seen) == lost && std::mem::take(&mut first);
                if hit { Fate::Drop } else { Fate::Pass }
            });
            let case = format!("{lost:?} lost, host {closer} closes, destroy: {destroy}");
            assert_eq!(pair.events[1 - closer], [Event::Disconnected { qp: qps[1 - closer] }], "{case}");
            assert_eq!(unknown, 0, "{case}: nobody is told that a lingering connection is unknown");
            let status = if closer == 1 { Status::Success } else { Status::Flushed };
            assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [status], "{case}");
            assert!(pair.hosts.iter().all(Endpoint::is_quiet), "{case}");
        }
    }
}

#[test]
fn when_every_goodbye_was_lost_the_next_frame_is_answered_and_ends_the_connection() {
    for destroy in [false, true] {
        let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
        if destroy {
            pair.hosts[1].destroy_qp(pair.now, APP, b).unwrap();
        } else {
            pair.hosts[1].disconnect(pair.now, APP, b).unwrap();
        }
        pair.run(Duration::from_millis(10), |_| Fate::Drop);
        let (_, local) = pair.region(0, &pattern(10));
        pair.post(0, a, send(1, sges(local, 0, 10)));
        pair.run(Duration::from_micros(11), PASS);
        assert_eq!(pair.events[0], [Event::QpFailed { qp: a, status: Status::RetryExceeded }]);
        assert!(pair.hosts[0].is_quiet());
    }
}

#[test]
fn only_the_right_peer_with_the_right_queue_pair_and_tag_ends_a_connection() {
    let mut pair = Pair::with((0..3).map(|host| config(host, Recovery::Irn)).collect(), |host| Rng::from_seed(host + 1));
    let [a, _] = pair.connect_hosts([0, 1]);
    // What host 1 says once it has restarted, captured on the way.
    pair.hosts[1] = Endpoint::new(config(1, Recovery::Irn), Rng::from_seed(77));
    let (_, local) = pair.region(0, &pattern(10));
    pair.post(0, a, send(1, sges(local, 0, 10)));
    let mut answer = Vec::new();
    pair.run(Duration::from_micros(6), |seen| {
        if is_unknown(seen) {
            answer = seen.bytes.to_vec();
            return Fate::Drop;
        }
        Fate::Pass
    });
    // The source's last byte; the tag at 22 and the queue pair at 24 of the message, which starts at 46.
    for (at, bit) in [(11, 0x40), (46 + 23, 1), (46 + 27, 1)] {
        let mut forged = answer.clone();
        forged[at] ^= bit;
        pair.deliver(0, &weft_tests::fuzz::repair_checksum(&forged));
        assert_eq!(pair.hosts[0].connection_counters().unknown_at_peer, 0, "byte {at}");
    }
    assert_eq!(pair.hosts[0].drops().of(DropReason::BadConnectionMessage), 3);
    pair.deliver(0, &answer);
    assert_eq!(pair.hosts[0].connection_counters().unknown_at_peer, 1);
    // Again, for a connection that is gone: nothing, and no answer.
    pair.deliver(0, &answer);
    assert_eq!(pair.hosts[0].connection_counters().unknown_at_peer, 1);
    let mut frames = 0;
    pair.run(Duration::from_micros(1), |_| {
        frames += 1;
        Fate::Pass
    });
    assert_eq!(frames, 0);
}

#[test]
fn a_storm_of_strange_frames_is_answered_at_a_bounded_rate() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, &pattern(10));
    let mut strange = Vec::new();
    pair.post(0, a, send(1, sges(local, 0, 10)));
    pair.run(Duration::from_micros(1), |seen| {
        strange = seen.bytes.to_vec();
        Fate::Drop
    });
    pair.hosts[0].destroy_qp(pair.now, APP, a).unwrap();
    pair.settle();
    pair.hosts[1].destroy_qp(pair.now, APP, b).unwrap();
    pair.settle();
    let mut answers = 0;
    for _ in 0..1000 {
        (0..10).for_each(|_| pair.deliver(1, &strange));
        pair.run(Duration::from_millis(1), |seen| {
            answers += u32::from(is_unknown(seen));
            Fate::Pass
        });
    }
    assert!((100..=120).contains(&answers), "{answers} in a second");
    assert_eq!(pair.hosts[0].counters().acks_sent, 0);
}

#[test]
fn a_connection_that_is_being_set_up_is_not_ended_by_an_answer_for_frames_that_it_never_sent() {
    let mut pair = Pair::new(Recovery::Irn);
    let (a, b) = (pair.queue_pair(0), pair.queue_pair(1));
    pair.hosts[0].connect(pair.now, APP, a, weft_tests::pair::mac(1), SERVICE, b"").unwrap();
    let mut end = None;
    pair.run(Duration::from_micros(20), |seen| {
        if let Body::Connection(message) = seen.packet.body {
            end = Some((message.qp, message.tag, seen.bytes.to_vec()));
        }
        Fate::Pass
    });
    let (.., mut forged) = end.unwrap();
    let request = pair.requests[1].pop().unwrap();
    pair.hosts[1].accept(pair.now, APP, request, b, b"").unwrap();
    // Kind 4 with refusal 5: the request itself turned into an answer, from its own sender.
    forged[46] = ConnectionKind::Reject as u8;
    forged[48] = Refusal::UnknownConnection as u8;
    pair.deliver(1, &weft_tests::fuzz::repair_checksum(&forged));
    pair.run(Duration::from_micros(50), PASS);
    for host in 0..2 {
        assert!(matches!(pair.events[host][..], [Event::Established { .. }]), "{:?}", pair.events[host]);
    }
}

#[test]
fn connections_that_fall_idle_together_do_not_ask_for_signs_of_life_together() {
    let many = |host| EndpointConfig { max_qps: 400, ..config(host, Recovery::Irn) };
    let mut pair: Pair = Pair::with(vec![many(0), many(1)], |host| Rng::from_seed(host + 1));
    let qps: Vec<_> = (0..400).map(|_| pair.connect()[0]).collect();
    qps.into_iter().for_each(|qp| pair.post(0, qp, write(1, SgList::EMPTY, 0, 0)));
    pair.run(Duration::from_millis(1), PASS);
    let mut per_milli = std::collections::BTreeMap::new();
    pair.run(Duration::from_secs(1), |seen| {
        if seen.request().is_some() {
            *per_milli.entry(seen.now.as_nanos() / 1_000_000).or_insert(0) += 1;
        }
        Fate::Pass
    });
    let (most, asked) = (per_milli.values().max().copied().unwrap_or(0), per_milli.values().sum::<i32>());
    assert!(asked > 3600 && asked < 6000, "{asked}");
    assert!(most <= 40, "{most} of 400 in one millisecond");
}
