//! Shared receive queues in hostile hands.

use weft_proto::transport::{CommandError, QpInit, SrqId};
use weft_verbs::layout::{RING_PRODUCER, RecvEntry, SendEntry};
use weft_verbs::protocol::Event;
use weft_verbs::ring::{Consumer, Producer};
use weft_verbs::shm::Block;
use weft_verbs::{QpNum, Status};

use super::hostile::{Application, DEPTH, Desk, block_of, connect, recv, write_entry};
use super::*;
use crate::app::{AppAction, AppDone};

/// A shared receive queue with the other side of its ring.
struct Shared {
    id: SrqId,
    slot: u16,
    ring: Block,
    posted: u32,
}

impl Shared {
    fn post(&mut self, owner: &Application, entry: &RecvEntry) {
        write_entry(&mut self.ring, self.posted, entry);
        self.posted += 1;
        self.ring.word32(RING_PRODUCER).store(self.posted, Ordering::Release);
        owner.page.ring(self.slot);
    }
}

fn shared(desk: &mut Desk, owner: &Application) -> Shared {
    let (ring, fd) = Consumer::create("srq", DEPTH).unwrap();
    let Ok(AppDone::SrqCreated(id, slot)) = desk.act(owner.id, AppAction::CreateSrq { depth: DEPTH, ring }) else { panic!("no queue") };
    Shared { id, slot, ring: block_of::<RecvEntry>(&fd, DEPTH), posted: 0 }
}

/// Swaps the application's queue pair for one that takes its receives from `srq`.
fn use_shared(desk: &mut Desk, owner: &mut Application, srq: SrqId) {
    desk.act(owner.id, AppAction::DestroyQp { qp: owner.qp }).unwrap();
    let (send_ring, _) = Consumer::<SendEntry>::create("sq", DEPTH).unwrap();
    let (recv_ring, _) = Consumer::<RecvEntry>::create("rq", 1).unwrap();
    let init = QpInit { rq_depth: 0, srq: Some(srq), ..QpInit::new(owner.cq, DEPTH) };
    let created = desk.act(owner.id, AppAction::CreateQp { init, send_ring, recv_ring });
    let Ok(AppDone::QpCreated(qp, _)) = created else { panic!("{created:?}") };
    owner.qp = qp;
}

/// A villain with a shared receive queue, and a bystander.
fn scene() -> (Desk, Application, Shared, Application) {
    let mut desk = Desk::new();
    let (mut villain, bystander) = (desk.attach(1), desk.attach(2));
    let srq = shared(&mut desk, &villain);
    use_shared(&mut desk, &mut villain, srq.id);
    (desk, villain, srq, bystander)
}

fn both_failed(villain: &Application, srq: SrqId, qp: QpNum) -> [(AppId, Event); 2] {
    let failed = Event::QpFailed { qp, status: Status::LocalProtection };
    [(villain.id, Event::SrqFailed { srq }), (villain.id, failed)]
}

#[test]
fn a_shared_receive_without_meaning_fails_the_queue_and_its_queue_pairs_alone() {
    let (mut desk, villain, mut srq, mut bystander) = scene();
    srq.post(&villain, &recv(1));
    srq.post(&villain, &RecvEntry { sge_count: 9, ..recv(2) });
    srq.post(&villain, &recv(3));
    desk.breathe();
    assert_eq!(desk.events, both_failed(&villain, srq.id, villain.qp));
    srq.post(&villain, &recv(4));
    desk.breathe();
    assert_eq!(desk.events.len(), 2, "told once");
    assert!(desk.table.prepare_sleep());
    bystander.post_recv(0, &recv(50));
    bystander.post_send(0, &SendEntry { wr_id: 51, ..SendEntry::default() });
    desk.breathe();
    assert_eq!(bystander.outcomes(), [(51, Status::Flushed)]);
    assert_eq!(desk.act(villain.id, AppAction::DestroyQp { qp: villain.qp }), Ok(AppDone::Done));
    assert_eq!(desk.act(villain.id, AppAction::DestroySrq { srq: srq.id }), Ok(AppDone::Done));
}

#[test]
fn an_index_without_sense_in_a_shared_ring_fails_the_queue_and_its_queue_pairs_alone() {
    for index in [DEPTH + 1, 1 << 31, u32::MAX] {
        let (mut desk, villain, srq, mut bystander) = scene();
        srq.ring.word32(RING_PRODUCER).store(index, Ordering::Release);
        villain.page.ring(srq.slot);
        desk.breathe();
        assert_eq!(desk.events, both_failed(&villain, srq.id, villain.qp));
        assert!(desk.table.prepare_sleep(), "a broken ring does not keep the worker awake");
        bystander.post_recv(0, &recv(50));
        assert_eq!(desk.breathe(), 1);
        assert_eq!(bystander.outcomes(), []);
    }
}

#[test]
fn shared_receives_beyond_the_depth_wait_in_the_ring() {
    let (mut desk, villain, mut srq, _) = scene();
    for number in 0..DEPTH {
        srq.post(&villain, &recv(number.into()));
    }
    assert_eq!(desk.breathe(), 8);
    srq.post(&villain, &recv(8));
    assert_eq!(desk.breathe(), 0);
    assert!(desk.table.prepare_sleep(), "what cannot be taken does not keep the worker awake");
    assert_eq!(desk.events, []);
}

#[test]
fn a_shared_receive_queue_of_another_application_or_in_use_is_out_of_reach() {
    let (mut desk, villain, srq, bystander) = scene();
    for action in [AppAction::DestroySrq { srq: srq.id }, AppAction::SetSrqLimit { srq: srq.id, limit: 1 }] {
        assert_eq!(desk.act(bystander.id, action), Err(CommandError::NoSuchSrq));
    }
    let rings = || (Consumer::<SendEntry>::create("sq", 1).unwrap().0, Consumer::<RecvEntry>::create("rq", 1).unwrap().0);
    let (cq_ring, _) = Producer::create("cq", DEPTH * 2).unwrap();
    let (wake, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let Ok(AppDone::CqCreated(cq)) = desk.act(bystander.id, AppAction::CreateCq { ring: cq_ring, wake }) else { panic!() };
    let (send_ring, recv_ring) = rings();
    let init = QpInit { rq_depth: 0, srq: Some(srq.id), ..QpInit::new(cq, 1) };
    assert_eq!(desk.act(bystander.id, AppAction::CreateQp { init, send_ring, recv_ring }), Err(CommandError::NoSuchSrq));
    // What was set aside for it is given back.
    assert_eq!(desk.act(bystander.id, AppAction::DestroyCq { cq }), Ok(AppDone::Done));
    assert_eq!(desk.act(villain.id, AppAction::DestroySrq { srq: srq.id }), Err(CommandError::WrongState));
    assert_eq!(desk.act(villain.id, AppAction::DestroyQp { qp: villain.qp }), Ok(AppDone::Done));
    assert_eq!(desk.act(villain.id, AppAction::DestroySrq { srq: srq.id }), Ok(AppDone::Done));
}

/// Sends so many messages of nothing from the first application to the second, and brings the answers back.
fn send_messages(near: &mut Desk, from: &mut Application, far: &mut Desk, numbers: std::ops::Range<u32>) {
    for number in numbers {
        from.post_send(number, &SendEntry { wr_id: number.into(), ..SendEntry::default() });
        near.breathe();
        near.transmit_to(far);
        far.transmit_to(near);
    }
}

#[test]
fn whoever_posts_more_shared_receives_than_agreed_overruns_its_own_completion_queue_and_is_told() {
    let (mut near, mut far) = (Desk::new(), Desk::on_host(1));
    let (mut peer, mut villain, mut bystander) = (near.attach(1), far.attach(1), far.attach(2));
    let mut srq = shared(&mut far, &villain);
    use_shared(&mut far, &mut villain, srq.id);
    connect(&mut near, &peer, &mut far, &villain);
    // The queue holds sixteen. An honest application would take completions before it posts the ninth receive.
    for number in 0..20 {
        srq.post(&villain, &recv(number.into()));
        far.breathe();
        send_messages(&mut near, &mut peer, &mut far, number..number + 1);
    }
    let failed = Event::QpFailed { qp: villain.qp, status: Status::LocalLength };
    assert_eq!(far.events[1..], [(villain.id, Event::CqOverrun { cq: villain.cq }), (villain.id, failed)]);
    let expected: Vec<_> = (0..16).map(|id| (id, Status::Success)).collect();
    assert_eq!(villain.outcomes(), expected, "what had room stays readable");
    bystander.post_send(0, &SendEntry { wr_id: 4, ..SendEntry::default() });
    far.breathe();
    assert_eq!(bystander.outcomes(), [(4, Status::Flushed)]);
}

#[test]
fn everything_of_an_application_with_shared_receives_goes_when_it_does() {
    let (mut near, mut far) = (Desk::new(), Desk::on_host(1));
    let (mut peer, mut villain) = (near.attach(1), far.attach(1));
    let mut srq = shared(&mut far, &villain);
    use_shared(&mut far, &mut villain, srq.id);
    connect(&mut near, &peer, &mut far, &villain);
    srq.post(&villain, &recv(1));
    srq.post(&villain, &recv(2));
    far.breathe();
    send_messages(&mut near, &mut peer, &mut far, 0..1);
    assert_eq!(villain.outcomes(), [(1, Status::Success)]);
    assert_eq!(far.act(villain.id, AppAction::Release), Ok(AppDone::Done));
    assert!(far.table.is_empty());
    assert_eq!(far.endpoint.srq_count(), 0);
    // It still has its mapping, and may ring and write as it likes.
    srq.post(&villain, &recv(3));
    assert_eq!(far.breathe(), 0);
}
