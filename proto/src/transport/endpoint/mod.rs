//! The endpoint: all queue pairs, regions and connections of one host.
//!
//! By kind of method: [`commands`], [`shared`] and [`states`] (what applications ask), [`receive`] (frames and deadlines),
//! [`transmit`] (what goes out), [`stops`] and `parking` (what stop control makes of it), [`observe`] (what operators see of hosts and events). The driver calls `handle_frame` for each frame, `handle_timeout` when
//! `poll_timeout` has come, then `poll_transmit` until it has nothing, then drains completions and events.

mod commands;
mod observe;
mod parking;
mod receive;
mod shared;
mod states;
mod stops;
mod transmit;
mod turns;

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::drops::DropCounts;
use crate::rng::Rng;
use crate::time::{Duration, Instant, earliest};
use crate::timers::Timers;
use crate::transport::bucket::Bucket;
use crate::transport::connection::Connections;
use crate::transport::counters::{ConnectionCounters, QpCounters};
use crate::transport::endpoint::parking::Parking;
use crate::transport::endpoint::turns::Turns;
use crate::transport::peers::Peers;
use crate::transport::qp::{Completions, QueuePair};
use crate::transport::region::Regions;
use crate::transport::srq::SharedQueues;
use crate::transport::state::QpState;
use crate::transport::{AppId, Completion, CqId, EndpointConfig, Event, QpNum, Recovery, congestion};
use crate::wire::MacAddr;

/// Lowest slot of a queue pair: numbers 0 and 1 are taken by management in InfiniBand.
const FIRST_SLOT: usize = 2;
/// Strangers are told that they are strangers this often for ever, and so many of them at once: what remains of a
/// restarted host's peers learn it from their retries. One answer frees all connections of a restarted host's peer.
const STRANGER_INTERVAL: Duration = Duration::from_millis(10);
const STRANGER_BURST: u64 = 16;

#[derive(Debug, Default)]
struct Slot {
    generation: u8,
    qp: Option<Box<QueuePair>>,
    /// In the ready ring.
    ready: bool,
}

/// One frame, ready in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes of the frame.
    pub len: usize,
    /// Where it goes.
    pub dst: MacAddr,
    /// Its priority for stop control, 0 to 15.
    pub priority: u8,
}

/// A queue pair as an operator sees it.
#[derive(Clone, Copy, Debug)]
pub struct QpView {
    /// Its number.
    pub number: QpNum,
    /// Whose it is.
    pub owner: AppId,
    /// Its state.
    pub state: QpState,
    /// Its priority, 0 to 15.
    pub priority: u8,
    /// The connected host.
    pub peer: Option<MacAddr>,
    /// Its queue pair.
    pub peer_qp: Option<QpNum>,
    /// Its incarnation.
    pub peer_incarnation: Option<u64>,
    /// The recovery mode agreed on.
    pub recovery: Option<Recovery>,
    /// The recovery mode that was wanted.
    pub recovery_offered: Recovery,
    /// Payload bytes of a full packet.
    pub payload: u32,
    /// Most packets in flight.
    pub cap: u32,
    /// Packets in flight.
    pub in_flight: u32,
    /// Requests and receives outstanding.
    pub outstanding: (u32, u32),
    /// Most requests and receives outstanding.
    pub depth: (u32, u32),
    /// Smoothed round-trip time and its mean deviation.
    pub rtt: Option<(Duration, Duration)>,
    /// Round trips: median, 99th percentile, and the longest. The percentiles are at most a quarter too long.
    pub rtt_percentiles: Option<[Duration; 3]>,
    /// Distance in packets from which a gap counts as a loss at once.
    pub reordering_threshold: u32,
    /// How far ahead of a gap a packet of the peer has arrived at most, packets.
    pub farthest_early: u32,
    /// How congestion control holds it back, if it does.
    pub congestion: Option<congestion::View>,
    /// When the peer was last heard.
    pub last_heard: Option<Instant>,
    /// What it counted.
    pub counters: QpCounters,
}

/// All queue pairs, regions and connections of one host.
#[derive(Debug)]
pub struct Endpoint {
    config: EndpointConfig,
    rng: Rng,
    slots: Vec<Slot>,
    free: VecDeque<usize>,
    live: usize,
    /// Slots that may have something to send, served in turn.
    ready: Turns,
    /// Frames that the queue pair in front has sent in its turn.
    turn: u32,
    /// Those that stop control holds back.
    parking: Parking,
    regions: Regions,
    shared: SharedQueues,
    connections: Connections,
    listeners: BTreeMap<u16, AppId>,
    /// Bounds the answers to frames for queue pairs that do not exist.
    strangers: Bucket,
    timers: Timers,
    completions: Completions,
    events: VecDeque<(AppId, Event)>,
    drops: DropCounts,
    connection_counters: ConnectionCounters,
    /// Counts of queue pairs that are gone.
    past: QpCounters,
    peers: Peers,
    frames_received: u64,
    frames_sent: u64,
}

impl Endpoint {
    /// An endpoint without queue pairs. `rng` must be unpredictable in production: keys, starting PSNs and the
    /// incarnation are drawn from it.
    pub fn new(config: EndpointConfig, mut rng: Rng) -> Self {
        let connections = Connections::new(config.max_qps, config.started, &mut rng);
        let slots = config.max_qps as usize + FIRST_SLOT;
        let (timers, parking) = (Timers::new(slots + connections.limit()), Parking::new(slots));
        Self {
            regions: Regions::new(config.max_regions),
            shared: SharedQueues::new(config.max_srqs),
            connections,
            config,
            rng,
            slots: Vec::new(),
            free: VecDeque::new(),
            live: 0,
            ready: Turns::default(),
            turn: 0,
            parking,
            listeners: BTreeMap::new(),
            strangers: Bucket::new(STRANGER_INTERVAL, STRANGER_BURST),
            timers,
            completions: VecDeque::new(),
            events: VecDeque::new(),
            drops: DropCounts::default(),
            connection_counters: ConnectionCounters::default(),
            past: QpCounters::default(),
            peers: Peers::new(),
            frames_received: 0,
            frames_sent: 0,
        }
    }

    // ---- getters

    /// Frames that went no further, by reason.
    pub const fn drops(&self) -> &DropCounts {
        &self.drops
    }

    /// Our incarnation: drawn when the endpoint was made.
    pub const fn incarnation(&self) -> u64 {
        self.connections.incarnation()
    }

    /// The limits and timing it was made with.
    pub const fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// Counts summed over all queue pairs, past ones included.
    pub fn counters(&self) -> QpCounters {
        let mut sum = self.past;
        self.queue_pairs().for_each(|qp| sum.add(&qp.counters));
        sum
    }

    /// Counts of the connection manager.
    pub const fn connection_counters(&self) -> &ConnectionCounters {
        &self.connection_counters
    }

    /// Frames handed in and frames built.
    pub const fn frames(&self) -> (u64, u64) {
        (self.frames_received, self.frames_sent)
    }

    /// Queue pairs that exist.
    pub const fn qp_count(&self) -> usize {
        self.live
    }

    /// Regions that exist.
    pub fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// True if no connection exists or lingers: everything that ought to be told to peers has been.
    pub fn is_quiet(&self) -> bool {
        self.connections.is_empty() && !self.connections.has_outgoing()
    }

    /// Every queue pair as an operator sees it.
    pub fn views(&self) -> impl Iterator<Item = QpView> + '_ {
        self.queue_pairs().map(|qp| self.view(qp))
    }

    /// One queue pair as an operator sees it.
    pub fn view_of(&self, number: QpNum) -> Option<QpView> {
        self.slots.get(slot_of(number))?.qp.as_deref().filter(|qp| qp.number == number).map(|qp| self.view(qp))
    }

    fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.slots.iter().filter_map(|slot| slot.qp.as_deref())
    }

    fn view(&self, qp: &QueuePair) -> QpView {
        let link = qp.link();
        let sender = link.map(|link| &link.requester.sender);
        QpView {
            number: qp.number,
            owner: qp.owner,
            state: qp.state(),
            priority: qp.priority,
            peer: link.map(|link| link.agreement.peer),
            peer_qp: link.map(|link| link.agreement.peer_qp),
            peer_incarnation: qp.connection.and_then(|index| self.connections.get(index)?.remote_incarnation),
            recovery: link.map(|link| link.agreement.recovery),
            recovery_offered: qp.init.recovery.unwrap_or(self.config.recovery),
            payload: link.map_or(0, |link| link.agreement.payload),
            cap: sender.map_or(0, |sender| sender.cap()),
            in_flight: sender.map_or(0, |sender| sender.in_flight()),
            outstanding: qp.outstanding(),
            depth: (qp.init.sq_depth, qp.init.rq_depth),
            rtt: sender.and_then(|sender| sender.rtt().smoothed().map(|rtt| (rtt, sender.rtt().variation()))),
            rtt_percentiles: link.and_then(|link| {
                let round_trips = link.round_trips();
                Some([round_trips.percentile(50)?, round_trips.percentile(99)?, round_trips.largest()?])
            }),
            reordering_threshold: sender.map_or(0, |sender| sender.reordering_threshold()),
            farthest_early: link.map_or(0, |link| link.responder.inbound.receiver.farthest_early()),
            congestion: link.and_then(|link| link.gate.view()),
            last_heard: link.map(|link| link.last_heard()),
            counters: qp.counters,
        }
    }

    // ---- outputs other than frames

    /// The next completion, with its owner and queue.
    pub fn poll_completion(&mut self) -> Option<(AppId, CqId, Completion)> {
        self.completions.pop_front()
    }

    /// The next event, with the application that it is for.
    pub fn poll_event(&mut self) -> Option<(AppId, Event)> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        earliest(self.timers.next(), self.parking.poll_timeout())
    }

    // ---- shared by the parts

    fn qp(&mut self, slot: usize) -> Option<&mut QueuePair> {
        self.slots.get_mut(slot)?.qp.as_deref_mut()
    }

    fn owned_slot(&self, owner: AppId, number: QpNum) -> Option<usize> {
        let slot = slot_of(number);
        self.slots.get(slot)?.qp.as_deref().filter(|qp| qp.number == number && qp.owner == owner).map(|_| slot)
    }

    /// Something changed for a queue pair: its deadline is set anew, and it gets its turn to send.
    fn touch(&mut self, slot: usize) {
        self.rearm(slot);
        let entry = &mut self.slots[slot];
        if let Some(qp) = entry.qp.as_ref().filter(|qp| qp.is_connected())
            && !core::mem::replace(&mut entry.ready, true)
        {
            self.ready.push(slot, qp.priority);
        }
    }

    /// Only the deadline counts. What needed no packet may have given its turn to a request at fault.
    fn rearm(&mut self, slot: usize) {
        self.settle(slot);
        let deadline = self.slots[slot].qp.as_ref().and_then(|qp| qp.deadline(&self.config));
        self.timers.set(slot, deadline);
    }

    fn touch_connection(&mut self, index: usize) {
        let deadline = self.connections.get(index).and_then(|connection| connection.deadline);
        self.timers.set(self.config.max_qps as usize + FIRST_SLOT + index, deadline);
    }
}

/// The slot of a queue pair number: its low 16 bits.
const fn slot_of(number: QpNum) -> usize {
    (number.0 & 0xffff) as usize
}
