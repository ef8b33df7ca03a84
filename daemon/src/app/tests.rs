//! Two hosts in one process, joined by a perfect wire, and real applications attached to them over real sockets.

mod dialogue;
mod honest;
mod hostile;
mod large;
mod shared;
mod verbs;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as Clock};

use rustix::event::PollFlags;
use weft_config::model::Applications;
use weft_proto::transport::{AppId, BdpCap, Endpoint, EndpointConfig, Recovery};
use weft_proto::wire::{EtherType, MacAddr};
use weft_proto::{Instant, Rng};
use weft_verbs::protocol::{Command, FromDaemon, Request};
use weft_verbs::{Context, socket};

use super::message::AppCommand;
use super::session::Settings;
use super::{AppServer, AppTable};

/// Far longer than anything takes: reached only if something is broken.
const PATIENCE: Duration = Duration::from_secs(20);

fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host + 1])
}

fn endpoint(host: u8) -> Endpoint {
    let config = EndpointConfig {
        mac: mac(host),
        ethertype: EtherType::TRANSPORT,
        priority: None,
        mtu: 1500,
        recovery: Recovery::Irn,
        bdp_cap: BdpCap::Packets(64),
        started: 1,
        rto_low: weft_proto::Duration::from_millis(20),
        rto_high: weft_proto::Duration::from_millis(40),
        retry_count: 7,
        rnr_retry: 7,
        rnr_delay: weft_proto::Duration::from_micros(640),
        ack_delay: weft_proto::Duration::from_micros(20),
        ack_every: 8,
        keepalive: weft_proto::Duration::from_secs(1),
        connect_timeout: weft_proto::Duration::from_millis(100),
        connect_retries: 5,
        max_qps: 64,
        max_regions: 64,
        ..EndpointConfig::new(mac(host))
    };
    Endpoint::new(config, Rng::from_seed(u64::from(host) + 1))
}

fn applications(socket: PathBuf) -> Applications {
    Applications {
        socket,
        mode: 0o600,
        max_applications: 8,
        max_qps_per_application: 4,
        max_srqs_per_application: 2,
        max_regions_per_application: 4,
        max_memory_per_application: 1 << 24,
    }
}

/// One host: what control thread and worker do, in one thread.
struct Host {
    server: AppServer,
    table: AppTable,
    endpoint: Endpoint,
    commands: Vec<AppCommand>,
}

impl Host {
    fn new(number: u8, socket: PathBuf) -> Self {
        let hosts = [("a".to_owned(), mac(0)), ("b".to_owned(), mac(1))].into();
        let settings = Settings { applications: applications(socket), mac: Some(mac(number)), hosts };
        let server = AppServer::bind(settings).unwrap();
        Self { server, table: AppTable::new().unwrap(), endpoint: endpoint(number), commands: Vec::new() }
    }

    fn control(&mut self, now: Instant) {
        while let Some(app) = self.server.accept(now).unwrap() {
            self.server.handle_ready(app, &mut self.commands);
        }
        let apps: Vec<AppId> = self.server.sessions().map(|(app, _)| app).collect();
        for app in apps {
            self.server.handle_ready(app, &mut self.commands);
        }
        self.server.handle_backlog(&mut self.commands);
        self.server.handle_timeout(now, &mut self.commands);
    }

    /// True if something was done; frames go to `wire`.
    fn breathe(&mut self, now: Instant, wire: &mut Vec<Vec<u8>>) -> bool {
        self.control(now);
        let mut busy = !self.commands.is_empty();
        for command in self.commands.drain(..) {
            self.table.execute(now, command, &mut self.endpoint);
        }
        busy |= self.table.collect_work(now, &mut self.endpoint, 64) > 0;
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        let mut frame = [0; 1600];
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut frame, &self.table) {
            wire.push(frame[..transmit.len].to_vec());
            busy = true;
        }
        self.table.deliver(now, &mut self.endpoint);
        while let Some(update) = self.table.poll_update() {
            self.server.handle_update(update, &mut self.commands);
        }
        busy
    }
}

/// Two hosts on a thread of their own.
struct World {
    folder: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<[Host; 2]>>,
}

impl World {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut hosts = [0, 1].map(|number| Host::new(number, folder.path().join(number.to_string())));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let start = Clock::now();
            while !stopped.load(Ordering::Relaxed) {
                let now = Instant::from_nanos(u64::try_from(start.elapsed().as_nanos()).unwrap() + 1);
                if !step(&mut hosts, now) {
                    sleep(&mut hosts);
                }
            }
            hosts
        });
        Self { folder, stop, thread: Some(thread) }
    }

    fn path(&self, host: u8) -> PathBuf {
        self.folder.path().join(host.to_string())
    }

    fn attach(&self, host: u8) -> Context {
        Context::attach(self.path(host), "test").unwrap()
    }

    /// Stops time and hands the hosts out.
    fn stop(&mut self) -> [Host; 2] {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn step(hosts: &mut [Host; 2], now: Instant) -> bool {
    let [a, b] = hosts;
    let (mut to_a, mut to_b) = (Vec::new(), Vec::new());
    let busy = a.breathe(now, &mut to_b) | b.breathe(now, &mut to_a);
    for frame in &to_a {
        a.endpoint.handle_frame(now, frame, &mut a.table);
    }
    for frame in &to_b {
        b.endpoint.handle_frame(now, frame, &mut b.table);
    }
    busy
}

/// Sleeps as a worker does: announced, and until a doorbell, a message, or a moment for the timers.
fn sleep(hosts: &mut [Host; 2]) {
    let [may_sleep, other_may_sleep] = hosts.each_mut().map(|host| host.table.prepare_sleep());
    if may_sleep && other_may_sleep {
        let apps = hosts.iter().flat_map(|host| host.server.sessions().filter_map(|(app, _)| host.server.socket(app)));
        let fixed = hosts.iter().flat_map(|host| [host.table.wake_fd(), host.server.listener()]);
        let fds: Vec<BorrowedFd<'_>> = apps.chain(fixed).collect();
        socket::wait(&fds, PollFlags::IN, Clock::now() + Duration::from_millis(2)).unwrap();
    }
    for host in hosts {
        host.table.finish_sleep();
    }
}

/// An application that speaks the protocol by hand, and so need not keep to it.
struct Raw {
    socket: OwnedFd,
    last_id: u64,
}

impl Raw {
    fn connect(world: &World, host: u8) -> Self {
        Self::connect_to(&world.path(host))
    }

    fn connect_to(path: &Path) -> Self {
        Self { socket: socket::connect(path).unwrap(), last_id: 0 }
    }

    fn attach(world: &World, host: u8) -> (Self, Vec<OwnedFd>) {
        let mut raw = Self::connect(world, host);
        let (reply, fds) = raw.ask(Command::Hello { version: weft_verbs::layout::VERSION, name: "raw".into() }, &[]);
        assert!(matches!(reply, FromDaemon::Reply { .. }), "{reply:?}");
        (raw, fds)
    }

    fn say(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        socket::send(&self.socket, bytes, fds).unwrap();
    }

    /// The next message; `None` if the daemon has hung up.
    fn hear(&self) -> Option<(FromDaemon, Vec<OwnedFd>)> {
        assert!(socket::wait(&[self.socket.as_fd()], PollFlags::IN, Clock::now() + PATIENCE).unwrap(), "silence");
        match socket::receive(&self.socket, &mut socket::receive_buffer()) {
            Ok(received) => received.map(|message| (serde_json::from_slice(&message.bytes).unwrap(), message.fds)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next message that is there already.
    fn pending(&self) -> Option<FromDaemon> {
        socket::wait(&[self.socket.as_fd()], PollFlags::IN, Clock::now()).unwrap().then(|| self.hear().expect("the daemon hung up").0)
    }

    fn ask(&mut self, command: Command, fds: &[BorrowedFd<'_>]) -> (FromDaemon, Vec<OwnedFd>) {
        self.last_id += 1;
        self.say(&serde_json::to_vec(&Request { id: self.last_id, command }).unwrap(), fds);
        self.hear().expect("the daemon hung up")
    }
}
