//! Files into chunks, chunks into the receiver's memory.
//!
//! Three things go on at a time: this thread reads the file straight into registered memory, the hashing thread hashes
//! what was read, and the daemons carry what was posted. A slot is read into again once its chunk is hashed and acknowledged.

use std::sync::Arc;

use anyhow::Context as _;
use weft_verbs::{Access, Context, MemoryRegion};

use super::FileToSend;
use crate::exit::{Exit, failure};
use crate::session::{Arrival, Session, explain};
use crate::text;
use crate::transfer::digest::Digester;
use crate::transfer::progress::Progress;
use crate::transfer::protocol::{Grant, ToReceiver, ToSender, Window, brief, encode};

/// The digests of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digests {
    pub(super) sent: String,
    pub(super) received: String,
}

pub(super) struct Sender<'a> {
    session: Session,
    grant: Grant,
    window: Window,
    slots: Vec<Arc<MemoryRegion>>,
    digester: Digester<MemoryRegion>,
    chunks: u64,
    chunks_acknowledged: u64,
    received: Vec<String>,
    progress: &'a Progress,
}

impl<'a> Sender<'a> {
    pub(super) fn new(context: &Context, session: Session, grant: Grant, progress: &'a Progress) -> anyhow::Result<Self> {
        let len = usize::try_from(grant.chunk)?;
        let slot = |_| context.register(len, Access::default()).map(Arc::new).map_err(|error| explain(error, "this host"));
        let slots = (0..grant.window).map(slot).collect::<anyhow::Result<_>>()?;
        let (window, digester) = (Window::new(grant.window), Digester::start()?);
        Ok(Self { session, grant, window, slots, digester, chunks: 0, chunks_acknowledged: 0, received: Vec::new(), progress })
    }

    /// Sends all files and waits until the receiver has said that it has them.
    pub(super) fn send_all(&mut self, files: &[FileToSend]) -> anyhow::Result<Vec<Digests>> {
        let outcome = self.try_send_all(files);
        if let Err(error) = &outcome {
            self.abort(error);
        }
        outcome
    }

    fn try_send_all(&mut self, files: &[FileToSend]) -> anyhow::Result<Vec<Digests>> {
        let mut sent = Vec::with_capacity(files.len());
        for file in files {
            sent.push(self.send_file(file).with_context(|| file.path.display().to_string())?);
        }
        while self.received.len() < files.len() {
            self.handle_arrival()?;
        }
        let digests: Vec<_> = sent.into_iter().zip(self.received.drain(..)).map(|(sent, received)| Digests { sent, received }).collect();
        if digests.iter().any(|digests| digests.sent != digests.received) {
            return Err(failure(Exit::Damaged, "the receiver has other bytes than were sent"));
        }
        self.send(&ToReceiver::Finish { files: u64::try_from(files.len())? })?;
        Ok(digests)
    }

    /// Hangs up once the receiver knows that nothing more comes.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        self.session.flush()
    }

    /// Sends one file; returns its digest.
    fn send_file(&mut self, file: &FileToSend) -> anyhow::Result<String> {
        self.progress.begin(&text::foreign(&file.name));
        self.send(&ToReceiver::Begin { name: file.name.clone(), size: file.size, mode: file.mode })?;
        let mut offset = 0;
        while offset < file.size {
            offset += u64::from(self.send_chunk(file, offset)?);
        }
        let sha256 = self.digester.finish()?;
        self.send(&ToReceiver::End { sha256: sha256.clone() })?;
        Ok(sha256)
    }

    /// Sends the chunk of `file` at `offset`; returns its length.
    fn send_chunk(&mut self, file: &FileToSend, offset: u64) -> anyhow::Result<u32> {
        let (chunk, window) = (u64::from(self.grant.chunk), u64::from(self.grant.window));
        while self.chunks - self.chunks_acknowledged >= window {
            self.handle_arrival()?;
        }
        let slot = self.chunks % window;
        let most = usize::try_from(chunk.min(file.size - offset))?;
        let region = &mut self.slots[usize::try_from(slot)?];
        let memory = Arc::get_mut(region).context("a chunk is still being hashed")?;
        let len = u32::try_from(memory.read_from(0, most, &file.file, offset)?)?;
        anyhow::ensure!(len > 0, "the file became shorter while it was sent");
        let (region, piece) = (Arc::clone(region), memory_piece(region, len)?);
        let submitted = self.digester.submit(&region, 0, len);
        drop(region);
        self.await_room()?;
        let number = u32::try_from(self.chunks % (1 << 32))?;
        self.session.write(self.chunks, piece, (slot * chunk, self.grant.rkey), Some(number))?;
        self.window.send();
        self.chunks += 1;
        self.progress.add(u64::from(len));
        // The slot that comes next must be free of the hashing thread.
        self.digester.wait((submitted + 1).saturating_sub(window))?;
        Ok(len)
    }

    fn send(&mut self, message: &ToReceiver) -> anyhow::Result<()> {
        self.await_room()?;
        self.session.send(&encode(message))?;
        self.window.send();
        Ok(())
    }

    fn await_room(&mut self) -> anyhow::Result<()> {
        while !self.window.has_room() {
            self.handle_arrival()?;
        }
        Ok(())
    }

    fn handle_arrival(&mut self) -> anyhow::Result<()> {
        match self.session.next()? {
            // Writes complete in the order in which they were posted.
            Arrival::Done(number) => self.chunks_acknowledged = number + 1,
            Arrival::Message { slot, len } => {
                let message = self.session.take(slot, len)?;
                self.handle_message(&message)?;
            }
            Arrival::Written { .. } => anyhow::bail!("the receiver wrote to this host's memory"),
        }
        Ok(())
    }

    fn handle_message(&mut self, message: &[u8]) -> anyhow::Result<()> {
        let peer = self.session.peer();
        match serde_json::from_slice(message).with_context(|| format!("{peer}: a message is not understood"))? {
            ToSender::Credit { consumed } => anyhow::ensure!(self.window.credit(consumed), "{peer}: the receiver's count cannot be"),
            ToSender::Done { sha256 } => self.received.push(sha256),
            ToSender::Refused { message, damaged } => {
                let exit = if damaged { Exit::Damaged } else { Exit::Failed };
                return Err(failure(exit, format!("{peer} refused: {}", text::foreign(message.as_bytes()))));
            }
        }
        Ok(())
    }

    /// Tells the receiver why nothing more comes, if it still listens.
    fn abort(&mut self, error: &anyhow::Error) {
        if crate::exit::of(error) != Exit::Unreachable && self.window.has_room() {
            let message = encode(&ToReceiver::Abort { message: brief(&format!("{error:#}")) });
            let _ = self.session.send(&message).and_then(|()| self.session.flush());
        }
    }
}

fn memory_piece(region: &MemoryRegion, len: u32) -> anyhow::Result<weft_verbs::Sge> {
    Ok(region.sge(0, len)?)
}
