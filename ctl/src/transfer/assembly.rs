//! The receiver's side of a transfer without its connection: chunks and messages in, files and answers out.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use super::digest::{Digester, Source};
use super::folder::{Folder, PartFile};
use super::protocol::{Grant, ToReceiver, ToSender, brief};
use crate::text;

/// Memory that the sender writes to.
pub(super) trait Memory: Source {
    /// Writes up to `len` bytes at `offset` to `file` at `position`; returns how many went.
    fn write_to(&self, offset: u64, len: usize, file: BorrowedFd<'_>, position: u64) -> io::Result<usize>;
}

impl Memory for weft_verbs::MemoryRegion {
    fn write_to(&self, offset: u64, len: usize, file: BorrowedFd<'_>, position: u64) -> io::Result<usize> {
        Self::write_to(self, offset, len, file, position)
    }
}

/// A file that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) name: Vec<u8>,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// Why the receiver gives up.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) error: anyhow::Error,
    /// The data are not what was sent.
    pub(super) damaged: bool,
    /// The sender gave up first and needs no answer.
    pub(super) aborted: bool,
}

impl<E: Into<anyhow::Error>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self { error: error.into(), damaged: false, aborted: false }
    }
}

impl Refusal {
    pub(super) fn message(&self) -> ToSender {
        ToSender::Refused { message: brief(&format!("{:#}", self.error)), damaged: self.damaged }
    }
}

/// What a message led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to tell anybody.
    Quiet,
    /// A file is complete.
    Arrived(Arrived),
    /// The sender has no more.
    Finished,
}

#[derive(Debug)]
struct Current<'a> {
    part: PartFile<'a>,
    size: u64,
    received: u64,
}

#[derive(Debug)]
pub(super) struct Assembly<'a, M> {
    folder: &'a Folder,
    memory: Arc<M>,
    grant: Grant,
    digester: Digester<M>,
    current: Option<Current<'a>>,
    chunks: u64,
    files: u64,
    consumed: u64,
    credited: u64,
}

impl<'a, M: Memory> Assembly<'a, M> {
    pub(super) fn new(folder: &'a Folder, memory: Arc<M>, grant: Grant) -> anyhow::Result<Self> {
        let digester = Digester::start()?;
        Ok(Self { folder, memory, grant, digester, current: None, chunks: 0, files: 0, consumed: 0, credited: 0 })
    }

    /// A chunk was written to its slot.
    pub(super) fn handle_chunk(&mut self, imm: u32, len: u32) -> Result<(), Refusal> {
        let current = self.current.as_mut().ok_or_else(|| anyhow::anyhow!("the sender sent data outside of a file"))?;
        let (number, slot) = (self.chunks % (1 << 32), self.chunks % u64::from(self.grant.window));
        check(u64::from(imm) == number && (1..=self.grant.chunk).contains(&len), "the sender sent a chunk out of turn")?;
        check(u64::from(len) <= current.size - current.received, "the sender sent more than it announced")?;
        let offset = slot * u64::from(self.grant.chunk);
        let count = self.digester.submit(&self.memory, offset, len);
        write_all(&*self.memory, offset, len, current)?;
        self.digester.wait(count)?;
        self.chunks += 1;
        self.consumed += 1;
        Ok(())
    }

    /// A message came.
    pub(super) fn handle_message(&mut self, message: &[u8]) -> Result<Step, Refusal> {
        self.consumed += 1;
        let message = serde_json::from_slice(message).map_err(|error| anyhow::anyhow!("a message is not understood: {error}"))?;
        match message {
            ToReceiver::Begin { name, size, mode } => {
                check(self.current.is_none(), "the sender began a file within another")?;
                self.current = Some(Current { part: self.folder.create(&name, mode)?, size, received: 0 });
                Ok(Step::Quiet)
            }
            ToReceiver::End { sha256 } => self.end(&sha256).map(Step::Arrived),
            ToReceiver::Finish { files } => {
                check(self.current.is_none() && files == self.files, "the sender finished with files missing")?;
                Ok(Step::Finished)
            }
            ToReceiver::Abort { message } => {
                let error = anyhow::anyhow!("the sender gave up: {}", text::foreign(message.as_bytes()));
                Err(Refusal { error, damaged: false, aborted: true })
            }
        }
    }

    fn end(&mut self, sent: &str) -> Result<Arrived, Refusal> {
        let Current { part, size, received } = self.current.take().ok_or_else(|| anyhow::anyhow!("the sender ended no file"))?;
        check(received == size, "the sender ended a file before all of it came")?;
        let (name, sha256) = (part.name().as_bytes().to_vec(), self.digester.finish()?);
        if sha256 != sent {
            let error = anyhow::anyhow!("{} arrived damaged: its SHA-256 is not the sender's; it was removed", text::foreign(&name));
            return Err(Refusal { error, damaged: true, aborted: false });
        }
        part.commit()?;
        self.files += 1;
        Ok(Arrived { name, bytes: received, sha256 })
    }

    /// The credit to send, if it is time: a quarter of the window, so that messages are few and the sender never waits for one.
    pub(super) fn poll_credit(&mut self) -> Option<ToSender> {
        let due = self.consumed - self.credited >= u64::from(self.grant.window).div_ceil(4);
        due.then(|| {
            self.credited = self.consumed;
            ToSender::Credit { consumed: self.consumed }
        })
    }
}

fn check(holds: bool, otherwise: &'static str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(anyhow::anyhow!(otherwise).into()) }
}

fn write_all(memory: &impl Memory, offset: u64, len: u32, current: &mut Current<'_>) -> Result<(), Refusal> {
    let mut written = 0;
    while written < u64::from(len) {
        let rest = usize::try_from(u64::from(len) - written)?;
        match memory.write_to(offset + written, rest, current.part.fd(), current.received) {
            Ok(0) => return Err(anyhow::anyhow!("{}: cannot be written", text::foreign(current.part.name().as_bytes())).into()),
            Ok(count) => {
                written += u64::try_from(count)?;
                current.received += u64::try_from(count)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(anyhow::anyhow!("{}: {error}", text::foreign(current.part.name().as_bytes())).into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
