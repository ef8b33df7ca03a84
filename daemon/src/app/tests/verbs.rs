//! Every verb from one application to another, and how each one fails.

use weft_verbs::{
    Access, AtomicOp, Completion, CompletionOp, CompletionQueue, Data, Error, Event, Inline, MemoryRegion, PostError, QpOptions, QueuePair,
    SendOp, SendWork, SgList, Sge, SharedReceiveQueue, Status,
};

use super::honest::{SERVICE, Side, connected, side};
use super::*;

const ALL: Access = Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };
/// What the peer may not do here.
const LOCAL: Access = Access { local_write: true, remote_write: false, remote_read: false, remote_atomic: false };

fn next(cq: &mut CompletionQueue) -> Completion {
    cq.next_completion(PATIENCE).unwrap().expect("nothing completes")
}

/// The next completion, which must be the success of this request.
fn done(side: &mut Side, wr_id: u64, op: CompletionOp) -> Completion {
    let completion = next(&mut side.cq);
    assert_eq!((completion.wr_id, completion.op, completion.status), (wr_id, op, Status::Success));
    completion
}

fn bytes<const N: usize>(region: &MemoryRegion, offset: u64) -> [u8; N] {
    let mut out = [0; N];
    region.copy_out(offset, &mut out).unwrap();
    out
}

fn word(region: &MemoryRegion, offset: u64) -> u64 {
    u64::from_ne_bytes(bytes(region, offset))
}

#[test]
fn messages_of_each_kind_arrive_as_what_they_are() {
    let world = World::start();
    let (mut a, mut b, rkey) = connected(&world, &QpOptions::default());
    for wr_id in 0..4 {
        b.qp.recv(wr_id, &[b.memory.sge(wr_id * 100, 100).unwrap()]).unwrap();
    }
    let other = b.context.register(4096, ALL).unwrap();
    let mut data = *b"inline";
    a.qp.send_inline(1, &data, None).unwrap();
    data.fill(0);
    a.memory.copy_in(0, b"and void").unwrap();
    a.qp.send_invalidate(2, &[a.memory.sge(0, 8).unwrap()], other.rkey()).unwrap();
    a.qp.write_inline(3, &[7; 64], 5000, rkey, Some(42)).unwrap();
    a.qp.send_inline(4, &[], Some(1)).unwrap();
    for (wr_id, op) in [(1, CompletionOp::Send), (2, CompletionOp::Send), (3, CompletionOp::Write), (4, CompletionOp::Send)] {
        done(&mut a, wr_id, op);
    }
    let got: Vec<Completion> = (0..4).map(|_| next(&mut b.cq)).collect();
    let told: Vec<_> = got.iter().map(|c| (c.wr_id, c.status, c.op, c.byte_len, c.imm, c.invalidated)).collect();
    let ok = Status::Success;
    let expected = [
        (0, ok, CompletionOp::Recv, 6, None, None),
        (1, ok, CompletionOp::Recv, 8, None, Some(other.rkey())),
        (2, ok, CompletionOp::RecvWriteImm, 64, Some(42), None),
        (3, ok, CompletionOp::Recv, 0, Some(1), None),
    ];
    assert_eq!(told, expected);
    assert_eq!((&bytes(&b.memory, 0), &bytes(&b.memory, 100)), (b"inline", b"and void"));
    assert_eq!(bytes(&b.memory, 5000), [7; 64]);
    // The key is void now, also for its owner.
    b.qp.send(9, &[other.sge(0, 8).unwrap()], None).unwrap();
    assert_eq!(next(&mut b.cq).status, Status::LocalProtection);
}

#[test]
fn reads_and_atomics_bring_what_the_peer_has() {
    let world = World::start();
    let (mut a, b, _) = connected(&world, &QpOptions::default());
    let mut there = b.context.register(1 << 16, ALL).unwrap();
    let text: Vec<u8> = (0..20_000u32).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect();
    there.copy_in(100, &text).unwrap();
    a.qp.read(1, &[a.memory.sge(0, 13).unwrap(), a.memory.sge(1000, 19_987).unwrap()], 100, there.rkey()).unwrap();
    let read = done(&mut a, 1, CompletionOp::Read);
    assert_eq!(read.byte_len, 20_000);
    let mut out = vec![0; 20_000];
    a.memory.copy_out(0, &mut out[..13]).unwrap();
    a.memory.copy_out(1000, &mut out[13..]).unwrap();
    assert!(out == text);

    there.atomic(8).unwrap().store(40, Ordering::Relaxed);
    let result = a.memory.sge(40_000, 8).unwrap();
    let rkey = there.rkey();
    let mut atomics = 0;
    let mut outcome = |a: &mut Side, post: &dyn Fn(&mut QueuePair, u64) -> Result<(), PostError>| {
        atomics += 1;
        post(&mut a.qp, 100 + atomics).unwrap();
        assert_eq!(done(a, 100 + atomics, CompletionOp::Atomic).byte_len, 8);
        (word(&a.memory, 40_000), word(&there, 8))
    };
    assert_eq!(outcome(&mut a, &|qp, id| qp.fetch_add(id, result, 8, rkey, 2)), (40, 42));
    assert_eq!(outcome(&mut a, &|qp, id| qp.compare_swap(id, result, 8, rkey, 41, 7)), (42, 42));
    assert_eq!(outcome(&mut a, &|qp, id| qp.compare_swap(id, result, 8, rkey, 42, 7)), (42, 7));
    assert_eq!(outcome(&mut a, &|qp, id| qp.fetch_add(id, result, 8, rkey, u64::MAX)), (7, 6));

    let mine = a.context.register(4096, LOCAL).unwrap();
    a.qp.local_invalidate(3, mine.lkey()).unwrap();
    assert_eq!(done(&mut a, 3, CompletionOp::LocalInvalidate).byte_len, 0);
    a.qp.read(4, &[mine.sge(0, 8).unwrap()], 0, rkey).unwrap();
    assert_eq!(next(&mut a.cq).status, Status::LocalProtection);
}

/// How one request on a fresh connection ends. The peer's region has `access`.
fn outcome(access: Access, post: impl FnOnce(&mut Side, &MemoryRegion) -> Result<(), PostError>) -> (Completion, Side, Side) {
    outcome_in(&World::start(), access, post)
}

fn outcome_in(
    world: &World,
    access: Access,
    post: impl FnOnce(&mut Side, &MemoryRegion) -> Result<(), PostError>,
) -> (Completion, Side, Side) {
    let (mut a, b, _) = connected(world, &QpOptions::default());
    let there = b.context.register(4096, access).unwrap();
    post(&mut a, &there).unwrap();
    let completion = next(&mut a.cq);
    assert_eq!(bytes(&there, 0), [0; 4096]);
    (completion, a, b)
}

#[test]
fn reads_and_atomics_without_the_right_are_refused_by_the_peer() {
    let piece = |a: &Side| a.memory.sge(0, 8).unwrap();
    let no_read = Access { remote_read: false, ..ALL };
    let no_atomic = Access { remote_atomic: false, ..ALL };
    let refused = |(completion, a, _b): (Completion, Side, Side)| {
        assert_eq!((completion.wr_id, completion.status), (1, Status::RemoteAccess));
        let event = a.context.next_event(PATIENCE).unwrap();
        assert_eq!(event, Some(Event::QpFailed { qp: a.qp.num(), status: Status::RemoteAccess }));
    };
    refused(outcome(no_read, |a, there| a.qp.read(1, &[piece(a)], 0, there.rkey())));
    refused(outcome(no_atomic, |a, there| a.qp.fetch_add(1, piece(a), 0, there.rkey(), 1)));
    refused(outcome(no_atomic, |a, there| a.qp.compare_swap(1, piece(a), 0, there.rkey(), 0, 1)));
    // Keys and ranges.
    refused(outcome(ALL, |a, there| a.qp.read(1, &[piece(a)], 0, there.rkey() ^ 1)));
    refused(outcome(ALL, |a, there| a.qp.read(1, &[piece(a)], 4089, there.rkey())));
    refused(outcome(ALL, |a, there| a.qp.fetch_add(1, piece(a), 4096, there.rkey(), 1)));
}

/// Fault class: an atomic of an odd length or at an odd address (transport case 47).
#[test]
fn an_atomic_at_an_address_that_is_no_multiple_of_eight_is_invalid() {
    for addr in [1, 4, 7, 4095] {
        let (completion, ..) = outcome(ALL, |a, there| a.qp.fetch_add(1, a.memory.sge(0, 8).unwrap(), addr, there.rkey(), 1));
        assert_eq!((completion.wr_id, completion.status), (1, Status::RemoteInvalidRequest), "{addr}");
    }
}

/// Fault class: transfers of no bytes that need a key, or never end (transport cases 41 and 42).
#[test]
fn transfers_of_no_bytes_need_no_key_and_complete() {
    let world = World::start();
    let (mut a, mut b, _) = connected(&world, &QpOptions::default());
    b.qp.recv(7, &[]).unwrap();
    a.qp.write(1, &[], 0, 0xdead_beef, None).unwrap();
    a.qp.read(2, &[], 0, 0xdead_beef).unwrap();
    a.qp.write(3, &[], 0, 0xdead_beef, Some(9)).unwrap();
    for (wr_id, op) in [(1, CompletionOp::Write), (2, CompletionOp::Read), (3, CompletionOp::Write)] {
        assert_eq!(done(&mut a, wr_id, op).byte_len, 0);
    }
    let told = done(&mut b, 7, CompletionOp::RecvWriteImm);
    assert_eq!((told.imm, told.byte_len), (Some(9), 0));
}

/// Fault class: transfers that stop at 8 KiB (transport case 37), and receives of a WRITE with immediate whose length or
/// kind is wrong (case 49).
#[test]
fn lengths_around_eight_kibibytes_cross_in_full_with_every_verb() {
    let world = World::start();
    let (mut a, mut b, rkey) = connected(&world, &QpOptions::default());
    let mut there = b.context.register(1 << 16, ALL).unwrap();
    let text: Vec<u8> = (0..8193u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    a.memory.copy_in(0, &text).unwrap();
    there.copy_in(0, &text).unwrap();
    let taken = |region: &MemoryRegion, at: u64, len: u32| {
        let mut out = vec![0; len as usize];
        region.copy_out(at, &mut out).unwrap();
        out
    };
    for len in [1, 1499, 1500, 4096, 8191, 8192, 8193] {
        let expected = &text[..len as usize];
        let piece = [a.memory.sge(0, len).unwrap()];
        b.qp.recv(1, &[b.memory.sge(0, len).unwrap()]).unwrap();
        b.qp.recv(2, &[]).unwrap();
        a.qp.send(3, &piece, None).unwrap();
        a.qp.write(4, &piece, 20_000, rkey, Some(len)).unwrap();
        a.qp.read(5, &[a.memory.sge(40_000, len).unwrap()], 0, there.rkey()).unwrap();
        for (wr_id, op) in [(3, CompletionOp::Send), (4, CompletionOp::Write), (5, CompletionOp::Read)] {
            assert_eq!(done(&mut a, wr_id, op).byte_len, len);
        }
        assert_eq!(done(&mut b, 1, CompletionOp::Recv).byte_len, len);
        let told = done(&mut b, 2, CompletionOp::RecvWriteImm);
        assert_eq!((told.imm, told.byte_len), (Some(len), len));
        assert!(taken(&b.memory, 0, len) == expected && taken(&b.memory, 20_000, len) == expected, "{len}");
        assert!(taken(&a.memory, 40_000, len) == expected, "{len}");
    }
}

#[test]
fn nothing_is_read_into_memory_that_may_not_be_written_and_sending_can_be_resumed() {
    let world = World::start();
    let (completion, mut a, mut b) = outcome_in(&world, ALL, |a, there| {
        let read_only = a.context.register(4096, Access::default()).unwrap();
        let posted = a.qp.read(1, &[read_only.sge(0, 8).unwrap()], 0, there.rkey());
        std::mem::forget(read_only);
        posted
    });
    assert_eq!((completion.wr_id, completion.op, completion.status), (1, CompletionOp::Read, Status::LocalProtection));
    let event = a.context.next_event(PATIENCE).unwrap();
    assert_eq!(event, Some(Event::SendQueueFailed { qp: a.qp.num(), status: Status::LocalProtection }));
    a.qp.send(2, &[], None).unwrap();
    assert_eq!(next(&mut a.cq).status, Status::Flushed);
    // Receiving goes on meanwhile, and sending after this.
    a.qp.recv(3, &[]).unwrap();
    b.qp.recv(4, &[]).unwrap();
    b.qp.send(5, &[], None).unwrap();
    done(&mut a, 3, CompletionOp::Recv);
    a.qp.resume().unwrap();
    a.qp.send(6, &[], None).unwrap();
    done(&mut a, 6, CompletionOp::Send);
}

/// Fault class: atomic of length 0 or 7 (transport case 47), at the poster's side.
#[test]
fn requests_that_make_no_sense_are_refused_when_posted_and_queue_nothing() {
    use weft_verbs::layout::BadEntry;
    let world = World::start();
    let mut side = side(&world, 0, &QpOptions { sq_depth: 1, rq_depth: 1, ..QpOptions::default() });
    let piece = |len| Data::List(SgList::new(&[side.memory.sge(0, len).unwrap()]).unwrap());
    let atomic = SendOp::Atomic { remote_addr: 0, rkey: 0, op: AtomicOp::FetchAdd { add: 1 } };
    let read = SendOp::Read { remote_addr: 0, rkey: 0 };
    let write = SendOp::Write { remote_addr: 0, rkey: 0 };
    let plain = |op, local| SendWork::new(1, op, local);
    let works = [
        (plain(atomic, piece(0)), BadEntry::AtomicLength(0)),
        (plain(atomic, piece(7)), BadEntry::AtomicLength(7)),
        (plain(atomic, piece(16)), BadEntry::AtomicLength(16)),
        (plain(read, Data::Inline(Inline::new(b"?").unwrap())), BadEntry::Inline),
        (SendWork { imm: Some(1), ..plain(read, piece(8)) }, BadEntry::Immediate),
        (SendWork { imm: Some(1), ..plain(SendOp::SendInvalidate { rkey: 1 }, piece(8)) }, BadEntry::Immediate),
        (SendWork { solicited: true, ..plain(write, piece(8)) }, BadEntry::Solicited),
        (plain(SendOp::LocalInvalidate { key: 1 }, piece(3)), BadEntry::Data(3)),
    ];
    for (work, expected) in works {
        assert_eq!(side.qp.post_send(&work), Err(PostError::Meaningless(expected)));
    }
    let long = Data::List(SgList::new(&[Sge { addr: 0, len: u32::MAX, lkey: 1 }; 2]).unwrap());
    assert_eq!(side.qp.post_send(&plain(read, long)), Err(PostError::TooLong));
    assert_eq!(side.qp.send_inline(1, &[0; 65], None), Err(PostError::TooMuchInline));
    side.qp.send(2, &[], None).unwrap();
    assert_eq!(next(&mut side.cq).wr_id, 2);
}

/// Fault class: success reported without a place in the queue (transport case 35).
#[test]
fn one_request_more_than_the_queue_holds_is_refused() {
    let world = World::start();
    let mut side = side(&world, 0, &QpOptions { sq_depth: 2, rq_depth: 2, ..QpOptions::default() });
    for wr_id in 0..2 {
        side.qp.send(wr_id, &[], None).unwrap();
        side.qp.recv(wr_id, &[]).unwrap();
    }
    assert_eq!(side.qp.send(2, &[], None), Err(PostError::QueueFull));
    assert_eq!(side.qp.recv(2, &[]), Err(PostError::QueueFull));
    let mut srq = side.context.create_srq(2).unwrap();
    (0..2).for_each(|wr_id| srq.recv(wr_id, &[]).unwrap());
    assert_eq!(srq.recv(2, &[]), Err(PostError::QueueFull));
}

#[test]
fn a_drained_send_queue_begins_nothing_until_it_is_resumed() {
    let world = World::start();
    let (mut a, mut b, _) = connected(&world, &QpOptions::default());
    for wr_id in 0..2 {
        b.qp.recv(wr_id, &[]).unwrap();
    }
    assert!(matches!(a.qp.resume(), Err(Error::Refused { .. })), "it is not drained");
    a.qp.send_inline(1, b"", None).unwrap();
    done(&mut a, 1, CompletionOp::Send);
    a.qp.drain(PATIENCE).unwrap();
    next(&mut b.cq);
    a.qp.send_inline(2, b"", None).unwrap();
    assert_eq!(b.cq.next_completion(Duration::from_millis(20)).unwrap(), None);
    a.qp.resume().unwrap();
    done(&mut a, 2, CompletionOp::Send);
    next(&mut b.cq);
    assert!(matches!(side(&world, 0, &QpOptions::default()).qp.drain(PATIENCE), Err(Error::Refused { .. })), "not connected");
}

#[test]
fn a_word_changed_by_the_peer_and_by_its_owner_at_once_loses_nothing() {
    const ROUNDS: u64 = 500;
    let world = World::start();
    let (mut a, b, _) = connected(&world, &QpOptions::default());
    let there = b.context.register(4096, ALL).unwrap();
    let (rkey, stop) = (there.rkey(), AtomicBool::new(false));
    let own = thread::scope(|scope| {
        let hammer = scope.spawn(|| {
            let mut own = 0;
            while !stop.load(Ordering::Relaxed) {
                there.atomic(64).unwrap().fetch_add(1, Ordering::Relaxed);
                own += 1;
            }
            own
        });
        for wr_id in 0..ROUNDS {
            a.qp.fetch_add(wr_id, a.memory.sge(0, 8).unwrap(), 64, rkey, 1).unwrap();
            done(&mut a, wr_id, CompletionOp::Atomic);
        }
        stop.store(true, Ordering::Relaxed);
        hammer.join().unwrap()
    });
    assert_eq!(word(&there, 64), ROUNDS + own);
}

#[test]
fn who_waits_for_solicited_completions_sleeps_through_others() {
    let world = World::start();
    let (mut a, mut b, _) = connected(&world, &QpOptions::default());
    for wr_id in 0..3 {
        b.qp.recv(wr_id, &[]).unwrap();
    }
    let message = SendWork::new(1, SendOp::Send, Data::EMPTY);
    a.qp.post_send(&message).unwrap();
    assert!(b.cq.wait(PATIENCE).unwrap());
    assert!(!b.cq.wait_solicited(Duration::from_millis(20)).unwrap(), "an ordinary one");
    let start = Clock::now();
    let sleeper = thread::spawn(move || {
        let found = b.cq.wait_solicited(PATIENCE).unwrap();
        (b, found)
    });
    // It sleeps by now, most likely; if not, it finds the message in the queue.
    thread::sleep(Duration::from_millis(20));
    a.qp.post_send(&SendWork { solicited: true, ..message }).unwrap();
    let (mut b, found) = sleeper.join().unwrap();
    assert!(found);
    let solicited: Vec<bool> = (0..2).map(|_| next(&mut b.cq).solicited).collect();
    assert_eq!(solicited, [false, true], "one without the other's");
    // A failure wakes as well.
    let sleeper = thread::spawn(move || (b.cq.wait_solicited(PATIENCE).unwrap(), b));
    thread::sleep(Duration::from_millis(20));
    a.qp.disconnect(PATIENCE).unwrap();
    let (found, mut b) = sleeper.join().unwrap();
    assert!(found);
    // Whoever is not woken finds them at the end of its patience.
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    assert_eq!(next(&mut b.cq).status, Status::Flushed);
}

/// A server whose queue pairs share receives and a completion queue, and its clients.
struct Hall {
    context: Context,
    memory: MemoryRegion,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    qps: Vec<QueuePair>,
    clients: Vec<Side>,
}

const SHARED_DEPTH: u32 = 6;

impl Hall {
    fn new(world: &World, clients: usize) -> Self {
        let context = world.attach(1);
        let memory = context.register(4096, LOCAL).unwrap();
        let options = QpOptions { sq_depth: 2, ..QpOptions::default() };
        // Room for the shared receives once, and for the sends of each.
        let cq = context.create_cq(SHARED_DEPTH + 2 * u32::try_from(clients).unwrap()).unwrap();
        let srq = context.create_srq(SHARED_DEPTH).unwrap();
        context.listen(SERVICE).unwrap();
        let mut hall = Self { context, memory, cq, srq, qps: Vec::new(), clients: Vec::new() };
        for _ in 0..clients {
            hall.qps.push(hall.context.create_qp_with_srq(&hall.cq, &hall.cq, &hall.srq, &options).unwrap());
            hall.clients.push(side(world, 0, &QpOptions::default()));
            let (server, client) = (hall.qps.last_mut().unwrap(), hall.clients.last_mut().unwrap());
            thread::scope(|scope| {
                scope.spawn(|| client.qp.connect("b", SERVICE, b"", PATIENCE).unwrap());
                let Some(Event::ConnectRequest { request, .. }) = hall.context.next_event(PATIENCE).unwrap() else { panic!("no request") };
                server.accept(request, b"", PATIENCE).unwrap();
            });
        }
        hall
    }

    fn post(&mut self, wr_id: u64) -> Result<(), PostError> {
        self.srq.recv(wr_id, &[self.memory.sge(wr_id % u64::from(SHARED_DEPTH) * 8, 8).unwrap()])
    }
}

#[test]
fn queue_pairs_share_receives_and_each_message_arrives_whole_and_once() {
    const ROUNDS: u64 = 200;
    let world = World::start();
    let mut hall = Hall::new(&world, 3);
    let mut posted = 0;
    let mut arrived = [0; 3];
    let mut sent = [0; 3];
    assert_eq!(hall.qps[0].recv(0, &[]), Err(PostError::SharedReceives));
    while arrived.iter().sum::<u64>() < 3 * ROUNDS {
        while hall.post(posted).is_ok() {
            posted += 1;
        }
        for (number, client) in hall.clients.iter_mut().enumerate() {
            client.cq.poll(&mut Vec::new(), 8).unwrap();
            let text = (number as u64 * ROUNDS + sent[number]).to_be_bytes();
            sent[number] += u64::from(sent[number] < ROUNDS && client.qp.send_inline(0, &text, None).is_ok());
        }
        let got = next(&mut hall.cq);
        assert_eq!((got.status, got.op, got.byte_len), (Status::Success, CompletionOp::Recv, 8));
        let from = hall.qps.iter().position(|qp| qp.num() == got.qp).unwrap();
        let text = u64::from_be_bytes(bytes(&hall.memory, got.wr_id % u64::from(SHARED_DEPTH) * 8));
        assert_eq!(text, from as u64 * ROUNDS + arrived[from], "in order, and where the receive said");
        arrived[from] += 1;
        // The piece of memory belongs to the receive that has just ended; give the same one out again.
        hall.post(got.wr_id).unwrap();
    }
}

#[test]
fn a_shared_receive_queue_that_runs_low_is_told_once() {
    let world = World::start();
    let mut hall = Hall::new(&world, 1);
    for wr_id in 0..4 {
        hall.post(wr_id).unwrap();
    }
    let told = |hall: &Hall, wait: Duration| hall.context.next_event(wait).unwrap();
    assert!(matches!(hall.srq.set_limit(SHARED_DEPTH + 1), Err(Error::Refused { .. })));
    hall.srq.set_limit(4).unwrap();
    // Nothing is below four yet, if the worker has seen all four: it took them before it answered.
    assert_eq!(told(&hall, Duration::from_millis(5)), None);
    for wr_id in 0..2 {
        hall.clients[0].qp.send_inline(wr_id, b"", None).unwrap();
        next(&mut hall.cq);
    }
    assert_eq!(told(&hall, PATIENCE), Some(Event::SrqLimit { srq: hall.srq.id() }));
    assert_eq!(told(&hall, Duration::from_millis(20)), None);
}

#[test]
fn receives_of_a_queue_pair_that_was_dropped_make_room_again() {
    let world = World::start();
    let mut hall = Hall::new(&world, 2);
    for wr_id in 0..u64::from(SHARED_DEPTH) {
        hall.post(wr_id).unwrap();
    }
    for wr_id in 0..4 {
        hall.clients[0].qp.send_inline(wr_id, b"lost", None).unwrap();
        done(&mut hall.clients[0], wr_id, CompletionOp::Send);
    }
    // Four completions wait in the queue; their queue pair goes.
    drop(hall.qps.remove(0));
    assert_eq!(hall.post(10), Err(PostError::QueueFull));
    let mut out = Vec::new();
    let start = Clock::now();
    while hall.cq.poll(&mut out, 1).unwrap() > 0 || hall.post(11).is_err() {
        assert!(start.elapsed() < PATIENCE, "the places are lost");
    }
    assert!(out.is_empty(), "skipped");
    hall.clients[1].qp.send_inline(1, b"heard", None).unwrap();
    let got = next(&mut hall.cq);
    assert_eq!((got.wr_id, got.status, got.qp), (4, Status::Success, hall.qps[0].num()));
}

#[test]
fn a_completion_queue_holds_the_shared_receives_once_for_all_queue_pairs() {
    let world = World::start();
    let context = world.attach(0);
    let srq = context.create_srq(8).unwrap();
    let options = QpOptions { sq_depth: 4, ..QpOptions::default() };
    let (small, fitting) = (context.create_cq(8).unwrap(), context.create_cq(16).unwrap());
    let refused = context.create_qp_with_srq(&small, &small, &srq, &options).unwrap_err();
    assert!(matches!(refused, Error::Refused { code: weft_verbs::protocol::ErrorCode::LimitReached, .. }), "{refused}");
    let first = context.create_qp_with_srq(&fitting, &fitting, &srq, &options).unwrap();
    let _second = context.create_qp_with_srq(&fitting, &fitting, &srq, &options).unwrap();
    assert!(context.create_qp_with_srq(&fitting, &fitting, &srq, &options).is_err(), "no room for the sends of a third");
    drop(first);
    for _ in 0..20 {
        drop(context.create_qp_with_srq(&fitting, &fitting, &srq, &options).unwrap());
    }
}

#[test]
fn a_shared_receive_queue_lives_as_long_as_its_queue_pairs() {
    let world = World::start();
    let context = world.attach(0);
    let cq = context.create_cq(64).unwrap();
    let srqs = [context.create_srq(8).unwrap(), context.create_srq(8).unwrap()];
    let qp = context.create_qp_with_srq(&cq, &cq, &srqs[0], &QpOptions::default()).unwrap();
    drop(srqs);
    // An answer to something later: the daemon has heard of what was dropped.
    let heard = || drop(context.create_cq(1).unwrap());
    heard();
    // One of the two that are allowed is still used.
    let again = context.create_srq(8).unwrap();
    assert!(context.create_srq(8).is_err());
    drop((qp, again));
    heard();
    let _both = [context.create_srq(8).unwrap(), context.create_srq(8).unwrap()];
}
