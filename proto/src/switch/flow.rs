//! Flow control of one link, PAUSE (IEEE 802.3x) or PFC (802.1Qbb): when to ask the other end to be silent, and when to be
//! silent at its request.
//!
//! Asking goes by what waits in the switch and came in here: from `xoff` bytes on the other end is asked to stop, again after
//! half of the time asked for while more than `xon` bytes wait, and told to go on as soon as no more do.
//!
//! Obeying is bounded. Who has been silent without a break for longer than the watchdog's time no longer obeys, so that a
//! station gone mad cannot fill the buffers of a whole network, and obeys again when nothing asked it to stop for
//! [`RESTORE`]. Both ends of that depend on what comes in alone, never on what was done about it, so the state cannot flap;
//! a frame that says "go on" is no reason for silence and does not count.
//!
//! PAUSE has one lane, PFC one per priority. Owns no frame; only says what to do.

use crate::drops::DropReason;
use crate::switch::config::CLASSES_MAX;
use crate::switch::counters::FlowCounters;
use crate::time::{Duration, Instant, earliest};
use crate::units::BitRate;
use crate::wire::MacControl;
use crate::wire::mac_control::{PRIORITIES, quanta, quanta_time};

/// A port that stopped obeying obeys again when nothing asked it to stop for this long: far longer than any pause, so that a
/// storm with breaks is still one storm.
pub const RESTORE: Duration = Duration::from_secs(2);
/// No buffer was free for a frame of the switch's own; try again after this, a few dozen frames at 10 Gbit/s.
pub(super) const RETRY: Duration = Duration::from_micros(50);

/// Whether the two ends of a link stop each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowControl {
    /// They do not.
    #[default]
    None,
    /// As a whole.
    Pause,
    /// Each priority on its own.
    Pfc,
}

/// Settings for all ports with flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowConfig {
    /// Bytes waiting that came in through a port (with PFC: of one class) from which its other end is asked to stop.
    pub xoff: u64,
    /// Bytes waiting down to which it is told to go on, less than `xoff`.
    pub xon: u64,
    /// For how long it is asked to stop, if that fits the field at the port's rate.
    pub pause_time: Duration,
    /// A longer silence without a break is not obeyed.
    pub watchdog: Duration,
}

impl FlowConfig {
    /// What is sensible for links of up to 10 Gbit/s and owners that may be a millisecond late.
    pub const DEFAULT: Self =
        Self { xoff: 64 * 1024, xon: 32 * 1024, pause_time: Duration::from_millis(3), watchdog: Duration::from_millis(400) };
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What the other end asked for, as a whole or for one priority.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// Since when we have been silent without a break; `None` = we are not.
    since: Option<Instant>,
    /// When the silence asked for is over.
    until: Instant,
    /// When we were last asked to be silent.
    asked_at: Instant,
    /// The watchdog tripped: we are not silent whatever is asked.
    ignores: bool,
}

impl Lane {
    /// When the silence ends if nothing more is asked.
    fn end(&self, watchdog: Duration) -> Option<Instant> {
        self.since.map(|since| self.until.min(since + watchdog))
    }

    /// The silence is over by `now`, and perhaps the disobedience. Returns true if the watchdog tripped.
    fn advance(&mut self, now: Instant, watchdog: Duration) -> bool {
        let over = self.end(watchdog).is_some_and(|end| now >= end);
        let trips = over && self.since.is_some_and(|since| self.until > since + watchdog);
        if over {
            self.since = None;
        }
        self.ignores |= trips;
        self.ignores &= now.since(self.asked_at) < RESTORE;
        trips
    }

    /// Asked to be silent for so long. Returns false if that is ignored.
    fn stop(&mut self, now: Instant, span: Duration) -> bool {
        self.asked_at = now;
        if !self.ignores {
            self.since.get_or_insert(now);
            self.until = now + span;
        }
        !self.ignores
    }
}

/// The flow control of one port.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) kind: FlowControl,
    lanes: [Lane; PRIORITIES],
    /// Per class (PAUSE: the first), when to ask again; `None` = the other end may send.
    asked: [Option<Instant>; CLASSES_MAX],
    /// No buffer was free: not before then.
    retry_at: Instant,
    /// Until when the time of silence is counted.
    counted: Instant,
}

impl Flow {
    pub(super) fn new(kind: FlowControl) -> Self {
        Self { kind, lanes: [Lane::default(); PRIORITIES], asked: [None; CLASSES_MAX], retry_at: Instant::ZERO, counted: Instant::ZERO }
    }

    // ---- silence

    /// Ends what is over by `now`. Returns when the last silence that ended did, if one did.
    pub(super) fn advance(&mut self, now: Instant, watchdog: Duration, counters: &mut FlowCounters) -> Option<Instant> {
        let (mut silent_until, mut ended) = (self.counted, None);
        for lane in &mut self.lanes {
            if let Some(end) = lane.end(watchdog) {
                silent_until = silent_until.max(end.min(now));
                ended = if end <= now { ended.max(Some(end)) } else { ended };
            }
            counters.watchdog_trips += u64::from(lane.advance(now, watchdog));
        }
        counters.paused = counters.paused + silent_until.since(self.counted);
        self.counted = self.counted.max(now);
        ended
    }

    /// The other end asks for something; [`Flow::advance`] was called for `now`.
    ///
    /// # Errors
    /// [`DropReason::MacControl`] for PAUSE where PFC is spoken, and the other way round.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        message: &MacControl,
        rate: BitRate,
        counters: &mut FlowCounters,
    ) -> Result<(), DropReason> {
        let (enabled, times) = match (self.kind, *message) {
            (FlowControl::Pause, MacControl::Pause { time }) => (1, [time; PRIORITIES]),
            (FlowControl::Pfc, MacControl::Pfc { enabled, times }) => (enabled, times),
            _ => return Err(DropReason::MacControl),
        };
        let mut obeyed = true;
        for (lane, time) in
            self.lanes.iter_mut().zip(times).enumerate().filter(|(index, _)| enabled >> index & 1 == 1).map(|(_, pair)| pair)
        {
            if time == 0 {
                lane.since = None;
            } else {
                obeyed &= lane.stop(now, quanta_time(time, rate));
            }
        }
        counters.received += 1;
        counters.ignored += u64::from(!obeyed);
        Ok(())
    }

    /// Classes that are silent, a bit each, of `classes`.
    pub(super) fn held(&self, classes: usize) -> u8 {
        match self.kind {
            FlowControl::None => 0,
            FlowControl::Pause => self.lanes[0].since.map_or(0, |_| u8::MAX),
            FlowControl::Pfc => (0..PRIORITIES)
                .filter(|&priority| self.lanes[priority].since.is_some())
                .fold(0, |held, priority| held | 1 << (priority * classes / PRIORITIES)),
        }
    }

    /// When the first silence ends.
    pub(super) fn poll_release(&self, watchdog: Duration) -> Option<Instant> {
        self.lanes.iter().fold(None, |first, lane| earliest(first, lane.end(watchdog)))
    }

    // ---- asking

    /// When to send a frame, given the bytes that wait per class (PAUSE: in the first place, all of them); [`Instant::ZERO`] = now.
    pub(super) fn poll_ask(&self, config: &FlowConfig, levels: &[u64; CLASSES_MAX]) -> Option<Instant> {
        let due = self.asked.iter().zip(levels).fold(None, |due, (asked, &level)| match asked {
            None if wants_stop(config, level) => Some(Instant::ZERO),
            Some(_) if level <= config.xon => Some(Instant::ZERO),
            &again => earliest(due, again),
        });
        due.map(|due| due.max(self.retry_at))
    }

    /// No buffer was free for the frame that is due.
    pub(super) fn handle_no_buffer(&mut self, now: Instant) {
        self.retry_at = now + RETRY;
    }

    /// The frame that is due; it will be sent.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        config: &FlowConfig,
        levels: &[u64; CLASSES_MAX],
        classes: usize,
        rate: BitRate,
    ) -> MacControl {
        let time = quanta(config.pause_time, rate);
        let again = now + quanta_time(time, rate).div(2);
        let mut said = [None; CLASSES_MAX];
        for ((asked, &level), said) in self.asked.iter_mut().zip(levels).zip(&mut said) {
            *said = match *asked {
                None if wants_stop(config, level) => Some(time),
                Some(_) if level <= config.xon => Some(0),
                Some(due) if now >= due => Some(time),
                _ => None,
            };
            if let Some(time) = *said {
                *asked = (time > 0).then_some(again);
            }
        }
        match self.kind {
            FlowControl::Pfc => per_priority(&said, classes),
            FlowControl::Pause | FlowControl::None => MacControl::Pause { time: said[0].unwrap_or(0) },
        }
    }
}

/// A level at which `xon` would take back at once what `xoff` asks is no reason to stop, however the two are set.
const fn wants_stop(config: &FlowConfig, level: u64) -> bool {
    level >= config.xoff && level > config.xon
}

/// What is said of classes, said of the priorities in them.
fn per_priority(said: &[Option<u16>; CLASSES_MAX], classes: usize) -> MacControl {
    let (mut enabled, mut times) = (0, [0; PRIORITIES]);
    for (priority, slot) in times.iter_mut().enumerate() {
        if let Some(time) = said[priority * classes / PRIORITIES] {
            enabled |= 1 << priority;
            *slot = time;
        }
    }
    MacControl::Pfc { enabled, times }
}

#[cfg(test)]
mod tests;
