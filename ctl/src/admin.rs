//! Questions to the daemon of this host over its administration socket.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use weft_config::control::{Envelope, ErrorCode, LineBuffer, MAX_REPLY, MAX_REQUEST, Page, ReplyError, Request, encode_line, parse_reply};

use crate::exit::{Exit, failure};

/// How long the daemon may take for an answer. A reload takes longest: it reads a file and talks to the kernel.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to the administration socket.
#[derive(Debug)]
pub(crate) struct Admin {
    stream: UnixStream,
    socket: PathBuf,
    lines: LineBuffer,
    last_id: u64,
}

impl Admin {
    pub(crate) fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket).map_err(|error| unreachable(socket, &error, "--socket or WEFT_SOCKET", "control.mode"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, socket: socket.to_owned(), lines: LineBuffer::new(MAX_REPLY), last_id: 0 })
    }

    /// Asks one question.
    pub(crate) fn request<T: DeserializeOwned>(&mut self, request: Request) -> anyhow::Result<T> {
        self.last_id += 1;
        let line = encode_line(&Envelope::new(self.last_id, request), MAX_REQUEST)?;
        self.stream.write_all(&line).map_err(|error| self.silent(&error))?;
        let line = self.line()?;
        parse_reply(&line, self.last_id).map_err(|error| match error {
            ReplyError::Refused(refusal) if matches!(refusal.code, ErrorCode::BadConfig | ErrorCode::RestartNeeded) => {
                failure(Exit::Usage, refusal.to_string())
            }
            other => anyhow::Error::new(other).context(format!("weftd at {}", self.socket.display())),
        })
    }

    /// Asks for a whole list, part by part.
    pub(crate) fn list<T: DeserializeOwned>(&mut self, request: impl Fn(u64) -> Request) -> anyhow::Result<Vec<T>> {
        let mut all = Vec::new();
        let mut offset = 0;
        loop {
            let page: Page<T> = self.request(request(offset))?;
            let next = page.next_offset();
            all.extend(page.items);
            // A daemon that repeats itself must not keep us here.
            match next.filter(|next| *next > offset) {
                Some(next) => offset = next,
                None => return Ok(all),
            }
        }
    }

    fn line(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(line) = self.lines.next_line().with_context(|| format!("weftd at {}", self.socket.display()))? {
                return Ok(line);
            }
            let read = self.stream.read(&mut bytes).map_err(|error| self.silent(&error))?;
            if read == 0 {
                return Err(self.silent(&io::ErrorKind::UnexpectedEof.into()));
            }
            self.lines.push(&bytes[..read]);
        }
    }

    fn silent(&self, error: &io::Error) -> anyhow::Error {
        let socket = self.socket.display();
        let message = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("weftd at {socket} does not answer within {} s; look at its log", PATIENCE.as_secs())
            }
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                format!("weftd at {socket} closed the connection: it stopped, or serves as many clients as it may; look at its log")
            }
            _ => format!("weftd at {socket}: {error}"),
        };
        failure(Exit::Unreachable, message)
    }
}

/// Why a daemon's socket could not be opened, and what to do; `option` names the socket, `mode` is the key of its rights.
pub(crate) fn unreachable(socket: &Path, error: &io::Error, option: &str, mode: &str) -> anyhow::Error {
    let shown = socket.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => failure(Exit::NotPermitted, format!("{shown}: {}", not_permitted(socket, mode))),
        io::ErrorKind::NotFound => failure(
            Exit::Unreachable,
            format!("{shown}: no such socket; is weftd running? Start it with `weftd --config FILE`, or name another socket with {option}"),
        ),
        io::ErrorKind::ConnectionRefused => failure(
            Exit::Unreachable,
            format!("{shown}: nobody listens there any more; is weftd running? Start it with `weftd --config FILE`"),
        ),
        _ => failure(Exit::Unreachable, format!("{shown}: cannot connect to weftd: {error}")),
    }
}

fn not_permitted(socket: &Path, mode: &str) -> String {
    match std::fs::metadata(socket) {
        Ok(meta) => format!(
            "this user may not open it: mode {:04o}, user {}, group {}; join that group, become that user, or set {mode} in weftd's configuration",
            meta.mode() & 0o7777,
            meta.uid(),
            meta.gid()
        ),
        Err(_) => format!(
            "this user may not enter its folder; change the folder's rights, or become the user that weftd runs as (and see {mode})"
        ),
    }
}

#[cfg(test)]
mod tests;
