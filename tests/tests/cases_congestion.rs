//! Congestion control at the level of one queue pair: what time, peers and acknowledgements can do to it.

#![allow(missing_docs)]

use weft_proto::transport::congestion::{Algorithm, Settings, Window};
use weft_proto::transport::{EndpointConfig, QpNum, Recovery, Status};
use weft_proto::wire::{Body, Echo, Packet};
use weft_proto::{BitRate, Duration, Rng};
use weft_tests::memory::Blocks;
use weft_tests::pair::{Fate, Pair, config, pattern, sges, write};

const LEN: u32 = 300_000;

/// Hosts with this algorithm, and time-outs above the round trips that these tests make.
fn hosts(algorithm: Algorithm, count: usize, change: impl Fn(&mut Settings)) -> Pair {
    let mut congestion = Settings::new(algorithm, BitRate::megabits(10_000));
    change(&mut congestion);
    let config = |host| EndpointConfig {
        congestion,
        max_regions: 1024,
        rto_low: Duration::from_millis(2),
        rto_high: Duration::from_millis(4),
        ..config(host, Recovery::Irn)
    };
    Pair::<Blocks>::with((0..count).map(config).collect(), |host| Rng::from_seed(host + 1))
}

/// Posts a long WRITE from host 0 to `peer`.
fn post_long(pair: &mut Pair, peer: usize, qp: QpNum, wr_id: u64) {
    let (_, from) = pair.region(0, &pattern(LEN as usize));
    let (_, to) = pair.region(peer, &vec![0; LEN as usize]);
    pair.post(0, qp, write(wr_id, sges(from, 0, LEN), 0, to.rkey));
}

fn window(pair: &Pair, qp: QpNum) -> Window {
    pair.hosts[0].view_of(qp).and_then(|view| view.congestion?.window).expect("a window")
}

#[test]
fn a_window_below_one_packet_sends_less_than_a_packet_per_round_trip_without_time_outs_and_recovers() {
    let mut pair = hosts(Algorithm::Swift, 2, |settings| settings.queueing_delay = Duration::from_micros(20));
    let [qp, _] = pair.connect();
    post_long(&mut pair, 1, qp, 1);
    pair.run(Duration::from_millis(1), |_| Fate::Pass);
    // From now on everything waits half a millisecond, whatever is sent.
    let slow = Fate::Hold(Duration::from_micros(250));
    (2..10).for_each(|wr_id| post_long(&mut pair, 1, qp, wr_id));
    pair.run(Duration::from_millis(20), |_| slow);
    assert!(window(&pair, qp) < Window::ONE, "{}", window(&pair, qp));
    let before = pair.counters(0);
    pair.run(Duration::from_millis(100), |_| slow);
    let sent = pair.counters(0).packets_sent - before.packets_sent;
    assert!((3..190).contains(&sent), "{sent} packets in 196 round trips");
    assert_eq!(pair.counters(0).timeouts + pair.counters(0).retransmitted_fast, 0);
    assert!(pair.counters(0).paced_nanos > 50_000_000, "{}", pair.counters(0).paced_nanos);
    // The path is free again.
    pair.run(Duration::from_millis(200), |_| Fate::Pass);
    assert_eq!(pair.completions[0].len(), 9);
    assert!(pair.completions[0].iter().all(|completion| completion.status == Status::Success));
}

#[test]
fn a_receiver_that_is_not_ready_is_no_congestion() {
    let mut pair = hosts(Algorithm::Aimd, 2, |_| {});
    let [qp, peer_qp] = pair.connect();
    let (_, from) = pair.region(0, &pattern(20_000));
    let (_, to) = pair.region(1, &[0; 20_000]);
    pair.post(0, qp, weft_tests::pair::send(1, sges(from, 0, 20_000)));
    pair.run(Duration::from_micros(100), |_| Fate::Pass);
    assert!(pair.counters(0).rnr_received > 0);
    pair.receive(1, peer_qp, 2, sges(to, 0, 20_000));
    pair.settle();
    assert_eq!(pair.completions[0].len(), 1);
    assert!(pair.counters(0).retransmitted_fast > 0);
    assert_eq!(pair.counters(0).congestion_decreases, 0);
}

#[test]
fn one_burst_of_losses_is_one_decrease() {
    let mut pair = hosts(Algorithm::Aimd, 2, |settings| settings.first_window = 50);
    let [qp, _] = pair.connect();
    post_long(&mut pair, 1, qp, 1);
    let mut packets = 0;
    pair.run(Duration::from_millis(2), |seen| {
        packets += u32::from(seen.request().is_some());
        if (10..30).contains(&packets) && seen.request().is_some() { Fate::Drop } else { Fate::Pass }
    });
    pair.settle();
    assert_eq!(pair.completions[0].len(), 1);
    assert_eq!(pair.counters(0).congestion_decreases, 1, "{:?}", pair.counters(0));
}

/// Runs both queue pairs of host 0, whose first peer answers with nonsense about the path.
fn with_liar(algorithm: Algorithm) {
    let mut pair = hosts(algorithm, 3, |_| {});
    let [liar, _] = pair.connect_hosts([0, 1]);
    let [honest, _] = pair.connect_hosts([0, 2]);
    let mut rng = Rng::from_seed(9);
    for round in 0..40 {
        post_long(&mut pair, 1, liar, round);
        post_long(&mut pair, 2, honest, 1000 + round);
        for _ in 0..20 {
            let mut answers = Vec::new();
            pair.run(Duration::from_micros(50), |seen| {
                if seen.from == 1 && seen.is_ack() {
                    answers.push(seen.bytes.to_vec());
                    return Fate::Drop;
                }
                Fate::Pass
            });
            for bytes in answers {
                let frame = nonsense(&bytes, &mut rng);
                pair.deliver(0, &frame);
            }
            let view = pair.hosts[0].view_of(liar).and_then(|view| view.congestion).expect("congestion control");
            assert!(view.window.is_none_or(|window| window <= Window::packets(64)), "{view:?}");
            assert!(view.rate.is_none_or(|rate| rate <= BitRate::megabits(10_000) && rate >= BitRate::megabits(10)), "{view:?}");
        }
        let done = pair.completions[0].iter().filter(|completion| completion.qp == honest).count() as u64;
        assert!(done + 2 > round, "{algorithm:?}: {done} messages of the honest one after round {round}");
    }
}

/// The acknowledgement with another echo.
fn nonsense(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let packet = Packet::parse(bytes).expect("it was sent");
    let Body::Ack(mut ack) = packet.body else { panic!("it was an acknowledgement") };
    let (ticks, other) = (rng.next_u32(), rng.next_u32().to_be_bytes());
    ack.echo = Echo {
        timestamp: weft_proto::time::Timestamp::from_ticks(ticks),
        held: u16::from_be_bytes([other[0], other[1]]),
        marked: u16::from_be_bytes([other[2], other[3]]),
    };
    let mut frame = vec![0; 2048];
    let len = Packet { body: Body::Ack(ack), ..packet }.emit(&mut frame).expect("room");
    frame.truncate(len);
    frame
}

#[test]
fn a_peer_that_reports_nonsense_slows_down_only_itself() {
    [Algorithm::Timely, Algorithm::Dcqcn, Algorithm::Dctcp, Algorithm::Swift].into_iter().for_each(with_liar);
}
