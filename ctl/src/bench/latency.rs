//! `weftctl bench latency`: one request at a time.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use weft_verbs::Context;

use super::args::{Latency, Operation};
use super::client::{self, Client};
use super::flow::Limits;
use super::histogram::Histogram;
use super::lane::Lane;
use super::protocol::{ATOMIC, Hello, MIN_ECHO, Mode};
use super::report::{self, LatencyResult, Spans};
use crate::args::Sockets;
use crate::exit::{self, Exit, failure};
use crate::interrupt::Interrupt;
use crate::session::{Arrival, Session};
use crate::text;

/// Requests that are not counted: caches fill, the round trip is estimated.
const WARM_UP: u64 = 100;
const DEFAULT_SIZE: u32 = 64;
/// A signal is noticed after this at the latest.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

pub(super) fn run(sockets: &Sockets, arguments: &Latency) -> anyhow::Result<u8> {
    let sizes = sizes(arguments).map_err(|why| failure(Exit::Usage, why))?;
    if arguments.interval.is_some() && arguments.operation != Operation::Send {
        return Err(failure(Exit::Usage, "--interval is for messages there and back: leave it out, or --operation".to_owned()));
    }
    let interrupt = Interrupt::register()?;
    let context = client::attach(&sockets.app_socket)?;
    let sweep = arguments.sizes.is_sweep() && !arguments.remote.json;
    for (number, size) in sizes.into_iter().enumerate() {
        let (result, signal) = match arguments.operation {
            Operation::Send => echo(sockets, &context, arguments, size, &interrupt)?,
            _ => complete(sockets, &context, arguments, size, &interrupt)?,
        };
        if sweep && number == 0 {
            println!("{}", result.header());
        }
        println!("{}", if sweep { result.row() } else { result.print(arguments.remote.json, arguments.histogram)? });
        if let Some(signal) = signal {
            eprintln!("weftctl: interrupted: the numbers are those until then");
            return Ok(Exit::Signal(signal).code());
        }
    }
    Ok(0)
}

const fn mode(operation: Operation) -> Mode {
    match operation {
        Operation::Send => Mode::Echo,
        Operation::Write => Mode::Write,
        Operation::Read => Mode::Read,
        Operation::FetchAdd => Mode::FetchAdd,
        Operation::CompareSwap => Mode::CompareSwap,
    }
}

fn sizes(arguments: &Latency) -> Result<Vec<u32>, String> {
    let mode = mode(arguments.operation);
    let default = if mode.is_atomic() { ATOMIC } else { DEFAULT_SIZE };
    arguments.sizes.list(default, |size| match mode {
        Mode::Echo if size < MIN_ECHO => Err(format!("a message that is sent back has at least {MIN_ECHO} bytes; take more with --size")),
        _ => hello(mode, size).check().map_err(|why| format!("{}: {why}", text::bytes(size.into()))),
    })
}

fn hello(mode: Mode, size: u32) -> Hello {
    Hello::new(mode, size, if mode == Mode::Echo { 2 } else { 1 })
}

/// A message to the other application and back.
fn echo(
    sockets: &Sockets,
    context: &Context,
    arguments: &Latency,
    size: u32,
    interrupt: &Interrupt,
) -> anyhow::Result<(LatencyResult, Option<u8>)> {
    let remote = &arguments.remote;
    let Client { mut session, recovery, .. } =
        client::connect(context, (&remote.to, remote.service), &hello(Mode::Echo, size), remote.wishes(), interrupt)?;
    let message = vec![0x57; usize::try_from(size)?];
    let (mut spans, mut signal) = (Histogram::new(), None);
    for number in 0..arguments.count + WARM_UP {
        let start = Instant::now();
        match round_trip(&mut session, &message) {
            Ok(()) if number < WARM_UP => {}
            Ok(()) => {
                let took = start.elapsed();
                spans.record(u64::try_from(took.as_nanos() / 2)?);
                let pause = arguments.interval.unwrap_or_default().saturating_sub(took);
                std::thread::sleep(pause.min(LONGEST_PAUSE));
            }
            Err(error) => {
                let Exit::Signal(number) = exit::of(&error) else { return Err(error) };
                signal = Some(number);
                break;
            }
        }
    }
    let result = LatencyResult {
        operation: "send",
        host: remote.to.clone(),
        size,
        count: spans.count(),
        half_round_trip: Some(Spans::of(&spans)),
        round_trip: None,
        histogram: report::buckets(&spans),
        recovery: text::recovery(recovery),
        retransmissions: crate::retransmissions::of(&sockets.socket, session.num()),
        interrupted: signal.is_some(),
    };
    Ok((result, signal))
}

fn round_trip(session: &mut Session, message: &[u8]) -> anyhow::Result<()> {
    session.send(message)?;
    match session.next()? {
        Arrival::Message { slot, .. } => session.discard(slot).context("cannot receive"),
        _ => anyhow::bail!("{}: an answer that was not asked for", session.peer()),
    }
}

/// A request, from posting to completion.
fn complete(
    sockets: &Sockets,
    context: &Context,
    arguments: &Latency,
    size: u32,
    interrupt: &Interrupt,
) -> anyhow::Result<(LatencyResult, Option<u8>)> {
    let (remote, mode) = (&arguments.remote, mode(arguments.operation));
    let what = (&hello(mode, size), false, false);
    let mut lane = Lane::open(context, (&remote.to, remote.service), what, remote.wishes(), interrupt)?;
    let limits = Limits { warm_up: WARM_UP, count: arguments.count.saturating_add(WARM_UP), duration: Duration::MAX };
    let measured = lane.run(limits)?.here;
    let result = LatencyResult {
        operation: mode.word(),
        host: remote.to.clone(),
        size,
        count: measured.done,
        half_round_trip: None,
        round_trip: Some(Spans::of(&measured.latency)),
        histogram: report::buckets(&measured.latency),
        recovery: text::recovery(lane.recovery),
        retransmissions: crate::retransmissions::of(&sockets.socket, lane.session.num()),
        interrupted: measured.signal.is_some(),
    };
    Ok((result, measured.signal))
}
