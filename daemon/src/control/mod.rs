//! The control thread: one event loop over the admin socket, signals, the link monitor and the applications' socket.
//!
//! Everything an operator asks for happens here and nothing of it can hold up the worker: the loop reads the board,
//! and sends jobs that the worker runs between two batches. A job that is not answered within a second is given up.

mod admin;
mod client;
mod detail;
mod node;
mod reload;
mod show;
mod signals;
mod stop;
mod trace;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crossbeam::channel::Receiver;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use weft_proto::Instant;
use weft_proto::transport::AppId;

pub use admin::{Admin, MAX_CLIENTS};
pub use node::Node;
pub use signals::Signals;

use crate::app::{AppAction, AppCommand, AppServer, AppUpdate};
use crate::clock::monotonic;
use crate::link::LinkMonitor;
use crate::worker::WorkerSilent;

/// Descriptors with a name; applications have tokens from [`FIRST_APPLICATION`] up, admin clients from [`FIRST_CLIENT`].
const ADMIN: Token = Token(0);
const WAKER: Token = Token(1);
const TERMINATE: Token = Token(2);
const RELOAD: Token = Token(3);
const LINKS: Token = Token(4);
const APPLICATIONS: Token = Token(5);
/// Behind it as many tokens as there are numbers of applications.
const FIRST_APPLICATION: usize = 1 << 16;
/// First token of a client of the admin socket.
pub const FIRST_CLIENT: usize = 1 << 33;
/// The loop looks around at least this often: for clients that stall, and for a worker that has died.
const TICK: std::time::Duration = std::time::Duration::from_secs(1);
/// While the daemon ends.
const LINGER: std::time::Duration = std::time::Duration::from_millis(10);
const EVENTS: usize = 64;

/// The event loop.
#[derive(Debug)]
pub struct Control {
    poll: Poll,
    events: Events,
    /// Its clones wake this loop.
    _waker: Arc<Waker>,
    admin: Admin,
    signals: Signals,
    links: LinkMonitor,
    apps: AppServer,
    /// News from the worker for applications.
    updates: Receiver<AppUpdate>,
    node: Node,
}

/// Where the loop's parts hang, made before them because the worker needs to wake the loop.
#[derive(Debug)]
pub struct Hub {
    poll: Poll,
    waker: Arc<Waker>,
}

impl Hub {
    /// An empty hub.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        Ok(Self { poll, waker })
    }

    /// Wakes the loop from another thread.
    pub fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }
}

/// What the loop serves.
#[derive(Debug)]
pub struct Sources {
    /// Operators.
    pub admin: Admin,
    /// Signals of the process.
    pub signals: Signals,
    /// Interfaces of the machine.
    pub links: LinkMonitor,
    /// Applications.
    pub apps: AppServer,
    /// News from the worker for them.
    pub updates: Receiver<AppUpdate>,
}

impl Control {
    /// A loop over these sources.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn new(hub: Hub, sources: Sources, node: Node) -> io::Result<Self> {
        let Hub { poll, waker } = hub;
        let Sources { mut admin, mut signals, links, apps, updates } = sources;
        let registry = poll.registry();
        admin.register(registry, ADMIN)?;
        registry.register(&mut signals.terminate, TERMINATE, Interest::READABLE)?;
        registry.register(&mut signals.reload, RELOAD, Interest::READABLE)?;
        registry.register(&mut SourceFd(&links.fd()), LINKS, Interest::READABLE)?;
        registry.register(&mut SourceFd(&apps.listener().as_raw_fd()), APPLICATIONS, Interest::READABLE)?;
        Ok(Self { poll, events: Events::with_capacity(EVENTS), _waker: waker, admin, signals, links, apps, updates, node })
    }

    /// Serves until somebody asks for the end, or `failed` says that the worker is gone.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub fn run(&mut self, failed: impl Fn() -> bool) -> io::Result<()> {
        self.forward_links();
        let mut again = false;
        while !self.node.stop_requested && !failed() {
            again = self.turn(if again { std::time::Duration::ZERO } else { TICK })?;
        }
        Ok(())
    }

    /// Begins the end: all connections are closed, and the worker stops once the peers know, at the latest at `deadline`.
    ///
    /// # Errors
    /// If the worker has ended already.
    pub fn begin_end(&self, deadline: Instant) -> Result<(), WorkerSilent> {
        let release = |(app, _)| AppCommand { app, ticket: 0, action: AppAction::Release };
        self.execute(self.apps.sessions().map(release).collect());
        self.node.worker.send(move |_, plane| plane.stop(deadline))
    }

    /// Serves until `done`, at the latest `until`: the time in which the worker closes connections.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub fn linger(&mut self, until: Instant, done: impl Fn() -> bool) -> io::Result<()> {
        while !done() && monotonic() < until {
            self.turn(LINGER)?;
        }
        Ok(())
    }

    /// One round; true if a client can go on at once.
    fn turn(&mut self, patience: std::time::Duration) -> io::Result<bool> {
        match self.poll.poll(&mut self.events, Some(patience)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let now = monotonic();
        let tokens: Vec<Token> = self.events.iter().map(mio::event::Event::token).collect();
        for token in tokens {
            self.handle_ready(token);
        }
        // Also without an event: one may have failed for want of descriptors.
        self.admin.accept(now, self.poll.registry());
        self.accept_applications(now);
        self.serve_applications(now);
        let again = self.admin.serve(now, |line| self.node.handle_line(now, line));
        if let Some(settings) = self.node.take_changed_settings() {
            self.apps.reload(settings);
        }
        Ok(again || self.apps.has_backlog())
    }

    /// Passes the worker's news on, and gives applications another turn whose messages were not all read.
    fn serve_applications(&mut self, now: Instant) {
        let mut commands = Vec::new();
        while let Ok(update) = self.updates.try_recv() {
            self.apps.handle_update(update, &mut commands);
        }
        self.apps.handle_backlog(&mut commands);
        self.apps.handle_timeout(now, &mut commands);
        self.execute(commands);
        self.node.board.set_attached(self.apps.sessions().count());
    }

    fn execute(&self, commands: Vec<AppCommand>) {
        for command in commands {
            if self.node.worker.send(move |now, plane| plane.execute(now, command)).is_err() {
                tracing::warn!("the worker takes no requests of applications");
            }
        }
    }

    fn accept_applications(&mut self, now: Instant) {
        loop {
            match self.apps.accept(now) {
                Ok(Some(app)) => self.admit(app),
                Ok(None) => return,
                Err(error) => return tracing::warn!(%error, "applications.socket: an application could not be accepted"),
            }
        }
    }

    fn admit(&mut self, app: AppId) {
        let Some(socket) = self.apps.socket(app) else { return };
        let token = Token(FIRST_APPLICATION + app.0 as usize);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut SourceFd(&socket.as_raw_fd()), token, interest) {
            tracing::warn!(%error, app = app.0, "an application cannot be waited for");
        }
        self.handle_application(app);
    }

    fn handle_application(&mut self, app: AppId) {
        let mut commands = Vec::new();
        self.apps.handle_ready(app, &mut commands);
        self.execute(commands);
    }

    fn handle_ready(&mut self, token: Token) {
        match token {
            TERMINATE => self.handle_terminate(),
            RELOAD => self.handle_reload(),
            LINKS => self.forward_links(),
            Token(app) if (FIRST_APPLICATION..FIRST_CLIENT).contains(&app) => {
                let number = u32::try_from(app - FIRST_APPLICATION).unwrap_or(u32::MAX);
                self.handle_application(AppId(number));
            }
            // The waker and the listeners have no client of their number: each round looks at them.
            client => self.admin.handle_ready(client),
        }
    }

    fn handle_terminate(&mut self) {
        if signals::drain(&mut self.signals.terminate) {
            tracing::info!("asked to end by a signal");
            self.node.stop_requested = true;
        }
    }

    fn handle_reload(&mut self) {
        if signals::drain(&mut self.signals.reload)
            && let Err(error) = self.node.reload()
        {
            tracing::error!("reload refused: {error}");
        }
    }

    /// Passes news about interfaces on to the worker.
    fn forward_links(&mut self) {
        loop {
            match self.links.poll_event() {
                Ok(Some(event)) => {
                    if self.node.worker.send(move |_, plane| plane.handle_link(&event)).is_err() {
                        tracing::warn!("the worker takes no news about interfaces");
                    }
                }
                Ok(None) => return,
                Err(error) => return tracing::error!(%error, "news about interfaces cannot be read"),
            }
        }
    }
}
