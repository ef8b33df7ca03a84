//! Two daemons on a cable and an application at each: data arrives, and everybody learns of the end.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use weft_verbs::{Access, CompletionQueue, Context, Error, Event, MemoryRegion, QpOptions, QueuePair, SendOp, SendWork, SgList, Status};

use crate::support::{Namespace, PATIENCE, Weftd};

const SERVICE: u16 = 7;
const DEPTH: u32 = 32;

/// One end of a connection.
pub(crate) struct End {
    context: Context,
    cq: CompletionQueue,
    qp: QueuePair,
    pub(crate) memory: MemoryRegion,
}

impl End {
    fn new(weftd: &Weftd, name: &str, len: usize) -> Self {
        let context = Context::attach(&weftd.app, name).unwrap();
        let cq = context.create_cq(2 * DEPTH).unwrap();
        let options = QpOptions { sq_depth: DEPTH, rq_depth: DEPTH, ..QpOptions::default() };
        let qp = context.create_qp(&cq, &cq, &options).unwrap();
        let access = Access { local_write: true, remote_write: true, ..Access::default() };
        let memory = context.register(len, access).unwrap();
        Self { context, cq, qp, memory }
    }

    fn completion(&mut self) -> Option<weft_verbs::Completion> {
        self.cq.next_completion(PATIENCE).unwrap()
    }
}

/// A connected to b.
pub(crate) fn connect(a: &Weftd, b: &Weftd, len: usize) -> (End, End) {
    let mut near = End::new(a, "near", len);
    let mut far = End::new(b, "far", len);
    far.context.listen(SERVICE).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| match far.context.next_event(PATIENCE).unwrap() {
            Some(Event::ConnectRequest { request, .. }) => far.qp.accept(request, b"", PATIENCE).map(drop).unwrap(),
            other => panic!("{other:?}"),
        });
        near.qp.connect("b", SERVICE, b"", PATIENCE).unwrap();
    });
    (near, far)
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap()).collect()
}

/// Writes `rounds` times all of `near`'s memory into `far`'s, several requests at a time.
pub(crate) fn write_all(near: &mut End, far: &End, len: usize, rounds: usize) {
    let piece = len / 16;
    let mut outstanding = 0;
    for index in 0..rounds * 16 {
        let offset = (index % 16 * piece) as u64;
        let local = SgList::new(&[near.memory.sge(offset, u32::try_from(piece).unwrap()).unwrap()]).unwrap();
        let op = SendOp::Write { remote_addr: offset, rkey: far.memory.rkey() };
        near.qp.post_send(&SendWork::new(index as u64, op, local.into())).unwrap();
        outstanding += 1;
        if outstanding == 16 {
            assert_eq!(near.completion().unwrap().status, Status::Success);
            outstanding -= 1;
        }
    }
    for _ in 0..outstanding {
        assert_eq!(near.completion().unwrap().status, Status::Success);
    }
}

#[test]
fn messages_and_writes_arrive_intact_and_are_counted() {
    let namespace = Namespace::with_cable();
    let (a, b) = (namespace.host("a"), namespace.host("b"));
    let len = 1 << 20;
    let (mut near, mut far) = connect(&a, &b, len);
    near.memory.copy_in(0, &pattern(len)).unwrap();
    far.qp.recv(1, &[far.memory.sge(0, 4096).unwrap()]).unwrap();
    near.qp.send(2, &[near.memory.sge(100, 4000).unwrap()], Some(9)).unwrap();
    let received = far.completion().unwrap();
    assert_eq!((received.wr_id, received.status, received.byte_len, received.imm), (1, Status::Success, 4000, Some(9)));
    assert_eq!(near.completion().unwrap().wr_id, 2);
    write_all(&mut near, &far, len, 8);
    let mut arrived = vec![0; len];
    far.memory.copy_out(0, &mut arrived).unwrap();
    assert!(arrived == pattern(len));
    let qps = a.ask("qps");
    assert_eq!((&qps["items"][0]["state"], &qps["items"][0]["peer_name"]), (&"established".into(), &"b".into()), "{qps}");
    assert_eq!(a.ask("peers")["items"][0]["mac"], "02:00:00:00:00:0b");
    assert_eq!(a.ask("status")["applications"], 1);
    let counters = a.ask("counters");
    assert_eq!(counters["transport"]["sent_bytes"], (8 << 20) + 4000, "{counters}");
    assert_eq!(counters["switch_drops"], serde_json::json!({}), "our own queues never drop our own frames: {counters}");
    a.stop();
    b.stop();
}

#[test]
fn data_arrives_over_a_bad_cable() {
    let namespace = Namespace::with_cable();
    let bad = "ingress: { loss: 1%, duplicate: 0.5%, corrupt: 0.5%, reorder: 1%, reorder_delay: 200us }";
    for node in ["a", "b"] {
        let ports = format!("  - {{ name: eth0, interface: v{node}, role: host, impair: {{ {bad}, seed: 5 }} }}");
        namespace.configure(node, &ports, "metrics: { enabled: false }");
    }
    let (a, b) = (namespace.start("a"), namespace.start("b"));
    let len = 1 << 20;
    let (mut near, far) = connect(&a, &b, len);
    near.memory.copy_in(0, &pattern(len)).unwrap();
    write_all(&mut near, &far, len, 4);
    let mut arrived = vec![0; len];
    far.memory.copy_out(0, &mut arrived).unwrap();
    assert!(arrived == pattern(len));
    let counters = b.ask("counters");
    assert!(counters["impaired"]["lost"].as_u64().unwrap() > 0, "{counters}");
    assert!(counters["transport_drops"]["bad_icrc"].as_u64().unwrap() > 0, "{counters}");
    a.stop();
    b.stop();
}

#[test]
fn a_daemon_that_ends_tells_its_peers_and_its_applications() {
    let namespace = Namespace::with_cable();
    let (a, b) = (namespace.host("a"), namespace.host("b"));
    let (near, far) = connect(&a, &b, 4096);
    a.stop();
    match far.context.next_event(PATIENCE).unwrap() {
        Some(Event::Disconnected { qp }) => assert_eq!(qp, far.qp.num()),
        other => panic!("{other:?}"),
    }
    assert!(matches!(near.context.next_event(PATIENCE), Err(Error::DaemonGone)));
    b.stop();
}

#[test]
fn the_death_of_the_peers_daemon_fails_the_work_within_a_bound_and_a_restart_works() {
    let namespace = Namespace::with_cable();
    let (a, mut b) = (namespace.host("a"), namespace.host("b"));
    let (mut near, far) = connect(&a, &b, 4096);
    b.signal(Signal::KILL);
    b.wait();
    near.qp.write(1, &[near.memory.sge(0, 4096).unwrap()], 0, far.memory.rkey(), None).unwrap();
    let failed = near.completion().expect("the application waits for ever");
    assert_ne!(failed.status, Status::Success);
    drop((near, far));
    let b = namespace.start("b");
    let (mut near, far) = connect(&a, &b, 4096);
    write_all(&mut near, &far, 4096, 1);
    a.stop();
    b.stop();
}

#[test]
fn an_application_that_goes_takes_its_connections_with_it() {
    let namespace = Namespace::with_cable();
    let (a, b) = (namespace.host("a"), namespace.host("b"));
    let (near, far) = connect(&a, &b, 4096);
    drop(near);
    assert!(matches!(far.context.next_event(PATIENCE).unwrap(), Some(Event::Disconnected { .. })));
    let gone = crate::support::eventually(|| (a.ask("qps")["total"] == 0 && a.ask("status")["applications"] == 0).then_some(()));
    assert!(gone.is_some());
    a.stop();
    b.stop();
}

#[test]
fn a_sleeping_worker_is_woken_by_a_doorbell() {
    let namespace = Namespace::with_cable();
    let (a, b) = (namespace.host("a"), namespace.host("b"));
    let (mut near, far) = connect(&a, &b, 4096);
    let start = Instant::now();
    let rounds = 100;
    for round in 0..rounds {
        // Longer than the worker spins and has counters to publish, so that it sleeps with nothing due.
        std::thread::sleep(Duration::from_millis(15));
        near.qp.write(round, &[near.memory.sge(0, 64).unwrap()], 0, far.memory.rkey(), None).unwrap();
        assert_eq!(near.completion().map(|c| (c.wr_id, c.status)), Some((round, Status::Success)));
    }
    // A worker that misses doorbells finds them when it wakes by itself, after half a second on average.
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert!(a.ask("counters")["ports"]["tx_frames"].as_u64().unwrap() >= rounds);
    a.stop();
    b.stop();
}

#[test]
fn a_slow_port_holds_our_own_transport_back_and_drops_nothing_of_it() {
    let namespace = Namespace::with_cable();
    let slow = "  - { name: eth0, interface: va, role: host, rate: 200Mbit }";
    // Far less than the transport may have in flight.
    namespace.configure("a", slow, "metrics: { enabled: false }\nswitch: { voq_limit: 16KiB }");
    let (a, b) = (namespace.start("a"), namespace.host("b"));
    let (mut near, far) = connect(&a, &b, 1 << 20);
    write_all(&mut near, &far, 1 << 20, 2);
    let counters = a.ask("counters");
    assert_eq!(counters["switch_drops"], serde_json::json!({}), "{counters}");
    assert_eq!(a.ask("queues")["items"][0]["limit_bytes"], 16 * 1024);
    a.stop();
    b.stop();
}

#[test]
fn an_impairment_can_be_switched_on_and_off_while_a_connection_stands() {
    let namespace = Namespace::with_cable();
    let (a, b) = (namespace.host("a"), namespace.host("b"));
    let (mut near, far) = connect(&a, &b, 4096);
    let file = namespace.path("a.yaml");
    let healthy = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, healthy.replace("role: host", "role: host, impair: { egress: { loss: 100% } }")).unwrap();
    a.ask("reload");
    near.qp.write(1, &[near.memory.sge(0, 4096).unwrap()], 0, far.memory.rkey(), None).unwrap();
    let lost = || a.ask("counters")["impaired"]["lost"].as_u64().filter(|&lost| lost > 0);
    assert!(crate::support::eventually(lost).is_some(), "nothing is lost");
    std::fs::write(&file, healthy).unwrap();
    a.ask("reload");
    assert_eq!(near.completion().unwrap().status, Status::Success, "what was lost is sent again");
    a.stop();
    b.stop();
}

#[test]
fn three_daemons_carry_data_through_a_lossy_switch_and_account_for_every_frame() {
    let namespace = Namespace::new(
        "ip link add va address 02:00:00:00:00:0a type veth peer name sa; ip link set va up; ip link set sa up
         ip link add vb address 02:00:00:00:00:0b type veth peer name sb; ip link set vb up; ip link set sb up",
    );
    let port = |name: &str, seed: u32| {
        let loss = "{ loss: 1%, reorder: 1%, reorder_delay: 100us }";
        format!("  - {{ name: {name}, interface: {name}, role: switch, rate: 2Gbit, impair: {{ ingress: {loss}, seed: {seed} }} }}\n")
    };
    namespace.configure("s", &(port("sa", 1) + &port("sb", 2)), "metrics: { enabled: false }");
    let (s, a, b) = (namespace.start("s"), namespace.host("a"), namespace.host("b"));
    let len = 1 << 20;
    let (mut near, far) = connect(&a, &b, len);
    near.memory.copy_in(0, &pattern(len)).unwrap();
    write_all(&mut near, &far, len, 4);
    let mut arrived = vec![0; len];
    far.memory.copy_out(0, &mut arrived).unwrap();
    assert!(arrived == pattern(len));
    let addresses = s.ask("fdb").to_string();
    assert!(addresses.contains("02:00:00:00:00:0a") && addresses.contains("02:00:00:00:00:0b"), "{addresses}");
    a.stop();
    b.stop();
    let counters = s.ask("counters");
    let of = |path: &str| counters.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let dropped: u64 = counters["switch_drops"].as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum();
    assert!(of("/impaired/lost") > 0, "{counters}");
    assert_eq!(of("/ports/rx_frames"), of("/ports/tx_frames") + dropped + of("/queued_frames"), "{counters}");
    s.stop();
}
