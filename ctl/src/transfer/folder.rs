//! Files that appear in a folder whole or not at all.
//!
//! The folder is held open and every name is one component, so neither a name nor a change of the path leads elsewhere.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::exit::{Exit, failure};

/// Stands behind the name of a file that is not complete.
const SUFFIX: &str = ".part";
/// Longest name in bytes (`NAME_MAX` of the usual file systems).
const MAX_NAME: usize = 255;
/// Permission bits that a file keeps: no set-user-ID and the like from another host.
const KEPT_MODE: u32 = 0o777;

#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    overwrite: bool,
    /// Permission bits that new files do not get.
    mask: u32,
}

/// A file that will have its name once it is complete; until then dropping it removes it.
#[derive(Debug)]
pub(super) struct PartFile<'a> {
    folder: &'a Folder,
    file: OwnedFd,
    name: OsString,
    part: OsString,
    mode: Mode,
    committed: bool,
}

impl Folder {
    /// Opens an existing folder. To be called before there are threads: it looks at the process's umask.
    pub(super) fn open(path: &Path, overwrite: bool) -> anyhow::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| not_opened(path, errno))?;
        rustix::fs::accessat(&fd, ".", rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|errno| not_opened(path, errno))?;
        let mask = rustix::process::umask(Mode::empty());
        rustix::process::umask(mask);
        Ok(Self { fd, path: path.to_owned(), overwrite, mask: mask.bits() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a file for `name`, which another host chose.
    pub(super) fn create(&self, name: &[u8], mode: u32) -> anyhow::Result<PartFile<'_>> {
        check_name(name)?;
        let name = OsString::from_vec(name.to_vec());
        if !self.overwrite && rustix::fs::statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(exists(&name));
        }
        let mut part = name.clone();
        part.push(SUFFIX);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, &part, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| not_created(&part, errno))?;
        let mode = Mode::from_raw_mode(mode & KEPT_MODE & !self.mask);
        Ok(PartFile { folder: self, file, name, part, mode, committed: false })
    }
}

fn not_opened(path: &Path, errno: Errno) -> anyhow::Error {
    let path = path.display();
    match errno {
        Errno::NOENT => failure(Exit::Usage, format!("{path}: no such folder; create it first")),
        Errno::NOTDIR => failure(Exit::Usage, format!("{path}: not a folder")),
        Errno::ACCESS | Errno::ROFS => failure(Exit::NotPermitted, format!("{path}: this user cannot create files there: {errno}")),
        _ => failure(Exit::Failed, format!("{path}: {errno}")),
    }
}

fn not_created(part: &OsStr, errno: Errno) -> anyhow::Error {
    let shown = crate::text::foreign(part.as_bytes());
    match errno {
        Errno::EXIST => anyhow::anyhow!(
            "{shown} exists: another transfer of this file goes on, or one was killed; if so, remove it (nothing is resumed)"
        ),
        _ => anyhow::anyhow!("{shown}: cannot create: {errno}"),
    }
}

fn exists(name: &OsStr) -> anyhow::Error {
    anyhow::anyhow!("{} exists already; receive with --overwrite, or move it away", crate::text::foreign(name.as_bytes()))
}

/// Refuses everything but one ordinary component of a path.
fn check_name(name: &[u8]) -> anyhow::Result<()> {
    let shown = || crate::text::foreign(name);
    anyhow::ensure!(!name.is_empty() && name != b"." && name != b"..", "\"{}\" is no name for a file", shown());
    anyhow::ensure!(!name.contains(&b'/') && !name.contains(&0), "\"{}\" is no name but a path; files go to one folder", shown());
    let most = MAX_NAME - SUFFIX.len();
    anyhow::ensure!(name.len() <= most, "the name {} has {} bytes; at most {most} are possible", shown(), name.len());
    Ok(())
}

impl PartFile<'_> {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Gives the complete file its name. Atomic: whoever looks sees the old state or the new one.
    pub(super) fn commit(mut self) -> anyhow::Result<()> {
        let context = || format!("{}: cannot complete", crate::text::foreign(self.name.as_bytes()));
        rustix::fs::fchmod(&self.file, self.mode).with_context(context)?;
        let fd = &self.folder.fd;
        let renamed = if self.folder.overwrite {
            rustix::fs::renameat(fd, &self.part, fd, &self.name)
        } else {
            rename_to_new(fd, &self.part, &self.name)
        };
        match renamed {
            Err(Errno::EXIST) => return Err(exists(&self.name)),
            other => other.with_context(context)?,
        }
        self.committed = true;
        Ok(())
    }
}

/// Renames unless the new name is taken.
fn rename_to_new(fd: &OwnedFd, part: &OsStr, name: &OsStr) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(fd, part, fd, name, RenameFlags::NOREPLACE) {
        // The file system does not know how; a second name does the same in two steps.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(fd, part, fd, name, AtFlags::empty())?;
            rustix::fs::unlinkat(fd, part, AtFlags::empty())
        }
        other => other,
    }
}

impl Drop for PartFile<'_> {
    fn drop(&mut self) {
        if !self.committed
            && let Err(errno) = rustix::fs::unlinkat(&self.folder.fd, &self.part, AtFlags::empty())
        {
            eprintln!("weftctl: {}: cannot remove: {}", crate::text::foreign(self.part.as_bytes()), io::Error::from(errno));
        }
    }
}

#[cfg(test)]
mod tests;
