//! How many frames a port moves: one thread sends, another receives, over a pair of virtual interfaces.
//!
//! Run with `cargo bench -p weft-daemon --bench ports`. Prints medians of five runs of half a second: frames per second,
//! and the processor time of each side per frame, which also holds on a machine that does other work meanwhile. With
//! virtual interfaces the sender's processor does most of the receiver's work too.

#[path = "../tests/support/mod.rs"]
#[allow(unreachable_pub, reason = "shared with test binaries")]
mod support;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use support::in_namespace;
use support::network::{create_pair, set_mtu, set_up};
use weft_daemon::port::{Backend, HEADROOM, Port, PortCounters, PortSpec, Role, required_chunk};
use weft_proto::Pool;

const RUNS: usize = 5;
const SPAN: Duration = Duration::from_millis(500);
const BATCH: usize = 64;

fn main() {
    in_namespace("main", || {
        create_pair("near", "far", None);
        set_up(&["near", "far"]);
        println!("backend  role    bytes     Mpps   Gbit/s   sender ns   receiver ns");
        for (backend, role) in [(Backend::Packet, Role::Host), (Backend::Packet, Role::Switch), (Backend::Pnet, Role::Host)] {
            for len in [64, 1514, 9014] {
                measure(backend, role, len);
            }
        }
        idle();
    });
}

fn open(interface: &str, backend: Backend, role: Role) -> Port {
    let (name, interface) = (interface.to_owned(), interface.to_owned());
    Port::open(&PortSpec { name, interface, role, backend, ethertypes: vec![0x88b5], batch: BATCH }).unwrap()
}

fn measure(backend: Backend, role: Role, len: usize) {
    ["near", "far"].iter().for_each(|name| set_mtu(name, if len > 1514 { 9000 } else { 1500 }));
    let mut runs: Vec<_> = (0..RUNS).map(|_| run(backend, role, len)).collect();
    runs.sort_by_key(|(_, received)| received.frames);
    let (sent, received) = &runs[RUNS / 2];
    let rate = f64::from(received.frames) / SPAN.as_secs_f64();
    let gigabits = rate * 8e-9 * f64::from(u32::try_from(len).unwrap());
    let (backend, role) = (format!("{backend:?}"), format!("{role:?}"));
    let (mega, near, far) = (rate / 1e6, sent.cost(), received.cost());
    println!("{backend:8} {role:6} {len:6} {mega:8.3} {gigabits:8.2} {near:11.0} {far:13.0}");
}

/// What one side did, and the processor time that it took.
struct Work {
    frames: u32,
    time: Duration,
}

impl Work {
    /// Does the work in this thread and takes its time.
    fn measure(work: impl FnOnce() -> u64) -> Self {
        let start = processor_time();
        let frames = u32::try_from(work()).unwrap();
        Self { frames, time: processor_time() - start }
    }

    /// Nanoseconds per frame.
    fn cost(&self) -> f64 {
        self.time.as_secs_f64() * 1e9 / f64::from(self.frames)
    }
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// What the sender and the receiver did.
fn run(backend: Backend, role: Role, len: usize) -> (Work, Work) {
    let (near, far) = (open("near", backend, role), open("far", backend, role));
    let stop = Arc::new(AtomicBool::new(false));
    let receiver = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || Work::measure(|| receive(far, role, &stop))
    });
    pin(0);
    let sent = Work::measure(|| send(near, role, len));
    stop.store(true, Ordering::Relaxed);
    (sent, receiver.join().unwrap())
}

fn send(mut port: Port, role: Role, len: usize) -> u64 {
    let mut pool = Pool::new(BATCH, required_chunk(role, 9000), HEADROOM);
    let frames: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    for frame in frames {
        pool.room_mut(&frame)[..14].copy_from_slice(b"\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\x01\x88\xb5");
        pool.free(frame);
    }
    let (mut queue, mut counters, mut queued) = (VecDeque::new(), PortCounters::default(), 0);
    let start = Instant::now();
    while start.elapsed() < SPAN {
        while let Some(frame) = pool.alloc() {
            pool.set_len(&frame, len);
            queue.push_back(frame);
            queued += 1;
        }
        let _ = port.tx(&mut pool, &mut queue, &mut counters);
    }
    queued - queue.len() as u64 - counters.drops.total()
}

fn receive(mut port: Port, role: Role, stop: &AtomicBool) -> u64 {
    pin(1);
    let mut pool = Pool::new(2 * BATCH, required_chunk(role, 9000), HEADROOM);
    let (mut out, mut counters, mut received) = (Vec::with_capacity(BATCH), PortCounters::default(), 0);
    while !stop.load(Ordering::Relaxed) {
        let _ = port.rx(&mut pool, &mut out, BATCH, &mut counters);
        received += out.len() as u64;
        out.drain(..).for_each(|frame| pool.free(frame));
    }
    received
}

/// What it costs to look at a port where nothing waits.
fn idle() {
    const LOOKS: u32 = 200_000;
    for backend in [Backend::Packet, Backend::Pnet] {
        let mut port = open("near", backend, Role::Host);
        let mut pool = Pool::new(2 * BATCH, required_chunk(Role::Host, 1500), HEADROOM);
        let (mut out, mut counters) = (Vec::new(), PortCounters::default());
        let work = Work::measure(|| {
            (0..LOOKS).for_each(|_| {
                let _ = port.rx(&mut pool, &mut out, BATCH, &mut counters);
            });
            u64::from(LOOKS)
        });
        println!("{backend:?}: a look at an empty port costs {:.0} ns", work.cost());
    }
}

/// Keeps the calling thread on one processor, if there are that many.
fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    let _ = sched_setaffinity(None, &set);
}
