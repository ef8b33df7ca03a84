//! Shares, rates and classes under load.

use super::*;
use crate::transport::{Psn, QpNum};
use crate::wire::headers::Position;
use crate::wire::packet::{Base, Body, Packet, Tail};

/// Keeps each `(input, priority, length)` backlogged towards B and returns the bytes that each got of `frames` frames.
fn shares(bench: &mut Bench, flows: &[(PortId, u8, usize)], frames: usize) -> Vec<u64> {
    bench.switch.set_static(station(2), B).unwrap();
    for _ in 0..frames {
        for &(input, priority, length) in flows {
            let waiting = flow(bench, input, priority).counters.queued.frames;
            (waiting..3).for_each(|_| bench.send_frame(input, &tagged(station(10), station(2), priority), length));
        }
        assert_eq!(bench.receive_some(B, 1).len(), 1, "an output with frames never idles");
    }
    flows.iter().map(|&(input, priority, _)| flow(bench, input, priority).counters.dequeued.bytes).collect()
}

fn flow(bench: &Bench, input: PortId, class: u8) -> VoqStatus {
    bench.switch.voqs_of(B).find(|voq| voq.input == input && voq.class == class).unwrap()
}

/// Jain's index of fairness: 1 for equal shares, 1/n if one flow has everything.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn inputs_of_short_and_long_frames_share_an_output_by_bytes() {
    let mut bench = Bench::with(|_, _| {});
    let flows = [(LOCAL, 0, 64), (A, 0, 1514), (C, 0, 64), (A, 1, 1514), (C, 1, 700)];
    let shares = shares(&mut bench, &flows, 3000);
    assert!(jain(&shares) > 0.99, "{shares:?}");
}

#[test]
fn classes_share_an_output_by_their_weights() {
    let mut bench = Bench::with(|config, _| config.weights = [1, 2, 5, 0, 1, 1, 1, 1]);
    let shares = shares(&mut bench, &[(A, 0, 1000), (A, 1, 1000), (A, 2, 1000), (A, 3, 1000)], 900);
    for (share, weight) in shares.iter().zip([1, 2, 5, 1]) {
        assert!(share.abs_diff(weight * 100_000) < 16_000, "{shares:?}");
    }
}

#[test]
fn a_quantum_below_the_frame_size_still_serves_every_class() {
    let mut bench = Bench::with(|config, _| config.quantum = 500);
    let shares = shares(&mut bench, &[(A, 0, 1514), (C, 0, 100)], 500);
    assert!(jain(&shares) > 0.99, "{shares:?}");
}

#[test]
fn a_quantum_is_at_least_the_longest_frame_so_that_each_visit_sends() {
    let mut bench = Bench::with(|config, _| config.quantum = 1);
    bench.switch.set_static(station(2), B).unwrap();
    (0..2).for_each(|_| bench.send_frame(A, &header(station(1), station(2)), 1514));
    (0..20).for_each(|_| bench.send(C, station(3), station(2)));
    let sent = bench.receive_some(B, 30);
    assert_eq!(sent.iter().position(|&length| length == 100), Some(1));
    assert_eq!(sent.iter().rposition(|&length| length == 1514), Some(16), "1518 bytes are 15 short frames");
}

#[test]
fn priorities_have_queues_of_their_own_only_as_far_as_there_are_classes() {
    let mut bench = Bench::with(|config, _| config.classes = 2);
    bench.switch.set_static(station(2), B).unwrap();
    [0, 3, 4, 7].into_iter().for_each(|priority| bench.send_frame(A, &tagged(station(1), station(2), priority), 100));
    let classes: Vec<_> = bench.switch.voqs_of(B).filter(|voq| voq.input == A).map(|voq| (voq.class, voq.counters.queued.frames)).collect();
    assert_eq!(classes, [(0, 2), (1, 2)]);
}

#[test]
fn an_output_keeps_its_rate_with_an_owner_that_wakes_late() {
    for delay in [Duration::ZERO, Duration::from_micros(500)] {
        let mut bench = Bench::with(|_, ports| {
            ports[2].rate = mbit(100);
            ports[2].impair_egress.delay = delay;
        });
        bench.switch.set_static(station(2), B).unwrap();
        let mut frames = 0;
        for wake in 0..400_u64 {
            (0..20).for_each(|_| bench.send_frame(A, &header(station(1), station(2)), 1226));
            bench.wait(Duration::from_micros(130 + 400 * (wake % 2)));
            frames += bench.receive_some(B, 64).len() as u64;
        }
        // 1250 bytes at 100 Mbit/s are 100 us on the wire.
        let expected = bench.now.as_nanos() / 100_000;
        assert!(frames.abs_diff(expected) <= expected / 100 + 6, "{frames} instead of {expected}");
    }
}

#[test]
fn a_queue_that_fills_while_another_waits_does_not_cost_the_wire_its_lost_time() {
    let mut bench = Bench::with(|_, ports| ports[2].rate = mbit(1000));
    bench.switch.set_static(station(2), B).unwrap();
    (0..3).for_each(|_| bench.send_frame(A, &header(station(1), station(2)), 1226));
    assert_eq!(bench.receive_some(B, 8).len(), 1);
    bench.wait(Duration::from_micros(50));
    bench.send(C, station(3), station(2));
    assert_eq!(bench.receive_some(B, 8).len(), 3);
}

#[test]
fn a_busy_output_does_not_slow_an_idle_one() {
    let mut bench = Bench::with(|_, ports| ports[2].rate = BitRate::new(1000));
    bench.switch.set_static(station(2), B).unwrap();
    bench.switch.set_static(station(3), C).unwrap();
    for _ in 0..2000 {
        bench.send_frame(A, &header(station(1), station(2)), 60);
        bench.send_frame(A, &header(station(1), station(3)), 60);
        assert_eq!(bench.receive_some(C, 8).len(), 1);
    }
    assert!(bench.pool.available() >= bench.pool.in_use(), "the stuck output leaves half of the buffers");
}

#[test]
fn the_seed_of_a_port_repeats_its_link_whatever_the_others_do() {
    let run = |others: u32| {
        let mut bench = Bench::with(|_, ports| {
            ports[1].impair_ingress.loss_ppm = others;
            ports[2].impair_egress.loss_ppm = 300_000;
            ports[2].seed = Some(42);
        });
        let mut received = vec![];
        for _ in 0..200 {
            bench.send(C, station(3), MacAddr::BROADCAST);
            bench.send(A, station(1), station(3));
            received.push(bench.receive()[2]);
        }
        received
    };
    assert_eq!(run(0), run(500_000));
    assert!((100..180).contains(&run(0).iter().sum::<usize>()));
}

#[test]
fn the_two_directions_of_a_link_fail_independently() {
    let mut bench = Bench::with(|_, ports| {
        ports[1].impair_ingress.loss_ppm = 500_000;
        ports[1].impair_egress.loss_ppm = 500_000;
        ports[1].seed = Some(42);
    });
    bench.switch.set_static(station(1), A).unwrap();
    let directions: Vec<_> = (0..100)
        .map(|_| {
            bench.send(A, station(1), station(0));
            bench.send(LOCAL, station(0), station(1));
            let received = bench.receive();
            (received[0], received[1])
        })
        .collect();
    let alike = directions.iter().filter(|(into, out)| into == out).count();
    assert!((30..70).contains(&alike), "{alike} of 100");
}

/// A transport frame of 1,000 bytes from one station to another.
fn transport_frame(bench: &mut Bench) -> FrameRef {
    let frame = bench.pool.alloc().unwrap();
    let eth = Ethernet { ethertype: EtherType::TRANSPORT, ..header(station(10), station(2)) };
    let base = Base::new(0, QpNum(5), Psn::default());
    let body = Body::Send { position: Position::Middle, recv_sn: 0, offset: 0, tail: Tail::None, payload: &[0; 950] };
    let len = Packet { eth, base, body }.emit(bench.pool.room_mut(&frame)).unwrap();
    assert_eq!(len, 1000);
    bench.pool.set_len(&frame, len);
    frame
}

/// Ten transport and ten other frames from one input; which of those that leave are marked.
fn marked(marking: Option<Marking>) -> Vec<bool> {
    let mut bench = Bench::with(|config, _| config.marking = marking);
    bench.switch.set_static(station(2), B).unwrap();
    for _ in 0..10 {
        let frame = transport_frame(&mut bench);
        bench.ingest(A, frame);
        bench.send_frame(A, &header(station(10), station(2)), 1000);
    }
    bench.switch.egress(bench.now, &mut bench.pool, B, 20, &mut bench.out);
    let frames: Vec<_> = bench.out.drain(..).collect();
    let marks: Vec<bool> = frames.iter().map(|frame| Packet::parse(bench.pool.bytes(frame)).is_ok_and(|packet| packet.base.fecn)).collect();
    frames.into_iter().for_each(|frame| bench.pool.free(frame));
    assert_eq!(bench.switch.port_counters(B).marked, marks.iter().filter(|&&mark| mark).count() as u64);
    marks
}

#[test]
fn transport_frames_with_a_long_queue_behind_them_are_marked_and_no_others() {
    assert!(marked(None).iter().all(|&mark| !mark));
    let marks = marked(Some(Marking::threshold(EtherType::TRANSPORT, 10_000)));
    // Behind frame i wait 19 - i frames of 1,000 bytes: more than 10,000 up to the ninth; every other is the transport's.
    let expected: Vec<bool> = (0..20).map(|i| i < 9 && i % 2 == 0).collect();
    assert_eq!(marks, expected);
}

#[test]
fn a_flooded_frame_is_shared_and_not_marked() {
    let mut bench = Bench::with(|config, _| config.marking = Some(Marking::threshold(EtherType::TRANSPORT, 0)));
    for _ in 0..5 {
        let frame = transport_frame(&mut bench);
        bench.ingest(A, frame);
    }
    bench.receive();
    // The last copy to leave is shared no more.
    assert_eq!(bench.switch.port_counters(B).marked, 0);
}
