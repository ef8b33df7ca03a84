//! The connection manager's state: who is connecting to whom, and which message goes out next.
//!
//! ```text
//!  active   RequestSent ----reply----> Established ---+
//!  passive  RequestReceived --accept--> ReplySent ----+--> Established --close--> DisconnectSent --> gone
//! ```
//! Every message that waits for an answer is sent again after a time-out, a bounded number of times. The endpoint
//! applies what happens here to queue pairs; this module knows only messages and states.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::rng::Rng;
use crate::time::Instant;
use crate::transport::irn::bitmap::WINDOW;
use crate::transport::{AppId, EndpointConfig, Psn, QpNum, Recovery};
use crate::wire::connection::{ConnectionKind, ConnectionMessage, MAX_PRIVATE, RecoveryOffer, Refusal};
use crate::wire::{MacAddr, packet};

/// Messages waiting to be sent; further ones are dropped. Whoever misses one asks again.
const MAX_OUTBOX: usize = 1024;
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
#[derive(Clone, Copy, Debug)]
pub(super) struct Private {
    bytes: [u8; MAX_PRIVATE],
    len: usize,
}

impl Private {
    pub(super) const EMPTY: Self = Self { bytes: [0; MAX_PRIVATE], len: 0 };

    pub(super) fn new(data: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_PRIVATE];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        Some(Self { bytes, len: data.len() })
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
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
}

impl Connection {
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
#[derive(Clone, Copy, Debug)]
pub(super) struct Stateless {
    pub(super) peer: MacAddr,
    pub(super) kind: ConnectionKind,
    pub(super) refusal: Refusal,
    pub(super) local_id: u32,
    pub(super) remote_id: u32,
    pub(super) private: Private,
}

/// All connections of the endpoint.
#[derive(Debug)]
pub(super) struct Connections {
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    limit: usize,
    outbox: VecDeque<(usize, ConnectionKind)>,
    answers: VecDeque<Stateless>,
    incarnation: u64,
}

/// A connection number for a slot: the slot in the low 20 bits, a random number that is not zero above, so that the
/// whole is not zero either, which stands for "not known yet".
fn new_id(rng: &mut Rng, slot: u32) -> u32 {
    (rng.next_u32() % 0xfff + 1) << 20 | slot
}

/// True if `incarnation` began after `known`. The start time is in the high half; within one second, whatever is
/// different counts as newer.
const fn is_newer(incarnation: u64, known: u64) -> bool {
    incarnation != known && incarnation >> 32 >= known >> 32
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
    /// `started` is when the node started, in seconds of a clock that restarts do not turn back.
    pub(super) fn new(limit: u32, started: u32, rng: &mut Rng) -> Self {
        let limit = usize::try_from(limit.saturating_add(EXTRA_CONNECTIONS)).unwrap_or(usize::MAX);
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            limit,
            outbox: VecDeque::new(),
            answers: VecDeque::new(),
            incarnation: u64::from(started) << 32 | rng.next_u64() & 0xffff_ffff,
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

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Connection)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| slot.as_ref().map(|connection| (index, connection)))
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
        self.slots[index] = Some(connection);
        Some(index)
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<Connection> {
        let connection = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        Some(connection)
    }

    /// The connection that a message of `peer` with our number `id` speaks of.
    pub(super) fn find(&self, peer: MacAddr, id: u32, incarnation: u64) -> Option<usize> {
        let index = (id & 0x000f_ffff) as usize;
        let connection = self.get(index)?;
        let same_peer = connection.local_id == id && connection.peer == peer;
        (same_peer && connection.remote_incarnation.is_none_or(|known| known == incarnation)).then_some(index)
    }

    /// The connection that a request of `peer` started before.
    pub(super) fn find_request(&self, peer: MacAddr, remote_id: u32, incarnation: u64) -> Option<usize> {
        self.iter()
            .find(|(_, c)| !c.active && c.peer == peer && c.remote_id == remote_id && c.remote_incarnation == Some(incarnation))
            .map(|(index, _)| index)
    }

    /// A connection with an earlier incarnation of `peer`.
    pub(super) fn find_stale(&self, peer: MacAddr, incarnation: u64) -> Option<usize> {
        let stale = |c: &Connection| c.peer == peer && c.remote_incarnation.is_some_and(|known| is_newer(incarnation, known));
        self.iter().find(|(_, c)| stale(c)).map(|(index, _)| index)
    }

    /// True if `peer` is known with a later incarnation than this.
    pub(super) fn is_outdated(&self, peer: MacAddr, incarnation: u64) -> bool {
        self.iter()
            .any(|(_, c)| c.peer == peer && c.remote_incarnation.is_some_and(|known| known != incarnation && !is_newer(incarnation, known)))
    }

    /// True if no further request may wait for an application's answer: strangers must not take all the room.
    pub(super) fn is_crowded(&self, peer: MacAddr) -> bool {
        let waiting = |c: &Connection| c.state == State::RequestReceived;
        let total = self.iter().filter(|(_, c)| waiting(c)).count();
        let same = self.iter().filter(|(_, c)| waiting(c) && c.peer == peer).count();
        total >= MAX_WAITING || same >= MAX_WAITING_PER_PEER
    }

    // ---- outputs

    /// Queues a message of a connection, once however often a peer asks for it before it is sent.
    pub(super) fn send(&mut self, index: usize, kind: ConnectionKind) {
        if self.outbox.len() < MAX_OUTBOX && !self.outbox.contains(&(index, kind)) {
            self.outbox.push_back((index, kind));
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
        let Some(connection) = self.get_mut(index) else { return };
        connection.state = state;
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
        while let Some((index, kind)) = self.outbox.pop_front() {
            if let Some(connection) = self.get(index) {
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
            tag: 0,
            qp: QpNum(0),
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

    #[test]
    fn an_incarnation_is_newer_by_its_start() {
        let at = |second: u64, draw: u64| second << 32 | draw;
        assert!(is_newer(at(2, 0), at(1, 9)) && is_newer(at(1, 0), at(1, 9)));
        assert!(!is_newer(at(1, 9), at(2, 0)) && !is_newer(at(1, 9), at(1, 9)));
    }
}
