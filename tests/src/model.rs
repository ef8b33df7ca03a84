//! Model check of loss recovery: the real sender, receiver and acker, driven through every order in which a few packets
//! and their acknowledgements can be delivered, dropped, doubled, held back or stalled, within a budget for each.
//!
//! Time goes in half round trips. In one half all data frames on the path meet the receiver, in the next all
//! acknowledgements meet the sender, one after the other in every order. A frame held back meets its receiver a round trip
//! later; a stall lets the sender's next timer run out while everything stays on the path. When the path is empty,
//! time jumps to the next timer. States that were reached before are not explored again.
//!
//! What must hold in every state: nothing is delivered twice or out of order, nothing is taken for acknowledged that
//! has not arrived, and no time-out was needed where the mode promises none (see `State::excuse`). Every path must end
//! with everything delivered and acknowledged.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use weft_proto::transport::irn::{
    AckTiming, Acker, Arrival, Feedback, Mark, Pick, Profile, Receiver, RtoBounds, Sender, SenderConfig, Timeout, Window,
};
use weft_proto::transport::{Psn, Recovery};
use weft_proto::{Duration, Instant};

/// Half a round trip: 40 ticks of a timestamp.
const HALF: Duration = Duration::from_nanos(40 * 256);
/// Packets sent and acknowledged beforehand, so that the round trip is known and its variation has died away.
const WARM_UP: u32 = 60;
/// The first packet of the run; the sequence numbers wrap within it.
const START: u32 = (1 << 24) - 3;

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The recovery mode.
    pub recovery: Recovery,
    /// Packets to deliver, at most 16.
    pub packets: u32,
    /// Most of them in flight.
    pub cap: u32,
    /// Frames that may get lost.
    pub drops: u8,
    /// Frames that may be doubled.
    pub doubles: u8,
    /// Frames that may be late by a round trip.
    pub holds: u8,
    /// Times that a timer may run out while frames are on the path.
    pub stalls: u8,
}

/// What an exploration came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Different states in which all is done.
    pub ends: usize,
    /// States in which the time-out ran out.
    pub timeouts: usize,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
struct Data {
    /// Place in the run.
    index: u32,
    at: Instant,
    again: bool,
    ack_request: bool,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
struct Ack {
    cumulative: u32,
    negative: bool,
    /// The trigger as a PSN, and the bitmap's first word.
    selective: Option<(u32, u64)>,
    /// When the packet that came last was sent.
    echoed: Instant,
    held: Duration,
    /// The latest departure among all packets that had arrived.
    heard: Instant,
    /// It left after a retransmission had arrived.
    after_again: bool,
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Deliver,
    Drop,
    Double,
    Hold,
}

/// What has gone wrong so far, as far as a mode's promise depends on it.
#[derive(Clone, Copy, Debug, Default, Hash)]
struct Faults {
    retransmission_lost: bool,
    ack_lost: bool,
    /// An acknowledgement that left after a retransmission had arrived was lost.
    answer_lost: bool,
    stalled: bool,
    ack_overtaken: bool,
}

#[derive(Clone, Debug, Hash)]
struct State {
    now: Instant,
    sender: Sender,
    receiver: Receiver,
    acker: Acker,
    /// Frames that meet their receiver in this half, and those of the next.
    data: Vec<Data>,
    data_next: Vec<Data>,
    acks: Vec<Ack>,
    acks_next: Vec<Ack>,
    acks_turn: bool,
    sent: u32,
    accepted: u32,
    last_arrival: (Instant, Instant),
    heard_by_receiver: Instant,
    heard_by_sender: Instant,
    last_sent: Vec<Instant>,
    again_arrived: bool,
    /// Go-back-N: a packet behind the first missing one has arrived.
    gap_seen: bool,
    timeouts: u32,
    budget: [u8; 4],
    faults: Faults,
}

/// Explores everything within the bounds.
///
/// # Errors
/// The first violation, with the events that lead to it.
pub fn explore(bounds: Bounds) -> Result<Explored, String> {
    let mut seen = HashSet::new();
    let mut explored = Explored::default();
    let mut trail: Vec<String> = Vec::new();
    let mut open = vec![(0, String::from("start"), State::new(&bounds)?)];
    while let Some((depth, event, state)) = open.pop() {
        trail.truncate(depth);
        trail.push(event);
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            continue;
        }
        let next = state.successors(&bounds).map_err(|wrong| format!("{bounds:?}: {wrong}\n{}", trail.join("\n")))?;
        explored.ends += usize::from(next.is_empty());
        explored.timeouts += next.iter().filter(|(_, next)| next.timeouts > state.timeouts).count();
        open.extend(next.into_iter().map(|(event, next)| (depth + 1, event, next)));
    }
    explored.states = seen.len();
    Ok(explored)
}

fn psn_of(index: u32) -> Psn {
    Psn::new(START).plus(index)
}

fn feedback(cumulative: Psn, rtt: Duration) -> Feedback<'static> {
    Feedback { cumulative, negative: false, trigger: None, bitmap: &[], rtt: Some(rtt), echoed: None }
}

fn warm_sender(bounds: &Bounds, profile: Profile) -> Result<(Instant, Sender), String> {
    let rto = RtoBounds {
        low: Duration::from_micros(200),
        high: Duration::from_millis(1),
        longest: Duration::from_secs(1),
        adaptive: profile.rto_adaptive,
    };
    let window = Window::fixed(bounds.cap);
    let config = SenderConfig { profile, window, rto, retry_count: 7, ack_delay: HALF, tail_asks: true };
    let mut sender = Sender::new(Psn::new(START - WARM_UP), config);
    let mut now = Instant::from_nanos(HALF.as_nanos() * 100);
    for _ in 0..WARM_UP {
        let pick = sender.pick(now, true).ok_or("the window is closed")?;
        sender.on_sent(now, pick, 0);
        now += HALF * 2;
        sender.on_ack(now, feedback(sender.next_new(), HALF * 2)).map_err(|_| "refused")?;
    }
    Ok((now, sender))
}

impl State {
    fn new(bounds: &Bounds) -> Result<Self, String> {
        let profile = Profile::of(bounds.recovery);
        let (now, sender) = warm_sender(bounds, profile)?;
        let mut state = Self {
            now,
            sender,
            receiver: Receiver::new(psn_of(0)),
            acker: Acker::new(profile, AckTiming { every: 4, delay: HALF }),
            data: Vec::new(),
            data_next: Vec::new(),
            acks: Vec::new(),
            acks_next: Vec::new(),
            acks_turn: true,
            sent: 0,
            accepted: 0,
            last_arrival: (Instant::ZERO, Instant::ZERO),
            heard_by_receiver: Instant::ZERO,
            heard_by_sender: Instant::ZERO,
            last_sent: vec![Instant::ZERO; bounds.packets as usize],
            again_arrived: false,
            gap_seen: false,
            timeouts: 0,
            budget: [bounds.drops, bounds.doubles, bounds.holds, bounds.stalls],
            faults: Faults::default(),
        };
        state.transmit(bounds);
        Ok(state)
    }

    /// Everything that can happen next; nothing if all is done.
    fn successors(&self, bounds: &Bounds) -> Result<Vec<(String, Self)>, String> {
        let mut next = Vec::new();
        let count = if self.acks_turn { self.acks.len() } else { self.data.len() };
        // Go-back-N takes any reordering for a loss, and there is no end to what it sends again for it: on its path only
        // frames held back are out of order.
        let reach = if bounds.recovery == Recovery::GoBackN { count.min(1) } else { count };
        for index in 0..reach {
            for fate in [Fate::Deliver, Fate::Drop, Fate::Double, Fate::Hold] {
                let mut state = self.clone();
                if state.spend(fate) {
                    let event = state.apply(bounds, index, fate)?;
                    next.push((event, state));
                }
            }
        }
        if count > 0 && self.budget[3] > 0 && !self.faults.stalled {
            next.extend(self.stall(bounds)?);
        }
        if count == 0 && !self.is_done(bounds)? {
            let mut state = self.clone();
            let event = state.turn(bounds)?;
            next.push((event, state));
        }
        Ok(next)
    }

    fn spend(&mut self, fate: Fate) -> bool {
        let slot = match fate {
            Fate::Deliver => return true,
            Fate::Drop => 0,
            Fate::Double => 1,
            Fate::Hold => 2,
        };
        let left = self.budget[slot] > 0;
        self.budget[slot] = self.budget[slot].saturating_sub(1);
        left
    }

    fn apply(&mut self, bounds: &Bounds, index: usize, fate: Fate) -> Result<String, String> {
        let now = self.now.as_nanos() / 256;
        if self.acks_turn {
            let ack = if matches!(fate, Fate::Double) { self.acks[index] } else { self.acks.remove(index) };
            self.faults.ack_overtaken |= index > 0;
            match fate {
                Fate::Deliver | Fate::Double => self.deliver_ack(bounds, ack)?,
                Fate::Hold => self.acks_next.push(ack),
                Fate::Drop => {
                    self.faults.ack_lost = true;
                    self.faults.answer_lost |= ack.after_again;
                }
            }
            return Ok(format!("{now}: {fate:?} {ack:?}"));
        }
        let data = if matches!(fate, Fate::Double) { self.data[index] } else { self.data.remove(index) };
        match fate {
            Fate::Deliver | Fate::Double => self.deliver(data)?,
            Fate::Hold => self.data_next.push(data),
            Fate::Drop => self.faults.retransmission_lost |= data.again,
        }
        Ok(format!("{now}: {fate:?} {data:?}"))
    }

    // ---- the receiver

    fn deliver(&mut self, data: Data) -> Result<(), String> {
        let psn = psn_of(data.index);
        let arrival = self.receiver.classify(psn);
        self.last_arrival = (data.at, self.now);
        self.heard_by_receiver = self.heard_by_receiver.max(data.at);
        self.again_arrived |= data.again;
        let opens_gap = self.receiver.opens_gap(psn);
        let kept = arrival == Arrival::Expected || arrival == Arrival::Early && self.keeps_early();
        let advance = if kept { self.accept(data.index)? } else { 0 };
        self.gap_seen = if arrival == Arrival::Expected { false } else { self.gap_seen || arrival == Arrival::Early };
        self.acker.on_arrival(self.now, arrival, psn, self.receiver.expected(), data.ack_request || opens_gap || advance > 1);
        self.answer();
        Ok(())
    }

    fn keeps_early(&self) -> bool {
        self.profile().keeps_early
    }

    const fn profile(&self) -> Profile {
        self.sender.profile()
    }

    fn accept(&mut self, index: u32) -> Result<u32, String> {
        if self.accepted >> index & 1 == 1 {
            return Err(format!("packet {index} is delivered twice"));
        }
        self.accepted |= 1 << index;
        let advance = self.receiver.accept(psn_of(index), Mark::Completes);
        let in_order = self.accepted.trailing_ones();
        let told = self.receiver.expected().distance_from(psn_of(0));
        if told != Some(in_order) || advance.completions != advance.packets {
            return Err(format!("{in_order} packets are complete, the receiver says {told:?} and completes {advance:?}"));
        }
        Ok(advance.packets)
    }

    fn answer(&mut self) {
        while let Some(answer) = self.acker.answer(&self.receiver) {
            let (echoed, arrived) = self.last_arrival;
            self.acks_next.push(Ack {
                cumulative: answer.cumulative.value(),
                negative: answer.negative,
                selective: answer.selective.map(|(psn, words)| (psn.value(), words[0])),
                echoed,
                held: self.now.since(arrived),
                heard: self.heard_by_receiver,
                after_again: self.again_arrived,
            });
        }
    }

    // ---- the sender

    fn deliver_ack(&mut self, bounds: &Bounds, ack: Ack) -> Result<(), String> {
        let bitmap = [ack.selective.map_or(0, |(_, word)| word)];
        let feedback = Feedback {
            cumulative: Psn::new(ack.cumulative),
            negative: ack.negative,
            trigger: ack.selective.map(|(psn, _)| Psn::new(psn)),
            bitmap: &bitmap,
            rtt: Some(self.now.since(ack.echoed) - ack.held),
            echoed: Some(ack.echoed),
        };
        // One that was overtaken is refused.
        if self.sender.on_ack(self.now, feedback).is_ok() {
            self.heard_by_sender = self.heard_by_sender.max(ack.heard);
        }
        let known = self.sender.unacknowledged().distance_from(psn_of(0));
        if known.is_none_or(|known| known > self.accepted.trailing_ones()) {
            return Err(format!("{known:?} packets count as acknowledged"));
        }
        self.transmit(bounds);
        Ok(())
    }

    /// The sender sends all that it wants to.
    fn transmit(&mut self, bounds: &Bounds) {
        while let Some(pick) = self.sender.pick(self.now, self.sent < bounds.packets) {
            let (psn, again) = match pick {
                Pick::New(psn) => (psn, false),
                Pick::Again { psn, .. } => (psn, true),
            };
            let closing = self.sender.in_flight() + 1 >= self.sender.cap();
            self.sender.on_sent(self.now, pick, 0);
            self.sent += u32::from(!again);
            let index = psn.distance_from(psn_of(0)).unwrap_or(0);
            self.last_sent[index as usize] = self.now;
            let ack_request = again || closing || index + 1 == bounds.packets;
            self.data_next.push(Data { index, at: self.now, again, ack_request });
        }
    }

    // ---- time

    /// This half is over: the next one begins, or, if the path is empty, the next timer runs out.
    fn turn(&mut self, bounds: &Bounds) -> Result<String, String> {
        let idle = self.data_next.is_empty() && self.acks_next.is_empty();
        let timers = [self.sender.deadline(), self.acker.deadline()];
        self.now = match timers.into_iter().flatten().min() {
            Some(at) if idle => at.max(self.now),
            None if idle => return Err(String::from("nothing will ever happen again")),
            _ => self.now + HALF,
        };
        if !idle {
            self.acks_turn = !self.acks_turn;
            if self.acks_turn {
                self.acks = std::mem::take(&mut self.acks_next);
            } else {
                self.data = std::mem::take(&mut self.data_next);
                self.data.sort_unstable_by_key(|data| (data.at, data.index));
            }
        }
        self.run_timers(bounds)?;
        Ok(format!("{}: {}", self.now.as_nanos() / 256, if idle { "silence" } else { "half a round trip" }))
    }

    /// Everything stays where it is until the sender's next timer.
    fn stall(&self, bounds: &Bounds) -> Result<Option<(String, Self)>, String> {
        let mut state = self.clone();
        let Some(at) = state.sender.deadline() else { return Ok(None) };
        state.budget[3] -= 1;
        state.faults.stalled = true;
        state.now = state.now.max(at);
        state.run_timers(bounds)?;
        Ok(Some((format!("{}: stall", state.now.as_nanos() / 256), state)))
    }

    fn run_timers(&mut self, bounds: &Bounds) -> Result<(), String> {
        if self.acker.deadline().is_some_and(|at| at <= self.now) {
            self.acker.handle_timeout(self.now, self.receiver.expected());
            self.answer();
        }
        while self.sender.deadline().is_some_and(|at| at <= self.now) {
            match self.sender.on_timeout(self.now) {
                Timeout::Exhausted => return Err(String::from("the sender gives up")),
                Timeout::Retransmit => {
                    self.timeouts += 1;
                    self.excuse(bounds)?;
                }
                Timeout::Idle | Timeout::LossCheck { .. } | Timeout::Probe => {}
            }
            self.transmit(bounds);
        }
        let limit = u32::from(bounds.drops + bounds.holds + bounds.stalls) + 2;
        if self.timeouts > limit { Err(format!("{} time-outs for {limit} faults", self.timeouts)) } else { Ok(()) }
    }

    /// A time-out has run out. What each mode promises:
    ///
    /// * All: none unless a timer ran out early (a stall) or something was lost or late.
    /// * `irn`: none unless a retransmission or the answer to one was lost, however many packets, the last ones
    ///   included, and however many earlier acknowledgements were lost. Even then none for a packet while one sent after
    ///   it is known to have arrived.
    /// * `irn-strict`, `selective-no-sack`: none while a packet behind the gap has arrived, unless a retransmission or an
    ///   acknowledgement was lost or late, or an acknowledgement was overtaken: the report of a gap is not repeated.
    /// * `go-back-n`: as these.
    fn excuse(&self, bounds: &Bounds) -> Result<(), String> {
        let Faults { retransmission_lost, ack_lost, answer_lost, stalled, ack_overtaken } = self.faults;
        let late = bounds.holds > self.budget[2];
        let excused = stalled
            || match bounds.recovery {
                Recovery::Irn => (retransmission_lost || answer_lost) && !self.overtaken_is_waiting(),
                Recovery::IrnStrict | Recovery::SelectiveNoSack => {
                    retransmission_lost || ack_lost || ack_overtaken || late || !self.receiver.has_early()
                }
                Recovery::GoBackN => retransmission_lost || ack_lost || late || !self.gap_seen,
            };
        if excused { Ok(()) } else { Err(String::from("a time-out was needed")) }
    }

    /// True if a packet is missing although one sent after it is known to have arrived.
    fn overtaken_is_waiting(&self) -> bool {
        let acknowledged = self.sender.unacknowledged().distance_from(psn_of(0)).unwrap_or(0);
        let mut missing = (acknowledged..self.sent).filter(|index| self.accepted >> index & 1 == 0);
        missing.any(|index| self.last_sent[index as usize] < self.heard_by_sender)
    }

    fn is_done(&self, bounds: &Bounds) -> Result<bool, String> {
        let path = self.data.len() + self.data_next.len() + self.acks.len() + self.acks_next.len();
        if path > 0 || self.acker.deadline().is_some() || self.sent < bounds.packets || self.sender.in_flight() > 0 {
            return Ok(false);
        }
        if self.accepted.trailing_ones() != bounds.packets {
            return Err(format!("all is acknowledged, but only {:b} arrived", self.accepted));
        }
        if self.sender.deadline().is_some() || self.sender.in_recovery() {
            return Err(String::from("all is acknowledged, and the sender still waits for something"));
        }
        Ok(true)
    }
}
