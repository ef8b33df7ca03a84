//! Obeying: per destination, what a stop packet made of it and until when.
//!
//! ```text
//!            stop                      cancel, timer                 a while
//!   Free ------------> Held ---------------------------> Resuming ----------> Free
//!                      |  ^ stop: new timer, new rate     |  stop
//!                      |  +-------------------------------+
//!                      | longest, budget
//!                      v
//!                    Ignored ---- no stop packet for `forgive_after` ----> Free
//! ```
//!
//! A stop packet of X means frames to X and no others. Whoever builds frames asks [`Obedience::verdict`] and books what it
//! builds; whoever hands them to the wire does the same once more, for what was built before the stop packet came.
//!
//! Ignoring ends when the stop packets end. Being ignored does not hinder a host from sending them, so that nothing flaps.

use alloc::collections::VecDeque;

use crate::drops::DropReason;
use crate::pace::Pacer;
use crate::rng::Rng;
use crate::stop::config::{Accept, EVERYTHING, ObeyConfig, PriorityRule, RateRule, Request, StopConfig, TimerRule};
use crate::stop::journal::Journal;
use crate::stop::late::Departures;
use crate::stop::rate::Share;
use crate::stop::table::Table;
use crate::stop::view::{AskerView, Release, Standing, StopEvent};
use crate::time::{Duration, Instant};
use crate::timers::Timers;
use crate::units::BitRate;
use crate::wire::MacAddr;

/// Whether a frame may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Now.
    Open,
    /// Not before; ask again then, or when the destination is released.
    Closed {
        /** The earliest time, unless it is prolonged. */
        until: Instant,
    },
}

/// Where a frame is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before it is built.
    Build,
    /// Before it goes to the wire.
    Depart,
}

/// What holds for a destination.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Free,
    Held(Hold),
    /// Frames leave from `from` on, until `until` at the rate of the link at most.
    Resuming {
        from: Instant,
        until: Instant,
        /// Since when nothing may leave, until `from`.
        stopped_since: Instant,
        /// Frames of this priority and above were never held back.
        below: u8,
    },
    Ignored {
        since: Instant,
        last_stop: Instant,
    },
}

/// A stop that holds.
#[derive(Clone, Copy, Debug)]
struct Hold {
    since: Instant,
    /// Since when nothing at all may leave, if so: slowing down may last, as long as the budget allows.
    stopped_since: Option<Instant>,
    until: Instant,
    below: u8,
    share: Share,
}

/// A host that asked us to stop at some time.
#[derive(Debug)]
struct Asker {
    phase: Phase,
    /// Up to here the time held back is in the sums.
    accounted: Instant,
    stopped: Duration,
    stops: u64,
    /// Time for which it may still hold us back.
    credit: Duration,
    /// Of the last packet, if packets are sealed.
    sequence: Option<u64>,
    build: Pacer,
    depart: Pacer,
}

/// See the module.
#[derive(Debug)]
pub struct Obedience {
    config: ObeyConfig,
    tick: Duration,
    rate_rule: RateRule,
    line_rate: BitRate,
    askers: Table<Asker>,
    /// Askers that are not free.
    active: usize,
    /// Times that something opened or closed.
    changes: u64,
    timers: Timers,
    departures: Departures,
    released: VecDeque<MacAddr>,
    rng: Rng,
}

impl Obedience {
    pub(super) fn new(config: &StopConfig, obey: &ObeyConfig, mut rng: Rng) -> Self {
        let places = config.table_size as usize;
        Self {
            config: obey.clone(),
            tick: config.tick,
            rate_rule: config.rate_rule,
            line_rate: config.line_rate,
            askers: Table::new(places, &mut rng),
            active: 0,
            changes: 0,
            timers: Timers::new(places),
            departures: Departures::default(),
            released: VecDeque::with_capacity(places),
            rng,
        }
    }

    // ---- what senders ask

    /// True if every frame may go.
    pub const fn is_idle(&self) -> bool {
        self.active == 0
    }

    /// Changes with everything that may change a verdict, except time.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether a frame of a priority may go to `dst`.
    pub fn verdict(&self, now: Instant, dst: MacAddr, priority: u8, stage: Stage) -> Verdict {
        if self.is_idle() {
            return Verdict::Open;
        }
        let Some(asker) = self.askers.find(dst).and_then(|place| self.askers.get(place)) else { return Verdict::Open };
        let earliest = match &asker.phase {
            Phase::Free | Phase::Ignored { .. } => now,
            Phase::Held(hold) if now >= hold.until || priority >= hold.below => now,
            Phase::Held(hold) if hold.share == Share::NONE => hold.until,
            Phase::Held(hold) => asker.pacer(stage).ready_at().min(hold.until),
            Phase::Resuming { until, below, .. } if now >= *until || priority >= *below => now,
            Phase::Resuming { from, .. } => asker.pacer(stage).ready_at().max(*from),
        };
        if earliest <= now { Verdict::Open } else { Verdict::Closed { until: earliest } }
    }

    /// A frame that [`Self::verdict`] let pass is built, or leaves.
    pub fn book(&mut self, now: Instant, dst: MacAddr, priority: u8, bytes: u64, stage: Stage) {
        if stage == Stage::Depart {
            self.departures.note(now, dst, priority);
        }
        if self.is_idle() {
            return;
        }
        let Some((_, asker)) = self.askers.find(dst).and_then(|place| self.askers.get_mut(place)) else { return };
        let meant = match asker.phase {
            Phase::Free | Phase::Ignored { .. } => false,
            Phase::Held(hold) => priority < hold.below,
            Phase::Resuming { below, .. } => priority < below,
        };
        if meant {
            asker.pacer_mut(stage).book(now, bytes);
        }
    }

    /// The next destination that may be sent to again, or faster.
    pub fn poll_released(&mut self) -> Option<MacAddr> {
        self.released.pop_front()
    }

    // ---- what happens

    /// Whether a sealed packet with this number is a new one.
    pub(super) fn is_fresh(&self, host: MacAddr, sequence: u64) -> bool {
        let last = self.askers.find(host).and_then(|place| self.askers.get(place)).and_then(|asker| asker.sequence);
        last.is_none_or(|last| sequence > last)
    }

    /// True if packets of this host are obeyed at all.
    pub(super) fn accepts(&self, host: MacAddr) -> bool {
        match &self.config.accept {
            Accept::Anyone => true,
            Accept::Listed(hosts) => hosts.contains(&host),
        }
    }

    /// A host asks us to stop or slow down; its packet came in at `arrived`.
    pub(super) fn handle_stop(
        &mut self,
        now: Instant,
        arrived: Instant,
        host: MacAddr,
        request: Request,
        sequence: Option<u64>,
        journal: &mut Journal,
    ) -> Result<(), DropReason> {
        let place = self.place_of(now, host)?;
        self.handle_due(now, place, journal);
        let (below, duration) = (self.below(host, request.priority), self.duration(host, request.timer));
        let Some((_, asker)) = self.askers.get_mut(place) else { return Err(DropReason::StopTableFull) };
        asker.sequence = sequence.or(asker.sequence);
        if let Phase::Ignored { last_stop, .. } = &mut asker.phase {
            *last_stop = now;
            self.rearm(place);
            return Err(DropReason::StopBudget);
        }
        let before = asker.hold();
        let waiting = asker.waiting_since(now);
        let share = before.map_or(Share::FULL, |hold| hold.share).after(self.rate_rule, request.rate);
        let since = before.map_or(now, |hold| hold.since);
        // Who has not been let go yet, because of the jitter, has been stopped all the time.
        let stopped_since = (share == Share::NONE).then(|| before.and_then(|hold| hold.stopped_since).or(waiting).unwrap_or(now));
        let hold = Hold { since, stopped_since, until: now + duration, below, share };
        if self.enter_hold(now, place, hold, journal) {
            let late = self.departures.since(arrived, host, below);
            journal.counts.late_frames += late;
            journal.counts.late_frames_max = journal.counts.late_frames_max.max(late);
            journal.counts.obeyed += 1;
            journal.note(now, StopEvent::Obeyed { host, below, share, until: hold.until });
        } else {
            journal.counts.extended += 1;
        }
        Ok(())
    }

    /// A host says that it may be sent to again.
    pub(super) fn handle_cancel(&mut self, now: Instant, host: MacAddr, sequence: Option<u64>, journal: &mut Journal) {
        let Some(place) = self.askers.find(host) else { return };
        self.handle_due(now, place, journal);
        let Some((_, asker)) = self.askers.get_mut(place) else { return };
        asker.sequence = sequence.or(asker.sequence);
        if asker.hold().is_some() {
            self.release(now, place, Release::Cancelled, journal);
        }
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant, journal: &mut Journal) {
        while let Some(place) = self.timers.pop_due(now) {
            self.handle_due(now, place, journal);
            self.rearm(place);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    // ---- for people

    /// Hosts that asked at some time, as far as they are remembered.
    pub fn views(&self, now: Instant) -> impl Iterator<Item = AskerView> + '_ {
        self.askers.iter().map(move |(host, asker)| asker.view(now, host))
    }

    // ---- inside

    /// The place of an asker, a new one if need be.
    fn place_of(&mut self, now: Instant, host: MacAddr) -> Result<usize, DropReason> {
        if let Some(place) = self.askers.find(host) {
            return Ok(place);
        }
        let asker = Asker {
            phase: Phase::Free,
            accounted: now,
            stopped: Duration::ZERO,
            stops: 0,
            credit: self.config.longest,
            sequence: None,
            build: Pacer::new(None, now),
            depart: Pacer::new(None, now),
        };
        self.askers.insert(host, asker, |asker| matches!(asker.phase, Phase::Free)).ok_or(DropReason::StopTableFull)
    }

    /// Makes a hold current; true if there was none.
    fn enter_hold(&mut self, now: Instant, place: usize, hold: Hold, journal: &mut Journal) -> bool {
        let rate = hold.share.of(self.line_rate);
        let Some((host, asker)) = self.askers.get_mut(place) else { return false };
        asker.account(now, &self.config, journal);
        let before = core::mem::replace(&mut asker.phase, Phase::Held(hold));
        asker.stops += 1;
        let faster = matches!(before, Phase::Held(old) if old.share < hold.share);
        if !matches!(before, Phase::Held(old) if old.share == hold.share) {
            asker.pace(now, rate);
        }
        if faster || matches!(before, Phase::Held(old) if old.below > hold.below || old.until > hold.until) {
            self.note_released(host);
        }
        self.active += usize::from(matches!(before, Phase::Free));
        self.rearm(place);
        !matches!(before, Phase::Held(_))
    }

    /// What time has made of an asker.
    fn handle_due(&mut self, now: Instant, place: usize, journal: &mut Journal) {
        let Some((host, asker)) = self.askers.get_mut(place) else { return };
        if let Phase::Held(Hold { until, .. }) | Phase::Resuming { until, .. } = asker.phase {
            asker.account(now.min(until), &self.config, journal);
        }
        match asker.phase {
            Phase::Held(hold) => {
                let overlong = hold.allowed_until(self.config.longest).is_some_and(|end| now >= end && hold.until > end);
                if asker.credit == Duration::ZERO || overlong {
                    self.release(now, place, Release::Capped, journal);
                } else if now >= hold.until {
                    self.release(hold.until, place, Release::Expired, journal);
                }
            }
            Phase::Resuming { until, .. } if now >= until => self.set_free(place),
            Phase::Resuming { from, .. } if asker.credit == Duration::ZERO && now < from => {
                self.release(now, place, Release::Capped, journal);
            }
            Phase::Ignored { last_stop, .. } if now.since(last_stop) >= self.config.forgive_after => {
                self.set_free(place);
                journal.note(now, StopEvent::Forgiven { host });
            }
            Phase::Free | Phase::Resuming { .. } | Phase::Ignored { .. } => {}
        }
    }

    fn set_free(&mut self, place: usize) {
        if let Some((_, asker)) = self.askers.get_mut(place) {
            asker.phase = Phase::Free;
            self.active -= 1;
            self.rearm(place);
        }
    }

    /// A hold, accounted for up to then, ends at `at`.
    fn release(&mut self, at: Instant, place: usize, cause: Release, journal: &mut Journal) {
        let longest = self.config.longest;
        let jitter = Duration::from_nanos(self.rng.below(self.config.resume_jitter.as_nanos().saturating_add(1)));
        let line_rate = self.line_rate;
        let Some((host, asker)) = self.askers.get_mut(place) else { return };
        let hold = asker.hold();
        let held = hold.map_or(Duration::ZERO, |hold| at.since(hold.since));
        let below = hold.map_or(EVERYTHING, |hold| hold.below);
        let stopped_since = hold.and_then(|hold| hold.stopped_since).unwrap_or(at);
        let from = at + jitter;
        journal.note(at, StopEvent::Released { host, cause });
        // Each hold that began ends once, though its jitter may be cut short later.
        match cause {
            Release::Expired => journal.counts.expired += 1,
            Release::Cancelled => journal.counts.cancelled += 1,
            Release::Capped => journal.counts.capped += u64::from(hold.is_some()),
        }
        asker.phase = if cause == Release::Capped {
            journal.note(at, StopEvent::Runaway { host });
            Phase::Ignored { since: at, last_stop: at }
        } else {
            Phase::Resuming { from, until: from + held.min(longest), stopped_since, below }
        };
        asker.pace(from, Some(line_rate));
        self.note_released(host);
        self.rearm(place);
    }

    /// Nobody needs to hear of more destinations than there are.
    fn note_released(&mut self, host: MacAddr) {
        if self.released.len() < self.released.capacity() {
            self.released.push_back(host);
        }
    }

    /// Something changed for an asker.
    fn rearm(&mut self, place: usize) {
        self.changes += 1;
        let Some(asker) = self.askers.get(place) else { return };
        let due = match asker.phase {
            Phase::Free => None,
            // The credit may run out earlier than this, but not in the time of one stop packet.
            Phase::Held(hold) => Some(hold.allowed_until(self.config.longest).map_or(hold.until, |end| end.min(hold.until))),
            Phase::Resuming { until, .. } => Some(until),
            Phase::Ignored { last_stop, .. } => Some(last_stop + self.config.forgive_after),
        };
        self.timers.set(place, due);
    }

    fn presets(&self, host: MacAddr) -> (u8, u8) {
        let own = self.config.destinations.iter().find(|(mac, _)| *mac == host).map(|(_, own)| *own).unwrap_or_default();
        (own.timer.unwrap_or(self.config.presets.timer), own.priority.unwrap_or(self.config.presets.priority))
    }

    fn duration(&self, host: MacAddr, timer: u8) -> Duration {
        let preset = self.presets(host).0;
        let ticks = match self.config.timer_rule {
            TimerRule::Packet if timer > 0 => timer,
            TimerRule::Packet | TimerRule::Preset => preset,
        };
        self.tick.saturating_mul(u64::from(ticks))
    }

    /// Frames of lower priority than this are meant.
    fn below(&self, host: MacAddr, field: u8) -> u8 {
        let preset = self.presets(host).1;
        match self.config.priority_rule {
            PriorityRule::Packet if field > 0 => field,
            PriorityRule::Packet | PriorityRule::Local => preset,
            PriorityRule::Selector => match field >> 2 {
                0b00 => self.config.presets.priority,
                0b01 => preset,
                0b10 => field,
                _ => EVERYTHING,
            },
            PriorityRule::None => EVERYTHING,
        }
    }
}

impl Hold {
    /// When a stop that lasts has lasted for too long.
    fn allowed_until(&self, longest: Duration) -> Option<Instant> {
        self.stopped_since.map(|since| since + longest)
    }
}

impl Asker {
    const fn hold(&self) -> Option<Hold> {
        if let Phase::Held(hold) = self.phase { Some(hold) } else { None }
    }

    /// Since when nothing may leave, if a release has been waiting for its jitter since then.
    fn waiting_since(&self, now: Instant) -> Option<Instant> {
        if let Phase::Resuming { from, stopped_since, .. } = self.phase { Some(stopped_since).filter(|_| now < from) } else { None }
    }

    const fn pacer(&self, stage: Stage) -> &Pacer {
        match stage {
            Stage::Build => &self.build,
            Stage::Depart => &self.depart,
        }
    }

    const fn pacer_mut(&mut self, stage: Stage) -> &mut Pacer {
        match stage {
            Stage::Build => &mut self.build,
            Stage::Depart => &mut self.depart,
        }
    }

    fn pace(&mut self, from: Instant, rate: Option<BitRate>) {
        self.build = Pacer::new(rate, from);
        self.depart = Pacer::new(rate, from);
    }

    /// Brings the sums up to `at`: time held back costs credit, all time gives some.
    fn account(&mut self, at: Instant, config: &ObeyConfig, journal: &mut Journal) {
        let passed = at.since(self.accounted);
        self.accounted = self.accounted.max(at);
        let held = match self.phase {
            Phase::Held(hold) => thousandths(passed, 1000 - hold.share.permille()),
            // Nothing leaves until the jitter is over.
            Phase::Resuming { from, .. } => passed.saturating_sub(at.since(from)),
            Phase::Free | Phase::Ignored { .. } => Duration::ZERO,
        };
        self.stopped = self.stopped + held;
        let earned = thousandths(passed, config.budget_permille);
        self.credit = (self.credit + earned).saturating_sub(held).min(config.longest);
        journal.counts.stopped_nanos += held.as_nanos();
    }

    fn view(&self, now: Instant, host: MacAddr) -> AskerView {
        let standing = match self.phase {
            Phase::Free => Standing::Free,
            Phase::Held(Hold { since, until, below, share, .. }) => Standing::Held { below, share, since, until },
            Phase::Resuming { .. } => Standing::Resuming,
            Phase::Ignored { since, .. } => Standing::Ignored { since },
        };
        let open =
            self.hold().map_or(Duration::ZERO, |hold| thousandths(now.min(hold.until).since(self.accounted), 1000 - hold.share.permille()));
        AskerView { host, standing, stopped: self.stopped + open, open, stops: self.stops }
    }
}

fn thousandths(span: Duration, count: u32) -> Duration {
    Duration::from_nanos(span.as_nanos() / 1000 * u64::from(count) + span.as_nanos() % 1000 * u64::from(count) / 1000)
}

#[cfg(test)]
mod tests;
