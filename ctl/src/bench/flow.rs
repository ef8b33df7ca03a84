//! The requests of one queue pair: as many on their way as the depth allows, and what they took. Both sides use it.

use std::time::{Duration, Instant};

use weft_verbs::Data;

use super::histogram::Histogram;
use super::meter::Meter;
use super::protocol::{Hello, Mode, Tally};
use crate::exit::{self, Exit};
use crate::session::{Arrival, Session};

/// When a flow ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Requests that are not counted at first: caches fill, the round trip is estimated.
    pub(super) warm_up: u64,
    /// Requests, with those that are not counted.
    pub(super) count: u64,
    pub(super) duration: Duration,
}

impl Limits {
    /// Until the other side says so.
    pub(super) const NONE: Self = Self { warm_up: 0, count: u64::MAX, duration: Duration::MAX };
}

/// What a flow's requests took.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) done: u64,
    pub(super) span: Duration,
    /// From posting to completion, in nanoseconds.
    pub(super) latency: Histogram,
    pub(super) meter: Meter,
    /// The signal that ended it early.
    pub(super) signal: Option<u8>,
}

impl Measured {
    pub(super) fn new() -> Self {
        Self { done: 0, span: Duration::ZERO, latency: Histogram::new(), meter: Meter::new(), signal: None }
    }

    /// Takes in what another queue pair did at the same time.
    pub(super) fn merge(&mut self, other: &Self) {
        self.done += other.done;
        self.span = self.span.max(other.span);
        self.latency.merge(&other.latency);
        self.meter.merge(&other.meter);
        self.signal = self.signal.or(other.signal);
    }
}

/// The requests of one queue pair.
#[derive(Debug)]
pub(super) struct Flow {
    mode: Mode,
    size: u64,
    local: Data,
    rkey: u32,
    /// When each request on its way was posted, by its number modulo the depth.
    posted_at: Vec<Instant>,
    posted: u64,
    done: u64,
    /// A number that the other side told.
    told: Option<u32>,
}

impl Flow {
    /// Requests as `hello` says, with `local` as their bytes, to the memory that `rkey` opens.
    pub(super) fn new(hello: &Hello, local: Data, rkey: u32) -> Self {
        Self {
            mode: hello.mode,
            size: hello.size.into(),
            local,
            rkey,
            posted_at: vec![Instant::now(); usize::try_from(hello.depth).unwrap_or(1)],
            posted: 0,
            done: 0,
            told: None,
        }
    }

    /// Posts until a limit is reached, the other side tells a number, or a signal comes, and waits for what is on its way,
    /// unless it was a signal.
    pub(super) fn run(&mut self, session: &mut Session, limits: Limits) -> anyhow::Result<Measured> {
        let mut measured = Measured::new();
        match self.pump(session, limits, &mut measured) {
            Ok(()) => Ok(measured),
            Err(error) => match exit::of(&error) {
                Exit::Signal(signal) => Ok(Measured { signal: Some(signal), ..measured }),
                _ => Err(error),
            },
        }
    }

    fn pump(&mut self, session: &mut Session, limits: Limits, measured: &mut Measured) -> anyhow::Result<()> {
        let start = Instant::now();
        let (mut now, mut counted_from) = (start, start);
        loop {
            let more = now - start < limits.duration && self.told.is_none();
            while more && self.posted < limits.count && self.posted - self.done < self.posted_at.len() as u64 {
                self.post(session)?;
            }
            if self.done == self.posted {
                return Ok(());
            }
            let finished = self.next(session)?;
            now = Instant::now();
            let Some(number) = finished else { continue };
            let took = now - self.posted_at[self.place(number)];
            self.done += 1;
            if self.done <= limits.warm_up {
                counted_from = now;
                continue;
            }
            measured.done += 1;
            measured.span = now - counted_from;
            measured.latency.record(u64::try_from(took.as_nanos())?);
            measured.meter.add(measured.span, self.size);
        }
    }

    fn post(&mut self, session: &mut Session) -> anyhow::Result<()> {
        let place = self.place(self.posted);
        self.posted_at[place] = Instant::now();
        session.request(self.posted, self.mode.operation(self.posted, self.rkey), self.local)?;
        self.posted += 1;
        Ok(())
    }

    /// Waits for something to happen; the number of a request that is done.
    fn next(&mut self, session: &mut Session) -> anyhow::Result<Option<u64>> {
        match session.next()? {
            Arrival::Done(number) => return Ok(Some(number)),
            Arrival::Message { slot, .. } => session.discard(slot)?,
            Arrival::Written { imm, .. } => self.told = Some(imm),
        }
        Ok(None)
    }

    /// Waits until the other side tells a number.
    pub(super) fn wait_told(&mut self, session: &mut Session) -> anyhow::Result<u32> {
        loop {
            if let Some(told) = self.told {
                return Ok(told);
            }
            self.next(session)?;
        }
    }

    /// Requests posted, warm-up included.
    pub(super) const fn posted(&self) -> u64 {
        self.posted
    }

    fn place(&self, number: u64) -> usize {
        usize::try_from(number % self.posted_at.len() as u64).unwrap_or(0)
    }
}

impl Measured {
    /// For the other side.
    pub(super) fn tally(&self, size: u32) -> Tally {
        Tally {
            messages: self.done,
            bytes: self.done * u64::from(size),
            nanoseconds: u64::try_from(self.span.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}
