//! Ports without a kernel.

use super::*;

fn frame(pool: &mut Pool, bytes: &[u8]) -> FrameRef {
    let frame = pool.alloc().unwrap();
    pool.room_mut(&frame)[..bytes.len()].copy_from_slice(bytes);
    pool.set_len(&frame, bytes.len());
    frame
}

#[test]
fn what_one_end_sends_the_other_receives_in_order() {
    let mut pool = Pool::new(8, 256, HEADROOM);
    let (mut a, mut b) = Port::memory_pair(4);
    let mut counters = PortCounters::default();
    let mut queue: VecDeque<_> = [&b"one"[..], b"two", b"three"].into_iter().map(|bytes| frame(&mut pool, bytes)).collect();
    assert_eq!(a.tx(&mut pool, &mut queue, &mut counters), TxOutcome::Drained);
    let mut out = Vec::new();
    assert_eq!(b.rx(&mut pool, &mut out, 2, &mut counters), RxOutcome::More);
    assert_eq!(b.rx(&mut pool, &mut out, 2, &mut counters), RxOutcome::Empty);
    let bytes: Vec<_> = out.iter().map(|frame| pool.bytes(frame)).collect();
    assert_eq!(bytes, [&b"one"[..], b"two", b"three"]);
    out.into_iter().for_each(|frame| pool.free(frame));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_full_direction_keeps_the_rest_of_the_queue() {
    let mut pool = Pool::new(8, 256, HEADROOM);
    let (mut a, _b) = Port::memory_pair(2);
    let mut counters = PortCounters::default();
    let mut queue: VecDeque<_> = (0..3).map(|byte| frame(&mut pool, &[byte])).collect();
    assert_eq!(a.tx(&mut pool, &mut queue, &mut counters), TxOutcome::Blocked);
    assert_eq!((queue.len(), counters.tx_refusals), (1, 1));
    queue.into_iter().for_each(|frame| pool.free(frame));
}

#[test]
fn a_frame_longer_than_the_chunk_is_dropped_as_cut_off() {
    let mut far = Pool::new(1, 4096, HEADROOM);
    let mut near = Pool::new(1, 128, HEADROOM);
    let (mut a, mut b) = Port::memory_pair(2);
    let mut counters = PortCounters::default();
    let mut queue = VecDeque::from([frame(&mut far, &[7; 65])]);
    let _ = a.tx(&mut far, &mut queue, &mut counters);
    let mut out = Vec::new();
    let _ = b.rx(&mut near, &mut out, 1, &mut counters);
    assert!(out.is_empty());
    assert_eq!((counters.drops.of(DropReason::CutOff), near.in_use()), (1, 0));
}

#[test]
fn chunks_hold_the_longest_frame_of_their_role_with_tag_and_headroom() {
    assert!(required_chunk(Role::Host, 1500) >= HEADROOM + 1518);
    assert!(required_chunk(Role::Switch, 1500) >= HEADROOM + 65_536 + 18);
    assert_eq!(required_chunk(Role::Switch, 1500) % PAGE, 0);
    assert!(required_chunk(Role::Switch, 100_000) >= 100_000);
}

#[test]
fn an_absent_interface_is_an_error_that_names_port_and_interface() {
    let spec = PortSpec {
        name: "uplink".to_owned(),
        interface: "weft-none0".to_owned(),
        role: Role::Host,
        backend: Backend::Auto,
        ethertypes: vec![0x88b5],
        batch: 64,
    };
    let text = Port::open(&spec).unwrap_err().to_string();
    assert!(text.contains("uplink") && text.contains("weft-none0") && text.contains("ip link"), "{text}");
}
