//! `weftctl bench write` and `send`: as many messages as the depth allows, for a while.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use weft_verbs::{Access, Sge};

use super::args::Stream;
use super::client::{self, Client};
use super::cpu;
use super::histogram::Histogram;
use super::protocol::{Hello, Mode};
use super::report::{Spans, StreamResult};
use crate::args::Sockets;
use crate::interrupt::Interrupt;
use crate::session::{Arrival, Session, explain};
use crate::text;

/// How long a measurement without `--count` and `--duration` takes.
const DURATION: Duration = Duration::from_secs(5);

pub(super) fn run(sockets: &Sockets, arguments: &Stream, mode: Mode) -> anyhow::Result<u8> {
    let interrupt = Interrupt::register()?;
    let remote = &arguments.remote;
    let hello = Hello::new(mode, arguments.size, arguments.depth);
    let recovery = remote.recovery.map(Into::into);
    let Client { context, mut session, recovery, answer } =
        client::connect(&sockets.app_socket, (&remote.to, remote.service), &hello, recovery, &interrupt)?;
    let memory = context.register(usize::try_from(arguments.size)?, Access::default()).map_err(|error| explain(error, "this host"))?;
    let rkey = match mode {
        Mode::Write => Some(answer.rkey.context("weftctl serve opened no memory")?),
        Mode::Echo | Mode::Sink => None,
    };
    let daemon = cpu::daemon(&sockets.socket);
    let cpu_before = daemon.and_then(cpu::nanoseconds);
    let mut flow = Flow::new(arguments, memory.sge(0, arguments.size)?, rkey);
    let start = Instant::now();
    flow.run(&mut session, start)?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu_after = daemon.and_then(cpu::nanoseconds);
    let (messages, bytes) = (flow.done, flow.done * u64::from(arguments.size));
    let result = StreamResult {
        operation: if mode == Mode::Write { "write" } else { "send" },
        host: remote.to.clone(),
        size: arguments.size,
        depth: arguments.depth,
        messages,
        bytes,
        seconds,
        goodput_bps: bytes as f64 * 8.0 / seconds,
        messages_per_second: messages as f64 / seconds,
        latency: Spans::of(&flow.spans),
        recovery: text::recovery(recovery),
        retransmissions: crate::retransmissions::of(&sockets.socket, session.num()),
        daemon_cpu_ns_per_byte: cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before) as f64 / bytes.max(1) as f64),
    };
    result.print(remote.json)
}

/// The messages of a measurement.
struct Flow {
    piece: Sge,
    rkey: Option<u32>,
    count: u64,
    duration: Duration,
    /// When each message on its way was posted, by its number modulo the depth.
    posted_at: Vec<Instant>,
    posted: u64,
    done: u64,
    spans: Histogram,
}

impl Flow {
    fn new(arguments: &Stream, piece: Sge, rkey: Option<u32>) -> Self {
        let unlimited = arguments.count.map_or(DURATION, |_| Duration::MAX);
        Self {
            piece,
            rkey,
            count: arguments.count.unwrap_or(u64::MAX),
            duration: arguments.duration.unwrap_or(unlimited),
            posted_at: vec![Instant::now(); usize::try_from(arguments.depth).unwrap_or(1)],
            posted: 0,
            done: 0,
            spans: Histogram::new(),
        }
    }

    fn run(&mut self, session: &mut Session, start: Instant) -> anyhow::Result<()> {
        let mut now = start;
        loop {
            let more = self.posted < self.count && now - start < self.duration;
            while more && self.posted < self.count && self.posted - self.done < self.posted_at.len() as u64 {
                self.post(session)?;
            }
            if self.done == self.posted {
                return Ok(());
            }
            let arrival = session.next()?;
            now = Instant::now();
            if let Arrival::Done(number) = arrival {
                let span = now - self.posted_at[self.place(number)];
                self.spans.record(u64::try_from(span.as_nanos())?);
                self.done += 1;
            }
        }
    }

    fn post(&mut self, session: &mut Session) -> anyhow::Result<()> {
        let place = self.place(self.posted);
        self.posted_at[place] = Instant::now();
        match self.rkey {
            Some(rkey) => session.write(self.posted, self.piece, (0, rkey), None)?,
            None => session.send_piece(self.posted, self.piece)?,
        }
        self.posted += 1;
        Ok(())
    }

    fn place(&self, number: u64) -> usize {
        usize::try_from(number % self.posted_at.len() as u64).unwrap_or(0)
    }
}
