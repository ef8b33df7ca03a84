//! A few hosts on a scripted wire: every frame passes a filter that lets it through, drops, doubles or holds it.
//!
//! For faults that need one certain frame to be hit. Random faults are the business of the `world`.

use weft_proto::transport::{
    Access, AppId, AtomicOp, BdpCap, Completion, CqId, Data, Endpoint, EndpointConfig, Event, Keys, MemId, Memory, Psn, QpCounters, QpInit,
    QpNum, Recovery, RecvWork, RequestId, SendOp, SendWork, SgList, Sge,
};
use weft_proto::wire::{Body, MacAddr, Packet};
use weft_proto::{Duration, Instant, Rng};

use crate::memory::Blocks;

/// The application that everything belongs to.
pub const APP: AppId = AppId(1);
/// The service that it listens on.
pub const SERVICE: u16 = 7;
/// All rights.
pub const FULL: Access = Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };
/// One way over the wire.
pub const DELAY: Duration = Duration::from_micros(5);

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives after [`DELAY`].
    Pass,
    /// It does not arrive.
    Drop,
    /// It arrives twice.
    Double,
    /// It arrives later by so much.
    Hold(Duration),
}

/// A frame on the wire, as the filter sees it.
#[derive(Debug)]
pub struct Seen<'a> {
    /// Who sent it.
    pub from: usize,
    /// When.
    pub now: Instant,
    /// Its meaning.
    pub packet: Packet<'a>,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Seen<'_> {
    /// The sequence number, if it is a request.
    pub const fn request(&self) -> Option<Psn> {
        match self.packet.body {
            Body::Send { .. } | Body::Write { .. } | Body::ReadRequest { .. } | Body::Atomic { .. } => Some(self.packet.base.psn),
            _ => None,
        }
    }

    /// The sequence number, if it is a response to a READ or atomic.
    pub const fn response(&self) -> Option<Psn> {
        match self.packet.body {
            Body::ReadResponse { .. } | Body::AtomicResponse { .. } => Some(self.packet.base.psn),
            _ => None,
        }
    }

    /// True if it is an acknowledgement of any kind.
    pub const fn is_ack(&self) -> bool {
        matches!(self.packet.body, Body::Ack(_) | Body::ReadAck(_))
    }
}

/// Hosts on a wire.
#[derive(Debug)]
pub struct Pair<M = Blocks> {
    /// The time.
    pub now: Instant,
    /// The endpoints.
    pub hosts: Vec<Endpoint>,
    /// Their applications' memory.
    pub memory: Vec<M>,
    /// Completions so far.
    pub completions: Vec<Vec<Completion>>,
    /// Events so far, without connection requests.
    pub events: Vec<Vec<Event>>,
    /// Connection requests not answered yet.
    pub requests: Vec<Vec<RequestId>>,
    wire: Vec<(Instant, usize, Vec<u8>)>,
}

/// The address of a host.
pub fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, u8::try_from(host + 1).unwrap_or(u8::MAX)])
}

/// A configuration with short times.
pub fn config(host: usize, recovery: Recovery) -> EndpointConfig {
    EndpointConfig {
        recovery,
        bdp_cap: BdpCap::Packets(64),
        rto_low: Duration::from_micros(100),
        rto_high: Duration::from_micros(320),
        rnr_retry: 3,
        rnr_delay: Duration::from_micros(640),
        ack_delay: Duration::from_micros(20),
        ack_every: 8,
        keepalive: Duration::from_millis(100),
        connect_timeout: Duration::from_millis(1),
        connect_retries: 5,
        ..EndpointConfig::new(mac(host))
    }
}

impl Pair {
    /// Two hosts with the usual configuration.
    pub fn new(recovery: Recovery) -> Self {
        Self::with(vec![config(0, recovery), config(1, recovery)], |host| Rng::from_seed(host + 1))
    }

    /// Two connected hosts and their queue pairs.
    pub fn connected(recovery: Recovery) -> (Self, [QpNum; 2]) {
        let mut pair = Self::new(recovery);
        let qps = pair.connect();
        (pair, qps)
    }

    /// A registered block with these bytes, which its application addresses from 0.
    pub fn region(&mut self, host: usize, bytes: &[u8]) -> (MemId, Keys) {
        let mem = self.memory[host].add(bytes.len());
        self.memory[host].bytes_mut(mem).copy_from_slice(bytes);
        (mem, self.hosts[host].register(APP, mem, 0, bytes.len() as u64, FULL).expect("room"))
    }

    /// The bytes of a block.
    pub fn bytes(&self, host: usize, mem: MemId) -> &[u8] {
        self.memory[host].bytes(mem)
    }
}

impl<M: Memory + Default> Pair<M> {
    /// Hosts with these configurations and generators.
    pub fn with(configs: Vec<EndpointConfig>, rng: impl Fn(u64) -> Rng) -> Self {
        let hosts: Vec<Endpoint> = configs.into_iter().zip(0..).map(|(config, host)| Endpoint::new(config, rng(host))).collect();
        let count = hosts.len();
        let mut pair = Self {
            now: Instant::from_nanos(1),
            hosts,
            memory: (0..count).map(|_| M::default()).collect(),
            completions: vec![Vec::new(); count],
            events: vec![Vec::new(); count],
            requests: vec![Vec::new(); count],
            wire: Vec::new(),
        };
        pair.hosts.iter_mut().for_each(|host| host.listen(APP, SERVICE).expect("a free service"));
        pair
    }

    /// A new queue pair with 64 requests either way.
    pub fn queue_pair(&mut self, host: usize) -> QpNum {
        let init = QpInit::new(CqId(0), 64);
        self.hosts[host].create_qp(APP, init).expect("room")
    }

    /// A connection between the first two hosts.
    pub fn connect(&mut self) -> [QpNum; 2] {
        self.connect_hosts([0, 1])
    }

    /// A connection from one host to another.
    pub fn connect_hosts(&mut self, ends: [usize; 2]) -> [QpNum; 2] {
        let qps = ends.map(|host| self.queue_pair(host));
        self.connect_queue_pairs(ends, qps);
        qps
    }

    /// A connection of queue pairs that exist.
    pub fn connect_queue_pairs(&mut self, ends: [usize; 2], qps: [QpNum; 2]) {
        self.hosts[ends[0]].connect(self.now, APP, qps[0], mac(ends[1]), SERVICE, b"").expect("room");
        self.run(Duration::from_micros(50), |_| Fate::Pass);
        let request = self.requests[ends[1]].pop().expect("a request");
        self.hosts[ends[1]].accept(self.now, APP, request, qps[1], b"").expect("an open request");
        self.run(Duration::from_micros(50), |_| Fate::Pass);
        for (host, number) in ends.into_iter().zip(qps) {
            let stands = |event: &Event| matches!(event, Event::Established { qp, .. } if *qp == number);
            assert!(self.events[host].iter().any(stands), "{:?}", self.events);
            self.events[host].clear();
        }
    }

    /// Posts a request.
    pub fn post(&mut self, host: usize, qp: QpNum, work: SendWork) {
        self.hosts[host].post_send(self.now, APP, qp, work).expect("room");
    }

    /// Posts a receive.
    pub fn receive(&mut self, host: usize, qp: QpNum, wr_id: u64, local: SgList) {
        self.hosts[host].post_recv(APP, qp, RecvWork { wr_id, local }).expect("room");
    }

    /// Lets time pass; every frame sent passes `filter`.
    pub fn run(&mut self, time: Duration, mut filter: impl FnMut(&Seen<'_>) -> Fate) {
        let end = self.now + time;
        let mut buffer = vec![0; 70_000];
        for _ in 0..10_000_000 {
            for host in 0..self.hosts.len() {
                self.poll(host, &mut buffer, &mut filter);
            }
            let arrival = self.wire.iter().map(|(at, ..)| *at).min();
            let next = self.hosts.iter().map(Endpoint::poll_timeout).chain([arrival]).flatten().min();
            let Some(at) = next.filter(|&at| at <= end) else {
                self.now = end;
                return;
            };
            self.now = at.max(self.now);
            let due: Vec<_> = self.wire.extract_if(.., |(at, ..)| *at <= self.now).collect();
            for (_, host, frame) in due {
                self.deliver(host, &frame);
            }
            self.hosts.iter_mut().for_each(|host| host.handle_timeout(self.now));
        }
        panic!("the hosts do not come to rest");
    }

    /// Lets time pass without faults until everything ought to be done.
    pub fn settle(&mut self) {
        self.run(Duration::from_millis(50), |_| Fate::Pass);
    }

    /// Hands a frame to a host.
    pub fn deliver(&mut self, host: usize, frame: &[u8]) {
        self.hosts[host].handle_frame(self.now, frame, &mut self.memory[host]);
    }

    fn poll(&mut self, host: usize, buffer: &mut [u8], filter: &mut impl FnMut(&Seen<'_>) -> Fate) {
        while let Some(sent) = self.hosts[host].poll_transmit(self.now, buffer, &self.memory[host]) {
            let bytes = &buffer[..sent.len];
            let packet = Packet::parse(bytes).expect("endpoints send what parses");
            // Strangers are told that they are strangers; a made-up one is not on this wire.
            let Some(to) = (0..self.hosts.len()).find(|&to| mac(to) == sent.dst) else { continue };
            let (copies, extra) = match filter(&Seen { from: host, now: self.now, packet, bytes }) {
                Fate::Pass => (1, Duration::ZERO),
                Fate::Drop => (0, Duration::ZERO),
                Fate::Double => (2, Duration::ZERO),
                Fate::Hold(extra) => (1, extra),
            };
            (0..copies).for_each(|_| self.wire.push((self.now + DELAY + extra, to, bytes.to_vec())));
        }
        while let Some((_, _, completion)) = self.hosts[host].poll_completion() {
            self.completions[host].push(completion);
        }
        while let Some((_, event)) = self.hosts[host].poll_event() {
            match event {
                Event::ConnectRequest { request, .. } => self.requests[host].push(request),
                event => self.events[host].push(event),
            }
        }
    }

    /// The counters of a host.
    pub fn counters(&self, host: usize) -> QpCounters {
        self.hosts[host].counters()
    }
}

/// `len` bytes at `addr`.
pub fn sges(keys: Keys, addr: u64, len: u32) -> SgList {
    SgList::new(&[Sge { addr, len, lkey: keys.lkey }]).expect("one entry fits")
}

/// A SEND that asks for a completion.
pub const fn send(wr_id: u64, local: SgList) -> SendWork {
    SendWork::new(wr_id, SendOp::Send, Data::List(local))
}

/// A WRITE that asks for a completion.
pub const fn write(wr_id: u64, local: SgList, remote_addr: u64, rkey: u32) -> SendWork {
    SendWork { op: SendOp::Write { remote_addr, rkey }, ..send(wr_id, local) }
}

/// A READ.
pub const fn read(wr_id: u64, local: SgList, remote_addr: u64, rkey: u32) -> SendWork {
    SendWork { op: SendOp::Read { remote_addr, rkey }, ..send(wr_id, local) }
}

/// An atomic.
pub const fn atomic(wr_id: u64, local: SgList, remote_addr: u64, rkey: u32, op: AtomicOp) -> SendWork {
    SendWork { op: SendOp::Atomic { remote_addr, rkey, op }, ..send(wr_id, local) }
}

/// Bytes that differ at every place that matters.
pub fn pattern(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    crate::memory::fill_pattern(len as u64, &mut bytes);
    bytes
}
