//! Applications that write to shared memory whatever they like.

use proptest::prelude::*;
use weft_proto::transport::{CommandError, QpInit};
use weft_verbs::layout::{CompletionEntry, Entry, RING_CONSUMER, RING_ENTRIES, RING_PRODUCER, RecvEntry, SendEntry, SgeEntry};
use weft_verbs::page::Page;
use weft_verbs::protocol::Event;
use weft_verbs::ring::{Consumer, Producer, ring_len};
use weft_verbs::shm::Block;
use weft_verbs::{Access, Completion, CqId, QpNum, Status};
use zerocopy::FromBytes;

use super::*;
use crate::app::{AppAction, AppDone, AppUpdate};

pub(super) const NOW: Instant = Instant::from_nanos(1);

/// A worker's table driven by hand.
pub(super) struct Desk {
    pub(super) table: AppTable,
    pub(super) endpoint: Endpoint,
    pub(super) events: Vec<(AppId, Event)>,
}

/// One application's side of everything, without the library in between.
pub(super) struct Application {
    pub(super) id: AppId,
    pub(super) page: Page,
    pub(super) lkey: u32,
    pub(super) qp: QpNum,
    pub(super) cq: CqId,
    send: Block,
    recv: Block,
    completions: Consumer<CompletionEntry>,
    completion_block: Block,
}

pub(super) const DEPTH: u32 = 8;

pub(super) fn block_of<E: Entry>(fd: &OwnedFd, capacity: u32) -> Block {
    Block::map(fd, ring_len::<E>(capacity).unwrap() as u64).unwrap()
}

impl Desk {
    pub(super) fn new() -> Self {
        Self::on_host(0)
    }

    pub(super) fn on_host(number: u8) -> Self {
        Self { table: AppTable::new().unwrap(), endpoint: endpoint(number), events: Vec::new() }
    }

    pub(super) fn act(&mut self, app: AppId, action: AppAction) -> Result<AppDone, CommandError> {
        self.table.execute(NOW, AppCommand { app, ticket: 9, action }, &mut self.endpoint);
        let mut outcome = None;
        while let Some(update) = self.table.poll_update() {
            match update {
                AppUpdate::Reply { ticket: 9, result, .. } => outcome = Some(result),
                AppUpdate::Event { app, event } => self.events.push((app, event)),
                AppUpdate::Reply { .. } => panic!("an answer nobody asked for"),
            }
        }
        outcome.expect("no answer")
    }

    pub(super) fn attach(&mut self, number: u32) -> Application {
        let id = AppId(number);
        let (page, page_fd) = Page::create().unwrap();
        let doorbell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        self.act(id, AppAction::Attach { page, doorbell }).unwrap();
        let (ring, ring_fd) = Producer::create("cq", DEPTH * 2).unwrap();
        let (wake, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let Ok(AppDone::CqCreated(cq)) = self.act(id, AppAction::CreateCq { ring, wake }) else { panic!("no completion queue") };
        let (send_ring, send_fd) = Consumer::create("sq", DEPTH).unwrap();
        let (recv_ring, recv_fd) = Consumer::create("rq", DEPTH).unwrap();
        let init = QpInit::new(cq, DEPTH);
        let Ok(AppDone::QpCreated(qp, 0)) = self.act(id, AppAction::CreateQp { init, send_ring, recv_ring }) else {
            panic!("no queue pair")
        };
        let (block, _) = Block::create("region", 4096).unwrap();
        let access = Access { local_write: true, ..Access::default() };
        let Ok(AppDone::Registered(keys)) = self.act(id, AppAction::Register { block, base: 0, access }) else { panic!("no region") };
        Application {
            id,
            page: Page::map(&page_fd).unwrap(),
            lkey: keys.lkey,
            qp,
            cq,
            send: block_of::<SendEntry>(&send_fd, DEPTH),
            recv: block_of::<RecvEntry>(&recv_fd, DEPTH),
            completions: Consumer::map(&ring_fd, DEPTH * 2).unwrap(),
            completion_block: block_of::<CompletionEntry>(&ring_fd, DEPTH * 2),
        }
    }

    /// A second queue pair of an application, without a receive in common with the first: its slot and receive ring.
    fn add_qp(&mut self, owner: &Application) -> (u16, Block) {
        let (ring, _) = Producer::create("cq", DEPTH * 2).unwrap();
        let (wake, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let Ok(AppDone::CqCreated(cq)) = self.act(owner.id, AppAction::CreateCq { ring, wake }) else { panic!("no completion queue") };
        let (send_ring, _) = Consumer::create("sq", DEPTH).unwrap();
        let (recv_ring, recv_fd) = Consumer::create("rq", DEPTH).unwrap();
        let init = QpInit::new(cq, DEPTH);
        let Ok(AppDone::QpCreated(_, slot)) = self.act(owner.id, AppAction::CreateQp { init, send_ring, recv_ring }) else {
            panic!("no queue pair")
        };
        (slot, block_of::<RecvEntry>(&recv_fd, DEPTH))
    }

    /// Brings the frames that wait here to another host.
    pub(super) fn transmit_to(&mut self, other: &mut Self) {
        let mut frame = [0; 1600];
        while let Some(sent) = self.endpoint.poll_transmit(NOW, &mut frame, &self.table) {
            other.endpoint.handle_frame(NOW, &frame[..sent.len], &mut other.table);
        }
        other.breathe();
    }

    /// A breath without a network.
    pub(super) fn breathe(&mut self) -> usize {
        let taken = self.table.collect_work(NOW, &mut self.endpoint, 64);
        self.table.deliver(NOW, &mut self.endpoint);
        while let Some(update) = self.table.poll_update() {
            match update {
                AppUpdate::Event { app, event } => self.events.push((app, event)),
                AppUpdate::Reply { .. } => panic!("an answer nobody asked for"),
            }
        }
        taken
    }
}

impl Application {
    pub(super) fn post_send(&mut self, number: u32, entry: &SendEntry) {
        write_entry(&mut self.send, number, entry);
        self.send.word32(RING_PRODUCER).store(number + 1, Ordering::Release);
        self.page.ring(0);
    }

    pub(super) fn post_recv(&mut self, number: u32, entry: &RecvEntry) {
        write_entry(&mut self.recv, number, entry);
        self.recv.word32(RING_PRODUCER).store(number + 1, Ordering::Release);
        self.page.ring(0);
    }

    fn done(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        while let Some(entry) = self.completions.pop().unwrap() {
            done.push(entry.decode().expect("the daemon writes sense"));
        }
        self.completions.release();
        done
    }

    pub(super) fn outcomes(&mut self) -> Vec<(u64, Status)> {
        self.done().iter().map(|completion| (completion.wr_id, completion.status)).collect()
    }
}

/// Connects the queue pairs of two applications.
pub(super) fn connect(near: &mut Desk, from: &Application, far: &mut Desk, to: &Application) {
    far.act(to.id, AppAction::Listen { service: 1 }).unwrap();
    near.act(from.id, AppAction::Connect { qp: from.qp, peer: mac(1), service: 1, private: Vec::new() }).unwrap();
    near.transmit_to(far);
    let Some((_, Event::ConnectRequest { request, .. })) = far.events.pop() else { panic!("no request") };
    far.act(to.id, AppAction::Accept { request, qp: to.qp, private: Vec::new() }).unwrap();
    far.transmit_to(near);
    assert!(matches!(near.events.pop(), Some((_, Event::Established { .. }))));
}

pub(super) fn write_entry<E: Entry>(block: &mut Block, number: u32, entry: &E) {
    let offset = RING_ENTRIES + (number % DEPTH) as usize * size_of::<E>();
    block.write(offset as u64, entry.as_bytes()).unwrap();
}

pub(super) fn recv(wr_id: u64) -> RecvEntry {
    RecvEntry { wr_id, ..RecvEntry::default() }
}

#[test]
fn a_request_without_meaning_fails_its_queue_pair_and_each_request_completes_once() {
    let odd_atomic = SendEntry { wr_id: 7, op: 5, sge_count: 1, ..SendEntry::default() };
    let bad_sends = [
        odd_atomic,
        SendEntry { wr_id: 7, op: 3, flags: 16, inline_len: 8, ..SendEntry::default() },
        SendEntry { wr_id: 7, flags: 16, inline_len: 65, ..SendEntry::default() },
        SendEntry { wr_id: 7, op: 6, flags: 1, ..SendEntry::default() },
        SendEntry { wr_id: 7, op: 200, ..SendEntry::default() },
        SendEntry { wr_id: 7, sge_count: 255, ..SendEntry::default() },
        SendEntry { wr_id: 7, flags: 0xff, ..SendEntry::default() },
    ];
    for bad in bad_sends {
        let mut desk = Desk::new();
        let (mut villain, mut bystander) = (desk.attach(1), desk.attach(2));
        bystander.post_recv(0, &recv(50));
        villain.post_recv(0, &recv(1));
        villain.post_recv(1, &recv(2));
        villain.post_send(0, &bad);
        villain.post_send(1, &SendEntry { wr_id: 8, ..bad });
        desk.breathe();
        let expected = [(1, Status::Flushed), (2, Status::Flushed), (7, Status::LocalProtection), (8, Status::Flushed)];
        // After the failure even a request without meaning is flushed.
        let outcomes = villain.outcomes();
        assert_eq!(outcomes.len(), 4, "{outcomes:?}");
        assert_eq!(outcomes[..3], expected[..3]);
        assert_eq!(outcomes[3].0, 8);
        assert_eq!(desk.events, [(villain.id, Event::QpFailed { qp: villain.qp, status: Status::LocalProtection })]);
        villain.post_recv(2, &recv(3));
        desk.breathe();
        assert_eq!(villain.outcomes(), [(3, Status::Flushed)]);
        assert_eq!(bystander.outcomes(), [], "the other application's receive is still posted");
        assert_eq!(desk.act(villain.id, AppAction::DestroyQp { qp: villain.qp }), Ok(AppDone::Done));
    }
}

#[test]
fn an_index_without_sense_fails_the_queue_pair_and_nothing_else() {
    for index in [DEPTH + 1, 1 << 31, u32::MAX] {
        let mut desk = Desk::new();
        let (mut villain, mut bystander) = (desk.attach(1), desk.attach(2));
        villain.post_recv(0, &recv(1));
        desk.breathe();
        villain.send.word32(RING_PRODUCER).store(index, Ordering::Release);
        villain.page.ring(0);
        desk.breathe();
        assert_eq!(villain.outcomes(), [(1, Status::Flushed)]);
        assert_eq!(desk.events, [(villain.id, Event::QpFailed { qp: villain.qp, status: Status::LocalProtection })]);
        assert!(desk.table.prepare_sleep(), "a broken ring does not keep the worker awake");
        bystander.post_recv(0, &recv(50));
        assert_eq!(desk.breathe(), 1);
        assert_eq!(bystander.outcomes(), []);
    }
}

#[test]
fn requests_beyond_the_depth_wait_in_the_ring_and_are_not_lost() {
    let mut desk = Desk::new();
    let mut villain = desk.attach(1);
    for number in 0..DEPTH {
        villain.post_recv(number, &recv(number.into()));
    }
    assert_eq!(desk.breathe(), 8);
    villain.post_recv(DEPTH, &recv(8));
    assert_eq!(desk.breathe(), 0);
    assert_eq!(villain.outcomes(), []);
    assert!(desk.table.prepare_sleep(), "what cannot be taken does not keep the worker awake");
    assert_eq!(desk.act(villain.id, AppAction::DestroyQp { qp: villain.qp }), Ok(AppDone::Done));
    let flushed: Vec<_> = (0..8).map(|id| (id, Status::Flushed)).collect();
    assert_eq!(villain.outcomes(), flushed);
}

#[test]
fn a_request_beyond_the_depth_is_taken_once_another_one_completes() {
    let (mut near, mut far) = (Desk::new(), Desk::on_host(1));
    let (mut villain, peer) = (near.attach(1), far.attach(1));
    connect(&mut near, &villain, &mut far, &peer);
    for number in 0..DEPTH {
        villain.post_send(number, &SendEntry { wr_id: number.into(), ..SendEntry::default() });
    }
    assert_eq!(near.breathe(), 8);
    villain.post_send(DEPTH, &SendEntry { wr_id: 8, ..SendEntry::default() });
    assert_eq!(near.breathe(), 0);
    assert!(near.table.prepare_sleep());
    assert_eq!(near.act(villain.id, AppAction::Disconnect { qp: villain.qp }), Ok(AppDone::Done));
    assert!(!near.table.prepare_sleep(), "there is room again");
    assert_eq!(near.breathe(), 1);
    let outcomes = villain.outcomes();
    assert_eq!(outcomes.last(), Some(&(8, Status::Flushed)), "{outcomes:?}");
}

#[test]
fn a_queue_pair_that_is_full_does_not_end_the_turn_of_its_application() {
    let mut desk = Desk::new();
    let mut villain = desk.attach(1);
    for number in 0..DEPTH {
        villain.post_recv(number, &recv(number.into()));
    }
    let (slot, mut second) = desk.add_qp(&villain);
    // Its turn was the last, so that the full one is next.
    villain.page.ring(slot);
    desk.breathe();
    villain.post_recv(DEPTH, &recv(8));
    write_entry(&mut second, 0, &recv(20));
    second.word32(RING_PRODUCER).store(1, Ordering::Release);
    villain.page.ring(slot);
    assert_eq!(desk.breathe(), 1);
}

#[test]
fn a_completion_queue_that_is_not_read_beyond_its_room_is_dead_and_said_to_be() {
    let mut desk = Desk::new();
    let (mut villain, mut bystander) = (desk.attach(1), desk.attach(2));
    // Unconnected sends are flushed at once, so a liar can make more completions than it reserved room for.
    for number in 0..40 {
        villain.post_send(number, &SendEntry { wr_id: number.into(), flags: 2, ..SendEntry::default() });
        desk.breathe();
    }
    assert_eq!(
        desk.events,
        [(villain.id, Event::CqOverrun { cq: villain.cq }), (villain.id, Event::QpFailed { qp: villain.qp, status: Status::LocalLength })]
    );
    assert_eq!(villain.done().len(), 16, "what had room stays readable");
    bystander.post_send(0, &SendEntry { wr_id: 4, ..SendEntry::default() });
    desk.breathe();
    assert_eq!(bystander.outcomes(), [(4, Status::Flushed)]);
}

#[test]
fn a_consumer_index_without_sense_kills_the_completion_queue_only() {
    let mut desk = Desk::new();
    let mut villain = desk.attach(1);
    villain.completion_block.word32(RING_CONSUMER).store(1 << 30, Ordering::Release);
    for number in 0..20 {
        villain.post_send(number, &SendEntry::default());
        desk.breathe();
    }
    assert_eq!(desk.events[0], (villain.id, Event::CqOverrun { cq: villain.cq }));
    assert_eq!(desk.act(villain.id, AppAction::DestroyQp { qp: villain.qp }), Ok(AppDone::Done));
    assert_eq!(desk.act(villain.id, AppAction::DestroyCq { cq: villain.cq }), Ok(AppDone::Done));
}

#[test]
fn released_memory_and_queues_are_gone_for_everyone() {
    let mut desk = Desk::new();
    let (mut villain, mut bystander) = (desk.attach(1), desk.attach(2));
    villain.post_recv(0, &recv(1));
    bystander.post_recv(0, &recv(2));
    desk.breathe();
    assert_eq!(desk.act(villain.id, AppAction::Release), Ok(AppDone::Done));
    assert_eq!(desk.act(villain.id, AppAction::Deregister { lkey: villain.lkey }), Err(CommandError::NoSuchRegion));
    assert_eq!(desk.act(villain.id, AppAction::DestroyQp { qp: villain.qp }), Err(CommandError::NoSuchQp));
    // It still has its mapping, and may ring and write as it likes.
    villain.post_recv(1, &recv(3));
    assert_eq!(desk.breathe(), 0);
    assert_eq!(villain.outcomes(), []);
    assert_eq!(desk.act(bystander.id, AppAction::DestroyQp { qp: bystander.qp }), Ok(AppDone::Done));
    assert_eq!(bystander.outcomes(), [(2, Status::Flushed)]);
    assert_eq!(desk.act(bystander.id, AppAction::Release), Ok(AppDone::Done));
    assert!(desk.table.is_empty());
}

#[test]
fn one_that_floods_does_not_keep_others_waiting() {
    let mut desk = Desk::new();
    let (mut villain, mut bystander) = (desk.attach(1), desk.attach(2));
    bystander.post_send(0, &SendEntry { wr_id: 1, ..SendEntry::default() });
    for number in 0..DEPTH {
        villain.post_send(number, &SendEntry::default());
    }
    assert_eq!(desk.table.collect_work(NOW, &mut desk.endpoint, 4), 4);
    for number in DEPTH..DEPTH + 4 {
        villain.post_send(number, &SendEntry::default());
    }
    assert_eq!(desk.table.collect_work(NOW, &mut desk.endpoint, 4), 4);
    desk.table.deliver(NOW, &mut desk.endpoint);
    assert_eq!(bystander.outcomes(), [(1, Status::Flushed)]);
}

#[test]
fn doorbells_of_queue_pairs_that_do_not_exist_cost_a_bounded_look() {
    let mut desk = Desk::new();
    let (villain, mut bystander) = (desk.attach(1), desk.attach(2));
    for slot in 1..4096 {
        villain.page.ring(slot);
    }
    bystander.post_send(0, &SendEntry { wr_id: 1, ..SendEntry::default() });
    assert_eq!(desk.breathe(), 1);
    assert_eq!(bystander.outcomes(), [(1, Status::Flushed)]);
    assert!(!desk.table.prepare_sleep(), "not all looked at yet");
    for _ in 0..100 {
        desk.breathe();
    }
    assert!(desk.table.prepare_sleep());
}

#[test]
fn a_sleeping_worker_is_woken_by_any_application_and_only_then() {
    let mut desk = Desk::new();
    let (page, page_fd) = Page::create().unwrap();
    let doorbell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let application_side = doorbell.try_clone().unwrap();
    desk.act(AppId(1), AppAction::Attach { page, doorbell }).unwrap();
    let readable = |desk: &Desk| socket::wait(&[desk.table.wake_fd()], PollFlags::IN, Clock::now()).unwrap();
    let page = Page::map(&page_fd).unwrap();
    assert!(!page.ring(3), "awake");
    assert!(!desk.table.prepare_sleep(), "rung before it slept");
    assert!(!page.ring(3), "it did not sleep");
    desk.breathe();
    assert!(desk.table.prepare_sleep());
    assert!(page.ring(3), "asleep");
    assert!(!readable(&desk));
    rustix::io::write(&application_side, &1u64.to_ne_bytes()).unwrap();
    assert!(readable(&desk));
    desk.table.finish_sleep();
    assert!(!readable(&desk), "heard");
    // The counter was never read, and still wakes the next time.
    rustix::io::write(&application_side, &1u64.to_ne_bytes()).unwrap();
    assert!(readable(&desk));
    desk.act(AppId(1), AppAction::Release).unwrap();
    rustix::io::write(&application_side, &1u64.to_ne_bytes()).unwrap();
    desk.table.finish_sleep();
    assert!(!readable(&desk), "an application that is gone wakes nobody");
}

/// Something hostile to do.
#[derive(Clone, Debug)]
enum Mischief {
    Send(u32, Vec<u8>),
    Recv(u32, Vec<u8>),
    SendSge(u32, u8, u32, u64),
    Index(u8, usize, u32),
    Ring(u16),
    Breathe,
}

fn mischief() -> impl Strategy<Value = Mischief> {
    let index = prop_oneof![0u32..20, any::<u32>()];
    prop_oneof![
        (0u32..32, prop::collection::vec(any::<u8>(), 128)).prop_map(|(number, bytes)| Mischief::Send(number, bytes)),
        (0u32..32, prop::collection::vec(any::<u8>(), 80)).prop_map(|(number, bytes)| Mischief::Recv(number, bytes)),
        (0u32..32, 0u8..6, any::<u32>(), any::<u64>()).prop_map(|(number, count, len, addr)| Mischief::SendSge(number, count, len, addr)),
        (0u8..3, prop_oneof![Just(0usize), Just(64), Just(128)], index).prop_map(|(ring, word, value)| Mischief::Index(ring, word, value)),
        any::<u16>().prop_map(Mischief::Ring),
        Just(Mischief::Breathe),
        Just(Mischief::Breathe),
    ]
}

proptest! {
    #[test]
    fn whatever_an_application_writes_the_daemon_lives_and_others_are_served(steps in prop::collection::vec(mischief(), 1..60)) {
        let mut desk = Desk::new();
        let (mut villain, mut bystander) = (desk.attach(1), desk.attach(2));
        for step in steps {
            match step {
                Mischief::Send(number, bytes) => villain.post_send(number, &SendEntry::read_from_bytes(&bytes).unwrap()),
                Mischief::Recv(number, bytes) => villain.post_recv(number, &RecvEntry::read_from_bytes(&bytes).unwrap()),
                Mischief::SendSge(number, sge_count, len, addr) => {
                    let sges = [SgeEntry { addr, len, lkey: if number % 2 == 0 { bystander.lkey } else { villain.lkey } }; 4];
                    villain.post_send(number, &SendEntry { sge_count, sges, op: sge_count + u8::from(number % 2 == 0), ..SendEntry::default() });
                }
                Mischief::Index(ring, word, value) => {
                    let block = [&villain.send, &villain.recv, &villain.completion_block][usize::from(ring)];
                    block.word32(word).store(value, Ordering::Release);
                }
                Mischief::Ring(slot) => drop(villain.page.ring(slot)),
                Mischief::Breathe => prop_assert!(desk.breathe() <= 64),
            }
        }
        bystander.post_recv(0, &recv(1));
        bystander.post_send(0, &SendEntry { wr_id: 2, ..SendEntry::default() });
        for _ in 0..4 {
            desk.breathe();
        }
        prop_assert_eq!(bystander.outcomes(), [(2, Status::Flushed)]);
        prop_assert!(desk.events.iter().all(|(app, _)| *app == villain.id));
        desk.act(bystander.id, AppAction::DestroyQp { qp: bystander.qp }).unwrap();
        prop_assert_eq!(bystander.outcomes(), [(1, Status::Flushed)]);
        desk.act(villain.id, AppAction::Release).unwrap();
        desk.act(bystander.id, AppAction::Release).unwrap();
        prop_assert!(desk.table.is_empty());
    }
}
