//! The batched backend: a packet socket, many frames per system call, unfinished work of the kernel carried along.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;
use weft_proto::{DropReason, FrameRef, Pool};

use super::batch::{RxBatch, TxBatch};
use super::fault::{Fault, Patience, Trouble};
use super::intake;
use super::sys::{self, Switch};
use super::{PortCounters, PortError, PortSpec, Role, RxOutcome, TxOutcome, filter};
use crate::clock::Moment;
use crate::link::Link;

/// Room in the kernel for frames that the worker has yet to fetch: 10 ms at 3 Gbit/s.
/// The kernel doubles the value for its own bookkeeping.
const RECEIVE_BUFFER: usize = 4 * 1024 * 1024;
/// Room for frames that the driver has yet to send.
const SEND_BUFFER: usize = 1024 * 1024;

/// A packet socket and the arrays for its batches.
#[derive(Debug)]
pub(super) struct Packet {
    socket: OwnedFd,
    rx: RxBatch,
    tx: TxBatch,
    /// Empty buffers of the call that is running; empty between calls.
    buffers: Vec<FrameRef>,
    patience: Patience,
    batch: usize,
    /// Buffers to offer in the next call.
    offer: usize,
    /// The kernel says when frames arrived.
    timestamps: bool,
}

/// Fewest buffers offered in a call: preparing a whole batch for a port where nothing waits costs more than the call.
const OFFER_LOW: usize = 8;

/// A packet socket with every option of a port but not bound: it hears nothing yet.
pub(super) fn unbound_socket(spec: &PortSpec) -> Result<OwnedFd, PortError> {
    let socket = sys::packet_socket().map_err(PortError::refused(spec, "open a packet socket"))?;
    let fd = socket.as_fd();
    sys::turn_on(fd, Switch::IgnoreOutgoing).map_err(PortError::refused(spec, "hide the port's own frames"))?;
    sys::turn_on(fd, Switch::Auxdata).map_err(PortError::refused(spec, "ask for VLAN tags"))?;
    if spec.role == Role::Host {
        let program = filter::accept_only(&spec.ethertypes);
        sys::attach_filter(fd, &program).map_err(PortError::refused(spec, "filter by EtherType"))?;
    }
    size_buffers(fd).map_err(PortError::refused(spec, "size the socket's buffers"))?;
    Ok(socket)
}

/// The forced form goes beyond the system's limit but is refused in a user namespace.
fn size_buffers(socket: BorrowedFd<'_>) -> io::Result<()> {
    if sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BUFFER).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, RECEIVE_BUFFER)?;
    }
    Ok(sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER)?)
}

impl Packet {
    pub(super) fn open(spec: &PortSpec, link: &Link) -> Result<Self, PortError> {
        let socket = unbound_socket(spec)?;
        let fd = socket.as_fd();
        sys::turn_on(fd, Switch::VnetHeader).map_err(PortError::refused(spec, "ask for unfinished checksums"))?;
        match sys::turn_on(fd, Switch::QdiscBypass) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {}
            result => result.map_err(PortError::refused(spec, "bypass the queueing discipline"))?,
        }
        if spec.role == Role::Switch {
            sys::join_promiscuous(fd, link.index).map_err(PortError::refused(spec, "hear every frame"))?;
        }
        sys::bind(fd, link.index).map_err(PortError::refused(spec, "bind a packet socket"))?;
        let batch = spec.batch.clamp(1, MAX_BATCH);
        let (rx, tx) = (RxBatch::new(batch), TxBatch::new(batch));
        let buffers = Vec::with_capacity(batch);
        Ok(Self { socket, rx, tx, buffers, patience: Patience::default(), batch, offer: OFFER_LOW, timestamps: false })
    }

    /// Has the kernel say when frames arrived, or no more.
    pub(super) fn set_timestamps(&mut self, on: bool) -> io::Result<()> {
        sys::set_timestamps(self.socket.as_fd(), on)?;
        self.timestamps = on;
        Ok(())
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn take_kernel_drops(&self) -> u64 {
        sys::take_drops(self.socket.as_fd()).unwrap_or(0)
    }

    pub(super) fn rx(
        &mut self,
        pool: &mut Pool,
        out: &mut Vec<FrameRef>,
        budget: usize,
        counters: &mut PortCounters,
    ) -> Result<RxOutcome, Fault> {
        let wanted = budget.min(self.offer).min(self.batch);
        self.buffers.extend(std::iter::from_fn(|| pool.alloc()).take(wanted));
        let offered = self.buffers.len();
        if offered == 0 {
            return Ok(RxOutcome::NoBuffer);
        }
        let result = self.rx.receive(self.socket.as_fd(), pool, &self.buffers);
        let received = *result.as_ref().unwrap_or(&0);
        // Twice what came: a burst has the whole batch after a few calls.
        self.offer = (2 * received).max(OFFER_LOW);
        // The clocks are read once for all of them.
        let moment = (self.timestamps && received > 0).then(Moment::now);
        for (slot, frame) in self.buffers.drain(..).enumerate() {
            if slot < received {
                let delivery = self.rx.received(slot);
                if let (Some(moment), Some(wall)) = (moment, delivery.auxiliary.arrived) {
                    pool.set_arrived(&frame, moment.instant_of(wall));
                }
                intake::accept(pool, frame, delivery, out, counters);
            } else {
                pool.free(frame);
            }
        }
        match result {
            Ok(_) if received == offered => Ok(RxOutcome::More),
            Ok(_) => Ok(RxOutcome::Empty),
            Err(error) => rx_error(&error, counters),
        }
    }

    pub(super) fn tx(&mut self, pool: &mut Pool, queue: &mut VecDeque<FrameRef>, counters: &mut PortCounters) -> Result<TxOutcome, Fault> {
        while !queue.is_empty() {
            match self.tx.send(self.socket.as_fd(), pool, queue) {
                Ok(sent) => {
                    self.patience.restore();
                    queue.drain(..sent.min(queue.len())).for_each(|frame| pool.free(frame));
                }
                Err(error) => {
                    if let Some(outcome) = tx_error(&error, &mut self.patience, pool, queue, counters)? {
                        return Ok(outcome);
                    }
                }
            }
        }
        Ok(TxOutcome::Drained)
    }
}

/// More frames per call win nothing and make the worker deaf for longer.
const MAX_BATCH: usize = 1024;

/// What an error of a receive means for the call.
pub(super) fn rx_error(error: &io::Error, counters: &mut PortCounters) -> Result<RxOutcome, Fault> {
    match Trouble::from(error) {
        Trouble::Later => Ok(RxOutcome::Empty),
        Trouble::Again => Ok(RxOutcome::More),
        Trouble::Port(fault) => Err(fault),
        // The kernel took a frame off its queue whose unfinished work has no description.
        Trouble::Frame | Trouble::TooLong => {
            counters.drops.count(DropReason::SuperFrame);
            Ok(RxOutcome::More)
        }
    }
}

/// What an error of a send means for the first frame of the queue: it waits (then the call ends), or it is dropped.
pub(super) fn tx_error(
    error: &io::Error,
    patience: &mut Patience,
    pool: &mut Pool,
    queue: &mut VecDeque<FrameRef>,
    counters: &mut PortCounters,
) -> Result<Option<TxOutcome>, Fault> {
    let reason = match Trouble::from(error) {
        Trouble::Again => return Ok(None),
        Trouble::Port(fault) => return Err(fault),
        Trouble::Later => {
            counters.tx_refusals += 1;
            if !patience.is_exhausted_by_refusal() {
                return Ok(Some(TxOutcome::Blocked));
            }
            DropReason::SendFailed
        }
        Trouble::TooLong => DropReason::Oversize,
        Trouble::Frame => DropReason::SendFailed,
    };
    drop_first(reason, pool, queue, counters);
    Ok(None)
}

/// Drops the first frame of the queue.
pub(super) fn drop_first(reason: DropReason, pool: &mut Pool, queue: &mut VecDeque<FrameRef>, counters: &mut PortCounters) {
    if let Some(frame) = queue.pop_front() {
        counters.drops.count(reason);
        pool.free(frame);
    }
}
