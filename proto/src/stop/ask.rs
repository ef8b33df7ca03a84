//! Asking: whom we have asked to stop, what, and when to ask again.
//!
//! ```text
//!   Released --signs, or by hand--> Stopping: stop packet; again at half its timer, while the signs last
//!   Stopping --signs over, or by hand--> Released: cancel packet
//! ```
//!
//! A lost stop packet is made good by the next one (where the meaning of a rate field depends on the rate so far, by the next
//! sign that arises), a lost cancel packet by the timer.

use alloc::collections::VecDeque;

use crate::rng::Rng;
use crate::stop::config::{AskConfig, RateRule, Request, StopConfig};
use crate::stop::journal::Journal;
use crate::stop::table::Table;
use crate::stop::view::{AskedView, StopEvent};
use crate::time::{Duration, Instant};
use crate::timers::Timers;
use crate::units::PortId;
use crate::wire::{MacAddr, StopMessage};

/// A control packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// To whom.
    pub host: MacAddr,
    /// What it says.
    pub message: StopMessage,
}

/// Why somebody is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A port is congested.
    Sign(PortId),
    /// An operator wants it.
    Hand,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Released,
    Stopping { since: Instant, until: Instant, cause: Cause },
}

#[derive(Debug)]
struct Destination {
    state: State,
    request: Request,
    asked: u64,
    /// In the queue of those to be sent to.
    queued: bool,
    /// The next packet asks for less than before, where the rule depends on what was before.
    anew: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Asking {
    config: AskConfig,
    tick: Duration,
    rate_rule: RateRule,
    destinations: Table<Destination>,
    /// Destinations that wait for a packet, stop or cancel as their state is when it leaves.
    queue: VecDeque<usize>,
    timers: Timers,
}

impl Asking {
    pub(super) fn new(config: &StopConfig, rng: &mut Rng) -> Self {
        let places = config.table_size as usize;
        Self {
            config: config.ask.clone(),
            tick: config.tick,
            rate_rule: config.rate_rule,
            destinations: Table::new(places, rng),
            queue: VecDeque::with_capacity(places),
            timers: Timers::new(places),
        }
    }

    /// What we ask of a host by configuration.
    pub(super) fn request_for(&self, host: MacAddr) -> Request {
        self.config.requests.iter().find(|(mac, _)| *mac == host).map_or(self.config.request, |(_, request)| *request)
    }

    /// Asks a host, for the first time or again with something new.
    pub(super) fn ask(&mut self, now: Instant, host: MacAddr, request: Request, cause: Cause, journal: &mut Journal) {
        let Some(place) = self.place_of(host, request) else { return };
        let until = now + self.duration(request);
        let Some((_, destination)) = self.destinations.get_mut(place) else { return };
        let since = match destination.state {
            State::Stopping { since, .. } => since,
            State::Released => {
                journal.note(now, StopEvent::Asked { host, request });
                now
            }
        };
        destination.state = State::Stopping { since, until, cause };
        destination.request = request;
        destination.anew = true;
        self.enqueue(place);
    }

    /// The signs persist after what was asked had its effect: asks those of a port for less still, where the rule has that.
    pub(super) fn ask_again(&mut self, port: PortId) {
        if self.rate_rule.neutral().is_none() {
            return;
        }
        for place in 0..self.destinations.len() {
            let Some((_, destination)) = self.destinations.get_mut(place) else { return };
            if matches!(destination.state, State::Stopping { cause: Cause::Sign(of), .. } if of == port) {
                destination.anew = true;
                self.enqueue(place);
            }
        }
    }

    /// Tells a host that it may send again, if it was asked to stop.
    pub(super) fn cancel(&mut self, now: Instant, host: MacAddr, journal: &mut Journal) -> bool {
        let Some(place) = self.destinations.find(host) else { return false };
        self.release(now, place, journal)
    }

    /// Tells all that were asked because of a port.
    pub(super) fn cancel_all_of(&mut self, now: Instant, port: PortId, journal: &mut Journal) {
        for place in 0..self.destinations.len() {
            let of_port =
                |destination: &Destination| matches!(destination.state, State::Stopping { cause: Cause::Sign(of), .. } if of == port);
            if self.destinations.get(place).is_some_and(of_port) {
                self.release(now, place, journal);
            }
        }
    }

    /// True if a host has been asked and not told otherwise.
    pub(super) fn is_asked(&self, host: MacAddr) -> bool {
        let destination = self.destinations.find(host).and_then(|place| self.destinations.get(place));
        destination.is_some_and(|destination| matches!(destination.state, State::Stopping { .. }))
    }

    /// Time has passed: those whose timer is half over are asked again, and what was asked by hand ends with its timer.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        while let Some(place) = self.timers.pop_due(now) {
            let Some((_, destination)) = self.destinations.get_mut(place) else { continue };
            match destination.state {
                State::Stopping { cause: Cause::Sign(_), .. } => self.enqueue(place),
                // Asked anew by hand meanwhile: the packet that waits sets the time.
                State::Stopping { cause: Cause::Hand, .. } if destination.queued => {}
                State::Stopping { cause: Cause::Hand, .. } => {
                    destination.state = State::Released;
                    destination.asked = 0;
                }
                State::Released => {}
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// True if a packet waits.
    pub(super) fn has_packet(&self) -> bool {
        !self.queue.is_empty()
    }

    /// To whom the next packet goes.
    pub(super) fn next_host(&self) -> Option<MacAddr> {
        self.queue.front().and_then(|&place| self.destinations.host_and_entry(place)).map(|(host, _)| host)
    }

    /// The next packet.
    pub(super) fn poll_packet(&mut self, now: Instant, journal: &mut Journal) -> Option<Packet> {
        let place = self.queue.pop_front()?;
        let (rate_rule, duration) = (self.rate_rule, self.destinations.get(place).map(|destination| self.duration(destination.request)));
        let (host, destination) = self.destinations.get_mut(place)?;
        destination.queued = false;
        let State::Stopping { since, cause, .. } = destination.state else {
            journal.counts.cancels_sent += 1;
            return Some(Packet { host, message: StopMessage::Cancel });
        };
        let Request { priority, timer, rate } = destination.request;
        let first = destination.asked == 0;
        let anew = core::mem::take(&mut destination.anew);
        let rate = if anew { rate } else { rate_rule.neutral().unwrap_or(rate) };
        destination.asked += 1;
        let until = now + duration.unwrap_or(Duration::ZERO);
        destination.state = State::Stopping { since, until, cause };
        let counts = &mut journal.counts;
        *(if first { &mut counts.stops_sent } else { &mut counts.refreshes_sent }) += 1;
        let due = if cause == Cause::Hand { until } else { half_way(now, until) };
        self.timers.set(place, Some(due));
        Some(Packet { host, message: StopMessage::Stop { priority, timer, rate } })
    }

    /// Those that are asked at the moment.
    pub(super) fn views(&self) -> impl Iterator<Item = AskedView> + '_ {
        self.destinations.iter().filter_map(|(host, destination)| {
            let State::Stopping { since, until, cause, .. } = destination.state else { return None };
            let port = if let Cause::Sign(port) = cause { Some(port) } else { None };
            Some(AskedView { host, request: destination.request, since, until, port, asked: destination.asked })
        })
    }

    fn place_of(&mut self, host: MacAddr, request: Request) -> Option<usize> {
        let fresh = Destination { state: State::Released, request, asked: 0, queued: false, anew: true };
        let idle = |destination: &Destination| matches!(destination.state, State::Released) && !destination.queued;
        self.destinations.find(host).or_else(|| self.destinations.insert(host, fresh, idle))
    }

    fn release(&mut self, now: Instant, place: usize, journal: &mut Journal) -> bool {
        let Some((host, destination)) = self.destinations.get_mut(place) else { return false };
        if matches!(destination.state, State::Released) {
            return false;
        }
        destination.state = State::Released;
        let told = core::mem::take(&mut destination.asked) > 0;
        self.timers.set(place, None);
        journal.note(now, StopEvent::Cancelled { host });
        if told {
            self.enqueue(place);
        } else {
            self.dequeue(place);
        }
        true
    }

    fn enqueue(&mut self, place: usize) {
        if let Some((_, destination)) = self.destinations.get_mut(place)
            && !core::mem::replace(&mut destination.queued, true)
        {
            self.queue.push_back(place);
        }
    }

    /// A host that was to be asked and has not been need not be told otherwise.
    fn dequeue(&mut self, place: usize) {
        if let Some((_, destination)) = self.destinations.get_mut(place)
            && core::mem::take(&mut destination.queued)
        {
            self.queue.retain(|&queued| queued != place);
        }
    }

    fn duration(&self, request: Request) -> Duration {
        let ticks = if request.timer == 0 { self.config.preset_timer } else { request.timer };
        self.tick.saturating_mul(u64::from(ticks.max(1)))
    }
}

fn half_way(now: Instant, until: Instant) -> Instant {
    now + until.since(now).div(2)
}

#[cfg(test)]
mod tests;
