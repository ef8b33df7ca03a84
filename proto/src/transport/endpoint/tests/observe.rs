//! What operators see of hosts and events.

use super::*;
use crate::transport::irn::Cause;
use crate::transport::trace::{AckWord, Gate, Stream};

/// Writes `len` bytes from host 0 to host 1, of whose packets `lost` does not arrive the first time.
fn write_with_loss(len: usize, lost: usize) -> (Pair, [QpNum; 2]) {
    let (mut pair, qps) = Pair::connected(Recovery::Irn);
    let (_, source) = pair.region(0, vec![7; len]);
    let (_, sink) = pair.region(1, vec![0; len]);
    pair.hosts[0].post_send(pair.now, APP, qps[0], write(1, sges(source, 0, len as u32), 0, sink.rkey)).unwrap();
    let mut packets = 0;
    pair.run(Duration::from_millis(5), |host, _| {
        packets += usize::from(host == 0);
        host == 1 || packets != lost
    });
    assert_eq!(pair.completions[0].len(), 1);
    (pair, qps)
}

fn events(pair: &Pair, host: usize, qp: QpNum) -> Vec<TraceEvent> {
    pair.hosts[host].trace_of(qp).unwrap().into_iter().map(|record| record.event).collect()
}

#[test]
fn the_trace_of_a_loss_tells_what_both_sides_saw_and_did() {
    let (pair, qps) = write_with_loss(20 * 1400, 3);
    let [sender, receiver] = [0, 1].map(|host| events(&pair, host, qps[host]));
    assert_eq!(sender[0], TraceEvent::Connected { recovery: Recovery::Irn });
    let TraceEvent::Sent { of, psn: first, packets } = *sender.iter().find(|e| matches!(e, TraceEvent::Sent { .. })).unwrap() else {
        panic!()
    };
    let lost = first.plus(2);
    assert!(packets > 10, "packets in a row share a record: {sender:?}");
    let place = |events: &[TraceEvent], event: TraceEvent| {
        events.iter().position(|found| *found == event).unwrap_or_else(|| panic!("{event:?} is not in {events:?}"))
    };
    let gap = place(&sender, TraceEvent::AckReceived { of, psn: lost, says: AckWord::Gap });
    assert!(gap < place(&sender, TraceEvent::SentAgain { of, psn: lost, cause: Cause::Fast }));
    let early = place(&receiver, TraceEvent::ArrivedEarly { psn: lost.plus(1) });
    assert!(early < place(&receiver, TraceEvent::AckSent { of, psn: lost, says: AckWord::Gap }));
    assert!(early < place(&receiver, TraceEvent::Arrived { of, psn: lost, packets: 1 }));
    assert!(!sender.contains(&TraceEvent::State(QpState::Error)));
}

#[test]
fn the_trace_of_a_read_tells_requests_from_responses() {
    let (mut pair, qps) = Pair::connected(Recovery::Irn);
    let (_, sink) = pair.region(0, vec![0; 4 * 1400]);
    let (_, source) = pair.region(1, vec![7; 4 * 1400]);
    let op = SendOp::Read { remote_addr: 0, rkey: source.rkey };
    let work = SendWork::new(1, op, Data::List(sges(sink, 0, 4 * 1400)));
    pair.hosts[0].post_send(pair.now, APP, qps[0], work).unwrap();
    let mut answers = 0;
    pair.run(Duration::from_millis(5), |host, _| {
        answers += usize::from(host == 1);
        host == 0 || answers != 2
    });
    assert_eq!(pair.completions[0].len(), 1);
    let [asking, answering] = [0, 1].map(|host| events(&pair, host, qps[host]));
    let again = |events: &[TraceEvent]| {
        events.iter().filter(|e| matches!(e, TraceEvent::SentAgain { of: Stream::Responses, cause: Cause::Fast, .. })).count()
    };
    assert_eq!((again(&asking), again(&answering)), (0, 1), "{answering:?}");
    let of_responses = |event: &TraceEvent| matches!(event, TraceEvent::AckSent { of: Stream::Responses, says: AckWord::Gap, .. });
    assert!(asking.iter().any(of_responses), "{asking:?}");
    assert!(asking.iter().any(|event| matches!(event, TraceEvent::Arrived { of: Stream::Responses, .. })));
}

#[test]
fn a_full_window_is_what_holds_requests_back() {
    let (pair, qps) = write_with_loss(300 * 1400, usize::MAX);
    assert!(events(&pair, 0, qps[0]).contains(&TraceEvent::Held(Gate::Window)));
}

#[test]
fn a_peer_that_falls_silent_shows_as_time_outs_and_the_end() {
    let (mut pair, qps) = Pair::connected(Recovery::Irn);
    let (_, source) = pair.region(0, vec![7; 100]);
    pair.hosts[0].post_send(pair.now, APP, qps[0], write(1, sges(source, 0, 100), 0, 1)).unwrap();
    pair.run(Duration::from_millis(500), |_, _| false);
    let events = events(&pair, 0, qps[0]);
    let tail = &events[events.len() - 2..];
    assert_eq!(tail, [TraceEvent::Failed(Status::RetryExceeded), TraceEvent::State(QpState::Error)], "{events:?}");
    assert!(events.iter().filter(|event| matches!(event, TraceEvent::TimedOut)).count() > 3, "{events:?}");
}

#[test]
fn a_queue_pair_that_is_gone_has_no_trace_and_its_number_opens_no_other() {
    let (mut pair, qps) = Pair::connected(Recovery::Irn);
    pair.hosts[0].destroy_qp(pair.now, APP, qps[0]).unwrap();
    assert_eq!(pair.hosts[0].trace_of(qps[0]), None);
    assert_eq!(pair.hosts[0].trace_of(QpNum(0)), None);
    assert_eq!(pair.hosts[0].trace_of(QpNum(u32::MAX)), None);
}

#[test]
fn what_a_host_was_sent_is_counted_for_it_also_when_the_queue_pair_is_gone() {
    let (mut pair, qps) = write_with_loss(20 * 1400, 3);
    let of_host_1 = |pair: &mut Pair| {
        pair.hosts[0].visit_all_peers();
        pair.hosts[0].peer_totals().find(|totals| totals.peer == Some(mac(1))).unwrap()
    };
    let before = of_host_1(&mut pair);
    assert_eq!((before.queue_pairs, before.counters.bytes_sent, before.counters.retransmitted_fast), (1, 28_000, 1));
    // The clock in frames has ticks of 256 ns.
    assert!(before.rtt.is_some_and(|rtt| rtt >= Duration::from_micros(9)), "{:?}", before.rtt);
    pair.hosts[0].destroy_qp(pair.now, APP, qps[0]).unwrap();
    let after = of_host_1(&mut pair);
    assert_eq!((after.queue_pairs, after.connections, after.counters, after.rtt), (0, 1, before.counters, None));
    assert_eq!(pair.hosts[0].visited_counters(), pair.hosts[0].counters());
}

#[test]
fn a_few_slots_at_a_time_give_the_same_totals_as_all_at_once() {
    let mut pair = Pair::new(Recovery::Irn);
    for _ in 0..5 {
        pair.connect();
    }
    let steps = (1..).find(|_| pair.hosts[0].visit_peers(2)).unwrap();
    assert_eq!(steps, 4, "two slots are never used, five are");
    let totals: Vec<_> = pair.hosts[0].peer_totals().collect();
    assert_eq!((totals[1].queue_pairs, pair.hosts[0].visited_counters()), (5, pair.hosts[0].counters()));
}
