//! Folders and files with content that is not repetitive and comes from a seed.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// `len` bytes of the SplitMix64 sequence that starts at `seed`.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).to_le_bytes()
    };
    std::iter::repeat_with(&mut next).take(len.div_ceil(8)).flatten().take(len).collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A folder that ends with this value.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
}

impl Folder {
    /// Under a short path: those of sockets have 107 bytes.
    pub(crate) fn new() -> Self {
        let folder = TempDir::with_prefix_in("weft-", "/tmp").unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A folder in it, created if there is none.
    pub(crate) fn sub(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// A file in it with content.
    pub(crate) fn file(&self, name: impl AsRef<Path>, content: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Names of what is in the folder `sub` of it, sorted.
    pub(crate) fn names(&self, sub: &str) -> Vec<std::ffi::OsString> {
        let mut names: Vec<_> = std::fs::read_dir(self.path().join(sub)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }
}
