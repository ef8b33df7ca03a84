//! `weftctl bench latency`: one message at a time, back and forth.

use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;

use super::args::Latency;
use super::client;
use super::histogram::Histogram;
use super::protocol::{Hello, Mode};
use super::report::Spans;
use crate::args::Sockets;
use crate::interrupt::Interrupt;
use crate::session::{Arrival, Session};
use crate::text;

/// Round trips that are not counted: caches fill, the round trip is estimated.
const WARM_UP: u64 = 100;

#[derive(Debug, Serialize)]
struct Result {
    host: String,
    size: u32,
    count: u64,
    half_round_trip: Spans,
    recovery: &'static str,
    retransmissions: Option<u64>,
}

pub(super) fn run(sockets: &Sockets, arguments: &Latency) -> anyhow::Result<u8> {
    let interrupt = Interrupt::register()?;
    let remote = &arguments.remote;
    let hello = Hello::new(Mode::Echo, arguments.size, 2);
    let recovery = remote.recovery.map(Into::into);
    let mut client = client::connect(&sockets.app_socket, (&remote.to, remote.service), &hello, recovery, &interrupt)?;
    let message = vec![0x57; usize::try_from(arguments.size)?];
    let mut spans = Histogram::new();
    for number in 0..arguments.count + WARM_UP {
        let start = Instant::now();
        round_trip(&mut client.session, &message)?;
        if number >= WARM_UP {
            spans.record(u64::try_from(start.elapsed().as_nanos() / 2)?);
        }
    }
    let result = Result {
        host: remote.to.clone(),
        size: arguments.size,
        count: spans.count(),
        half_round_trip: Spans::of(&spans),
        recovery: text::recovery(client.recovery),
        retransmissions: crate::retransmissions::of(&sockets.socket, client.session.num()),
    };
    if remote.json {
        println!("{}", serde_json::to_string(&result)?);
    } else {
        println!("{} bytes to {} and back, {} times\nhalf round trip: {}", result.size, result.host, result.count, result.half_round_trip);
    }
    Ok(0)
}

fn round_trip(session: &mut Session, message: &[u8]) -> anyhow::Result<()> {
    session.send(message)?;
    match session.next()? {
        Arrival::Message { slot, .. } => session.discard(slot).context("cannot receive"),
        _ => anyhow::bail!("{}: an answer that was not asked for", session.peer()),
    }
}
