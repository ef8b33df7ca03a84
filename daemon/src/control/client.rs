//! One client of the admin socket: lines in, answers out, both bounded.
//!
//! A client that does not read its answers is not read from either, so it holds at most one answer's worth of
//! memory; after [`PATIENCE`] it is dropped.

use std::io::{ErrorKind, Read, Write};

use mio::net::UnixStream;
use weft_config::control::{LineBuffer, LineTooLong, MAX_REQUEST};
use weft_proto::{Duration, Instant};

/// Time for a client to read its answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Requests served before the others get their turn.
const LINES_PER_TURN: usize = 16;
/// Bytes read before the others get their turn.
const CHUNK: usize = 16 * 1024;

/// What becomes of a client after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It can go on at once.
    Again,
    /// It waits for its socket.
    Wait,
    /// It is gone, or has to go.
    Drop,
}

/// An answer to a line.
#[derive(Debug)]
pub(super) struct Answer {
    /// The line to send, with its end.
    pub(super) line: Vec<u8>,
    /// Hang up afterwards.
    pub(super) last: bool,
}

/// A connected client.
#[derive(Debug)]
pub(super) struct Client {
    stream: UnixStream,
    input: LineBuffer,
    output: Vec<u8>,
    written: usize,
    readable: bool,
    closing: bool,
    active: Instant,
}

impl Client {
    /// A client that has just connected.
    pub(super) fn new(now: Instant, stream: UnixStream) -> Self {
        let input = LineBuffer::new(MAX_REQUEST);
        Self { stream, input, output: Vec::new(), written: 0, readable: true, closing: false, active: now }
    }

    /// The socket, to be registered.
    pub(super) fn stream(&mut self) -> &mut UnixStream {
        &mut self.stream
    }

    /// Its socket has something to read.
    pub(super) fn handle_readable(&mut self) {
        self.readable = true;
    }

    /// When it last made progress.
    pub(super) const fn active(&self) -> Instant {
        self.active
    }

    /// True if it has not read its answer for too long.
    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        self.written < self.output.len() && now.since(self.active) >= PATIENCE
    }

    /// Moves bytes, and has `answer` serve the requests that are complete.
    pub(super) fn turn(&mut self, now: Instant, mut answer: impl FnMut(Result<&[u8], LineTooLong>) -> Answer) -> Turn {
        for _ in 0..LINES_PER_TURN {
            match self.flush(now) {
                Turn::Again => {}
                other => return other,
            }
            if self.closing {
                return Turn::Drop;
            }
            match self.input.next_line() {
                Ok(Some(line)) => self.queue(answer(Ok(&line))),
                Ok(None) => return self.fill(now),
                Err(too_long) => self.queue(Answer { last: true, ..answer(Err(too_long)) }),
            }
        }
        Turn::Again
    }

    fn queue(&mut self, answer: Answer) {
        self.output = answer.line;
        self.written = 0;
        self.closing = answer.last;
    }

    fn flush(&mut self, now: Instant) -> Turn {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return Turn::Drop,
                Ok(count) => {
                    self.written += count;
                    self.active = now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Turn::Wait,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Turn::Drop,
            }
        }
        Turn::Again
    }

    fn fill(&mut self, now: Instant) -> Turn {
        if !self.readable {
            return Turn::Wait;
        }
        let mut chunk = [0; CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => return Turn::Drop,
            Ok(count) => {
                self.input.push(&chunk[..count]);
                self.active = now;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                return Turn::Wait;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Turn::Drop,
        }
        Turn::Again
    }
}

#[cfg(test)]
mod tests;
