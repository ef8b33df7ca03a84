//! What happens to the endpoint: frames and deadlines.

use crate::drops::DropReason;
use crate::stop::Obedience;
use crate::time::{Duration, Instant};
use crate::transport::connection::{Connection, Private, Remote, State, Stateless, offer_bit};
use crate::transport::endpoint::{Endpoint, FIRST_SLOT, slot_of};
use crate::transport::link::Link;
use crate::transport::qp::{Failure, QueuePair};
use crate::transport::region::Memory;
use crate::transport::state::QpState;
use crate::transport::{ConnectFailure, Event, QpNum, Recovery, RequestId, Status, TraceEvent};
use crate::wire::Ack;
use crate::wire::connection::{ConnectionKind, ConnectionMessage, ForeignVersion, Refusal};
use crate::wire::packet::{Base, Body, CONNECTION_QP, Packet};
use crate::wire::{AckKind, Credits, Echo, Ethernet, MacAddr};

/// How long an application may think about a connection request; its peer gives up long before.
const ANSWER_TIME: Duration = Duration::from_secs(30);

impl Endpoint {
    /// A frame with the transport's EtherType arrived. What becomes of it is counted.
    pub fn handle_frame(&mut self, now: Instant, frame: &[u8], memory: &mut impl Memory) {
        self.frames_received += 1;
        if let Err(reason) = self.accept_frame(now, frame, memory) {
            self.drops.count(reason);
        }
    }

    fn accept_frame(&mut self, now: Instant, frame: &[u8], memory: &mut impl Memory) -> Result<(), DropReason> {
        let (eth, _) = Ethernet::parse(frame)?;
        self.check_address(&eth)?;
        let packet = Packet::parse(frame)?;
        match packet.body {
            Body::Send { .. } | Body::Write { .. } | Body::ReadRequest { .. } | Body::Atomic { .. } => {
                self.handle_request(now, &packet, memory)
            }
            Body::Ack(ack) => self.handle_ack(now, &packet, &ack),
            Body::ReadResponse { .. } | Body::AtomicResponse { .. } => self.handle_response(now, &packet, memory),
            Body::ReadAck(ack) => self.handle_read_ack(now, &packet, &ack),
            Body::CongestionNotification => self.handle_notification(now, &packet),
            Body::Connection(message) if packet.base.dst_qp == CONNECTION_QP => self.handle_connection(now, packet.eth.src, &message),
            Body::ForeignConnection(foreign) if packet.base.dst_qp == CONNECTION_QP => self.refuse_version(packet.eth.src, foreign),
            Body::Connection(_) | Body::ForeignConnection(_) => Err(DropReason::UnknownQueuePair),
        }
    }

    fn check_address(&self, eth: &Ethernet) -> Result<(), DropReason> {
        if eth.ethertype != self.config.ethertype {
            return Err(DropReason::ForeignEtherType);
        }
        if eth.dst != self.config.mac {
            return Err(DropReason::NotForUs);
        }
        if eth.src.is_station() { Ok(()) } else { Err(DropReason::InvalidSource) }
    }

    /// The queue pair that a packet belongs to: number with generation, sender and connection tag must all fit.
    fn find_qp(&self, src: MacAddr, base: &Base) -> Result<usize, DropReason> {
        let slot = slot_of(base.dst_qp);
        let entry = self.slots.get(slot).and_then(|slot| slot.qp.as_deref());
        let qp = entry.filter(|qp| qp.number == base.dst_qp).ok_or(DropReason::UnknownQueuePair)?;
        let agreement = &qp.link().ok_or(DropReason::QueuePairState)?.agreement;
        if agreement.peer != src {
            return Err(DropReason::WrongPeer);
        }
        if agreement.tag != base.tag {
            return Err(DropReason::StaleConnection);
        }
        Ok(slot)
    }

    /// The same; a stranger is told that its connection does not exist.
    fn claim_qp(&mut self, now: Instant, packet: &Packet<'_>) -> Result<usize, DropReason> {
        let (src, base) = (packet.eth.src, &packet.base);
        let found = self.find_qp(src, base);
        let unknown = match found {
            Ok(slot) => self.is_abandoned(slot),
            Err(reason) => matches!(reason, DropReason::UnknownQueuePair | DropReason::WrongPeer | DropReason::StaleConnection),
        };
        // What lingers is still being told of the close, in a message that carries the last acknowledgement.
        if unknown && !self.connections.lingers(src, base.tag) && self.strangers.take(now) {
            self.connection_counters.unknown_told += 1;
            let answer = Stateless::new(src, ConnectionKind::Reject, Refusal::UnknownConnection);
            self.connections.answer(Stateless { end: (base.dst_qp, base.tag), ..answer });
        }
        found
    }

    /// True for a queue pair that failed or closed, whose connection is gone, and that has no refusal to repeat.
    fn is_abandoned(&self, slot: usize) -> bool {
        let refused = |link: &Link| link.responder.has_refused();
        let abandoned = |qp: &QueuePair| qp.state() == QpState::Error && qp.connection.is_none() && !qp.link().is_some_and(refused);
        self.slots[slot].qp.as_deref().is_some_and(abandoned)
    }

    fn handle_request(&mut self, now: Instant, packet: &Packet<'_>, memory: &mut impl Memory) -> Result<(), DropReason> {
        let slot = self.claim_qp(now, packet)?;
        self.confirm_by_traffic(slot);
        let Some(qp) = self.slots[slot].qp.as_deref_mut() else { return Err(DropReason::UnknownQueuePair) };
        let before = qp.state();
        let shared = qp.init.srq.and_then(|srq| self.shared.get_mut(qp.owner, srq));
        if let Some(shared) = shared {
            qp.take_shared(&packet.base, &packet.body, shared);
            self.events.extend(shared.take_news());
        }
        let result = qp.handle_request(now, &packet.base, &packet.body, &mut self.regions, memory, &mut self.completions);
        if before != QpState::Error {
            self.tell_fault(slot);
        }
        self.touch(slot);
        result
    }

    /// Tells the application of a queue pair that failed because of what its peer did.
    pub(super) fn tell_fault(&mut self, slot: usize) {
        let Some(qp) = self.slots[slot].qp.as_deref().filter(|qp| qp.state() == QpState::Error) else { return };
        let event = Event::QpFailed { qp: qp.number, status: qp.fault().unwrap_or(Status::LocalProtection) };
        self.events.push_back((qp.owner, event));
    }

    /// The peer's first packet says as much as its lost "ready to use".
    fn confirm_by_traffic(&mut self, slot: usize) {
        let waiting = self.slots[slot].qp.as_ref().filter(|qp| qp.state() == QpState::ReadyToReceive).and_then(|qp| qp.connection);
        if let Some(index) = waiting {
            self.establish(index, slot, &[]);
        }
    }

    fn handle_ack(&mut self, now: Instant, packet: &Packet<'_>, ack: &Ack) -> Result<(), DropReason> {
        let slot = self.find_sending_qp(now, packet)?;
        let Some(qp) = self.slots[slot].qp.as_deref_mut() else { return Err(DropReason::UnknownQueuePair) };
        let failure = qp.handle_ack(now, packet.base.psn, ack, &self.config, &mut self.completions)?;
        if let Some(status) = failure {
            self.fail_qp(now, slot, Failure::of_oldest(status));
        }
        self.touch(slot);
        Ok(())
    }

    fn handle_response(&mut self, now: Instant, packet: &Packet<'_>, memory: &mut impl Memory) -> Result<(), DropReason> {
        let slot = self.find_sending_qp(now, packet)?;
        let Some(qp) = self.slots[slot].qp.as_deref_mut() else { return Err(DropReason::UnknownQueuePair) };
        let outcome = qp.handle_response(now, &packet.base, &packet.body, &self.regions, memory, &mut self.completions);
        let result = match outcome {
            Ok(None) => Ok(()),
            Ok(Some(failure)) => {
                self.fail_qp(now, slot, failure);
                Err(DropReason::BadResponse)
            }
            Err(reason) => Err(reason),
        };
        self.touch(slot);
        result
    }

    fn handle_notification(&mut self, now: Instant, packet: &Packet<'_>) -> Result<(), DropReason> {
        let slot = self.find_sending_qp(now, packet)?;
        let Some(qp) = self.slots[slot].qp.as_deref_mut() else { return Err(DropReason::UnknownQueuePair) };
        qp.handle_notification(now);
        self.touch(slot);
        Ok(())
    }

    fn handle_read_ack(&mut self, now: Instant, packet: &Packet<'_>, ack: &Ack) -> Result<(), DropReason> {
        let slot = self.find_sending_qp(now, packet)?;
        let Some(qp) = self.slots[slot].qp.as_deref_mut() else { return Err(DropReason::UnknownQueuePair) };
        qp.handle_read_ack(now, packet.base.psn, ack)?;
        self.touch(slot);
        Ok(())
    }

    /// The queue pair that a packet about something of ours belongs to: it must be connected both ways.
    fn find_sending_qp(&mut self, now: Instant, packet: &Packet<'_>) -> Result<usize, DropReason> {
        let slot = self.claim_qp(now, packet)?;
        let sends = self.slots[slot].qp.as_ref().is_some_and(|qp| qp.state().sends());
        if sends { Ok(slot) } else { Err(DropReason::QueuePairState) }
    }

    /// Gives up a queue pair: work flushed, application and peer told.
    pub(super) fn fail_qp(&mut self, now: Instant, slot: usize, failure: Failure) {
        let Some(qp) = self.qp(slot) else { return };
        let news = (qp.owner, Event::QpFailed { qp: qp.number, status: failure.status });
        qp.trace.note(now, TraceEvent::Failed(failure.status));
        self.close(now, slot, failure);
        self.events.push_back(news);
    }

    // ---- connections

    fn handle_connection(&mut self, now: Instant, peer: MacAddr, message: &ConnectionMessage<'_>) -> Result<(), DropReason> {
        self.connection_counters.messages_received += 1;
        if message.kind == ConnectionKind::Request {
            return self.handle_connect_request(now, peer, message);
        }
        if message.kind == ConnectionKind::Reject && message.refusal == Refusal::UnknownConnection && message.remote_id == 0 {
            return self.handle_unknown_connection(now, peer, message);
        }
        let found = self.connections.find(peer, message);
        if message.kind == ConnectionKind::DisconnectRequest {
            return self.handle_disconnect_request(now, peer, message, found);
        }
        let index = found.ok_or(DropReason::BadConnectionMessage)?;
        let Some(connection) = self.connections.get(index) else { return Err(DropReason::BadConnectionMessage) };
        match (message.kind, connection.state) {
            (ConnectionKind::Reply, State::RequestSent) => self.handle_reply(now, index, message),
            (ConnectionKind::Reply, State::Established) if connection.active => {
                // Our confirmation was lost.
                self.connections.send(index, ConnectionKind::ReadyToUse);
                Ok(())
            }
            (ConnectionKind::ReadyToUse, State::ReplySent) => self.handle_ready(index),
            (ConnectionKind::ReadyToUse, State::Established) => Ok(()),
            (ConnectionKind::Reject, State::RequestSent | State::ReplySent) => {
                self.fail_connection(now, index, failure_of(message.refusal), message.private);
                Ok(())
            }
            (ConnectionKind::DisconnectReply, State::DisconnectSent) => {
                self.forget_connection(index);
                Ok(())
            }
            _ => Err(DropReason::BadConnectionMessage),
        }
    }

    /// The peer does not know the queue pair that frames of ours went to. Believed if it names that queue pair and the
    /// tag of the connection, which is as hard to guess as for a forged data frame, and if the connection stands: while
    /// it is being set up no such frames are sent, and when it closes the close is what counts. Never answered.
    fn handle_unknown_connection(&mut self, now: Instant, peer: MacAddr, message: &ConnectionMessage<'_>) -> Result<(), DropReason> {
        let index = self.connections.find_end(peer, message.qp, message.tag).ok_or(DropReason::BadConnectionMessage)?;
        self.connection_counters.unknown_at_peer += 1;
        let known = self.connections.get(index).and_then(|c| c.remote_incarnation);
        if known == Some(message.incarnation) {
            // It closed or failed, and none of its messages about that arrived.
            self.end_connection(now, index, Status::RetryExceeded);
            return Ok(());
        }
        self.connection_counters.peer_restarts += 1;
        self.end_connection(now, index, Status::PeerRestarted);
        self.drop_old_incarnation(now, peer, message.incarnation);
        Ok(())
    }

    fn refuse_version(&mut self, peer: MacAddr, foreign: ForeignVersion) -> Result<(), DropReason> {
        self.refuse(peer, foreign.local_id, Refusal::Version);
        Err(DropReason::UnsupportedVersion)
    }

    fn handle_connect_request(&mut self, now: Instant, peer: MacAddr, message: &ConnectionMessage<'_>) -> Result<(), DropReason> {
        if message.local_id == 0 || message.payload_max == 0 || message.window == 0 {
            return Err(DropReason::BadField);
        }
        if self.connections.is_outdated(peer, message.incarnation) {
            // Held up on the way since before the peer restarted.
            return Err(DropReason::StaleConnection);
        }
        self.drop_old_incarnation(now, peer, message.incarnation);
        if let Some(index) = self.connections.find_request(peer, message) {
            return self.repeat_reply(index);
        }
        let Some(&owner) = self.listeners.get(&message.service) else {
            self.refuse(peer, message.local_id, Refusal::NoListener);
            return Err(DropReason::BadConnectionMessage);
        };
        if self.connections.is_crowded(peer) {
            self.refuse(peer, message.local_id, Refusal::NoResources);
            return Err(DropReason::BadConnectionMessage);
        }
        let mut connection = self.new_connection(owner, peer, message.service, Private::default(), message.recovery);
        connection.state = State::RequestReceived;
        connection.remote_id = message.local_id;
        connection.remote_incarnation = Some(message.incarnation);
        connection.remote = Some(Remote::of(message));
        connection.deadline = Some(now + ANSWER_TIME);
        let Some(index) = self.connections.insert(&mut self.rng, connection) else {
            self.refuse(peer, message.local_id, Refusal::NoResources);
            return Err(DropReason::BadConnectionMessage);
        };
        self.touch_connection(index);
        let request = RequestId(self.connections.get(index).map_or(0, |c| c.local_id));
        self.events
            .push_back((owner, Event::ConnectRequest { request, service: message.service, peer, private: message.private.to_vec() }));
        Ok(())
    }

    fn refuse(&mut self, peer: MacAddr, remote_id: u32, refusal: Refusal) {
        self.connections.answer(Stateless { remote_id, ..Stateless::new(peer, ConnectionKind::Reject, refusal) });
    }

    /// A request that came before: the reply may have been lost, or the application still thinks.
    fn repeat_reply(&mut self, index: usize) -> Result<(), DropReason> {
        match self.connections.get(index).map(|c| c.state) {
            Some(State::ReplySent | State::Established) => {
                self.connections.send(index, ConnectionKind::Reply);
                Ok(())
            }
            Some(State::RequestReceived) => Ok(()),
            _ => Err(DropReason::BadConnectionMessage),
        }
    }

    /// A host that speaks with a new incarnation has restarted: what was connected to the old one is gone.
    fn drop_old_incarnation(&mut self, now: Instant, peer: MacAddr, incarnation: u64) {
        while let Some(index) = self.connections.find_stale(peer, incarnation) {
            self.connection_counters.peer_restarts += 1;
            self.end_connection(now, index, Status::PeerRestarted);
        }
    }

    /// Removes a connection whose peer no longer knows it, and fails its queue pair.
    fn end_connection(&mut self, now: Instant, index: usize, status: Status) {
        let Some(connection) = self.forget_connection(index) else { return };
        if let Some((slot, _)) = connection.qp {
            let Some(qp) = self.qp(slot) else { return };
            qp.connection = None;
            // One that failed before has told its application.
            if qp.state() != QpState::Error {
                self.fail_qp(now, slot, Failure::of_oldest(status));
            }
        }
    }

    fn forget_connection(&mut self, index: usize) -> Option<Connection> {
        let connection = self.connections.remove(index);
        self.touch_connection(index);
        connection
    }

    fn handle_reply(&mut self, now: Instant, index: usize, message: &ConnectionMessage<'_>) -> Result<(), DropReason> {
        let Some(connection) = self.connections.get_mut(index) else { return Err(DropReason::BadConnectionMessage) };
        let offered = [Recovery::Irn, Recovery::IrnStrict, Recovery::SelectiveNoSack, Recovery::GoBackN].into_iter().find(|&mode| {
            let bit = offer_bit(mode);
            message.recovery.0 == bit && connection.recovery.0 & bit != 0
        });
        let recovery = offered.ok_or(DropReason::BadField)?;
        let (peer, (slot, _)) = (connection.peer, connection.qp.ok_or(DropReason::BadConnectionMessage)?);
        self.drop_old_incarnation(now, peer, message.incarnation);
        self.connections.learn(index, message);
        self.activate(now, slot, index, recovery);
        self.connections.send(index, ConnectionKind::ReadyToUse);
        self.establish(index, slot, message.private);
        Ok(())
    }

    fn handle_ready(&mut self, index: usize) -> Result<(), DropReason> {
        let (slot, _) = self.connections.get(index).and_then(|c| c.qp).ok_or(DropReason::BadConnectionMessage)?;
        self.establish(index, slot, &[]);
        Ok(())
    }

    fn establish(&mut self, index: usize, slot: usize, private: &[u8]) {
        if !self.connections.enter(index, State::Established) {
            return;
        }
        let Some(connection) = self.connections.get_mut(index) else { return };
        connection.deadline = None;
        // The peer has it by now.
        connection.private = Private::default();
        self.touch_connection(index);
        self.connection_counters.established += 1;
        let Some(qp) = self.qp(slot) else { return };
        qp.enter(QpState::ReadyToSend);
        let recovery = qp.link().map_or(Recovery::GoBackN, |link| link.agreement.recovery);
        let news = (qp.owner, Event::Established { qp: qp.number, private: private.to_vec(), recovery });
        self.events.push_back(news);
        self.touch(slot);
    }

    fn fail_connection(&mut self, now: Instant, index: usize, reason: ConnectFailure, private: &[u8]) {
        let Some(connection) = self.forget_connection(index) else { return };
        self.connection_counters.failed += 1;
        let Some((slot, number)) = connection.qp else { return };
        if let Some(qp) = self.qp(slot) {
            qp.connection = None;
        }
        self.close(now, slot, Failure::FLUSH);
        self.events.push_back((connection.owner, Event::ConnectFailed { qp: number, reason, private: private.to_vec() }));
    }

    /// The peer ends the connection. Its last word on what arrived counts before anything is flushed.
    fn handle_disconnect_request(
        &mut self,
        now: Instant,
        peer: MacAddr,
        message: &ConnectionMessage<'_>,
        found: Option<usize>,
    ) -> Result<(), DropReason> {
        // Answered also when the connection is long gone: the peer's earlier answer may have been lost.
        let refusal = if found.is_some() { Refusal::None } else { Refusal::UnknownConnection };
        self.connections.answer(Stateless {
            local_id: message.remote_id,
            remote_id: message.local_id,
            ..Stateless::new(peer, ConnectionKind::DisconnectReply, refusal)
        });
        let connection = found.and_then(|index| self.forget_connection(index)).ok_or(DropReason::BadConnectionMessage)?;
        let Some((slot, number)) = connection.qp else { return Ok(()) };
        self.take_final_ack(now, slot, number, message);
        self.connection_counters.closed += 1;
        self.close(now, slot, Failure::FLUSH);
        self.events.push_back((connection.owner, Event::Disconnected { qp: number }));
        Ok(())
    }

    fn take_final_ack(&mut self, now: Instant, slot: usize, number: QpNum, message: &ConnectionMessage<'_>) {
        let Some(qp) = self.slots[slot].qp.as_deref_mut().filter(|qp| qp.number == number) else { return };
        qp.connection = None;
        if qp.state().sends() {
            let ack = Ack { kind: AckKind::Ack(Credits::UNLIMITED), msn: 0, echo: Echo::default(), sack: None };
            // A number that cannot be true acknowledges nothing; the work is then flushed.
            let _ = qp.handle_ack(now, message.psn, &ack, &self.config, &mut self.completions);
        }
    }

    // ---- deadlines

    /// Time has passed. Call when [`Self::poll_timeout`] has come; calling too often is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout_within(now, None);
    }

    /// The same within what `stops` allows: who may not send blames nobody for silence.
    pub fn handle_timeout_within(&mut self, now: Instant, stops: Option<&Obedience>) {
        let stops = stops.filter(|stops| !stops.is_idle());
        self.call_due(now);
        // Each timer at most once per call: whatever it sets anew for `now` waits for the next call.
        for _ in 0..self.timers.len() {
            let Some(timer) = self.timers.pop_due(now) else { return };
            match timer.checked_sub(self.config.max_qps as usize + FIRST_SLOT) {
                Some(index) => self.handle_connection_timeout(now, index),
                None => self.handle_qp_timeout(now, timer, stops),
            }
        }
    }

    fn handle_qp_timeout(&mut self, now: Instant, slot: usize, stops: Option<&Obedience>) {
        if let Some(stops) = stops {
            self.permit(now, slot, stops);
        }
        let Some(qp) = self.slots[slot].qp.as_deref_mut() else { return };
        if let Some(status) = qp.handle_timeout(now, &self.config) {
            self.fail_qp(now, slot, Failure::of_oldest(status));
        }
        self.touch(slot);
    }

    fn handle_connection_timeout(&mut self, now: Instant, index: usize) {
        if self.connections.retry(now, index, &self.config) {
            self.connection_counters.messages_resent += 1;
            return self.touch_connection(index);
        }
        match self.connections.get(index).map(|c| c.state) {
            Some(State::RequestReceived) => self.refuse_request(index, Refusal::NoResources, Private::default()),
            Some(State::DisconnectSent) => drop(self.forget_connection(index)),
            _ => self.fail_connection(now, index, ConnectFailure::Unreachable, &[]),
        }
    }
}

const fn failure_of(refusal: Refusal) -> ConnectFailure {
    match refusal {
        Refusal::NoListener => ConnectFailure::NoListener,
        Refusal::NoResources | Refusal::UnknownConnection => ConnectFailure::NoResources,
        Refusal::Version => ConnectFailure::VersionMismatch,
        Refusal::None | Refusal::Application => ConnectFailure::Rejected,
    }
}
