//! Many frames per system call: `recvmmsg` into pool buffers and `sendmmsg` out of them.
//!
//! Owns the arrays that the kernel reads and fills, allocated once. Every pointer in them is set and used within one
//! call of [`RxBatch::receive`] or [`TxBatch::send`]; between calls they are stale and nothing reads them.

#![allow(unsafe_code, reason = "recvmmsg and sendmmsg have no safe wrapper")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use libc::{iovec, mmsghdr, msghdr};
use weft_proto::{FrameRef, Pool};

use super::ancillary::{Auxiliary, CONTROL_LEN, Control};
use super::intake::Delivery;
use super::offload::{VNET_HEADER, VnetHeader};
use super::sys::check;

/// Each message has two pieces: the header of unfinished work, and the frame.
type Pieces = [iovec; 2];

const NO_PIECES: Pieces = [iovec { iov_base: ptr::null_mut(), iov_len: 0 }; 2];

/// The arrays of `recvmmsg`.
pub(super) struct RxBatch {
    messages: Vec<mmsghdr>,
    pieces: Vec<Pieces>,
    headers: Vec<VnetHeader>,
    controls: Vec<Control>,
}

// SAFETY: the pointers inside are written anew in each call before anybody uses them; nothing is shared with another thread.
unsafe impl Send for RxBatch {}

impl RxBatch {
    /// Arrays for at most `batch` frames per call.
    pub(super) fn new(batch: usize) -> Self {
        Self {
            messages: no_messages(batch),
            pieces: vec![NO_PIECES; batch],
            headers: vec![VnetHeader::default(); batch],
            controls: vec![Control::EMPTY; batch],
        }
    }

    /// Receives into the rooms of `frames`, at most one batch, without waiting. Returns how many frames came;
    /// they are in the first buffers. Lengths are not set yet.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, pool: &mut Pool, frames: &[FrameRef]) -> io::Result<usize> {
        let count = frames.len().min(self.messages.len());
        for (slot, frame) in frames[..count].iter().enumerate() {
            self.arm(slot, pool.room_mut(frame));
        }
        let count = u32::try_from(count).unwrap_or(0);
        let messages = self.messages.as_mut_ptr();
        // SAFETY: the first `count` messages were armed above. They point into `self`'s arrays and into distinct chunks
        // of the pool, both borrowed mutably through this call and neither moved nor read meanwhile; lengths are exact.
        check(unsafe { libc::recvmmsg(socket.as_raw_fd(), messages, count, libc::MSG_DONTWAIT, ptr::null_mut()) })
    }

    fn arm(&mut self, slot: usize, room: &mut [u8]) {
        let header = (&raw mut self.headers[slot]).cast();
        self.pieces[slot] =
            [iovec { iov_base: header, iov_len: VNET_HEADER }, iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }];
        let message = &mut self.messages[slot].msg_hdr;
        message.msg_iov = self.pieces[slot].as_mut_ptr();
        message.msg_iovlen = 2;
        message.msg_control = self.controls[slot].0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_LEN;
        message.msg_flags = 0;
    }

    /// What the last call of [`Self::receive`] left in a slot.
    pub(super) fn received(&self, slot: usize) -> Delivery {
        let message = &self.messages[slot];
        Delivery {
            len: (message.msg_len as usize).saturating_sub(VNET_HEADER),
            cut_off: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            auxiliary: Auxiliary::parse(&self.controls[slot], message.msg_hdr.msg_controllen),
            offload: self.headers[slot].into(),
        }
    }
}

/// The arrays of `sendmmsg`.
pub(super) struct TxBatch {
    messages: Vec<mmsghdr>,
    pieces: Vec<Pieces>,
    headers: Vec<VnetHeader>,
}

// SAFETY: as for `RxBatch`.
unsafe impl Send for TxBatch {}

impl TxBatch {
    /// Arrays for at most `batch` frames per call.
    pub(super) fn new(batch: usize) -> Self {
        Self { messages: no_messages(batch), pieces: vec![NO_PIECES; batch], headers: vec![VnetHeader::default(); batch] }
    }

    /// Sends the first frames of the queue, at most one batch, without waiting. Returns how many the kernel took; they
    /// are still in the queue. An error concerns the first frame.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, pool: &Pool, queue: &VecDeque<FrameRef>) -> io::Result<usize> {
        let mut count = 0;
        for (slot, frame) in queue.iter().take(self.messages.len()).enumerate() {
            self.headers[slot] = pool.offload(frame).into();
            self.arm(slot, pool.bytes(frame));
            count += 1;
        }
        let messages = self.messages.as_mut_ptr();
        // SAFETY: the first `count` messages were armed above. They point into `self`'s arrays and into the pool, borrowed
        // through this call; the kernel only reads what the pieces point to; lengths are exact.
        check(unsafe { libc::sendmmsg(socket.as_raw_fd(), messages, count, libc::MSG_DONTWAIT) })
    }

    fn arm(&mut self, slot: usize, frame: &[u8]) {
        let header = (&raw mut self.headers[slot]).cast();
        self.pieces[slot] =
            [iovec { iov_base: header, iov_len: VNET_HEADER }, iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() }];
        let message = &mut self.messages[slot].msg_hdr;
        message.msg_iov = self.pieces[slot].as_mut_ptr();
        message.msg_iovlen = 2;
    }
}

fn no_messages(batch: usize) -> Vec<mmsghdr> {
    // SAFETY: a msghdr is made of integers and pointers, for which zero means "none".
    let empty: msghdr = unsafe { std::mem::zeroed() };
    vec![mmsghdr { msg_hdr: empty, msg_len: 0 }; batch]
}

impl std::fmt::Debug for RxBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RxBatch").field("batch", &self.messages.len()).finish()
    }
}

impl std::fmt::Debug for TxBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxBatch").field("batch", &self.messages.len()).finish()
    }
}
