//! Class of fault: receives that are shared, and keys that a message makes void.

use weft_proto::transport::{
    CommandError, CqId, Event, PostError, QpInit, QpNum, Recovery, RecvWork, SendOp, SendWork, SgList, SrqId, Status,
};
use weft_proto::wire::{Body, Packet};
use weft_proto::{DropReason, Duration};
use weft_tests::pair::{APP, Fate, Pair, pattern, send, sges, write};

/// Two connections whose queue pairs on host 1 take from one queue with these receives.
fn sharing(recovery: Recovery, receives: std::ops::Range<u64>) -> (Pair, SrqId, [[QpNum; 2]; 2]) {
    let mut pair = Pair::new(recovery);
    let srq = pair.hosts[1].create_srq(APP, 64).unwrap();
    let qps = [0, 1].map(|_| {
        let init = QpInit { srq: Some(srq), rq_depth: 0, ..QpInit::new(CqId(0), 64) };
        let qps = [pair.queue_pair(0), pair.hosts[1].create_qp(APP, init).unwrap()];
        pair.connect_queue_pairs([0, 1], qps);
        qps
    });
    receives.for_each(|wr_id| supply(&mut pair, srq, wr_id));
    (pair, srq, qps)
}

fn supply(pair: &mut Pair, srq: SrqId, wr_id: u64) {
    pair.hosts[1].post_srq_recv(APP, srq, RecvWork { wr_id, local: SgList::EMPTY }).unwrap();
}

fn received(pair: &Pair) -> Vec<(QpNum, u64, Status)> {
    pair.completions[1].iter().map(|c| (c.qp, c.wr_id, c.status)).collect()
}

#[test]
fn a_message_that_arrives_early_takes_the_receives_of_those_before_it() {
    for recovery in [Recovery::Irn, Recovery::IrnStrict] {
        let (mut pair, _, [[a, b], [c, d]]) = sharing(recovery, 0..10);
        for i in 0..5 {
            pair.post(0, a, send(i, SgList::EMPTY));
        }
        // The first goes through, the next three take a detour, the fifth takes four receives.
        let mut sent = 0;
        pair.run(Duration::from_micros(6), |seen| {
            sent += u32::from(seen.request().is_some());
            if seen.request().is_some() && (2..5).contains(&sent) { Fate::Hold(Duration::from_micros(30)) } else { Fate::Pass }
        });
        pair.post(0, c, send(9, SgList::EMPTY));
        pair.settle();
        let good = Status::Success;
        let told = received(&pair);
        assert_eq!(told[..2], [(b, 0, good), (d, 5, good)], "{recovery:?}");
        assert_eq!(told[2..], [(b, 1, good), (b, 2, good), (b, 3, good), (b, 4, good)], "{recovery:?}");
    }
}

#[test]
fn receives_taken_by_a_queue_pair_that_closes_are_flushed_once_and_the_others_stay() {
    let (mut pair, srq, [[a, b], [c, d]]) = sharing(Recovery::Irn, 0..5);
    for i in 0..3 {
        pair.post(0, a, send(i, SgList::EMPTY));
    }
    let mut sent = 0;
    pair.run(Duration::from_micros(12), |seen| {
        sent += u32::from(seen.request().is_some());
        if seen.request().is_some() && sent == 1 { Fate::Drop } else { Fate::Pass }
    });
    assert_eq!(received(&pair), []);
    assert_eq!(pair.hosts[1].destroy_srq(APP, srq), Err(CommandError::WrongState), "in use");
    pair.hosts[1].destroy_qp(pair.now, APP, b).unwrap();
    pair.settle();
    assert_eq!(received(&pair), [0, 1, 2].map(|wr_id| (b, wr_id, Status::Flushed)));
    pair.post(0, c, send(1, SgList::EMPTY));
    pair.settle();
    assert_eq!(received(&pair)[3..], [(d, 3, Status::Success)]);
    pair.hosts[1].destroy_qp(pair.now, APP, d).unwrap();
    pair.settle();
    assert_eq!(received(&pair).len(), 4, "what nobody took has no completion");
    assert_eq!((pair.hosts[1].destroy_srq(APP, srq), pair.hosts[1].srq_count()), (Ok(()), 0));
    assert_eq!(pair.hosts[1].destroy_srq(APP, srq), Err(CommandError::NoSuchSrq));
}

#[test]
fn an_empty_shared_queue_is_not_ready_in_order_and_silent_out_of_order() {
    let (mut pair, srq, [[a, b], _]) = sharing(Recovery::Irn, 0..0);
    pair.post(0, a, send(1, SgList::EMPTY));
    pair.run(Duration::from_micros(100), |_| Fate::Pass);
    assert_eq!((pair.counters(1).rnr_sent, received(&pair).len()), (1, 0));
    supply(&mut pair, srq, 7);
    pair.settle();
    assert_eq!(received(&pair), [(b, 7, Status::Success)]);
    // With a gap in front and one receive, the early message is not taken, and takes none.
    supply(&mut pair, srq, 8);
    (2..4).for_each(|i| pair.post(0, a, send(i, SgList::EMPTY)));
    let mut sent = 0;
    pair.run(Duration::from_micros(12), |seen| {
        sent += u32::from(seen.request().is_some());
        if seen.request().is_some() && sent == 1 { Fate::Drop } else { Fate::Pass }
    });
    assert_eq!((pair.counters(1).rnr_sent, pair.hosts[1].drops().of(DropReason::ReceiverNotReady)), (1, 2));
    supply(&mut pair, srq, 9);
    pair.settle();
    assert_eq!(received(&pair)[1..], [(b, 8, Status::Success), (b, 9, Status::Success)]);
}

#[test]
fn the_limit_of_a_shared_queue_is_told_once_each_time_it_is_set() {
    let (mut pair, srq, [[a, _], _]) = sharing(Recovery::Irn, 0..5);
    let told = |pair: &Pair| pair.events[1].iter().filter(|event| **event == Event::SrqLimit { srq }).count();
    assert_eq!(pair.hosts[1].set_srq_limit(APP, srq, 65), Err(CommandError::BadArgument));
    pair.hosts[1].set_srq_limit(APP, srq, 4).unwrap();
    for expected in [0, 1, 1, 1] {
        pair.post(0, a, send(1, SgList::EMPTY));
        pair.settle();
        assert_eq!(told(&pair), expected);
    }
    pair.hosts[1].set_srq_limit(APP, srq, 4).unwrap();
    pair.settle();
    assert_eq!(told(&pair), 2, "below it already");
    pair.hosts[1].set_srq_limit(APP, srq, 0).unwrap();
    pair.settle();
    assert_eq!(told(&pair), 2);
}

#[test]
fn a_shared_queue_is_used_by_its_owner_and_by_name_only() {
    let (mut pair, srq, [[_, b], _]) = sharing(Recovery::Irn, 0..64);
    let other = weft_proto::transport::AppId(9);
    let host = &mut pair.hosts[1];
    assert_eq!(host.post_recv(APP, b, RecvWork::default()), Err(PostError::WrongState));
    assert_eq!(host.post_srq_recv(APP, srq, RecvWork::default()), Err(PostError::QueueFull));
    assert_eq!(host.post_srq_recv(other, srq, RecvWork::default()), Err(PostError::NoSuchSrq));
    assert_eq!(host.set_srq_limit(other, srq, 1), Err(CommandError::NoSuchSrq));
    let theirs = QpInit { srq: Some(srq), ..QpInit::new(CqId(0), 1) };
    assert_eq!(host.create_qp(other, theirs), Err(CommandError::NoSuchSrq));
    assert_eq!(host.create_srq(APP, 0), Err(CommandError::BadArgument));
    host.release(pair.now, APP);
    assert_eq!(host.srq_count(), 0);
}

fn invalidating(wr_id: u64, rkey: u32) -> SendWork {
    SendWork { op: SendOp::SendInvalidate { rkey }, ..send(wr_id, SgList::EMPTY) }
}

#[test]
fn a_key_is_void_when_the_message_that_says_so_has_its_turn_and_not_before() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, &pattern(8));
    let (inbox, remote) = pair.region(1, &[0; 8]);
    (0..2).for_each(|i| pair.receive(1, b, i, SgList::EMPTY));
    pair.post(0, a, write(1, sges(local, 0, 8), 0, remote.rkey));
    pair.post(0, a, invalidating(2, remote.rkey));
    // The write comes last, and still finds the key open.
    let mut sent = 0;
    pair.run(Duration::from_micros(12), |seen| {
        sent += u32::from(seen.request().is_some());
        if seen.request().is_some() && sent == 1 { Fate::Hold(Duration::from_micros(20)) } else { Fate::Pass }
    });
    assert_eq!(pair.completions[1], []);
    pair.run(Duration::from_micros(40), |_| Fate::Pass);
    assert_eq!(pair.bytes(1, inbox), pattern(8));
    assert_eq!(pair.completions[1].iter().map(|c| (c.status, c.invalidated)).collect::<Vec<_>>(), [(Status::Success, Some(remote.rkey))]);
    pair.post(0, a, write(3, sges(local, 0, 8), 0, remote.rkey));
    pair.settle();
    assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Success, Status::Success, Status::RemoteAccess]);
    assert!(pair.hosts[1].deregister(APP, remote.lkey).is_ok(), "still to be given back");
}

#[test]
fn a_message_that_makes_an_unknown_key_void_is_refused_in_order() {
    for early in [false, true] {
        let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
        (0..2).for_each(|i| pair.receive(1, b, i, SgList::EMPTY));
        pair.post(0, a, send(1, SgList::EMPTY));
        pair.post(0, a, invalidating(2, 0xdead_beef));
        let mut sent = 0;
        pair.run(Duration::from_micros(12), |seen| {
            sent += u32::from(seen.request().is_some());
            if early && seen.request().is_some() && sent == 1 { Fate::Drop } else { Fate::Pass }
        });
        assert_eq!(pair.hosts[1].drops().of(DropReason::EarlyFault), u64::from(early));
        pair.settle();
        assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Success, Status::RemoteAccess]);
        let told: Vec<_> = pair.completions[1].iter().map(|c| (c.wr_id, c.status, c.invalidated)).collect();
        assert_eq!(told, [(0, Status::Success, None), (1, Status::Flushed, None)]);
        assert_eq!(pair.events[1][0], Event::QpFailed { qp: b, status: Status::PeerAccess });
    }
}

#[test]
fn a_key_made_void_twice_harms_no_other() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, remote) = pair.region(1, &[0; 8]);
    let (target, other) = pair.region(1, &[0; 8]);
    let (_, local) = pair.region(0, &pattern(8));
    (0..3).for_each(|i| pair.receive(1, b, i, SgList::EMPTY));
    pair.post(0, a, send(1, SgList::EMPTY));
    (2..4).for_each(|i| pair.post(0, a, invalidating(i, remote.rkey)));
    let mut sent = 0;
    pair.run(Duration::from_micros(12), |seen| {
        sent += u32::from(seen.request().is_some());
        if seen.request().is_some() && sent == 1 { Fate::Drop } else { Fate::Pass }
    });
    pair.post(0, a, write(4, sges(local, 0, 8), 0, other.rkey));
    pair.settle();
    assert!(pair.completions.iter().flatten().all(|c| c.status == Status::Success), "{:?}", pair.completions);
    assert_eq!(pair.bytes(1, target), pattern(8));
}

#[test]
fn a_peer_that_names_a_receive_farther_ahead_than_its_packets_takes_none() {
    let (mut pair, srq, [[a, _], [c, d]]) = sharing(Recovery::Irn, 0..50);
    pair.post(0, a, send(1, SgList::EMPTY));
    let mut forged = vec![0; 2048];
    pair.run(Duration::from_micros(1), |seen| {
        let Body::Send { position, offset, tail, payload, .. } = seen.packet.body else { return Fate::Pass };
        let base = weft_proto::wire::Base { psn: seen.packet.base.psn.next(), ..seen.packet.base };
        let body = Body::Send { position, recv_sn: 40, offset, tail, payload };
        let len = Packet { base, body, ..seen.packet }.emit(&mut forged).unwrap();
        forged.truncate(len);
        Fate::Drop
    });
    pair.hosts[1].set_srq_limit(APP, srq, 50).unwrap();
    pair.deliver(1, &forged);
    pair.run(Duration::from_micros(1), |_| Fate::Drop);
    assert!(pair.events[1].is_empty(), "the queue is as full as before: {:?}", pair.events[1]);
    pair.post(0, c, send(2, SgList::EMPTY));
    pair.run(Duration::from_micros(20), |_| Fate::Pass);
    assert_eq!(received(&pair).first(), Some(&(d, 0, Status::Success)), "the others find every receive");
}
