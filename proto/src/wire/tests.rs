#![allow(clippy::cast_possible_truncation)]
use super::*;
use crate::drops::DropReason;
use crate::time::Timestamp;
use crate::transport::{AtomicOp, Psn, QpNum};
use alloc::vec::Vec;
use proptest::prelude::*;

fn eth(tagged: bool) -> Ethernet {
    Ethernet {
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        vlan: tagged.then_some(VlanTag { priority: 3, drop_eligible: false, id: 0 }),
        ethertype: EtherType::TRANSPORT,
    }
}

fn base() -> impl Strategy<Value = Base> {
    (any::<u16>(), any::<[bool; 4]>(), 0u32..1 << 24, any::<[u32; 2]>()).prop_map(|(tag, flags, qp, [psn, ticks])| Base {
        tag,
        timestamp: Timestamp::from_ticks(ticks),
        solicited: flags[0],
        ack_request: flags[1],
        fecn: flags[2],
        becn: flags[3],
        dst_qp: QpNum(qp),
        psn: Psn::new(psn),
    })
}

fn position() -> impl Strategy<Value = Position> {
    prop_oneof![Just(Position::First), Just(Position::Middle), Just(Position::Last), Just(Position::Only)]
}

fn kind() -> impl Strategy<Value = AckKind> {
    prop_oneof![
        (0u32..40_000).prop_map(|receives| AckKind::Ack(Credits::of(receives))),
        (0u8..32).prop_map(AckKind::ReceiverNotReady),
        Just(AckKind::Nak(NakCode::SequenceError)),
        Just(AckKind::Nak(NakCode::InvalidRequest)),
        Just(AckKind::Nak(NakCode::RemoteAccess)),
        Just(AckKind::Nak(NakCode::RemoteOperational)),
    ]
}

fn ack() -> impl Strategy<Value = Ack> {
    (kind(), 0u32..1 << 24, any::<(u32, u16, u16)>(), proptest::option::of((any::<u32>(), proptest::collection::vec(any::<u64>(), 0..=16))))
        .prop_map(|(kind, msn, (ticks, held, marked), sack)| Ack {
            kind,
            msn,
            echo: Echo { timestamp: Timestamp::from_ticks(ticks), held, marked },
            sack: sack.map(|(psn, words)| Sack::new(Psn::new(psn), &words)),
        })
}

fn round_trip(packet: &Packet<'_>) {
    let mut frame = [0xaa; 2048];
    let len = packet.emit(&mut frame).expect("fits");
    assert!(len >= eth::MIN_FRAME);
    assert_eq!(Packet::parse(&frame[..len]), Ok(*packet));
}

proptest! {
    #[test]
    fn a_send_survives_the_round_trip(base in base(), tagged: bool, position in position(), recv_sn: u32, offset: u32, extra: Option<(bool, u32)>, payload: Vec<u8>) {
        let tail = match extra.filter(|_| position.ends()) {
            None => Tail::None,
            Some((true, imm)) => Tail::Immediate(imm),
            Some((false, rkey)) => Tail::Invalidate(rkey),
        };
        round_trip(&Packet { eth: eth(tagged), base, body: Body::Send { position, recv_sn, offset, tail, payload: &payload } });
    }

    #[test]
    fn a_write_survives_the_round_trip(base in base(), position in position(), va: u64, rkey: u32, length: u32, imm: Option<(u32, u32)>, payload: Vec<u8>) {
        let imm = imm.filter(|_| position.ends());
        round_trip(&Packet { eth: eth(false), base, body: Body::Write { position, va, rkey, length, imm, payload: &payload } });
    }

    #[test]
    fn reads_and_atomics_survive_the_round_trip(base in base(), position in position(), read_sn: u32, awaited: u32, va: u64, keys: [u32; 2], values: [u64; 3], payload: Vec<u8>) {
        let (rkey, length, awaited) = (keys[0], keys[1], Psn::new(awaited));
        let swap = AtomicOp::CompareSwap { compare: values[0], swap: values[1] };
        for body in [
            Body::ReadRequest { read_sn, awaited, va, rkey, length },
            Body::ReadResponse { position, read_sn, offset: length, payload: &payload },
            Body::Atomic { read_sn, awaited, va, rkey, op: swap },
            Body::Atomic { read_sn, awaited, va, rkey, op: AtomicOp::FetchAdd { add: values[2] } },
            Body::AtomicResponse { read_sn, original: values[0] },
            Body::CongestionNotification,
        ] {
            round_trip(&Packet { eth: eth(false), base, body });
        }
    }

    #[test]
    fn an_acknowledgement_survives_the_round_trip(base in base(), ack in ack()) {
        round_trip(&Packet { eth: eth(false), base, body: Body::Ack(ack) });
        round_trip(&Packet { eth: eth(false), base, body: Body::ReadAck(ack) });
    }

    #[test]
    fn a_connection_message_survives_the_round_trip(base in base(), ids: [u32; 4], incarnation: u64, numbers: [u16; 2], bytes: [u8; 3], private in proptest::collection::vec(any::<u8>(), 0..=192)) {
        let message = ConnectionMessage {
            kind: ConnectionKind::Reply, refusal: Refusal::NoListener, recovery: RecoveryOffer(bytes[0]),
            local_id: ids[0], remote_id: ids[1], incarnation, service: numbers[0], tag: numbers[1],
            qp: QpNum(ids[2] >> 8), psn: Psn::new(ids[3]), payload_max: ids[0], window: ids[1],
            initiator_depth: bytes[1], responder_resources: bytes[2], private: &private,
        };
        round_trip(&Packet { eth: eth(false), base, body: Body::Connection(message) });
    }

    #[test]
    fn any_bytes_are_a_packet_or_a_drop_reason(mut frame in proptest::collection::vec(any::<u8>(), 0..200), steer: bool) {
        if steer && frame.len() > 20 {
            frame[12..18].copy_from_slice(&[0x88, 0xb5, 0x57, 0x46, 2, 0]);
        }
        let _ = Packet::parse(&frame);
        let _ = StopMessage::parse(&frame);
    }

    #[test]
    fn one_flipped_bit_is_noticed_unless_a_switch_may_flip_it(payload: [u8; 40], bit in 0usize..(14 + 12 + 12 + 16 + 40 + 4) * 8) {
        let body = Body::Write { position: Position::Only, va: 1, rkey: 2, length: 40, imm: None, payload: &payload };
        let base = Base { ack_request: true, ..Base::new(9, QpNum(7), Psn::new(5)) };
        let mut frame = [0; 200];
        let len = Packet { eth: eth(false), base, body }.emit(&mut frame).expect("fits");
        frame[bit / 8] ^= 1 << (bit % 8);
        let congestion = bit / 8 == 14 + 12 + 4;
        let ethertype = (12..14).contains(&(bit / 8));
        prop_assert_eq!(Packet::parse(&frame[..len]).is_ok(), congestion || ethertype, "bit {}", bit);
    }

    #[test]
    fn stop_messages_survive_the_round_trip(priority in 0u8..16, timer: u8, rate in 0u8..16) {
        let stop = StopMessage::Stop { priority, timer, rate };
        prop_assert_eq!(StopMessage::parse(&stop.emit()), Ok(stop));
        prop_assert_eq!(StopMessage::parse(&StopMessage::Cancel.emit()), Ok(StopMessage::Cancel));
    }
}

#[test]
fn each_malformation_has_its_own_reason() {
    let body = Body::Ack(Ack { kind: AckKind::Ack(Credits::UNLIMITED), msn: 1, echo: Echo::default(), sack: None });
    let base = Base::new(9, QpNum(7), Psn::new(5));
    let mut good = [0; 60];
    Packet { eth: eth(false), base, body }.emit(&mut good).expect("fits");
    let parse = |at: usize, value: u8| {
        let mut frame = good;
        frame[at] = value;
        Packet::parse(&frame).unwrap_err()
    };
    assert_eq!(Packet::parse(&good[..21]), Err(DropReason::Truncated));
    assert_eq!(parse(14, 0), DropReason::ForeignMagic);
    assert_eq!(parse(16, 1), DropReason::UnsupportedVersion);
    assert_eq!(parse(18, 1), DropReason::Truncated);
    assert_eq!(parse(19, 11), DropReason::BadLength);
    assert_eq!(parse(38, 3), DropReason::BadIcrc);
    assert_eq!(Opcode::from_code(0x15), Err(DropReason::UnknownOpcode));
    assert_eq!(AckKind::from_syndrome(0x40), Err(DropReason::BadField));
    assert_eq!(StopMessage::parse(&[0x30; 46]), Err(DropReason::UnknownCommand));
    assert_eq!(StopMessage::parse(&[0; 45]), Err(DropReason::BadLength));
}

#[test]
fn credits_never_promise_more_than_there_are() {
    for receives in [0, 1, 5, 7, 1000, 32_768, 100_000] {
        let told = Credits::of(receives).receives().expect("a number");
        assert!(told <= receives && (told * 3 / 2 >= receives.min(32_768) || receives < 2), "{receives} {told}");
    }
    assert_eq!(Credits::UNLIMITED.receives(), None);
}

#[test]
fn receiver_not_ready_codes_never_stand_for_less_than_asked() {
    for micros in [0, 1, 10, 11, 500, 10_000, 491_520] {
        assert!(u64::from(headers::rnr_delay_us(headers::rnr_code(micros))) >= micros, "{micros} us");
    }
    assert_eq!(headers::rnr_code(600_000), 0, "the longest delay has code 0");
}

#[test]
fn every_opcode_has_one_number() {
    for code in 0..=u8::MAX {
        if let Ok(opcode) = Opcode::from_code(code) {
            assert_eq!(opcode.code(), code);
        }
    }
}

proptest! {
    #[test]
    fn a_switch_marks_a_frame_in_place_and_it_stays_valid(base in base(), tagged: bool, payload: Vec<u8>) {
        let body = Body::Send { position: Position::Middle, recv_sn: 1, offset: 0, tail: Tail::None, payload: &payload };
        let packet = Packet { eth: eth(tagged), base, body };
        let mut frame = [0; 2048];
        let len = packet.emit(&mut frame).expect("fits");
        prop_assert!(mark_congestion(&mut frame[..len], EtherType::TRANSPORT));
        prop_assert_eq!(Packet::parse(&frame[..len]), Ok(Packet { base: Base { fecn: true, ..base }, ..packet }));
    }

    #[test]
    fn what_is_not_a_whole_transport_frame_is_not_touched(base in base(), tagged: bool, at in 12..26usize, bits in 1u8.., cut in 0..60usize) {
        let packet = Packet { eth: eth(tagged), base: Base { fecn: false, ..base }, body: Body::CongestionNotification };
        let mut frame = [0; 64];
        let len = packet.emit(&mut frame).expect("fits");
        prop_assert!(!mark_congestion(&mut { frame }[..len], EtherType::LINK), "another EtherType");
        let before = frame;
        if cut < eth(tagged).len() + 28 {
            prop_assert!(!mark_congestion(&mut frame[..cut], EtherType::TRANSPORT));
            prop_assert_eq!(frame, before);
        }
        // A damaged EtherType, tag, magic or version.
        let start = eth(tagged).len();
        if (start - 2..start + 3).contains(&at) {
            frame[at] ^= bits;
            let before = frame;
            prop_assert!(!mark_congestion(&mut frame[..len], EtherType::TRANSPORT));
            prop_assert_eq!(frame, before);
        }
    }
}
