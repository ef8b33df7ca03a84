//! Ports against the real kernel, in network namespaces of their own.

#![allow(clippy::cast_possible_truncation)]

#[allow(unreachable_pub, reason = "shared by test binaries")]
mod support;

use std::collections::VecDeque;

use support::network::{create_pair, delete, interface, promiscuous_listeners, set_down, set_mtu, set_up};
use support::{in_namespace, tap, until};
use weft_daemon::clock::monotonic;
use weft_daemon::link::{LinkChange, LinkMonitor};
use weft_daemon::port::{Backend, HEADROOM, Port, PortCounters, PortSpec, PortState, Role, RxOutcome, TxOutcome, required_chunk};
use weft_proto::pool::Offload;
use weft_proto::{DropReason, Duration, FrameRef, Instant, Pool};

#[global_allocator]
static ALLOCATOR: support::allocations::Counting = support::allocations::Counting;

const OURS: u16 = 0x88b5;
const BACKENDS: [Backend; 2] = [Backend::Packet, Backend::Pnet];

/// A port with all that a worker keeps for it.
struct Bench {
    port: Port,
    pool: Pool,
    queue: VecDeque<FrameRef>,
    counters: PortCounters,
    /// Frames that were ever put in the queue.
    pushed: u64,
}

impl Bench {
    fn open(interface: &str, role: Role, backend: Backend) -> Self {
        let (name, interface) = (interface.to_owned(), interface.to_owned());
        let spec = PortSpec { name, interface, role, backend, ethertypes: vec![OURS, 0xff10], batch: 64 };
        let pool = Pool::new(256, required_chunk(role, 9000), HEADROOM);
        let port = Port::open(&spec).unwrap();
        Self { port, pool, queue: VecDeque::new(), counters: PortCounters::default(), pushed: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        let frame = self.pool.alloc().unwrap();
        self.pool.room_mut(&frame)[..bytes.len()].copy_from_slice(bytes);
        self.pool.set_len(&frame, bytes.len());
        self.queue.push_back(frame);
        self.pushed += 1;
    }

    fn flush(&mut self) -> TxOutcome {
        self.port.tx(&mut self.pool, &mut self.queue, &mut self.counters)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.push(bytes);
        assert_eq!(self.flush(), TxOutcome::Drained);
    }

    fn receive_into(&mut self, out: &mut Vec<FrameRef>) -> RxOutcome {
        self.port.rx(&mut self.pool, out, 64, &mut self.counters)
    }

    /// All frames that wait now.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let (mut out, mut frames) = (Vec::new(), Vec::new());
        loop {
            let outcome = self.receive_into(&mut out);
            for frame in out.drain(..) {
                frames.push(self.pool.bytes(&frame).to_vec());
                self.pool.free(frame);
            }
            if outcome != RxOutcome::More {
                return frames;
            }
        }
    }

    /// The next `count` frames of our EtherTypes, tagged or not.
    fn receive_ours(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        until("frames of ours", || {
            frames.extend(self.receive().into_iter().filter(|frame| is_ours(frame)));
            (frames.len() >= count).then_some(())
        });
        frames
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.counters.drops.of(reason)
    }
}

fn is_ours(frame: &[u8]) -> bool {
    let at = if matches!(frame[12..14], [0x81, 0x00] | [0x88, 0xa8]) { 16 } else { 12 };
    frame[at..at + 2] == OURS.to_be_bytes()
}

/// A frame of ours with a mark in front of its payload.
fn frame(mark: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa]);
    bytes[12..14].copy_from_slice(&OURS.to_be_bytes());
    bytes[14] = mark;
    bytes
}

/// The same with a tag.
fn tagged(tpid: u16, tci: u16, len: usize) -> Vec<u8> {
    let mut bytes = frame(1, len);
    let tag = [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
    bytes.splice(12..12, tag);
    bytes
}

/// Two connected interfaces that are up.
fn connected() {
    create_pair("near", "far", None);
    set_up(&["near", "far"]);
}

/// The port learns what the monitor knows, and does what is due.
fn settle(bench: &mut Bench, monitor: &mut LinkMonitor) {
    while let Some(event) = monitor.poll_event().unwrap() {
        bench.port.handle_link(&event);
    }
    bench.port.handle_timeout(monotonic());
}

fn settle_until(bench: &mut Bench, monitor: &mut LinkMonitor, state: PortState) {
    until(&format!("state {state:?}"), || {
        settle(bench, monitor);
        (bench.port.state() == state).then_some(())
    });
}

#[test]
fn frames_arrive_as_they_were_sent_and_not_at_their_own_sender() {
    in_namespace("frames_arrive_as_they_were_sent_and_not_at_their_own_sender", || {
        connected();
        for backend in BACKENDS {
            let mut near = Bench::open("near", Role::Switch, backend);
            let mut second = Bench::open("near", Role::Switch, backend);
            let mut far = Bench::open("far", Role::Switch, backend);
            for len in [15, 60, 1514] {
                near.send(&frame(len as u8, len));
            }
            assert_eq!(far.receive_ours(3), [frame(15, 15), frame(60, 60), frame(1514_u16 as u8, 1514)]);
            far.send(&frame(9, 60));
            assert_eq!(near.receive_ours(1), [frame(9, 60)], "only the other side's frame, {backend:?}");
            assert_eq!(second.receive_ours(1), [frame(9, 60)], "a second socket does not see what the first sent either");
            assert_eq!((near.pool.in_use(), far.pool.in_use()), (0, 0));
        }
    });
}

/// Waits without sleeping, so that frames lie that far apart.
fn pass(span: Duration) {
    let start = monotonic();
    until("time to pass", || (monotonic().since(start) >= span).then_some(()));
}

#[test]
fn frames_tell_when_they_arrived_and_not_when_they_were_fetched() {
    in_namespace("frames_tell_when_they_arrived_and_not_when_they_were_fetched", || {
        const APART: Duration = Duration::from_millis(20);
        // A machine that is busy may look at one clock this much later than at the other.
        const SLACK: Duration = Duration::from_millis(5);
        connected();
        let mut near = Bench::open("near", Role::Host, Backend::Packet);
        let mut far = Bench::open("far", Role::Host, Backend::Packet);
        let mut out = Vec::new();
        near.send(&frame(0, 60));
        let untimed = until("a frame", || {
            let _ = far.receive_into(&mut out);
            out.pop()
        });
        assert_eq!(far.pool.arrived(&untimed), Instant::ZERO, "not asked for");
        far.port.set_timestamps(true);
        let mut sent = Vec::new();
        for mark in 1..=3 {
            let before = monotonic();
            near.send(&tagged(0x8100, mark, 60));
            sent.push((before, monotonic()));
            pass(APART);
        }
        let read = monotonic();
        assert_eq!(far.receive_into(&mut out), RxOutcome::Empty);
        let arrived: Vec<Instant> = out.iter().map(|frame| far.pool.arrived(frame)).collect();
        assert_eq!(arrived.len(), 3);
        for (&at, (before, after)) in arrived.iter().zip(sent) {
            assert!(at + SLACK >= before && at <= after + SLACK, "{at:?} is not from {before:?} to {after:?}");
            assert!(at + SLACK < read, "{at:?} was fetched at {read:?}");
        }
        far.port.set_timestamps(false);
        near.send(&frame(4, 60));
        until("one without a time", || {
            let _ = far.receive_into(&mut out);
            (far.pool.arrived(out.last()?) == Instant::ZERO).then_some(())
        });
    });
}

#[test]
fn an_ethertype_is_let_in_from_the_moment_that_it_is_named() {
    in_namespace("an_ethertype_is_let_in_from_the_moment_that_it_is_named", || {
        connected();
        for backend in BACKENDS {
            let mut near = Bench::open("near", Role::Host, backend);
            let mut far = Bench::open("far", Role::Host, backend);
            let foreign = |mark| {
                let mut bytes = frame(mark, 60);
                bytes[12..14].copy_from_slice(&[0xff, 0xfe]);
                bytes
            };
            near.send(&foreign(1));
            far.port.set_ethertypes(vec![OURS, 0xfffe]).unwrap();
            near.send(&foreign(2));
            near.send(&frame(3, 60));
            let mut frames = Vec::new();
            until("both frames", || {
                frames.extend(far.receive());
                (frames.len() >= 2).then_some(())
            });
            assert_eq!(frames, [foreign(2), frame(3, 60)], "{backend:?}");
            far.port.set_ethertypes(vec![OURS]).unwrap();
            near.send(&foreign(4));
            near.send(&frame(5, 60));
            assert_eq!(far.receive_ours(1), [frame(5, 60)], "{backend:?}");
        }
    });
}

#[test]
fn vlan_tags_survive_both_ways_even_the_empty_one() {
    in_namespace("vlan_tags_survive_both_ways_even_the_empty_one", || {
        connected();
        for backend in BACKENDS {
            for role in [Role::Switch, Role::Host] {
                let mut near = Bench::open("near", role, backend);
                let mut far = Bench::open("far", role, backend);
                let sent = [tagged(0x8100, 0, 60), tagged(0x8100, 0xa007, 1514), tagged(0x88a8, 0x6fff, 200)];
                sent.iter().for_each(|frame| near.send(frame));
                assert_eq!(far.receive_ours(3), sent, "{backend:?} {role:?}");
                far.send(&sent[0]);
                assert_eq!(near.receive_ours(1), sent[..1], "{backend:?} {role:?}");
                assert_eq!(near.dropped(DropReason::Oversize), 0);
            }
        }
    });
}

#[test]
fn a_frame_longer_than_its_chunk_is_counted_as_cut_off_and_the_next_is_whole() {
    in_namespace("a_frame_longer_than_its_chunk_is_counted_as_cut_off_and_the_next_is_whole", || {
        connected();
        for backend in BACKENDS {
            let mut near = Bench::open("near", Role::Host, backend);
            let mut far = Bench::open("far", Role::Host, backend);
            far.pool = Pool::new(8, 512, HEADROOM);
            near.send(&frame(1, 449));
            near.send(&frame(2, 448));
            assert_eq!(far.receive_ours(1), [frame(2, 448)]);
            assert_eq!((far.dropped(DropReason::CutOff), far.pool.in_use()), (1, 0), "{backend:?}");
        }
    });
}

#[test]
fn a_frame_longer_than_the_mtu_is_dropped_as_oversize_and_the_rest_is_sent() {
    in_namespace("a_frame_longer_than_the_mtu_is_dropped_as_oversize_and_the_rest_is_sent", || {
        connected();
        for backend in BACKENDS {
            let mut near = Bench::open("near", Role::Host, backend);
            let mut far = Bench::open("far", Role::Host, backend);
            for len in [60, 1515, 61] {
                near.push(&frame(1, len));
            }
            assert_eq!(near.flush(), TxOutcome::Drained);
            assert_eq!(far.receive_ours(2), [frame(1, 60), frame(1, 61)], "{backend:?}");
            assert_eq!((near.dropped(DropReason::Oversize), near.queue.len(), near.pool.in_use()), (1, 0, 0));
        }
    });
}

/// A TCP segment of another kernel with a tag, as far as a checksum needs it.
fn tagged_segment(payload: usize) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 0xa], [2, 0, 0, 0, 0, 0xb])
        .single_vlan(7.try_into().unwrap())
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(1, 2, 3, 4);
    let mut bytes = Vec::new();
    builder.write(&mut bytes, &vec![5; payload]).unwrap();
    bytes
}

#[test]
fn unfinished_work_keeps_its_place_behind_a_tag() {
    in_namespace("unfinished_work_keeps_its_place_behind_a_tag", || {
        connected();
        let mut near = Bench::open("near", Role::Switch, Backend::Packet);
        let mut far = Bench::open("far", Role::Switch, Backend::Packet);
        let partial = Offload { flags: 1, checksum_start: 38, checksum_offset: 16, ..Offload::default() };
        let whole = Offload { gso_type: 1, gso_size: 1400, header_len: 58, ..partial };
        for (payload, offload) in [(100, partial), (20_000, whole)] {
            let bytes = tagged_segment(payload);
            near.push(&bytes);
            near.pool.set_offload(&near.queue[0], offload);
            assert_eq!(near.flush(), TxOutcome::Drained);
            assert_eq!(near.counters.drops.total(), 0);
            let mut out = Vec::new();
            until("the segment", || {
                let _ = far.receive_into(&mut out);
                let place = out.iter().position(|frame| far.pool.bytes(frame).len() == bytes.len())?;
                assert_eq!(far.pool.bytes(&out[place])[..38], bytes[..38]);
                let received = far.pool.offload(&out[place]);
                // The kernel may count more or less of the frame as header, but never a header that ends elsewhere than it began to.
                let header_len = if offload.is_super_frame() { received.header_len } else { 0 };
                assert_eq!(received, Offload { header_len, ..offload });
                assert!(!offload.is_super_frame() || received.header_len >= 58);
                Some(())
            });
        }
    });
}

#[test]
fn a_super_frame_that_no_header_can_carry_is_dropped() {
    in_namespace("a_super_frame_that_no_header_can_carry_is_dropped", || {
        connected();
        let mut near = Bench::open("near", Role::Switch, Backend::Packet);
        let mut far = Bench::open("far", Role::Switch, Backend::Pnet);
        let offload = Offload { flags: 1, gso_type: 1, gso_size: 1400, header_len: 58, checksum_start: 38, checksum_offset: 16 };
        let bytes = tagged_segment(20_000);
        for from in [&mut near, &mut far] {
            from.push(&bytes);
            from.pool.set_offload(&from.queue[0], offload);
            assert_eq!(from.flush(), TxOutcome::Drained);
        }
        assert_eq!((far.dropped(DropReason::SuperFrame), near.dropped(DropReason::SuperFrame)), (1, 0), "on the way out");
        near.send(&frame(1, 60));
        assert_eq!(far.receive_ours(1), [frame(1, 60)]);
        assert_eq!((far.dropped(DropReason::SuperFrame), near.dropped(DropReason::SuperFrame)), (2, 0), "on the way in");
        assert_eq!((near.pool.in_use(), far.pool.in_use()), (0, 0));
    });
}

#[test]
fn a_batch_is_one_call_on_a_busy_port() {
    in_namespace("a_batch_is_one_call_on_a_busy_port", || {
        connected();
        let mut near = Bench::open("near", Role::Host, Backend::Auto);
        let mut far = Bench::open("far", Role::Host, Backend::Auto);
        assert_eq!(near.port.backend_name(), "packet");
        // Each call may take twice what the last one did.
        assert_eq!(exchange(&mut near, &mut far, 8 + 16 + 32), 3);
        assert_eq!(exchange(&mut near, &mut far, 64), 1);
    });
}

/// Sends frames and receives them all, with calls that each find more than they may take: so many.
fn exchange(near: &mut Bench, far: &mut Bench, count: usize) -> usize {
    (0..count).for_each(|mark| near.push(&frame(mark as u8, 60)));
    assert_eq!(near.flush(), TxOutcome::Drained);
    let (mut out, mut calls) = (Vec::new(), 0);
    while out.len() < count {
        assert_eq!(far.receive_into(&mut out), RxOutcome::More);
        calls += 1;
    }
    out.drain(..).for_each(|frame| far.pool.free(frame));
    calls
}

#[test]
fn no_frame_costs_an_allocation() {
    in_namespace("no_frame_costs_an_allocation", || {
        connected();
        for backend in BACKENDS {
            let mut near = Bench::open("near", Role::Switch, backend);
            let mut far = Bench::open("far", Role::Switch, backend);
            let bytes = frame(1, 300);
            let mut out = Vec::with_capacity(64);
            let mut received = 0;
            let mut round = || {
                (0..64).for_each(|_| near.push(&bytes));
                assert_eq!(near.flush(), TxOutcome::Drained);
                while far.receive_into(&mut out) == RxOutcome::More {
                    received += out.len();
                    out.drain(..).for_each(|frame| far.pool.free(frame));
                }
                received += out.len();
                out.drain(..).for_each(|frame| far.pool.free(frame));
            };
            round();
            let count = support::allocations::during(|| (0..10).for_each(|_| round()));
            assert_eq!(count, 0, "{backend:?}");
            assert!(received >= 600, "{backend:?} received {received}");
        }
    });
}

#[test]
fn an_empty_pool_leaves_frames_in_the_kernel() {
    in_namespace("an_empty_pool_leaves_frames_in_the_kernel", || {
        connected();
        for backend in BACKENDS {
            let mut near = Bench::open("near", Role::Host, backend);
            let mut far = Bench::open("far", Role::Host, backend);
            far.pool = Pool::new(2, 2048, HEADROOM);
            (0..3).for_each(|mark| near.send(&frame(mark, 60)));
            let mut out = Vec::new();
            while far.receive_into(&mut out) != RxOutcome::NoBuffer {}
            out.drain(..).for_each(|frame| far.pool.free(frame));
            assert_eq!(far.receive_ours(1), [frame(2, 60)], "{backend:?}");
        }
    });
}

#[test]
fn what_the_kernel_drops_is_added_up_over_readings() {
    in_namespace("what_the_kernel_drops_is_added_up_over_readings", || {
        connected();
        let mut near = Bench::open("near", Role::Host, Backend::Auto);
        let mut far = Bench::open("far", Role::Host, Backend::Auto);
        let mut before = 0;
        for _ in 0..2 {
            until("drops", || {
                (0..64).for_each(|mark| near.send(&frame(mark, 1514)));
                far.port.update_counters(&mut far.counters);
                (far.counters.kernel_drops > before).then_some(())
            });
            before = far.counters.kernel_drops;
        }
        let waiting = far.receive().len() as u64;
        far.port.update_counters(&mut far.counters);
        assert_eq!(waiting + far.counters.kernel_drops, near.pushed);
    });
}

#[test]
fn a_driver_without_room_keeps_the_queue_until_there_is_room_again() {
    in_namespace("a_driver_without_room_keeps_the_queue_until_there_is_room_again", || {
        let Some(mut other_end) = tap::create("slow") else { return };
        set_up(&["slow"]);
        let mut port = Bench::open("slow", Role::Host, Backend::Packet);
        until("a full driver", || {
            (0..64).for_each(|mark| port.push(&frame(mark, 60)));
            (port.flush() == TxOutcome::Blocked).then_some(())
        });
        let waiting = port.queue.len();
        assert!(waiting > 0 && port.counters.tx_refusals == 1);
        let taken = tap::drain(&mut other_end, OURS);
        assert_eq!(port.flush(), TxOutcome::Drained);
        assert_eq!((taken as u64 + waiting as u64, tap::drain(&mut other_end, OURS)), (port.pushed, waiting));
        assert_eq!((port.pool.in_use(), port.dropped(DropReason::SendFailed)), (0, 0));
    });
}

#[test]
fn a_driver_that_never_has_room_gets_its_frames_dropped_in_the_end() {
    in_namespace("a_driver_that_never_has_room_gets_its_frames_dropped_in_the_end", || {
        let Some(_stuck) = tap::create("stuck") else { return };
        set_up(&["stuck"]);
        let mut port = Bench::open("stuck", Role::Host, Backend::Packet);
        until("a first frame given up", || {
            if port.queue.is_empty() {
                (0..64).for_each(|mark| port.push(&frame(mark, 60)));
            }
            let _ = port.flush();
            (port.dropped(DropReason::SendFailed) > 0).then_some(())
        });
        assert!(port.counters.tx_refusals >= 1000);
    });
}

#[test]
fn down_and_up_again_resume_on_the_same_socket() {
    in_namespace("down_and_up_again_resume_on_the_same_socket", || {
        connected();
        for backend in BACKENDS {
            let mut near = Bench::open("near", Role::Switch, backend);
            let mut far = Bench::open("far", Role::Switch, backend);
            let mut monitor = LinkMonitor::open().unwrap();
            settle(&mut near, &mut monitor);
            let fd = near.port.fd();
            set_down("near");
            until("the socket's fault", || {
                let mut out = Vec::new();
                (near.receive_into(&mut out) == RxOutcome::Down).then_some(())
            });
            assert_eq!(near.port.state(), PortState::Down, "known from the socket, without the monitor");
            near.push(&frame(1, 60));
            assert_eq!((near.flush(), near.dropped(DropReason::PortDown)), (TxOutcome::Down, 1));
            // Losing its carrier stopped the other side too.
            set_up(&["near", "far"]);
            settle_until(&mut near, &mut monitor, PortState::Up);
            near.send(&frame(2, 60));
            assert_eq!(far.receive_ours(1), [frame(2, 60)]);
            far.send(&frame(3, 60));
            assert_eq!(near.receive_ours(1), [frame(3, 60)], "{backend:?}");
            assert_eq!((near.port.fd(), near.port.generation()), (fd, 0));
        }
    });
}

#[test]
fn a_flap_that_nobody_saw_costs_no_frame() {
    in_namespace("a_flap_that_nobody_saw_costs_no_frame", || {
        connected();
        for backend in BACKENDS {
            let mut near = Bench::open("near", Role::Host, backend);
            let mut far = Bench::open("far", Role::Host, backend);
            set_down("near");
            set_up(&["near", "far"]);
            near.push(&frame(1, 60));
            assert_eq!(near.flush(), TxOutcome::Blocked, "the socket reports the past once");
            assert_eq!(near.flush(), TxOutcome::Drained);
            assert_eq!(far.receive_ours(1), [frame(1, 60)], "{backend:?}");
            assert_eq!((near.port.state(), near.counters.drops.total()), (PortState::Up, 0));
        }
    });
}

#[test]
fn an_impossible_offload_is_refused_and_the_rest_is_sent() {
    in_namespace("an_impossible_offload_is_refused_and_the_rest_is_sent", || {
        connected();
        for backend in BACKENDS {
            let mut near = Bench::open("near", Role::Switch, backend);
            let mut far = Bench::open("far", Role::Switch, backend);
            near.push(&frame(1, 60));
            near.pool.set_offload(&near.queue[0], Offload { flags: 1, checksum_start: 59, ..Offload::default() });
            near.push(&frame(2, 60));
            assert_eq!(near.flush(), TxOutcome::Drained);
            assert_eq!(far.receive_ours(1), [frame(2, 60)], "{backend:?}");
            assert_eq!((near.dropped(DropReason::SendFailed), near.pool.in_use()), (1, 0));
        }
    });
}

#[test]
fn a_switch_port_hears_every_address_and_silences_the_kernel_and_a_host_port_does_neither() {
    in_namespace("a_switch_port_hears_every_address_and_silences_the_kernel_and_a_host_port_does_neither", || {
        connected();
        for backend in BACKENDS {
            let path = "/proc/sys/net/ipv6/conf/near/disable_ipv6";
            // A kernel without IPv6 has nothing to silence.
            let ipv6_is_off = || std::fs::read_to_string(path).map_or(true, |value| value.trim() == "1");
            let _ = std::fs::write(path, "0");
            let host = Bench::open("near", Role::Host, backend);
            assert_eq!(promiscuous_listeners("near"), 0);
            assert!(!std::path::Path::new(path).exists() || !ipv6_is_off());
            let switch = Bench::open("near", Role::Switch, backend);
            assert_eq!(promiscuous_listeners("near"), 1);
            assert!(ipv6_is_off(), "{backend:?}");
            drop((host, switch));
            assert_eq!(promiscuous_listeners("near"), 0);
        }
    });
}

#[test]
fn a_lost_carrier_means_down() {
    in_namespace("a_lost_carrier_means_down", || {
        connected();
        let mut near = Bench::open("near", Role::Switch, Backend::Auto);
        let mut monitor = LinkMonitor::open().unwrap();
        set_down("far");
        settle_until(&mut near, &mut monitor, PortState::Down);
        set_up(&["far"]);
        settle_until(&mut near, &mut monitor, PortState::Up);
    });
}

#[test]
fn an_interface_deleted_and_made_again_under_traffic_is_opened_anew() {
    in_namespace("an_interface_deleted_and_made_again_under_traffic_is_opened_anew", || {
        for backend in BACKENDS {
            connected();
            let mut near = Bench::open("near", Role::Switch, backend);
            let mut monitor = LinkMonitor::open().unwrap();
            for round in 1..=3 {
                (0..8).for_each(|mark| near.send(&frame(mark, 60)));
                let old = interface("near").index;
                delete("near");
                near.push(&frame(1, 60));
                assert_eq!(near.flush(), TxOutcome::Down, "sending finds out first");
                assert_eq!((near.port.state(), near.port.fd()), (PortState::Absent, None));
                connected();
                assert_ne!(interface("near").index, old);
                settle_until(&mut near, &mut monitor, PortState::Up);
                assert_eq!(near.port.generation(), round);
                let mut far = Bench::open("far", Role::Switch, backend);
                near.send(&frame(2, 60));
                assert_eq!(far.receive_ours(1), [frame(2, 60)]);
                far.send(&frame(3, 60));
                assert_eq!(near.receive_ours(1), [frame(3, 60)], "{backend:?}");
                assert_eq!(near.port.mac(), interface("near").mac);
            }
            assert_eq!(near.pool.in_use(), 0);
            delete("near");
        }
    });
}

#[test]
fn a_replaced_interface_is_noticed_by_a_port_that_only_listens() {
    in_namespace("a_replaced_interface_is_noticed_by_a_port_that_only_listens", || {
        connected();
        let mut near = Bench::open("near", Role::Host, Backend::Auto);
        let mut monitor = LinkMonitor::open().unwrap();
        delete("near");
        connected();
        until("a new socket", || {
            settle(&mut near, &mut monitor);
            (near.port.generation() == 1 && near.port.state() == PortState::Up).then_some(())
        });
        let mut far = Bench::open("far", Role::Host, Backend::Auto);
        far.send(&frame(3, 60));
        assert_eq!(near.receive_ours(1), [frame(3, 60)]);
    });
}

#[test]
fn a_new_mtu_reaches_the_port() {
    in_namespace("a_new_mtu_reaches_the_port", || {
        connected();
        for backend in BACKENDS {
            set_mtu("near", 1500);
            let mut near = Bench::open("near", Role::Switch, backend);
            let mut far = Bench::open("far", Role::Switch, backend);
            let mut monitor = LinkMonitor::open().unwrap();
            ["near", "far"].iter().for_each(|name| set_mtu(name, 9000));
            settle(&mut near, &mut monitor);
            assert_eq!(near.port.mtu(), 9000);
            far.send(&frame(1, 9014));
            assert_eq!(near.receive_ours(1), [frame(1, 9014)], "{backend:?}");
        }
    });
}

#[test]
fn lost_news_are_made_good_by_asking_again() {
    in_namespace("lost_news_are_made_good_by_asking_again", || {
        connected();
        let mut monitor = LinkMonitor::open().unwrap();
        while monitor.poll_event().unwrap().is_some() {}
        // Far more news than the socket has room for, the last of which matter.
        for mtu in 0..1500 {
            set_mtu("near", 1000 + mtu);
        }
        delete("near");
        create_pair("fresh", "other", None);
        let mut last = Vec::new();
        while let Some(event) = monitor.poll_event().unwrap() {
            last.push((event.change, event.link.name));
        }
        assert!(last.len() < 1500, "nothing was lost: the test tests nothing");
        for expected in [(LinkChange::Gone, "near"), (LinkChange::Gone, "far"), (LinkChange::New, "fresh"), (LinkChange::New, "other")] {
            assert!(last.contains(&(expected.0, expected.1.to_owned())), "{expected:?} is missing");
        }
    });
}

#[test]
fn a_port_that_is_not_due_does_nothing() {
    in_namespace("a_port_that_is_not_due_does_nothing", || {
        connected();
        let mut near = Bench::open("near", Role::Host, Backend::Auto);
        assert!(!near.port.handle_timeout(Instant::from_nanos(u64::MAX)));
        assert_eq!(near.port.generation(), 0);
    });
}
