//! Two endpoints and an endless WRITE between them, batch by batch, each stage measured by itself.

use weft_proto::transport::{
    Access, AppId, CqId, Data, Endpoint, EndpointConfig, Event, MemId, Memory, MemoryGone, QpInit, QpNum, SendOp, SendWork, SgList, Sge,
};
use weft_proto::wire::{MacAddr, packet::Packet};
use weft_proto::{Duration, Instant, Rng};

use crate::Cost;

const APP: AppId = AppId(1);
const BATCH: usize = 64;
const MESSAGE: u32 = 1 << 20;

/// Application memory.
pub(crate) struct Block(Vec<u8>);

impl Block {
    /// `len` bytes of one value.
    pub(crate) fn new(value: u8, len: usize) -> Self {
        Self(vec![value; len])
    }

    fn range(&self, offset: u64, len: usize) -> Result<std::ops::Range<usize>, MemoryGone> {
        let start = usize::try_from(offset).map_err(|_| MemoryGone)?;
        if start + len <= self.0.len() { Ok(start..start + len) } else { Err(MemoryGone) }
    }
}

impl Memory for Block {
    fn read(&self, _: MemId, offset: u64, out: &mut [u8]) -> Result<(), MemoryGone> {
        out.copy_from_slice(&self.0[self.range(offset, out.len())?]);
        Ok(())
    }

    fn write(&mut self, _: MemId, offset: u64, data: &[u8]) -> Result<(), MemoryGone> {
        let range = self.range(offset, data.len())?;
        self.0[range].copy_from_slice(data);
        Ok(())
    }
}

/// Costs by stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamCosts {
    /// Parsing and verifying a data frame.
    pub parse: Cost,
    /// Building data frames: gates, copy from memory, headers, CRC.
    pub build: Cost,
    /// Taking data frames: parse, checks, copy to memory, receive window.
    pub place: Cost,
    /// Building and taking acknowledgements.
    pub acknowledge: Cost,
}

/// The two endpoints.
pub struct Stream {
    now: Instant,
    hosts: [Endpoint; 2],
    memory: [Block; 2],
    qp: QpNum,
    local: SgList,
    rkey: u32,
    frames: Vec<Vec<u8>>,
    lengths: Vec<usize>,
    loss_every: Option<u64>,
    sent: u64,
}

impl Stream {
    /// A connected pair with frames of `mtu` bytes payload. `loss_every` loses every n-th data frame.
    ///
    /// # Panics
    /// If the connection does not come about: a bug.
    pub fn new(mtu: usize, loss_every: Option<u64>) -> Self {
        let hosts = [0u8, 1].map(|host| Endpoint::new(config(host, mtu), Rng::from_seed(u64::from(host))));
        let memory = [0u8, 1].map(|host| Block::new(host, MESSAGE as usize));
        let (frames, lengths) = (vec![vec![0; mtu + 18]; BATCH], Vec::with_capacity(BATCH));
        let mut stream = Self {
            now: Instant::from_nanos(1),
            hosts,
            memory,
            qp: QpNum(0),
            local: SgList::EMPTY,
            rkey: 0,
            frames,
            lengths,
            loss_every,
            sent: 0,
        };
        stream.connect();
        stream
    }

    fn connect(&mut self) {
        let full = Access { local_write: true, remote_write: true, ..Access::default() };
        let keys = [0, 1].map(|host| self.hosts[host].register(APP, MemId(0), 0, u64::from(MESSAGE), full).expect("room for a region"));
        let init = QpInit { rq_depth: 1, ..QpInit::new(CqId(0), 64) };
        let qps = [0, 1].map(|host: usize| self.hosts[host].create_qp(APP, init).expect("room for a queue pair"));
        self.hosts[1].listen(APP, 1).expect("a free service");
        self.hosts[0].connect(self.now, APP, qps[0], mac(1), 1, &[]).expect("a fresh queue pair");
        self.exchange();
        let Some((_, Event::ConnectRequest { request, .. })) = self.hosts[1].poll_event() else { panic!("no request") };
        self.hosts[1].accept(self.now, APP, request, qps[1], &[]).expect("a fresh queue pair");
        self.exchange();
        self.exchange();
        self.qp = qps[0];
        self.rkey = keys[1].rkey;
        self.local = SgList::new(&[Sge { addr: 0, len: MESSAGE, lkey: keys[0].lkey }]).expect("one entry");
    }

    fn exchange(&mut self) {
        for host in 0..2 {
            self.build(host);
            self.take(1 - host);
        }
    }

    /// Lets `host` build up to a batch of frames and returns how many it built.
    fn build(&mut self, host: usize) -> u64 {
        self.lengths.clear();
        for frame in &mut self.frames {
            let Some(sent) = self.hosts[host].poll_transmit(self.now, frame, &self.memory[host]) else { break };
            self.lengths.push(sent.len);
        }
        self.lengths.len() as u64
    }

    fn take(&mut self, host: usize) -> u64 {
        let mut taken = 0;
        for (frame, &len) in self.frames.iter().zip(&self.lengths) {
            self.sent += 1;
            if host == 1 && self.loss_every.is_some_and(|every| self.sent.is_multiple_of(every)) {
                continue;
            }
            self.hosts[host].handle_frame(self.now, &frame[..len], &mut self.memory[host]);
            taken += 1;
        }
        taken
    }

    /// Moves about `frames` data frames, adding up what each stage takes.
    pub fn run(&mut self, frames: u64, costs: &mut StreamCosts) {
        while costs.place.frames < frames {
            self.post();
            costs.build.measure(|| self.build(0));
            costs.parse.measure(|| {
                self.frames.iter().zip(&self.lengths).filter(|(frame, len)| Packet::parse(&frame[..**len]).is_ok()).count() as u64
            });
            self.now += Duration::from_micros(10);
            costs.place.measure(|| self.take(1));
            costs.acknowledge.measure(|| self.build(1) + self.take(0));
            self.now += Duration::from_micros(10);
            self.hosts.iter_mut().for_each(|host| host.handle_timeout(self.now));
        }
    }

    fn post(&mut self) {
        let op = SendOp::Write { remote_addr: 0, rkey: self.rkey };
        let work = SendWork::new(0, op, Data::List(self.local));
        while self.hosts[0].poll_completion().is_some() {}
        if self.hosts[0].view_of(self.qp).is_some_and(|view| view.outstanding.0 < 4) {
            self.hosts[0].post_send(self.now, APP, self.qp, work).expect("room in the queue");
        }
    }

    /// Packets sent again so far.
    pub fn retransmitted(&self) -> u64 {
        self.hosts[0].counters().retransmitted_fast
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("now", &self.now).finish_non_exhaustive()
    }
}

const fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host + 1])
}

fn config(host: u8, mtu: usize) -> EndpointConfig {
    EndpointConfig { mtu, ..EndpointConfig::new(mac(host)) }
}
