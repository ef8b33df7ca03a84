//! `cp` and `receive`: files from one host to another.
//!
//! # The protocol
//!
//! One connection carries the files of one `cp`, one after another. Its two sides say [`protocol::Hello`] and
//! [`protocol::Grant`] in the private data of the connection messages; the grant opens `window` chunks of `chunk` bytes
//! of the receiver's memory to the sender. After that everything is in order on one queue pair:
//!
//! ```text
//! sender                                            receiver
//!   SEND  begin {name, size, mode}          ->        creates NAME.part
//!   WRITE+imm chunk n into slot n % window  ->  *     writes it to NAME.part and hashes it
//!   SEND  end {sha256}                      ->        compares, renames NAME.part to NAME
//!                                           <-  SEND  credit {consumed}
//!                                           <-  SEND  done {sha256}
//!   SEND  begin ... of the next file, without waiting for `done`
//!   SEND  finish {files}                    ->        all was sent; what follows is the connection's end
//!   SEND  abort {message}                   ->        the sender gave up; NAME.part is removed
//!                                           <-  SEND  refused {message}: the receiver gave up
//! ```
//!
//! - The sender has at most `window` messages and chunks together that the receiver has not yet consumed; `credit`
//!   tells how many it has consumed since the beginning. Messages are consumed in order, so the chunk that was in a
//!   slot before is on disk when its slot is written again.
//! - The immediate is the chunk's number modulo 2^32; a chunk in the wrong place ends the transfer.
//! - Both sides compute SHA-256 of what they read from their file or memory. A file gets its name only if both agree
//!   and its length is the one announced. Whatever goes wrong, at either end, `NAME.part` is removed and never resumed.
//! - A name is one component of a path, so no name leads out of the receiver's folder, which is held open.
//! - Messages are JSON of at most [`protocol::MAX_MESSAGE`] bytes. Nothing that the peer says is trusted beyond that.
//!
//! | module | owns |
//! | --- | --- |
//! | `protocol` | the messages, and the window |
//! | `send`, `receive` | the two sides |
//! | `assembly` | the receiver's answers to the sender's messages |
//! | `folder` | files that appear whole or not at all |
//! | `digest` | SHA-256 on a thread of its own |
//! | `progress` | the bar |

pub(crate) mod args;
mod assembly;
mod digest;
mod folder;
mod progress;
mod protocol;
mod receive;
mod send;

pub(crate) use receive::run as receive;
pub(crate) use send::run as copy;
