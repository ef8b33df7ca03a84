//! Class of fault: duplicates, lost acknowledgements, timers and loss detection.

use weft_proto::transport::{EndpointConfig, Event, Recovery, Status};
use weft_proto::{Duration, Rng};
use weft_tests::pair::{Fate, Pair, config, pattern, send, sges, write};

const MODES: [Recovery; 4] = [Recovery::Irn, Recovery::IrnStrict, Recovery::SelectiveNoSack, Recovery::GoBackN];

/// One WRITE of `packets` packets; `fate` sees the rank of each request packet (its place in the message) and how often
/// it was sent, or the number of an acknowledgement.
fn transfer(recovery: Recovery, packets: usize, mut request: impl FnMut(u32, u32) -> Fate, mut ack: impl FnMut(u32) -> Fate) -> Pair {
    let (mut pair, [a, _]) = Pair::connected(recovery);
    let payload = pair.hosts[0].view_of(a).unwrap().payload as usize;
    let data = pattern(packets * payload);
    let (_, local) = pair.region(0, &data);
    let (inbox, remote) = pair.region(1, &vec![0; data.len()]);
    pair.post(0, a, write(1, sges(local, 0, u32::try_from(data.len()).unwrap()), 0, remote.rkey));
    let (mut sent, mut acks, mut first) = (vec![0; packets], 0, None);
    pair.run(Duration::from_millis(50), |seen| match seen.request() {
        Some(psn) => {
            let rank = psn.distance_from(*first.get_or_insert(psn)).unwrap();
            sent[rank as usize] += 1;
            request(rank, sent[rank as usize])
        }
        None if seen.is_ack() => {
            acks += 1;
            ack(acks)
        }
        None => Fate::Pass,
    });
    assert_eq!(pair.bytes(1, inbox), data, "{recovery:?}");
    assert_eq!(pair.completions[0].iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Success], "{recovery:?}");
    pair
}

#[test]
fn the_lost_acknowledgement_of_the_only_packet_is_given_again() {
    for recovery in MODES {
        let (mut pair, [a, b]) = Pair::connected(recovery);
        let (_, local) = pair.region(0, &pattern(10));
        let (_, recv) = pair.region(1, &[0; 20]);
        pair.receive(1, b, 1, sges(recv, 0, 10));
        pair.receive(1, b, 2, sges(recv, 10, 10));
        pair.post(0, a, send(9, sges(local, 0, 10)));
        let mut lost = 0;
        pair.run(Duration::from_millis(50), |seen| {
            lost += u32::from(seen.is_ack());
            if seen.is_ack() && lost <= 3 { Fate::Drop } else { Fate::Pass }
        });
        assert_eq!(pair.completions[0].len(), 1, "{recovery:?}");
        assert_eq!(pair.completions[1].iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1], "{recovery:?}");
        assert_eq!(pair.counters(1).duplicates_received, 3, "{recovery:?}");
    }
}

#[test]
fn a_time_out_below_a_millisecond_is_neither_rounded_to_never_nor_early() {
    for (micros, recovery) in [(100, Recovery::IrnStrict), (500, Recovery::IrnStrict), (500, Recovery::GoBackN)] {
        let short = |host| EndpointConfig { rto_low: Duration::from_micros(micros), ..config(host, recovery) };
        let mut pair = Pair::with(vec![short(0), short(1)], |host| Rng::from_seed(host + 1));
        let [a, _] = pair.connect();
        let (_, local) = pair.region(0, &pattern(10));
        let (_, remote) = pair.region(1, &[0; 10]);
        pair.post(0, a, write(1, sges(local, 0, 10), 0, remote.rkey));
        let mut sent = Vec::new();
        pair.run(Duration::from_micros(2000), |seen| {
            sent.extend(seen.request().map(|_| seen.now));
            Fate::Drop
        });
        assert_eq!(sent[1].since(sent[0]), Duration::from_micros(micros));
        assert_eq!(sent[2].since(sent[1]), Duration::from_micros(2 * micros));
    }
}

#[test]
fn a_report_that_also_acknowledges_starts_the_retransmission() {
    // All acknowledgements of packets 0 to 4 are lost, and so is packet 5.
    let pair = transfer(
        Recovery::IrnStrict,
        20,
        |rank, times| if rank == 5 && times == 1 { Fate::Drop } else { Fate::Pass },
        |ack| if ack <= 5 { Fate::Drop } else { Fate::Pass },
    );
    let counters = pair.counters(0);
    assert_eq!((counters.retransmitted_fast, counters.timeouts), (1, 0));
}

#[test]
fn a_packet_lost_twice_is_recovered_within_a_round_trip_or_counted_as_a_time_out() {
    let twice = |rank, times| if rank == 5 && times <= 2 { Fate::Drop } else { Fate::Pass };
    let pair = transfer(Recovery::Irn, 120, twice, |_| Fate::Pass);
    assert_eq!((pair.counters(0).retransmitted_fast, pair.counters(0).timeouts), (2, 0), "while packets flow, recency tells");
    let pair = transfer(Recovery::IrnStrict, 20, twice, |_| Fate::Pass);
    assert_eq!((pair.counters(0).timeouts, pair.counters(0).retransmitted_timeout), (1, 1));
}

#[test]
fn the_lost_last_packet_waits_for_a_probe_or_the_short_time_out_only() {
    let pair = transfer(Recovery::Irn, 10, |rank, times| if rank == 9 && times == 1 { Fate::Drop } else { Fate::Pass }, |_| Fate::Pass);
    let counters = pair.counters(0);
    assert_eq!((counters.retransmitted_probe, counters.probes_helpful, counters.timeouts), (1, 1, 0));
    for recovery in [Recovery::IrnStrict, Recovery::SelectiveNoSack, Recovery::GoBackN] {
        let pair = transfer(recovery, 10, |rank, times| if rank == 9 && times == 1 { Fate::Drop } else { Fate::Pass }, |_| Fate::Pass);
        assert_eq!(pair.counters(0).retransmitted_timeout, 1, "{recovery:?}");
        assert_eq!(pair.counters(0).timeouts, 1, "{recovery:?}");
    }
}

#[test]
fn one_lost_packet_of_a_hundred_is_one_retransmission_however_many_reports_it_causes() {
    for recovery in [Recovery::Irn, Recovery::IrnStrict] {
        let pair = transfer(recovery, 100, |rank, times| if rank == 10 && times == 1 { Fate::Drop } else { Fate::Pass }, |_| Fate::Pass);
        let counters = pair.counters(0);
        assert!(recovery == Recovery::Irn || counters.naks_received > 5, "{recovery:?}: {counters:?}");
        assert_eq!((counters.retransmitted_fast, counters.timeouts), (1, 0), "{recovery:?}");
    }
    let pair =
        transfer(Recovery::GoBackN, 100, |rank, times| if rank == 10 && times == 1 { Fate::Drop } else { Fate::Pass }, |_| Fate::Pass);
    let counters = pair.counters(0);
    assert_eq!(counters.naks_received, 1, "a gap is reported once");
    assert!(counters.retransmitted_fast <= 64, "one window at most: {counters:?}");
}

#[test]
fn a_black_hole_costs_exactly_the_configured_retries() {
    for retry_count in [0, 1, 7] {
        let few = |host| EndpointConfig { retry_count, keepalive: Duration::from_secs(60), ..config(host, Recovery::IrnStrict) };
        let mut pair = Pair::with(vec![few(0), few(1)], |host| Rng::from_seed(host + 1));
        let [a, _] = pair.connect();
        let (_, local) = pair.region(0, &pattern(10));
        let start = pair.now;
        (0..3).for_each(|i| pair.post(0, a, send(i, sges(local, 0, 10))));
        let mut last = start;
        let mut sent = 0;
        pair.run(Duration::from_millis(200), |seen| {
            if seen.request().is_some() {
                (last, sent) = (seen.now, sent + 1);
            }
            Fate::Drop
        });
        let statuses: Vec<_> = pair.completions[0].iter().map(|c| c.status).collect();
        assert_eq!(statuses, [Status::RetryExceeded, Status::Flushed, Status::Flushed]);
        assert_eq!(pair.events[0], [Event::QpFailed { qp: a, status: Status::RetryExceeded }]);
        assert_eq!(sent, 3 + u32::from(retry_count));
        assert!(last.since(start) <= Duration::from_micros(100 * 128), "bounded by the doubled time-outs");
    }
}

#[test]
fn a_path_that_reorders_by_up_to_eight_packets_causes_next_to_no_retransmissions() {
    let mut rng = Rng::from_seed(3);
    // A frame time is 1.2 us at 10 Gbit/s. Until the path is known, the first window costs some.
    let hold = |_, _| Fate::Hold(Duration::from_nanos(1_200 * rng.below(9)));
    let pair = transfer(Recovery::Irn, 12_000, hold, |_| Fate::Pass);
    let counters = pair.counters(0);
    assert!(pair.counters(1).early_received > 100, "{:?}", pair.counters(1));
    let again = counters.retransmitted_fast + counters.retransmitted_probe;
    assert!(again * 100 < counters.packets_sent && counters.timeouts == 0, "{counters:?}");
}

#[test]
fn nothing_gets_through_for_a_while_and_then_all_of_it_does() {
    for recovery in MODES {
        let pair = transfer(recovery, 20, |_, times| if times <= 2 { Fate::Drop } else { Fate::Pass }, |_| Fate::Pass);
        assert!(pair.counters(0).timeouts > 0, "{recovery:?}");
    }
}
