#![allow(clippy::cast_possible_truncation)]
//! Replays the corpora of all fuzz targets, and a bounded number of mutations of them.
//!
//! `WEFT_WRITE_CORPUS=1 cargo test -p weft-tests --test corpora` writes the generated seeds anew. What a fuzzer finds
//! is put beside them and replayed from then on.

use std::path::PathBuf;

use weft_proto::transport::{Access, AtomicOp, CqId, Data, Inline, QpNum, RequestId, SendOp, SendWork, SgList, Sge, SrqId};
use weft_proto::wire::connection::CONNECTION_VERSION as VERSION;
use weft_proto::wire::{MacAddr, MacControl};
use weft_proto::{DropReason, Duration, Rng};
use weft_tests::fuzz::{TARGETS, busy_frames, busy_pair, record};
use weft_tests::pair::Fate;
use weft_verbs::layout::{RING_ENTRIES, RING_PRODUCER, SendEntry};
use weft_verbs::protocol::{Command, Request, SrqName};
use zerocopy::IntoBytes;

/// Mutations per file and run.
const MUTATIONS: usize = 500;

fn folder(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "corpus", target].iter().collect()
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = folder(target);
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).map(|f| f.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| (file.display().to_string(), std::fs::read(file).unwrap())).collect()
}

#[test]
fn every_file_of_every_corpus_passes_its_target() {
    if std::env::var_os("WEFT_WRITE_CORPUS").is_some() {
        write_seeds();
    }
    for (target, body) in TARGETS {
        let files = corpus(target);
        assert!(!files.is_empty(), "{target} has no corpus");
        for (name, data) in files {
            println!("{name}");
            body(&data);
        }
    }
}

#[test]
fn the_frames_of_the_corpus_still_reach_the_queue_pairs_they_were_made_for() {
    let dialogue = std::fs::read(folder("transport_frame").join("dialogue")).unwrap();
    let now: Vec<u8> = busy_frames().iter().take(48).flat_map(|(host, frame)| record(2 | u8::try_from(*host).unwrap(), frame)).collect();
    assert!(dialogue == now, "tags, keys or the wire format have changed: write the corpus anew");
    let (mut pair, _) = busy_pair();
    for (host, frame) in busy_frames() {
        pair.deliver(host, &frame);
    }
    pair.run(Duration::from_millis(1), |_| Fate::Pass);
    assert_eq!(pair.hosts[1].drops().of(DropReason::StaleConnection), 0);
    assert!(pair.completions[1].len() == 4);
}

#[test]
fn mutations_of_the_corpora_pass_too() {
    let seed = std::env::var("WEFT_SEED").ok().map_or_else(entropy, |text| text.parse().expect("WEFT_SEED is a decimal number"));
    println!("again with: WEFT_SEED={seed} cargo test -p weft-tests --test corpora");
    let mut rng = Rng::from_seed(seed);
    for (target, body) in TARGETS {
        let files = corpus(target);
        for (name, data) in &files {
            for _ in 0..MUTATIONS {
                let other = &files[usize::try_from(rng.below(files.len() as u64)).unwrap()].1;
                let mutated = mutate(&mut rng, data, other);
                println!("{name} {:02x?}", &mutated[..mutated.len().min(64)]);
                body(&mutated);
            }
        }
    }
}

fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// One to four changes: flipped bits, other bytes, pieces cut out, doubled or taken from another file.
fn mutate(rng: &mut Rng, data: &[u8], other: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    for _ in 0..=rng.below(4) {
        let mut below = |bound: usize| usize::try_from(rng.below(bound as u64)).unwrap();
        let (from, to) = (below(data.len() + 1), below(data.len() + 1));
        let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 200));
        match below(6) {
            0 | 1 if from < data.len() => data[from] ^= 1 << below(8),
            2 if from < data.len() => data[from] = [0, 1, 0x7f, 0x80, 0xff][below(5)],
            3 => drop(data.drain(from..to)),
            4 => {
                let piece = data[from..to].to_vec();
                data.splice(from..from, piece);
            }
            _ if !other.is_empty() => {
                let start = below(other.len());
                let end = (start + below(200)).min(other.len());
                data.splice(from..from, other[start..end].iter().copied());
            }
            _ => {}
        }
    }
    data
}

// ---- generated seeds

fn write_seeds() {
    let write = |target: &str, name: &str, data: &[u8]| {
        std::fs::create_dir_all(folder(target)).unwrap();
        std::fs::write(folder(target).join(name), data).unwrap();
    };
    let frames = busy_frames();
    let whole: Vec<u8> = frames.iter().take(48).flat_map(|(host, frame)| record(2 | u8::try_from(*host).unwrap(), frame)).collect();
    write("transport_frame", "dialogue", &whole);
    for (number, (host, frame)) in frames.iter().enumerate().filter(|(number, _)| number % 3 == 0).take(16) {
        write("transport_frame", &format!("frame_{number}"), &record(2 | u8::try_from(*host).unwrap(), frame));
    }
    write("transport_frame", "broken_checksum", &record(0, &[0; 60]));
    for kind in 1..=6 {
        write("connection_message", &format!("kind_{kind}"), &record(1, &connection_message(kind, VERSION)));
    }
    write("connection_message", "other_version", &record(1, &connection_message(1, VERSION + 1)));
    let dialogue: Vec<u8> = [1, 3, 5, 1].into_iter().flat_map(|kind| record(1, &connection_message(kind, VERSION))).collect();
    write("connection_message", "dialogue", &dialogue);
    write("stop_packet", "stop", &[&[0x03, 9, 8][..], &[0; 43]].concat());
    write("stop_packet", "cancel", &[&[0xf0][..], &[0; 45]].concat());
    write("stop_dialogue", "rules", &stop_dialogue());
    for (name, message) in [
        ("pause", MacControl::Pause { time: 1000 }),
        ("resume", MacControl::Pause { time: 0 }),
        ("pfc", MacControl::Pfc { enabled: 0x81, times: [9, 0, 0, 0, 0, 0, 0, u16::MAX] }),
    ] {
        write("mac_control", name, &message.emit(MacAddr([2, 0, 0, 0, 0, 1]))[14..]);
    }
    write("mac_control", "other_opcode", &[&[0, 2][..], &[0; 44]].concat());
    let operations: Vec<u8> = (0..600u32).flat_map(|i| [(i * 37) as u8, (i * 11) as u8, (i * 71) as u8]).collect();
    write("switch_operations", "all_kinds", &operations);
    write("switch_operations", "flood_and_drain", &[[0, 4, 200].repeat(40), [4, 1, 7].repeat(40)].concat());
    write_text_seeds(&write);
    let mut ring = vec![0; 2000];
    ring[0] = 3;
    write("shared_ring", "three_entries", &ring);
    write("shared_ring", "every_operation", &ring_of_every_operation());
    write("shared_ring", "index_beyond", &[0xff; 400]);
}

/// Two hosts stop us, prolong, slow down and cancel; two fill our link; hands do the same; time passes.
fn stop_dialogue() -> Vec<u8> {
    let packet = |first: u8, timer: u8, rate: u8| [&[first, timer, rate][..], &[0; 43]].concat();
    let mut data = vec![0b0100_0010];
    for round in 0..6_u8 {
        let host = round % 2 + 1;
        data.extend(record(host << 3, &packet(0x0f, 20 + round, 0)));
        data.extend(record(3 << 3, &packet(0x08, 200, 8)));
        data.extend(record(3 | host << 3, &[30; 24]));
        data.extend(record(3 | 3 << 3, &[30; 24]));
        data.extend(record(4 | 31 << 3, &[]));
        data.extend(record(5, &[]));
        data.extend(record(6 | (20 + host) << 3, &[]));
        data.extend(record(7 | host << 3, &[]));
        data.extend(record(host << 3, &packet(0xf0, 0, 0)));
        data.extend(record(4 | 9 << 3, &[]));
    }
    data
}

fn write_text_seeds(write: &impl Fn(&str, &str, &[u8])) {
    let printed = weft_config::effective_yaml(&weft_config::Config::minimal());
    write("config_yaml", "effective", printed.as_bytes());
    write(
        "config_yaml",
        "minimal",
        b"version: 1\nnode: a\nports:\n  - { name: eth0, interface: eth0, role: host, impair: { ingress: { loss: 1%, delay: 50us } } }\n",
    );
    write("config_yaml", "anchors", b"version: 1\nx: &a [1, 2]\ny: [*a, *a]\n");
    for kind in ["status", "ports", "qps", "shutdown", "nonsense"] {
        write("control_request", kind, format!("{{\"version\":1,\"id\":7,\"request\":{{\"type\":\"{kind}\"}}}}\n").as_bytes());
    }
    write("control_request", "two_lines", b"{}\n{\"version\":2,\"id\":1,\"request\":{\"type\":\"config\"}}\n");
    write("attach_request", "empty", b"{}");
    for (name, command) in attach_commands() {
        let request = Request { id: 7, command };
        write("attach_request", name, &serde_json::to_vec(&request).unwrap());
    }
}

fn attach_commands() -> Vec<(&'static str, Command)> {
    let (qp, cq, private) = (QpNum(0x0007_0002), CqId(1), vec![1, 2, 255]);
    vec![
        ("hello", Command::Hello { version: weft_verbs::layout::VERSION, name: String::from("x") }),
        ("register", Command::RegisterMemory { base: 1 << 40, len: 4096, access: Access::default() }),
        ("deregister", Command::DeregisterMemory { lkey: 7 }),
        ("create_cq", Command::CreateCq { depth: 64 }),
        ("create_qp", Command::CreateQp { send_cq: cq, recv_cq: cq, sq_depth: 1, rq_depth: 2, recovery: None, priority: None, srq: None }),
        ("destroy_qp", Command::DestroyQp { qp }),
        (
            "create_qp_with_srq",
            Command::CreateQp {
                send_cq: cq,
                recv_cq: cq,
                sq_depth: 1,
                rq_depth: 0,
                recovery: None,
                priority: None,
                srq: Some(SrqName(SrqId(3))),
            },
        ),
        ("create_srq", Command::CreateSrq { depth: 64 }),
        ("destroy_srq", Command::DestroySrq { srq: SrqId(3) }),
        ("set_srq_limit", Command::SetSrqLimit { srq: SrqId(3), limit: 8 }),
        ("drain", Command::Drain { qp }),
        ("resume", Command::Resume { qp }),
        ("listen", Command::Listen { service: 7 }),
        ("connect", Command::Connect { qp, host: String::from("b"), service: 7, private: private.clone() }),
        ("accept", Command::Accept { request: RequestId(9), qp, private }),
        ("disconnect", Command::Disconnect { qp }),
    ]
}

/// A ring with a request of each operation.
fn ring_of_every_operation() -> Vec<u8> {
    let (remote_addr, rkey) = (0x1000, 0x0007_1234);
    let piece = Data::List(SgList::new(&[Sge { addr: 64, len: 8, lkey: 0x0001_4321 }]).unwrap());
    let atomic = |op| SendOp::Atomic { remote_addr, rkey, op };
    let works = [
        (SendOp::Send, Data::Inline(Inline::new(&[0xab; 64]).unwrap())),
        (SendOp::SendInvalidate { rkey }, piece),
        (SendOp::Write { remote_addr, rkey }, Data::Inline(Inline::new(b"inline").unwrap())),
        (SendOp::Read { remote_addr, rkey }, piece),
        (atomic(AtomicOp::CompareSwap { compare: 1, swap: 2 }), piece),
        (atomic(AtomicOp::FetchAdd { add: u64::MAX }), piece),
        (SendOp::LocalInvalidate { key: rkey }, Data::EMPTY),
    ];
    let mut ring = vec![0; RING_ENTRIES];
    ring[RING_PRODUCER] = works.len() as u8;
    for (number, (op, local)) in works.into_iter().enumerate() {
        let work = SendWork { fence: number % 2 == 1, ..SendWork::new(number as u64, op, local) };
        ring.extend_from_slice(SendEntry::encode(&work).as_bytes());
    }
    ring
}

/// A connection message of this kind and version with plausible fields.
fn connection_message(kind: u8, version: u8) -> Vec<u8> {
    let mut message = vec![kind, version, 0, 7];
    for word in [0x0010_0001u32, 0, 0, 9, 0x0007_1234, 0x0001_0002, 77, 1440, 1024, 0x0000_0003] {
        message.extend_from_slice(&word.to_be_bytes());
    }
    message.extend_from_slice(b"abc");
    message
}
