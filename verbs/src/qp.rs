//! Queue pairs.

use std::sync::Arc;
use std::time::Duration;

use weft_proto::transport::work::MAX_MESSAGE;
use weft_proto::transport::{AtomicOp, Data, Inline, QpNum, Recovery, RecvWork, RequestId, SendOp, SendWork, SgList, Sge};

use crate::cq::CqShared;
use crate::error::{Error, PostError};
use crate::layout::{self, RecvEntry, SendEntry};
use crate::link::{Answer, Link, deadline, exactly};
use crate::protocol::{Command, Event, Reply};
use crate::ring::Producer;
use crate::srq::SrqShared;
use crate::window::{Window, Windows, push};

/// What a new queue pair should be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpOptions {
    /// Most send requests outstanding.
    pub sq_depth: u32,
    /// Most receive requests outstanding; 0 for a queue pair that never receives.
    pub rq_depth: u32,
    /// Recovery mode to offer instead of the daemon's.
    pub recovery: Option<Recovery>,
    /// Priority for stop control instead of the daemon's: 0, which stops first, to 15. Half of it is the 802.1p priority of the
    /// frames.
    pub priority: Option<u8>,
}

impl Default for QpOptions {
    fn default() -> Self {
        Self { sq_depth: 32, rq_depth: 32, recovery: None, priority: None }
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
    /// Destroyed, if it is the last user, after this queue pair.
    srq: Option<Arc<SrqShared>>,
}

impl QueuePair {
    pub(crate) fn new(
        link: Arc<Link>,
        answer: Answer,
        [send_cq, recv_cq]: [&Arc<CqShared>; 2],
        srq: Option<&Arc<SrqShared>>,
        options: &QpOptions,
    ) -> Result<Self, Error> {
        let Reply::QpCreated { qp: num, slot, sq_capacity, rq_capacity } = answer.reply else {
            return Err(Error::Protocol("unexpected reply"));
        };
        let [send_fd, recv_fd] = exactly(answer.fds)?;
        let send_ring = Producer::map(send_fd, sq_capacity)?;
        let recv_ring = Producer::map(recv_fd, rq_capacity)?;
        let windows = Arc::new(Windows { send: Window::new(options.sq_depth), recv: Window::new(options.rq_depth) });
        let cqs = [Arc::clone(send_cq), Arc::clone(recv_cq)];
        cqs.iter().for_each(|cq| cq.add(num, &windows));
        if let Some(srq) = srq {
            recv_cq.add_srq(srq);
        }
        Ok(Self { link, num, slot, windows, send_ring, recv_ring, sends: 0, recvs: 0, cqs, srq: srq.map(Arc::clone) })
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
        let deadline = deadline(timeout);
        let outcome = self.link.expect(self.num);
        self.link.request(command, &[])?;
        match outcome.wait(deadline, is_connection_outcome)? {
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
        let outcome = self.link.expect(self.num);
        self.link.request(command, &[])?;
        let ended = |event: &Event| matches!(event, Event::Disconnected { .. } | Event::QpFailed { .. });
        match outcome.wait(deadline(timeout), ended)? {
            Some(_) => Ok(()),
            None => Err(Error::TimedOut { what, timeout }),
        }
    }

    /// Begins no further requests, and waits until those begun are done. Others wait for [`QueuePair::resume`]: those
    /// that are posted from now on, and those posted shortly before that the daemon has not seen. Receiving goes on.
    ///
    /// # Errors
    /// [`Error::Refused`] if the queue pair is not connected, [`Error::Closed`] if it fails meanwhile,
    /// [`Error::TimedOut`] if the requests are not done in time: it goes on draining then.
    pub fn drain(&mut self, timeout: Duration) -> Result<(), Error> {
        let command = Command::Drain { qp: self.num };
        let what = command.description();
        let outcome = self.link.expect(self.num);
        self.link.request(command, &[])?;
        let over = |event: &Event| matches!(event, Event::SendQueueDrained { .. } | Event::Disconnected { .. } | Event::QpFailed { .. });
        match outcome.wait(deadline(timeout), over)? {
            Some(Event::SendQueueDrained { .. }) => Ok(()),
            Some(_) => Err(Error::Closed),
            None => Err(Error::TimedOut { what, timeout }),
        }
    }

    /// Goes on with the requests after [`QueuePair::drain`], or after an [`Event::SendQueueFailed`].
    ///
    /// # Errors
    /// [`Error::Refused`] if the queue pair is in neither state.
    pub fn resume(&mut self) -> Result<(), Error> {
        self.link.request(Command::Resume { qp: self.num }, &[])?;
        // What a drain that timed out was to be told came before the answer, and must not end the next one.
        self.link.forget_events(|event| matches!(event, Event::SendQueueDrained { qp } if *qp == self.num));
        Ok(())
    }

    /// Posts a send request. It will have exactly one completion if it is signalled or fails.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_send(&mut self, work: &SendWork) -> Result<(), PostError> {
        if work.local.total_len() > MAX_MESSAGE.into() {
            return Err(PostError::TooLong);
        }
        layout::check(work)?;
        self.check_daemon()?;
        let window = &self.windows.send;
        if !window.has_room(self.sends) {
            return Err(PostError::QueueFull);
        }
        window.set_name(self.sends, work.wr_id);
        push(&mut self.send_ring, &SendEntry { wr_id: self.sends, ..SendEntry::encode(work) })?;
        self.sends += 1;
        self.link.ring_doorbell(self.slot);
        Ok(())
    }

    /// Posts a receive request. It will have exactly one completion.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_recv(&mut self, work: &RecvWork) -> Result<(), PostError> {
        if self.srq.is_some() {
            return Err(PostError::SharedReceives);
        }
        self.check_daemon()?;
        let window = &self.windows.recv;
        if !window.has_room(self.recvs) {
            return Err(PostError::QueueFull);
        }
        window.set_name(self.recvs, work.wr_id);
        push(&mut self.recv_ring, &RecvEntry { wr_id: self.recvs, ..RecvEntry::encode(work) })?;
        self.recvs += 1;
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

    /// As [`QueuePair::send`], for up to 64 bytes that need no registered memory and may change as soon as this returns.
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`], and [`PostError::TooMuchInline`].
    pub fn send_inline(&mut self, wr_id: u64, data: &[u8], imm: Option<u32>) -> Result<(), PostError> {
        self.post_inline(wr_id, SendOp::Send, data, imm)
    }

    /// Sends `pieces` as one message and makes `rkey`, a key of the peer's, void before its application is told; signalled.
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`].
    pub fn send_invalidate(&mut self, wr_id: u64, pieces: &[Sge], rkey: u32) -> Result<(), PostError> {
        self.post_pieces(wr_id, SendOp::SendInvalidate { rkey }, pieces, None)
    }

    /// Writes `pieces` one after another to the peer's memory; signalled. With an immediate, the peer is told: this
    /// consumes a receive there.
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`].
    pub fn write(&mut self, wr_id: u64, pieces: &[Sge], remote_addr: u64, rkey: u32, imm: Option<u32>) -> Result<(), PostError> {
        self.post_pieces(wr_id, SendOp::Write { remote_addr, rkey }, pieces, imm)
    }

    /// As [`QueuePair::write`], for up to 64 bytes that need no registered memory and may change as soon as this returns.
    ///
    /// # Errors
    /// As for [`QueuePair::send_inline`].
    pub fn write_inline(&mut self, wr_id: u64, data: &[u8], remote_addr: u64, rkey: u32, imm: Option<u32>) -> Result<(), PostError> {
        self.post_inline(wr_id, SendOp::Write { remote_addr, rkey }, data, imm)
    }

    /// Reads from the peer's memory, from `remote_addr` on, into `pieces` one after another; signalled. The region of
    /// each piece must allow local writing.
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`].
    pub fn read(&mut self, wr_id: u64, pieces: &[Sge], remote_addr: u64, rkey: u32) -> Result<(), PostError> {
        self.post_pieces(wr_id, SendOp::Read { remote_addr, rkey }, pieces, None)
    }

    /// Stores `swap` in eight bytes of the peer's memory if they are `compare`, in one step, and puts what they were
    /// before into the eight bytes of `result`; signalled. `remote_addr` must be a multiple of 8. All three are numbers
    /// in the byte order of the machine that holds them.
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`].
    pub fn compare_swap(&mut self, wr_id: u64, result: Sge, remote_addr: u64, rkey: u32, compare: u64, swap: u64) -> Result<(), PostError> {
        let op = AtomicOp::CompareSwap { compare, swap };
        self.post_pieces(wr_id, SendOp::Atomic { remote_addr, rkey, op }, &[result], None)
    }

    /// Adds `add`, modulo 2^64, to eight bytes of the peer's memory in one step, and puts what they were before into
    /// the eight bytes of `result`; signalled. Otherwise as [`QueuePair::compare_swap`].
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`].
    pub fn fetch_add(&mut self, wr_id: u64, result: Sge, remote_addr: u64, rkey: u32, add: u64) -> Result<(), PostError> {
        let op = SendOp::Atomic { remote_addr, rkey, op: AtomicOp::FetchAdd { add } };
        self.post_pieces(wr_id, op, &[result], None)
    }

    /// Makes a key of this application's void after all earlier requests are done; signalled. The region stays
    /// registered until it is dropped.
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`].
    pub fn local_invalidate(&mut self, wr_id: u64, key: u32) -> Result<(), PostError> {
        self.post_pieces(wr_id, SendOp::LocalInvalidate { key }, &[], None)
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

    fn post_inline(&mut self, wr_id: u64, op: SendOp, data: &[u8], imm: Option<u32>) -> Result<(), PostError> {
        let local = Inline::new(data).ok_or(PostError::TooMuchInline)?;
        self.post_send(&SendWork { imm, ..SendWork::new(wr_id, op, Data::Inline(local)) })
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

const fn is_connection_outcome(event: &Event) -> bool {
    matches!(event, Event::Established { .. } | Event::ConnectFailed { .. } | Event::Disconnected { .. } | Event::QpFailed { .. })
}
