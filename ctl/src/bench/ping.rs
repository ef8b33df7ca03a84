//! `weftctl ping`.
//!
//! The transport repeats what is lost, so a loss shows as a long round trip; an answer counts as lost when it takes
//! longer than the time-out.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::args::Ping;
use super::client::{self, Wishes};
use super::histogram::Histogram;
use super::protocol::{Hello, MIN_ECHO, Mode};
use super::report::Spans;
use crate::args::Sockets;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::session::{Arrival, Session};
use crate::text;

/// Messages that may be on their way: as many as may be late.
const DEPTH: u32 = 16;

#[derive(Debug, Serialize)]
struct Summary {
    host: String,
    sent: u64,
    answered: u64,
    loss: f64,
    round_trip: Spans,
}

pub(crate) fn run(sockets: &Sockets, arguments: &Ping) -> anyhow::Result<u8> {
    let interrupt = Interrupt::register()?;
    let hello = Hello::new(Mode::Echo, arguments.size, DEPTH);
    let context = client::attach(&sockets.app_socket)?;
    let client = client::connect(&context, (&arguments.host, arguments.service), &hello, Wishes::NONE, &interrupt)?;
    let mut session = client.session;
    let mut spans = Histogram::new();
    let (mut sent, mut outcome) = (0, Ok(()));
    while arguments.count.is_none_or(|count| sent < count) && interrupt.signal().is_none() {
        let next = Instant::now() + arguments.interval;
        sent += 1;
        outcome = round_trip(&mut session, arguments, sent).map(|span| tell(arguments, sent, span, &mut spans));
        if outcome.is_err() && interrupt.signal().is_some() {
            // Nobody waited for its answer, so it is not lost.
            sent -= 1;
        }
        if outcome.is_err() || arguments.count == Some(sent) {
            break;
        }
        outcome = pause(&mut session, next);
    }
    let loss = if sent == 0 { 0.0 } else { 1.0 - spans.count() as f64 / sent as f64 };
    let summary = Summary { host: arguments.host.clone(), sent, answered: spans.count(), loss, round_trip: Spans::of(&spans) };
    summary.print(arguments.json)?;
    match outcome {
        Err(error) if interrupt.signal().is_none() => Err(error),
        _ if sent > 0 && spans.count() == 0 => Ok(Exit::Unreachable.code()),
        _ => Ok(0),
    }
}

/// Sends message `number` and waits for it to come back; `None` if it takes too long.
fn round_trip(session: &mut Session, arguments: &Ping, number: u64) -> anyhow::Result<Option<Duration>> {
    let mut message = vec![0x57; usize::try_from(arguments.size.max(MIN_ECHO))?];
    message[..8].copy_from_slice(&number.to_be_bytes());
    let start = Instant::now();
    session.send(&message)?;
    loop {
        let left = arguments.timeout.saturating_sub(start.elapsed());
        match session.next_within(left)? {
            Some(Arrival::Message { slot, len }) if session.take(slot, len)? == message => return Ok(Some(start.elapsed())),
            // An answer that is late, and was counted as lost.
            Some(_) => {}
            None => return Ok(None),
        }
    }
}

fn tell(arguments: &Ping, number: u64, span: Option<Duration>, spans: &mut Histogram) {
    let nanoseconds = span.map(|span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    nanoseconds.into_iter().for_each(|span| spans.record(span));
    if arguments.json {
        return;
    }
    match nanoseconds {
        Some(span) => println!("{} bytes from {}: seq={number} time={}", arguments.size, arguments.host, text::nanoseconds(span)),
        None => println!("{}: seq={number}: no answer within {:?}", arguments.host, arguments.timeout),
    }
}

/// Waits until `next`, throwing away what is late.
fn pause(session: &mut Session, next: Instant) -> anyhow::Result<()> {
    loop {
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        if let Some(Arrival::Message { slot, .. }) = session.next_within(left)? {
            session.discard(slot)?;
        }
    }
}

impl Summary {
    fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
        } else {
            println!("{} sent, {} answered, {:.0} % lost\nround trip: {}", self.sent, self.answered, self.loss * 100.0, self.round_trip);
        }
        Ok(())
    }
}
