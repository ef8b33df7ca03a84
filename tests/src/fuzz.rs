//! The bodies of the fuzz targets: any bytes in, no panic, no broken promise.
//!
//! `tests/fuzz` calls them from libFuzzer; `tests/corpora.rs` calls them for every file of `tests/corpus` and for mutations.

/// Bytes of the two headers that every transport frame has.
const WEFT: usize = 12;
const BTH: usize = 12;

/// Computes the ICRC of a transport frame anew, so that changes behind it are looked at.
/// Frames that are too short or announce more than they have come back as they are.
pub fn repair_checksum(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let start = if frame.get(12..14) == Some(&[0x81, 0x00]) { 18 } else { 14 };
    let Some(&[high, low]) = frame.get(start + 4..start + 6) else { return frame };
    let end = start + WEFT + usize::from(u16::from_be_bytes([high, low]));
    // The checksum covers the addresses, and everything from the Weft header on with the congestion octet all ones.
    let covered = start + WEFT + BTH + 4 <= end && end <= frame.len();
    if covered {
        let mut head = frame[..12].to_vec();
        head.extend_from_slice(&frame[start..start + WEFT + BTH]);
        head[12 + WEFT + 4] = 0xff;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head), &frame[start + WEFT + BTH..end - 4]);
        frame[end - 4..end].copy_from_slice(&crc.to_be_bytes());
    }
    frame
}

mod stops;

pub use stops::stop_dialogue;

use weft_config::Config;
use weft_config::control::{LineBuffer, parse_request};
use weft_proto::switch::{FlowConfig, FlowControl, Impairment, PortConfig, PortRole, Switch, SwitchConfig};
use weft_proto::transport::{AtomicOp, QpNum, Recovery};
use weft_proto::wire::{MacAddr, MacControl, StopMessage};
use weft_proto::{Duration, Instant, Pool, PortId, Rng};
use weft_verbs::layout::SendEntry;
use weft_verbs::ring::{Consumer, ring_len};
use weft_verbs::shm::Block;

use crate::pair::{Fate, Pair, atomic, pattern, read, send, sges, write};

/// A fuzz target: its name, which is also that of its corpus, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("transport_frame", transport_frame),
    ("connection_message", connection_message),
    ("stop_packet", stop_packet),
    ("stop_dialogue", stop_dialogue),
    ("mac_control", mac_control),
    ("switch_operations", switch_operations),
    ("config_yaml", config_yaml),
    ("control_request", control_request),
    ("attach_request", attach_request),
    ("shared_ring", shared_ring),
];

/// The hosts that frames are thrown at: always the same numbers, tags and keys, with work under way at both ends.
pub fn busy_pair() -> (Pair, [QpNum; 2]) {
    let (mut pair, qps) = Pair::connected(Recovery::Irn);
    let (_, local) = pair.region(0, &pattern(4000));
    let (_, remote) = pair.region(1, &[0; 4000]);
    for i in 0..4 {
        pair.receive(1, qps[1], i, sges(remote, 0, 1000));
        pair.post(0, qps[0], send(10 + i, sges(local, 0, 900)));
        pair.post(0, qps[0], write(20 + i, sges(local, 0, 4000), 0, remote.rkey));
        pair.post(0, qps[0], read(30 + i, sges(local, 0, 3000), 8, remote.rkey));
        pair.post(0, qps[0], atomic(40 + i, sges(local, 8 * i, 8), 8 * i, remote.rkey, AtomicOp::FetchAdd { add: 1 }));
    }
    (pair, qps)
}

/// The frames that [`busy_pair`] exchanges if nothing disturbs it, with their receivers.
pub fn busy_frames() -> Vec<(usize, Vec<u8>)> {
    let (mut pair, _) = busy_pair();
    let mut frames = Vec::new();
    pair.run(Duration::from_millis(1), |seen| {
        frames.push((1 - seen.from, seen.bytes.to_vec()));
        Fate::Pass
    });
    frames
}

/// Records of a steering byte and a 16-bit length with that many bytes.
fn records(mut data: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[steer, high, low], rest) = data.split_first_chunk::<3>()?;
        let (record, rest) = rest.split_at(usize::from(u16::from_be_bytes([high, low])).min(rest.len()));
        data = rest;
        Some((steer, record))
    })
}

/// A record as [`transport_frame`] reads it: for which host, and whether the checksum is to be made right.
pub fn record(steer: u8, bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[steer, len[0], len[1]], bytes].concat()
}

/// Frames at two endpoints that are at work. Bit 0 of the steering byte names the host, bit 1 asks for a right checksum.
pub fn transport_frame(data: &[u8]) {
    let (mut pair, _) = busy_pair();
    for (steer, frame) in records(data).take(64) {
        let host = usize::from(steer & 1);
        if steer & 2 == 0 {
            pair.deliver(host, frame)
        } else {
            pair.deliver(host, &repair_checksum(frame))
        }
        pair.run(Duration::from_micros(u64::from(steer >> 2)), |_| Fate::Pass);
        for view in pair.hosts.iter().flat_map(weft_proto::transport::Endpoint::views) {
            assert!(view.in_flight <= view.cap);
        }
    }
    pair.run(Duration::from_millis(20), |_| Fate::Pass);
    // 16 requests and 4 receives were posted; whatever came, each ends at most once.
    let mut told: Vec<_> = pair.completions.concat().iter().map(|c| (c.qp, c.wr_id)).collect();
    let count = told.len();
    told.sort_unstable();
    told.dedup();
    assert_eq!(count, told.len(), "a request ended twice");
}

/// The bytes of a connection message in an otherwise right frame, at an endpoint that listens and is connected.
pub fn connection_message(data: &[u8]) {
    let (mut pair, _) = busy_pair();
    for (steer, message) in records(data).take(64) {
        let mut frame = Vec::new();
        frame.extend_from_slice(&crate::pair::mac(1).0);
        frame.extend_from_slice(&crate::pair::mac(usize::from(steer & 1) * 2).0);
        frame.extend_from_slice(&[0x88, 0xb5, 0x57, 0x46, 2, 0]);
        let len = u16::try_from(12 + 8 + message.len() + 4).unwrap_or(u16::MAX);
        frame.extend_from_slice(&len.to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0x64, 0, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0]);
        frame.extend_from_slice(&[0x80, 1, 0, 0, 0, 0, 0, 1]);
        frame.extend_from_slice(message);
        frame.extend_from_slice(&[0; 4]);
        pair.deliver(1, &repair_checksum(&frame));
        let mut buffer = [0; 2000];
        let mut answers = 0;
        while pair.hosts[1].poll_transmit(pair.now, &mut buffer, &pair.memory[1]).is_some() {
            answers += 1;
        }
        assert!(answers < 100, "one message causes {answers} frames");
    }
}

/// A stop control packet: what parses comes back the same.
pub fn stop_packet(data: &[u8]) {
    if let Ok(message) = StopMessage::parse(data) {
        assert_eq!(StopMessage::parse(&message.emit()), Ok(message));
    }
}

/// A MAC control frame: what parses comes back the same, in a frame of minimum length.
pub fn mac_control(data: &[u8]) {
    if let Ok(message) = MacControl::parse(data) {
        let frame = message.emit(MacAddr([2, 0, 0, 0, 0, 1]));
        assert_eq!(MacControl::parse(&frame[14..]), Ok(message));
    }
}

/// Operations on a switch, three bytes each; frames are conserved and buffers come back.
pub fn switch_operations(data: &[u8]) {
    let mut ports = vec![PortConfig::new(PortRole::Switch); 3];
    ports[1].impair_egress = Impairment { loss_ppm: 200_000, duplicate_ppm: 200_000, delay: Duration::from_micros(20), ..Impairment::NONE };
    ports.push(PortConfig::new(PortRole::Host));
    (ports[0].flow_control, ports[3].flow_control) = (FlowControl::Pause, FlowControl::Pfc);
    let flow = FlowConfig { xoff: 3000, xon: 1000, ..FlowConfig::default() };
    let config = SwitchConfig { frames: 64, voq_limit_bytes: 8000, mac_table_size: 4, flow, strict: 1, ..SwitchConfig::default() };
    let (mut switch, mut pool) = (Switch::new(&config, &ports, Rng::from_seed(1)), Pool::new(64, 2048, 32));
    let (mut now, mut out) = (Instant::ZERO, Vec::new());
    for operation in data.chunks_exact(3).take(2000) {
        let port = PortId(u16::from(operation[1] & 3));
        match operation[0] % 8 {
            0..4 => ingest(&mut switch, &mut pool, now, port, operation),
            4 | 5 => switch.egress(now, &mut pool, port, usize::from(operation[2] & 7), &mut out),
            6 => now += Duration::from_micros(u64::from(operation[2])),
            _ => switch.set_port_up(&mut pool, port, operation[2] & 1 == 0),
        }
        switch.handle_timeout(now, &mut pool);
        out.drain(..).for_each(|frame| pool.free(frame));
        let totals = switch.totals();
        assert!(totals.conserved(), "{totals:?}");
        assert!(pool.in_use() as u64 <= totals.queued);
    }
    (0..4).for_each(|port| switch.set_port_up(&mut pool, PortId(port), false));
    assert_eq!(pool.in_use(), 0);
}

fn ingest(switch: &mut Switch, pool: &mut Pool, now: Instant, port: PortId, operation: &[u8]) {
    let Some(frame) = pool.alloc() else { return };
    let len = usize::from(operation[2]) * 7;
    let room = pool.room_mut(&frame);
    room[..14].copy_from_slice(&[2, 0, 0, 0, 0, operation[0] >> 5, 2, 0, 0, 0, 0, operation[1] >> 4, 0x88, 0xb5]);
    if operation[1] & 4 != 0 {
        room[0] = 0xff;
    }
    if operation[1] & 8 != 0 {
        // A request to stop, PAUSE or PFC, of a time that the length makes.
        let time = u16::from(operation[2]) << 4;
        let enabled = operation[0];
        let message = if enabled & 1 == 0 { MacControl::Pause { time } } else { MacControl::Pfc { enabled, times: [time; 8] } };
        room[..60].copy_from_slice(&message.emit(MacAddr([2, 0, 0, 0, 0, 9])));
    }
    pool.set_len(&frame, len);
    switch.ingest(now, pool, port, frame);
}

/// A node configuration: what is accepted can be printed in full and read again.
pub fn config_yaml(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::from_yaml(text, "fuzz.yaml") {
        Ok(config) => {
            let printed = weft_config::effective_yaml(&config);
            assert!(Config::from_yaml(&printed, "printed.yaml").is_ok(), "{printed}");
        }
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
}

/// Bytes on the administration socket, in two pieces.
pub fn control_request(data: &[u8]) {
    let mut lines = LineBuffer::new(1000);
    for piece in data.chunks(data.len() / 2 + 1) {
        lines.push(piece);
        while let Ok(Some(line)) = lines.next_line() {
            let _ = parse_request(&line);
        }
    }
    if let Err(refusal) = parse_request(data) {
        let line = weft_config::control::encode_line(&refusal, weft_config::control::MAX_REPLY).expect("a refusal is short");
        assert_eq!(line.last(), Some(&b'\n'));
    }
}

/// A message on an application's socket: what parses can be written again.
pub fn attach_request(data: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<weft_verbs::protocol::Request>(data) {
        let text = serde_json::to_vec(&request).expect("a request can be written");
        assert!(serde_json::from_slice::<weft_verbs::protocol::Request>(&text).is_ok());
    }
}

/// A ring whose producer writes whatever it likes over the whole of it.
pub fn shared_ring(data: &[u8]) {
    const CAPACITY: u32 = 8;
    let (mut consumer, fd) = Consumer::<SendEntry>::create("fuzz", CAPACITY).expect("a memfd");
    let len = ring_len::<SendEntry>(CAPACITY).unwrap_or(0);
    let mut hostile = Block::map(&fd, len as u64).expect("its own mapping");
    for piece in data.chunks(len).take(16) {
        hostile.write(0, piece).expect("in range");
        let mut taken = 0;
        while let Ok(Some(entry)) = consumer.pop() {
            if let Ok(work) = entry.decode() {
                assert_eq!(SendEntry::encode(&work).decode(), Ok(work), "what is understood can be said again");
            }
            taken += 1;
            assert!(taken <= CAPACITY, "more entries than the ring holds");
        }
        consumer.release();
    }
}
