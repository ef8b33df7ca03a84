//! One queue pair over two cables between two hosts, each cable a VLAN of its own.

use weft_proto::switch::{Impairment, PortConfig, PortRole, Switch, SwitchConfig, Vlans};
use weft_proto::transport::{Endpoint, EndpointConfig, Event, Paths, QpCounters, Recovery, Status};
use weft_proto::wire::Ethernet;
use weft_proto::{BitRate, Duration, FrameRef, Instant, Pool, PortId, Rng, time};
use weft_tests::memory::Blocks;
use weft_tests::pair::{APP, FULL, SERVICE, config, mac, pattern, sges, write};

const LOCAL: PortId = PortId(0);
const CABLES: [PortId; 2] = [PortId(1), PortId(2)];
const IDS: [u16; 2] = [10, 20];
/// The second cable is longer by so much that two dozen packets of the first overtake each of its own.
const DELAYS: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(170)];

struct Host {
    endpoint: Endpoint,
    memory: Blocks,
    switch: Switch,
}

struct World {
    now: Instant,
    pool: Pool,
    hosts: [Host; 2],
    /// Frames per cable, all hosts together.
    carried: [u64; 2],
}

fn host(number: usize, paths: Paths) -> Host {
    let cable = |index: usize| PortConfig {
        rate: BitRate::new(1_000_000_000),
        vlans: Vlans::of(&[IDS[index]]),
        impair_egress: Impairment { delay: DELAYS[index], ..Impairment::NONE },
        ..PortConfig::new(PortRole::Host)
    };
    let ports = [PortConfig::new(PortRole::Local), cable(0), cable(1)];
    let mut switch = Switch::new(&SwitchConfig { frames: 4096, ..SwitchConfig::default() }, &ports, Rng::from_seed(9));
    switch.set_static(mac(number), LOCAL).unwrap();
    let limits = EndpointConfig {
        paths,
        bdp_cap: weft_proto::transport::BdpCap::Packets(256),
        rto_low: Duration::from_millis(1),
        rto_high: Duration::from_millis(4),
        ..config(number, Recovery::Irn)
    };
    Host { endpoint: Endpoint::new(limits, Rng::from_seed(number as u64 + 1)), memory: Blocks::default(), switch }
}

impl World {
    fn new(paths: Paths) -> Self {
        let hosts = [host(0, paths), host(1, paths)];
        Self { now: Instant::from_nanos(1), pool: Pool::new(4096, 1600, 32), hosts, carried: [0; 2] }
    }

    /// Runs until `done`, or for at most a second.
    fn run(&mut self, mut done: impl FnMut(&mut [Host; 2], Instant) -> bool) {
        let end = self.now + Duration::from_secs(1);
        while self.now < end {
            for from in 0..2 {
                self.send(from);
                self.carry(from);
            }
            if done(&mut self.hosts, self.now) {
                return;
            }
            let timeouts = self.hosts.iter().map(|host| time::earliest(host.endpoint.poll_timeout(), host.switch.poll_timeout(|_| true)));
            let Some(next) = timeouts.flatten().min() else { return };
            self.now = next.max(self.now + Duration::from_nanos(100));
            for host in &mut self.hosts {
                host.endpoint.handle_timeout(self.now);
                host.switch.handle_timeout(self.now, &mut self.pool);
            }
        }
    }

    /// The endpoint sends while its queues are short.
    fn send(&mut self, host: usize) {
        let Host { endpoint, memory, switch } = &mut self.hosts[host];
        while CABLES.iter().map(|&cable| switch.queued_from(LOCAL, cable).frames).sum::<u64>() < 16 {
            let frame = self.pool.alloc().unwrap();
            let Some(sent) = endpoint.poll_transmit(self.now, self.pool.room_mut(&frame), memory) else { return self.pool.free(frame) };
            self.pool.set_len(&frame, sent.len);
            switch.ingest(self.now, &mut self.pool, LOCAL, frame);
        }
    }

    fn carry(&mut self, from: usize) {
        let mut out: Vec<FrameRef> = Vec::new();
        for (index, cable) in CABLES.into_iter().enumerate() {
            self.hosts[from].switch.egress(self.now, &mut self.pool, cable, 64, &mut out);
            for frame in out.drain(..) {
                self.carried[index] += 1;
                let tag = Ethernet::parse(self.pool.bytes(&frame)).unwrap().0.vlan.unwrap();
                assert_eq!(tag.id, IDS[index]);
                self.hosts[1 - from].switch.ingest(self.now, &mut self.pool, cable, frame);
            }
        }
        let Host { endpoint, memory, switch } = &mut self.hosts[1 - from];
        switch.egress(self.now, &mut self.pool, LOCAL, 4096, &mut out);
        for frame in out.drain(..) {
            endpoint.handle_frame(self.now, self.pool.bytes(&frame), memory);
            self.pool.free(frame);
        }
    }
}

/// Writes 8 MB and returns the time that it took, what was counted, and the frames on each cable.
fn transfer(paths: &[u16]) -> (Duration, QpCounters, [u64; 2]) {
    const LEN: usize = 8_000_000;
    let mut world = World::new(Paths::new(paths).unwrap());
    let data = pattern(LEN);
    let qps = [0, 1].map(|host: usize| {
        let init = weft_proto::transport::QpInit::new(weft_proto::transport::CqId(0), 16);
        world.hosts[host].endpoint.create_qp(APP, init).unwrap()
    });
    let keys = [0, 1].map(|host: usize| {
        let mem = world.hosts[host].memory.add(LEN);
        (mem, world.hosts[host].endpoint.register(APP, mem, 0, LEN as u64, FULL).unwrap())
    });
    world.hosts[0].memory.bytes_mut(keys[0].0).copy_from_slice(&data);
    world.hosts[1].endpoint.listen(APP, SERVICE).unwrap();
    world.hosts[0].endpoint.connect(world.now, APP, qps[0], mac(1), SERVICE, b"").unwrap();
    world.run(|hosts, now| {
        if let Some((_, Event::ConnectRequest { request, .. })) = hosts[1].endpoint.poll_event() {
            hosts[1].endpoint.accept(now, APP, request, qps[1], b"").unwrap();
        }
        matches!(hosts[0].endpoint.poll_event(), Some((_, Event::Established { .. })))
    });
    let start = world.now;
    let work = write(1, sges(keys[0].1, 0, u32::try_from(LEN).unwrap()), 0, keys[1].1.rkey);
    world.hosts[0].endpoint.post_send(start, APP, qps[0], work).unwrap();
    world.run(|hosts, _| hosts[0].endpoint.poll_completion().is_some_and(|(.., completion)| completion.status == Status::Success));
    assert!(world.hosts[1].memory.bytes(keys[1].0) == data, "every byte arrives");
    (world.now.since(start), world.hosts[0].endpoint.counters(), world.carried)
}

#[test]
fn a_queue_pair_over_two_cables_of_different_length_carries_nearly_twice_as_much_and_takes_the_disorder_for_no_loss() {
    let (one, ..) = transfer(&IDS[..1]);
    let (two, counters, carried) = transfer(&IDS);
    let again = counters.retransmitted();
    println!("one path {one}, two paths {two}, {again} of {} packets sent again, frames per cable {carried:?}", counters.packets_sent);
    assert!(one.as_nanos() * 10 >= two.as_nanos() * 17, "one path takes {one}, two take {two}");
    assert!(again * 100 < counters.packets_sent, "{again} of {} sent again", counters.packets_sent);
    assert!(carried[0].abs_diff(carried[1]) * 20 < carried[0], "both cables carry their half: {carried:?}");
}

#[test]
fn without_paths_no_frame_has_a_tag_and_with_them_a_packet_sent_again_takes_another() {
    let mut pair = weft_tests::pair::Pair::new(Recovery::Irn);
    let [a, _] = pair.connect();
    let (_, local) = pair.region(0, &pattern(100_000));
    let (_, remote) = pair.region(1, &[0; 100_000]);
    pair.post(0, a, write(1, sges(local, 0, 100_000), 0, remote.rkey));
    pair.run(Duration::from_millis(5), |seen| {
        assert_eq!(seen.packet.eth.vlan, None);
        weft_tests::pair::Fate::Pass
    });
    let sprayed = |host| EndpointConfig { paths: Paths::new(&[10, 20, 30]).unwrap(), priority: Some(5), ..config(host, Recovery::Irn) };
    let mut pair: weft_tests::pair::Pair = weft_tests::pair::Pair::with(vec![sprayed(0), sprayed(1)], |host| Rng::from_seed(host + 1));
    let [a, _] = pair.connect();
    let (_, local) = pair.region(0, &pattern(100_000));
    let (_, remote) = pair.region(1, &[0; 100_000]);
    pair.post(0, a, write(1, sges(local, 0, 100_000), 0, remote.rkey));
    let (mut first, mut again) = (std::collections::BTreeMap::new(), 0);
    pair.run(Duration::from_millis(5), |seen| {
        let tag = seen.packet.eth.vlan.unwrap();
        assert_eq!(tag.priority, 5);
        let Some(psn) = seen.request() else { return weft_tests::pair::Fate::Pass };
        if let Some(before) = first.insert(psn.value(), tag.id) {
            assert_ne!(before, tag.id);
            again += 1;
            return weft_tests::pair::Fate::Pass;
        }
        // Everything on one path is lost.
        if tag.id == 20 { weft_tests::pair::Fate::Drop } else { weft_tests::pair::Fate::Pass }
    });
    assert!(again >= 20, "{again}");
    assert_eq!(pair.completions[0].len(), 1);
}
