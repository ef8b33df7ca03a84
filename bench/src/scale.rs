//! Two endpoints with many queue pairs between them: what one costs beside the others, in time and in memory.

use weft_proto::transport::{
    Access, AppId, CqId, Data, Endpoint, EndpointConfig, Event, MemId, QpInit, QpNum, SendOp, SendWork, SgList, Sge,
};
use weft_proto::wire::MacAddr;
use weft_proto::{Duration, Instant, Rng};

use crate::Cost;
use crate::stream::Block;

const APP: AppId = AppId(1);
/// Frames handed over at a time.
const BATCH: usize = 64;
/// Bytes of a message: 64 full packets of MTU 1500.
const MESSAGE: u32 = 64 * 1400;
/// Requests that wait for an application's answer at a time: fewer than a host may have waiting.
const AT_A_TIME: usize = 16;
const MTU: usize = 1500;

/// Two endpoints and the queue pairs between them.
pub struct Crowd {
    now: Instant,
    hosts: [Endpoint; 2],
    memory: [Block; 2],
    /// Of the sending host, in the order of connecting.
    qps: Vec<QpNum>,
    local: SgList,
    rkey: u32,
    frames: Vec<Vec<u8>>,
    lengths: Vec<usize>,
    /// Time that passes per data frame.
    frame_time: Duration,
}

impl Crowd {
    /// Two endpoints without queue pairs, with room for `limit`. `keepalive` is how often an idle peer is asked for a sign of life.
    ///
    /// # Panics
    /// If a region cannot be registered: a bug.
    pub fn new(limit: u32, keepalive: Duration) -> Self {
        let config = |host: u8| EndpointConfig {
            max_qps: limit,
            keepalive,
            peer_timeout: keepalive.saturating_mul(5),
            ..EndpointConfig::new(MacAddr([2, 0, 0, 0, 0, host + 1]))
        };
        let mut hosts = [0u8, 1].map(|host| Endpoint::new(config(host), Rng::from_seed(u64::from(host))));
        let full = Access { local_write: true, remote_write: true, ..Access::default() };
        let keys = [0, 1].map(|host: usize| hosts[host].register(APP, MemId(0), 0, u64::from(MESSAGE), full).expect("room for a region"));
        hosts[1].listen(APP, 1).expect("a free service");
        Self {
            now: Instant::from_nanos(1),
            hosts,
            memory: [0u8, 1].map(|host| Block::new(host, MESSAGE as usize)),
            qps: Vec::new(),
            local: SgList::new(&[Sge { addr: 0, len: MESSAGE, lkey: keys[0].lkey }]).expect("one entry"),
            rkey: keys[1].rkey,
            frames: vec![vec![0; MTU + 18]; BATCH],
            lengths: Vec::with_capacity(BATCH),
            frame_time: Duration::from_nanos(1),
        }
    }

    /// Connects `count` further queue pairs.
    ///
    /// # Panics
    /// If one does not come about: a bug.
    pub fn connect(&mut self, count: usize) {
        self.qps.reserve(count);
        let mut left = count;
        while left > 0 {
            let group = left.min(AT_A_TIME);
            self.connect_group(group);
            left -= group;
        }
    }

    fn connect_group(&mut self, count: usize) {
        let init = QpInit::new(CqId(0), 64);
        for _ in 0..count {
            let qp = self.hosts[0].create_qp(APP, init).expect("room for a queue pair");
            self.hosts[0].connect(self.now, APP, qp, self.hosts[1].config().mac, 1, &[]).expect("a fresh queue pair");
            self.qps.push(qp);
        }
        self.exchange();
        while let Some((_, event)) = self.hosts[1].poll_event() {
            let Event::ConnectRequest { request, .. } = event else { continue };
            let qp = self.hosts[1].create_qp(APP, init).expect("room for a queue pair");
            self.hosts[1].accept(self.now, APP, request, qp, &[]).expect("a fresh queue pair");
        }
        self.exchange();
        self.exchange();
        let stand =
            std::iter::from_fn(|| self.hosts[0].poll_event()).filter(|(_, event)| matches!(event, Event::Established { .. })).count();
        assert_eq!(stand, count, "connections that stand");
    }

    /// Hands over everything that the hosts have to say, and returns how many frames that was.
    fn exchange(&mut self) -> u64 {
        let mut frames = 0;
        for host in 0..2 {
            while self.build(host) > 0 {
                frames += self.lengths.len() as u64;
                self.take(1 - host);
            }
        }
        frames
    }

    fn build(&mut self, host: usize) -> u64 {
        self.lengths.clear();
        for frame in &mut self.frames {
            let Some(sent) = self.hosts[host].poll_transmit(self.now, frame, &self.memory[host]) else { break };
            self.lengths.push(sent.len);
        }
        self.lengths.len() as u64
    }

    fn take(&mut self, host: usize) {
        for (frame, &len) in self.frames.iter().zip(&self.lengths) {
            self.hosts[host].handle_frame(self.now, &frame[..len], &mut self.memory[host]);
        }
    }

    /// Moves about `frames` data frames over the first `busy` queue pairs, which all always have something to send.
    /// What is counted is everything at both ends, acknowledgements included, per data frame.
    ///
    /// # Panics
    /// If a request is not taken: a bug.
    pub fn run(&mut self, busy: usize, frames: u64, cost: &mut Cost) {
        let goal = cost.frames + frames;
        self.keep_busy(busy);
        while cost.frames < goal {
            cost.measure(|| self.batch());
            self.keep_busy(busy);
        }
    }

    fn batch(&mut self) -> u64 {
        let frames = self.build(0);
        self.now += self.frame_time.saturating_mul(frames.max(1));
        self.take(1);
        self.build(1);
        self.take(0);
        self.hosts.iter_mut().for_each(|host| host.handle_timeout(self.now));
        frames
    }

    /// Tops up every queue pair to two messages.
    fn keep_busy(&mut self, busy: usize) {
        while self.hosts[0].poll_completion().is_some() {}
        let work = SendWork::new(0, SendOp::Write { remote_addr: 0, rkey: self.rkey }, Data::List(self.local));
        for index in 0..busy.min(self.qps.len()) {
            let qp = self.qps[index];
            while self.hosts[0].view_of(qp).is_some_and(|view| view.outstanding.0 < 2) {
                self.hosts[0].post_send(self.now, APP, qp, work).expect("room in the queue");
            }
        }
    }

    /// Lets `time` pass while nobody posts anything. Returns the most frames that were due at one instant, and adds up
    /// what all of it cost.
    pub fn idle(&mut self, time: Duration, cost: &mut Cost) -> u64 {
        let end = self.now + time;
        let mut burst = 0;
        while let Some(at) = self.hosts.iter().filter_map(Endpoint::poll_timeout).min().filter(|&at| at <= end) {
            self.now = at.max(self.now);
            cost.measure(|| {
                self.hosts.iter_mut().for_each(|host| host.handle_timeout(self.now));
                let frames = self.exchange();
                burst = burst.max(frames);
                frames
            });
        }
        self.now = end;
        burst
    }

    /// Acknowledgements that the receiving host sent, and data frames that the sending host sent.
    pub fn acknowledgements(&self) -> (u64, u64) {
        (self.hosts[1].counters().acks_sent, self.hosts[0].counters().packets_sent)
    }

    /// Time that passes per data frame from now on.
    pub const fn set_frame_time(&mut self, time: Duration) {
        self.frame_time = time;
    }
}

impl std::fmt::Debug for Crowd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crowd").field("now", &self.now).field("queue_pairs", &self.qps.len()).finish_non_exhaustive()
    }
}
