//! The receiver's view of a packet stream: what has arrived, and what that completes.

use crate::transport::Psn;
use crate::transport::irn::Bitmap;
use crate::transport::irn::bitmap::WINDOW;

/// What a packet means for its message. Two bits per packet, as in the paper: (1,0), (0,1), (1,1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// First or middle packet.
    Inner,
    /// Last packet of a message that the receiving application is not told of.
    Ends,
    /// Last packet of a message that completes a receive.
    Completes,
}

/// Where an arrival lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The next one.
    Expected,
    /// Behind a gap.
    Early,
    /// It was here before.
    Duplicate,
    /// Too far ahead to keep track of.
    OutOfWindow,
}

/// How far the in-order point moved, and what it passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// Packets.
    pub packets: u32,
    /// Ends of messages.
    pub messages: u32,
    /// Completions due, in order.
    pub completions: u32,
}

impl Advance {
    /// This step and another one.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            messages: self.messages + other.messages,
            completions: self.completions + other.completions,
        }
    }
}

/// Which packets have arrived. Bit i of both bitmaps speaks of `expected + i`.
#[derive(Clone, Debug, Hash)]
pub struct Receiver {
    expected: Psn,
    msn: u32,
    /// Largest distance of an early packet from the first gap.
    farthest_early: u32,
    /// (1, x): inner packet, or the end of a message with a completion.
    first: Bitmap,
    /// (x, 1): end of a message.
    second: Bitmap,
}

impl Receiver {
    /// A receiver whose first packet will be `start`.
    pub fn new(start: Psn) -> Self {
        Self { expected: start, msn: 0, farthest_early: 0, first: Bitmap::default(), second: Bitmap::default() }
    }

    /// The first packet that has not arrived.
    pub const fn expected(&self) -> Psn {
        self.expected
    }

    /// Messages completed, modulo 2^24.
    pub const fn msn(&self) -> u32 {
        self.msn
    }

    /// Packets that arrived behind the first gap.
    pub fn early(&self) -> u32 {
        if self.first.is_empty() && self.second.is_empty() {
            return 0;
        }
        // The end of a message with a completion has a bit in both.
        self.arrived().iter().map(|word| word.count_ones()).sum()
    }

    /// True if something arrived behind the first gap.
    pub const fn has_early(&self) -> bool {
        !self.first.is_empty() || !self.second.is_empty()
    }

    /// How far ahead of the first gap a packet has arrived at most, packets.
    pub const fn farthest_early(&self) -> u32 {
        self.farthest_early
    }

    /// How far ahead of the next expected packet `psn` lies, packets; 0 for one that was here before.
    pub fn ahead(&self, psn: Psn) -> u32 {
        psn.distance_from(self.expected).unwrap_or(0)
    }

    /// Where `psn` lies. Nothing changes.
    pub fn classify(&self, psn: Psn) -> Arrival {
        match psn.distance_from(self.expected) {
            None => Arrival::Duplicate,
            Some(0) => Arrival::Expected,
            Some(ahead) if ahead >= WINDOW => Arrival::OutOfWindow,
            Some(ahead) if self.has(ahead) => Arrival::Duplicate,
            Some(_) => Arrival::Early,
        }
    }

    /// True if `psn` is early and the packet before it is missing.
    pub fn opens_gap(&self, psn: Psn) -> bool {
        psn.distance_from(self.expected).is_some_and(|ahead| ahead > 0 && !self.has(ahead - 1))
    }

    fn has(&self, bit: u32) -> bool {
        self.first.contains(bit) || self.second.contains(bit)
    }

    /// Takes a packet that [`Self::classify`] called expected or early, once its data is in place.
    pub fn accept(&mut self, psn: Psn, mark: Mark) -> Advance {
        let Some(ahead) = psn.distance_from(self.expected).filter(|&ahead| ahead < WINDOW) else { return Advance::default() };
        if ahead == 0 && self.first.is_empty() && self.second.is_empty() {
            return self.step_over_one(mark);
        }
        self.insert(psn, mark);
        if ahead == 0 { self.step(None) } else { Advance::default() }
    }

    /// Remembers such a packet without moving the in-order point.
    pub fn insert(&mut self, psn: Psn, mark: Mark) {
        let Some(ahead) = psn.distance_from(self.expected) else { return };
        self.farthest_early = self.farthest_early.max(ahead);
        if mark != Mark::Ends {
            self.first.insert(ahead);
        }
        if mark != Mark::Inner {
            self.second.insert(ahead);
        }
    }

    /// The common case: in order, and nothing waits behind it.
    fn step_over_one(&mut self, mark: Mark) -> Advance {
        let advance = Advance { packets: 1, messages: u32::from(mark != Mark::Inner), completions: u32::from(mark == Mark::Completes) };
        self.move_by(advance);
        advance
    }

    /// Moves the in-order point over what has arrived, but not over `barrier`.
    pub fn step(&mut self, barrier: Option<Psn>) -> Advance {
        let most = barrier.and_then(|psn| psn.distance_from(self.expected)).unwrap_or(WINDOW);
        let mut advance = Advance::default();
        while advance.packets < most && self.has(advance.packets) {
            let ends = self.second.contains(advance.packets);
            advance.messages += u32::from(ends);
            advance.completions += u32::from(ends && self.first.contains(advance.packets));
            advance.packets += 1;
        }
        self.first.advance(advance.packets);
        self.second.advance(advance.packets);
        self.move_by(advance);
        advance
    }

    fn move_by(&mut self, advance: Advance) {
        self.expected = self.expected.plus(advance.packets);
        self.msn = (self.msn + advance.messages) & 0x00ff_ffff;
    }

    /// What has arrived as one bitmap: bit i = `expected + i`.
    pub fn arrived(&self) -> [u64; 16] {
        let mut words = *self.first.words();
        for (word, ends) in words.iter_mut().zip(self.second.words()) {
            *word |= ends;
        }
        words
    }
}
