//! What stop control does to queue pairs: dialogues with explicit times.

use super::*;
use crate::stop::config::{ObeyConfig, Presets, PriorityRule, RateRule};
use crate::stop::fixtures;
use crate::stop::{CONTROL_PRIORITY, Station, StopConfig};
use crate::transport::trace::Gate;
use crate::wire::{Ethernet, StopMessage};

const TICK: Duration = Duration::from_millis(1);

fn stop_config(host: usize) -> StopConfig {
    let obey = ObeyConfig {
        presets: Presets { timer: 100, priority: 9 },
        longest: Duration::from_secs(10),
        budget_permille: 1000,
        forgive_after: Duration::from_secs(1),
        ..fixtures::obey_config()
    };
    StopConfig { mac: mac(host), tick: TICK, table_size: 16, obey: Some(obey), ..fixtures::config(RateRule::Absolute) }
}

/// A frame that left a host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Left {
    at: Instant,
    dst: MacAddr,
    priority: u8,
    bytes: Vec<u8>,
}

struct Host {
    endpoint: Endpoint,
    station: Station,
    memory: Blocks,
    left: Vec<Left>,
    done: Vec<Completion>,
    events: Vec<Event>,
}

/// Hosts and a wire with 5 us each way. Host 0 is the one that obeys.
struct Town {
    now: Instant,
    hosts: Vec<Host>,
    wire: Vec<(Instant, usize, Vec<u8>)>,
}

/// A connection of host 0.
#[derive(Clone, Copy)]
struct Line {
    near: QpNum,
    far: QpNum,
    source: Keys,
    target: Keys,
}

impl Town {
    fn new(hosts: usize) -> Self {
        Self::made(hosts, |host| config(host, Recovery::Irn), PriorityRule::Packet)
    }

    fn made(hosts: usize, config: impl Fn(usize) -> EndpointConfig, rule: PriorityRule) -> Self {
        let host = |host: usize| {
            let mut stops = stop_config(host);
            stops.obey.as_mut().unwrap().priority_rule = rule;
            Host {
                endpoint: Endpoint::new(EndpointConfig { max_qps: 1100, max_regions: 4096, ..config(host) }, Rng::from_seed(host as u64)),
                station: Station::new(stops, &[], Rng::from_seed(99)),
                memory: Blocks::default(),
                left: Vec::new(),
                done: Vec::new(),
                events: Vec::new(),
            }
        };
        let mut town = Self { now: Instant::from_nanos(1), hosts: (0..hosts).map(host).collect(), wire: Vec::new() };
        town.hosts.iter_mut().for_each(|host| host.endpoint.listen(APP, SERVICE).unwrap());
        town
    }

    fn region(&mut self, host: usize, len: usize) -> Keys {
        let host = &mut self.hosts[host];
        let mem = MemId(host.memory.0.len() as u32);
        host.memory.0.push(pattern(len));
        host.endpoint.register(APP, mem, 0, len as u64, FULL).unwrap()
    }

    /// Connects host 0 to `to`, with a priority on both sides.
    fn line(&mut self, to: usize, priority: u8, len: usize) -> Line {
        let init = QpInit { priority: Some(priority), ..QpInit::new(CQ, 64) };
        let [near, far] = [0, to].map(|host| self.hosts[host].endpoint.create_qp(APP, init).unwrap());
        self.hosts[0].endpoint.connect(self.now, APP, near, mac(to), SERVICE, b"").unwrap();
        self.run(Duration::from_micros(30));
        let request = self.hosts[to].events.iter().rev().find_map(|event| match event {
            Event::ConnectRequest { request, .. } => Some(*request),
            _ => None,
        });
        self.hosts[to].endpoint.accept(self.now, APP, request.unwrap(), far, b"").unwrap();
        self.run(Duration::from_micros(30));
        let (source, target) = (self.region(0, len), self.region(to, len));
        Line { near, far, source, target }
    }

    fn write(&mut self, line: &Line, wr_id: u64, len: u32) {
        let work = write(wr_id, sges(line.source, 0, len), 0, line.target.rkey);
        self.hosts[0].endpoint.post_send(self.now, APP, line.near, work).unwrap();
    }

    /// Host `asker` speaks to host 0.
    fn say(&mut self, asker: usize, message: StopMessage) {
        let header = Ethernet { dst: mac(0), src: mac(asker), vlan: None, ethertype: EtherType(0xff10) };
        self.hosts[0].station.handle_control(self.now, self.now, &header, &message.emit()).unwrap();
    }

    fn stop(&mut self, asker: usize, priority: u8, ticks: u8) {
        self.say(asker, StopMessage::Stop { priority, timer: ticks, rate: 0 });
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..3_000_000 {
            (0..self.hosts.len()).for_each(|host| self.breathe(host));
            let arrival = self.wire.iter().map(|(at, ..)| *at).min();
            let due = self.hosts.iter().flat_map(|host| [host.endpoint.poll_timeout(), host.station.poll_timeout()]);
            match due.chain([arrival]).flatten().min() {
                Some(at) if at <= end => self.now = at.max(self.now),
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("the world does not come to rest");
    }

    fn breathe(&mut self, number: usize) {
        let (now, mut buffer) = (self.now, [0; 1518]);
        let host = &mut self.hosts[number];
        for (_, _, frame) in self.wire.extract_if(.., |(at, to, _)| *at <= now && *to == number) {
            host.endpoint.handle_frame(now, &frame, &mut host.memory);
        }
        host.station.handle_timeout(now);
        let stops = host.station.obedience_mut().unwrap();
        host.endpoint.handle_released(now, stops);
        host.endpoint.handle_timeout_within(now, Some(stops));
        while let Some(sent) = host.endpoint.poll_transmit_within(now, &mut buffer, &host.memory, Some(&mut *stops)) {
            let bytes = buffer[..sent.len].to_vec();
            let to = usize::from(sent.dst.0[5]) - 1;
            self.wire.push((now + DELAY, to, bytes.clone()));
            host.left.push(Left { at: now, dst: sent.dst, priority: sent.priority, bytes });
        }
        assert!(!host.endpoint.wants_transmit(), "nothing is claimed that may not go");
        host.done.extend(core::iter::from_fn(|| host.endpoint.poll_completion().map(|(.., completion)| completion)));
        host.events.extend(core::iter::from_fn(|| host.endpoint.poll_event().map(|(_, event)| event)));
    }

    /// Frames of host 0 to `dst` of a priority below that of control frames, since `since`.
    fn data(&self, dst: usize, since: Instant) -> Vec<&Left> {
        let is_data = |left: &&Left| left.dst == mac(dst) && left.at >= since && left.priority < CONTROL_PRIORITY;
        self.hosts[0].left.iter().filter(is_data).collect()
    }

    fn counters(&self) -> QpCounters {
        self.hosts[0].endpoint.counters()
    }

    fn succeeded(&self, host: usize) -> usize {
        assert!(self.hosts[host].done.iter().all(|done| done.status == Status::Success), "{:?}", self.hosts[host].done);
        self.hosts[host].done.len()
    }
}

const CANCEL: StopMessage = StopMessage::Cancel;

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn a_stop_keeps_data_back_until_it_expires_or_is_cancelled() {
    let mut town = Town::new(2);
    let line = town.line(1, 3, 100_000);
    for (cancelled, span) in [(false, millis(20)), (true, millis(7))] {
        let start = town.now;
        town.stop(1, 9, 20);
        town.write(&line, 1, 100_000);
        town.run(span - Duration::from_nanos(1));
        assert_eq!(town.data(1, start).len(), 0);
        town.run(Duration::from_nanos(1));
        if cancelled {
            town.say(1, CANCEL);
            town.run(Duration::ZERO);
        }
        assert_eq!(town.data(1, start).first().map(|left| left.at), Some(start + span));
        town.run(millis(50));
    }
    assert_eq!(town.succeeded(0), 2);
    assert_eq!(town.hosts[1].memory.0[0], pattern(100_000));
}

#[test]
fn a_stop_changes_nothing_for_another_destination_not_even_by_one_frame() {
    let frames = |stopped: bool| {
        let mut town = Town::new(3);
        let lines = [1, 2, 1, 2].map(|to| town.line(to, 3, 100_000));
        let start = town.now;
        for round in 0..3 {
            lines.iter().for_each(|line| town.write(line, round, 60_000));
        }
        town.run(Duration::from_micros(7));
        if stopped {
            town.stop(1, 9, 50);
        }
        town.run(millis(30));
        let count = town.data(1, start).len();
        (town.data(2, start).into_iter().cloned().collect::<Vec<_>>(), count)
    };
    let (free, all) = frames(false);
    let (beside_a_stop, fewer) = frames(true);
    assert!(free.len() > 200 && fewer * 3 < all * 2, "{} {all} {fewer}", free.len());
    assert!(free == beside_a_stop);
}

#[test]
fn only_priorities_below_that_of_the_packet_stop() {
    let mut town = Town::new(2);
    let [low, high] = [3, 9].map(|priority| town.line(1, priority, 50_000));
    let start = town.now;
    town.stop(1, 9, 20);
    town.write(&low, 1, 50_000);
    town.write(&high, 2, 50_000);
    town.run(millis(19));
    assert!(town.data(1, start).iter().all(|left| left.priority == 9));
    assert_eq!(town.hosts[0].done.iter().map(|done| done.wr_id).collect::<Vec<_>>(), [2]);
    town.run(millis(30));
    assert_eq!(town.succeeded(0), 2);
}

#[test]
fn responses_stop_and_acknowledgements_flow() {
    let mut town = Town::new(2);
    let line = town.line(1, 3, 50_000);
    let start = town.now;
    town.stop(1, 15, 20);
    let reading = SendWork { op: SendOp::Read { remote_addr: 0, rkey: line.source.rkey }, ..send(1, sges(line.target, 0, 50_000)) };
    town.hosts[1].endpoint.post_send(town.now, APP, line.far, reading).unwrap();
    let writing = write(2, sges(line.target, 0, 50_000), 0, line.source.rkey);
    town.hosts[1].endpoint.post_send(town.now, APP, line.far, writing).unwrap();
    town.run(millis(19));
    assert_eq!(town.data(1, start).len(), 0);
    let other = town.hosts[1].endpoint.view_of(line.far).unwrap();
    assert_eq!((other.counters.packets_sent, other.in_flight), (36, 0), "the write is acknowledged");
    assert_eq!(town.hosts[1].endpoint.counters().timeouts, 0);
    town.run(millis(30));
    assert_eq!(town.succeeded(1), 2);
    assert!(town.counters().stop_limited_nanos >= 19_000_000, "{}", town.counters().stop_limited_nanos);
}

#[test]
fn who_may_not_send_blames_nobody_for_silence() {
    // In flight and lost when the stop comes, with nothing left to send, and with more.
    for more in [false, true] {
        let mut town = Town::new(2);
        let line = town.line(1, 3, 100_000);
        // Round trips are known, so that probes and time-outs are as early as they get.
        town.write(&line, 0, 5_000);
        town.run(millis(5));
        let before = town.counters();
        town.write(&line, 1, 1000);
        town.breathe(0);
        town.wire.clear();
        town.stop(1, 9, 100);
        let start = town.now;
        if more {
            town.write(&line, 2, 1000);
        }
        town.run(millis(100) - Duration::from_nanos(1));
        let counters = town.counters();
        assert_eq!((counters.timeouts, counters.retransmitted()), (before.timeouts, before.retransmitted()), "{more}");
        assert_eq!(town.data(1, start + Duration::from_nanos(1)).len(), 0);
        town.run(millis(30));
        assert_eq!(town.succeeded(0), 2 + usize::from(more));
        let counters = town.counters();
        assert!(counters.retransmitted() > before.retransmitted() && counters.timeouts <= before.timeouts + 1, "{counters:?}");
        let limited = counters.stop_limited_nanos;
        assert!(if more { limited >= 100_000_000 } else { limited < 1_000_000 }, "{more}: {limited}");
    }
}

#[test]
fn waiting_for_the_peer_begins_anew_when_a_stop_ends() {
    let mut town = Town::new(2);
    let line = town.line(1, 3, 1000);
    town.write(&line, 1, 1000);
    town.breathe(0);
    town.wire.clear();
    town.stop(1, 9, 50);
    let start = town.now;
    town.run(millis(50) + Duration::from_micros(90));
    assert_eq!(town.data(1, start + Duration::from_nanos(1)).len(), 0, "less than a time-out has passed since the stop ended");
    town.run(millis(5));
    assert_eq!(town.succeeded(0), 1);
}

#[test]
fn an_idle_connection_stays_alive_under_a_stop() {
    let mut town = Town::new(2);
    let line = town.line(1, 3, 1000);
    // The keepalive is 100 ms.
    town.stop(1, 15, 255);
    town.run(millis(50));
    town.write(&line, 1, 1000);
    let start = town.now;
    town.run(millis(150));
    assert_eq!(town.data(1, start).len(), 0);
    assert!(town.counters().keepalives_sent >= 1);
    let heard = town.hosts[0].endpoint.view_of(line.near).unwrap().last_heard.unwrap();
    assert!(town.now.since(heard) < millis(110), "{:?}", town.now.since(heard));
    town.run(millis(100));
    assert_eq!(town.succeeded(0), 1);
}

#[test]
fn when_everything_is_stopped_answers_wait_too_and_nothing_fails() {
    let mut town = Town::made(2, |host| config(host, Recovery::Irn), PriorityRule::None);
    let line = town.line(1, 15, 50_000);
    let writing = write(2, sges(line.target, 0, 5_000), 0, line.source.rkey);
    town.stop(1, 0, 8);
    let start = town.now;
    town.hosts[1].endpoint.post_send(town.now, APP, line.far, writing).unwrap();
    town.write(&line, 1, 50_000);
    town.run(millis(8) - Duration::from_nanos(1));
    assert!(town.hosts[0].left.iter().all(|left| left.at < start), "not even an acknowledgement");
    town.run(millis(20));
    assert_eq!((town.succeeded(0), town.succeeded(1)), (1, 1));
}

#[test]
fn a_destination_that_is_slowed_down_gets_its_share_from_one_and_from_a_thousand_queue_pairs() {
    for count in [1, 1000] {
        let mut town = Town::new(2);
        let lines: Vec<Line> = (0..count).map(|_| town.line(1, 3, 1400 * 40)).collect();
        town.say(1, StopMessage::Stop { priority: 9, timer: 255, rate: 2 });
        let start = town.now;
        (0..if count == 1 { 60 } else { 1 }).for_each(|round| lines.iter().for_each(|line| town.write(line, round, 1400 * 40)));
        let span = millis(250);
        town.run(span);
        let data = town.data(1, start);
        let bits: u64 = data.iter().map(|left| (left.bytes.len() as u64 + 24) * 8).sum();
        let expected = 12_500_000 * span.as_nanos() / 1_000_000_000;
        assert!(bits.abs_diff(expected) <= expected / 50, "{count} queue pairs: {bits} instead of {expected} bits");
        if count > 1 {
            // Behind the Ethernet header, a tag and 12 bytes of ours the BTH begins; the queue pair is at its byte 5.
            let targets: BTreeSet<_> = data.iter().map(|left| left.bytes[18 + 12 + 5..18 + 12 + 8].to_vec()).collect();
            // Whoever sent before the wire was busy for the first time waits in front of the others.
            assert!(
                targets.len() + 1 >= data.len(),
                "nobody else has a second turn before all had one: {} of {}",
                targets.len(),
                data.len()
            );
        }
        assert_eq!(town.counters().timeouts, 0);
    }
}

#[test]
fn the_trace_says_that_a_queue_pair_is_stopped() {
    let mut town = Town::new(2);
    let line = town.line(1, 3, 1000);
    town.stop(1, 9, 5);
    town.write(&line, 1, 1000);
    town.run(millis(2));
    let trace = town.hosts[0].endpoint.trace_of(line.near).unwrap();
    assert_eq!(trace.last().unwrap().event, TraceEvent::Held(Gate::Stopped));
}

#[test]
fn parked_queue_pairs_that_end_are_not_waited_for() {
    let mut town = Town::new(2);
    let lines: Vec<Line> = (0..5).map(|_| town.line(1, 3, 1400)).collect();
    town.stop(1, 9, 20);
    lines.iter().for_each(|line| town.write(line, 1, 1400));
    town.run(millis(5));
    town.hosts[0].endpoint.destroy_qp(town.now, APP, lines[0].near).unwrap();
    town.hosts[0].endpoint.disconnect(town.now, APP, lines[1].near).unwrap();
    town.hosts[0].endpoint.drain(APP, lines[2].near).unwrap();
    town.run(millis(1));
    let again = town.line(1, 3, 1400);
    town.write(&again, 6, 1400);
    town.run(millis(13));
    assert_eq!(town.hosts[0].done.iter().filter(|done| done.status == Status::Flushed).count(), 2);
    assert_eq!(town.hosts[0].done.len(), 2);
    town.run(millis(5));
    assert_eq!(town.hosts[0].done.iter().filter(|done| done.status == Status::Success).count(), 3, "those that go on");
    town.hosts[0].endpoint.resume(APP, lines[2].near).unwrap();
    town.run(millis(5));
    assert_eq!(town.hosts[0].done.len(), 6);
    assert!(town.hosts[0].endpoint.parking.is_empty());
}

#[test]
fn a_called_queue_pair_that_is_destroyed_holds_up_nobody() {
    let mut town = Town::new(2);
    let lines: Vec<Line> = (0..3).map(|_| town.line(1, 3, 1400)).collect();
    town.stop(1, 9, 5);
    lines.iter().for_each(|line| town.write(line, 1, 1400));
    town.run(millis(1));
    // The first is called at the deadline of the lot, and destroyed before its turn.
    town.now += millis(4);
    town.hosts[0].endpoint.handle_timeout(town.now);
    town.hosts[0].endpoint.destroy_qp(town.now, APP, lines[0].near).unwrap();
    town.run(millis(5));
    assert_eq!(town.hosts[0].done.iter().filter(|done| done.status == Status::Success).count(), 2);
}

#[test]
fn a_driver_that_asks_no_more_lets_everybody_go() {
    let mut town = Town::new(2);
    let line = town.line(1, 3, 1400);
    town.stop(1, 9, 200);
    town.write(&line, 1, 1400);
    town.run(millis(1));
    let host = &mut town.hosts[0];
    // The lot's deadline wakes one; without stop control all go.
    let due = host.endpoint.parking.poll_timeout().unwrap();
    host.endpoint.handle_timeout(due);
    assert!(host.endpoint.poll_transmit(due, &mut [0; 1518], &host.memory).is_some());
    assert!(host.endpoint.parking.is_empty());
}

#[test]
fn frames_have_half_of_their_queue_pairs_priority_as_802_1p_priority() {
    let tagged = |class: Option<u8>, priority: Option<u8>| {
        let mut town = Town::made(2, |host| EndpointConfig { priority: class, ..config(host, Recovery::Irn) }, PriorityRule::Packet);
        let init = QpInit { priority, ..QpInit::new(CQ, 4) };
        let qps = [0, 1].map(|host| town.hosts[host].endpoint.create_qp(APP, init).unwrap());
        town.hosts[0].endpoint.connect(town.now, APP, qps[0], mac(1), SERVICE, b"").unwrap();
        town.run(Duration::from_micros(30));
        let Some(Event::ConnectRequest { request, .. }) = town.hosts[1].events.first().cloned() else { panic!() };
        town.hosts[1].endpoint.accept(town.now, APP, request, qps[1], b"").unwrap();
        town.run(Duration::from_micros(30));
        let messages = town.hosts[0].left.len();
        let work = SendWork::new(1, SendOp::Write { remote_addr: 0, rkey: 0 }, Data::EMPTY);
        town.hosts[0].endpoint.post_send(town.now, APP, qps[0], work).unwrap();
        town.run(Duration::from_micros(1));
        let tag = |left: &Left| Ethernet::parse(&left.bytes).unwrap().0.vlan.map(|vlan| vlan.priority);
        let (message, data) = (&town.hosts[0].left[0], &town.hosts[0].left[messages]);
        assert_eq!(message.priority, CONTROL_PRIORITY);
        (tag(message), tag(data), data.priority)
    };
    assert_eq!(tagged(None, None), (None, None, 0));
    assert_eq!(tagged(None, Some(1)), (None, None, 1));
    assert_eq!(tagged(None, Some(15)), (None, Some(7), 15));
    assert_eq!(tagged(Some(3), None), (Some(3), Some(3), 6));
    assert_eq!(tagged(Some(3), Some(1)), (Some(3), Some(0), 1));
    let mut town = Town::new(1);
    let beyond = QpInit { priority: Some(16), ..QpInit::new(CQ, 4) };
    assert_eq!(town.hosts[0].endpoint.create_qp(APP, beyond), Err(CommandError::BadArgument));
}
