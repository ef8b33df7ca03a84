//! `weftctl receive` on b and `weftctl cp` on a.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::{Background, Ended, LONG, Lab};

/// `weftctl receive` in a node.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) command: Background,
}

impl Receiver {
    /// Starts it and waits until it listens. What it receives goes to the folder `to` of the lab.
    pub(crate) fn start(lab: &Lab, node: &str, to: &str, options: &[&str]) -> Self {
        let folder = lab.folder.sub(to);
        let mut arguments = vec![OsStr::new("receive"), folder.as_os_str(), OsStr::new("--json")];
        arguments.extend(options.iter().map(OsStr::new));
        let command = lab.ctl_background(node, &arguments);
        command.says("\"listening\"", LONG);
        Self { command }
    }

    /// Its end, and all that it told.
    pub(crate) fn wait(self, limit: Duration) -> Ended {
        self.command.wait(limit)
    }
}

/// `weftctl cp` of `files` from `node` to `host`, in the background.
pub(crate) fn copy(lab: &Lab, (node, host): (&str, &str), files: &[PathBuf], options: &[&str]) -> Background {
    let target = OsString::from(format!("{host}:"));
    let mut arguments = vec![OsStr::new("cp"), OsStr::new("--json")];
    arguments.extend(options.iter().map(OsStr::new));
    arguments.push(OsStr::new("--"));
    arguments.extend(files.iter().map(|file| file.as_os_str()));
    arguments.push(&target);
    lab.ctl_background(node, &arguments)
}

/// The same to its end, which must be a success; what it reports.
pub(crate) fn copy_ok(lab: &Lab, ends: (&str, &str), files: &[PathBuf], options: &[&str]) -> Value {
    copy(lab, ends, files, options).wait(LONG).ok().json()
}

/// Bytes that have arrived of a file that is not complete.
pub(crate) fn part_size(folder: &Path, name: &str) -> u64 {
    std::fs::metadata(folder.join(format!("{name}.part"))).map_or(0, |metadata| metadata.len())
}
