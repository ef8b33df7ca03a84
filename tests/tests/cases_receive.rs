//! Class of fault: receives that are not posted, lengths at their limits, immediates, and messages beyond 32 bits.

use weft_proto::transport::{CompletionOp, EndpointConfig, MemId, Memory, MemoryGone, PostError, Recovery, SendWork, SgList, Status};
use weft_proto::{Duration, Rng};
use weft_tests::fuzz::repair_checksum;
use weft_tests::pair::{APP, FULL, Fate, Pair, SERVICE, config, mac, pattern, send, sges, write};

#[test]
fn nothing_is_sent_before_the_delay_of_a_receiver_that_is_not_ready_is_over() {
    let patient = |host| EndpointConfig { rnr_delay: Duration::from_millis(10), ..config(host, Recovery::Irn) };
    let mut pair = Pair::with(vec![patient(0), patient(1)], |host| Rng::from_seed(host + 1));
    let [a, b] = pair.connect();
    let (_, local) = pair.region(0, &pattern(10));
    let (inbox, recv) = pair.region(1, &[0; 10]);
    pair.post(0, a, send(1, sges(local, 0, 10)));
    let mut requests = Vec::new();
    let mut watch = |seen: &weft_tests::pair::Seen<'_>| {
        requests.extend(seen.request().map(|_| seen.now));
        Fate::Pass
    };
    pair.run(Duration::from_millis(5), &mut watch);
    pair.receive(1, b, 3, sges(recv, 0, 10));
    pair.run(Duration::from_millis(20), &mut watch);
    assert_eq!(requests.len(), 2, "one refused, one after the delay");
    assert!(requests[1].since(requests[0]) >= Duration::from_millis(10));
    assert_eq!(pair.bytes(1, inbox), pattern(10));
    let counters = pair.counters(0);
    assert_eq!((counters.rnr_received, counters.timeouts, pair.completions[0].len()), (1, 0, 1));
}

#[test]
fn an_early_message_without_a_receive_is_dropped_silently_and_both_come_in_order_later() {
    for recovery in [Recovery::Irn, Recovery::IrnStrict] {
        let (mut pair, [a, b]) = Pair::connected(recovery);
        let (_, local) = pair.region(0, &pattern(20));
        let (inbox, recv) = pair.region(1, &[0; 20]);
        pair.post(0, a, send(1, sges(local, 0, 10)));
        pair.post(0, a, send(2, sges(local, 10, 10)));
        let mut requests = 0;
        pair.run(Duration::from_micros(60), |seen| {
            requests += u32::from(seen.request().is_some());
            if seen.request().is_some() && requests == 1 { Fate::Drop } else { Fate::Pass }
        });
        assert_eq!(pair.counters(0).acks_received, 0, "{recovery:?}: the early one was not answered");
        pair.receive(1, b, 8, sges(recv, 0, 10));
        pair.receive(1, b, 9, sges(recv, 10, 10));
        pair.settle();
        assert_eq!(pair.completions[1].iter().map(|c| c.wr_id).collect::<Vec<_>>(), [8, 9], "{recovery:?}");
        assert_eq!(pair.bytes(1, inbox), pattern(20));
    }
}

#[test]
fn a_message_of_nothing_completes_with_length_nothing_and_ends_no_connection() {
    let (mut pair, [a, b]) = Pair::connected(Recovery::Irn);
    for i in 0..3 {
        pair.receive(1, b, i, SgList::EMPTY);
    }
    pair.post(0, a, send(1, SgList::EMPTY));
    pair.post(0, a, SendWork { imm: Some(5), ..send(2, SgList::EMPTY) });
    // No key is looked at for no bytes.
    pair.post(0, a, SendWork { imm: Some(6), ..write(3, SgList::EMPTY, 0, 0xdead_beef) });
    pair.settle();
    let told: Vec<_> = pair.completions[1].iter().map(|c| (c.status, c.op, c.byte_len, c.imm)).collect();
    let recv = (Status::Success, CompletionOp::Recv, 0);
    assert_eq!(told, [(recv.0, recv.1, 0, None), (recv.0, recv.1, 0, Some(5)), (Status::Success, CompletionOp::RecvWriteImm, 0, Some(6))]);
    assert_eq!(pair.completions[0].len(), 3);
    assert!(pair.events.iter().all(Vec::is_empty));
}

#[test]
fn the_immediate_of_a_write_is_told_after_all_its_data_with_the_length_of_the_whole() {
    for (packets, recovery) in [(1, Recovery::Irn), (3, Recovery::Irn), (3, Recovery::IrnStrict), (3, Recovery::GoBackN)] {
        let (mut pair, [a, b]) = Pair::connected(recovery);
        let len = packets * pair.hosts[0].view_of(a).unwrap().payload;
        let data = pattern(len as usize);
        let (_, local) = pair.region(0, &data);
        let (inbox, remote) = pair.region(1, &vec![0; data.len()]);
        pair.receive(1, b, 9, SgList::EMPTY);
        pair.post(0, a, SendWork { imm: Some(77), solicited: true, ..write(1, sges(local, 0, len), 0, remote.rkey) });
        // The first packet takes a detour, so the last one arrives first.
        let mut sent = 0;
        pair.run(Duration::from_micros(12), |seen| {
            sent += u32::from(seen.request().is_some());
            if packets > 1 && sent < packets { Fate::Hold(Duration::from_micros(20)) } else { Fate::Pass }
        });
        assert_eq!(pair.completions[1].len(), usize::from(packets == 1), "{recovery:?}: not before all is there");
        pair.settle();
        let [told] = pair.completions[1][..] else { panic!("{:?}", pair.completions[1]) };
        assert_eq!((told.op, told.byte_len, told.imm, told.solicited), (CompletionOp::RecvWriteImm, len, Some(77), true));
        assert_eq!(pair.bytes(1, inbox), data);
    }
}

#[test]
fn lengths_around_the_packet_size_and_powers_of_two_arrive_exactly() {
    let (mut pair, [a, _]) = Pair::connected(Recovery::Irn);
    let payload = pair.hosts[0].view_of(a).unwrap().payload;
    for len in [1, payload - 1, payload, payload + 1, 2 * payload, 8191, 8192, 8193, 65_535, 65_536] {
        let data = pattern(len as usize);
        let (_, local) = pair.region(0, &data);
        let (inbox, remote) = pair.region(1, &vec![0; data.len() + 1]);
        pair.post(0, a, write(1, sges(local, 0, len), 0, remote.rkey));
        pair.run(Duration::from_millis(5), |_| Fate::Pass);
        assert_eq!(&pair.bytes(1, inbox)[..data.len()], data, "{len} bytes");
        assert_eq!(pair.bytes(1, inbox)[data.len()], 0, "nothing behind {len} bytes");
    }
}

/// Terabytes of memory: every eight bytes hold their own offset, and what is written is held against that.
#[derive(Debug, Default)]
struct Vast {
    written: u64,
    wrong: u64,
}

impl Memory for Vast {
    fn read(&self, _: MemId, offset: u64, out: &mut [u8]) -> Result<(), MemoryGone> {
        assert_eq!(offset % 8, 0);
        for (word, at) in out.chunks_mut(8).zip((offset..).step_by(8)) {
            word.copy_from_slice(&at.to_le_bytes()[..word.len()]);
        }
        Ok(())
    }

    fn write(&mut self, _: MemId, offset: u64, data: &[u8]) -> Result<(), MemoryGone> {
        let right = data.chunks(8).zip((offset..).step_by(8)).all(|(word, at)| word == &at.to_le_bytes()[..word.len()]);
        self.wrong += u64::from(!right);
        self.written += data.len() as u64;
        Ok(())
    }
}

const GIB: u64 = 1 << 30;

#[test]
fn a_region_beyond_32_bits_is_written_exactly_on_both_sides_of_each_limit() {
    let wide = |host| EndpointConfig { mtu: 60_000, ..config(host, Recovery::Irn) };
    let mut pair: Pair<Vast> = Pair::with(vec![wide(0), wide(1)], |host| Rng::from_seed(host + 1));
    let [a, _] = pair.connect();
    let local = pair.hosts[0].register(APP, MemId(0), 0, 6 * GIB, FULL).unwrap();
    let remote = pair.hosts[1].register(APP, MemId(0), 0, 6 * GIB, FULL).unwrap();
    let piece = 8 << 20;
    for start in [2 * GIB - u64::from(piece) / 2, 4 * GIB - u64::from(piece) / 2, 6 * GIB - u64::from(piece)] {
        pair.post(0, a, write(1, sges(local, start, piece), start, remote.rkey));
    }
    // One byte too far is refused; the local check comes first, so this uses bytes that the sender has.
    pair.post(0, a, write(2, sges(local, 0, 8), 6 * GIB - 7, remote.rkey));
    pair.run(Duration::from_millis(500), |_| Fate::Pass);
    let told: Vec<_> = pair.completions[0].iter().map(|c| (c.wr_id, c.status, c.byte_len)).collect();
    let good = (1, Status::Success, piece);
    assert_eq!(told, [good, good, good, (2, Status::RemoteAccess, 8)]);
    assert_eq!((pair.memory[1].wrong, pair.memory[1].written), (0, 3 * u64::from(piece)));
}

#[test]
fn a_message_longer_than_two_gibibytes_is_refused_when_it_is_posted() {
    let mut pair: Pair<Vast> = Pair::with(vec![config(0, Recovery::Irn), config(1, Recovery::Irn)], |host| Rng::from_seed(host + 1));
    let [a, _] = pair.connect();
    let local = pair.hosts[0].register(APP, MemId(0), 0, 6 * GIB, FULL).unwrap();
    let piece = weft_proto::transport::Sge { addr: 0, len: 1 << 31, lkey: local.lkey };
    for (pieces, extra) in [(1, 1), (2, 0), (3, 0)] {
        let mut list = vec![piece; pieces];
        list.extend((extra > 0).then_some(weft_proto::transport::Sge { len: extra, ..piece }));
        let work = send(1, SgList::new(&list).unwrap());
        assert_eq!(pair.hosts[0].post_send(pair.now, APP, a, work), Err(PostError::TooLong));
    }
}

#[test]
fn a_message_of_more_packets_than_sequence_numbers_tell_apart_is_refused_when_it_is_posted() {
    let mut pair: Pair<Vast> = Pair::with(vec![config(0, Recovery::Irn), config(1, Recovery::Irn)], |host| Rng::from_seed(host + 1));
    let (a, b) = (pair.queue_pair(0), pair.queue_pair(1));
    pair.hosts[1].connect(pair.now, APP, b, mac(0), SERVICE, b"").unwrap();
    let mut asked = Vec::new();
    pair.run(Duration::from_micros(1), |seen| {
        asked = seen.bytes.to_vec();
        Fate::Drop
    });
    // The peer takes one byte per packet: the field is at 32 of the message, which starts at 46.
    asked[78..82].copy_from_slice(&1u32.to_be_bytes());
    pair.deliver(0, &repair_checksum(&asked));
    pair.run(Duration::from_micros(1), |_| Fate::Drop);
    let request = pair.requests[0].pop().unwrap();
    pair.hosts[0].accept(pair.now, APP, request, a, b"").unwrap();
    let local = pair.hosts[0].register(APP, MemId(0), 0, GIB, FULL).unwrap();
    let post = |pair: &mut Pair<Vast>, len| pair.hosts[0].post_send(pair.now, APP, a, send(1, sges(local, 0, len)));
    assert_eq!(post(&mut pair, (1 << 23) + 1), Err(PostError::TooLong));
    assert_eq!(post(&mut pair, 1 << 23), Ok(()));
}
