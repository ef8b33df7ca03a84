//! Regions that reach beyond four gibibytes, in memory that only exists where it is touched.

use rustix::fs::{MemfdFlags, SealFlags};
use weft_verbs::layout::{SendEntry, SgeEntry};
use weft_verbs::shm::Block;
use weft_verbs::{Access, AtomicOp, SendOp, SendWork, SgList, Sge, Status};

use super::hostile::{Desk, connect};
use super::*;
use crate::app::{AppAction, AppDone};

const ALL: Access = Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };
const LEN: u64 = (4 << 30) + 4096;
/// The last bytes that a 32-bit offset would take for the first ones.
const HIGH: u64 = LEN - 4096;

/// Memory of `LEN` bytes of which none exists yet, mapped for the daemon and for the application.
fn sparse() -> (Block, Block) {
    let fd = rustix::fs::memfd_create("sparse", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, LEN).unwrap();
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    (Block::map(&fd, LEN).unwrap(), Block::map(&fd, LEN).unwrap())
}

/// Fault class: lengths and offsets cut to 32 bits (transport case 43).
#[test]
fn offsets_beyond_four_gibibytes_are_exact_on_both_sides() {
    let (mut near, mut far) = (Desk::new(), Desk::on_host(1));
    let (mut ours, theirs) = (near.attach(1), far.attach(1));
    connect(&mut near, &ours, &mut far, &theirs);
    let register = |desk: &mut Desk| {
        let (block, application) = sparse();
        let registered = desk.act(AppId(1), AppAction::Register { block, base: 0, access: ALL });
        let Ok(AppDone::Registered(keys)) = registered else { panic!("{registered:?}") };
        (keys, application)
    };
    let ((lkeys, mut local), (rkeys, mut remote)) = (register(&mut near), register(&mut far));
    local.write(HIGH, b"to the far end").unwrap();
    remote.write(HIGH + 1024, b"from the far end").unwrap();
    remote.atomic(LEN - 8).unwrap().store(41, Ordering::Relaxed);
    let piece = |addr, len| SgList::new(&[Sge { addr, len, lkey: lkeys.lkey }]).unwrap();
    let rkey = rkeys.rkey;
    let add = SendOp::Atomic { remote_addr: LEN - 8, rkey, op: AtomicOp::FetchAdd { add: 1 } };
    let works = [
        SendWork::new(0, SendOp::Write { remote_addr: HIGH, rkey }, piece(HIGH, 14).into()),
        SendWork::new(1, SendOp::Read { remote_addr: HIGH + 1024, rkey }, piece(HIGH + 1024, 16).into()),
        SendWork::new(2, add, piece(LEN - 8, 8).into()),
    ];
    for (number, work) in (0..).zip(&works) {
        ours.post_send(number, &SendEntry::encode(work));
    }
    near.breathe();
    for _ in 0..3 {
        near.transmit_to(&mut far);
        far.transmit_to(&mut near);
    }
    assert_eq!(ours.outcomes(), [0, 1, 2].map(|id| (id, Status::Success)));
    let bytes = |block: &Block, at| {
        let mut out = [0; 16];
        block.read(at, &mut out).unwrap();
        out
    };
    assert_eq!(&bytes(&remote, HIGH), b"to the far end\0\0");
    assert_eq!(&bytes(&local, HIGH + 1024), b"from the far end");
    assert_eq!(remote.atomic(LEN - 8).unwrap().load(Ordering::Relaxed), 42);
    assert_eq!(local.atomic(LEN - 8).unwrap().load(Ordering::Relaxed), 41);
    // And nothing where the low 32 bits point.
    assert_eq!((bytes(&remote, 0), bytes(&local, 1024)), ([0; 16], [0; 16]));
    let beyond = SendWork::new(3, SendOp::Read { remote_addr: LEN - 8, rkey }, piece(0, 9).into());
    ours.post_send(3, &SendEntry::encode(&beyond));
    near.breathe();
    near.transmit_to(&mut far);
    far.transmit_to(&mut near);
    assert_eq!(ours.outcomes(), [(3, Status::RemoteAccess)]);
}

/// Fault class: a message of more than 32 bits (transport case 43), from an application that does not use the library.
#[test]
fn a_message_longer_than_two_gibibytes_completes_with_its_length_as_the_error() {
    let mut desk = Desk::new();
    let mut villain = desk.attach(1);
    let sges = [SgeEntry { addr: 0, len: u32::MAX, lkey: villain.lkey }; 4];
    for (number, op) in [(0, 0), (1, 1), (2, 3)] {
        villain.post_send(number, &SendEntry { wr_id: number.into(), op, sge_count: 2, sges, ..SendEntry::default() });
    }
    desk.breathe();
    assert_eq!(villain.outcomes(), [(0, Status::LocalLength), (1, Status::Flushed), (2, Status::Flushed)]);
}
