//! When and what the receiver answers.

use alloc::collections::VecDeque;

use crate::time::{Duration, Instant};
use crate::transport::Psn;
use crate::transport::irn::{Arrival, Profile, Receiver};

/// An answer that the receiver owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// Everything before this has arrived. `None`: fill in the newest state when it is sent.
    pub cumulative: Option<Psn>,
    /// A gap was seen.
    pub negative: bool,
    /// The arrival that triggered the answer, if it was not the expected one.
    pub trigger: Option<Psn>,
}

/// An answer as it goes out, filled in from the receiver's newest state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Everything before this has arrived.
    pub cumulative: Psn,
    /// There is a gap.
    pub negative: bool,
    /// The arrival that triggered the answer, and what has arrived from `cumulative` on. `None` where the mode says
    /// nothing of it, or there is nothing to say.
    pub selective: Option<(Psn, [u64; 16])>,
}

/// The configured timing of acknowledgements.
#[derive(Clone, Copy, Debug, Hash)]
pub struct AckTiming {
    /// At the latest every so many packets.
    pub every: u32,
    /// At the latest this long after the first unacknowledged packet.
    pub delay: Duration,
}

/// Answers owed in the mode with an answer per packet; more in one batch push out the oldest.
const MAX_OWED: usize = 64;

/// Decides about acknowledgements: one per packet (as in the paper), or coalesced, but always at once when a
/// packet opens or fills a gap, is a duplicate, or asks for it.
#[derive(Clone, Debug, Hash)]
pub struct Acker {
    profile: Profile,
    timing: AckTiming,
    /// Answers to send now, oldest first; at most one unless every packet is answered.
    owed: VecDeque<Reply>,
    /// Packets not acknowledged yet.
    unacknowledged: u32,
    /// When they must be.
    deadline: Option<Instant>,
    /// Go-back-N: the gap has been reported; it is reported once (InfiniBand 9.7.5.2.8).
    gap_reported: bool,
}

impl Acker {
    /// An acker that owes nothing.
    pub fn new(profile: Profile, timing: AckTiming) -> Self {
        let capacity = if profile.ack_every_packet { MAX_OWED } else { 1 };
        Self { profile, timing, owed: VecDeque::with_capacity(capacity), unacknowledged: 0, deadline: None, gap_reported: false }
    }

    /// A packet arrived. `expected` is the in-order point after it; `urgent`: it asks for an answer, or it opens or fills a gap.
    pub fn on_arrival(&mut self, now: Instant, arrival: Arrival, psn: Psn, expected: Psn, urgent: bool) {
        match arrival {
            Arrival::Expected => self.on_expected(now, expected, urgent),
            Arrival::Early => self.on_early(now, psn, expected, urgent),
            Arrival::Duplicate => self.owe(Reply { cumulative: None, negative: false, trigger: Some(psn) }, expected),
            Arrival::OutOfWindow => {}
        }
    }

    fn on_expected(&mut self, now: Instant, expected: Psn, urgent: bool) {
        self.gap_reported = false;
        let reply = Reply { cumulative: None, negative: false, trigger: None };
        self.owe_soon(now, reply, expected, urgent);
    }

    /// A gap is reported at once when it opens. What arrives behind it later is coalesced like packets in order: the
    /// bitmap of the next answer has it.
    fn on_early(&mut self, now: Instant, psn: Psn, expected: Psn, urgent: bool) {
        let reply = Reply { cumulative: None, negative: true, trigger: Some(psn) };
        if self.profile.keeps_early {
            self.owe_soon(now, reply, expected, urgent);
        } else if !core::mem::replace(&mut self.gap_reported, true) {
            self.owe(reply, expected);
        }
    }

    fn owe_soon(&mut self, now: Instant, reply: Reply, expected: Psn, urgent: bool) {
        self.unacknowledged += 1;
        if urgent || self.profile.ack_every_packet || self.unacknowledged >= self.timing.every {
            self.owe(reply, expected);
        } else if self.deadline.is_none() {
            self.deadline = Some(now + self.timing.delay);
        }
    }

    fn owe(&mut self, reply: Reply, expected: Psn) {
        if self.profile.ack_every_packet {
            if self.owed.len() == MAX_OWED {
                self.owed.pop_front();
            }
            return self.owed.push_back(Reply { cumulative: Some(expected), ..reply });
        }
        match self.owed.front_mut() {
            // A report of a gap is not taken back by a later, friendlier arrival of the same batch.
            Some(owed) => *owed = Reply { negative: owed.negative || reply.negative, trigger: reply.trigger.or(owed.trigger), ..reply },
            None => self.owed.push_back(reply),
        }
    }

    /// Answers without an arrival: something else that an acknowledgement carries has changed.
    pub fn owe_news(&mut self, expected: Psn) {
        self.owe(Reply { cumulative: None, negative: false, trigger: None }, expected);
    }

    /// The time-out for coalesced acknowledgements.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant, expected: Psn) {
        if self.deadline.is_some_and(|at| at <= now) {
            self.owe(Reply { cumulative: None, negative: false, trigger: None }, expected);
            self.deadline = None;
        }
    }

    /// True if an answer is due.
    pub fn is_due(&self) -> bool {
        !self.owed.is_empty()
    }

    /// The next answer to send.
    pub fn poll(&mut self) -> Option<Reply> {
        let reply = self.owed.pop_front()?;
        self.unacknowledged = 0;
        self.deadline = None;
        Some(reply)
    }

    /// The next answer to send, with what the mode tells of the packets behind a gap: per-packet answers the number
    /// that triggered them, coalesced ones also the bitmap, and without SACK nothing but that there is a gap.
    pub fn answer(&mut self, receiver: &Receiver) -> Option<Answer> {
        let reply = self.poll()?;
        let cumulative = reply.cumulative.unwrap_or_else(|| receiver.expected());
        if !self.profile.sack {
            return Some(Answer { cumulative, negative: reply.negative || receiver.has_early(), selective: None });
        }
        let selective = if reply.cumulative.is_some() || !receiver.has_early() {
            reply.trigger.map(|psn| (psn, [0; 16]))
        } else {
            Some((reply.trigger.unwrap_or(cumulative), receiver.arrived()))
        };
        Some(Answer { cumulative, negative: reply.negative, selective })
    }
}
