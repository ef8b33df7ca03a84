//! One transfer from host a to host b, by the commands that anybody would use.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use super::content;
use crate::lab::child::{self, Interrupt, Waited};
use crate::lab::daemon::{ending, log_tail};
use crate::lab::{client, state::State};

/// How long a transfer may take, so that two of them end within two minutes.
const TRANSFER_LIMIT: Duration = Duration::from_secs(50);
/// How long the receiver may take to say that it is ready.
const READY_LIMIT: Duration = Duration::from_secs(5);
/// How long a command may take to end when asked.
const END_GRACE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    Irn,
    GoBackN,
}

impl Recovery {
    const fn name(self) -> &'static str {
        match self {
            Self::Irn => "irn",
            Self::GoBackN => "go-back-n",
        }
    }
}

/// What `weftctl cp --json` says about a transfer; more that it says is ignored.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Sent {
    pub(super) files: [SentFile; 1],
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) goodput_bps: f64,
    pub(super) retransmissions: u64,
}

/// What it says about the file.
#[derive(Debug, serde::Deserialize)]
pub(super) struct SentFile {
    pub(super) sha256_sent: String,
}

/// A transfer that ended, and the digest of what arrived.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) sent: Sent,
    pub(super) sha256_received: String,
}

/// What all transfers of a demo share.
#[derive(Debug)]
pub(super) struct Transfer<'a> {
    pub(super) state: &'a State,
    pub(super) interrupt: &'a Interrupt,
    pub(super) work: &'a Path,
    pub(super) file: &'a Path,
}

impl Transfer<'_> {
    pub(super) fn run(&self, recovery: Recovery) -> anyhow::Result<Done> {
        let folder = self.work.join(format!("received-{}", recovery.name()));
        std::fs::create_dir(&folder)?;
        let _receiver = self.receive(&folder)?;
        let sent = self.send(recovery)?;
        let received = folder.join(self.file.file_name().context("the file has no name")?);
        let sha256_received = content::sha256(&received)?;
        std::fs::remove_dir_all(&folder)?;
        Ok(Done { sent, sha256_received })
    }

    /// Starts the receiver and waits until it says something, which it does once it listens.
    fn receive(&self, folder: &Path) -> anyhow::Result<Running> {
        let (mut command, log) = self.command("b", &["receive".as_ref(), folder.as_os_str()], "receive.log")?;
        let mut receiver = Running { child: command.spawn()? };
        let mut stdout = receiver.child.stdout.take().context("no output")?;
        let spoke = child::wait_output(&stdout, self.interrupt, READY_LIMIT)?;
        anyhow::ensure!(spoke, "weftctl receive on b says nothing after {} s\n{}", READY_LIMIT.as_secs(), log_tail(&log));
        let line = first_line(&mut stdout)?;
        anyhow::ensure!(!line.is_empty(), "weftctl receive on b ended early:\n{}", log_tail(&log));
        // Whatever else it prints must have a reader, or it would wait for one.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        Ok(receiver)
    }

    fn send(&self, recovery: Recovery) -> anyhow::Result<Sent> {
        let arguments =
            ["cp".as_ref(), self.file.as_os_str(), "b:".as_ref(), "--json".as_ref(), "--recovery".as_ref(), recovery.name().as_ref()];
        let (mut command, log) = self.command("a", &arguments, "cp.log")?;
        let mut sender = Running { child: command.spawn()? };
        // Its output is one short object, which fits the pipe.
        match child::wait(&mut sender.child, self.interrupt, TRANSFER_LIMIT)? {
            Waited::Exited(status) if status.success() => sender.reply(),
            Waited::Exited(status) => Err(anyhow::anyhow!("weftctl cp on a, {}: {}\n{}", recovery.name(), ending(status), log_tail(&log))),
            Waited::Interrupted(signal) => Err(child::interrupted(signal)),
            Waited::TimedOut => Err(anyhow::anyhow!(
                "weftctl cp on a, {}: not done after {} s; try a smaller --size\n{}",
                recovery.name(),
                TRANSFER_LIMIT.as_secs(),
                log_tail(&log)
            )),
        }
    }

    /// `weftctl` with `arguments` inside `node`, and the file that gets its standard error.
    fn command(&self, node: &str, arguments: &[&std::ffi::OsStr], log: &str) -> anyhow::Result<(Command, PathBuf)> {
        let log = self.work.join(log);
        let own = std::env::current_exe()?;
        let mut command = client::command(self.state, node, own.as_os_str(), arguments, true)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        Ok((command, log))
    }
}

/// A command that ends with this value.
#[derive(Debug)]
struct Running {
    child: Child,
}

impl Running {
    fn reply(&mut self) -> anyhow::Result<Sent> {
        let mut text = String::new();
        self.child.stdout.take().context("no output")?.take(1 << 16).read_to_string(&mut text)?;
        serde_json::from_str(text.trim()).with_context(|| format!("weftctl cp --json printed something else: {}", text.trim()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        child::end(&mut self.child, END_GRACE);
    }
}

fn first_line(stdout: &mut ChildStdout) -> anyhow::Result<String> {
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    Ok(line)
}
