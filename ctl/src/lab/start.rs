//! Bringing a lab up: a folder, a supervisor, and its word that all daemons answer.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use weft_config::lab::Lab;

use super::folder::{self, StartLock};
use super::state::State;
use super::supervisor::{STOP_GRACE, Started};
use super::{child, client, daemon};
use crate::exit::{Exit, failure};

/// What to build.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) lab: &'a Lab,
    /// The topology's text, of which the supervisor gets a copy.
    pub(crate) text: &'a str,
    /// Its file as the user named it.
    pub(crate) topology: &'a Path,
    pub(crate) weftd: PathBuf,
    /// The lab ends with this process.
    pub(crate) tied: bool,
}

/// A lab that ends with this value, or with this process.
#[derive(Debug)]
pub(crate) struct TiedLab {
    state: State,
    supervisor: Child,
}

impl TiedLab {
    pub(crate) const fn state(&self) -> &State {
        &self.state
    }
}

impl Drop for TiedLab {
    fn drop(&mut self) {
        // The supervisor may need its grace twice, for daemons and for commands.
        child::end(&mut self.supervisor, STOP_GRACE * 3);
        if let Err(error) = StartLock::take().and_then(|_lock| client::clear(&self.state.folder)) {
            eprintln!("weftctl: lab {}: {error:#}", self.state.name);
        }
    }
}

/// Starts a lab that goes on without this process.
pub(crate) fn start(plan: &Plan<'_>) -> anyhow::Result<State> {
    start_supervisor(plan).map(|(state, _)| state)
}

/// Starts a lab that ends with the returned value.
pub(crate) fn start_tied(plan: &Plan<'_>) -> anyhow::Result<TiedLab> {
    start_supervisor(plan).map(|(state, supervisor)| TiedLab { state, supervisor })
}

fn start_supervisor(plan: &Plan<'_>) -> anyhow::Result<(State, Child)> {
    let lock = StartLock::take()?;
    clear_stale(&plan.lab.name)?;
    let folder = lock.create(plan.lab)?;
    let outcome = launch(plan, &folder);
    if outcome.is_err() {
        client::clear(&folder)?;
    }
    outcome
}

/// Removes what a crashed lab of that name left; an error if it is no crashed one.
fn clear_stale(name: &str) -> anyhow::Result<()> {
    let folder = folder::root().join(name);
    match State::load(&folder) {
        Ok(state) if state.supervisor.is_alive() => {
            let message =
                format!("lab {name} is up already; take it down with `weftctl lab down {name}`, or give the new one another name");
            Err(failure(Exit::Usage, message))
        }
        _ => client::clear(&folder),
    }
}

fn launch(plan: &Plan<'_>, folder: &Path) -> anyhow::Result<(State, Child)> {
    std::fs::write(folder.join(folder::TOPOLOGY), plan.text)?;
    let mut supervisor = supervisor_command(plan, folder)?.spawn().context("cannot start the supervisor")?;
    let mut line = String::new();
    if let Some(stdout) = supervisor.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let refused = match serde_json::from_str::<Started>(&line) {
        Ok(Started { exit: 0, .. }) => return Ok((State::load(folder)?, supervisor)),
        Ok(Started { exit, message }) => failure(Exit::from_code(exit), format!("lab {}: {message}", plan.lab.name)),
        Err(_) => {
            let tail = daemon::log_tail(&folder.join(folder::SUPERVISOR_LOG));
            anyhow::anyhow!("lab {}: its supervisor ended early; the end of its log:\n{tail}", plan.lab.name)
        }
    };
    supervisor.wait()?;
    Err(refused)
}

fn supervisor_command(plan: &Plan<'_>, folder: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["lab", "supervise"]).arg(folder).args(["--name", &plan.lab.name]).arg("--topology").arg(plan.topology);
    command.arg("--weftd").arg(&plan.weftd).args(["--parent", &std::process::id().to_string()]);
    if plan.tied {
        command.arg("--tied");
    }
    let log = File::create(folder.join(folder::SUPERVISOR_LOG))?;
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    Ok(command)
}
