//! Class of fault: a sender that is faster than the receiver posts.

use weft_proto::transport::{CqId, EndpointConfig, PostError, QpInit, QpNum, Recovery, RecvWork, SgList, SrqId, Status};
use weft_proto::{Duration, Rng};
use weft_tests::pair::{APP, Fate, Pair, config, pattern, send, sges, write};

const MODES: [Recovery; 4] = [Recovery::Irn, Recovery::IrnStrict, Recovery::SelectiveNoSack, Recovery::GoBackN];

/// Hosts that wait for receives without end.
fn patient(recovery: Recovery) -> Pair {
    let config = |host| EndpointConfig { rnr_retry: 7, ..config(host, recovery) };
    Pair::with(vec![config(0), config(1)], |host| Rng::from_seed(host + 1))
}

/// Sends 64 messages to a receiver that posts one receive per `period`, and says how often it was not ready. From a
/// shared queue it says nothing about credits, all else being equal.
fn refusals(recovery: Recovery, period: Duration, shared: bool) -> u64 {
    let mut pair = patient(recovery);
    let srq = shared.then(|| pair.hosts[1].create_srq(APP, 64).unwrap());
    let qps = [pair.queue_pair(0), pair.hosts[1].create_qp(APP, QpInit { srq, ..QpInit::new(CqId(0), 64) }).unwrap()];
    pair.connect_queue_pairs([0, 1], qps);
    post_receive(&mut pair, srq, qps[1], 0);
    (0..64).for_each(|i| pair.post(0, qps[0], send(i, SgList::EMPTY)));
    for i in 1..64 {
        pair.run(period, |_| Fate::Pass);
        post_receive(&mut pair, srq, qps[1], i);
    }
    pair.settle();
    assert_eq!(pair.completions[0].iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(), successes(64));
    pair.counters(0).rnr_received
}

fn post_receive(pair: &mut Pair, srq: Option<SrqId>, qp: QpNum, wr_id: u64) {
    match srq {
        Some(srq) => pair.hosts[1].post_srq_recv(APP, srq, RecvWork { wr_id, local: SgList::EMPTY }).unwrap(),
        None => pair.receive(1, qp, wr_id, SgList::EMPTY),
    }
}

fn successes(count: u64) -> Vec<(u64, Status)> {
    (0..count).map(|i| (i, Status::Success)).collect()
}

#[test]
fn a_receiver_that_posts_slowly_is_asked_when_it_is_ready_and_hardly_ever_before() {
    for recovery in MODES {
        for (period, most) in [(Duration::from_micros(200), 2), (Duration::from_millis(1), 2), (Duration::from_millis(10), 192)] {
            let [with, without] = [false, true].map(|shared| refusals(recovery, period, shared));
            println!("{recovery:?}, a receive per {period}: {with} refusals with credits, {without} without");
            assert!(with <= most && with * 2 < without, "{recovery:?} {period}: {with} refusals with credits, {without} without");
        }
    }
}

#[test]
fn news_of_a_receive_that_is_lost_delays_and_does_not_hang() {
    for recovery in MODES {
        let mut pair = patient(recovery);
        let [a, b] = pair.connect();
        pair.receive(1, b, 0, SgList::EMPTY);
        pair.post(0, a, send(0, SgList::EMPTY));
        pair.run(Duration::from_micros(100), |_| Fate::Pass);
        // The first answer said that there is no receive left.
        pair.post(0, a, send(1, SgList::EMPTY));
        let mut sent = 0;
        pair.run(Duration::from_micros(100), |seen| {
            sent += u32::from(seen.request().is_some());
            Fate::Pass
        });
        assert_eq!(sent, 0, "{recovery:?}: nothing is sent without credit");
        pair.receive(1, b, 1, SgList::EMPTY);
        let mut lost = 0;
        pair.run(Duration::from_micros(20), |seen| {
            lost += u32::from(seen.is_ack());
            Fate::Drop
        });
        assert_eq!((lost, pair.completions[1].len()), (1, 1), "{recovery:?}: the receiver speaks unasked");
        pair.run(Duration::from_millis(2), |_| Fate::Pass);
        assert_eq!(pair.completions[0].iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(), successes(2), "{recovery:?}");
        assert_eq!(pair.counters(0).rnr_received, 0);
    }
}

#[test]
fn whatever_acknowledgement_is_lost_every_message_arrives() {
    for (recovery, seed) in MODES.into_iter().flat_map(|mode| (0..25).map(move |seed| (mode, seed))) {
        let mut pair = patient(recovery);
        let [a, b] = pair.connect();
        let mut rng = Rng::from_seed(seed);
        let (_, local) = pair.region(0, &pattern(5000));
        let (_, recv) = pair.region(1, &[0; 5000]);
        // Messages of one packet, of several, and writes with immediate.
        for i in 0..40 {
            let work = send(i, sges(local, 0, [0, 10, 5000][usize::try_from(i % 3).unwrap()]));
            pair.post(0, a, if i % 5 == 0 { write(i, sges(local, 0, 100), 0, recv.rkey) } else { work });
        }
        for i in 0..32 {
            pair.run(Duration::from_micros(rng.below(400)), |seen| {
                let lost = if seen.is_ack() { rng.below(2) == 0 } else { rng.below(10) == 0 };
                if lost { Fate::Drop } else { Fate::Pass }
            });
            pair.receive(1, b, i, sges(recv, 0, 5000));
        }
        pair.run(Duration::from_millis(200), |_| Fate::Pass);
        let told: Vec<_> = pair.completions[0].iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(told, successes(40), "{recovery:?}, seed {seed}");
    }
}

#[test]
fn one_packet_asks_for_a_long_message_without_credit() {
    let mut pair = patient(Recovery::Irn);
    let [a, b] = pair.connect();
    let (_, local) = pair.region(0, &pattern(20_000));
    let (inbox, recv) = pair.region(1, &[0; 20_000]);
    pair.receive(1, b, 0, SgList::EMPTY);
    pair.post(0, a, send(0, SgList::EMPTY));
    pair.run(Duration::from_micros(100), |_| Fate::Pass);
    pair.post(0, a, send(1, sges(local, 0, 20_000)));
    let mut sent = Vec::new();
    pair.run(Duration::from_millis(5), |seen| {
        sent.extend(seen.request());
        Fate::Pass
    });
    assert!(!sent.is_empty() && sent.iter().all(|psn| *psn == sent[0]), "{sent:?}");
    pair.receive(1, b, 1, sges(recv, 0, 20_000));
    pair.settle();
    assert_eq!(pair.bytes(1, inbox), pattern(20_000));
}

#[test]
fn eight_senders_to_one_that_is_not_ready_ask_at_a_bounded_rate_and_close_cleanly() {
    let config = |host| EndpointConfig { rnr_retry: 7, rnr_delay: Duration::from_micros(10), ..config(host, Recovery::Irn) };
    let mut pair: Pair = Pair::with((0..9).map(config).collect(), |host| Rng::from_seed(host + 1));
    let qps: Vec<_> = (1..9).map(|host| pair.connect_hosts([host, 0])).collect();
    for (host, [a, _]) in (1..9).zip(&qps) {
        (0..10).for_each(|i| pair.post(host, *a, send(i, SgList::EMPTY)));
    }
    pair.run(Duration::from_millis(10), |_| Fate::Pass);
    // One answer per delay of 10 us and round trip of 10 us, for each sender.
    let asked = pair.counters(0).rnr_sent;
    assert!(asked <= 8 * 500, "{asked} refusals in 10 ms");
    for (host, [a, b]) in (1..9).zip(&qps) {
        pair.hosts[0].destroy_qp(pair.now, APP, *b).unwrap();
        pair.run(Duration::from_micros(7), |_| Fate::Pass);
        pair.hosts[host].destroy_qp(pair.now, APP, *a).unwrap();
    }
    pair.settle();
    for host in 1..9 {
        assert_eq!(pair.completions[host].iter().map(|c| c.wr_id).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    }
    assert!(pair.hosts.iter().all(weft_proto::transport::Endpoint::is_quiet));
}

#[test]
fn a_request_more_than_the_queue_holds_is_refused_and_nothing_is_queued() {
    let mut pair = Pair::new(Recovery::Irn);
    let qps = [0, 1].map(|host| pair.hosts[host].create_qp(APP, QpInit::new(CqId(0), 2)).unwrap());
    pair.connect_queue_pairs([0, 1], qps);
    (0..2).for_each(|i| pair.receive(1, qps[1], i, SgList::EMPTY));
    assert_eq!(pair.hosts[1].post_recv(APP, qps[1], RecvWork::default()), Err(PostError::QueueFull));
    (0..2).for_each(|i| pair.post(0, qps[0], send(i, SgList::EMPTY)));
    assert_eq!(pair.hosts[0].post_send(pair.now, APP, qps[0], send(2, SgList::EMPTY)), Err(PostError::QueueFull));
    pair.settle();
    assert_eq!(pair.completions[0].iter().map(|c| c.wr_id).collect::<Vec<_>>(), [0, 1]);
    pair.post(0, qps[0], send(3, SgList::EMPTY));
}

#[test]
fn drain_after_drain_does_not_put_off_the_question_for_credit() {
    let mut pair = patient(Recovery::Irn);
    let [a, b] = pair.connect();
    pair.receive(1, b, 0, SgList::EMPTY);
    pair.post(0, a, send(0, SgList::EMPTY));
    pair.run(Duration::from_micros(100), |_| Fate::Pass);
    pair.post(0, a, send(1, SgList::EMPTY));
    pair.run(Duration::from_micros(100), |_| Fate::Pass);
    assert_eq!((pair.completions[0].len(), pair.counters(0).packets_sent), (1, 1), "the second waits for credit");
    // The news of the second receive is lost.
    pair.receive(1, b, 1, SgList::EMPTY);
    pair.run(Duration::from_micros(10), |_| Fate::Drop);
    for _ in 0..200 {
        pair.hosts[0].drain(APP, a).unwrap();
        // The peer's own traffic gives the queue pair its turn while it is drained.
        pair.post(1, b, write(9, SgList::EMPTY, 0, 0));
        pair.run(Duration::from_micros(100), |_| Fate::Pass);
        pair.hosts[0].resume(APP, a).unwrap();
        pair.run(Duration::from_micros(100), |_| Fate::Pass);
    }
    assert_eq!(pair.completions[0].iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(), successes(2));
}
