use proptest::prelude::*;

use super::*;

fn list() -> impl Strategy<Value = SgList> {
    let sge = (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(addr, len, lkey)| Sge { addr, len, lkey });
    prop::collection::vec(sge, 0..=MAX_SGE).prop_map(|sges| SgList::new(&sges).unwrap())
}

fn eight_bytes() -> impl Strategy<Value = Data> {
    (any::<u64>(), any::<u32>(), 0u32..=8).prop_map(|(addr, lkey, first)| {
        let piece = |len| Sge { addr, len, lkey };
        Data::List(SgList::new(&[piece(first), piece(8 - first)]).unwrap())
    })
}

fn sent() -> impl Strategy<Value = Data> {
    let inline = prop::collection::vec(any::<u8>(), 0..=MAX_INLINE).prop_map(|bytes| Data::Inline(Inline::new(&bytes).unwrap()));
    prop_oneof![list().prop_map(Data::List), inline]
}

/// Every operation with what it may carry: immediate, and data.
fn operation() -> impl Strategy<Value = (SendOp, Option<u32>, Data)> {
    let remote = || (any::<u64>(), any::<u32>());
    let atomic = prop_oneof![
        (any::<u64>(), any::<u64>()).prop_map(|(compare, swap)| AtomicOp::CompareSwap { compare, swap }),
        any::<u64>().prop_map(|add| AtomicOp::FetchAdd { add }),
    ];
    prop_oneof![
        (any::<Option<u32>>(), sent()).prop_map(|(imm, data)| (SendOp::Send, imm, data)),
        (any::<u32>(), sent()).prop_map(|(rkey, data)| (SendOp::SendInvalidate { rkey }, None, data)),
        (remote(), any::<Option<u32>>(), sent()).prop_map(|((remote_addr, rkey), imm, data)| (
            SendOp::Write { remote_addr, rkey },
            imm,
            data
        )),
        (remote(), list()).prop_map(|((remote_addr, rkey), list)| (SendOp::Read { remote_addr, rkey }, None, Data::List(list))),
        (remote(), atomic, eight_bytes()).prop_map(|((remote_addr, rkey), op, data)| (
            SendOp::Atomic { remote_addr, rkey, op },
            None,
            data
        )),
        any::<u32>().prop_map(|key| (SendOp::LocalInvalidate { key }, None, Data::EMPTY)),
    ]
}

fn send_work() -> impl Strategy<Value = SendWork> {
    (any::<u64>(), operation(), any::<[bool; 3]>()).prop_map(|(wr_id, (op, imm, local), [signaled, solicited, fence])| {
        let ends_receive = matches!(op, SendOp::Send | SendOp::SendInvalidate { .. }) || imm.is_some();
        SendWork { wr_id, op, imm, signaled, solicited: solicited && ends_receive, fence, local }
    })
}

/// The checks of `SendEntry::decode`, said once more in the plainest way.
fn is_meaningful(entry: &SendEntry) -> bool {
    let [imm, solicited, inline] = [1, 4, 16].map(|bit| entry.flags & bit != 0);
    let list_len = || entry.sges.iter().take(entry.sge_count.into()).map(|sge| u64::from(sge.len)).sum::<u64>();
    let data_fits = if inline { entry.inline_len <= 64 } else { entry.sge_count <= 4 };
    entry.flags < 32
        && data_fits
        && match entry.op {
            0 => true,
            1 => imm || !solicited,
            2 => !imm,
            3 => !imm && !solicited && !inline,
            4 | 5 => !imm && !solicited && !inline && list_len() == 8,
            6 => !imm && !solicited && !inline && list_len() == 0,
            _ => false,
        }
}

proptest! {
    #[test]
    fn send_requests_survive_the_round_trip(work in send_work()) {
        let entry = SendEntry::read_from_bytes(SendEntry::encode(&work).as_bytes()).unwrap();
        prop_assert_eq!(entry.decode(), Ok(work));
    }

    #[test]
    fn receive_requests_survive_the_round_trip(wr_id: u64, local in list()) {
        let work = RecvWork { wr_id, local };
        let entry = RecvEntry::read_from_bytes(RecvEntry::encode(&work).as_bytes()).unwrap();
        prop_assert_eq!(entry.decode(), Ok(work));
    }

    #[test]
    fn completions_survive_the_round_trip(wr_id: u64, qp: u32, byte_len: u32, tail: [Option<u32>; 2], solicited: bool, status in 0u8..=11, op in 0u8..=6) {
        let [imm, invalidated] = tail;
        let status = Status::from_code(status).unwrap();
        let op = CompletionOp::from_code(op).unwrap();
        let completion = Completion { wr_id, qp: QpNum(qp), status, op, byte_len, imm, invalidated, solicited };
        prop_assert_eq!(CompletionEntry::encode(&completion).decode(), Ok(completion));
    }

    #[test]
    fn any_bytes_are_a_request_or_an_error(bytes in prop::collection::vec(any::<u8>(), 128), small in any::<[u8; 4]>(), lens in any::<[u8; 4]>()) {
        let mut entry = SendEntry::read_from_bytes(&bytes).unwrap();
        prop_assert_eq!(entry.decode().is_ok(), is_meaningful(&entry));
        // Random bytes rarely come near the limits.
        let [op, flags, count, inline] = small;
        (entry.op, entry.flags, entry.sge_count, entry.inline_len) = (op % 8, flags % 34, count % 6, inline % 70);
        entry.sges.iter_mut().zip(lens).for_each(|(sge, len)| sge.len = u32::from(len % 3) * 4);
        prop_assert_eq!(entry.decode().is_ok(), is_meaningful(&entry));
        if let Ok(work) = entry.decode() {
            prop_assert_eq!(SendEntry::encode(&work).decode(), Ok(work));
            prop_assert_eq!(check(&work), Ok(()));
        }
        let recv = RecvEntry::read_from_bytes(&bytes[..80]).unwrap();
        prop_assert_eq!(recv.decode().is_ok(), recv.sge_count <= 4);
    }
}

#[test]
fn values_without_meaning_are_named() {
    let entry = SendEntry::default();
    assert_eq!(SendEntry { op: 9, ..entry }.decode(), Err(BadEntry::Operation(9)));
    assert_eq!(SendEntry { flags: 32, ..entry }.decode(), Err(BadEntry::Flags(32)));
    assert_eq!(SendEntry { sge_count: 255, ..entry }.decode(), Err(BadEntry::SgeCount(255)));
    assert_eq!(SendEntry { flags: FLAG_INLINE, inline_len: 65, ..entry }.decode(), Err(BadEntry::InlineLength(65)));
    assert_eq!(RecvEntry { sge_count: 5, ..RecvEntry::default() }.decode(), Err(BadEntry::SgeCount(5)));
    assert_eq!(CompletionEntry { status: 200, ..CompletionEntry::default() }.decode(), Err(BadEntry::Status(200)));
    assert_eq!(CompletionEntry { flags: 8, ..CompletionEntry::default() }.decode(), Err(BadEntry::Flags(8)));
}

#[test]
fn combinations_that_no_operation_has_are_named() {
    let entry = SendEntry::default();
    for op in [OP_SEND_INVALIDATE, OP_READ, OP_COMPARE_SWAP, OP_FETCH_ADD, OP_LOCAL_INVALIDATE] {
        assert_eq!(SendEntry { op, flags: FLAG_IMM, ..entry }.decode(), Err(BadEntry::Immediate), "{op}");
    }
    for op in [OP_WRITE, OP_READ, OP_COMPARE_SWAP, OP_FETCH_ADD, OP_LOCAL_INVALIDATE] {
        assert_eq!(SendEntry { op, flags: FLAG_SOLICITED, ..entry }.decode(), Err(BadEntry::Solicited), "{op}");
    }
    for op in [OP_READ, OP_COMPARE_SWAP, OP_FETCH_ADD, OP_LOCAL_INVALIDATE] {
        assert_eq!(SendEntry { op, flags: FLAG_INLINE, inline_len: 8, ..entry }.decode(), Err(BadEntry::Inline), "{op}");
    }
    let piece = |len| [SgeEntry { len, ..SgeEntry::default() }; MAX_SGE];
    for (sge_count, len, total) in [(0, 8, 0), (1, 7, 7), (1, 9, 9), (2, 8, 16), (4, u32::MAX, 4 * u64::from(u32::MAX))] {
        let atomic = SendEntry { op: OP_FETCH_ADD, sge_count, sges: piece(len), ..entry };
        assert_eq!(atomic.decode(), Err(BadEntry::AtomicLength(total)));
    }
    assert_eq!(SendEntry { op: OP_LOCAL_INVALIDATE, sge_count: 1, sges: piece(3), ..entry }.decode(), Err(BadEntry::Data(3)));
}

#[test]
fn solicited_and_failed_completions_are_urgent() {
    let entry = CompletionEntry::default();
    assert!(!entry.is_urgent());
    assert!(!CompletionEntry { flags: FLAG_IMM | FLAG_INVALIDATED, ..entry }.is_urgent());
    assert!(CompletionEntry { flags: FLAG_SOLICITED, ..entry }.is_urgent());
    assert!(CompletionEntry { status: Status::Flushed as u8, ..entry }.is_urgent());
}
