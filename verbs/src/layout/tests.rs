use proptest::prelude::*;

use super::*;

fn list() -> impl Strategy<Value = SgList> {
    let sge = (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(addr, len, lkey)| Sge { addr, len, lkey });
    prop::collection::vec(sge, 0..=MAX_SGE).prop_map(|sges| SgList::new(&sges).unwrap())
}

fn send_work() -> impl Strategy<Value = SendWork> {
    let op =
        prop_oneof![Just(SendOp::Send), (any::<u64>(), any::<u32>()).prop_map(|(remote_addr, rkey)| SendOp::Write { remote_addr, rkey })];
    (any::<u64>(), op, any::<Option<u32>>(), any::<bool>(), any::<bool>(), list()).prop_map(
        |(wr_id, op, imm, signaled, solicited, local)| SendWork {
            wr_id,
            op,
            imm,
            signaled,
            solicited,
            fence: false,
            local: Data::List(local),
        },
    )
}

/// The checks of `SendEntry::decode`, said once more in the plainest way.
fn is_meaningful(entry: &SendEntry) -> bool {
    entry.op <= 1 && entry.flags <= 7 && entry.sge_count <= 4
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
    fn completions_survive_the_round_trip(wr_id: u64, qp: u32, byte_len: u32, imm: Option<u32>, solicited: bool, status in 0u8..10, op in 0u8..4) {
        let status = Status::from_code(status).unwrap();
        let op = CompletionOp::from_code(op).unwrap();
        let completion = Completion { wr_id, qp: QpNum(qp), status, op, byte_len, imm, invalidated: None, solicited };
        prop_assert_eq!(CompletionEntry::encode(&completion).decode(), Ok(completion));
    }

    #[test]
    fn any_bytes_are_a_request_or_an_error(bytes in prop::collection::vec(any::<u8>(), 128), op: u8, small in 0u8..8) {
        let mut entry = SendEntry::read_from_bytes(&bytes).unwrap();
        prop_assert_eq!(entry.decode().is_ok(), is_meaningful(&entry));
        // Random bytes rarely come near the limits.
        (entry.op, entry.flags, entry.sge_count) = (op % 3, small, small);
        prop_assert_eq!(entry.decode().is_ok(), is_meaningful(&entry));
        let recv = RecvEntry::read_from_bytes(&bytes[..80]).unwrap();
        prop_assert_eq!(recv.decode().is_ok(), recv.sge_count <= 4);
    }
}

#[test]
fn values_without_meaning_are_named() {
    let entry = SendEntry::default();
    assert_eq!(SendEntry { op: 9, ..entry }.decode(), Err(BadEntry::Operation(9)));
    assert_eq!(SendEntry { flags: 8, ..entry }.decode(), Err(BadEntry::Flags(8)));
    assert_eq!(SendEntry { sge_count: 255, ..entry }.decode(), Err(BadEntry::SgeCount(255)));
    assert_eq!(RecvEntry { sge_count: 5, ..RecvEntry::default() }.decode(), Err(BadEntry::SgeCount(5)));
    assert_eq!(CompletionEntry { status: 200, ..CompletionEntry::default() }.decode(), Err(BadEntry::Status(200)));
    assert_eq!(CompletionEntry { flags: 2, ..CompletionEntry::default() }.decode(), Err(BadEntry::Flags(2)));
}
