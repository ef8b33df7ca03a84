//! What a lab's supervisor writes down for others: `state.json`.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use weft_config::lab::{NodeKind, files};

use super::process::Process;

const FILE: &str = "state.json";
/// Marks every process of a lab: the lab's folder, in its environment.
pub(crate) const MARK: &str = "WEFT_LAB";

#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
pub(crate) struct State {
    pub(crate) name: String,
    /// The topology as the user named it.
    pub(crate) topology: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) supervisor: Process,
    /// All daemons have answered once.
    pub(crate) ready: bool,
    pub(crate) nodes: Vec<NodeState>,
}

#[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
pub(crate) struct NodeState {
    pub(crate) name: String,
    pub(crate) kind: NodeKind,
    pub(crate) namespace: Namespace,
    pub(crate) daemon: DaemonState,
}

/// A network namespace as the supervisor holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub(crate) struct Namespace {
    /// Number of the supervisor's descriptor.
    pub(crate) descriptor: i32,
    /// Identity of the namespace while it lives.
    pub(crate) inode: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(crate) enum DaemonState {
    /// Not started yet.
    Waiting,
    Running(Process),
    /// Ended, and why.
    Dead {
        reason: String,
    },
}

impl State {
    pub(crate) fn load(folder: &Path) -> io::Result<Self> {
        let text = std::fs::read(folder.join(FILE))?;
        serde_json::from_slice(&text).map_err(io::Error::from)
    }

    /// Replaces the file in one step, so that a reader sees the old or the new state.
    pub(crate) fn store(&self) -> io::Result<()> {
        let draft = self.folder.join("state.json.new");
        std::fs::write(&draft, serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(draft, self.folder.join(FILE))
    }

    pub(crate) fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.iter().find(|node| node.name == name)
    }

    pub(crate) fn file(&self, node: &str, file: &str) -> PathBuf {
        self.folder.join(node).join(file)
    }

    /// What tells programs in `node` where their daemon is.
    pub(crate) fn environment(&self, node: &str) -> [(&'static str, PathBuf); 4] {
        [
            ("WEFT_SOCKET", self.file(node, files::CONTROL_SOCKET)),
            ("WEFT_APP_SOCKET", self.file(node, files::APPLICATION_SOCKET)),
            ("WEFT_NODE", node.into()),
            (MARK, self.folder.clone()),
        ]
    }

    /// Every process in the lab's namespaces that carries the lab's mark, daemons included.
    pub(crate) fn members(&self) -> Vec<Process> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Process::of).filter(|process| self.is_member(process.pid)).collect()
    }

    fn is_member(&self, pid: i32) -> bool {
        let inode = std::fs::metadata(format!("/proc/{pid}/ns/net")).map(|metadata| metadata.ino());
        inode.is_ok_and(|inode| self.nodes.iter().any(|node| node.namespace.inode == inode)) && self.has_mark(pid)
    }

    fn has_mark(&self, pid: i32) -> bool {
        let mark = [MARK.as_bytes(), b"=", self.folder.as_os_str().as_encoded_bytes()].concat();
        std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|entry| entry == mark))
    }
}
