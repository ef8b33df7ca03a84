//! Reading configurations from text and files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::defaults::MAX_FILE;
use crate::problem::ConfigErrors;
use crate::{Config, decode, section};

impl Config {
    /// Reads and checks a configuration as a whole. `file` is its name in messages.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, ConfigErrors> {
        section::read_document(text, file, decode::config)
    }

    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// If the file cannot be read, is too long or is no UTF-8, or everything that is wrong with its content.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        Self::from_yaml(&read_file(path)?, &path.display().to_string())
    }

    /// The configuration of a node that says no more than it must: one host port on `eth0`.
    ///
    /// # Panics
    /// Never: a test reads the same text.
    pub fn minimal() -> Self {
        let text = "version: 1\nnode: node\nports:\n  - { interface: eth0, role: host }\n";
        Self::from_yaml(text, "defaults").expect("the smallest configuration is valid")
    }
}

/// The text of a configuration file, read no further than its limit: the path may be a device or a pipe.
pub(crate) fn read_file(path: &Path) -> Result<String, ConfigErrors> {
    let name = path.display().to_string();
    let failed = |error: std::io::Error| ConfigErrors::one(&name, None, format!("cannot be read: {error}"));
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_FILE).unwrap_or(u64::MAX);
    File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() > MAX_FILE {
        return Err(ConfigErrors::one(&name, None, format!("the file is longer than {MAX_FILE} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].split(|&byte| byte == b'\n').count();
        ConfigErrors::one(&name, Some(line), "the text is not UTF-8")
    })
}
