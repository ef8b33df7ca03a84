//! Class of fault: sequence numbers that wrap, and state that outlives its numbers.

use weft_proto::transport::irn::{Mark, Receiver};
use weft_proto::transport::{BdpCap, Psn, Recovery, SgList, Status};
use weft_proto::{DropReason, Duration};
use weft_tests::pair::{APP, Fate, Pair, config, pattern, send, sges, write};
use weft_tests::scenario::rng_near_wrap;

const MODES: [Recovery; 4] = [Recovery::Irn, Recovery::IrnStrict, Recovery::SelectiveNoSack, Recovery::GoBackN];
/// The search for a generator whose first connection starts at most 4 numbers before the wrap begins here, and ends here.
const HINT: u64 = 68_542;

fn near_wrap(recovery: Recovery) -> Pair {
    let rng = rng_near_wrap(HINT, 4);
    Pair::with(vec![config(0, recovery), config(1, recovery)], |host| if host == 0 { rng.clone() } else { weft_proto::Rng::from_seed(2) })
}

/// Eight one-packet messages over the wrap; `filter` decides on request `n` of the first transmissions.
fn eight_over_the_wrap(recovery: Recovery, fate: impl Fn(u32) -> Fate) -> Pair {
    let mut pair = near_wrap(recovery);
    let [a, b] = pair.connect();
    let (_, local) = pair.region(0, &pattern(80));
    let (inbox, recv) = pair.region(1, &[0; 80]);
    for i in 0..8 {
        pair.receive(1, b, i, sges(recv, i * 10, 10));
        pair.post(0, a, send(i, sges(local, i * 10, 10)));
    }
    let mut numbers = Vec::new();
    pair.run(Duration::from_millis(50), |seen| {
        let Some(psn) = seen.request().filter(|psn| seen.from == 0 && !numbers.contains(psn)) else { return Fate::Pass };
        numbers.push(psn);
        fate(u32::try_from(numbers.len()).unwrap() - 1)
    });
    assert!(numbers[0].value() > 0x00ff_fffb, "the generator is not used as the search expects: {numbers:?}");
    assert_eq!(numbers[7], Psn::new(numbers[0].value() + 7));
    assert_eq!(pair.bytes(1, inbox), pattern(80), "{recovery:?}");
    for host in 0..2 {
        let told: Vec<_> = pair.completions[host].iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(told, (0..8).map(|i| (i, Status::Success)).collect::<Vec<_>>(), "{recovery:?}");
    }
    pair
}

#[test]
fn a_loss_just_before_the_wrap_costs_one_retransmission() {
    for recovery in [Recovery::Irn, Recovery::IrnStrict] {
        let pair = eight_over_the_wrap(recovery, |n| if n == 2 { Fate::Drop } else { Fate::Pass });
        let counters = pair.counters(0);
        assert_eq!((counters.retransmitted_fast, counters.retransmitted_timeout), (1, 0), "{recovery:?}");
    }
    eight_over_the_wrap(Recovery::GoBackN, |n| if n == 2 { Fate::Drop } else { Fate::Pass });
}

#[test]
fn packets_reordered_across_the_wrap_are_delivered_in_order() {
    for recovery in MODES {
        eight_over_the_wrap(recovery, |n| Fate::Hold(Duration::from_micros(u64::from(8 - n))));
    }
}

#[test]
fn messages_of_nothing_keep_their_count_over_the_wrap() {
    let mut pair = near_wrap(Recovery::Irn);
    let [a, _] = pair.connect();
    for round in 0..20 {
        for i in 0..50 {
            pair.post(0, a, write(round * 50 + i, SgList::EMPTY, 0, 0));
        }
        pair.run(Duration::from_millis(1), |_| Fate::Pass);
    }
    let told: Vec<_> = pair.completions[0].iter().map(|c| c.wr_id).collect();
    assert_eq!(told, (0..1000).collect::<Vec<_>>());
    assert_eq!(pair.counters(0).retransmitted_fast + pair.counters(0).timeouts, 0);
}

#[test]
fn frames_of_a_destroyed_queue_pair_reach_no_later_one_in_the_same_slot() {
    let limit = |host| weft_proto::transport::EndpointConfig { max_qps: 1, ..config(host, Recovery::Irn) };
    let mut pair = Pair::with(vec![limit(0), limit(1)], |host| weft_proto::Rng::from_seed(host + 1));
    let (_, local) = pair.region(0, &pattern(5000));
    let (inbox, remote) = pair.region(1, &[0; 5000]);
    let mut captured = Vec::new();
    for _ in 0..5 {
        let [a, b] = pair.connect();
        pair.post(0, a, write(1, sges(local, 0, 5000), 0, remote.rkey));
        pair.run(Duration::from_millis(1), |seen| {
            captured.push((1 - seen.from, seen.bytes.to_vec()));
            Fate::Pass
        });
        pair.memory[1].bytes_mut(inbox).fill(0);
        for (host, frame) in &captured {
            pair.deliver(*host, frame);
        }
        // The frames of this very connection are duplicates, the older ones are strangers.
        assert_eq!(pair.bytes(1, inbox), [0; 5000]);
        pair.hosts[0].destroy_qp(pair.now, APP, a).unwrap();
        pair.settle();
        pair.hosts[1].destroy_qp(pair.now, APP, b).unwrap();
        pair.settle();
        pair.events.iter_mut().for_each(Vec::clear);
        assert!(pair.completions[0].iter().all(|c| c.status == Status::Success));
    }
    assert!(pair.hosts[1].drops().of(DropReason::UnknownQueuePair) > 0);
}

#[test]
fn more_than_256_packets_may_wait_behind_one_hole() {
    let wide = |host| weft_proto::transport::EndpointConfig { bdp_cap: BdpCap::Packets(1000), ..config(host, Recovery::Irn) };
    let mut pair = Pair::with(vec![wide(0), wide(1)], |host| weft_proto::Rng::from_seed(host + 1));
    let [a, _] = pair.connect();
    let data = pattern(400 * 1400);
    let (_, local) = pair.region(0, &data);
    let (inbox, remote) = pair.region(1, &vec![0; data.len()]);
    pair.post(0, a, write(1, sges(local, 0, u32::try_from(data.len()).unwrap()), 0, remote.rkey));
    let mut lost = false;
    pair.run(Duration::from_millis(50), |seen| {
        if seen.request().is_some() && !std::mem::replace(&mut lost, true) { Fate::Drop } else { Fate::Pass }
    });
    assert_eq!(pair.bytes(1, inbox), data);
    let counters = pair.counters(0);
    assert_eq!((counters.retransmitted_fast, counters.timeouts), (1, 0));
    assert!(pair.counters(1).early_received > 256);
}

#[test]
fn the_count_of_messages_goes_on_over_its_own_wrap() {
    const WRAP: u32 = 1 << 24;
    let mut receiver = Receiver::new(Psn::new(0));
    let mut messages = 0;
    for number in 0..WRAP + 10 {
        messages += receiver.accept(Psn::new(number), Mark::Completes).completions;
    }
    assert_eq!((messages, receiver.msn(), receiver.expected()), (WRAP + 10, 10, Psn::new(10)));
}
