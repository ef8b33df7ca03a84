//! The attachment to a daemon, from which everything else is made.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weft_proto::transport::{Access, RequestId};
use weft_proto::wire::MacAddr;

use crate::cq::CompletionQueue;
use crate::error::Error;
use crate::link::{Link, deadline, exactly};
use crate::protocol::{Command, Event, RecoveryOffer, Reply, SrqName};
use crate::qp::{QpOptions, QueuePair};
use crate::region::MemoryRegion;
use crate::shm::{Block, ShmError};
use crate::srq::SharedReceiveQueue;

/// An application's attachment to the daemon of this host.
///
/// Clones share the attachment; queue pairs, completion queues and regions keep it alive and may be moved to other
/// threads. When the last of them is dropped, or the process dies, the daemon closes the application's connections.
#[derive(Clone, Debug)]
pub struct Context {
    link: Arc<Link>,
}

impl Context {
    /// Attaches to the daemon listening at `path`. `name` (up to 64 bytes) appears in the daemon's tables and log.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if nobody listens there, [`Error::Refused`] if the daemon takes no more applications.
    pub fn attach(path: impl AsRef<Path>, name: &str) -> Result<Self, Error> {
        Ok(Self { link: Arc::new(Link::attach(path.as_ref(), name)?) })
    }

    /// This host's Ethernet address.
    pub fn mac(&self) -> MacAddr {
        self.link.mac()
    }

    /// Registers `len` new bytes, all zero.
    ///
    /// # Errors
    /// [`Error::Refused`] beyond the daemon's limits, [`Error::Memory`] if the system has not that much.
    pub fn register(&self, len: usize, access: Access) -> Result<MemoryRegion, Error> {
        let (block, fd) = Block::create("weft-region", len)?;
        let bytes = u64::try_from(len).map_err(|_| ShmError::BadLength(u64::MAX))?;
        let command = Command::RegisterMemory { base: 0, len: bytes, access };
        match self.link.request(command, &[fd.as_fd()])?.reply {
            Reply::Registered { lkey, rkey } => Ok(MemoryRegion { link: Arc::clone(&self.link), block, lkey, rkey, registered: true }),
            _ => Err(Error::Protocol("unexpected reply")),
        }
    }

    /// Creates a completion queue for queue pairs whose depths add up to at most `depth`
    /// (send and receive counted apart, if both complete here). A shared receive queue counts with its depth once,
    /// however many of its queue pairs complete their receives here.
    ///
    /// # Errors
    /// [`Error::Refused`] beyond the daemon's limits.
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue, Error> {
        let answer = self.link.request(Command::CreateCq { depth }, &[])?;
        let Reply::CqCreated { cq, capacity } = answer.reply else { return Err(Error::Protocol("unexpected reply")) };
        let [ring, wake] = exactly(answer.fds)?;
        CompletionQueue::new(Arc::clone(&self.link), cq, capacity, ring, wake)
    }

    /// Creates a queue pair, not yet connected.
    ///
    /// # Errors
    /// [`Error::Refused`] beyond the daemon's limits, or if a completion queue has no room for the depths asked for.
    pub fn create_qp(&self, send_cq: &CompletionQueue, recv_cq: &CompletionQueue, options: &QpOptions) -> Result<QueuePair, Error> {
        self.new_qp(send_cq, recv_cq, None, options)
    }

    /// Creates a queue pair that takes its receives from `srq`, not yet connected. The receive depth of `options` is not used.
    ///
    /// # Errors
    /// As for [`Context::create_qp`].
    pub fn create_qp_with_srq(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        options: &QpOptions,
    ) -> Result<QueuePair, Error> {
        self.new_qp(send_cq, recv_cq, Some(srq), &QpOptions { rq_depth: 0, ..options.clone() })
    }

    fn new_qp(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        srq: Option<&SharedReceiveQueue>,
        options: &QpOptions,
    ) -> Result<QueuePair, Error> {
        let command = Command::CreateQp {
            send_cq: send_cq.id(),
            recv_cq: recv_cq.id(),
            sq_depth: options.sq_depth,
            rq_depth: options.rq_depth,
            recovery: options.recovery.map(RecoveryOffer),
            priority: options.priority,
            srq: srq.map(|srq| SrqName(srq.id())),
        };
        let answer = self.link.request(command, &[])?;
        QueuePair::new(Arc::clone(&self.link), answer, [send_cq.shared(), recv_cq.shared()], srq.map(SharedReceiveQueue::shared), options)
    }

    /// Creates a shared receive queue: up to `depth` receives for whichever of its queue pairs needs one next.
    ///
    /// # Errors
    /// [`Error::Refused`] beyond the daemon's limits.
    pub fn create_srq(&self, depth: u32) -> Result<SharedReceiveQueue, Error> {
        SharedReceiveQueue::new(Arc::clone(&self.link), self.link.request(Command::CreateSrq { depth }, &[])?, depth)
    }

    /// Takes connection requests to `service`: they come as [`Event::ConnectRequest`].
    ///
    /// # Errors
    /// [`Error::Refused`] if another application listens there.
    pub fn listen(&self, service: u16) -> Result<(), Error> {
        self.link.request(Command::Listen { service }, &[]).map(drop)
    }

    /// Stops taking connection requests to `service`.
    ///
    /// # Errors
    /// [`Error::Refused`] if this application does not listen there.
    pub fn unlisten(&self, service: u16) -> Result<(), Error> {
        self.link.request(Command::Unlisten { service }, &[]).map(drop)
    }

    /// Turns a connection request down, with up to 192 bytes for the peer.
    ///
    /// # Errors
    /// [`Error::Refused`] if the request is no longer there.
    pub fn reject(&self, request: RequestId, private: &[u8]) -> Result<(), Error> {
        self.link.request(Command::Reject { request, private: private.to_vec() }, &[]).map(drop)
    }

    /// The next event, waiting for one up to `timeout`. `None` if none came.
    ///
    /// Events wait until they are taken: an application that listens must take them. Those that `connect`, `accept`,
    /// `drain` and `disconnect` wait for do not come here.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub fn next_event(&self, timeout: Duration) -> Result<Option<Event>, Error> {
        self.link.wait_any(deadline(timeout))
    }
}
