//! The connection manager's state: who is connecting to whom, and which message goes out next.
//!
//! ```text
//!  active   RequestSent ----reply----> Established ---+
//!  passive  RequestReceived --accept--> ReplySent ----+--> Established --close--> DisconnectSent --> gone
//! ```
//! Every message that waits for an answer is sent again after a time-out, a bounded number of times. The endpoint
//! applies what happens here to queue pairs; this module knows only messages and states.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::rng::Rng;
use crate::time::Instant;
use crate::transport::directory::{DRAW_BITS, Directory};
use crate::transport::irn::bitmap::WINDOW;
use crate::transport::{AppId, EndpointConfig, Psn, QpNum, Recovery};
use crate::wire::connection::{ConnectionKind, ConnectionMessage, MAX_PRIVATE, RecoveryOffer, Refusal};
use crate::wire::{MacAddr, packet};

/// Answers without state waiting to be sent, apart, so that strangers cannot crowd out the connections.
const MAX_ANSWERS: usize = 64;
/// Connections that may wait for the application's answer or linger, beyond one per queue pair.
pub(super) const EXTRA_CONNECTIONS: u32 = 128;
/// Of these, requests that wait for an application's answer.
const MAX_WAITING: usize = 64;
/// Of these, requests of one host: several processes starting at once.
const MAX_WAITING_PER_PEER: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    RequestSent,
    RequestReceived,
    ReplySent,
    Established,
    DisconnectSent,
}

/// What the peer said about itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub(super) qp: QpNum,
    pub(super) tag: u16,
    pub(super) psn: Psn,
    pub(super) payload_max: u32,
    pub(super) window: u32,
    pub(super) recovery: RecoveryOffer,
    /// READs and atomics that it answers at a time.
    pub(super) responder_resources: u8,
}

impl Remote {
    pub(super) const fn of(message: &ConnectionMessage<'_>) -> Self {
        Self {
            qp: message.qp,
            tag: message.tag,
            psn: message.psn,
            payload_max: message.payload_max,
            window: message.window,
            recovery: message.recovery,
            responder_resources: message.responder_resources,
        }
    }
}

/// The private data of a message, kept for sending it again.
#[derive(Clone, Debug, Default)]
pub(super) struct Private(Box<[u8]>);

impl Private {
    pub(super) fn new(data: &[u8]) -> Option<Self> {
        (data.len() <= MAX_PRIVATE).then(|| Self(data.into()))
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

/// One connection, from the first message to the last.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) owner: AppId,
    pub(super) peer: MacAddr,
    pub(super) state: State,
    /// We asked first.
    pub(super) active: bool,
    /// Slot and number of our queue pair; none while the application has not accepted, or after it was destroyed.
    pub(super) qp: Option<(usize, QpNum)>,
    pub(super) service: u16,
    pub(super) local_id: u32,
    pub(super) remote_id: u32,
    pub(super) remote_incarnation: Option<u64>,
    pub(super) remote: Option<Remote>,
    pub(super) tag: u16,
    pub(super) first_psn: Psn,
    pub(super) recovery: RecoveryOffer,
    /// In a disconnect: everything of the peer before this has arrived, so it also is a last acknowledgement.
    pub(super) final_ack: Psn,
    pub(super) private: Private,
    pub(super) attempts: u8,
    pub(super) deadline: Option<Instant>,
    /// Messages that wait in the outbox, a bit per kind.
    pub(super) queued: u8,
}

impl Connection {
    /// The peer's end, once it is known: its incarnation, its queue pair, and the tag that frames to it carry.
    fn end(&self) -> Option<(u64, (QpNum, u16))> {
        let remote = self.remote?;
        Some((self.remote_incarnation?, (remote.qp, remote.tag)))
    }

    /// The message that the state keeps sending until it is answered.
    const fn pending(&self) -> Option<ConnectionKind> {
        match self.state {
            State::RequestSent => Some(ConnectionKind::Request),
            State::ReplySent => Some(ConnectionKind::Reply),
            State::DisconnectSent => Some(ConnectionKind::DisconnectRequest),
            State::RequestReceived | State::Established => None,
        }
    }
}

/// An answer that needs no state.
#[derive(Clone, Debug)]
pub(super) struct Stateless {
    pub(super) peer: MacAddr,
    pub(super) kind: ConnectionKind,
    pub(super) refusal: Refusal,
    pub(super) local_id: u32,
    pub(super) remote_id: u32,
    /// Queue pair and tag of the frame that is answered, if it was not a connection message.
    pub(super) end: (QpNum, u16),
    pub(super) private: Private,
}

impl Stateless {
    /// An answer of this kind that names no connection and carries nothing.
    pub(super) fn new(peer: MacAddr, kind: ConnectionKind, refusal: Refusal) -> Self {
        Self { peer, kind, refusal, local_id: 0, remote_id: 0, end: (QpNum(0), 0), private: Private::default() }
    }
}

/// All connections of the endpoint.
#[derive(Debug)]
pub(super) struct Connections {
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    limit: usize,
    count: usize,
    directory: Directory,
    /// Messages to send: each kind at most once per connection.
    outbox: VecDeque<(u32, ConnectionKind)>,
    answers: VecDeque<Stateless>,
    incarnation: u64,
}

/// A connection number for a slot: the slot in the low 20 bits, a random number that is not zero above, so that the
/// whole is not zero either, which stands for "not known yet".
fn new_id(rng: &mut Rng, slot: u32) -> u32 {
    (rng.next_u32() % 0xfff + 1) << 20 | slot
}

/// The bit of a recovery mode in an offer.
pub(super) const fn offer_bit(recovery: Recovery) -> u8 {
    match recovery {
        Recovery::GoBackN => 1,
        Recovery::Irn => 2,
        Recovery::IrnStrict => 4,
        Recovery::SelectiveNoSack => 8,
    }
}

/// What a side that prefers `recovery` offers: go-back-N is what everybody can fall back to.
pub(super) const fn offer_of(recovery: Recovery) -> RecoveryOffer {
    RecoveryOffer(offer_bit(recovery) | offer_bit(Recovery::GoBackN))
}

/// The mode for an offer, seen from a side that prefers `own`. A side that prefers selective recovery speaks both kinds of it.
pub(super) fn choose(offer: RecoveryOffer, own: Recovery) -> Recovery {
    let willing = own != Recovery::GoBackN;
    [Recovery::Irn, Recovery::IrnStrict, Recovery::SelectiveNoSack]
        .into_iter()
        .find(|&mode| willing && offer.0 & offer_bit(mode) != 0)
        .unwrap_or(Recovery::GoBackN)
}

/// Payload bytes of a full packet that fit a frame of `mtu` bytes payload, in steps of 8 to keep copies aligned.
pub(super) fn payload_max(mtu: usize) -> u32 {
    u32::try_from(mtu.saturating_sub(packet::MAX_OVERHEAD) / 8 * 8).unwrap_or(0)
}

impl Connections {
    /// `started` is when the node started, in milliseconds of a clock that restarts do not turn back.
    pub(super) fn new(limit: u32, started: u64, rng: &mut Rng) -> Self {
        let limit = usize::try_from(limit.saturating_add(EXTRA_CONNECTIONS)).unwrap_or(usize::MAX);
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            limit,
            count: 0,
            directory: Directory::default(),
            outbox: VecDeque::new(),
            answers: VecDeque::new(),
            incarnation: started << DRAW_BITS | rng.next_u64() >> (64 - DRAW_BITS),
        }
    }

    pub(super) const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Most connections: the number of timers they need.
    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn get(&self, index: usize) -> Option<&Connection> {
        self.slots.get(index)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Connection> {
        self.slots.get_mut(index)?.as_mut()
    }

    /// True if there is no connection, lingering ones included.
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Keeps a connection; its number is drawn so that old messages do not fit. `None` if the table is full.
    pub(super) fn insert(&mut self, rng: &mut Rng, mut connection: Connection) -> Option<usize> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.limit => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return None,
        };
        let low = u32::try_from(index).ok()?;
        connection.local_id = new_id(rng, low);
        if let Some((incarnation, end)) = connection.end() {
            self.directory.add_end(low, connection.peer, incarnation, end);
        }
        if connection.state == State::RequestReceived {
            self.directory.wait(low, connection.peer);
        }
        self.slots[index] = Some(connection);
        self.count += 1;
        Some(index)
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<Connection> {
        let connection = self.slots.get_mut(index)?.take()?;
        let low = u32::try_from(index).ok()?;
        if let Some((incarnation, end)) = connection.end() {
            self.directory.remove_end(low, connection.peer, incarnation, end);
        }
        self.leave(low, &connection);
        self.free.push(index);
        self.count -= 1;
        Some(connection)
    }

    /// What the peer's answer to our request says of its end.
    pub(super) fn learn(&mut self, index: usize, message: &ConnectionMessage<'_>) {
        let (Ok(low), Some(connection)) = (u32::try_from(index), self.slots.get_mut(index).and_then(Option::as_mut)) else { return };
        if let Some((incarnation, end)) = connection.end() {
            self.directory.remove_end(low, connection.peer, incarnation, end);
        }
        connection.remote_id = message.local_id;
        connection.remote_incarnation = Some(message.incarnation);
        connection.remote = Some(Remote::of(message));
        self.directory.add_end(low, connection.peer, message.incarnation, (message.qp, message.tag));
    }

    /// Enters a state; false if the connection is gone.
    pub(super) fn enter(&mut self, index: usize, state: State) -> bool {
        let (Ok(low), Some(mut connection)) = (u32::try_from(index), self.slots.get_mut(index).and_then(Option::take)) else {
            return false;
        };
        self.leave(low, &connection);
        connection.state = state;
        if state == State::DisconnectSent {
            self.directory.linger(low, connection.peer, connection.tag);
        }
        self.slots[index] = Some(connection);
        true
    }

    /// The directory forgets what it knows of the connection's state.
    fn leave(&mut self, low: u32, connection: &Connection) {
        match connection.state {
            State::RequestReceived => self.directory.end_wait(low),
            State::DisconnectSent => self.directory.end_linger(low, connection.peer, connection.tag),
            State::RequestSent | State::ReplySent | State::Established => {}
        }
    }

    // ---- searches

    /// The connection that a message of `peer` speaks of: by our number of it and, once it is known, the peer's own. One
    /// alone is not enough: few of its bits are random, and a late message of an earlier connection may well have it.
    pub(super) fn find(&self, peer: MacAddr, message: &ConnectionMessage<'_>) -> Option<usize> {
        let index = (message.remote_id & 0x000f_ffff) as usize;
        let connection = self.get(index)?;
        let same_peer = connection.local_id == message.remote_id && connection.peer == peer;
        let theirs = |known| known == message.incarnation && connection.remote_id == message.local_id;
        (same_peer && connection.remote_incarnation.is_none_or(theirs)).then_some(index)
    }

    /// The connection that a request of `peer` started before.
    pub(super) fn find_request(&self, peer: MacAddr, message: &ConnectionMessage<'_>) -> Option<usize> {
        self.directory.at_end(peer, message.qp, message.tag).find(|&index| {
            let repeats =
                |c: &Connection| !c.active && c.remote_id == message.local_id && c.remote_incarnation == Some(message.incarnation);
            self.get(index).is_some_and(repeats)
        })
    }

    /// The established connection whose other end at `peer` has this queue pair and tag.
    pub(super) fn find_end(&self, peer: MacAddr, qp: QpNum, tag: u16) -> Option<usize> {
        self.directory.at_end(peer, qp, tag).find(|&index| self.get(index).is_some_and(|c| c.state == State::Established))
    }

    /// A connection with an earlier incarnation of `peer`. Within one second, whatever is different counts as earlier.
    pub(super) fn find_stale(&self, peer: MacAddr, incarnation: u64) -> Option<usize> {
        self.directory.older_than(peer, incarnation)
    }

    /// True if `peer` is known with a later incarnation than this.
    pub(super) fn is_outdated(&self, peer: MacAddr, incarnation: u64) -> bool {
        self.directory.has_newer_than(peer, incarnation)
    }

    /// True if a connection whose frames from `peer` carry this tag lingers, so that its close is still being told.
    pub(super) fn lingers(&self, peer: MacAddr, tag: u16) -> bool {
        self.directory.lingers(peer, tag)
    }

    /// Connections that wait for an application's answer.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.directory.waiting().iter().filter_map(|&(index, _)| Some((index as usize, self.get(index as usize)?)))
    }

    /// True if no further request may wait for an application's answer: strangers must not take all the room.
    pub(super) fn is_crowded(&self, peer: MacAddr) -> bool {
        let waiting = self.directory.waiting();
        waiting.len() >= MAX_WAITING || waiting.iter().filter(|(_, from)| *from == peer).count() >= MAX_WAITING_PER_PEER
    }

    /// The request that an application answers by this number.
    pub(super) fn find_waiting(&self, owner: AppId, id: u32) -> Option<usize> {
        let index = (id & 0x000f_ffff) as usize;
        let found = self.get(index).filter(|c| c.local_id == id && c.owner == owner && c.state == State::RequestReceived);
        found.map(|_| index)
    }

    // ---- outputs

    /// Queues a message of a connection, once however often a peer asks for it before it is sent.
    pub(super) fn send(&mut self, index: usize, kind: ConnectionKind) {
        let (Ok(low), Some(connection)) = (u32::try_from(index), self.get_mut(index)) else { return };
        let bit = 1 << kind as u8;
        if connection.queued & bit == 0 {
            connection.queued |= bit;
            self.outbox.push_back((low, kind));
        }
    }

    /// Queues an answer without state.
    pub(super) fn answer(&mut self, answer: Stateless) {
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push_back(answer);
        }
    }

    pub(super) fn has_outgoing(&self) -> bool {
        !self.outbox.is_empty() || !self.answers.is_empty()
    }

    /// Enters a state whose message is sent until answered.
    pub(super) fn begin(&mut self, now: Instant, index: usize, state: State, config: &EndpointConfig) {
        self.enter(index, state);
        let Some(connection) = self.get_mut(index) else { return };
        connection.attempts = 1;
        connection.deadline = Some(now + config.connect_timeout);
        if let Some(kind) = connection.pending() {
            self.send(index, kind);
        }
    }

    /// The time-out of a connection came. Returns false if nobody answers.
    pub(super) fn retry(&mut self, now: Instant, index: usize, config: &EndpointConfig) -> bool {
        let Some(connection) = self.get_mut(index) else { return true };
        let Some(kind) = connection.pending() else { return connection.state != State::RequestReceived };
        if connection.attempts >= config.connect_retries {
            return false;
        }
        connection.attempts += 1;
        connection.deadline = Some(now + config.connect_timeout);
        self.send(index, kind);
        true
    }

    /// The next message, handed to `emit` with its destination. Messages of connections that are gone are skipped.
    pub(super) fn poll<R>(&mut self, config: &EndpointConfig, emit: impl FnOnce(MacAddr, &ConnectionMessage<'_>) -> R) -> Option<R> {
        while let Some((low, kind)) = self.outbox.pop_front() {
            let (index, bit) = (low as usize, 1 << kind as u8);
            // A connection that took over the place of one that is gone has not asked for this.
            if let Some(connection) = self.get_mut(index).filter(|connection| connection.queued & bit != 0) {
                connection.queued &= !bit;
                let connection = self.get(index)?;
                return Some(emit(connection.peer, &self.message_of(connection, kind, config)));
            }
        }
        let answer = self.answers.pop_front()?;
        Some(emit(answer.peer, &self.stateless_message(&answer)))
    }

    fn message_of<'a>(&self, connection: &'a Connection, kind: ConnectionKind, config: &EndpointConfig) -> ConnectionMessage<'a> {
        let closing = kind == ConnectionKind::DisconnectRequest;
        let with_private = matches!(kind, ConnectionKind::Request | ConnectionKind::Reply);
        ConnectionMessage {
            kind,
            refusal: Refusal::None,
            recovery: connection.recovery,
            local_id: connection.local_id,
            remote_id: connection.remote_id,
            incarnation: self.incarnation,
            service: connection.service,
            tag: connection.tag,
            qp: connection.qp.map_or(QpNum(0), |(_, number)| number),
            psn: if closing { connection.final_ack } else { connection.first_psn },
            payload_max: payload_max(config.mtu),
            window: WINDOW,
            initiator_depth: config.max_reads,
            responder_resources: config.max_reads,
            private: if with_private { connection.private.as_slice() } else { &[] },
        }
    }

    fn stateless_message<'a>(&self, answer: &'a Stateless) -> ConnectionMessage<'a> {
        ConnectionMessage {
            kind: answer.kind,
            refusal: answer.refusal,
            recovery: RecoveryOffer::default(),
            local_id: answer.local_id,
            remote_id: answer.remote_id,
            incarnation: self.incarnation,
            service: 0,
            tag: answer.end.1,
            qp: answer.end.0,
            psn: Psn::default(),
            payload_max: 0,
            window: 0,
            initiator_depth: 0,
            responder_resources: 0,
            private: answer.private.as_slice(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_number_names_its_slot_and_is_never_zero() {
        let mut rng = Rng::from_seed(1);
        for slot in [0, 1, 0x000f_ffff] {
            for _ in 0..20_000 {
                let id = new_id(&mut rng, slot);
                assert!(id & 0x000f_ffff == slot && id >> 20 != 0, "{id:#x}");
            }
        }
    }
}
