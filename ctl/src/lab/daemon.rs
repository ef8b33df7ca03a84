//! One node's daemon: start it, ask whether it answers, say why it ended.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use weft_config::control::{Envelope, MAX_REQUEST, Request, encode_line};
use weft_config::lab::files;

use super::namespace::{Door, start_inside};
use super::state::State;
use crate::exit::{Exit, failure};

/// How much of a log an error repeats.
const LOG_TAIL_LINES: usize = 15;
/// Bound on a reply read only to see that there is one.
const REPLY_MAX: u64 = 1 << 20;

/// The daemon to start: `named`, else the one beside this program, else the first in `PATH`.
pub(crate) fn find(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = named {
        return path.canonicalize().map_err(|error| failure(Exit::Usage, format!("--weftd {}: {error}", path.display())));
    }
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join("weftd")).find(|candidate| candidate.is_file());
    found.ok_or_else(|| failure(Exit::Usage, "weftd is neither beside weftctl nor in PATH; name it with --weftd PATH"))
}

/// Starts `node`'s daemon inside `door`; it dies with the supervisor.
pub(crate) fn start(weftd: &Path, state: &State, node: &str, door: Door) -> anyhow::Result<Child> {
    for socket in [files::CONTROL_SOCKET, files::APPLICATION_SOCKET] {
        // Left behind by a daemon that was killed; a connection to it would be refused for ever.
        let _ = std::fs::remove_file(state.file(node, socket));
    }
    let path = state.file(node, files::LOG);
    let log = File::options().create(true).append(true).open(&path).with_context(|| format!("{}: cannot open", path.display()))?;
    let mut command = Command::new(weftd);
    command.arg("--config").arg(state.file(node, files::CONFIG)).envs(state.environment(node));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    start_inside(&mut command, door, Some(Signal::KILL));
    command.spawn().with_context(|| format!("node {node}: cannot start {}", weftd.display()))
}

/// Whether the daemon behind `socket` replies to a request for its status.
pub(crate) fn answers(socket: &Path) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(&encode_line(&Envelope::new(1, Request::Status), MAX_REQUEST).map_err(io::Error::other)?)?;
        let mut line = String::new();
        Ok(BufReader::new(stream.take(REPLY_MAX)).read_line(&mut line)? > 0)
    };
    ask().unwrap_or(false)
}

/// The last lines of a node's log, indented, for an error.
pub(crate) fn log_tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
    if tail.is_empty() { "    (its log is empty)".to_owned() } else { tail.iter().map(|line| format!("    {line}\n")).collect() }
}

/// How a process ended, for people.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (_, Some(signal)) => format!("killed by signal {signal}"),
        _ => "ended".to_owned(),
    }
}
