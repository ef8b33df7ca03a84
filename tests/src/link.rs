//! The cable between a host and the switch: one direction, with a rate, a delay and a bounded transmit queue.
//!
//! It neither loses nor changes anything; that is what the switch's impairments are for. Owns the frames on it.

use std::collections::VecDeque;

use weft_proto::{BitRate, Duration, FrameRef, Instant};

/// One direction of a cable.
#[derive(Debug)]
pub struct Link {
    rate: BitRate,
    delay: Duration,
    /// When the transmitter has sent everything that it was given.
    free_at: Instant,
    frames: VecDeque<(Instant, FrameRef)>,
}

/// A transmitter takes frames for this long ahead, like a network card's queue.
const AHEAD: Duration = Duration::from_micros(20);

impl Link {
    /// An empty cable.
    pub const fn new(rate: BitRate, delay: Duration) -> Self {
        Self { rate, delay, free_at: Instant::ZERO, frames: VecDeque::new() }
    }

    /// When the transmitter takes the next frame; an instant in the past means now.
    pub fn ready_at(&self) -> Instant {
        Instant::from_nanos(self.free_at.as_nanos().saturating_sub(AHEAD.as_nanos()))
    }

    /// True if the transmitter takes a frame now.
    pub fn has_room(&self, now: Instant) -> bool {
        self.ready_at() <= now
    }

    /// Sends a frame of `bytes` bytes.
    pub fn push(&mut self, now: Instant, bytes: usize, frame: FrameRef) {
        self.free_at = self.free_at.max(now) + self.rate.time_for(bytes as u64);
        self.frames.push_back((self.free_at + self.delay, frame));
    }

    /// A frame that has arrived.
    pub fn pop_due(&mut self, now: Instant) -> Option<FrameRef> {
        self.frames.pop_front_if(|(at, _)| *at <= now).map(|(_, frame)| frame)
    }

    /// When the next frame arrives.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.frames.front().map(|(at, _)| *at)
    }

    /// Frames on the cable.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// True if nothing is on the cable.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}
