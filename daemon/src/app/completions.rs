//! The completion queues of all applications, as the worker fills them.
//!
//! Room is reserved when a queue pair is created, for all requests that it can have outstanding, and given back when
//! it is destroyed and the application has taken the completions written until then. For a shared receive queue it is
//! reserved once in each completion queue that gets its receives, for all of them: any may complete there. An application that keeps to its
//! depths therefore never overruns a queue; for any other, the queue is dead from then on, which the table makes known.

use std::io::Write;
use std::os::unix::net::UnixStream;

use weft_proto::transport::{AppId, CommandError, Completion, CqId, Endpoint};
use weft_verbs::layout::CompletionEntry;
use weft_verbs::ring::Producer;
use weft_verbs::shm::Block;

/// Room of a destroyed queue pair, free again once the consumer is past `position`.
#[derive(Debug)]
struct Lingering {
    position: u32,
    room: u32,
}

#[derive(Debug)]
struct Queue {
    owner: AppId,
    ring: Producer<CompletionEntry>,
    wake: UnixStream,
    /// Queue pair sides that complete here.
    users: u32,
    reserved: u32,
    lingering: Vec<Lingering>,
    dirty: bool,
    /// A completion since the last [`Completions::publish`] must wake also who waits for solicited ones only.
    urgent: bool,
    dead: bool,
}

impl Queue {
    /// Reclaims the room of destroyed queue pairs whose completions the application has taken.
    fn reclaim(&mut self) {
        let Ok(consumed) = self.ring.consumed() else { return };
        let produced = self.ring.produced();
        let outstanding = produced.wrapping_sub(consumed);
        let reserved = &mut self.reserved;
        self.lingering.retain(|lingering| {
            let waits = produced.wrapping_sub(lingering.position) < outstanding;
            if !waits {
                *reserved -= lingering.room;
            }
            waits
        });
    }
}

/// All completion queues.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    queues: Vec<Option<Queue>>,
    /// Queues written to since the last [`Completions::publish`].
    dirty: Vec<CqId>,
    /// Queues that overran since the last [`Completions::take_overrun`].
    overrun: Vec<CqId>,
    /// The endpoint completed something since the last [`Completions::take_freed`].
    freed: bool,
}

impl Completions {
    pub(crate) fn create(&mut self, owner: AppId, ring: Producer<CompletionEntry>, wake: UnixStream) -> Result<CqId, CommandError> {
        let at = self.queues.iter().position(Option::is_none).unwrap_or(self.queues.len());
        let id = CqId(u32::try_from(at).map_err(|_| CommandError::LimitReached)?);
        let queue = Queue { owner, ring, wake, users: 0, reserved: 0, lingering: Vec::new(), dirty: false, urgent: false, dead: false };
        match self.queues.get_mut(at) {
            Some(place) => *place = Some(queue),
            None => self.queues.push(Some(queue)),
        }
        Ok(id)
    }

    pub(crate) fn destroy(&mut self, owner: AppId, cq: CqId) -> Result<Block, CommandError> {
        if self.find(owner, cq).ok_or(CommandError::BadArgument)?.users > 0 {
            return Err(CommandError::WrongState);
        }
        self.dirty.retain(|dirty| *dirty != cq);
        self.overrun.retain(|overrun| *overrun != cq);
        let queue = self.queues.get_mut(cq.0 as usize).and_then(Option::take).ok_or(CommandError::BadArgument)?;
        Ok(queue.ring.into_block())
    }

    /// Destroys all queues of an application, used or not.
    pub(crate) fn destroy_all(&mut self, owner: AppId) -> Vec<Block> {
        let owned = |queue: &Queue| queue.owner == owner;
        self.dirty.retain(|cq| !self.queues.get(cq.0 as usize).is_some_and(|queue| queue.as_ref().is_some_and(owned)));
        self.overrun.retain(|cq| !self.queues.get(cq.0 as usize).is_some_and(|queue| queue.as_ref().is_some_and(owned)));
        let places = self.queues.iter_mut().filter(|queue| queue.as_ref().is_some_and(owned));
        places.filter_map(Option::take).map(|queue| queue.ring.into_block()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(Option::is_none)
    }

    fn find(&mut self, owner: AppId, cq: CqId) -> Option<&mut Queue> {
        self.queues.get_mut(cq.0 as usize)?.as_mut().filter(|queue| queue.owner == owner)
    }

    /// Reserves room for the completions of one side of a queue pair, which uses the queue from then on.
    pub(crate) fn reserve(&mut self, owner: AppId, cq: CqId, room: u32) -> Result<(), CommandError> {
        self.hold(owner, cq, room)?;
        self.find(owner, cq).ok_or(CommandError::BadArgument)?.users += 1;
        Ok(())
    }

    /// Gives room back once the application has taken all completions written so far.
    pub(crate) fn unreserve(&mut self, owner: AppId, cq: CqId, room: u32) {
        if let Some(queue) = self.find(owner, cq) {
            queue.users -= 1;
        }
        self.let_go(owner, cq, room);
    }

    /// Reserves room without a user: the queue may be destroyed nevertheless.
    pub(crate) fn hold(&mut self, owner: AppId, cq: CqId, room: u32) -> Result<(), CommandError> {
        let queue = self.find(owner, cq).ok_or(CommandError::BadArgument)?;
        queue.reclaim();
        let reserved = queue.reserved.checked_add(room).filter(|sum| *sum <= queue.ring.capacity() && !queue.dead);
        queue.reserved = reserved.ok_or(CommandError::LimitReached)?;
        Ok(())
    }

    /// Gives back what [`Completions::hold`] reserved, as [`Completions::unreserve`] does.
    pub(crate) fn let_go(&mut self, owner: AppId, cq: CqId, room: u32) {
        if let Some(queue) = self.find(owner, cq) {
            if room > 0 {
                queue.lingering.push(Lingering { position: queue.ring.produced(), room });
            }
            queue.reclaim();
        }
    }

    /// Moves all completions of the endpoint to their queues.
    pub(crate) fn drain(&mut self, endpoint: &mut Endpoint) {
        while let Some((owner, cq, completion)) = endpoint.poll_completion() {
            self.freed = true;
            self.push(owner, cq, &completion);
        }
    }

    /// True if queues of the endpoint may have room that had none.
    pub(crate) const fn take_freed(&mut self) -> bool {
        std::mem::replace(&mut self.freed, false)
    }

    /// Writes one completion. A queue that has no room, or whose consumer makes no sense, is dead from then on.
    pub(crate) fn push(&mut self, owner: AppId, cq: CqId, completion: &Completion) {
        let Some(queue) = self.find(owner, cq).filter(|queue| !queue.dead) else { return };
        let entry = CompletionEntry::encode(completion);
        if queue.ring.push(&entry).is_err() {
            queue.dead = true;
            self.overrun.push(cq);
            return;
        }
        queue.urgent |= entry.is_urgent();
        if !queue.dirty {
            queue.dirty = true;
            self.dirty.push(cq);
        }
    }

    /// Shows applications what was written, and wakes those that sleep.
    pub(crate) fn publish(&mut self) {
        while let Some(cq) = self.dirty.pop() {
            let Some(queue) = self.queues.get_mut(cq.0 as usize).and_then(Option::as_mut) else { continue };
            queue.dirty = false;
            queue.ring.publish();
            if queue.ring.take_armed(std::mem::take(&mut queue.urgent)) {
                // Never blocks. If the channel is full or closed, a wake-up waits there already or nobody is left to wake.
                let _ = (&queue.wake).write(&[1]);
            }
        }
    }

    /// A queue that overran, and its owner.
    pub(crate) fn take_overrun(&mut self) -> Option<(AppId, CqId)> {
        let cq = self.overrun.pop()?;
        let queue = self.queues.get(cq.0 as usize)?.as_ref()?;
        Some((queue.owner, cq))
    }
}
