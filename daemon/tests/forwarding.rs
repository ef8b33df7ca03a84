//! Ordinary traffic of two kernels through two switch ports, in network namespaces of their own.
//!
//! The forwarder here is the least that carries frames: what comes in at one port goes out at the other.

#[allow(unreachable_pub, reason = "shared by test binaries")]
mod support;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, recv, sendto, socket};
use support::network::{add_address, create_pair, delete, set_up, switch_on};
use support::{Namespace, in_namespace, until};
use weft_daemon::port::{Backend, HEADROOM, Port, PortCounters, PortSpec, Role, RxOutcome, required_chunk};
use weft_proto::{DropReason, FrameRef, Pool};

const LEFT: [u8; 4] = [10, 0, 0, 1];
const RIGHT: [u8; 4] = [10, 0, 0, 2];

/// One port, the frames that wait to leave by it, and its counters.
struct Side {
    port: Port,
    queue: VecDeque<FrameRef>,
    counters: PortCounters,
}

impl Side {
    fn open(interface: &str, role: Role, backend: Backend) -> Self {
        let (name, interface) = (interface.to_owned(), interface.to_owned());
        let spec = PortSpec { name, interface, role, backend, ethertypes: vec![0x88b5], batch: 64 };
        Self { port: Port::open(&spec).unwrap(), queue: VecDeque::new(), counters: PortCounters::default() }
    }
}

/// Two kernels and the forwarder between them.
struct Scene {
    left: Namespace,
    right: Namespace,
    sides: [Side; 2],
    pool: Pool,
    super_frames: u64,
    unfinished: u64,
}

impl Scene {
    fn new(backends: [Backend; 2]) -> Self {
        let (left, right) = (Namespace::new(), Namespace::new());
        for (namespace, ours, address) in [(&left, "left", LEFT), (&right, "right", RIGHT)] {
            create_pair(ours, "eth0", Some(namespace.handle()));
            namespace.run(move || {
                add_address("eth0", address);
                switch_on("eth0");
            });
        }
        set_up(&["left", "right"]);
        let sides = [Side::open("left", Role::Switch, backends[0]), Side::open("right", Role::Switch, backends[1])];
        let pool = Pool::new(1024, required_chunk(Role::Switch, 1500), HEADROOM);
        Self { left, right, sides, pool, super_frames: 0, unfinished: 0 }
    }

    /// Carries frames until the job is done.
    fn forward_until<T>(&mut self, job: &Receiver<T>) -> T {
        until("a job across the forwarder", || {
            self.carry(0, 1);
            self.carry(1, 0);
            match job.try_recv() {
                Ok(result) => Some(result),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => panic!("the job panicked"),
            }
        })
    }

    fn carry(&mut self, from: usize, to: usize) {
        let mut out = Vec::new();
        let side = &mut self.sides[from];
        let outcome = side.port.rx(&mut self.pool, &mut out, 64, &mut side.counters);
        assert_ne!(outcome, RxOutcome::Down);
        for frame in &out {
            let offload = self.pool.offload(frame);
            self.super_frames += u64::from(offload.is_super_frame());
            self.unfinished += u64::from(offload.flags & 1);
        }
        let side = &mut self.sides[to];
        side.queue.extend(out);
        let _ = side.port.tx(&mut self.pool, &mut side.queue, &mut side.counters);
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.sides.iter().map(|side| side.counters.drops.of(reason)).sum()
    }
}

impl Drop for Scene {
    /// A namespace takes its time to vanish; the next scene uses the same names.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ["left", "right"].iter().for_each(|name| delete(name));
        }
    }
}

/// Bytes without a pattern that a lost or doubled segment would hide in.
fn content(len: usize) -> Vec<u8> {
    (0_u32..).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_be_bytes()).take(len).collect()
}

/// Sends `len` bytes by TCP from left to right; returns what arrived.
fn transfer(scene: &mut Scene, len: usize) -> Vec<u8> {
    let listener = scene.right.run(|| TcpListener::bind((std::net::Ipv4Addr::from(RIGHT), 5000)).unwrap());
    let arrived = scene.right.start(move || {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let _sent = scene.left.start(move || {
        let mut stream = TcpStream::connect((std::net::Ipv4Addr::from(RIGHT), 5000)).unwrap();
        stream.write_all(&content(len)).unwrap();
    });
    scene.forward_until(&arrived)
}

/// Sends datagrams to an echo and returns what came back.
fn udp_echo(scene: &mut Scene) -> Vec<Vec<u8>> {
    let echo = scene.right.run(|| UdpSocket::bind((std::net::Ipv4Addr::from(RIGHT), 6000)).unwrap());
    let _echoed = scene.right.start(move || {
        let mut buffer = [0; 2048];
        for _ in 0..3 {
            let (len, from) = echo.recv_from(&mut buffer).unwrap();
            echo.send_to(&buffer[..len], from).unwrap();
        }
    });
    let answers = scene.left.start(|| {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::from(LEFT), 0)).unwrap();
        let mut buffer = [0; 2048];
        let ask = |text: &[u8]| {
            socket.send_to(text, (std::net::Ipv4Addr::from(RIGHT), 6000)).unwrap();
            let len = socket.recv(&mut buffer).unwrap();
            buffer[..len].to_vec()
        };
        [&b"a"[..], b"even", &[7; 1400]].map(ask).to_vec()
    });
    scene.forward_until(&answers)
}

/// Sends an ICMP echo request and waits for the answer.
fn ping(target: [u8; 4]) -> bool {
    std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP)).unwrap();
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(Duration::from_secs(5))).unwrap();
    // Type 8, code 0; the kernel fills in checksum and identifier.
    let request = *b"\x08\0\0\0\0\0\0\x01weft";
    let target = std::net::SocketAddrV4::new(target.into(), 0);
    sendto(&socket, &request, SendFlags::empty(), &target).unwrap();
    let mut answer = [0; 64];
    let (len, _) = recv(&socket, &mut answer, rustix::net::RecvFlags::empty()).unwrap();
    answer[0] == 0 && answer[8..len] == *b"weft"
}

#[test]
fn tcp_with_the_kernels_default_offloads_crosses_two_switch_ports() {
    in_namespace("tcp_with_the_kernels_default_offloads_crosses_two_switch_ports", || {
        let mut scene = Scene::new([Backend::Packet, Backend::Packet]);
        let len = 32 << 20;
        assert!(transfer(&mut scene, len) == content(len), "the bytes differ");
        assert!(scene.super_frames > 100, "{} super-frames: the kernel did not use its offloads", scene.super_frames);
        assert_eq!((scene.dropped(DropReason::SuperFrame), scene.dropped(DropReason::CutOff)), (0, 0));
        assert_eq!(scene.dropped(DropReason::SendFailed), 0);
    });
}

#[test]
fn ping_and_udp_cross_between_any_two_backends() {
    in_namespace("ping_and_udp_cross_between_any_two_backends", || {
        for backends in [[Backend::Packet; 2], [Backend::Pnet; 2], [Backend::Packet, Backend::Pnet]] {
            let mut scene = Scene::new(backends);
            let answered = scene.left.start(|| ping(RIGHT));
            assert!(scene.forward_until(&answered), "{backends:?}");
            assert_eq!(udp_echo(&mut scene), [&b"a"[..], b"even", &[7; 1400]], "{backends:?}");
            assert!(scene.unfinished > 0, "no checksum was unfinished: the test tests nothing");
        }
    });
}

#[test]
fn a_host_port_sees_our_ethertype_only_and_the_kernel_keeps_the_rest() {
    in_namespace("a_host_port_sees_our_ethertype_only_and_the_kernel_keeps_the_rest", || {
        for backend in [Backend::Packet, Backend::Pnet] {
            let other = Namespace::new();
            create_pair("host", "eth0", Some(other.handle()));
            add_address("host", LEFT);
            other.run(|| {
                add_address("eth0", RIGHT);
                switch_on("eth0");
            });
            set_up(&["host"]);
            let mut side = Side::open("host", Role::Host, backend);
            let mut pool = Pool::new(8, required_chunk(Role::Host, 1500), HEADROOM);
            assert!(other.run(|| ping(LEFT)), "the kernel answers");
            other.run(move || send_ours(backend));
            let mut out = Vec::new();
            until("our frame", || {
                let _ = side.port.rx(&mut pool, &mut out, 8, &mut side.counters);
                (!out.is_empty()).then_some(())
            });
            assert_eq!(out.len(), 1, "{backend:?}");
            assert_eq!(pool.bytes(&out[0])[12..14], [0x88, 0xb5]);
            out.drain(..).for_each(|frame| pool.free(frame));
            delete("host");
        }
    });
}

fn send_ours(backend: Backend) {
    let mut side = Side::open("eth0", Role::Switch, backend);
    let mut pool = Pool::new(1, required_chunk(Role::Host, 1500), HEADROOM);
    let frame = pool.alloc().unwrap();
    pool.room_mut(&frame)[..14].copy_from_slice(b"\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\x01\x88\xb5");
    pool.set_len(&frame, 60);
    side.queue.push_back(frame);
    let _ = side.port.tx(&mut pool, &mut side.queue, &mut side.counters);
    assert!(side.queue.is_empty() && side.counters.drops.total() == 0);
}
