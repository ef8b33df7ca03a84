//! One direction of a cable.

use std::collections::VecDeque;

use weft_proto::switch::FRAME_OVERHEAD;
use weft_proto::{BitRate, Duration, FrameRef, Instant, PortId};

/// Frames on their way to a port of a node, in order.
#[derive(Debug)]
pub(crate) struct Cable {
    /// Index of the node at its end.
    pub(crate) node: usize,
    /// The port there.
    pub(crate) port: PortId,
    rate: BitRate,
    delay: Duration,
    frames: VecDeque<(Instant, FrameRef)>,
}

impl Cable {
    pub(crate) const fn new(node: usize, port: PortId, rate: BitRate, delay: Duration) -> Self {
        Self { node, port, rate, delay, frames: VecDeque::new() }
    }

    /// A frame of `bytes` bytes begins to leave; the sender's port sees to it that the one before has left. It is there when
    /// its last byte is.
    pub(crate) fn send(&mut self, now: Instant, frame: FrameRef, bytes: u64) {
        self.frames.push_back((now + self.rate.time_for(bytes + FRAME_OVERHEAD) + self.delay, frame));
    }

    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<FrameRef> {
        self.frames.pop_front_if(|(at, _)| *at <= now).map(|(_, frame)| frame)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.frames.front().map(|(at, _)| *at)
    }
}
