//! A lab of real daemons, steered through `weftctl lab`.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::{Background, Ended, Folder, Programs, run, within};

/// For whatever has no bound of its own. Only a failure waits for it.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Lines of each daemon's log that a failed test shows.
const LOG_LINES: usize = 25;
/// Whoever has a lab holds this.
static TURN: Mutex<()> = Mutex::new(());

/// Hosts a and b on one switch s: what differs between the tests.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    /// Keys of the link between a and the switch, each followed by a comma.
    pub(crate) link_a: &'static str,
    pub(crate) link_b: &'static str,
    /// Keys of every daemon's configuration.
    pub(crate) config: &'static str,
    /// Whether the kernels of a and b have addresses, 10.77.0.1 and 10.77.0.2.
    pub(crate) addresses: bool,
}

impl Default for Topology {
    fn default() -> Self {
        Self { link_a: "", link_b: "", config: "{}", addresses: false }
    }
}

impl Topology {
    fn text(&self, name: &str) -> String {
        let Self { link_a, link_b, config, addresses } = self;
        let ip = |number: u8| if *addresses { format!(", ip: 10.77.0.{number}/24") } else { String::new() };
        format!(
            "name: {name}\ndefaults: {{ config: {config} }}\n\
             nodes: {{ a: {{kind: host}}, b: {{kind: host}}, s: {{kind: switch}} }}\n\
             links:\n  - {{ {link_a} ends: [{{ node: a{} }}, s] }}\n  - {{ {link_b} ends: [{{ node: b{} }}, s] }}\n",
            ip(1),
            ip(2)
        )
    }
}

/// A lab that runs, and goes down with this value.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) name: String,
    pub(crate) folder: Folder,
    programs: Programs,
    user: Option<u32>,
    up: bool,
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    /// Brings a lab up.
    pub(crate) fn up(topology: &Topology) -> Self {
        let mut lab = Self::new();
        let file = lab.folder.file("topology.yaml", topology.text(&lab.name).as_bytes());
        lab.bring_up(&file).ok();
        lab
    }

    /// Waits for its turn. There are no daemons yet.
    pub(crate) fn new() -> Self {
        let programs = Programs::built();
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = Folder::new();
        folder.sub("run");
        Self { name: format!("e2e-{}", std::process::id()), folder, programs, user: None, up: false, _turn: turn }
    }

    /// The same for the user with the number `user`, who gets copies of the programs.
    pub(crate) fn of_user(user: u32) -> Self {
        let mut lab = Self::new();
        lab.programs = lab.programs.copied_to(&lab.folder.sub("bin"));
        lab.user = Some(user);
        for folder in [lab.folder.path().to_owned(), lab.folder.sub("run")] {
            std::os::unix::fs::chown(folder, Some(user), Some(user)).unwrap();
        }
        lab
    }

    /// Brings up what stands in `file`, whose lab must have the name of this one.
    pub(crate) fn bring_up(&mut self, file: &Path) -> Ended {
        self.up = true;
        run(self.weftctl([OsStr::new("lab"), "up".as_ref(), file.as_os_str()]), LONG)
    }

    pub(crate) fn topology(&self, topology: &Topology) -> PathBuf {
        self.folder.file("topology.yaml", topology.text(&self.name).as_bytes())
    }

    /// `weftctl` with `arguments`, outside of all nodes.
    pub(crate) fn weftctl(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(self.programs.weftctl());
        command.args(arguments).env("XDG_RUNTIME_DIR", self.folder.sub("run")).env("TMPDIR", self.folder.path());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Runs `weftctl lab COMMAND NAME ARGUMENTS`.
    pub(crate) fn lab(&self, command: &str, arguments: &[&str]) -> Ended {
        run(self.weftctl(["lab", command, &self.name].iter().chain(arguments)), LONG)
    }

    /// `command` inside `node`.
    pub(crate) fn inside(&self, node: &str, command: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut outer = self.weftctl(["lab", "exec", &self.name, node]);
        outer.args(command);
        outer
    }

    /// Runs `weftctl` with `arguments` inside `node`.
    pub(crate) fn ctl(&self, node: &str, arguments: &[&str]) -> Ended {
        run(self.inside(node, ["weftctl"].iter().chain(arguments)), LONG)
    }

    /// The same in the background.
    pub(crate) fn ctl_background(&self, node: &str, arguments: &[&OsStr]) -> Background {
        Background::start(self.inside(node, ["weftctl".as_ref()].iter().chain(arguments)))
    }

    /// What `weftctl` with `arguments` and `--json` prints inside `node`.
    pub(crate) fn json(&self, node: &str, arguments: &[&str]) -> Value {
        self.ctl(node, &[arguments, &["--json"]].concat()).ok().json()
    }

    pub(crate) fn status(&self) -> Value {
        self.lab("status", &["--json"]).ok().json()
    }

    /// The entry of `node` in the lab's status.
    pub(crate) fn node(&self, node: &str) -> Value {
        let status = self.status();
        status["nodes"].as_array().unwrap().iter().find(|entry| entry["name"] == node).unwrap().clone()
    }

    /// A file in the runtime folder of `node`.
    pub(crate) fn node_file(&self, node: &str, file: &str) -> PathBuf {
        self.runtime_folder().join(node).join(file)
    }

    /// Where the lab's own files are.
    pub(crate) fn runtime_folder(&self) -> PathBuf {
        self.folder.path().join("run/weft/labs").join(&self.name)
    }

    /// Kills the daemon of `node` without warning and sees that it is dead.
    pub(crate) fn kill(&self, node: &str) {
        self.lab("kill", &[node]).ok();
        assert!(within(LONG, || self.node(node)["daemon"] == "dead"));
    }

    pub(crate) fn restart(&self, node: &str) {
        self.lab("restart", &[node]).ok();
        assert_eq!(self.node(node)["daemon"], "running");
    }

    /// Brings the end at `node` of its cable to `neighbour` down or up.
    pub(crate) fn link(&self, node: &str, neighbour: &str, state: &str) {
        self.lab("link", &[node, neighbour, state]).ok();
    }

    /// Takes the lab down, which must succeed.
    pub(crate) fn down(&mut self) {
        self.up = false;
        self.lab("down", &[]).ok();
    }

    /// The ends of all daemons' logs.
    fn logs(&self) -> String {
        let mut text = String::new();
        for node in ["a", "b", "s"] {
            let log = std::fs::read_to_string(self.node_file(node, "weftd.log")).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n    ");
            text += &format!("--- the log of {node}:\n    {tail}\n");
        }
        text
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        if self.up {
            let down = self.weftctl(["lab", "down", &self.name]).output();
            assert!(std::thread::panicking() || down.is_ok_and(|down| down.status.success()), "lab {} does not go down", self.name);
        }
    }
}
