//! Start and end of the whole daemon.
//!
//! Everything that can fail at the start fails before the worker runs, with a message that names the key or the
//! interface and what to do. The end is orderly: connections are told, queues drain, both within two seconds.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use crossbeam::channel;
use weft_config::Config;
use weft_config::model::{self, LogLevel};
use weft_proto::transport::Endpoint;
use weft_proto::{Duration, Pool, Rng};

use crate::app::{AppServer, AppTable};
use crate::clock::{monotonic, wall_millis};
use crate::control::{Admin, Control, FIRST_CLIENT, Hub, Node, Signals, Sources};
use crate::link::LinkMonitor;
use crate::logging::LogControl;
use crate::metrics;
use crate::notify::notify;
use crate::port::{self, Port, PortSpec};
use crate::snapshot::Board;
use crate::stop_key;
use crate::translate::{self, size};
use crate::worker::{Local, Mailbox, Pace, Parts, Plane, Worker, WorkerThread};

/// Time for connections to close and queues to drain at the end.
const FAREWELL: Duration = Duration::from_secs(2);
/// The worker looks at its deadline between two batches; this much later it is stuck.
const GRACE: Duration = Duration::from_secs(1);

/// What the command line adds to the configuration.
#[derive(Debug)]
pub struct Options {
    /// Where the configuration came from.
    pub config_file: PathBuf,
    /// Log level instead of the configured one.
    pub log: Option<LogLevel>,
}

/// A daemon that has started.
#[derive(Debug)]
pub struct Daemon {
    control: Control,
    worker: WorkerThread,
    /// Serves until it is dropped.
    _metrics: Option<metrics::Server>,
}

/// Says in the log what runs here: whoever reads it should not have to ask for the configuration first.
fn announce(config: &Config, file: &std::path::Path, endpoint: Option<weft_proto::wire::MacAddr>) {
    let ports: Vec<&str> = config.ports.iter().map(|port| port.name.as_str()).collect();
    let endpoint = endpoint.map_or_else(|| "none".to_owned(), |mac| mac.to_string());
    let metrics = config.metrics.map_or_else(|| "off".to_owned(), |address| format!("http://{address}/metrics"));
    let (control, file) = (config.control.socket.display(), file.display());
    tracing::info!(node = %config.node, ?ports, %endpoint, %control, %metrics, configuration = %file, "configured");
}

impl Daemon {
    /// Opens and starts everything.
    ///
    /// # Errors
    /// If anything of it is refused. Nothing keeps running then.
    pub fn start(config: Config, options: Options) -> anyhow::Result<Self> {
        let log = LogControl::start(config.log, options.log)?;
        let signals = Signals::take_over().context("signals cannot be listened to")?;
        let admin = Admin::bind(&config.control.socket, config.control.mode, FIRST_CLIENT)?;
        let hub = Hub::new().context("the control loop cannot be set up")?;
        let (updates, news) = channel::unbounded();
        let key = stop_key::of(&config)?;
        let mut plane = Plane::new(parts(&config, Mailbox { updates, waker: hub.waker() })?);
        let endpoint = plane.endpoint().map(|endpoint| (endpoint.config().mac, endpoint.incarnation()));
        plane.set_stop(endpoint.and_then(|(mac, _)| translate::stop(&config, mac, wall_millis(), key)));
        let apps = AppServer::bind(translate::applications(&config, endpoint.map(|(mac, _)| mac)))?;
        let links = LinkMonitor::open().context("news about interfaces cannot be subscribed to")?;
        let board = Arc::new(Board::default());
        let pace = Pace { spin: config.worker.spin, cpu: config.worker.cpu };
        let (worker, handle) = Worker::new(plane, pace, Arc::clone(&board)).context("the worker cannot be set up")?;
        let metrics = config.metrics.map(|address| metrics::Server::start(address, Arc::clone(&board), monotonic)).transpose()?;
        announce(&config, &options.config_file, endpoint.map(|(mac, _)| mac));
        let node = Node::new(config, options.config_file, endpoint, handle, board, log);
        let waker = hub.waker();
        let sources = Sources { admin, signals, links, apps, updates: news };
        let control = Control::new(hub, sources, node).context("the control loop cannot be set up")?;
        // If the loop cannot be woken, it looks by itself every second.
        let worker = WorkerThread::start(worker, move || drop(waker.wake())).context("the worker's thread cannot be started")?;
        Ok(Self { control, worker, _metrics: metrics })
    }

    /// Serves until somebody asks for the end, and ends in order.
    ///
    /// # Errors
    /// If the worker died or did not end.
    pub fn run(mut self) -> anyhow::Result<()> {
        tracing::info!("weftd {} runs", env!("CARGO_PKG_VERSION"));
        tell_service_manager("READY=1");
        self.control.run(|| self.worker.is_finished()).context("the control loop cannot wait for events")?;
        tell_service_manager("STOPPING=1");
        if self.worker.is_finished() {
            self.worker.join();
            bail!("the worker died; see the log above, and report this as a bug");
        }
        self.end()
    }

    fn end(mut self) -> anyhow::Result<()> {
        let deadline = monotonic() + FAREWELL;
        let told = self.control.begin_end(deadline);
        self.control.linger(deadline + GRACE, || self.worker.is_finished()).context("the control loop cannot wait for events")?;
        if told.is_err() || !self.worker.is_finished() {
            bail!("the worker did not end in time; frames and connections were cut off");
        }
        if !self.worker.join() {
            bail!("the worker died while ending; see the log above");
        }
        tracing::info!("weftd ended");
        Ok(())
    }
}

fn tell_service_manager(state: &str) {
    if let Err(error) = notify(state) {
        tracing::warn!(%error, state, "the service manager cannot be told");
    }
}

fn open_ports(config: &Config) -> anyhow::Result<Vec<(Port, model::Port)>> {
    let mut ports = Vec::with_capacity(config.ports.len());
    for (index, port) in config.ports.iter().enumerate() {
        let opened = Port::open(&port_spec(config, port)).with_context(|| format!("ports[{index}]"))?;
        ports.push((opened, port.clone()));
    }
    Ok(ports)
}

fn port_spec(config: &Config, port: &model::Port) -> PortSpec {
    PortSpec {
        name: port.name.clone(),
        interface: port.interface.clone(),
        role: match port.role {
            model::Role::Host => port::Role::Host,
            model::Role::Switch => port::Role::Switch,
        },
        backend: match port.backend {
            model::Backend::Auto => port::Backend::Auto,
            model::Backend::Packet => port::Backend::Packet,
            model::Backend::Pnet => port::Backend::Pnet,
        },
        ethertypes: translate::host_ethertypes(config.transport.ethertype, config.stop.as_ref().map(|stop| stop.ethertype)),
        batch: size(config.worker.batch),
    }
}

/// The first host port with its settings.
fn host_port(ports: &[(Port, model::Port)]) -> Option<&(Port, model::Port)> {
    ports.iter().find(|(_, config)| config.role == model::Role::Host)
}

fn parts(config: &Config, mailbox: Mailbox) -> anyhow::Result<Parts> {
    let ports = open_ports(config)?;
    let mut rng = entropy()?;
    let local = host_port(&ports).map(|(port, settings)| local(config, port, settings, rng.fork(), mailbox)).transpose()?;
    let chunk = ports.iter().map(|(port, _)| port::required_chunk(port.spec().role, port.mtu())).max().unwrap_or(0);
    Ok(Parts {
        pool: Pool::new(size(config.worker.frames), chunk, port::HEADROOM),
        switch: translate::switch(config),
        ports,
        local,
        batch: size(config.worker.batch),
        rng,
    })
}

fn local(config: &Config, port: &Port, settings: &model::Port, rng: Rng, mailbox: Mailbox) -> anyhow::Result<Local> {
    let settings = translate::endpoint(config, port.mac(), translate::mtu(settings, port.mtu()), wall_millis());
    let apps = AppTable::new().context("applications cannot be waited for")?;
    Ok(Local::new(Endpoint::new(settings, rng), port.mac(), apps, mailbox))
}

/// Keys and starting numbers must be unpredictable.
fn entropy() -> anyhow::Result<Rng> {
    let mut seed = [0; 32];
    let len = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).context("no randomness from the kernel")?;
    if len != seed.len() {
        bail!("no randomness from the kernel");
    }
    Ok(Rng::from_entropy(seed))
}
