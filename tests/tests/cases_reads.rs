//! READ and atomics: each test is a class of public faults, or a promise that follows from one.

use weft_proto::transport::{
    AtomicOp, CompletionOp, Data, EndpointConfig, Event, Inline, Psn, QpNum, Recovery, SendOp, SendWork, SgList, Sge, Status,
};
use weft_proto::wire::{Base, Body, EtherType, Ethernet, Packet, Position};
use weft_proto::{DropReason, Duration, Rng};
use weft_tests::pair::{APP, Fate, Pair, Seen, atomic, config, mac, pattern, read, send, sges, write};

const MODES: [Recovery; 4] = [Recovery::Irn, Recovery::IrnStrict, Recovery::SelectiveNoSack, Recovery::GoBackN];
const ADD: AtomicOp = AtomicOp::FetchAdd { add: 1 };

fn statuses(pair: &Pair, host: usize) -> Vec<(u64, Status)> {
    pair.completions[host].iter().map(|c| (c.wr_id, c.status)).collect()
}

fn number(pair: &Pair, host: usize, mem: weft_proto::transport::MemId, at: usize) -> u64 {
    u64::from_ne_bytes(pair.bytes(host, mem)[at..at + 8].try_into().expect("eight bytes"))
}

#[test]
fn a_read_arrives_byte_for_byte_with_one_completion_whatever_is_lost() {
    for mode in MODES {
        let (mut pair, [a, _]) = Pair::connected(mode);
        let data = pattern(300_001);
        let (target, local) = pair.region(0, &vec![0; data.len()]);
        let (_, remote) = pair.region(1, &data);
        pair.post(0, a, read(5, sges(local, 0, 300_001), 0, remote.rkey));
        let mut rng = Rng::from_seed(7);
        pair.run(Duration::from_millis(200), |_| match rng.below(20) {
            0 => Fate::Drop,
            1 => Fate::Double,
            2 => Fate::Hold(Duration::from_micros(30)),
            _ => Fate::Pass,
        });
        assert_eq!(pair.bytes(0, target), data, "{mode:?}");
        assert_eq!(statuses(&pair, 0), [(5, Status::Success)], "{mode:?}");
        assert_eq!((pair.completions[0][0].op, pair.completions[0][0].byte_len), (CompletionOp::Read, 300_001));
        assert!(pair.counters(1).retransmitted_fast > 0, "{mode:?}: responses were lost");
    }
}

#[test]
fn lengths_around_a_packet_are_read_in_full() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let payload = usize::try_from(pair.hosts[0].view_of(a).expect("a queue pair").payload).expect("small");
    let data = pattern(3 * payload);
    let (target, local) = pair.region(0, &vec![0; data.len()]);
    let (_, remote) = pair.region(1, &data);
    for len in [1, payload - 1, payload, payload + 1, 2 * payload, 2 * payload + 1] {
        let len32 = u32::try_from(len).expect("small");
        pair.post(0, a, read(len as u64, sges(local, 0, len32), 0, remote.rkey));
        pair.settle();
        assert_eq!(pair.bytes(0, target)[..len], data[..len]);
        assert_eq!(pair.completions[0].pop().map(|c| (c.status, c.byte_len)), Some((Status::Success, len32)));
    }
}

#[test]
fn a_read_scatters_into_its_pieces() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let data = pattern(5000);
    let (target, local) = pair.region(0, &[0; 9000]);
    let (_, remote) = pair.region(1, &data);
    let piece = |addr, len| Sge { addr, len, lkey: local.lkey };
    let list = SgList::new(&[piece(100, 1), piece(3000, 2999), piece(7000, 0), piece(7000, 2000)]).expect("four entries");
    pair.post(0, a, read(1, list, 0, remote.rkey));
    pair.settle();
    let bytes = pair.bytes(0, target);
    assert_eq!([&bytes[100..101], &bytes[3000..5999], &bytes[7000..9000]].concat(), data);
    assert!(bytes[101..3000].iter().chain(&bytes[5999..7000]).all(|&byte| byte == 0));
}

#[test]
fn a_read_of_nothing_between_writes_takes_one_number_and_no_memory() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, &pattern(8));
    let (target, remote) = pair.region(1, &[0; 8]);
    let mut requests = Vec::new();
    pair.post(0, a, write(1, sges(local, 0, 4), 0, remote.rkey));
    pair.post(0, a, read(2, SgList::EMPTY, 0, 0xdead_beef));
    pair.post(0, a, write(3, sges(local, 4, 4), 4, remote.rkey));
    pair.run(Duration::from_millis(5), |seen| {
        requests.extend(seen.request());
        Fate::Pass
    });
    assert!(requests.windows(2).all(|two| two[1] == two[0].next()) && requests.len() == 3, "{requests:?}");
    assert_eq!(statuses(&pair, 0), [(1, Status::Success), (2, Status::Success), (3, Status::Success)]);
    assert_eq!(pair.bytes(1, target), pattern(8));
}

#[test]
fn an_atomic_is_applied_once_however_often_its_frames_are_lost_or_doubled() {
    for mode in MODES {
        let (mut pair, [a, _]) = Pair::connected(mode);
        let (results, local) = pair.region(0, &[0; 8 * 40]);
        let (counter, remote) = pair.region(1, &[0; 8]);
        let mut rng = Rng::from_seed(11);
        for i in 0..40 {
            pair.post(0, a, atomic(i, sges(local, 8 * i, 8), 0, remote.rkey, ADD));
        }
        pair.run(Duration::from_millis(300), |_| match rng.below(5) {
            0 => Fate::Drop,
            1 => Fate::Double,
            2 => Fate::Hold(Duration::from_micros(40)),
            _ => Fate::Pass,
        });
        assert_eq!(number(&pair, 1, counter, 0), 40, "{mode:?}");
        let seen: Vec<u64> = (0..40).map(|i| number(&pair, 0, results, 8 * i)).collect();
        assert_eq!(seen, (0..40).collect::<Vec<_>>(), "{mode:?}: each saw its predecessor");
        assert_eq!(statuses(&pair, 0), (0..40).map(|i| (i, Status::Success)).collect::<Vec<_>>(), "{mode:?}");
    }
}

#[test]
fn compare_and_swap_stores_only_over_the_value_expected() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let (results, local) = pair.region(0, &[0; 16]);
    let (cell, remote) = pair.region(1, &7u64.to_ne_bytes());
    for (i, compare) in [(0, 7), (1, 7)] {
        let swap = AtomicOp::CompareSwap { compare, swap: 9 + i };
        pair.post(0, a, atomic(i, sges(local, 8 * i, 8), 0, remote.rkey, swap));
    }
    pair.settle();
    assert_eq!(number(&pair, 1, cell, 0), 9, "the second found 9, not 7");
    assert_eq!([number(&pair, 0, results, 0), number(&pair, 0, results, 8)], [7, 9]);
}

#[test]
fn an_atomic_completes_only_when_its_result_is_there() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let (result, local) = pair.region(0, &[0xff; 8]);
    let (_, remote) = pair.region(1, &5u64.to_ne_bytes());
    pair.post(0, a, atomic(1, sges(local, 0, 8), 0, remote.rkey, ADD));
    // The request is acknowledged; its response does not come through yet.
    pair.run(Duration::from_micros(60), |seen| if seen.response().is_some() { Fate::Drop } else { Fate::Pass });
    assert!(pair.completions[0].is_empty());
    pair.settle();
    assert_eq!((statuses(&pair, 0), number(&pair, 0, result, 0)), (vec![(1, Status::Success)], 5));
}

#[test]
fn a_queue_pair_with_an_atomic_under_way_can_be_destroyed_and_leaves_nothing() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, &[0; 8]);
    let (_, remote) = pair.region(1, &[0; 8]);
    pair.post(0, a, atomic(1, sges(local, 0, 8), 0, remote.rkey, ADD));
    pair.run(Duration::from_micros(7), |_| Fate::Pass);
    for (host, qp) in [(0, a), (1, b)] {
        pair.hosts[host].destroy_qp(pair.now, APP, qp).expect("a queue pair");
    }
    pair.settle();
    assert_eq!(statuses(&pair, 0), [(1, Status::Flushed)]);
    assert!((0..2).all(|host| pair.hosts[host].qp_count() == 0 && pair.hosts[host].is_quiet()));
    assert!(pair.hosts[0].deregister(APP, local.lkey).is_ok() && pair.hosts[1].deregister(APP, remote.lkey).is_ok());
}

#[test]
fn a_fenced_request_leaves_after_the_read_before_it_is_placed() {
    for fence in [true, false] {
        let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
        let (source, local) = pair.region(0, &[0; 64]);
        let (inbox, remote) = pair.region(1, &[[9u8; 32], [0; 32]].concat());
        pair.receive(1, b, 7, sges(remote, 32, 32));
        pair.post(0, a, read(1, sges(local, 0, 32), 0, remote.rkey));
        // The application sends on what it reads.
        pair.post(0, a, SendWork { fence, ..send(2, sges(local, 0, 32)) });
        pair.run(
            Duration::from_millis(5),
            |seen| if seen.response().is_some() { Fate::Hold(Duration::from_micros(50)) } else { Fate::Pass },
        );
        assert_eq!(pair.bytes(0, source)[..32], [9; 32]);
        let forwarded = if fence { [9; 32] } else { [0; 32] };
        assert_eq!(pair.bytes(1, inbox)[32..], forwarded, "fence {fence}");
    }
}

#[test]
fn requests_complete_in_posting_order_also_behind_a_read() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, &[0; 64]);
    let (_, remote) = pair.region(1, &[0; 64]);
    pair.post(0, a, read(1, sges(local, 0, 32), 0, remote.rkey));
    pair.post(0, a, write(2, sges(local, 0, 32), 32, remote.rkey));
    pair.run(Duration::from_micros(60), |seen| if seen.response().is_some() { Fate::Drop } else { Fate::Pass });
    assert!(pair.completions[0].is_empty(), "the write is acknowledged, the read before it is not answered");
    pair.settle();
    assert_eq!(statuses(&pair, 0), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn reads_beyond_the_depth_agreed_on_wait() {
    let configs = [0, 1].map(|host| EndpointConfig { max_reads: 2 + u8::try_from(host).expect("small"), ..config(host, Recovery::Irn) });
    let mut pair: Pair = Pair::with(configs.into(), |host| Rng::from_seed(host + 1));
    let [a, _] = pair.connect();
    let (_, local) = pair.region(0, &[0; 80]);
    let (_, remote) = pair.region(1, &[0; 8]);
    for i in 0..10 {
        pair.post(0, a, atomic(i, sges(local, 8 * i, 8), 0, remote.rkey, ADD));
    }
    let (mut under_way, mut most) = (0i32, 0);
    pair.run(Duration::from_millis(5), |seen| {
        under_way += i32::from(seen.request().is_some()) - i32::from(seen.response().is_some());
        most = most.max(under_way);
        Fate::Pass
    });
    assert_eq!((most, pair.completions[0].len()), (2, 10), "the smaller of the two depths");
}

#[test]
fn memory_deregistered_while_it_is_read_is_refused_and_never_another_region_in_its_place() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (target, local) = pair.region(0, &vec![1; 1 << 20]);
    let (_, remote) = pair.region(1, &vec![2; 1 << 20]);
    pair.post(0, a, read(1, sges(local, 0, 1 << 20), 0, remote.rkey));
    pair.run(Duration::from_micros(100), |_| Fate::Pass);
    pair.hosts[1].deregister(APP, remote.lkey).expect("a region");
    let (_, other) = pair.region(1, &vec![3; 1 << 20]);
    assert_ne!(other.rkey, remote.rkey);
    pair.settle();
    assert_eq!(statuses(&pair, 0), [(1, Status::RemoteAccess)]);
    let bytes = pair.bytes(0, target);
    assert!(bytes.contains(&2) && !bytes.contains(&3));
    assert!(pair.events[1].contains(&Event::QpFailed { qp: b, status: Status::PeerAccess }));
}

#[test]
fn memory_that_was_read_in_full_may_go_also_when_the_last_acknowledgement_is_lost() {
    for mode in MODES {
        let (mut pair, [a, b]) = Pair::connected(mode);
        let (target, local) = pair.region(0, &[0; 5000]);
        let (_, remote) = pair.region(1, &pattern(5000));
        pair.receive(1, b, 7, SgList::EMPTY);
        pair.post(0, a, read(1, sges(local, 0, 5000), 0, remote.rkey));
        let lossy = |seen: &Seen<'_>| if matches!(seen.packet.body, Body::ReadAck(_)) { Fate::Drop } else { Fate::Pass };
        pair.run(Duration::from_micros(60), lossy);
        assert_eq!((statuses(&pair, 0), pair.bytes(0, target)), (vec![(1, Status::Success)], &pattern(5000)[..]), "{mode:?}");
        // The usual end of a transfer: the reader gives the key back, and its owner reuses the memory.
        pair.post(0, a, SendWork::new(2, SendOp::SendInvalidate { rkey: remote.rkey }, Data::EMPTY));
        pair.settle();
        let counters = pair.counters(1);
        assert!(counters.retransmitted_timeout + counters.retransmitted_probe > 0, "{mode:?}: nobody said that the responses arrived");
        assert_eq!(statuses(&pair, 0)[1..], [(2, Status::Success)], "{mode:?}");
        assert!(pair.events.iter().all(Vec::is_empty), "{mode:?}: {:?}", pair.events);
    }
}

#[test]
fn memory_that_goes_before_a_lost_response_is_sent_again_fails_the_read_that_misses_it() {
    for mode in MODES {
        let (mut pair, [a, b]) = Pair::connected(mode);
        let (target, local) = pair.region(0, &[1; 5000]);
        let (_, remote) = pair.region(1, &[2; 5000]);
        pair.post(0, a, read(1, sges(local, 0, 5000), 0, remote.rkey));
        let mut responses = 0;
        pair.run(Duration::from_micros(11), |seen| {
            responses += u32::from(seen.response().is_some());
            if seen.response().is_some() && responses == 2 { Fate::Drop } else { Fate::Pass }
        });
        pair.hosts[1].deregister(APP, remote.lkey).expect("a region");
        pair.settle();
        assert_eq!(statuses(&pair, 0), [(1, Status::RemoteAccess)], "{mode:?}");
        assert!(pair.bytes(0, target)[1500..2800].iter().all(|&byte| byte == 1), "{mode:?}: never another's bytes");
        assert_eq!(pair.events[1], [Event::Disconnected { qp: b }], "{mode:?}");
    }
}

#[test]
fn a_result_is_repeated_also_when_its_memory_is_gone() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let (result, local) = pair.region(0, &[0; 8]);
    let (_, remote) = pair.region(1, &5u64.to_ne_bytes());
    pair.post(0, a, atomic(1, sges(local, 0, 8), 0, remote.rkey, ADD));
    pair.run(Duration::from_micros(60), |seen| if seen.response().is_some() { Fate::Drop } else { Fate::Pass });
    pair.hosts[1].deregister(APP, remote.lkey).expect("a region");
    pair.settle();
    assert_eq!((statuses(&pair, 0), number(&pair, 0, result, 0)), (vec![(1, Status::Success)], 5));
}

#[test]
fn a_request_without_the_right_is_refused_and_touches_nothing() {
    type Case = (fn(u32, weft_proto::transport::Keys) -> SendWork, Status);
    const CASES: [Case; 5] = [
        (|rkey, local| read(1, sges(local, 0, 8), 0, rkey ^ 1), Status::RemoteAccess),
        (|rkey, local| read(1, sges(local, 0, 8), 57, rkey), Status::RemoteAccess),
        (|rkey, local| atomic(1, sges(local, 0, 8), 0, rkey ^ 1, ADD), Status::RemoteAccess),
        (|rkey, local| atomic(1, sges(local, 0, 8), 64, rkey, ADD), Status::RemoteAccess),
        (|rkey, local| atomic(1, sges(local, 0, 8), 4, rkey, ADD), Status::RemoteInvalidRequest),
    ];
    for (number, (work, status)) in CASES.into_iter().enumerate() {
        let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
        let (target, local) = pair.region(0, &[1; 8]);
        let (source, remote) = pair.region(1, &[2; 64]);
        pair.post(0, a, work(remote.rkey, local));
        pair.settle();
        assert_eq!(statuses(&pair, 0), [(1, status)], "case {number}");
        assert_eq!((pair.bytes(0, target), pair.bytes(1, source)), (&[1; 8][..], &[2; 64][..]), "case {number}");
    }
}

/// A frame from host 1 to queue pair `a` of host 0, as its peer would build it, and one the other way.
fn forge(pair: &Pair, qps: [QpNum; 2], to: usize, tag: u16, psn: Psn, body: Body<'_>) -> Vec<u8> {
    let base = Base::new(tag, qps[to], psn);
    let eth = Ethernet { dst: mac(to), src: mac(1 - to), vlan: None, ethertype: EtherType::TRANSPORT };
    let mut frame = vec![0; 2048];
    let len = Packet { eth, base, body }.emit(&mut frame).expect("fits");
    frame.truncate(len);
    assert!(pair.hosts.len() == 2);
    frame
}

/// A pair with a READ of 3,000 bytes asked for and not answered; the tag and the number of the first response.
fn waiting_read() -> (Pair, [QpNum; 2], weft_proto::transport::MemId, u16, Psn) {
    let (mut pair, qps) = Pair::connected(Recovery::Irn);
    let (target, local) = pair.region(0, &[0; 4000]);
    let (_, remote) = pair.region(1, &pattern(3000));
    pair.post(0, qps[0], read(1, sges(local, 0, 3000), 0, remote.rkey));
    let mut first = None;
    pair.run(Duration::from_micros(60), |seen| {
        let Some(psn) = seen.response() else { return Fate::Pass };
        first.get_or_insert((seen.packet.base.tag, psn));
        Fate::Drop
    });
    let (tag, psn) = first.expect("a response");
    (pair, qps, target, tag, psn)
}

#[test]
fn responses_that_do_not_fit_what_was_asked_are_never_placed() {
    let payload = [0xee; 1440];
    let response = |position, read_sn, offset, len: usize| Body::ReadResponse { position, read_sn, offset, payload: &payload[..len] };
    let probe = waiting_read();
    let full = usize::try_from(probe.0.hosts[0].view_of(probe.1[0]).expect("a queue pair").payload).expect("small");
    let lies = [
        ("another READ", 1, response(Position::First, 1, 0, full)),
        ("another offset", 1, response(Position::Middle, 0, 8, full)),
        ("longer than the sink", 2, response(Position::Last, 0, 2 * u32::try_from(full).expect("small"), 200)),
        ("shorter than asked for", 1, response(Position::Middle, 0, u32::try_from(full).expect("small"), full - 8)),
        ("behind the end", 3, response(Position::Last, 0, 3 * u32::try_from(full).expect("small"), 10)),
        ("an atomic's", 1, Body::AtomicResponse { read_sn: 0, original: u64::MAX }),
    ];
    for (what, ahead, body) in lies {
        let (mut pair, qps, target, tag, psn) = waiting_read();
        let frame = forge(&pair, qps, 0, tag, psn.plus(ahead), body);
        pair.deliver(0, &frame);
        assert_eq!(pair.hosts[0].drops().of(DropReason::BadResponse), 1, "{what}");
        assert!(pair.bytes(0, target).iter().all(|&byte| byte == 0), "{what}");
        pair.settle();
        assert_eq!((statuses(&pair, 0), &pair.bytes(0, target)[..3000]), (vec![(1, Status::Success)], &pattern(3000)[..]), "{what}");
    }
}

#[test]
fn a_peer_whose_next_answer_makes_no_sense_is_given_up() {
    let (mut pair, qps, target, tag, psn) = waiting_read();
    let frame = forge(&pair, qps, 0, tag, psn, Body::AtomicResponse { read_sn: 0, original: 0 });
    pair.deliver(0, &frame);
    pair.settle();
    assert_eq!(statuses(&pair, 0), [(1, Status::BadResponse)]);
    assert!(pair.bytes(0, target).iter().all(|&byte| byte == 0));
}

#[test]
fn a_peer_that_asks_for_more_than_agreed_or_out_of_turn_is_refused() {
    for (what, read_sns) in [("17 at once", (0..17).collect::<Vec<u32>>()), ("a number left out", vec![1]), ("a number twice", vec![0, 0])]
    {
        let (mut pair, qps) = Pair::connected(Recovery::Irn);
        let (counter, remote) = pair.region(1, &[0; 8]);
        let (_, local) = pair.region(0, &[0; 8]);
        // A first write tells which numbers the next packets have.
        pair.post(0, qps[0], write(1, sges(local, 0, 8), 0, remote.rkey));
        let mut next = None;
        pair.run(Duration::from_micros(100), |seen| {
            next = seen.request().map(|psn| (seen.packet.base.tag, psn.next())).or(next);
            Fate::Pass
        });
        let (tag, psn) = next.expect("a request");
        let mut sent = 0_u64;
        for (i, &read_sn) in (0..).zip(&read_sns) {
            let body = Body::Atomic { read_sn, awaited: Psn::default(), va: 0, rkey: remote.rkey, op: ADD };
            let frame = forge(&pair, qps, 1, tag, psn.plus(i), body);
            pair.deliver(1, &frame);
            sent += 1;
        }
        assert_eq!(pair.hosts[1].drops().of(DropReason::AccessRefused), 1, "{what}: the last of {sent}");
        assert_eq!(number(&pair, 1, counter, 0), sent - 1, "{what}");
    }
}

#[test]
fn a_local_key_is_void_after_the_requests_before_it_and_before_those_behind() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let data = pattern(20_000);
    let (_, local) = pair.region(0, &data);
    let (target, remote) = pair.region(1, &[0; 20_000]);
    pair.post(0, a, write(1, sges(local, 0, 20_000), 0, remote.rkey));
    pair.post(0, a, SendWork::new(2, SendOp::LocalInvalidate { key: local.lkey }, Data::EMPTY));
    pair.post(0, a, write(3, sges(local, 0, 8), 0, remote.rkey));
    let mut dropped = 0;
    pair.run(Duration::from_millis(20), |seen| {
        dropped += u64::from(seen.request().is_some());
        if dropped % 5 == 1 && seen.request().is_some() { Fate::Drop } else { Fate::Pass }
    });
    assert_eq!(pair.bytes(1, target), data);
    assert_eq!(statuses(&pair, 0), [(1, Status::Success), (2, Status::Success), (3, Status::LocalProtection)]);
    assert_eq!(pair.completions[0][1].op, CompletionOp::LocalInvalidate);
    assert!(pair.hosts[0].deregister(APP, local.lkey).is_ok(), "the region is still to be given back");
}

#[test]
fn inline_data_needs_no_memory_and_is_what_it_was_when_posted() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (inbox, remote) = pair.region(1, &[0; 128]);
    pair.receive(1, b, 9, sges(remote, 0, 64));
    let bytes = pattern(64);
    let inline = Data::Inline(Inline::new(&bytes).expect("64 bytes fit"));
    pair.post(0, a, SendWork::new(1, SendOp::Send, inline));
    pair.post(0, a, SendWork::new(2, SendOp::Write { remote_addr: 64, rkey: remote.rkey }, inline));
    let mut first = true;
    pair.run(Duration::from_millis(5), |seen| if seen.request().is_some() && std::mem::take(&mut first) { Fate::Drop } else { Fate::Pass });
    assert_eq!(pair.bytes(1, inbox), [&bytes[..], &bytes[..]].concat());
    assert_eq!(statuses(&pair, 0), [(1, Status::Success), (2, Status::Success)]);
    assert!(Inline::new(&[0; 65]).is_none());
}

#[test]
fn reads_and_writes_both_ways_at_once_do_not_wait_for_each_other() {
    for mode in MODES {
        let (mut pair, qps) = Pair::connected(mode);
        let data = pattern(100_000);
        let regions = [0, 1].map(|host| (pair.region(host, &data), pair.region(host, &vec![0; 300_000])));
        for host in 0..2 {
            let ((_, source), (_, target)) = regions[host];
            let ((_, far_source), (_, far_target)) = regions[1 - host];
            for i in 0..10u64 {
                pair.post(host, qps[host], read(i, sges(target, i * 10_000, 10_000), i * 10_000, far_source.rkey));
                pair.post(host, qps[host], write(100 + i, sges(source, i * 10_000, 10_000), 100_000 + i * 10_000, far_target.rkey));
            }
        }
        let mut rng = Rng::from_seed(3);
        pair.run(Duration::from_millis(300), |_| if rng.below(30) == 0 { Fate::Drop } else { Fate::Pass });
        for (host, (_, (target, _))) in regions.into_iter().enumerate() {
            let bytes = pair.bytes(host, target);
            assert!(bytes[..100_000] == data && bytes[100_000..200_000] == data, "{mode:?}");
            assert_eq!(pair.completions[host].len(), 20, "{mode:?}");
            assert!(pair.completions[host].iter().all(|c| c.status == Status::Success), "{mode:?}");
        }
    }
}

#[test]
fn a_read_whose_peer_dies_before_it_answers_is_given_up_in_bounded_time() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, &[0; 16]);
    let (_, remote) = pair.region(1, &[0; 16]);
    pair.post(0, a, read(1, sges(local, 0, 8), 0, remote.rkey));
    // Nothing may overtake the READ, not even a sign of life by its place in the queue.
    pair.post(0, a, SendWork { fence: true, ..write(2, sges(local, 0, 8), 8, remote.rkey) });
    let mut acknowledged = false;
    pair.run(Duration::from_secs(3), |seen| {
        let dead = acknowledged;
        acknowledged |= seen.is_ack();
        if dead && seen.from == 1 || seen.response().is_some() { Fate::Drop } else { Fate::Pass }
    });
    assert!(acknowledged, "the request arrived");
    assert_eq!(statuses(&pair, 0), [(1, Status::RetryExceeded), (2, Status::Flushed)]);
}

#[test]
fn what_lies_behind_an_atomic_that_is_refused_in_its_turn_is_not_acknowledged() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, &[0; 64]);
    let (_, counter) = pair.region(1, &[0; 8]);
    let (_, inbox) = pair.region(1, &[0; 64]);
    for i in 0..2 {
        pair.receive(1, b, i, sges(inbox, 8 * i, 8));
    }
    pair.post(0, a, send(1, sges(local, 0, 8)));
    pair.post(0, a, atomic(2, sges(local, 8, 8), 0, counter.rkey, ADD));
    pair.post(0, a, send(3, sges(local, 0, 8)));
    // The first message comes late: the others wait, the atomic with a key that was good when it arrived.
    let mut first = true;
    pair.run(Duration::from_micros(8), |_| if std::mem::take(&mut first) { Fate::Hold(Duration::from_micros(20)) } else { Fate::Pass });
    pair.hosts[1].deregister(APP, counter.rkey).expect("a region");
    pair.settle();
    assert_eq!(statuses(&pair, 1), [(0, Status::Success), (1, Status::Flushed)]);
    assert_eq!(statuses(&pair, 0), [(1, Status::Success), (2, Status::RemoteAccess), (3, Status::Flushed)]);
}

#[test]
fn the_time_that_an_acknowledgement_is_held_is_no_part_of_the_round_trip() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, &[0; 8]);
    let (_, remote) = pair.region(1, &[0; 8]);
    // Nothing asks for the acknowledgement of the response, so that it waits for the 20 us of the configuration.
    pair.post(0, a, read(1, sges(local, 0, 8), 0, remote.rkey));
    pair.settle();
    let [.., longest] = pair.hosts[1].view_of(b).expect("a queue pair").rtt_percentiles.expect("a sample");
    assert!((Duration::from_micros(9)..Duration::from_micros(12)).contains(&longest), "5 us either way: {longest}");
}
