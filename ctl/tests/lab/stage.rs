//! A runtime folder, a copy of the programs, and ways to run and to look.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::stand_in::{ARGUMENT, ROLE};

/// The user and group nobody.
const ORDINARY_USER: u32 = 65_534;
/// More than any command here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Held while a program is written and while one is started: a process forked in between would still hold the file open for writing, and
/// the system starts no program that somebody writes ("text file busy").
static PROGRAMS: Mutex<()> = Mutex::new(());

pub(crate) struct Stage {
    folder: TempDir,
    user: Option<u32>,
}

impl Stage {
    /// For whoever runs the tests.
    pub(crate) fn new() -> Self {
        let stage = Self { folder: TempDir::with_prefix("weft-lab-").unwrap(), user: None };
        stage.prepare();
        stage
    }

    /// For an ordinary user, if we may become one; says so if not.
    pub(crate) fn of_ordinary_user() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: the other tests run as an ordinary user already");
            return None;
        }
        let mut stage = Self::new();
        stage.user = Some(ORDINARY_USER);
        for path in [stage.path(""), stage.path("run"), stage.path("tmp")] {
            std::os::unix::fs::chown(path, stage.user, stage.user).unwrap();
        }
        Some(stage)
    }

    fn prepare(&self) {
        fs::set_permissions(self.folder.path(), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(self.path("run")).unwrap();
        fs::create_dir(self.path("tmp")).unwrap();
        // Copies: an ordinary user may not be able to look into the target folder.
        self.copy(Path::new(env!("CARGO_BIN_EXE_weftctl")), "weftctl");
        self.copy(&std::env::current_exe().unwrap(), "stand-in");
        self.script("weftd", &self.role("daemon", "$2"));
        self.script("ask", &self.role("ask", "$1"));
    }

    fn copy(&self, program: &Path, name: &str) {
        let _programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        fs::copy(program, self.path(name)).unwrap();
    }

    fn role(&self, role: &str, argument: &str) -> String {
        let program = self.path("stand-in");
        let test = "stand_in::stand_in_program --exact --ignored --nocapture";
        format!("{ROLE}={role} {ARGUMENT}=\"{argument}\" exec {} {test}", program.display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        let _programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn weftd(&self) -> String {
        self.path("weftd").to_str().unwrap().to_owned()
    }

    pub(crate) fn topology(&self, text: &str) -> String {
        let path = self.path("topology.yaml");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Starts `weftctl` with `arguments`.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(self.path("weftctl"));
        command.args(arguments).env("XDG_RUNTIME_DIR", self.path("run")).env("TMPDIR", self.path("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let _programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
        command.spawn().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.spawn(arguments).wait_with_output().unwrap()
    }

    /// Runs `weftctl`, which must succeed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> Output {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        output
    }

    /// Runs `weftctl`, which must end with `code`; what it said on standard error.
    pub(crate) fn fails(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        error
    }

    pub(crate) fn status(&self, lab: &str) -> Value {
        serde_json::from_slice(&self.ok(&["lab", "status", lab, "--json"]).stdout).unwrap()
    }

    /// Who answers when `node` asks at `address`.
    pub(crate) fn ask(&self, lab: &str, node: &str, address: &str) -> String {
        let ask = self.path("ask");
        let output = text(&self.ok(&["lab", "exec", lab, node, ask.to_str().unwrap(), address]));
        let answer = output.split_once("answer=").and_then(|(_, rest)| rest.split_once('.'));
        answer.unwrap_or_else(|| panic!("no answer in {output}")).0.to_owned()
    }

    /// Command lines of all processes that belong to this stage, by their environment or arguments.
    pub(crate) fn processes(&self) -> Vec<String> {
        let mark = self.folder.path().to_str().unwrap();
        let read = |pid: &Path, file: &str| fs::read(pid.join(file)).map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "));
        let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let pairs = entries.filter_map(|pid| Some((read(&pid, "cmdline").ok()?, read(&pid, "environ").ok()?)));
        pairs.filter(|(cmdline, environ)| cmdline.contains(mark) || environ.contains(mark)).map(|(cmdline, _)| cmdline).collect()
    }

    /// No process, no runtime folder, no temporary file. Namespaces have no names: they are gone when nobody is in them.
    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
        let entries = |folder: &str| fs::read_dir(self.path(folder)).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        assert_eq!([entries("run"), entries("tmp")].concat(), Vec::<PathBuf>::new());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // For a test that failed half-way; one that passed has no lab any more.
        for lab in ["pair", "other"] {
            self.run(&["lab", "down", lab]);
        }
    }
}

/// Sends a signal to the process `pid`.
pub(crate) fn signal(pid: i64, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Whether `condition` holds soon.
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
