//! What applications ask of the endpoint.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::stop::PRIORITIES;
use crate::time::{Duration, Instant};
use crate::transport::connection::{Connection, Private, State, Stateless, choose, offer_bit, offer_of, payload_max};
use crate::transport::endpoint::{Endpoint, FIRST_SLOT, Slot, slot_of};
use crate::transport::link::Agreement;
use crate::transport::qp::{Failure, QueuePair};
use crate::transport::region::Right;
use crate::transport::state::QpState;
use crate::transport::work::MAX_MESSAGE;
use crate::transport::{
    Access, AppId, CommandError, Data, Event, Keys, MemId, PostError, Psn, QpInit, QpNum, Recovery, RecvWork, RequestId, SendWork,
};
use crate::wire::MacAddr;
use crate::wire::connection::{ConnectionKind, RecoveryOffer, Refusal};

/// Completions between two batches for which there is always room; more make it grow.
const USUAL_BATCH: u32 = 256;
/// Deepest work queue. Bounds what one queue pair may take of memory.
pub(super) const MAX_DEPTH: u32 = 1 << 16;

impl Endpoint {
    // ---- regions

    /// Registers `len` bytes of `mem`, which the application addresses from `base` on.
    ///
    /// # Errors
    /// [`CommandError::BadArgument`], [`CommandError::LimitReached`].
    pub fn register(&mut self, owner: AppId, mem: MemId, base: u64, len: u64, access: Access) -> Result<Keys, CommandError> {
        self.regions.register(&mut self.rng, owner, mem, base, len, access)
    }

    /// Forgets a region. From now on its keys open nothing, so its memory is not touched after this returns.
    ///
    /// # Errors
    /// [`CommandError::NoSuchRegion`].
    pub fn deregister(&mut self, owner: AppId, lkey: u32) -> Result<MemId, CommandError> {
        self.regions.deregister(owner, lkey)
    }

    // ---- queue pairs

    /// Makes a queue pair.
    ///
    /// # Errors
    /// [`CommandError::BadArgument`] for a depth of 0 or beyond 65,536, or a priority beyond 15, [`CommandError::NoSuchSrq`], [`CommandError::LimitReached`].
    pub fn create_qp(&mut self, owner: AppId, init: QpInit) -> Result<QpNum, CommandError> {
        let priority = init.priority.unwrap_or_else(|| self.config.default_priority());
        if init.sq_depth == 0 || init.sq_depth > MAX_DEPTH || init.rq_depth > MAX_DEPTH || priority >= PRIORITIES {
            return Err(CommandError::BadArgument);
        }
        if init.srq.is_some_and(|srq| self.shared.get_mut(owner, srq).is_none()) {
            return Err(CommandError::NoSuchSrq);
        }
        let slot = self.take_slot().ok_or(CommandError::LimitReached)?;
        if let Some(shared) = init.srq.and_then(|srq| self.shared.get_mut(owner, srq)) {
            shared.users += 1;
        }
        self.live += 1;
        let entry = &mut self.slots[slot];
        entry.generation = entry.generation.wrapping_add(1);
        // The slot is below 2^16 (see `take_slot`).
        let number = QpNum(u32::from(entry.generation) << 16 | u32::try_from(slot).unwrap_or(0));
        entry.qp = Some(Box::new(QueuePair::new(number, owner, init, priority)));
        self.completions.reserve((init.sq_depth + init.rq_depth).min(USUAL_BATCH) as usize);
        Ok(number)
    }

    /// Numbers are reused oldest first, so that a stale frame meets a new generation as late as possible.
    fn take_slot(&mut self) -> Option<usize> {
        let limit = (self.config.max_qps as usize).min((1 << 16) - FIRST_SLOT);
        if self.live >= limit {
            return None;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(FIRST_SLOT, Slot::default);
        }
        if self.slots.len() < limit + FIRST_SLOT {
            let [generation, ..] = self.rng.next_u32().to_be_bytes();
            self.slots.push(Slot { generation, ..Slot::default() });
            return Some(self.slots.len() - 1);
        }
        self.free.pop_front()
    }

    /// Flushes all work (its completions are polled as usual), tells the peer, and frees the number.
    ///
    /// # Errors
    /// [`CommandError::NoSuchQp`].
    pub fn destroy_qp(&mut self, now: Instant, owner: AppId, number: QpNum) -> Result<(), CommandError> {
        let slot = self.owned_slot(owner, number).ok_or(CommandError::NoSuchQp)?;
        self.remove_qp(now, slot);
        Ok(())
    }

    fn remove_qp(&mut self, now: Instant, slot: usize) {
        self.close(now, slot, Failure::FLUSH);
        self.leave_parking(now, slot);
        if let Some(qp) = self.slots[slot].qp.take() {
            if let Some(shared) = qp.init.srq.and_then(|srq| self.shared.get_mut(qp.owner, srq)) {
                shared.users -= 1;
            }
            self.past.add(&qp.counters);
            self.release_peer(slot, &qp);
            self.live -= 1;
            self.free.push_back(slot);
        }
        self.timers.set(slot, None);
    }

    /// Fails a queue pair's work and says goodbye to its peer.
    pub(super) fn close(&mut self, now: Instant, slot: usize, failure: Failure) {
        let Some(qp) = self.slots[slot].qp.as_deref_mut() else { return };
        qp.fail(failure, &mut self.completions);
        let final_ack = qp.link().map(|link| link.responder.expected()).unwrap_or_default();
        let connection = qp.connection.take();
        self.touch(slot);
        if let Some(index) = connection {
            self.say_goodbye(now, index, final_ack);
        }
    }

    fn say_goodbye(&mut self, now: Instant, index: usize, final_ack: Psn) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.qp = None;
        connection.final_ack = final_ack;
        self.connection_counters.closed += 1;
        self.connections.begin(now, index, State::DisconnectSent, &self.config);
        self.touch_connection(index);
    }

    /// The application is gone: its queue pairs close, its services and regions vanish. Returns the memory that is no longer touched.
    pub fn release(&mut self, now: Instant, owner: AppId) -> Vec<MemId> {
        let slots: Vec<usize> =
            (0..self.slots.len()).filter(|&slot| self.slots[slot].qp.as_ref().is_some_and(|qp| qp.owner == owner)).collect();
        for slot in slots {
            self.remove_qp(now, slot);
        }
        self.shared.release(owner);
        self.listeners.retain(|_, listener| *listener != owner);
        let waiting: Vec<usize> = self.connections.waiting().filter(|(_, c)| c.owner == owner).map(|(index, _)| index).collect();
        for index in waiting {
            self.refuse_request(index, Refusal::NoListener, Private::default());
        }
        self.completions.retain(|(app, ..)| *app != owner);
        self.events.retain(|(app, _)| *app != owner);
        self.regions.release(owner)
    }

    // ---- work

    /// Queues a request for sending.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued. On a failed queue pair the request is taken and completes as flushed.
    pub fn post_send(&mut self, now: Instant, owner: AppId, number: QpNum, work: SendWork) -> Result<(), PostError> {
        let slot = self.owned_slot(owner, number).ok_or(PostError::NoSuchQp)?;
        let len = u32::try_from(work.local.total_len()).ok().filter(|&len| len <= MAX_MESSAGE).ok_or(PostError::TooLong)?;
        let allowed = self.may_use(owner, &work);
        let Some(qp) = self.slots[slot].qp.as_deref_mut() else { return Err(PostError::NoSuchQp) };
        match qp.state() {
            QpState::Reset | QpState::Init => return Err(PostError::WrongState),
            _ if len > qp.longest_message() => return Err(PostError::TooLong),
            _ if qp.send_queue_is_full() => return Err(PostError::QueueFull),
            QpState::SendQueueError => {
                qp.flush_send(work, len, &mut self.completions);
                return Ok(());
            }
            _ => qp.post_send(now, work, len),
        }
        if qp.state() == QpState::Error {
            qp.fail(Failure::FLUSH, &mut self.completions);
        } else if !allowed {
            qp.refuse_request(qp.newest_request());
        }
        self.touch(slot);
        Ok(())
    }

    fn may_use(&self, owner: AppId, work: &SendWork) -> bool {
        let right = if work.op.is_read() { Right::LocalWrite } else { Right::LocalRead };
        match &work.local {
            Data::List(list) => self.regions.check_list(owner, list, right).is_ok(),
            Data::Inline(_) => !work.op.is_read(),
        }
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued. On a failed queue pair the receive is taken and completes as flushed.
    pub fn post_recv(&mut self, owner: AppId, number: QpNum, work: RecvWork) -> Result<(), PostError> {
        let slot = self.owned_slot(owner, number).ok_or(PostError::NoSuchQp)?;
        let Some(qp) = self.slots[slot].qp.as_deref_mut() else { return Err(PostError::NoSuchQp) };
        if qp.init.srq.is_some() {
            return Err(PostError::WrongState);
        }
        if qp.recv_queue_is_full() {
            return Err(PostError::QueueFull);
        }
        let tell = qp.post_recv(work);
        if qp.state() == QpState::Error {
            qp.fail(Failure::FLUSH, &mut self.completions);
        } else if tell {
            self.touch(slot);
        }
        Ok(())
    }

    // ---- connections

    /// Takes connection requests for a service.
    ///
    /// # Errors
    /// [`CommandError::ServiceInUse`].
    pub fn listen(&mut self, owner: AppId, service: u16) -> Result<(), CommandError> {
        match self.listeners.get(&service) {
            Some(other) if *other != owner => Err(CommandError::ServiceInUse),
            _ => {
                self.listeners.insert(service, owner);
                Ok(())
            }
        }
    }

    /// Takes no more connection requests for a service.
    ///
    /// # Errors
    /// [`CommandError::NoSuchRequest`] if the application did not listen on it.
    pub fn unlisten(&mut self, owner: AppId, service: u16) -> Result<(), CommandError> {
        if self.listeners.get(&service) != Some(&owner) {
            return Err(CommandError::NoSuchRequest);
        }
        self.listeners.remove(&service);
        Ok(())
    }

    /// Asks `peer` for a connection to a service. [`Event::Established`] or [`Event::ConnectFailed`] follows.
    ///
    /// # Errors
    /// [`CommandError`]; nothing was sent.
    pub fn connect(
        &mut self,
        now: Instant,
        owner: AppId,
        number: QpNum,
        peer: MacAddr,
        service: u16,
        private: &[u8],
    ) -> Result<(), CommandError> {
        let slot = self.owned_slot(owner, number).ok_or(CommandError::NoSuchQp)?;
        let private = Private::new(private).filter(|_| peer.is_station() && peer != self.config.mac).ok_or(CommandError::BadArgument)?;
        let recovery = offer_of(self.recovery_of(slot));
        let connection = self.new_connection(owner, peer, service, private, recovery);
        let connection = Connection { active: true, qp: Some((slot, number)), ..connection };
        self.qp(slot).filter(|qp| qp.state() == QpState::Reset).ok_or(CommandError::WrongState)?;
        let Some(index) = self.connections.insert(&mut self.rng, connection) else { return Err(CommandError::LimitReached) };
        if let Some(qp) = self.qp(slot) {
            qp.enter(QpState::Init);
            qp.connection = Some(index);
        }
        self.connections.begin(now, index, State::RequestSent, &self.config);
        self.touch_connection(index);
        Ok(())
    }

    fn recovery_of(&self, slot: usize) -> Recovery {
        self.slots[slot].qp.as_ref().and_then(|qp| qp.init.recovery).unwrap_or(self.config.recovery)
    }

    pub(super) fn new_connection(
        &mut self,
        owner: AppId,
        peer: MacAddr,
        service: u16,
        private: Private,
        recovery: RecoveryOffer,
    ) -> Connection {
        let [a, b, ..] = self.rng.next_u32().to_be_bytes();
        Connection {
            owner,
            peer,
            state: State::RequestSent,
            active: false,
            qp: None,
            service,
            local_id: 0,
            remote_id: 0,
            remote_incarnation: None,
            remote: None,
            tag: u16::from_be_bytes([a, b]),
            first_psn: Psn::new(self.rng.next_u32()),
            recovery,
            final_ack: Psn::default(),
            private,
            attempts: 0,
            deadline: None,
            queued: 0,
        }
    }

    /// Accepts a connection request with a queue pair. [`Event::Established`] or [`Event::ConnectFailed`] follows.
    ///
    /// # Errors
    /// [`CommandError`]; the request stays open.
    pub fn accept(&mut self, now: Instant, owner: AppId, request: RequestId, number: QpNum, private: &[u8]) -> Result<(), CommandError> {
        let index = self.open_request(owner, request)?;
        let slot = self.owned_slot(owner, number).ok_or(CommandError::NoSuchQp)?;
        let private = Private::new(private).ok_or(CommandError::BadArgument)?;
        let own = self.recovery_of(slot);
        let qp = self.qp(slot).filter(|qp| qp.state() == QpState::Reset).ok_or(CommandError::WrongState)?;
        qp.enter(QpState::ReadyToReceive);
        qp.connection = Some(index);
        let Some(connection) = self.connections.get_mut(index) else { return Err(CommandError::NoSuchRequest) };
        let chosen = connection.remote.map_or(Recovery::GoBackN, |remote| choose(remote.recovery, own));
        connection.recovery = RecoveryOffer(offer_bit(chosen));
        connection.qp = Some((slot, number));
        connection.private = private;
        self.activate(now, slot, index, chosen);
        self.connections.begin(now, index, State::ReplySent, &self.config);
        self.touch_connection(index);
        Ok(())
    }

    /// Rejects a connection request.
    ///
    /// # Errors
    /// [`CommandError`]; the request stays open.
    pub fn reject(&mut self, owner: AppId, request: RequestId, private: &[u8]) -> Result<(), CommandError> {
        let index = self.open_request(owner, request)?;
        let private = Private::new(private).ok_or(CommandError::BadArgument)?;
        self.refuse_request(index, Refusal::Application, private);
        Ok(())
    }

    fn open_request(&self, owner: AppId, request: RequestId) -> Result<usize, CommandError> {
        self.connections.find_waiting(owner, request.0).ok_or(CommandError::NoSuchRequest)
    }

    pub(super) fn refuse_request(&mut self, index: usize, refusal: Refusal, private: Private) {
        let Some(connection) = self.connections.remove(index) else { return };
        self.touch_connection(index);
        self.connection_counters.failed += 1;
        self.connections.answer(Stateless {
            local_id: connection.local_id,
            remote_id: connection.remote_id,
            private,
            ..Stateless::new(connection.peer, ConnectionKind::Reject, refusal)
        });
    }

    /// Ends a connection: all work is flushed, the peer is told, [`Event::Disconnected`] follows at once.
    ///
    /// # Errors
    /// [`CommandError::NoSuchQp`], [`CommandError::WrongState`] if it is not connected.
    pub fn disconnect(&mut self, now: Instant, owner: AppId, number: QpNum) -> Result<(), CommandError> {
        let slot = self.owned_slot(owner, number).ok_or(CommandError::NoSuchQp)?;
        let connected = self.slots[slot].qp.as_ref().is_some_and(|qp| qp.connection.is_some());
        if !connected {
            return Err(CommandError::WrongState);
        }
        self.close(now, slot, Failure::FLUSH);
        self.events.push_back((owner, Event::Disconnected { qp: number }));
        Ok(())
    }

    /// Both sides of a connection are known: the queue pair gets its halves.
    pub(super) fn activate(&mut self, now: Instant, slot: usize, index: usize, recovery: Recovery) {
        let Some((connection, remote)) = self.connections.get(index).and_then(|c| Some((c, c.remote?))) else { return };
        let agreement = Agreement {
            peer: connection.peer,
            peer_qp: remote.qp,
            peer_tag: remote.tag,
            tag: connection.tag,
            recovery,
            first_psn: connection.first_psn,
            peer_psn: remote.psn,
            payload: payload_max(self.config.mtu).min(remote.payload_max).max(1),
            window: remote.window.max(1),
            max_reads: self.config.max_reads.min(remote.responder_resources),
        };
        let keepalive = keepalive_of(self.config.keepalive, connection.tag);
        let peer = agreement.peer;
        if let Some(qp) = self.slots[slot].qp.as_deref_mut() {
            qp.peer.get_or_insert_with(|| self.peers.admit(peer));
            qp.activate(now, &self.config, agreement, keepalive);
        }
        debug_assert!(self.slots[slot].qp.as_ref().is_some_and(|qp| slot_of(qp.number) == slot));
        self.touch(slot);
    }
}

/// An interval of three to four quarters of the configured one, by the connection's tag, which is random: queue pairs connected at the
/// same time do not all ask at the same time.
fn keepalive_of(longest: Duration, tag: u16) -> Duration {
    let step = longest.div(4 * (1 << 16));
    longest.saturating_sub(step.saturating_mul(u64::from(tag)))
}
