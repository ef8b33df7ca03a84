//! Commands on labs that run, or ran.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;

use super::folder::{self, StartLock};
use super::namespace::{Door, start_inside};
use super::process::end_all;
use super::state::State;
use super::supervisor::{Order, Reply, STOP_GRACE};
use crate::exit::{Exit, failure};

/// Longest time an order takes: a restart waits for the old daemon's end and the new one's answer.
const ORDER_LIMIT: Duration = Duration::from_secs(30);

/// The state of the lab `name`, running or crashed.
pub(crate) fn known(name: &str) -> anyhow::Result<State> {
    let folder = folder::find(name).ok_or_else(|| failure(Exit::Unreachable, unknown(name)))?;
    State::load(&folder).map_err(|_| failure(Exit::Unreachable, crashed(name)))
}

/// The state of the lab `name`, whose supervisor is alive.
pub(crate) fn running(name: &str) -> anyhow::Result<State> {
    let state = known(name)?;
    if state.supervisor.is_alive() { Ok(state) } else { Err(failure(Exit::Unreachable, crashed(name))) }
}

fn crashed(name: &str) -> String {
    format!("lab {name} has crashed; remove what is left with `weftctl lab down {name}`")
}

fn unknown(name: &str) -> String {
    match folder::names() {
        names if names.is_empty() => format!("no lab {name}: no lab is up; start one with `weftctl lab up FILE`"),
        names => format!("no lab {name}; there are {}", names.join(", ")),
    }
}

/// Gives the supervisor of the lab `name` an order.
pub(crate) fn order(name: &str, order: &Order) -> anyhow::Result<u8> {
    send(&running(name)?, order).map(|()| 0)
}

fn send(state: &State, order: &Order) -> anyhow::Result<()> {
    let socket = state.folder.join(folder::SUPERVISOR_SOCKET);
    let silent = || format!("lab {}: its supervisor does not answer on {}", state.name, socket.display());
    let mut stream = UnixStream::connect(&socket).with_context(silent)?;
    stream.set_read_timeout(Some(ORDER_LIMIT))?;
    writeln!(stream, "{}", serde_json::to_string(order)?).with_context(silent)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).with_context(silent)?;
    let reply: Reply = serde_json::from_str(&line).with_context(silent)?;
    reply.error.map_or(Ok(()), |error| Err(anyhow::anyhow!("lab {}: {error}", state.name)))
}

/// Takes the lab `name` down, whatever state it is in.
pub(crate) fn down(name: &str) -> anyhow::Result<u8> {
    let _lock = StartLock::take()?;
    let folder = folder::find(name).ok_or_else(|| failure(Exit::Unreachable, unknown(name)))?;
    if let Ok(state) = State::load(&folder) {
        stop_supervisor(&state);
    }
    clear(&folder)?;
    Ok(0)
}

fn stop_supervisor(state: &State) {
    if !state.supervisor.is_alive() {
        return;
    }
    // A supervisor that does not take the order gets a signal instead; either way it has its grace to clean up.
    let _ = send(state, &Order::Down);
    if !state.supervisor.wait_end(STOP_GRACE * 3) {
        end_all(&[state.supervisor], STOP_GRACE);
    }
}

/// Ends processes that a lab's supervisor left behind and removes its folder.
pub(crate) fn clear(folder: &Path) -> anyhow::Result<()> {
    if let Ok(state) = State::load(folder) {
        end_all(&state.members(), STOP_GRACE);
    }
    folder::remove(folder).with_context(|| format!("{}: cannot remove", folder.display()))
}

/// Becomes `argv` inside a node. Returns only if that fails.
pub(crate) fn exec(lab: &str, node: &str, argv: &[OsString]) -> anyhow::Result<u8> {
    let state = running(lab)?;
    let error = command_line(&state, node, argv, false)?.exec();
    Err(error).with_context(|| format!("{}: cannot run it in node {node} of lab {lab}", argv[0].display()))
}

/// The command `argv` inside a node; if `tied`, it dies with the calling thread.
pub(crate) fn command_line(state: &State, node: &str, argv: &[OsString], tied: bool) -> anyhow::Result<Command> {
    let (program, arguments) = argv.split_first().context("no command")?;
    let arguments: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
    command(state, node, program.as_ref(), &arguments, tied)
}

/// `program` with `arguments` inside a node; if `tied`, it dies with the calling thread.
pub(crate) fn command(state: &State, node: &str, program: &OsStr, arguments: &[&OsStr], tied: bool) -> anyhow::Result<Command> {
    let mut command = Command::new(program);
    command.args(arguments).envs(state.environment(node));
    if let Some(path) = path_with_own_folder() {
        command.env("PATH", path);
    }
    start_inside(&mut command, door(state, node)?, tied.then_some(Signal::KILL));
    Ok(command)
}

/// `PATH` with the folder of this program at its end, so that `weftctl` is found inside a node however it was started here.
fn path_with_own_folder() -> Option<OsString> {
    let own = std::env::current_exe().ok()?.parent()?.to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::env::split_paths(&path).chain([own])).ok()
}

fn door(state: &State, node: &str) -> anyhow::Result<Door> {
    let names = || state.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
    let node =
        state.node(node).ok_or_else(|| failure(Exit::Usage, format!("lab {} has no node {node}; it has {}", state.name, names())))?;
    let supervisor = format!("/proc/{}", state.supervisor.pid);
    let open = |path: String| File::open(&path).with_context(|| format!("lab {}: cannot enter the namespace {path}", state.name));
    let user = open(format!("{supervisor}/ns/user"))?;
    let own = std::fs::metadata("/proc/self/ns/user")?;
    let foreign = user.metadata()?.ino() != own.ino();
    let network = open(format!("{supervisor}/fd/{}", node.namespace.descriptor))?;
    anyhow::ensure!(network.metadata()?.ino() == node.namespace.inode, "lab {}: its supervisor has changed; look at it again", state.name);
    Ok(Door { user: foreign.then(|| user.into()), network: network.into() })
}
