//! Cutting a byte stream into lines of bounded length, without I/O.

use std::mem;

/// Collects bytes and hands out lines. Holds at most one line of the limit and what the last [`LineBuffer::push`] brought.
#[derive(Debug)]
pub struct LineBuffer {
    limit: usize,
    bytes: Vec<u8>,
    /// Bytes at the front that hold no newline.
    searched: usize,
}

/// A line exceeds the limit. The stream cannot be trusted any further; close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {limit} bytes")]
pub struct LineTooLong {
    /// The limit in bytes.
    pub limit: usize,
}

impl LineBuffer {
    /// An empty buffer for lines of at most `limit` bytes without their newline.
    pub const fn new(limit: usize) -> Self {
        Self { limit, bytes: Vec::new(), searched: 0 }
    }

    /// Adds bytes from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line without its newline; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`LineTooLong`], for good.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, LineTooLong> {
        let end = self.bytes[self.searched..].iter().position(|&byte| byte == b'\n').map(|at| at + self.searched);
        if end.unwrap_or(self.bytes.len()) > self.limit {
            return Err(LineTooLong { limit: self.limit });
        }
        let Some(end) = end else {
            self.searched = self.bytes.len();
            return Ok(None);
        };
        let rest = self.bytes.split_off(end + 1);
        let mut line = mem::replace(&mut self.bytes, rest);
        line.pop();
        self.searched = 0;
        Ok(Some(line))
    }
}
