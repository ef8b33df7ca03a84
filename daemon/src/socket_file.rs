//! A Unix socket file that belongs to this daemon while it runs.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The socket file cannot be used.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Somebody answers on it.
    #[error("{key}: {path} is in use by another daemon; stop that one, or set another path")]
    InUse {
        /** Key in the configuration. */
        key: &'static str,
        /** The file. */
        path: PathBuf,
    },
    /// Something else is there.
    #[error("{key}: {path} exists and is not a socket; remove it, or set another path")]
    NotASocket {
        /** Key in the configuration. */
        key: &'static str,
        /** The file. */
        path: PathBuf,
    },
    /// The operating system said no.
    #[error("{key}: cannot {action} {path}: {source}; check that the folder can be created and written by this user")]
    Refused {
        /** Key in the configuration. */
        key: &'static str,
        /** What was tried. */
        action: &'static str,
        /** The file or folder. */
        path: PathBuf,
        /** The operating system's answer. */
        source: io::Error,
    },
}

/// A socket file; removed when dropped, if it is still the one that was made here.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: Option<u64>,
}

impl SocketFile {
    /// Makes room for a socket at `path`, lets `bind` create it, and sets its mode.
    /// A stale file of a daemon that is gone is removed.
    ///
    /// # Errors
    /// If another daemon answers there, something else is in the way, or the operating system refuses.
    pub fn create<T>(
        key: &'static str,
        path: &Path,
        mode: u32,
        bind: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<(Self, T), SocketError> {
        let refused = |action, source| SocketError::Refused { key, action, path: path.to_owned(), source };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|e| refused("create the folder of", e))?;
        }
        remove_stale(key, path)?;
        let listener = bind(path).map_err(|e| refused("listen on", e))?;
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|e| refused("set the mode of", e))?;
        Ok((Self { path: path.to_owned(), inode: inode(path) }, listener))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.inode.is_some() && inode(&self.path) == self.inode {
            // Nothing to be done about a file that cannot be removed; the next start finds it stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|meta| meta.ino())
}

fn remove_stale(key: &'static str, path: &Path) -> Result<(), SocketError> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    let path_buf = || path.to_owned();
    if !meta.file_type().is_socket() {
        return Err(SocketError::NotASocket { key, path: path_buf() });
    }
    // A dead socket refuses; a live one accepts, or answers that it is of another type (seqpacket) or full.
    // Not blocking: one that is stuck would keep us waiting.
    match mio::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|source| SocketError::Refused { key, action: "remove the stale", path: path_buf(), source })
        }
        _ => Err(SocketError::InUse { key, path: path_buf() }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn create(path: &Path) -> Result<(SocketFile, UnixListener), SocketError> {
        SocketFile::create("control.socket", path, 0o640, |p| UnixListener::bind(p))
    }

    #[test]
    fn the_file_has_its_mode_and_goes_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/weftd.sock");
        let (file, _listener) = create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_stale_file_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weftd.sock");
        drop(UnixListener::bind(&path).unwrap());
        let (_file, _listener) = create(&path).unwrap();
        let error = create(&path).unwrap_err().to_string();
        assert!(error.starts_with("control.socket: ") && error.contains("in use by another daemon"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(matches!(create(&path), Err(SocketError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }

    #[test]
    fn the_file_of_a_successor_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weftd.sock");
        let (file, _listener) = create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        // Keeps the freed inode from being given to the successor.
        fs::write(folder.path().join("other"), "").unwrap();
        let _successor = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }
}
