//! The attach protocol, request by request, with the refusals that people will see.

use std::fs::File;

use rustix::fs::{MemfdFlags, SealFlags};
use weft_verbs::Access;
use weft_verbs::layout::VERSION;
use weft_verbs::protocol::{ErrorCode, MAX_MESSAGE, Reply};
use weft_verbs::socket::Received;

use super::*;
use crate::app::session::AppSession;

fn hello() -> Command {
    Command::Hello { version: VERSION, name: "raw".into() }
}

fn code_of(message: FromDaemon) -> (ErrorCode, String) {
    match message {
        FromDaemon::Error { code, message, .. } => (code, message),
        other => panic!("not refused: {other:?}"),
    }
}

fn register(len: u64) -> Command {
    Command::RegisterMemory { base: 0, len, access: Access::default() }
}

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

/// An application that misbehaves is told why, and then its connection closes; others go on.
fn is_cut_off(world: &World, misbehave: impl FnOnce(&mut Raw)) -> String {
    let (mut raw, _) = Raw::attach(world, 0);
    misbehave(&mut raw);
    let (code, message) = code_of(raw.hear().expect("no word of explanation").0);
    assert_eq!(code, ErrorCode::BadMessage);
    assert!(raw.hear().is_none(), "still connected after: {message}");
    message
}

#[test]
fn messages_without_sense_end_the_session_and_only_that_session() {
    let world = World::start();
    let (mut bystander, _) = Raw::attach(&world, 0);
    for garbage in
        ["", "{", "null", r#"{"id":1}"#, r#"{"id":-1,"command":{"type":"listen","service":1}}"#, r#"{"id":1,"command":{"type":"fly"}}"#]
    {
        if garbage.is_empty() {
            continue;
        }
        let message = is_cut_off(&world, |raw| raw.say(garbage.as_bytes(), &[]));
        assert!(message.starts_with("not a request of attach protocol version 3: "), "{message}");
    }
    is_cut_off(&world, |raw| raw.say(&[0xff; 1000], &[]));
    is_cut_off(&world, |raw| raw.say(&vec![b' '; MAX_MESSAGE + 1], &[]));
    let nested = "[".repeat(MAX_MESSAGE - 1);
    is_cut_off(&world, |raw| raw.say(nested.as_bytes(), &[]));
    let again = serde_json::to_vec(&Request { id: 2, command: hello() }).unwrap();
    assert_eq!(is_cut_off(&world, |raw| raw.say(&again, &[])), "hello was said already");
    assert!(matches!(bystander.ask(Command::Listen { service: 3 }, &[]).0, FromDaemon::Reply { id: 2, reply: Reply::Done }));
}

#[test]
fn descriptors_that_nobody_asked_for_end_the_session_and_are_closed() {
    let world = World::start();
    let (watched, other_end) = io::pipe().unwrap();
    let listen = serde_json::to_vec(&Request { id: 2, command: Command::Listen { service: 3 } }).unwrap();
    let wrong = "the request comes with the wrong number of descriptors";
    assert_eq!(is_cut_off(&world, |raw| raw.say(&listen, &[other_end.as_fd()])), wrong);
    let none = serde_json::to_vec(&Request { id: 2, command: register(4096) }).unwrap();
    assert_eq!(is_cut_off(&world, |raw| raw.say(&none, &[])), wrong);
    assert_eq!(is_cut_off(&world, |raw| raw.say(&none, &[other_end.as_fd(), other_end.as_fd()])), wrong);
    drop(other_end);
    assert!(socket::wait(&[watched.as_fd()], PollFlags::IN, Clock::now() + PATIENCE).unwrap(), "a descriptor stayed open");
}

#[test]
fn whoever_may_not_attach_is_told_why() {
    let world = World::start();
    let refused = |command| {
        let mut raw = Raw::connect(&world, 0);
        let refusal = code_of(raw.ask(command, &[]).0);
        assert!(raw.hear().is_none());
        refusal
    };
    let (code, message) = refused(Command::Hello { version: 99, name: "raw".into() });
    assert_eq!(code, ErrorCode::VersionMismatch);
    assert!(message.contains("version 99 of the attach protocol, weftd version 3"), "{message}");
    assert_eq!(refused(Command::Listen { service: 1 }).0, ErrorCode::BadMessage);
    for name in [String::new(), "x".repeat(65), "a\nb".to_owned()] {
        assert_eq!(refused(Command::Hello { version: VERSION, name }).0, ErrorCode::BadArgument);
    }
}

#[test]
fn whoever_says_nothing_for_five_seconds_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let mut host = Host::new(0, path.clone());
    let (silent, polite) = (Raw::connect_to(&path), Raw::connect_to(&path));
    polite.say(&serde_json::to_vec(&Request { id: 1, command: hello() }).unwrap(), &[]);
    host.control(Instant::from_nanos(1));
    host.control(Instant::from_nanos(5_000_000_000));
    assert_eq!(host.server.sessions().count(), 2);
    host.control(Instant::from_nanos(5_000_000_001));
    let names: Vec<_> = host.server.sessions().map(|(_, session)| session.name()).collect();
    assert_eq!(names, [Some("raw")]);
    let (code, message) = code_of(silent.hear().expect("no word of explanation").0);
    assert_eq!((code, message.as_str()), (ErrorCode::BadMessage, "no hello came in time"));
    assert!(silent.hear().is_none());
}

#[test]
fn one_application_too_many_is_refused_and_finds_room_when_another_leaves() {
    let world = World::start();
    let mut attached: Vec<Raw> = (0..8).map(|_| Raw::attach(&world, 0).0).collect();
    let refused = Context::attach(world.path(0), "ninth").unwrap_err().to_string();
    assert_eq!(refused, "cannot attach: weftd has 8 applications attached already (applications.max_applications)");
    attached.pop();
    // The daemon notices the one that left no later than the next one that comes is refused or not.
    let found = (0..1000).find_map(|_| Context::attach(world.path(0), "ninth").ok());
    assert!(found.is_some());
}

#[test]
fn memory_that_could_harm_the_daemon_is_refused_and_the_session_goes_on() {
    let world = World::start();
    let (mut raw, _) = Raw::attach(&world, 0);
    let mut refused = |len: u64, fd: &OwnedFd| code_of(raw.ask(register(len), &[fd.as_fd()]).0).0;
    assert_eq!(refused(4096, &memfd(4096, SealFlags::GROW)), ErrorCode::BadMemory, "could be truncated");
    assert_eq!(refused(4097, &memfd(4096, SealFlags::SHRINK)), ErrorCode::BadMemory, "shorter than announced");
    assert_eq!(refused(0, &memfd(4096, SealFlags::SHRINK)), ErrorCode::BadMemory);
    assert_eq!(refused(4096, &File::open("/dev/zero").unwrap().into()), ErrorCode::BadMemory);
    assert_eq!(refused(u64::MAX, &memfd(4096, SealFlags::SHRINK)), ErrorCode::LimitReached);
    assert_eq!(refused((1 << 24) + 1, &memfd(1 << 25, SealFlags::SHRINK)), ErrorCode::LimitReached);
    let good = memfd(4096, SealFlags::SHRINK);
    assert!(matches!(raw.ask(register(4096), &[good.as_fd()]).0, FromDaemon::Reply { reply: Reply::Registered { .. }, .. }));
    assert!(rustix::fs::ftruncate(&good, 0).is_err());
}

#[test]
fn limits_are_named_and_what_is_given_back_may_be_taken_again() {
    let world = World::start();
    let context = world.attach(0);
    let mut regions: Vec<_> = (0..4).map(|_| context.register(4096, Access::default()).unwrap()).collect();
    let message = context.register(4096, Access::default()).unwrap_err().to_string();
    let expected = "cannot register memory: this application has 4 already, and applications.max_regions_per_application allows 4";
    assert_eq!(message, expected);
    for _ in 0..10 {
        regions.pop().unwrap().deregister().unwrap();
        regions.push(context.register(4096, Access::default()).unwrap());
    }
    regions.clear();
    let message = context.register(1 << 25, Access::default()).unwrap_err().to_string();
    assert!(message.contains("max_memory_per_application allows 16777216"), "{message}");
    let _queues: Vec<_> = (0..4).map(|_| context.create_cq(8).unwrap()).collect();
    assert!(context.create_cq(8).unwrap_err().to_string().contains("max_qps_per_application allows 4"));
}

#[test]
fn what_was_given_back_counts_for_the_next_request_although_the_worker_has_not_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0");
    let mut host = Host::new(0, path.clone());
    let raw = Raw::connect_to(&path);
    let memory = memfd(4096, SealFlags::SHRINK);
    // All of it is in the socket before the daemon looks, as from an application that does not wait for answers.
    let lkeys = |host: &mut Host| -> Vec<u32> {
        (0..8).for_each(|_| _ = host.breathe(Instant::from_nanos(1), &mut Vec::new()));
        let registered = |message| match message {
            FromDaemon::Reply { reply: Reply::Registered { lkey, .. }, .. } => Some(lkey),
            FromDaemon::Reply { .. } => None,
            FromDaemon::Error { .. } | FromDaemon::Event { .. } => panic!("{message:?}"),
        };
        std::iter::from_fn(|| raw.pending()).filter_map(registered).collect()
    };
    let say = |command, fds: &[BorrowedFd<'_>]| raw.say(&serde_json::to_vec(&Request { id: 1, command }).unwrap(), fds);
    say(hello(), &[]);
    (0..4).for_each(|_| say(register(4096), &[memory.as_fd()]));
    let mut taken = lkeys(&mut host);
    for _ in 0..3 {
        taken.iter().for_each(|lkey| say(Command::DeregisterMemory { lkey: *lkey }, &[]));
        (0..4).for_each(|_| say(register(4096), &[memory.as_fd()]));
        taken = lkeys(&mut host);
        assert_eq!(taken.len(), 4);
    }
}

#[test]
fn a_region_for_atomics_whose_words_would_not_be_aligned_is_refused() {
    let world = World::start();
    let (mut raw, _) = Raw::attach(&world, 0);
    let fd = memfd(4096, SealFlags::SHRINK);
    let mut register = |base, remote_atomic| {
        let access = Access { remote_atomic, ..Access::default() };
        raw.ask(Command::RegisterMemory { base, len: 4096, access }, &[fd.as_fd()]).0
    };
    let (code, message) = code_of(register(12, true));
    assert_eq!(code, ErrorCode::BadArgument);
    assert!(message.contains("base is 12") && message.contains("multiple of 8"), "{message}");
    assert!(matches!(register(16, true), FromDaemon::Reply { .. }));
    assert!(matches!(register(12, false), FromDaemon::Reply { .. }));
}

#[test]
fn shared_receive_queues_are_limited_given_back_and_kept_while_used() {
    let world = World::start();
    let (mut raw, _) = Raw::attach(&world, 0);
    let create = |raw: &mut Raw| match raw.ask(Command::CreateSrq { depth: 5 }, &[]) {
        (FromDaemon::Reply { reply: Reply::SrqCreated { srq, capacity: 8, .. }, .. }, fds) if fds.len() == 1 => Ok(srq),
        (refused, _) => Err(code_of(refused)),
    };
    let (first, second) = (create(&mut raw).unwrap(), create(&mut raw).unwrap());
    let (code, message) = create(&mut raw).unwrap_err();
    assert_eq!(code, ErrorCode::LimitReached);
    assert!(message.contains("applications.max_srqs_per_application allows 2"), "{message}");
    for depth in [0, (1 << 14) + 1, u32::MAX] {
        assert_eq!(code_of(raw.ask(Command::CreateSrq { depth }, &[]).0).0, ErrorCode::BadArgument, "{depth}");
    }
    assert_eq!(code_of(raw.ask(Command::SetSrqLimit { srq: first, limit: 6 }, &[]).0).0, ErrorCode::BadArgument);
    let FromDaemon::Reply { reply: Reply::CqCreated { cq, .. }, .. } = raw.ask(Command::CreateCq { depth: 16 }, &[]).0 else { panic!() };
    let srq = Some(weft_verbs::protocol::SrqName(first));
    let command = Command::CreateQp { send_cq: cq, recv_cq: cq, sq_depth: 1, rq_depth: u32::MAX, recovery: None, priority: None, srq };
    let FromDaemon::Reply { reply: Reply::QpCreated { qp, rq_capacity: 1, .. }, .. } = raw.ask(command, &[]).0 else { panic!() };
    assert_eq!(code_of(raw.ask(Command::DestroySrq { srq: first }, &[]).0).0, ErrorCode::WrongState);
    for command in [Command::DestroyQp { qp }, Command::DestroySrq { srq: first }, Command::DestroySrq { srq: second }] {
        assert!(matches!(raw.ask(command, &[]).0, FromDaemon::Reply { reply: Reply::Done, .. }));
    }
    assert_eq!(code_of(raw.ask(Command::DestroySrq { srq: first }, &[]).0).0, ErrorCode::NotFound);
    create(&mut raw).unwrap();
}

#[test]
fn depths_out_of_range_are_refused() {
    let world = World::start();
    let (mut raw, _) = Raw::attach(&world, 0);
    for depth in [0, (1 << 17) + 1, u32::MAX] {
        assert_eq!(code_of(raw.ask(Command::CreateCq { depth }, &[]).0).0, ErrorCode::BadArgument, "{depth}");
    }
    let cq = weft_verbs::CqId(0);
    for (sq_depth, rq_depth) in [(0, 1), (1 << 15, 1), (1, 1 << 15), (u32::MAX, u32::MAX)] {
        let command = Command::CreateQp { send_cq: cq, recv_cq: cq, sq_depth, rq_depth, recovery: None, priority: None, srq: None };
        assert_eq!(code_of(raw.ask(command, &[]).0).0, ErrorCode::BadArgument, "{sq_depth} {rq_depth}");
    }
}

#[test]
fn a_priority_beyond_15_is_refused_with_what_there_is() {
    let world = World::start();
    let (mut raw, _) = Raw::attach(&world, 0);
    let FromDaemon::Reply { reply: Reply::CqCreated { cq, .. }, .. } = raw.ask(Command::CreateCq { depth: 16 }, &[]).0 else { panic!() };
    let mut create = |priority| {
        raw.ask(Command::CreateQp { send_cq: cq, recv_cq: cq, sq_depth: 1, rq_depth: 1, recovery: None, priority, srq: None }, &[]).0
    };
    assert!(matches!(create(Some(15)), FromDaemon::Reply { reply: Reply::QpCreated { .. }, .. }));
    let (code, message) = code_of(create(Some(16)));
    assert_eq!((code, message.as_str()), (ErrorCode::BadArgument, "priority is 16; a queue pair has one from 0, which stops first, to 15"));
}

#[test]
fn what_belongs_to_another_application_is_as_if_it_did_not_exist() {
    let world = World::start();
    let owner = world.attach(0);
    let cq = owner.create_cq(64).unwrap();
    let qp = owner.create_qp(&cq, &cq, &weft_verbs::QpOptions::default()).unwrap();
    let region = owner.register(4096, Access::default()).unwrap();
    owner.listen(5).unwrap();
    let srq = owner.create_srq(8).unwrap();
    let (mut thief, _) = Raw::attach(&world, 0);
    let private = Vec::new();
    let attempts = [
        (Command::DestroyCq { cq: cq.id() }, ErrorCode::BadArgument),
        (Command::DestroyQp { qp: qp.num() }, ErrorCode::NotFound),
        (Command::DestroySrq { srq: srq.id() }, ErrorCode::NotFound),
        (Command::SetSrqLimit { srq: srq.id(), limit: 1 }, ErrorCode::NotFound),
        (Command::Drain { qp: qp.num() }, ErrorCode::NotFound),
        (Command::Resume { qp: qp.num() }, ErrorCode::NotFound),
        (Command::Disconnect { qp: qp.num() }, ErrorCode::NotFound),
        (Command::Connect { qp: qp.num(), host: "b".into(), service: 1, private }, ErrorCode::NotFound),
        (Command::DeregisterMemory { lkey: region.lkey() }, ErrorCode::NotFound),
        (Command::Listen { service: 5 }, ErrorCode::ServiceInUse),
        (Command::Unlisten { service: 5 }, ErrorCode::NotFound),
        (
            Command::CreateQp { send_cq: cq.id(), recv_cq: cq.id(), sq_depth: 1, rq_depth: 1, recovery: None, priority: None, srq: None },
            ErrorCode::BadArgument,
        ),
        (Command::Reject { request: weft_verbs::RequestId(1), private: vec![0; 193] }, ErrorCode::BadArgument),
        (Command::Reject { request: weft_verbs::RequestId(1), private: vec![] }, ErrorCode::NotFound),
    ];
    for (command, expected) in attempts {
        let what = format!("{command:?}");
        assert_eq!(code_of(thief.ask(command, &[]).0).0, expected, "{what}");
    }
}

#[test]
fn a_flood_of_requests_without_reading_answers_ends_the_session_and_delays_nobody() {
    let world = World::start();
    let (raw, _) = Raw::attach(&world, 0);
    let request = serde_json::to_vec(&Request { id: 2, command: Command::DestroyQp { qp: weft_verbs::QpNum(1) } }).unwrap();
    let mut ended = false;
    for _ in 0..100_000 {
        match socket::send(&raw.socket, &request, &[]) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
            Err(_) => {
                ended = true;
                break;
            }
        }
    }
    assert!(ended, "never cut off");
    drop(world.attach(0).create_cq(4).unwrap());
}

#[test]
fn an_application_killed_while_it_speaks_leaves_the_others_alone() {
    let mut world = World::start();
    for _ in 0..20 {
        let (raw, _) = Raw::attach(&world, 0);
        let request = serde_json::to_vec(&Request { id: 2, command: Command::CreateCq { depth: 64 } }).unwrap();
        raw.say(&request, &[]);
        raw.say(&request, &[]);
        // Gone before the answers come.
        drop(raw);
    }
    drop(world.attach(0).create_cq(4).unwrap());
    let [mut host, _] = world.stop();
    for _ in 0..10 {
        host.breathe(Instant::from_nanos(1 << 50), &mut Vec::new());
    }
    assert!(host.table.is_empty());
}

#[test]
fn a_socket_left_by_a_dead_daemon_is_replaced_and_a_living_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    drop(socket::listen(&path, 1).unwrap());
    assert!(path.exists());
    drop(Host::new(1, folder.path().join("new/folder/app.sock")));
    let host = Host::new(0, path.clone());
    let settings = Settings { applications: applications(path.clone()), mac: None, hosts: [].into() };
    let refused = AppServer::bind(settings).unwrap_err().to_string();
    assert!(refused.starts_with("applications.socket: ") && refused.contains("in use by another daemon"), "{refused}");
    drop(host);
    assert!(!path.exists());
    let host = Host::new(0, path.clone());
    std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
    let _successor = Host::new(0, path.clone());
    drop(host);
    assert!(path.exists(), "the socket of the successor stays");
}

#[test]
fn a_daemon_without_transport_says_what_its_configuration_lacks() {
    let settings = Settings { applications: applications("/nowhere".into()), mac: None, hosts: [].into() };
    let mut session = AppSession::new(AppId(1));
    let bytes = serde_json::to_vec(&Request { id: 1, command: hello() }).unwrap();
    assert!(session.handle_message(Received { bytes, fds: Vec::new() }, &settings).is_none());
    let outgoing = session.next_outgoing().unwrap();
    let (code, message) = code_of(serde_json::from_slice(&outgoing.bytes).unwrap());
    assert_eq!(code, ErrorCode::NoTransport);
    assert_eq!(message, "this weftd has no transport: give a port of its configuration the role `host`");
    assert!(session.has_ended());
}
