//! The portable backend: pnet's datalink channel, one frame per call.
//!
//! pnet gives neither the VLAN tag that the kernel took out of a frame nor the state of its checksum, and it has a
//! wait in every call. So the socket below it is looked at first: its next frame's length, tag and checksum state are
//! there to be read before pnet takes the frame, and pnet is asked only when there is one. Unfinished checksums are
//! finished here on the way out; super-frames have nobody to cut them up and are dropped.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use pnet::datalink::{self, Channel, Config, DataLinkReceiver, DataLinkSender, NetworkInterface};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::sockopt;
use weft_proto::pool::Offload;
use weft_proto::{DropReason, FrameRef, Pool};

use super::fault::{Fault, Patience};
use super::intake::{self, Delivery};
use super::packet::{drop_first, rx_error, tx_error, unbound_socket};
use super::{PortCounters, PortError, PortSpec, Role, RxOutcome, SUPER_FRAME, TxOutcome, longest_frame, offload, sys};
use crate::link::Link;

/// A channel of pnet, and a second handle to its socket.
pub(super) struct Pnet {
    socket: OwnedFd,
    sender: Box<dyn DataLinkSender>,
    receiver: Box<dyn DataLinkReceiver>,
    patience: Patience,
    /// A copy of a frame whose checksum had to be finished.
    finished: Vec<u8>,
    /// Frames longer than this are super-frames.
    frame_limit: usize,
    batch: usize,
}

impl Pnet {
    pub(super) fn open(spec: &PortSpec, link: &Link) -> Result<Self, PortError> {
        let socket = unbound_socket(spec)?;
        let twin = fcntl_dupfd_cloexec(&socket, 0).map_err(|error| PortError::refused(spec, "share the socket")(error.into()))?;
        let config = Config {
            read_buffer_size: longest_frame(SUPER_FRAME),
            read_timeout: Some(Duration::ZERO),
            write_timeout: Some(Duration::ZERO),
            promiscuous: spec.role == Role::Switch,
            // pnet owns this handle from here on, also if it fails.
            socket_fd: Some(twin.into_raw_fd()),
            ..Config::default()
        };
        let channel = datalink::channel(&describe(link), config).map_err(PortError::refused(spec, "open a datalink channel"))?;
        let Channel::Ethernet(sender, receiver) = channel else {
            let (port, interface) = (spec.name.clone(), spec.interface.clone());
            return Err(PortError::NotEthernet { port, interface });
        };
        if spec.role == Role::Switch {
            tracing::info!(port = %spec.name, interface = %spec.interface, "the pnet backend drops super-frames: ordinary TCP is slow through it unless its senders run `ethtool -K DEVICE tso off gso off`; backend `packet` carries them");
        }
        let frame_limit = longest_frame(link.mtu as usize);
        let (finished, batch) = (Vec::with_capacity(longest_frame(SUPER_FRAME)), spec.batch.max(1));
        Ok(Self { socket, sender, receiver, patience: Patience::default(), finished, frame_limit, batch })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The interface's MTU is another.
    pub(super) const fn set_mtu(&mut self, mtu: usize) {
        self.frame_limit = longest_frame(mtu);
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
        for _ in 0..budget.min(self.batch) {
            let Some(frame) = pool.alloc() else { return Ok(RxOutcome::NoBuffer) };
            match self.receive(pool.room_mut(&frame)) {
                Ok(delivery) => self.accept(pool, frame, delivery, out, counters),
                Err(error) => {
                    pool.free(frame);
                    return rx_error(&error, counters);
                }
            }
        }
        Ok(RxOutcome::More)
    }

    /// The next frame, copied into the room as far as it fits. Never waits: pnet is called only if there is one.
    fn receive(&mut self, room: &mut [u8]) -> io::Result<Delivery> {
        let (len, auxiliary) = sys::peek(self.socket.as_fd())?;
        let frame = self.receiver.next()?;
        let fits = frame.len().min(room.len());
        room[..fits].copy_from_slice(&frame[..fits]);
        let missing = auxiliary.checksum_missing.then(|| offload::locate_checksum(frame)).flatten();
        Ok(Delivery { len: fits, cut_off: len > fits, auxiliary, offload: missing.unwrap_or_default() })
    }

    fn accept(&self, pool: &mut Pool, frame: FrameRef, delivery: Delivery, out: &mut Vec<FrameRef>, counters: &mut PortCounters) {
        if delivery.len > self.frame_limit {
            counters.drops.count(DropReason::SuperFrame);
            pool.free(frame);
        } else {
            intake::accept(pool, frame, delivery, out, counters);
        }
    }

    pub(super) fn tx(&mut self, pool: &mut Pool, queue: &mut VecDeque<FrameRef>, counters: &mut PortCounters) -> Result<TxOutcome, Fault> {
        while let Some(frame) = queue.front() {
            let offload = pool.offload(frame);
            if offload.is_super_frame() {
                drop_first(DropReason::SuperFrame, pool, queue, counters);
                continue;
            }
            match self.send(pool.bytes(frame), offload) {
                Ok(()) => {
                    self.patience.restore();
                    queue.drain(..1).for_each(|frame| pool.free(frame));
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

    fn send(&mut self, frame: &[u8], offload: Offload) -> io::Result<()> {
        let result = if offload.flags & offload::NEEDS_CHECKSUM == 0 {
            self.sender.send_to(frame, None)
        } else {
            // The frame may be shared with another port, so it is finished in a buffer of our own.
            self.finished.clear();
            self.finished.extend_from_slice(frame);
            if !offload::finish_checksum(&mut self.finished, offload) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            self.sender.send_to(&self.finished, None)
        };
        result.unwrap_or_else(|| Err(io::ErrorKind::InvalidInput.into())).map_err(|error| self.underlying(error))
    }

    /// pnet hides the error of a socket that failed before the call; the socket still knows it.
    fn underlying(&self, error: io::Error) -> io::Error {
        match sockopt::socket_error(&self.socket) {
            Ok(Err(pending)) if error.raw_os_error().is_none() => pending.into(),
            _ => error,
        }
    }
}

/// The interface in pnet's words; only number and address matter for a channel.
fn describe(link: &Link) -> NetworkInterface {
    let [a, b, c, d, e, f] = link.mac.0;
    NetworkInterface {
        name: link.name.clone(),
        description: String::new(),
        index: link.index,
        mac: Some(datalink::MacAddr::new(a, b, c, d, e, f)),
        ips: Vec::new(),
        flags: 0,
    }
}

impl std::fmt::Debug for Pnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pnet").field("socket", &self.socket).field("frame_limit", &self.frame_limit).finish_non_exhaustive()
    }
}
