//! Shared receive queues: receives that several queue pairs take from.
//!
//! A queue pair takes a receive when a message needs it, not before. A message that arrives early also takes those of
//! the messages before it, so that receives are used in the order in which messages were sent (IRN's rule): after the
//! message for receive 0, an arrival for receive 4 takes four more.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::transport::responder::RecvQueue;
use crate::transport::ring::Ring;
use crate::transport::{AppId, CommandError, Event, RecvWork, SrqId};

/// Most receives that a queue pair holds ahead of the in-order point, so that one with a gap does not starve the
/// others. A message further ahead is dropped, and comes again.
pub(super) const MAX_STAGED: u32 = 64;

/// A shared receive queue.
#[derive(Debug)]
pub(super) struct SharedQueue {
    id: SrqId,
    owner: AppId,
    depth: u32,
    posted: Ring<RecvWork>,
    /// Tell when fewer are posted.
    limit: Option<u32>,
    /// Queue pairs that take from it.
    pub(super) users: u32,
}

impl SharedQueue {
    /// Receives posted and not taken.
    pub(super) const fn len(&self) -> u32 {
        self.posted.len()
    }

    /// True if no further receive fits.
    pub(super) const fn is_full(&self) -> bool {
        self.len() >= self.depth
    }

    /// Posts a receive. The caller has checked that it fits.
    pub(super) fn push(&mut self, work: RecvWork) {
        self.posted.push(work);
    }

    /// Sets the limit; `None` if it is larger than the queue.
    pub(super) fn set_limit(&mut self, limit: u32) -> Option<()> {
        (limit <= self.depth).then(|| self.limit = Some(limit))
    }

    /// Moves receives to a queue pair up to the one with this number: all that are missing or, if there are not as many
    /// or it is too far ahead, none.
    pub(super) fn hand_over(&mut self, queue: &mut RecvQueue, recv_sn: u32) {
        let ahead = queue.ahead(recv_sn);
        if ahead >= MAX_STAGED {
            return;
        }
        let missing = (ahead + 1).saturating_sub(queue.len());
        if missing <= self.len() {
            (0..missing).filter_map(|_| self.posted.pop()).for_each(|work| queue.push(work));
        }
    }

    /// The news that it holds fewer receives than its limit, once.
    pub(super) fn take_news(&mut self) -> Option<(AppId, Event)> {
        let below = self.limit.take_if(|limit| self.posted.len() < *limit);
        below.map(|_| (self.owner, Event::SrqLimit { srq: self.id }))
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u16,
    queue: Option<SharedQueue>,
}

/// All shared receive queues of an endpoint. A name is a slot (low 16 bits) and its generation (high 16).
#[derive(Debug)]
pub(super) struct SharedQueues {
    slots: Vec<Slot>,
    /// Slots to be used again, the one that was freed first in front.
    free: VecDeque<u16>,
    limit: usize,
}

impl SharedQueues {
    /// Room for `limit` queues (at most 65,536). Allocates nothing.
    pub(super) fn new(limit: u32) -> Self {
        Self { slots: Vec::new(), free: VecDeque::new(), limit: (limit as usize).min(1 << 16) }
    }

    /// Makes a queue for `depth` receives.
    pub(super) fn create(&mut self, owner: AppId, depth: u32) -> Result<SrqId, CommandError> {
        let index = self.take_slot().ok_or(CommandError::LimitReached)?;
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = slot.generation.wrapping_add(1);
        let id = SrqId(u32::from(slot.generation) << 16 | u32::from(index));
        slot.queue = Some(SharedQueue { id, owner, depth, posted: Ring::new(0), limit: None, users: 0 });
        Ok(id)
    }

    fn take_slot(&mut self) -> Option<u16> {
        if self.slots.len() >= self.limit {
            return self.free.pop_front();
        }
        let index = u16::try_from(self.slots.len()).ok()?;
        self.slots.push(Slot::default());
        Some(index)
    }

    /// A queue of this owner.
    pub(super) fn get_mut(&mut self, owner: AppId, id: SrqId) -> Option<&mut SharedQueue> {
        let queue = self.slots.get_mut(slot_of(id))?.queue.as_mut()?;
        (queue.id == id && queue.owner == owner).then_some(queue)
    }

    /// Forgets a queue that nobody uses. What is posted in it vanishes.
    pub(super) fn destroy(&mut self, owner: AppId, id: SrqId) -> Result<(), CommandError> {
        if self.get_mut(owner, id).ok_or(CommandError::NoSuchSrq)?.users > 0 {
            return Err(CommandError::WrongState);
        }
        self.forget(slot_of(id));
        Ok(())
    }

    fn forget(&mut self, index: usize) {
        self.slots[index].queue = None;
        self.free.extend(u16::try_from(index));
    }

    /// Forgets all queues of an owner, whose queue pairs are gone.
    pub(super) fn release(&mut self, owner: AppId) {
        for index in 0..self.slots.len() {
            if self.slots[index].queue.as_ref().is_some_and(|queue| queue.owner == owner) {
                self.forget(index);
            }
        }
    }

    /// Queues that exist.
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

const fn slot_of(id: SrqId) -> usize {
    (id.0 & 0xffff) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::SgList;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const OWNER: AppId = AppId(1);

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Post,
        /// A message arrives at a queue pair, for the receive so far ahead of its in-order point.
        Need(usize, u32),
        /// The oldest message of a queue pair is complete.
        Complete(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Post),
            2 => (0usize..3, prop_oneof![0u32..6, 60u32..70]).prop_map(|(qp, ahead)| Step::Need(qp, ahead)),
            3 => (0usize..3).prop_map(Step::Complete),
        ]
    }

    const fn receive(wr_id: u64) -> RecvWork {
        RecvWork { wr_id, local: SgList::EMPTY }
    }

    proptest! {
        #[test]
        fn a_shared_queue_hands_out_each_receive_once_and_in_order(steps in proptest::collection::vec(step(), 0..400), limit in 0u32..20) {
            let mut queues = SharedQueues::new(1);
            let id = queues.create(OWNER, 100).unwrap();
            let shared = queues.get_mut(OWNER, id).unwrap();
            shared.set_limit(limit).unwrap();
            let mut staged = [(); 3].map(|()| RecvQueue::new(0));
            let (mut posted, mut told) = (0, false);
            let (mut model, mut model_staged) = (VecDeque::new(), [(); 3].map(|()| VecDeque::new()));
            for step in steps {
                match step {
                    Step::Post if shared.is_full() => prop_assert_eq!(model.len(), 100),
                    Step::Post => {
                        shared.push(receive(posted));
                        model.push_back(posted);
                        posted += 1;
                    }
                    Step::Need(qp, ahead) => {
                        let head = staged[qp].next_sn();
                        shared.hand_over(&mut staged[qp], head.wrapping_add(ahead));
                        let missing = (ahead as usize + 1).saturating_sub(model_staged[qp].len());
                        if ahead < MAX_STAGED && missing <= model.len() {
                            model_staged[qp].extend(model.drain(..missing));
                        }
                        let news = shared.take_news();
                        let below = model.len() < limit as usize && !told;
                        prop_assert_eq!(news.is_some(), below);
                        told |= below;
                    }
                    Step::Complete(qp) => {
                        prop_assert_eq!(staged[qp].pop().map(|slot| slot.work.wr_id), model_staged[qp].pop_front());
                    }
                }
                prop_assert_eq!(shared.len() as usize, model.len());
                for qp in 0..3 {
                    prop_assert_eq!(staged[qp].len() as usize, model_staged[qp].len());
                }
            }
        }
    }

    #[test]
    fn a_name_of_an_earlier_queue_or_of_another_owner_opens_nothing() {
        let mut queues = SharedQueues::new(2);
        let first = queues.create(OWNER, 1).unwrap();
        let second = queues.create(OWNER, 1).unwrap();
        assert_eq!(queues.create(OWNER, 1), Err(CommandError::LimitReached));
        assert!(queues.get_mut(AppId(2), first).is_none());
        assert_eq!(queues.destroy(AppId(2), first), Err(CommandError::NoSuchSrq));
        queues.get_mut(OWNER, first).unwrap().users = 1;
        assert_eq!(queues.destroy(OWNER, first), Err(CommandError::WrongState));
        queues.get_mut(OWNER, first).unwrap().users = 0;
        queues.destroy(OWNER, first).unwrap();
        let again = queues.create(OWNER, 1).unwrap();
        assert!(again != first && queues.get_mut(OWNER, first).is_none() && queues.get_mut(OWNER, again).is_some());
        queues.release(OWNER);
        assert_eq!((queues.count(), queues.get_mut(OWNER, second).is_none()), (0, true));
        let _: Vec<SrqId> = (0..2).map(|_| queues.create(OWNER, 1).unwrap()).collect();
    }
}
