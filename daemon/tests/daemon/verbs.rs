//! Two daemons on a cable: every verb once and more, over a good cable and over a bad one.

use std::sync::atomic::Ordering;

use weft_verbs::{
    Access, Completion, CompletionOp, CompletionQueue, Context, Event, MemoryRegion, QpOptions, QueuePair, SharedReceiveQueue, Status,
};

use crate::support::{Namespace, PATIENCE, Weftd};

const SERVICE: u16 = 7;
const LEN: usize = 1 << 20;
const ALL: Access = Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };

/// A client.
struct Near {
    _context: Context,
    cq: CompletionQueue,
    qp: QueuePair,
    memory: MemoryRegion,
}

/// A server whose queue pairs share their receives.
struct Far {
    context: Context,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    qps: Vec<QueuePair>,
    memory: MemoryRegion,
}

impl Near {
    fn new(weftd: &Weftd) -> Self {
        let context = Context::attach(&weftd.app, "near").unwrap();
        let cq = context.create_cq(64).unwrap();
        let qp = context.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
        let memory = context.register(LEN, ALL).unwrap();
        Self { _context: context, cq, qp, memory }
    }

    /// The next completion, which must be the success of this request.
    fn done(&mut self, wr_id: u64, op: CompletionOp) -> Completion {
        let done = self.cq.next_completion(PATIENCE).unwrap().expect("nothing completes");
        assert_eq!((done.wr_id, done.op, done.status), (wr_id, op, Status::Success));
        done
    }
}

impl Far {
    fn new(weftd: &Weftd) -> Self {
        let context = Context::attach(&weftd.app, "far").unwrap();
        let cq = context.create_cq(256).unwrap();
        let srq = context.create_srq(16).unwrap();
        let memory = context.register(LEN, ALL).unwrap();
        context.listen(SERVICE).unwrap();
        Self { context, cq, srq, qps: Vec::new(), memory }
    }

    fn join(&mut self, near: &mut Near) {
        let mut qp = self.context.create_qp_with_srq(&self.cq, &self.cq, &self.srq, &QpOptions::default()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| near.qp.connect("b", SERVICE, b"", PATIENCE).unwrap());
            let request = std::iter::from_fn(|| self.context.next_event(PATIENCE).unwrap()).find_map(|event| match event {
                Event::ConnectRequest { request, .. } => Some(request),
                // The end of an earlier connection, whose failure was told before.
                Event::Disconnected { .. } => None,
                other => panic!("{other:?}"),
            });
            qp.accept(request.expect("no request"), b"", PATIENCE).unwrap();
        });
        self.qps.push(qp);
    }
}

fn pattern() -> Vec<u8> {
    (0..LEN).map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap()).collect()
}

/// Every verb between the two.
fn exercise(near: &mut Near, far: &mut Far) {
    let rkey = far.memory.rkey();
    let spare = far.context.register(4096, ALL).unwrap();
    (0..3).for_each(|wr_id| far.srq.recv(wr_id, &[far.memory.sge(wr_id * 100, 100).unwrap()]).unwrap());
    near.qp.send_inline(1, b"hello", Some(9)).unwrap();
    near.qp.send_invalidate(2, &[near.memory.sge(0, 100).unwrap()], spare.rkey()).unwrap();
    near.qp.write_inline(3, b"inline", 500, rkey, Some(10)).unwrap();
    for (wr_id, op) in [(1, CompletionOp::Send), (2, CompletionOp::Send), (3, CompletionOp::Write)] {
        near.done(wr_id, op);
    }
    let told: Vec<_> = (0..3).map(|_| far.cq.next_completion(PATIENCE).unwrap().expect("nothing arrives")).collect();
    let told: Vec<_> = told.iter().map(|c| (c.wr_id, c.status, c.op, c.byte_len, c.imm, c.invalidated)).collect();
    let ok = Status::Success;
    let expected = [
        (0, ok, CompletionOp::Recv, 5, Some(9), None),
        (1, ok, CompletionOp::Recv, 100, None, Some(spare.rkey())),
        (2, ok, CompletionOp::RecvWriteImm, 6, Some(10), None),
    ];
    assert_eq!(told, expected);
    // There and back again: what comes back is what went.
    let len = u32::try_from(LEN / 2).unwrap();
    near.memory.copy_in(0, &pattern()[..LEN / 2]).unwrap();
    near.qp.write(4, &[near.memory.sge(0, len).unwrap()], 4096, rkey, None).unwrap();
    near.qp.read(5, &[near.memory.sge(u64::from(len), len).unwrap()], 4096, rkey).unwrap();
    near.done(4, CompletionOp::Write);
    assert_eq!(near.done(5, CompletionOp::Read).byte_len, len);
    let mut back = vec![0; LEN / 2];
    near.memory.copy_out(u64::from(len), &mut back).unwrap();
    assert!(back == pattern()[..LEN / 2]);
    atomics(near, far);
}

fn atomics(near: &mut Near, far: &Far) {
    let rkey = far.memory.rkey();
    far.memory.atomic(1024).unwrap().store(0, Ordering::Relaxed);
    let result = near.memory.sge(0, 8).unwrap();
    for round in 0..200 {
        near.qp.fetch_add(round, result, 1024, rkey, 3).unwrap();
        near.done(round, CompletionOp::Atomic);
        assert_eq!(near.memory.atomic(0).unwrap().load(Ordering::Relaxed), 3 * round);
    }
    near.qp.compare_swap(300, result, 1024, rkey, 600, 5).unwrap();
    near.done(300, CompletionOp::Atomic);
    assert_eq!(far.memory.atomic(1024).unwrap().load(Ordering::Relaxed), 5);
    near.qp.local_invalidate(301, near.memory.lkey()).unwrap();
    near.done(301, CompletionOp::LocalInvalidate);
}

#[test]
fn every_verb_works_between_two_daemons_and_two_clients_share_a_servers_receives() {
    let namespace = Namespace::with_cable();
    let (a, b) = (namespace.host("a"), namespace.host("b"));
    let mut far = Far::new(&b);
    let mut clients = [Near::new(&a), Near::new(&a)];
    for near in &mut clients {
        far.join(near);
        exercise(near, &mut far);
    }
    a.stop();
    b.stop();
}

#[test]
fn every_verb_works_over_a_bad_cable_and_atomics_are_applied_once() {
    let namespace = Namespace::with_cable();
    let bad = "ingress: { loss: 2%, duplicate: 1%, corrupt: 0.5%, reorder: 1%, reorder_delay: 200us }";
    for node in ["a", "b"] {
        let ports = format!("  - {{ name: eth0, interface: v{node}, role: host, impair: {{ {bad}, seed: 5 }} }}");
        namespace.configure(node, &ports, "metrics: { enabled: false }\ntransport: { max_reads: 3 }");
    }
    let (a, b) = (namespace.start("a"), namespace.start("b"));
    let (mut near, mut far) = (Near::new(&a), Far::new(&b));
    far.join(&mut near);
    exercise(&mut near, &mut far);
    let counters = b.ask("counters");
    assert!(counters["impaired"]["lost"].as_u64().unwrap() > 0, "{counters}");
    a.stop();
    b.stop();
}

/// How a request is to end, and the request.
type Attempt<'a> = (Status, &'a dyn Fn(&mut Near));

#[test]
fn what_the_peer_does_not_allow_is_refused_and_told() {
    let namespace = Namespace::with_cable();
    let (a, b) = (namespace.host("a"), namespace.host("b"));
    let mut far = Far::new(&b);
    let write_only = far.context.register(4096, Access { remote_write: true, ..Access::default() }).unwrap();
    let (closed, open) = (write_only.rkey(), far.memory.rkey());
    let read = |near: &mut Near, rkey| near.qp.read(1, &[near.memory.sge(0, 8).unwrap()], 0, rkey).unwrap();
    let add = |near: &mut Near, addr, rkey| near.qp.fetch_add(1, near.memory.sge(0, 8).unwrap(), addr, rkey, 1).unwrap();
    let attempts: [Attempt<'_>; 4] = [
        (Status::RemoteAccess, &|near| read(near, closed)),
        (Status::RemoteAccess, &|near| read(near, 12345)),
        (Status::RemoteAccess, &|near| add(near, 0, closed)),
        (Status::RemoteInvalidRequest, &|near| add(near, 12, open)),
    ];
    let mut clients = Vec::new();
    for (status, attempt) in attempts {
        let mut near = Near::new(&a);
        far.join(&mut near);
        attempt(&mut near);
        let done = near.cq.next_completion(PATIENCE).unwrap().expect("nothing completes");
        assert_eq!((done.wr_id, done.status), (1, status));
        let failed = far.context.next_event(PATIENCE).unwrap();
        assert!(matches!(failed, Some(Event::QpFailed { qp, .. }) if qp == far.qps[clients.len()].num()), "{failed:?}");
        clients.push(near);
    }
    a.stop();
    b.stop();
}
