//! The files to send, all opened before anything is sent.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exit::{Exit, failure};

#[derive(Debug)]
pub(super) struct FileToSend {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// The last component, which the file will have at the receiver.
    pub(super) name: Vec<u8>,
    pub(super) size: u64,
    pub(super) mode: u32,
}

/// Opens `paths`, which must have different names.
pub(super) fn open_all(paths: &[PathBuf]) -> anyhow::Result<Vec<FileToSend>> {
    let mut names = HashSet::new();
    let files = paths.iter().map(|path| open(path)).collect::<anyhow::Result<Vec<_>>>()?;
    for file in &files {
        if !names.insert(&file.name) {
            let message = format!("{}: another of the files has the same name, and all go to one folder", file.path.display());
            return Err(failure(Exit::Usage, message));
        }
    }
    Ok(files)
}

fn open(path: &Path) -> anyhow::Result<FileToSend> {
    let usage = |what: &str| failure(Exit::Usage, format!("{}: {what}", path.display()));
    // Not blocking, so that a pipe that nobody writes to is refused below instead of waited for.
    let flags = libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).with_context(|| path.display().to_string())?;
    let meta = file.metadata().with_context(|| path.display().to_string())?;
    if meta.is_dir() {
        return Err(usage("is a folder; name the files in it"));
    }
    if !meta.is_file() {
        return Err(usage("is no ordinary file"));
    }
    let name = path.file_name().ok_or_else(|| usage("has no name"))?.as_bytes().to_vec();
    Ok(FileToSend { file, path: path.to_owned(), name, size: meta.len(), mode: meta.mode() & 0o777 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ordinary_files_with_different_names_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("sub")).unwrap();
        std::fs::write(path("one"), b"1").unwrap();
        std::fs::write(path("sub/one"), b"11").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let files = open_all(&[path("sub/one")]).unwrap();
        assert_eq!((files[0].name.as_slice(), files[0].size), (b"one".as_slice(), 2));
        let message = |paths: &[PathBuf]| format!("{:#}", open_all(paths).unwrap_err());
        assert!(message(&[path("one"), path("sub/one")]).contains("same name"));
        assert!(message(&[path("sub")]).contains("folder"));
        assert!(message(&[path("pipe")]).contains("ordinary"));
        assert!(message(&[path("none")]).contains("none"));
    }
}
