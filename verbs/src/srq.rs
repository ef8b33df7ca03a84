//! Shared receive queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_proto::transport::{RecvWork, SgList, Sge, SrqId};

use crate::error::{Error, PostError};
use crate::layout::RecvEntry;
use crate::link::{Answer, Link, exactly};
use crate::protocol::{Command, Reply};
use crate::ring::Producer;
use crate::window::{Places, push};

/// Set in the ring's number of a receive of a shared receive queue. The 31 bits below name the queue, the low 32 its place.
const SHARED: u64 = 1 << 63;

/// Tags of queues, so that a completion of a queue that is gone is never taken for one of another with the same name.
static LAST_TAG: AtomicU32 = AtomicU32::new(0);

/// What the queue pairs and completion queues of a shared receive queue share with it.
#[derive(Debug)]
pub(crate) struct SrqShared {
    link: Arc<Link>,
    id: SrqId,
    tag: u32,
    pub(crate) places: Places,
}

impl SrqShared {
    pub(crate) const fn tag(&self) -> u32 {
        self.tag
    }
}

impl Drop for SrqShared {
    fn drop(&mut self) {
        self.link.farewell(Command::DestroySrq { srq: self.id });
    }
}

/// The tag of the shared receive queue and the place in it that a receive with this number came from; `None` if it came
/// from a queue pair's own queue.
pub(crate) fn origin(number: u64) -> Option<(u32, u32)> {
    let [a, b, c, d, place @ ..] = number.to_be_bytes();
    (number & SHARED != 0).then(|| (u32::from_be_bytes([a & 0x7f, b, c, d]), u32::from_be_bytes(place)))
}

/// Receives for whichever queue pair needs one next. They complete in the completion queue of the queue pair that took
/// them, in no particular order.
///
/// It lives until its last queue pair is dropped; receives that are left then get no completions.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    shared: Arc<SrqShared>,
    ring: Producer<RecvEntry>,
    slot: u16,
    /// Where to look for a free place.
    next: u32,
}

impl SharedReceiveQueue {
    pub(crate) fn new(link: Arc<Link>, answer: Answer, depth: u32) -> Result<Self, Error> {
        let Reply::SrqCreated { srq: id, slot, capacity } = answer.reply else { return Err(Error::Protocol("unexpected reply")) };
        let [ring] = exactly(answer.fds)?;
        let tag = LAST_TAG.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff;
        let shared = Arc::new(SrqShared { link, id, tag, places: Places::new(depth) });
        Ok(Self { ring: Producer::map(ring, capacity)?, shared, slot, next: 0 })
    }

    pub(crate) const fn shared(&self) -> &Arc<SrqShared> {
        &self.shared
    }

    /// The queue's name, as in [`Event::SrqLimit`](crate::Event::SrqLimit).
    pub fn id(&self) -> SrqId {
        self.shared.id
    }

    /// Posts a receive request. It will have exactly one completion, unless the queue is destroyed before a queue pair
    /// takes it.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_recv(&mut self, work: &RecvWork) -> Result<(), PostError> {
        if self.shared.link.is_gone() {
            return Err(PostError::DaemonGone);
        }
        let place = self.shared.places.take(self.next, work.wr_id).ok_or(PostError::QueueFull)?;
        self.next = place;
        let wr_id = SHARED | u64::from(self.shared.tag) << 32 | u64::from(place);
        push(&mut self.ring, &RecvEntry { wr_id, ..RecvEntry::encode(work) }).inspect_err(|_| {
            self.shared.places.retire(place);
        })?;
        self.shared.link.ring_doorbell(self.slot);
        Ok(())
    }

    /// Makes room for an incoming message in `pieces`.
    ///
    /// # Errors
    /// As for [`SharedReceiveQueue::post_recv`].
    pub fn recv(&mut self, wr_id: u64, pieces: &[Sge]) -> Result<(), PostError> {
        let local = SgList::new(pieces).ok_or(PostError::TooManySges)?;
        self.post_recv(&RecvWork { wr_id, local })
    }

    /// Asks for one [`Event::SrqLimit`](crate::Event::SrqLimit) once fewer than `limit` receives are left; 0 for none.
    ///
    /// # Errors
    /// [`Error::Refused`] if the limit is above the queue's depth.
    pub fn set_limit(&mut self, limit: u32) -> Result<(), Error> {
        self.shared.link.request(Command::SetSrqLimit { srq: self.shared.id, limit }, &[]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_receive_tells_where_it_came_from() {
        assert_eq!(origin(0), None);
        assert_eq!(origin(SHARED - 1), None);
        assert_eq!(origin(SHARED | 7 << 32 | 9), Some((7, 9)));
        assert_eq!(origin(u64::MAX), Some((0x7fff_ffff, u32::MAX)));
    }
}
