//! SHA-256 on a thread of its own, so that hashing goes on beside reading, sending and writing.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use weft_verbs::MemoryRegion;

/// Bytes copied out of shared memory at a time: small enough to stay in the first-level cache until hashed.
const PIECE: usize = 16 << 10;

/// Where the bytes to hash are.
pub(super) trait Source: Send + Sync + 'static {
    /// Copies the bytes at `offset`; false if they are not there.
    fn copy(&self, offset: u64, out: &mut [u8]) -> bool;
}

impl Source for MemoryRegion {
    fn copy(&self, offset: u64, out: &mut [u8]) -> bool {
        self.copy_out(offset, out).is_ok()
    }
}

enum Order<S> {
    Piece { source: Arc<S>, offset: u64, len: u32 },
    Finish,
}

enum Answer {
    Hashed,
    Digest(String),
}

/// Hashes one stream of bytes after another, in order.
#[derive(Debug)]
pub(super) struct Digester<S> {
    orders: Sender<Order<S>>,
    answers: Receiver<Answer>,
    submitted: u64,
    hashed: u64,
}

impl<S: Source> Digester<S> {
    pub(super) fn start() -> anyhow::Result<Self> {
        let (orders, inbox) = channel();
        let (outbox, answers) = channel();
        // Ends when this value is dropped.
        std::thread::Builder::new().name("sha256".to_owned()).spawn(move || work(&inbox, &outbox)).context("cannot start a thread")?;
        Ok(Self { orders, answers, submitted: 0, hashed: 0 })
    }

    /// Adds `len` bytes at `offset` of `source`, which must stay as they are until [`Self::wait`] says that they are hashed.
    /// Returns how many pieces have been submitted.
    pub(super) fn submit(&mut self, source: &Arc<S>, offset: u64, len: u32) -> u64 {
        // If the thread is gone, `wait` fails.
        let _ = self.orders.send(Order::Piece { source: Arc::clone(source), offset, len });
        self.submitted += 1;
        self.submitted
    }

    /// Waits until `count` pieces are hashed and their sources let go of.
    pub(super) fn wait(&mut self, count: u64) -> anyhow::Result<()> {
        while self.hashed < count {
            match self.answers.recv().context("the hashing thread has ended")? {
                Answer::Hashed => self.hashed += 1,
                Answer::Digest(_) => anyhow::bail!("the hashing thread is out of step"),
            }
        }
        Ok(())
    }

    /// The digest of everything since the last one, in hexadecimal digits.
    pub(super) fn finish(&mut self) -> anyhow::Result<String> {
        self.wait(self.submitted)?;
        let _ = self.orders.send(Order::Finish);
        match self.answers.recv().context("the hashing thread has ended")? {
            Answer::Digest(digest) => Ok(digest),
            Answer::Hashed => anyhow::bail!("the hashing thread is out of step"),
        }
    }
}

fn work<S: Source>(inbox: &Receiver<Order<S>>, outbox: &Sender<Answer>) {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; PIECE];
    for order in inbox {
        let answer = match order {
            Order::Piece { source, offset, len } => {
                // Ends the thread, which the other side reports: only a defect here asks for bytes that are not there.
                let Some(()) = hash(&mut hasher, &*source, offset..offset + u64::from(len), &mut buffer) else { return };
                drop(source);
                Answer::Hashed
            }
            Order::Finish => Answer::Digest(crate::text::hex(&hasher.finalize_reset())),
        };
        if outbox.send(answer).is_err() {
            return;
        }
    }
}

fn hash(hasher: &mut Sha256, source: &impl Source, mut range: std::ops::Range<u64>, buffer: &mut [u8]) -> Option<()> {
    while !range.is_empty() {
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(buffer.len());
        source.copy(range.start, &mut buffer[..len]).then_some(())?;
        hasher.update(&buffer[..len]);
        range.start += u64::try_from(len).ok()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Source for Vec<u8> {
        fn copy(&self, offset: u64, out: &mut [u8]) -> bool {
            let start = usize::try_from(offset).unwrap();
            self.get(start..start + out.len()).is_some_and(|bytes| {
                out.copy_from_slice(bytes);
                true
            })
        }
    }

    #[test]
    fn pieces_are_hashed_in_order_and_the_next_digest_starts_afresh() {
        let mut digester = Digester::start().unwrap();
        let bytes = Arc::new((0..100_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect::<Vec<_>>());
        digester.submit(&bytes, 0, 40_000);
        let last = digester.submit(&bytes, 40_000, 60_000);
        digester.wait(last).unwrap();
        assert_eq!(Arc::strong_count(&bytes), 1, "the thread has let go");
        assert_eq!(digester.finish().unwrap(), crate::text::hex(&Sha256::digest(&*bytes)));
        assert_eq!(digester.finish().unwrap(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn bytes_that_are_not_there_are_an_error_and_no_hang() {
        let mut digester = Digester::start().unwrap();
        let count = digester.submit(&Arc::new(vec![0; 10]), 5, 6);
        assert!(digester.wait(count).is_err());
    }
}
