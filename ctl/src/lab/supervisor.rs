//! The process that owns a lab: holds the namespaces, is the parent of the daemons, takes orders on a socket.
//!
//! One thread, one loop. It restarts nothing by itself: a daemon that ends stays dead until somebody asks, and `state.json`
//! says so. When it ends, for whatever reason, the kernel ends the daemons and removes the namespaces.

mod order;
mod signals;

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal};
use weft_config::lab::{Lab, files};

use super::args::Supervise;
use super::namespace::{Door, die_with};
use super::network::{self, Network};
use super::process::{Process, end_all, readable};
use super::state::{DaemonState, Namespace, NodeState, State};
use super::{daemon, folder};
use crate::exit::{self, Exit, failure};
pub(crate) use order::{Order, Reply, Started};
use signals::Signals;

/// How long all daemons together may take to answer after their start.
const START_LIMIT: Duration = Duration::from_secs(15);
/// How long daemons may take to end by themselves.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(5);
/// Between two looks at a daemon that does not answer yet.
const START_POLL: Duration = Duration::from_millis(20);
/// How long a client may take to say what it wants.
const ORDER_LIMIT: Duration = Duration::from_secs(2);
/// An order is a line of a few words.
const ORDER_MAX: u64 = 4096;

/// Runs a lab until it is told to stop. Reports on standard output, once, whether the lab came up.
pub(crate) fn run(args: &Supervise) -> anyhow::Result<u8> {
    match Supervisor::start(args) {
        Ok(mut supervisor) => {
            // The tie goes before the report: the command that started the lab ends as soon as it has read it.
            if !args.tied {
                rustix::process::set_parent_process_death_signal(None)?;
            }
            // Nobody reads it if that command has ended already; then nobody wants the lab either.
            report(&Started { exit: 0, message: String::new() })?;
            supervisor.serve();
            Ok(0)
        }
        Err(error) => {
            folder::remove(&args.folder)?;
            let exit = exit::of(&error).code();
            report(&Started { exit, message: format!("{error:#}") })?;
            Ok(exit)
        }
    }
}

/// Says how the start went, and closes standard output.
fn report(started: &Started) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{}", serde_json::to_string(started)?)?;
    Ok(rustix::stdio::dup2_stdout(std::fs::File::options().write(true).open("/dev/null")?)?)
}

/// A running lab. Dropping it ends the daemons, removes the namespaces and the folder.
struct Supervisor {
    lab: Lab,
    weftd: PathBuf,
    network: Network,
    state: State,
    children: Vec<Option<Child>>,
    listener: UnixListener,
    signals: Signals,
}

impl Supervisor {
    fn start(args: &Supervise) -> anyhow::Result<Self> {
        let parent = Pid::from_raw(args.parent).context("--parent is not a process")?;
        rustix::process::setsid()?;
        network::gain_rights()?;
        // Until the lab is up, and as long as it is tied, it must not outlive the command that wants it.
        die_with(parent, Signal::TERM).context("the command that started the lab has ended")?;
        let signals = Signals::register()?;
        let (lab, _) = Lab::load(&args.folder.join(folder::TOPOLOGY)).map_err(|error| failure(Exit::Usage, error.to_string()))?;
        let lab = lab.renamed(&args.name).context("--name is not a name for a lab")?;
        let network = Network::build(&lab)?;
        let state = initial_state(args, &lab, &network)?;
        state.store()?;
        let listener = UnixListener::bind(args.folder.join(folder::SUPERVISOR_SOCKET))?;
        let children = lab.nodes.iter().map(|_| None).collect();
        let mut supervisor = Self { lab, weftd: args.weftd.clone(), network, state, children, listener, signals };
        (0..supervisor.lab.nodes.len()).try_for_each(|node| supervisor.start_daemon(node))?;
        let deadline = Instant::now() + START_LIMIT;
        (0..supervisor.lab.nodes.len()).try_for_each(|node| supervisor.wait_answer(node, deadline))?;
        supervisor.state.ready = true;
        supervisor.state.store()?;
        Ok(supervisor)
    }

    fn serve(&mut self) {
        let mut down = false;
        while !down {
            let (terminate, child) = self.signals.descriptors();
            // Any limit would do: at its end there is nothing to do but to wait again.
            match readable(&[terminate, child, self.listener.as_fd()], Duration::from_secs(3600)) {
                Some(0) => down = true,
                Some(1) => self.handle_child_signal(),
                Some(_) => down = self.handle_client().unwrap_or(false),
                None => {}
            }
        }
    }

    fn handle_child_signal(&mut self) {
        self.signals.clear_child();
        for node in 0..self.children.len() {
            let ended = self.children[node].as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                self.children[node] = None;
                self.set_daemon(node, DaemonState::Dead { reason: daemon::ending(status) });
            }
        }
    }

    /// Serves one client; true if it asked for the end of the lab.
    fn handle_client(&mut self) -> anyhow::Result<bool> {
        let (mut stream, _) = self.listener.accept()?;
        stream.set_read_timeout(Some(ORDER_LIMIT))?;
        stream.set_write_timeout(Some(ORDER_LIMIT))?;
        let order = read_order(&stream);
        let down = matches!(order, Ok(Order::Down));
        let reply = match order.and_then(|order| self.execute(&order)) {
            Ok(()) => Reply { error: None },
            Err(error) => Reply { error: Some(format!("{error:#}")) },
        };
        writeln!(stream, "{}", serde_json::to_string(&reply)?)?;
        Ok(down)
    }

    fn execute(&mut self, order: &Order) -> anyhow::Result<()> {
        match order {
            Order::Down => Ok(()),
            Order::Kill { node } => self.kill(self.node(node)?),
            Order::Restart { node } => self.restart(self.node(node)?),
            Order::Link { node, neighbour, up } => self.set_links(self.node(node)?, self.node(neighbour)?, *up),
        }
    }

    fn node(&self, name: &str) -> anyhow::Result<usize> {
        self.lab.node(name).with_context(|| {
            let names: Vec<_> = self.lab.nodes.iter().map(|node| node.name.as_str()).collect();
            format!("lab {} has no node {name}; it has {}", self.lab.name, names.join(", "))
        })
    }

    fn kill(&mut self, node: usize) -> anyhow::Result<()> {
        let name = &self.lab.nodes[node].name;
        let mut child = self.children[node].take().with_context(|| format!("the daemon of {name} is dead already"))?;
        child.kill()?;
        let status = child.wait()?;
        self.set_daemon(node, DaemonState::Dead { reason: format!("{} by `lab kill`", daemon::ending(status)) });
        Ok(())
    }

    fn restart(&mut self, node: usize) -> anyhow::Result<()> {
        if let Some(mut child) = self.children[node].take() {
            end_all(&process_of(&child).into_iter().collect::<Vec<_>>(), STOP_GRACE);
            let status = child.wait()?;
            self.set_daemon(node, DaemonState::Dead { reason: format!("{} for `lab restart`", daemon::ending(status)) });
        }
        self.start_daemon(node)?;
        self.wait_answer(node, Instant::now() + START_LIMIT)
    }

    fn set_links(&self, node: usize, neighbour: usize, up: bool) -> anyhow::Result<()> {
        let (name, other) = (&self.lab.nodes[node].name, &self.lab.nodes[neighbour].name);
        let between = |port: &&weft_config::lab::Port| self.lab.links[port.link].ends.iter().any(|end| end.node == neighbour);
        let ports: Vec<_> = self.lab.nodes[node].ports.iter().filter(between).collect();
        anyhow::ensure!(node != neighbour && !ports.is_empty(), "no link joins {name} and {other}");
        for port in ports {
            self.network.set_up(node, &port.interface, up).with_context(|| format!("{name}: cannot change {}", port.interface))?;
        }
        Ok(())
    }

    fn start_daemon(&mut self, node: usize) -> anyhow::Result<()> {
        let name = self.lab.nodes[node].name.clone();
        std::fs::write(self.state.file(&name, files::CONFIG), self.lab.node_file(node, &self.state.folder.join(&name)))?;
        let door = Door { user: None, network: self.network.namespaces[node].try_clone()? };
        let child = daemon::start(&self.weftd, &self.state, &name, door)?;
        let process = process_of(&child);
        self.children[node] = Some(child);
        self.set_daemon(node, process.map_or_else(|| DaemonState::Dead { reason: "ended at once".to_owned() }, DaemonState::Running));
        Ok(())
    }

    fn wait_answer(&mut self, node: usize, deadline: Instant) -> anyhow::Result<()> {
        let name = self.lab.nodes[node].name.clone();
        let log = self.state.file(&name, files::LOG);
        let fail = |what: &str| anyhow::anyhow!("node {name}: its daemon {what}; the end of its log:\n{}", daemon::log_tail(&log));
        while !daemon::answers(&self.state.file(&name, files::CONTROL_SOCKET)) {
            anyhow::ensure!(!self.signals.terminated(), "interrupted while node {name} was starting");
            self.handle_child_signal();
            if let DaemonState::Dead { reason } = &self.state.nodes[node].daemon {
                return Err(fail(reason));
            }
            if Instant::now() > deadline {
                return Err(fail(&format!("does not answer on its control socket after {} s", START_LIMIT.as_secs())));
            }
            std::thread::sleep(START_POLL);
        }
        Ok(())
    }

    fn set_daemon(&mut self, node: usize, daemon: DaemonState) {
        self.state.nodes[node].daemon = daemon;
        if let Err(error) = self.state.store() {
            eprintln!("cannot write state.json: {error}");
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let daemons: Vec<_> = self.children.iter().flatten().filter_map(process_of).collect();
        end_all(&daemons, STOP_GRACE);
        for child in self.children.iter_mut().flatten() {
            let _ = child.wait();
        }
        // Commands of `lab exec` that are still in the namespaces would keep these alive.
        end_all(&self.state.members(), STOP_GRACE);
        if let Err(error) = folder::remove(&self.state.folder) {
            eprintln!("{}: cannot remove: {error}", self.state.folder.display());
        }
        self.state.folder.parent().map(folder::tidy);
    }
}

fn process_of(child: &Child) -> Option<Process> {
    i32::try_from(child.id()).ok().and_then(Process::of)
}

fn read_order(stream: &UnixStream) -> anyhow::Result<Order> {
    let mut line = String::new();
    BufReader::new(stream.take(ORDER_MAX)).read_line(&mut line)?;
    serde_json::from_str(&line).context("not an order")
}

fn initial_state(args: &Supervise, lab: &Lab, network: &Network) -> anyhow::Result<State> {
    let nodes = lab.nodes.iter().zip(&network.namespaces).map(|(node, namespace)| {
        let inode = std::fs::metadata(Path::new("/proc/self/fd").join(namespace.as_raw_fd().to_string()))?.ino();
        let namespace = Namespace { descriptor: namespace.as_raw_fd(), inode };
        Ok(NodeState { name: node.name.clone(), kind: node.kind, namespace, daemon: DaemonState::Waiting })
    });
    Ok(State {
        name: lab.name.clone(),
        topology: args.topology.clone(),
        folder: args.folder.clone(),
        supervisor: Process::own()?,
        ready: false,
        nodes: nodes.collect::<io::Result<_>>()?,
    })
}
