//! Class of fault: a send queue that is stopped while work is under way, or that fails alone.

use weft_proto::Duration;
use weft_proto::transport::{CommandError, Data, Event, Keys, QpNum, QpState, Recovery, SendOp, SendWork, SgList, Status};
use weft_tests::pair::{APP, Fate, Pair, pattern, send, sges, write};

const MODES: [Recovery; 3] = [Recovery::Irn, Recovery::IrnStrict, Recovery::GoBackN];

fn outcomes(pair: &Pair, host: usize) -> Vec<(u64, Status)> {
    pair.completions[host].iter().map(|c| (c.wr_id, c.status)).collect()
}

fn state(pair: &Pair, host: usize, qp: QpNum) -> QpState {
    pair.hosts[host].view_of(qp).unwrap().state
}

#[test]
fn a_drain_lets_what_has_begun_finish_under_loss_and_holds_the_rest_until_resumed() {
    for mode in MODES {
        let (mut pair, [a, b]) = Pair::connected(mode);
        let (_, local) = pair.region(0, &pattern(1 << 20));
        let (inbox, remote) = pair.region(1, &vec![0; 1 << 20]);
        (0..3).for_each(|i| pair.receive(1, b, i, SgList::EMPTY));
        pair.post(0, a, write(0, sges(local, 0, 1 << 20), 0, remote.rkey));
        (1..3).for_each(|i| pair.post(0, a, send(i, SgList::EMPTY)));
        pair.run(Duration::from_micros(20), |_| Fate::Pass);
        pair.hosts[0].drain(APP, a).unwrap();
        pair.post(0, a, send(3, SgList::EMPTY));
        let mut frames = 0;
        pair.run(Duration::from_millis(50), |seen| {
            frames += u32::from(seen.request().is_some());
            if seen.request().is_some() && frames % 37 == 0 { Fate::Drop } else { Fate::Pass }
        });
        assert_eq!(outcomes(&pair, 0), [(0, Status::Success)], "{mode:?}");
        assert!(pair.bytes(1, inbox) == pattern(1 << 20));
        assert_eq!(pair.events[0], [Event::SendQueueDrained { qp: a }]);
        assert_eq!((state(&pair, 0, a), outcomes(&pair, 1).len()), (QpState::SendQueueDrain, 0));
        pair.hosts[0].resume(APP, a).unwrap();
        pair.settle();
        assert_eq!(outcomes(&pair, 0), [0, 1, 2, 3].map(|i| (i, Status::Success)), "{mode:?}");
        assert_eq!(outcomes(&pair, 1), [0, 1, 2].map(|i| (i, Status::Success)));
    }
}

#[test]
fn a_drain_of_an_idle_queue_is_told_at_once_and_only_a_connected_queue_is_drained_or_resumed() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let idle = pair.queue_pair(0);
    let host = &mut pair.hosts[0];
    assert_eq!(host.drain(APP, idle), Err(CommandError::WrongState));
    assert_eq!(host.resume(APP, a), Err(CommandError::WrongState));
    host.drain(APP, a).unwrap();
    assert_eq!(host.poll_event().map(|(_, event)| event), Some(Event::SendQueueDrained { qp: a }));
    assert_eq!(host.drain(APP, a), Err(CommandError::WrongState));
    host.resume(APP, a).unwrap();
    host.drain(APP, a).unwrap();
    assert_eq!(host.poll_event().map(|(_, event)| event), Some(Event::SendQueueDrained { qp: a }), "told each time");
}

#[test]
fn a_drained_queue_with_requests_held_back_notices_a_dead_peer_and_keeps_a_living_one() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    pair.hosts[0].drain(APP, a).unwrap();
    (0..3).for_each(|i| pair.post(0, a, send(i, SgList::EMPTY)));
    pair.run(Duration::from_secs(1), |_| Fate::Pass);
    // Either side asks, whoever's interval is shorter.
    let asked = pair.counters(0).keepalives_sent + pair.counters(1).keepalives_sent;
    assert!(asked >= 5, "{asked}");
    assert_eq!((state(&pair, 0, a), outcomes(&pair, 0)), (QpState::SendQueueDrain, Vec::new()));
    pair.run(Duration::from_secs(1), |_| Fate::Drop);
    assert!(pair.events[0].contains(&Event::QpFailed { qp: a, status: Status::RetryExceeded }), "{:?}", pair.events[0]);
    assert_eq!(outcomes(&pair, 0).iter().map(|(wr_id, _)| *wr_id).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_request_that_cannot_be_sent_stops_sending_in_its_place_and_receiving_goes_on() {
    for mode in MODES {
        let (mut pair, [a, b]) = Pair::connected(mode);
        let (_, keys) = pair.region(0, &pattern(20_000));
        let (_, remote) = pair.region(1, &[0; 20_000]);
        let bad = Keys { lkey: keys.lkey ^ 1, ..keys };
        (0..4).for_each(|i| pair.receive(0, a, 100 + i, SgList::EMPTY));
        (0..4).for_each(|i| pair.receive(1, b, 200 + i, SgList::EMPTY));
        pair.post(0, a, write(1, sges(keys, 0, 20_000), 0, remote.rkey));
        pair.post(0, a, send(2, sges(bad, 0, 8)));
        pair.post(0, a, send(3, SgList::EMPTY));
        assert_eq!(outcomes(&pair, 0), [], "not before its turn");
        pair.settle();
        let [good, blamed, flushed] = [Status::Success, Status::LocalProtection, Status::Flushed];
        assert_eq!(outcomes(&pair, 0), [(1, good), (2, blamed), (3, flushed)], "{mode:?}");
        assert_eq!(pair.events[0], [Event::SendQueueFailed { qp: a, status: blamed }]);
        assert_eq!((state(&pair, 0, a), state(&pair, 1, b)), (QpState::SendQueueError, QpState::ReadyToSend));
        // It receives, flushes what is posted, and lives.
        pair.post(1, b, send(4, SgList::EMPTY));
        pair.post(0, a, send(5, SgList::EMPTY));
        pair.run(Duration::from_millis(500), |_| Fate::Pass);
        assert_eq!(outcomes(&pair, 0)[3..], [(5, flushed), (100, good)]);
        assert_eq!(outcomes(&pair, 1), [(4, good)]);
        pair.hosts[0].resume(APP, a).unwrap();
        pair.post(0, a, send(6, SgList::EMPTY));
        pair.settle();
        assert_eq!(outcomes(&pair, 0)[5..], [(6, good)]);
        assert_eq!(outcomes(&pair, 1)[1..], [(200, good)], "the receives were not used up");
    }
}

#[test]
fn memory_that_goes_away_in_the_middle_of_a_message_ends_the_connection() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let (_, keys) = pair.region(0, &pattern(1 << 20));
    let (_, remote) = pair.region(1, &vec![0; 1 << 20]);
    pair.post(0, a, write(1, sges(keys, 0, 1 << 20), 0, remote.rkey));
    pair.run(Duration::from_micros(20), |_| Fate::Pass);
    pair.hosts[0].deregister(APP, keys.lkey).unwrap();
    pair.settle();
    assert_eq!(outcomes(&pair, 0), [(1, Status::LocalProtection)]);
    assert_eq!(pair.events[0], [Event::QpFailed { qp: a, status: Status::LocalProtection }]);
}

#[test]
fn a_fault_in_a_drained_queue_waits_for_its_turn() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, keys) = pair.region(0, &pattern(8));
    pair.receive(1, b, 9, SgList::EMPTY);
    pair.hosts[0].drain(APP, a).unwrap();
    pair.post(0, a, send(1, SgList::EMPTY));
    pair.post(0, a, send(2, sges(Keys { lkey: keys.lkey ^ 1, ..keys }, 0, 8)));
    pair.settle();
    assert_eq!(outcomes(&pair, 0), []);
    pair.hosts[0].resume(APP, a).unwrap();
    pair.settle();
    assert_eq!(outcomes(&pair, 0), [(1, Status::Success), (2, Status::LocalProtection)]);
}

#[test]
fn a_fault_right_behind_a_local_invalidate_is_told_at_once() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let (_, keys) = pair.region(0, &[0; 8]);
    pair.post(0, a, SendWork::new(1, SendOp::LocalInvalidate { key: keys.lkey }, Data::EMPTY));
    pair.post(0, a, send(2, sges(Keys { lkey: keys.lkey ^ 1, ..keys }, 0, 8)));
    pair.run(Duration::from_micros(1), |_| Fate::Pass);
    assert_eq!(outcomes(&pair, 0), [(1, Status::Success), (2, Status::LocalProtection)], "nothing was sent that could be answered");
    assert_eq!(pair.events[0], [Event::SendQueueFailed { qp: a, status: Status::LocalProtection }]);
}
