//! Queue pairs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_proto::transport::work::MAX_MESSAGE;
use weft_proto::transport::{Data, QpNum, Recovery, RecvWork, RequestId, SendOp, SendWork, SgList, Sge};

use crate::cq::{CompletionQueue, CqShared};
use crate::error::{Error, PostError};
use crate::layout::{Entry, RecvEntry, SendEntry};
use crate::link::{Answer, Link, exactly};
use crate::protocol::{Command, Event, Reply};
use crate::ring::{Producer, PushError};

/// What a new queue pair should be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpOptions {
    /// Most send requests outstanding.
    pub sq_depth: u32,
    /// Most receive requests outstanding; 0 for a queue pair that never receives.
    pub rq_depth: u32,
    /// Recovery mode to offer instead of the daemon's.
    pub recovery: Option<Recovery>,
}

impl Default for QpOptions {
    fn default() -> Self {
        Self { sq_depth: 32, rq_depth: 32, recovery: None }
    }
}

/// What the peers agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// What the peer's application sent along.
    pub private: Vec<u8>,
    /// The recovery mode.
    pub recovery: Recovery,
}

/// The outstanding requests of one direction.
///
/// The ring carries consecutive numbers instead of the application's names for its requests. So a completion tells
/// which requests are done, unsignalled ones before it included, without a lock between the posting and the polling thread.
#[derive(Debug)]
pub(crate) struct Window {
    depth: u64,
    names: Box<[AtomicU64]>,
    /// Requests below this number are done.
    retired: AtomicU64,
}

impl Window {
    fn new(depth: u32) -> Self {
        Self { depth: depth.into(), names: (0..depth.max(1)).map(|_| AtomicU64::new(0)).collect(), retired: AtomicU64::new(0) }
    }

    fn name(&self, number: u64) -> &AtomicU64 {
        let place = number % self.names.len() as u64;
        &self.names[usize::try_from(place).unwrap_or(0)]
    }

    fn has_room(&self, next: u64) -> bool {
        // Acquire: the name must not be overwritten before the polling thread has read it.
        next.saturating_sub(self.retired.load(Ordering::Acquire)) < self.depth
    }

    /// A completion for request `number` came: the application's name for it.
    pub(crate) fn retire(&self, number: u64) -> u64 {
        let name = self.name(number).load(Ordering::Relaxed);
        self.retired.fetch_max(number.saturating_add(1), Ordering::Release);
        name
    }
}

/// The windows of a queue pair, shared with its completion queues.
#[derive(Debug)]
pub(crate) struct Windows {
    pub(crate) send: Window,
    pub(crate) recv: Window,
}

/// One end of a reliable connection: requests are posted here and complete in its completion queues.
///
/// Dropping it closes the connection; see [`QueuePair::disconnect`] for the orderly way.
#[derive(Debug)]
pub struct QueuePair {
    link: Arc<Link>,
    num: QpNum,
    slot: u16,
    windows: Arc<Windows>,
    send_ring: Producer<SendEntry>,
    recv_ring: Producer<RecvEntry>,
    sends: u64,
    recvs: u64,
    cqs: [Arc<CqShared>; 2],
}

impl QueuePair {
    pub(crate) fn new(
        link: Arc<Link>,
        answer: Answer,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        options: &QpOptions,
    ) -> Result<Self, Error> {
        let Reply::QpCreated { qp: num, slot, sq_capacity, rq_capacity } = answer.reply else {
            return Err(Error::Protocol("unexpected reply"));
        };
        let [send_fd, recv_fd] = exactly(answer.fds)?;
        let send_ring = Producer::map(send_fd, sq_capacity)?;
        let recv_ring = Producer::map(recv_fd, rq_capacity)?;
        let windows = Arc::new(Windows { send: Window::new(options.sq_depth), recv: Window::new(options.rq_depth) });
        let cqs = [Arc::clone(send_cq.shared()), Arc::clone(recv_cq.shared())];
        cqs.iter().for_each(|cq| cq.add(num, &windows));
        Ok(Self { link, num, slot, windows, send_ring, recv_ring, sends: 0, recvs: 0, cqs })
    }

    /// The queue pair's number, as in completions and events.
    pub const fn num(&self) -> QpNum {
        self.num
    }

    /// Connects to `service` on `host` (a name in the daemon's configuration, or an Ethernet address), with up to 192
    /// bytes for the application there.
    ///
    /// # Errors
    /// [`Error::ConnectFailed`] tells why, [`Error::TimedOut`] if there is no outcome in time.
    pub fn connect(&mut self, host: &str, service: u16, private: &[u8], timeout: Duration) -> Result<Connected, Error> {
        let command = Command::Connect { qp: self.num, host: host.to_owned(), service, private: private.to_vec() };
        self.establish(command, timeout)
    }

    /// Accepts a connection request, with up to 192 bytes for the application there.
    ///
    /// # Errors
    /// As for [`QueuePair::connect`].
    pub fn accept(&mut self, request: RequestId, private: &[u8], timeout: Duration) -> Result<Connected, Error> {
        self.establish(Command::Accept { request, qp: self.num, private: private.to_vec() }, timeout)
    }

    fn establish(&self, command: Command, timeout: Duration) -> Result<Connected, Error> {
        let what = command.description();
        let deadline = Instant::now() + timeout;
        self.link.request(command, &[])?;
        match self.link.wait_event(deadline, |event| is_connection_outcome(event, self.num))? {
            Some(Event::Established { private, recovery, .. }) => Ok(Connected { private, recovery }),
            Some(Event::ConnectFailed { reason, private, .. }) => Err(Error::ConnectFailed { reason, private }),
            Some(_) => Err(Error::Closed),
            None => Err(Error::TimedOut { what, timeout }),
        }
    }

    /// Closes the connection: outstanding requests complete as flushed. Waits until that is so. A queue pair is
    /// connected once in its life; for another connection create another.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no connection, [`Error::TimedOut`] if the peer does not take notice in time.
    pub fn disconnect(&mut self, timeout: Duration) -> Result<(), Error> {
        let command = Command::Disconnect { qp: self.num };
        let what = command.description();
        self.link.request(command, &[])?;
        let ended = |event: &Event| matches!(event, Event::Disconnected { qp } | Event::QpFailed { qp, .. } if *qp == self.num);
        match self.link.wait_event(Instant::now() + timeout, ended)? {
            Some(_) => Ok(()),
            None => Err(Error::TimedOut { what, timeout }),
        }
    }

    /// Posts a send request. It will have exactly one completion if it is signalled or fails.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_send(&mut self, work: &SendWork) -> Result<(), PostError> {
        if work.local.total_len() > MAX_MESSAGE.into() {
            return Err(PostError::TooLong);
        }
        self.check_daemon()?;
        let entry = SendEntry { wr_id: self.sends, ..SendEntry::encode(work) };
        post(&mut self.send_ring, &self.windows.send, &mut self.sends, work.wr_id, &entry)?;
        self.link.ring_doorbell(self.slot);
        Ok(())
    }

    /// Posts a receive request. It will have exactly one completion.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_recv(&mut self, work: &RecvWork) -> Result<(), PostError> {
        self.check_daemon()?;
        let entry = RecvEntry { wr_id: self.recvs, ..RecvEntry::encode(work) };
        post(&mut self.recv_ring, &self.windows.recv, &mut self.recvs, work.wr_id, &entry)?;
        self.link.ring_doorbell(self.slot);
        Ok(())
    }

    /// Sends `pieces` as one message into the peer's next posted receive; signalled.
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`].
    pub fn send(&mut self, wr_id: u64, pieces: &[Sge], imm: Option<u32>) -> Result<(), PostError> {
        self.post_pieces(wr_id, SendOp::Send, pieces, imm)
    }

    /// Writes `pieces` one after another to the peer's memory; signalled. With an immediate, the peer is told: this
    /// consumes a receive there.
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`].
    pub fn write(&mut self, wr_id: u64, pieces: &[Sge], remote_addr: u64, rkey: u32, imm: Option<u32>) -> Result<(), PostError> {
        self.post_pieces(wr_id, SendOp::Write { remote_addr, rkey }, pieces, imm)
    }

    /// Makes room for an incoming message in `pieces`.
    ///
    /// # Errors
    /// As for [`QueuePair::post_recv`].
    pub fn recv(&mut self, wr_id: u64, pieces: &[Sge]) -> Result<(), PostError> {
        let local = SgList::new(pieces).ok_or(PostError::TooManySges)?;
        self.post_recv(&RecvWork { wr_id, local })
    }

    fn post_pieces(&mut self, wr_id: u64, op: SendOp, pieces: &[Sge], imm: Option<u32>) -> Result<(), PostError> {
        let local = SgList::new(pieces).ok_or(PostError::TooManySges)?;
        self.post_send(&SendWork { imm, ..SendWork::new(wr_id, op, Data::List(local)) })
    }

    fn check_daemon(&self) -> Result<(), PostError> {
        if self.link.is_gone() { Err(PostError::DaemonGone) } else { Ok(()) }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.cqs.iter().for_each(|cq| cq.remove(self.num));
        self.link.farewell(Command::DestroyQp { qp: self.num });
    }
}

fn is_connection_outcome(event: &Event, num: QpNum) -> bool {
    match event {
        Event::Established { qp, .. } | Event::ConnectFailed { qp, .. } | Event::Disconnected { qp } | Event::QpFailed { qp, .. } => {
            *qp == num
        }
        Event::ConnectRequest { .. } | Event::CqOverrun { .. } => false,
    }
}

/// Writes an entry, remembers the application's name for it, and shows it to the worker.
fn post<E: Entry>(ring: &mut Producer<E>, window: &Window, next: &mut u64, name: u64, entry: &E) -> Result<(), PostError> {
    if !window.has_room(*next) {
        return Err(PostError::QueueFull);
    }
    window.name(*next).store(name, Ordering::Relaxed);
    match ring.push(entry) {
        Ok(()) => {}
        Err(PushError::Full) => return Err(PostError::QueueFull),
        Err(PushError::Corrupt(_)) => return Err(PostError::DaemonGone),
    }
    ring.publish();
    *next += 1;
    Ok(())
}
