//! Applications that use the library as it is meant.

use weft_verbs::{
    Access, CompletionOp, CompletionQueue, Error, Event, MemoryRegion, PostError, QpOptions, QueuePair, SendOp, SendWork, SgList, Status,
};

use super::*;

pub(super) const SERVICE: u16 = 7;
const FULL: Access = Access { local_write: true, remote_write: true, remote_read: false, remote_atomic: false };

pub(super) struct Side {
    pub(super) context: Context,
    pub(super) memory: MemoryRegion,
    pub(super) cq: CompletionQueue,
    pub(super) qp: QueuePair,
}

pub(super) fn side(world: &World, host: u8, options: &QpOptions) -> Side {
    let context = world.attach(host);
    let memory = context.register(1 << 16, FULL).unwrap();
    let cq = context.create_cq(options.sq_depth + options.rq_depth).unwrap();
    let qp = context.create_qp(&cq, &cq, options).unwrap();
    Side { context, memory, cq, qp }
}

/// Two connected applications, one on each host. The accepting side sends its remote key along.
pub(super) fn connected(world: &World, options: &QpOptions) -> (Side, Side, u32) {
    let (mut a, mut b) = (side(world, 0, options), side(world, 1, options));
    b.context.listen(SERVICE).unwrap();
    let (client, rkey) = thread::scope(|scope| {
        let connecting = scope.spawn(|| a.qp.connect("b", SERVICE, b"hello", PATIENCE));
        let Some(Event::ConnectRequest { request, service, peer, private }) = b.context.next_event(PATIENCE).unwrap() else {
            panic!("no request");
        };
        assert_eq!((service, peer, private.as_slice()), (SERVICE, mac(0), b"hello".as_slice()));
        b.qp.accept(request, &b.memory.rkey().to_be_bytes(), PATIENCE).unwrap();
        let agreed = connecting.join().unwrap().unwrap();
        (agreed.recovery, u32::from_be_bytes(agreed.private.try_into().unwrap()))
    });
    assert_eq!(client, Recovery::Irn);
    (a, b, rkey)
}

#[test]
fn a_message_and_a_write_cross_between_two_applications() {
    let world = World::start();
    let (mut a, mut b, rkey) = connected(&world, &QpOptions::default());
    b.qp.recv(100, &[b.memory.sge(0, 10).unwrap(), b.memory.sge(1000, 10_000).unwrap()]).unwrap();
    let message: Vec<u8> = (0..8000u32).map(|at| at.to_le_bytes()[0]).collect();
    a.memory.copy_in(0, &message).unwrap();
    a.qp.send(1, &[a.memory.sge(0, 8000).unwrap()], Some(42)).unwrap();

    let sent = a.cq.next_completion(PATIENCE).unwrap().unwrap();
    assert_eq!((sent.wr_id, sent.status, sent.op, sent.qp), (1, Status::Success, CompletionOp::Send, a.qp.num()));
    let got = b.cq.next_completion(PATIENCE).unwrap().unwrap();
    assert_eq!((got.wr_id, got.status, got.op, got.byte_len, got.imm), (100, Status::Success, CompletionOp::Recv, 8000, Some(42)));
    let mut out = vec![0; 8000];
    b.memory.copy_out(0, &mut out[..10]).unwrap();
    b.memory.copy_out(1000, &mut out[10..]).unwrap();
    assert_eq!(out, message);

    a.qp.write(2, &[a.memory.sge(10, 3000).unwrap()], 20_000, rkey, None).unwrap();
    let written = a.cq.next_completion(PATIENCE).unwrap().unwrap();
    assert_eq!((written.wr_id, written.status, written.op), (2, Status::Success, CompletionOp::Write));
    b.memory.copy_out(20_000, &mut out[..3000]).unwrap();
    assert_eq!(out[..3000], message[10..3010]);

    a.qp.disconnect(PATIENCE).unwrap();
    assert_eq!(b.context.next_event(PATIENCE).unwrap(), Some(Event::Disconnected { qp: b.qp.num() }));
}

#[test]
fn a_region_that_is_deregistered_too_early_fails_the_queue_pair_whose_request_names_it() {
    let world = World::start();
    let (mut a, mut b, _) = connected(&world, &QpOptions::default());
    let other = b.context.register(4096, FULL).unwrap();
    b.qp.recv(100, &[other.sge(0, 10).unwrap()]).unwrap();
    other.deregister().unwrap();
    a.qp.send(1, &[a.memory.sge(0, 10).unwrap()], None).unwrap();
    let failed = Event::QpFailed { qp: b.qp.num(), status: Status::LocalProtection };
    assert_eq!(b.context.next_event(PATIENCE).unwrap(), Some(failed));
    let got = b.cq.next_completion(PATIENCE).unwrap().unwrap();
    assert_eq!((got.wr_id, got.status), (100, Status::Flushed));
    assert_ne!(a.cq.next_completion(PATIENCE).unwrap().unwrap().status, Status::Success);
}

#[test]
fn a_long_run_through_short_queues_completes_every_request_once_and_in_order() {
    const COUNT: u64 = 3000;
    let world = World::start();
    let options = QpOptions { sq_depth: 5, rq_depth: 7, ..QpOptions::default() };
    let (mut a, mut b, _) = connected(&world, &options);
    let receiver = thread::spawn(move || {
        let (mut posted, mut next, mut done) = (0, 0, Vec::new());
        while next < COUNT {
            while b.qp.recv(posted, &[b.memory.sge(posted % 7 * 64, 64).unwrap()]).is_ok() {
                posted += 1;
            }
            assert!(b.cq.wait(PATIENCE).unwrap(), "message {next} did not arrive");
            b.cq.poll(&mut done, 3).unwrap();
            for completion in done.drain(..) {
                assert_eq!((completion.wr_id, completion.status, completion.byte_len), (next, Status::Success, 8));
                let mut bytes = [0; 8];
                b.memory.copy_out(next % 7 * 64, &mut bytes).unwrap();
                assert_eq!(u64::from_le_bytes(bytes), next);
                next += 1;
            }
        }
        assert!(posted <= COUNT + 7);
        b
    });
    let (mut next, mut done) = (0, Vec::new());
    while next < COUNT {
        // Every third request is signalled; it makes room for the two before it. Of eight places five are in use.
        a.memory.copy_in(next % 8 * 8, &next.to_le_bytes()).unwrap();
        let local = SgList::new(&[a.memory.sge(next % 8 * 8, 8).unwrap()]).unwrap();
        let signaled = next % 3 == 2;
        match a.qp.post_send(&SendWork { signaled, ..SendWork::new(next, SendOp::Send, local.into()) }) {
            Ok(()) => next += 1,
            Err(PostError::QueueFull) => {
                assert!(a.cq.wait(PATIENCE).unwrap(), "no completion with a full queue");
                a.cq.poll(&mut done, 2).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    let b = receiver.join().unwrap();
    while done.len() < usize::try_from(COUNT / 3).unwrap() {
        assert!(a.cq.wait(PATIENCE).unwrap());
        a.cq.poll(&mut done, 2).unwrap();
    }
    let ids: Vec<u64> = done.iter().map(|completion| completion.wr_id).collect();
    assert_eq!(ids, (2..COUNT).step_by(3).collect::<Vec<_>>());
    drop(b);
}

#[test]
fn the_death_of_the_daemon_is_an_error_everywhere_and_soon() {
    let mut world = World::start();
    let (mut a, b, _) = connected(&world, &QpOptions::default());
    a.qp.recv(1, &[]).unwrap();
    let hosts = world.stop();
    let waiting = thread::spawn(move || {
        let outcome = a.cq.wait(PATIENCE);
        (a, outcome)
    });
    drop(hosts);
    let (mut a, outcome) = waiting.join().unwrap();
    assert!(matches!(outcome, Err(Error::DaemonGone)), "{outcome:?}");
    assert_eq!(a.qp.recv(2, &[]), Err(PostError::DaemonGone));
    assert!(matches!(a.cq.poll(&mut Vec::new(), 1), Err(Error::DaemonGone)));
    assert!(matches!(a.context.next_event(PATIENCE), Err(Error::DaemonGone)));
    assert!(matches!(a.context.listen(1), Err(Error::DaemonGone)));
    assert!(matches!(Context::attach(world.path(0), "again"), Err(Error::Unreachable { .. })));
    // An application that only polls finds out too.
    let mut b = b;
    let found = (0..100_000).find_map(|_| b.cq.poll(&mut Vec::new(), 1).err());
    assert!(matches!(found, Some(Error::DaemonGone)), "{found:?}");
}

#[test]
fn when_an_application_ends_its_peer_is_told_and_nothing_of_it_stays() {
    let mut world = World::start();
    let (a, mut b, _) = connected(&world, &QpOptions::default());
    b.qp.recv(5, &[b.memory.sge(0, 8).unwrap()]).unwrap();
    drop(a);
    assert_eq!(b.context.next_event(PATIENCE).unwrap(), Some(Event::Disconnected { qp: b.qp.num() }));
    let flushed = b.cq.next_completion(PATIENCE).unwrap().unwrap();
    assert_eq!((flushed.wr_id, flushed.status), (5, Status::Flushed));
    drop(b);
    // Both are seen to be gone once a third has been served.
    drop(world.attach(0).create_cq(1).unwrap());
    drop(world.attach(1).create_cq(1).unwrap());
    let [mut host_a, mut host_b] = world.stop();
    for host in [&mut host_a, &mut host_b] {
        let mut now = Instant::from_nanos(1 << 50);
        for _ in 0..10 {
            now += weft_proto::Duration::from_secs(1);
            host.breathe(now, &mut Vec::new());
        }
        assert_eq!(host.server.sessions().count(), 0);
        assert!(host.table.is_empty(), "{:?}", host.table);
    }
}

#[test]
fn room_in_a_completion_queue_is_reserved_and_comes_back() {
    let world = World::start();
    let context = world.attach(0);
    let cq = context.create_cq(16).unwrap();
    let options = QpOptions { sq_depth: 8, rq_depth: 4, ..QpOptions::default() };
    let qp = context.create_qp(&cq, &cq, &options).unwrap();
    let refused = context.create_qp(&cq, &cq, &options).unwrap_err();
    assert!(matches!(refused, Error::Refused { code: weft_verbs::protocol::ErrorCode::LimitReached, .. }), "{refused}");
    drop(qp);
    for _ in 0..20 {
        drop(context.create_qp(&cq, &cq, &options).unwrap());
    }
}

#[test]
fn room_of_a_destroyed_queue_pair_comes_back_only_after_its_completions_were_taken() {
    let world = World::start();
    let context = world.attach(0);
    let mut cq = context.create_cq(8).unwrap();
    let options = QpOptions { sq_depth: 4, rq_depth: 4, ..QpOptions::default() };
    let mut qp = context.create_qp(&cq, &cq, &options).unwrap();
    for id in 0..4 {
        qp.send(id, &[], None).unwrap();
    }
    // Not connected, so they are flushed; this makes sure that they are.
    assert!(cq.wait(PATIENCE).unwrap());
    drop(qp);
    assert!(context.create_qp(&cq, &cq, &options).is_err());
    let mut done = Vec::new();
    assert_eq!(cq.poll(&mut done, 10).unwrap(), 0, "completions of a dropped queue pair are skipped");
    context.create_qp(&cq, &cq, &options).unwrap();
}

#[test]
fn requests_before_the_connection_stands_are_flushed_each_once() {
    let world = World::start();
    let mut side = side(&world, 0, &QpOptions::default());
    for id in 0..3 {
        side.qp.send(id, &[side.memory.sge(0, 8).unwrap()], None).unwrap();
    }
    for id in 0..3 {
        let completion = side.cq.next_completion(PATIENCE).unwrap().unwrap();
        assert_eq!((completion.wr_id, completion.status), (id, Status::Flushed));
    }
    assert_eq!(side.cq.next_completion(Duration::ZERO).unwrap(), None);
}

#[test]
fn connections_fail_with_the_reason() {
    let world = World::start();
    let mut side = side(&world, 0, &QpOptions::default());
    let failed = side.qp.connect("b", 99, b"", PATIENCE).unwrap_err();
    assert!(matches!(failed, Error::ConnectFailed { reason: weft_verbs::ConnectFailure::NoListener, .. }), "{failed}");
    let mut qp =
        side.context.create_qp(&side.context.create_cq(64).unwrap(), &side.context.create_cq(64).unwrap(), &QpOptions::default()).unwrap();
    let failed = qp.connect("nowhere", 99, b"", PATIENCE).unwrap_err().to_string();
    assert_eq!(
        failed,
        r#"cannot connect: "nowhere" is neither an Ethernet address nor a name under `hosts` of weftd's configuration (a, b)"#
    );
    let failed = qp.connect("02:00:00:00:00:63", 99, b"", PATIENCE).unwrap_err();
    assert!(matches!(failed, Error::ConnectFailed { reason: weft_verbs::ConnectFailure::Unreachable, .. }), "{failed}");
}

#[test]
fn two_threads_may_wait_on_one_attachment() {
    let world = World::start();
    let context = world.attach(1);
    context.listen(SERVICE).unwrap();
    let listener = thread::spawn({
        let context = context.clone();
        move || context.next_event(PATIENCE).unwrap()
    });
    // Answers to these must not be lost to the thread that waits for events.
    for _ in 0..50 {
        drop(context.create_cq(4).unwrap());
    }
    let mut other = side(&world, 0, &QpOptions::default());
    assert!(other.qp.connect("b", SERVICE, b"", Duration::from_millis(200)).is_err(), "nobody accepts");
    assert!(matches!(listener.join().unwrap(), Some(Event::ConnectRequest { .. })));
}

#[test]
fn a_key_of_another_application_opens_nothing_here_or_at_the_peer() {
    let world = World::start();
    let (mut a, b, _) = connected(&world, &QpOptions::default());
    let neighbour = world.attach(0).register(4096, FULL).unwrap();
    a.qp.send(1, &[neighbour.sge(0, 8).unwrap()], None).unwrap();
    let refused = a.cq.next_completion(PATIENCE).unwrap().unwrap();
    assert_eq!((refused.wr_id, refused.status), (1, Status::LocalProtection));
    let event = a.context.next_event(PATIENCE).unwrap();
    assert_eq!(event, Some(Event::SendQueueFailed { qp: a.qp.num(), status: Status::LocalProtection }));
    drop((a, b));

    let (mut a, _b, _) = connected_again(&world);
    let neighbour = world.attach(1).register(4096, FULL).unwrap();
    a.memory.copy_in(0, b"intruder").unwrap();
    a.qp.write(2, &[a.memory.sge(0, 8).unwrap()], 0, neighbour.rkey(), None).unwrap();
    let refused = a.cq.next_completion(PATIENCE).unwrap().unwrap();
    assert_eq!((refused.wr_id, refused.status), (2, Status::RemoteAccess));
    let mut bytes = [1; 8];
    neighbour.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 8]);
}

/// As [`connected`], once the daemon has seen that the listener before has gone.
fn connected_again(world: &World) -> (Side, Side, u32) {
    let probe = world.attach(1);
    while probe.listen(SERVICE).is_err() {
        thread::yield_now();
    }
    probe.unlisten(SERVICE).unwrap();
    connected(world, &QpOptions::default())
}
