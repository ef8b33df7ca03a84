//! What applications ask about shared receive queues.

use crate::transport::endpoint::Endpoint;
use crate::transport::endpoint::commands::MAX_DEPTH;
use crate::transport::{AppId, CommandError, PostError, RecvWork, SrqId};

impl Endpoint {
    /// Makes a shared receive queue for `depth` receives. Queue pairs name it when they are made.
    ///
    /// # Errors
    /// [`CommandError::BadArgument`] for a depth of 0 or beyond 65,536, [`CommandError::LimitReached`].
    pub fn create_srq(&mut self, owner: AppId, depth: u32) -> Result<SrqId, CommandError> {
        if depth == 0 || depth > MAX_DEPTH {
            return Err(CommandError::BadArgument);
        }
        self.shared.create(owner, depth)
    }

    /// Posts a receive for whichever queue pair needs it first. It completes in that queue pair's receive queue.
    ///
    /// # Errors
    /// [`PostError::NoSuchSrq`], [`PostError::QueueFull`]; nothing was queued.
    pub fn post_srq_recv(&mut self, owner: AppId, srq: SrqId, work: RecvWork) -> Result<(), PostError> {
        let queue = self.shared.get_mut(owner, srq).ok_or(PostError::NoSuchSrq)?;
        if queue.is_full() {
            return Err(PostError::QueueFull);
        }
        queue.push(work);
        Ok(())
    }

    /// Asks for [`Event::SrqLimit`](crate::transport::Event::SrqLimit), once, when fewer than `limit` receives are
    /// posted, at once if that is so already. 0 asks for nothing.
    ///
    /// # Errors
    /// [`CommandError::NoSuchSrq`], [`CommandError::BadArgument`] for a limit beyond the depth.
    pub fn set_srq_limit(&mut self, owner: AppId, srq: SrqId, limit: u32) -> Result<(), CommandError> {
        let queue = self.shared.get_mut(owner, srq).ok_or(CommandError::NoSuchSrq)?;
        queue.set_limit(limit).ok_or(CommandError::BadArgument)?;
        self.events.extend(queue.take_news());
        Ok(())
    }

    /// Forgets a shared receive queue. Receives that no queue pair has taken vanish without completions.
    ///
    /// # Errors
    /// [`CommandError::NoSuchSrq`], [`CommandError::WrongState`] while queue pairs use it.
    pub fn destroy_srq(&mut self, owner: AppId, srq: SrqId) -> Result<(), CommandError> {
        self.shared.destroy(owner, srq)
    }

    /// Shared receive queues that exist.
    pub fn srq_count(&self) -> usize {
        self.shared.count()
    }
}
