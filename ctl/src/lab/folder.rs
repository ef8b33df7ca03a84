//! Runtime folders: where labs live, who may start one.
//!
//! `LABS/NAME` holds `state.json`, `topology.yaml`, `supervisor.sock`, `supervisor.log` and a folder per node. A lock on `LABS`
//! is held while a lab is being started or stopped, so that two commands cannot do that to one lab at the same time.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, flock};
use weft_config::lab::{Lab, files};

use crate::exit::{Exit, failure};

pub(crate) const TOPOLOGY: &str = "topology.yaml";
pub(crate) const SUPERVISOR_SOCKET: &str = "supervisor.sock";
pub(crate) const SUPERVISOR_LOG: &str = "supervisor.log";
/// Longest path of a Unix socket: `sun_path` less the terminating zero (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// The folder that holds all labs of this user.
pub(crate) fn root() -> PathBuf {
    let user = rustix::process::geteuid();
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute() && path.is_dir());
    let base = match session {
        Some(session) => session.join("weft"),
        None if user.is_root() => PathBuf::from("/run/weft"),
        None => PathBuf::from(format!("/tmp/weft-{}", user.as_raw())),
    };
    base.join("labs")
}

/// Creates the folder of all labs; refuses one that belongs to somebody else, which in `/tmp` anybody could have made.
fn create_root() -> anyhow::Result<PathBuf> {
    let root = root();
    let base = root.parent().unwrap_or(&root);
    let shared = base == Path::new("/run/weft");
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(if shared { 0o755 } else { 0o700 });
    for folder in [base, &root] {
        builder.create(folder).with_context(|| format!("{}: cannot create the folder for labs", folder.display()))?;
        let metadata = fs::symlink_metadata(folder)?;
        if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
            let message = format!("{}: belongs to another user; set XDG_RUNTIME_DIR to a folder of your own", folder.display());
            return Err(failure(Exit::NotPermitted, message));
        }
    }
    Ok(root)
}

/// Held while a lab starts or stops. The folder of all labs goes with it if it is empty then.
#[derive(Debug)]
pub(crate) struct StartLock {
    root: PathBuf,
    _file: File,
}

impl StartLock {
    /// Waits for the lock.
    pub(crate) fn take() -> anyhow::Result<Self> {
        loop {
            let root = create_root()?;
            let file = match File::open(&root) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            lock(&file).with_context(|| format!("{}: cannot lock", root.display()))?;
            if is_same(&file, &root) {
                return Ok(Self { root, _file: file });
            }
            // Its last holder has removed the folder: what was locked is no longer there.
        }
    }

    /// Creates the runtime folder of `lab`, which must not exist, with the folders of its nodes.
    pub(crate) fn create(&self, lab: &Lab) -> anyhow::Result<PathBuf> {
        let folder = self.root.join(&lab.name);
        check_socket_paths(&folder, lab)?;
        let builder = {
            let mut builder = DirBuilder::new();
            builder.mode(0o700);
            builder
        };
        let create = |path: &Path| builder.create(path).with_context(|| format!("{}: cannot create", path.display()));
        create(&folder)?;
        lab.nodes.iter().try_for_each(|node| create(&folder.join(&node.name)))?;
        Ok(folder)
    }
}

impl Drop for StartLock {
    fn drop(&mut self) {
        remove_if_empty(&self.root);
    }
}

fn lock(file: &File) -> io::Result<()> {
    loop {
        match flock(file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

fn is_same(file: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (opened, named) = (file.metadata().map(identity), fs::metadata(path).map(identity));
    matches!((opened, named), (Ok(opened), Ok(named)) if opened == named)
}

/// Removes the folder of all labs, and the one that it is in, as far as they are empty.
fn remove_if_empty(root: &Path) {
    // Refused by the system while there is anything in them, which is the rule here.
    let _ = fs::remove_dir(root);
    let _ = root.parent().map(fs::remove_dir);
}

/// For a supervisor whose lab has ended: removes the folder of all labs if it is empty and nobody holds the lock.
/// `root` comes from its state: seen from inside a user namespace, [`root`] may be another one.
pub(crate) fn tidy(root: &Path) {
    let Ok(file) = File::open(root) else { return };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && is_same(&file, root) {
        remove_if_empty(root);
    }
}

fn check_socket_paths(folder: &Path, lab: &Lab) -> anyhow::Result<()> {
    let longest =
        lab.nodes.iter().map(|node| folder.join(&node.name).join(files::CONTROL_SOCKET)).max_by_key(|path| path.as_os_str().len());
    match longest {
        Some(path) if path.as_os_str().len() > SOCKET_PATH_MAX => {
            let message = format!(
                "{}: longer than the {SOCKET_PATH_MAX} bytes of a socket's path; use shorter names or a shorter XDG_RUNTIME_DIR",
                path.display()
            );
            Err(failure(Exit::Usage, message))
        }
        _ => Ok(()),
    }
}

/// Removes a lab's folder; one that is gone already is no error.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Names of all labs that have a folder.
pub(crate) fn names() -> Vec<String> {
    let entries = fs::read_dir(root()).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter(|entry| entry.path().is_dir()).filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The folder of the lab `name`, if it has one. Takes only names that are entries of the folder of all labs.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    names().iter().any(|known| known == name).then(|| root().join(name))
}
