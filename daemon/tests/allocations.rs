//! A breath of the worker allocates nothing: neither for frames that cross the switch nor for an application's
//! requests, from its ring to the completion. Two data planes in one thread, on a cable of memory.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crossbeam::channel::{Receiver, unbounded};
use mio::{Poll, Token, Waker};
use rustix::event::{EventfdFlags, eventfd};
use weft_config::Config;
use weft_config::model;
use weft_daemon::app::{AppAction, AppCommand, AppDone, AppTable, AppUpdate};
use weft_daemon::port::{HEADROOM, Port};
use weft_daemon::translate;
use weft_daemon::worker::{Local, Mailbox, Parts, Plane};
use weft_proto::transport::{Access, AppId, AtomicOp, Endpoint, QpInit, QpNum, RecvWork, SendOp, SendWork, SgList, Sge, Status};
use weft_proto::{Duration, Instant, Pool, Rng};
use weft_verbs::layout::{CompletionEntry, RecvEntry, SendEntry};
use weft_verbs::page::Page;
use weft_verbs::protocol::Event;
use weft_verbs::ring::{Consumer, Producer};
use weft_verbs::shm::Block;

const APP: AppId = AppId(1);
const SERVICE: u16 = 7;
const DEPTH: u32 = 64;
const MEMORY: usize = 1 << 20;
/// One request: several packets.
const WRITE: u32 = 8192;

/// A data plane with an application, driven by hand.
struct Host {
    plane: Plane,
    updates: Receiver<AppUpdate>,
    _poll: Poll,
    page: Page,
    cq_ring: Consumer<CompletionEntry>,
    send_ring: Producer<SendEntry>,
    srq_ring: Producer<RecvEntry>,
    srq_slot: u16,
    _memory: Block,
    _wake: UnixStream,
    qp: QpNum,
    slot: u16,
    keys: (u32, u32),
}

fn config() -> Config {
    Config::from_yaml("version: 1\nnode: a\nports:\n  - { name: eth0, interface: eth0, role: host }\n", "test").unwrap()
}

fn plane(config: &Config, port: Port, settings: model::Port, seed: u64, mailbox: Mailbox) -> Plane {
    let mut rng = Rng::from_seed(seed);
    let endpoint = Endpoint::new(translate::endpoint(config, port.mac(), 1500, 1), rng.fork());
    let local = Local::new(endpoint, port.mac(), AppTable::new().unwrap(), mailbox);
    let pool = Pool::new(1024, 2048, HEADROOM);
    Plane::new(Parts { pool, switch: translate::switch(config), ports: vec![(port, settings)], local: Some(local), batch: 64, rng })
}

/// Has the plane do something for its application, which must succeed.
fn act(plane: &mut Plane, updates: &Receiver<AppUpdate>, action: AppAction) -> AppDone {
    plane.execute(Instant::ZERO, AppCommand { app: APP, ticket: 1, action });
    plane.breathe(Instant::ZERO);
    match updates.try_recv().unwrap() {
        AppUpdate::Reply { result, .. } => result.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Both ends of a ring in one process.
fn doorbell() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

impl Host {
    fn new(port: Port, seed: u64) -> Self {
        let poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), Token(0)).unwrap());
        let (sender, updates) = unbounded();
        let mut config = config();
        config.ports[0].mtu = Some(1500);
        let settings = config.ports[0].clone();
        let mut plane = plane(&config, port, settings, seed, Mailbox { updates: sender, waker });
        let (page, page_fd) = Page::create().unwrap();
        act(&mut plane, &updates, AppAction::Attach { page, doorbell: doorbell() });
        let (block, block_fd) = Block::create("test-memory", MEMORY).unwrap();
        let access = Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };
        let AppDone::Registered(keys) = act(&mut plane, &updates, AppAction::Register { block, base: 0, access }) else { panic!() };
        let (ring, cq_fd) = Producer::<CompletionEntry>::create("test-cq", 2 * DEPTH).unwrap();
        let (wake, theirs) = UnixStream::pair().unwrap();
        wake.set_nonblocking(true).unwrap();
        let AppDone::CqCreated(cq) = act(&mut plane, &updates, AppAction::CreateCq { ring, wake }) else { panic!() };
        let (send_ring, send_fd) = Consumer::<SendEntry>::create("test-sq", DEPTH).unwrap();
        let (recv_ring, _) = Consumer::<RecvEntry>::create("test-rq", DEPTH).unwrap();
        let (ring, srq_fd) = Consumer::<RecvEntry>::create("test-srq", DEPTH).unwrap();
        let AppDone::SrqCreated(srq, srq_slot) = act(&mut plane, &updates, AppAction::CreateSrq { depth: DEPTH, ring }) else { panic!() };
        let init = QpInit { rq_depth: 0, srq: Some(srq), ..QpInit::new(cq, DEPTH) };
        let action = AppAction::CreateQp { init, send_ring, recv_ring };
        let AppDone::QpCreated(qp, slot) = act(&mut plane, &updates, action) else { panic!() };
        Self {
            plane,
            updates,
            _poll: poll,
            page: Page::map(page_fd).unwrap(),
            cq_ring: Consumer::map(cq_fd, 2 * DEPTH).unwrap(),
            send_ring: Producer::map(send_fd, DEPTH).unwrap(),
            srq_ring: Producer::map(srq_fd, DEPTH).unwrap(),
            srq_slot,
            _memory: Block::map(block_fd, MEMORY as u64).unwrap(),
            _wake: theirs,
            qp,
            slot,
            keys: (keys.lkey, keys.rkey),
        }
    }

    /// Posts a request of each kind in turn and rings.
    fn post(&mut self, number: u64, rkey: u32) {
        let piece = |len| SgList::new(&[Sge { addr: 0, len, lkey: self.keys.0 }]).unwrap();
        let (op, local) = match number % 4 {
            0 => (SendOp::Write { remote_addr: 0, rkey }, piece(WRITE)),
            1 => (SendOp::Read { remote_addr: 0, rkey }, piece(WRITE)),
            2 => (SendOp::Atomic { remote_addr: 8, rkey, op: AtomicOp::FetchAdd { add: 1 } }, piece(8)),
            _ => (SendOp::Send, piece(WRITE)),
        };
        self.send_ring.push(&SendEntry::encode(&SendWork::new(number, op, local.into()))).unwrap();
        self.send_ring.publish();
        self.page.ring(self.slot);
    }

    /// Posts a receive to the shared queue and rings.
    fn receive(&mut self) {
        let local = SgList::new(&[Sge { addr: 0, len: WRITE, lkey: self.keys.0 }]).unwrap();
        self.srq_ring.push(&RecvEntry::encode(&RecvWork { wr_id: 0, local })).unwrap();
        self.srq_ring.publish();
        self.page.ring(self.srq_slot);
    }

    /// Takes all completions and returns how many there were.
    fn reap(&mut self) -> u64 {
        let mut count = 0;
        while let Some(entry) = self.cq_ring.pop().unwrap() {
            assert_eq!(entry.decode().unwrap().status, Status::Success);
            count += 1;
        }
        self.cq_ring.release();
        count
    }
}

/// Two hosts on a cable, connected.
fn connected() -> (Host, Host) {
    let (a, b) = Port::memory_pair(1024);
    let peer = b.mac();
    let (mut a, mut b) = (Host::new(a, 1), Host::new(b, 2));
    act(&mut b.plane, &b.updates, AppAction::Listen { service: SERVICE });
    act(&mut a.plane, &a.updates, AppAction::Connect { qp: a.qp, peer, service: SERVICE, private: Vec::new() });
    let mut established = false;
    for round in 0..100 {
        let now = Instant::ZERO + Duration::from_micros(10 * round);
        a.plane.breathe(now);
        b.plane.breathe(now);
        if let Ok(AppUpdate::Event { event: Event::ConnectRequest { request, .. }, .. }) = b.updates.try_recv() {
            let action = AppAction::Accept { request, qp: b.qp, private: Vec::new() };
            b.plane.execute(now, AppCommand { app: APP, ticket: 2, action });
        }
        established |= matches!(a.updates.try_recv(), Ok(AppUpdate::Event { event: Event::Established { .. }, .. }));
    }
    assert!(established);
    (a, b)
}

#[test]
fn a_stream_of_requests_of_each_kind_allocates_nothing_in_either_worker() {
    let (mut a, mut b) = connected();
    let (mut posted, mut done, mut received, mut arrived, mut now) = (0, 0, 0, 0, Instant::ZERO + Duration::from_millis(10));
    let mut run = |requests: u64| {
        let end = done + requests;
        allocation_counter::measure(|| {
            while done < end {
                while posted < end && posted - done < 32 {
                    a.post(posted, b.keys.1);
                    posted += 1;
                }
                while received < posted / 4 + 32 {
                    b.receive();
                    received += 1;
                }
                now += Duration::from_micros(10);
                a.plane.breathe(now);
                b.plane.breathe(now);
                done += a.reap();
                arrived += b.reap();
            }
        })
    };
    run(2_000);
    assert_eq!(run(5_000).count_total, 0);
    assert_eq!(arrived, 7_000 / 4);
    assert_eq!(a.plane.endpoint().unwrap().counters().bytes_sent, 7_000 / 2 * u64::from(WRITE));
    assert_eq!(a.plane.switch().totals().dropped + b.plane.switch().totals().dropped, 0);
}
