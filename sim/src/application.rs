//! What runs on the hosts: closed loops of WRITEs, and ping-pongs.

use std::collections::VecDeque;

use weft_proto::stop::PRIORITIES;
use weft_proto::time::earliest;
use weft_proto::transport::{
    Access, AppId, Completion, CqId, Endpoint, Event, MemId, QpInit, QpNum, RecvWork, SendOp, SendWork, SgList, Sge, Status,
};
use weft_proto::wire::MacAddr;
use weft_proto::{Duration, Instant};

/// The application of every host, as far as its transport can tell.
const APP: AppId = AppId(1);
/// Where a host takes WRITEs.
const SINK: u16 = 1;
/// Where it answers messages.
const ECHO: u16 = 2;
/// Bytes of memory that each host offers.
const MEMORY: u32 = 1 << 20;
/// Echoes are there to measure latency.
const ECHO_PRIORITY: u8 = PRIORITIES - 1;
/// Answers that an echo has room for.
const ECHO_DEPTH: u32 = 4;
const EVERYTHING: Access = Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// WRITEs of `message` bytes, `depth` of them outstanding.
    Write {
        /** Bytes of each. */
        message: u32,
        /** How many at a time. */
        depth: u32,
    },
    /// A message there and back, and another one `interval` later, or at once if that took longer.
    PingPong {
        /** Bytes each way. */
        message: u32,
        /** From one to the next. */
        interval: Duration,
    },
}

/// A load at work.
#[derive(Debug)]
pub struct Flow {
    load: Load,
    qp: QpNum,
    /// Of the peer's memory.
    rkey: u32,
    begins: Instant,
    up: bool,
    outstanding: VecDeque<Instant>,
    next: Instant,
    /// Bytes that arrived, as far as the sender knows.
    pub bytes: u64,
    /// How long each took, and when it was done.
    pub times: Vec<(Instant, Duration)>,
    /// The queue pair failed.
    pub failed: bool,
}

/// All that runs on a host.
#[derive(Debug, Default)]
pub(crate) struct Applications {
    pub(crate) flows: Vec<Flow>,
    echoes: Vec<QpNum>,
    lkey: u32,
    pub(crate) rkey: u32,
}

impl Applications {
    /// Offers memory and both services.
    pub(crate) fn open(&mut self, endpoint: &mut Endpoint) {
        let keys = endpoint.register(APP, MemId(0), 0, u64::from(MEMORY), EVERYTHING).expect("room for a region");
        (self.lkey, self.rkey) = (keys.lkey, keys.rkey);
        for service in [SINK, ECHO] {
            endpoint.listen(APP, service).expect("a free service");
        }
    }

    /// Connects to a peer; the load begins at `begins`, or when the connection stands. Returns its index.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        (peer, rkey): (MacAddr, u32),
        (load, priority): (Load, u8),
        begins: Instant,
    ) -> usize {
        let (service, depth) = match load {
            Load::Write { depth, .. } => (SINK, depth),
            Load::PingPong { .. } => (ECHO, ECHO_DEPTH),
        };
        let init = QpInit { priority: Some(priority), ..QpInit::new(CqId(0), depth) };
        let qp = endpoint.create_qp(APP, init).expect("room for a queue pair");
        endpoint.connect(now, APP, qp, peer, service, &[]).expect("a fresh queue pair");
        let (outstanding, times) = (VecDeque::new(), Vec::new());
        self.flows.push(Flow { load, qp, rkey, begins, up: false, outstanding, next: begins, bytes: 0, times, failed: false });
        self.flows.len() - 1
    }

    /// Takes what is done, and posts what is next.
    pub(crate) fn run(&mut self, now: Instant, endpoint: &mut Endpoint) {
        while let Some((_, event)) = endpoint.poll_event() {
            self.handle_event(now, endpoint, &event);
        }
        while let Some((_, _, completion)) = endpoint.poll_completion() {
            self.handle_completion(now, endpoint, &completion);
        }
        let lkey = self.lkey;
        for flow in self.flows.iter_mut().filter(|flow| flow.up && !flow.failed && flow.begins <= now) {
            flow.post(now, endpoint, lkey);
        }
    }

    /// When a load begins or goes on.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.flows.iter().filter(|flow| flow.up && !flow.failed).fold(None, |due, flow| earliest(due, flow.due()))
    }

    fn handle_event(&mut self, now: Instant, endpoint: &mut Endpoint, event: &Event) {
        match event {
            Event::ConnectRequest { request, service, .. } => {
                let priority = (*service == ECHO).then_some(ECHO_PRIORITY);
                let init = QpInit { priority, ..QpInit::new(CqId(0), ECHO_DEPTH) };
                let qp = endpoint.create_qp(APP, init).expect("room for a queue pair");
                if *service == ECHO {
                    (0..ECHO_DEPTH).for_each(|_| post_receive(endpoint, qp, self.lkey));
                    self.echoes.push(qp);
                }
                endpoint.accept(now, APP, *request, qp, &[]).expect("an open request");
            }
            Event::Established { qp, .. } => {
                let Some(flow) = self.flows.iter_mut().find(|flow| flow.qp == *qp) else { return };
                flow.up = true;
                if let Load::PingPong { .. } = flow.load {
                    (0..ECHO_DEPTH).for_each(|_| post_receive(endpoint, *qp, self.lkey));
                }
            }
            Event::QpFailed { qp, .. } => {
                self.flows.iter_mut().filter(|flow| flow.qp == *qp).for_each(|flow| flow.failed = true);
            }
            _ => {}
        }
    }

    fn handle_completion(&mut self, now: Instant, endpoint: &mut Endpoint, completion: &Completion) {
        if completion.status != Status::Success {
            return;
        }
        if completion.op.is_receive() {
            post_receive(endpoint, completion.qp, self.lkey);
        }
        if self.echoes.contains(&completion.qp) && completion.op.is_receive() {
            let work = SendWork::new(0, SendOp::Send, memory(self.lkey, completion.byte_len).into());
            // A full queue or a failed queue pair: the ping-pong stops, which its flow shows.
            let _ = endpoint.post_send(now, APP, completion.qp, work);
        } else if let Some(flow) = self.flows.iter_mut().find(|flow| flow.qp == completion.qp) {
            flow.handle_completion(now, completion);
        }
    }
}

impl Flow {
    fn handle_completion(&mut self, now: Instant, completion: &Completion) {
        if completion.op.is_receive() != matches!(self.load, Load::PingPong { .. }) {
            return;
        }
        let Some(posted) = self.outstanding.pop_front() else { return };
        self.bytes += u64::from(completion.byte_len);
        self.times.push((now, now.since(posted)));
    }

    fn due(&self) -> Option<Instant> {
        match self.load {
            // Else a completion lets it go on.
            Load::Write { .. } => self.outstanding.is_empty().then_some(self.begins),
            Load::PingPong { .. } => self.outstanding.is_empty().then_some(self.next),
        }
    }

    fn post(&mut self, now: Instant, endpoint: &mut Endpoint, lkey: u32) {
        match self.load {
            Load::Write { message, depth } => {
                let op = SendOp::Write { remote_addr: 0, rkey: self.rkey };
                while self.outstanding.len() < depth as usize
                    && self.post_one(now, endpoint, SendWork::new(0, op, memory(lkey, message).into()))
                {}
            }
            Load::PingPong { message, interval } => {
                if self.outstanding.is_empty() && self.next <= now {
                    self.next = self.next.max(now) + interval;
                    self.post_one(now, endpoint, SendWork::new(0, SendOp::Send, memory(lkey, message).into()));
                }
            }
        }
    }

    fn post_one(&mut self, now: Instant, endpoint: &mut Endpoint, work: SendWork) -> bool {
        let posted = endpoint.post_send(now, APP, self.qp, work).is_ok();
        if posted {
            self.outstanding.push_back(now);
        }
        posted
    }
}

fn memory(lkey: u32, len: u32) -> SgList {
    SgList::new(&[Sge { addr: 0, len, lkey }]).expect("one entry")
}

fn post_receive(endpoint: &mut Endpoint, qp: QpNum, lkey: u32) {
    // A failed queue pair takes none; its flow shows it.
    let _ = endpoint.post_recv(APP, qp, RecvWork { wr_id: 0, local: memory(lkey, MEMORY) });
}
