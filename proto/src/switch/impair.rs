//! A bad link on purpose: loss, duplication, corruption, reordering, delay and jitter, repeatable from a seed.
//!
//! A frame is lost or not, then perhaps doubled; each copy is corrupted or not on its own and waits in the delay
//! line until its time. Jitter keeps the order of frames: only those drawn for reordering are held back by
//! `reorder_delay` and overtaken by what follows. A line holds no more frames than the pool has free buffers, so
//! that a long link cannot starve the others.

use crate::drops::{DropCounts, DropReason};
use crate::pool::{FrameRef, Offload, Pool};
use crate::rng::Rng;
use crate::switch::counters::ImpairmentCounters;
use crate::switch::delay::DelayLine;
use crate::time::{Duration, Instant};
use crate::wire::eth::Ethernet;

/// How bad a link is. Probabilities are in parts per million of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairment {
    /// Frames lost.
    pub loss_ppm: u32,
    /// Frames that arrive twice.
    pub duplicate_ppm: u32,
    /// Frames with one flipped bit somewhere behind the Ethernet header. A super-frame is lost instead: whoever
    /// segments it would put valid checksums on the damage, which no real link can.
    pub corrupt_ppm: u32,
    /// Frames held back by `reorder_delay`.
    pub reorder_ppm: u32,
    /// How long frames drawn for reordering are held back.
    pub reorder_delay: Duration,
    /// Delay of every frame.
    pub delay: Duration,
    /// Further delay, drawn evenly between zero and this for each frame, without changing the order.
    pub jitter: Duration,
}

impl Impairment {
    /// A perfect link.
    pub const NONE: Self = Self {
        loss_ppm: 0,
        duplicate_ppm: 0,
        corrupt_ppm: 0,
        reorder_ppm: 0,
        reorder_delay: Duration::ZERO,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
    };

    /// True if frames pass unchanged and at once.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

/// Checksum unfinished or vouched for: the bits of [`Offload::flags`] that hide damage from the receiver.
const CHECKSUM_FLAGS: u8 = 0b11;

/// One direction of one port's link.
#[derive(Debug)]
pub(super) struct Impairer {
    config: Impairment,
    rng: Rng,
    line: DelayLine,
    /// When the last frame leaves that was not drawn for reordering.
    release_last: Instant,
    counters: ImpairmentCounters,
}

impl Impairer {
    /// An impairer with room for `frames` waiting frames, if it can hold any back.
    pub(super) fn new(config: Impairment, rng: Rng, frames: usize) -> Self {
        let mut line = DelayLine::default();
        if !config.is_none() {
            line.reserve(frames);
        }
        Self { config, rng, line, release_last: Instant::ZERO, counters: ImpairmentCounters::default() }
    }

    /// Changes the settings; frames that wait keep their time.
    pub(super) fn reconfigure(&mut self, config: Impairment, rng: Rng, frames: usize) {
        if !config.is_none() {
            self.line.reserve(frames);
        }
        self.config = config;
        self.rng = rng;
    }

    /// True if frames need not come here at all.
    pub(super) fn is_transparent(&self) -> bool {
        self.config.is_none() && self.line.len() == 0
    }

    /// What was done so far.
    pub(super) const fn counters(&self) -> &ImpairmentCounters {
        &self.counters
    }

    /// The waiting frames.
    pub(super) const fn line(&self) -> &DelayLine {
        &self.line
    }

    /// The waiting frames, to be taken out.
    pub(super) const fn line_mut(&mut self) -> &mut DelayLine {
        &mut self.line
    }

    /// A frame enters the link at `now`. It and its copies come out of the line, or are dropped and counted.
    pub(super) fn handle_frame(&mut self, now: Instant, pool: &mut Pool, frame: FrameRef, drops: &mut DropCounts) {
        if self.rng.chance(self.config.loss_ppm) {
            drops.count(DropReason::ImpairedLoss);
            return pool.free(frame);
        }
        if self.rng.chance(self.config.duplicate_ppm) {
            let copy = pool.share(&frame);
            self.counters.duplicated += 1;
            self.pass(now, pool, copy, drops);
        }
        self.pass(now, pool, frame, drops);
    }

    fn pass(&mut self, now: Instant, pool: &mut Pool, frame: FrameRef, drops: &mut DropCounts) {
        let passed = if self.rng.chance(self.config.corrupt_ppm) { self.corrupt(pool, frame) } else { Ok(frame) };
        let release = self.draw_release(now);
        let room = self.line.len() <= pool.available();
        let held = passed.and_then(|frame| {
            let pushed = if room { self.line.push(release, frame) } else { Err(frame) };
            pushed.map_err(|frame| (frame, DropReason::ImpairedFull))
        });
        if let Err((frame, reason)) = held {
            drops.count(reason);
            pool.free(frame);
        }
    }

    fn draw_release(&mut self, now: Instant) -> Instant {
        let jitter = self.config.jitter.as_nanos();
        let jitter = if jitter == 0 { 0 } else { self.rng.below(jitter.saturating_add(1)) };
        let release = (now + self.config.delay + Duration::from_nanos(jitter)).max(self.release_last);
        if self.rng.chance(self.config.reorder_ppm) {
            self.counters.reordered += 1;
            return release + self.config.reorder_delay;
        }
        self.release_last = release;
        release
    }

    /// Flips one bit of a private copy of the frame.
    fn corrupt(&mut self, pool: &mut Pool, frame: FrameRef) -> Result<FrameRef, (FrameRef, DropReason)> {
        let offload = pool.offload(&frame);
        if offload.is_super_frame() {
            return Err((frame, DropReason::ImpairedLoss));
        }
        let header = Ethernet::parse(pool.bytes(&frame)).map_or(0, |(header, _)| header.len());
        let bits = (pool.bytes(&frame).len() - header) as u64 * 8;
        if bits == 0 {
            return Ok(frame);
        }
        let frame = private(pool, frame)?;
        let bit = self.rng.below(bits);
        let at = header + usize::try_from(bit / 8).unwrap_or(0);
        pool.bytes_mut(&frame)[at] ^= 1 << (bit % 8);
        pool.set_offload(&frame, Offload { flags: offload.flags & !CHECKSUM_FLAGS, ..offload });
        self.counters.corrupted += 1;
        Ok(frame)
    }
}

/// The frame itself if nobody else holds it, else a copy of it.
fn private(pool: &mut Pool, frame: FrameRef) -> Result<FrameRef, (FrameRef, DropReason)> {
    if !pool.is_shared(&frame) {
        return Ok(frame);
    }
    let Some(copy) = pool.copy(&frame) else { return Err((frame, DropReason::NoBuffer)) };
    pool.free(frame);
    Ok(copy)
}

#[cfg(test)]
mod tests;
