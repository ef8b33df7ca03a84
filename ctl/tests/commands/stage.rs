//! A lab of two hosts, and commands in it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use weft_config::Config;
use weft_daemon::daemon::{Daemon, Options};

pub(crate) const LAB: &str = "pair";
const TOPOLOGY: &str = "
name: pair
nodes: { a: {kind: host}, b: {kind: host} }
links: [ { ends: [a, b] } ]
";
/// Names the configuration when this program is to be the daemon.
const CONFIG: &str = "WEFTD_PROGRAM_CONFIG";
/// More than anything here takes on a busy machine; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "a program for the other tests to run"]
fn weftd_program() {
    let Some(path) = std::env::var_os(CONFIG).map(PathBuf::from) else { return };
    let config = Config::load(&path).unwrap();
    Daemon::start(config, Options { config_file: path, log: None }).and_then(Daemon::run).unwrap();
}

pub(crate) struct Stage {
    folder: TempDir,
}

impl Stage {
    pub(crate) fn up() -> Self {
        Self::up_with(TOPOLOGY)
    }

    /// With another topology of the same name.
    pub(crate) fn up_with(topology: &str) -> Self {
        let stage = Self { folder: TempDir::with_prefix("weft-commands-").unwrap() };
        ["run", "from", "to"].iter().for_each(|name| fs::create_dir(stage.path(name)).unwrap());
        fs::write(stage.path("topology.yaml"), topology).unwrap();
        let program = std::env::current_exe().unwrap();
        let script = format!("#!/bin/sh\n{CONFIG}=\"$2\" exec {} stage::weftd_program --exact --ignored --nocapture\n", program.display());
        fs::write(stage.path("weftd"), script).unwrap();
        fs::set_permissions(stage.path("weftd"), fs::Permissions::from_mode(0o755)).unwrap();
        stage.lab(&["up", stage.path("topology.yaml").to_str().unwrap(), "--weftd", stage.path("weftd").to_str().unwrap()]);
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file to send.
    pub(crate) fn file(&self, name: &OsStr, content: &[u8]) -> PathBuf {
        let path = self.path("from").join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Where a file arrives.
    pub(crate) fn arrived(&self, name: &OsStr) -> PathBuf {
        self.path("to").join(name)
    }

    fn weftctl(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weftctl"));
        command.env("XDG_RUNTIME_DIR", self.path("run")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `weftctl lab` with `arguments`, which must succeed.
    pub(crate) fn lab(&self, arguments: &[&str]) {
        let output = self.weftctl().arg("lab").args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// `weftctl` with `arguments` inside a node.
    pub(crate) fn inside(&self, node: &str, arguments: &[&OsStr]) -> Command {
        let mut command = self.weftctl();
        command.args(["lab", "exec", LAB, node, env!("CARGO_BIN_EXE_weftctl")]).args(arguments);
        command
    }

    pub(crate) fn ok(&self, node: &str, arguments: &[&OsStr]) -> Output {
        let output = self.inside(node, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Runs a command that must end with `code`; what it said.
    pub(crate) fn fails(&self, node: &str, arguments: &[&OsStr], code: i32) -> String {
        let output = self.inside(node, arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        error
    }

    pub(crate) fn start(&self, node: &str, arguments: &[&OsStr]) -> Running {
        Running { child: self.inside(node, arguments).spawn().unwrap() }
    }

    /// Starts a command that says a line once it listens.
    pub(crate) fn listen(&self, node: &str, arguments: &[&OsStr]) -> Running {
        let mut running = self.start(node, arguments);
        let mut lines = BufReader::new(running.child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{arguments:?} says nothing");
        // Whatever else it says must have a reader, or it would wait for one.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        running
    }

    /// `weftctl receive` on b.
    pub(crate) fn receive(&self, options: &[&str]) -> Running {
        let folder = self.path("to");
        let mut arguments = vec!["receive".as_ref(), folder.as_os_str()];
        arguments.extend(options.iter().map(OsStr::new));
        self.listen("b", &arguments)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Its failure would hide the test's.
        let _ = self.weftctl().args(["lab", "down", LAB]).output();
    }
}

/// A command in the background; it is killed with this value.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until it has ended by itself; how, and what it said on standard error.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        assert!(eventually(|| self.child.try_wait().unwrap().is_some()), "the command does not end");
        let mut error = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        (self.child.wait().unwrap(), error)
    }

    pub(crate) fn interrupt(self) -> ExitStatus {
        self.signal(Signal::INT);
        self.end().0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether `condition` holds soon.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}
