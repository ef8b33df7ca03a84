//! `weftctl bench write`, `send`, `read` and `atomic`: as many requests as the depth allows, for a while.

use std::time::Duration;

use weft_verbs::{Context, Recovery};

use super::args::{Load, Moving, Remote, Sizes};
use super::client;
use super::cpu;
use super::flow::{Limits, Measured};
use super::lane::{Lane, Outcome};
use super::protocol::{Hello, Mode, Tally};
use super::report::{self, Spans, StreamResult, rate};
use crate::args::Sockets;
use crate::exit::{Exit, failure};
use crate::interrupt::Interrupt;
use crate::text;

/// How long a measurement without `--count` and `--duration` takes.
const DURATION: Duration = Duration::from_secs(5);
/// The same for each of several sizes.
const SWEEP_DURATION: Duration = Duration::from_secs(1);
const DEFAULT_SIZE: u32 = 64 << 10;
/// Most bytes in a request itself.
const MAX_INLINE: u32 = 64;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan<'a> {
    pub(super) mode: Mode,
    pub(super) remote: &'a Remote,
    pub(super) sizes: &'a Sizes,
    pub(super) load: &'a Load,
    pub(super) inline: bool,
}

impl<'a> Plan<'a> {
    /// What the command line says, without inline data.
    pub(super) const fn of(mode: Mode, moving: &'a Moving) -> Self {
        Self { mode, remote: &moving.remote, sizes: &moving.sizes, load: &moving.load, inline: false }
    }

    fn hello(&self, size: u32) -> Hello {
        Hello::new(self.mode, size, self.load.depth).on(self.load.qps).and_back(self.load.both.then_some(0))
    }

    /// Whether messages of this size can be measured.
    fn fits(&self, size: u32) -> Result<(), String> {
        if self.inline && size > MAX_INLINE {
            return Err(format!("--inline takes messages of up to {MAX_INLINE} bytes; take less with --size or --sizes"));
        }
        self.hello(size).check().map_err(|why| format!("{}: {why}", text::bytes(size.into())))
    }

    fn limits(&self) -> Limits {
        let usual = if self.sizes.is_sweep() { SWEEP_DURATION } else { DURATION };
        let unlimited = self.load.count.map_or(usual, |_| Duration::MAX);
        Limits { warm_up: 0, count: self.load.count.unwrap_or(u64::MAX), duration: self.load.duration.unwrap_or(unlimited) }
    }
}

pub(super) fn run(sockets: &Sockets, plan: &Plan<'_>) -> anyhow::Result<u8> {
    let sizes = plan.sizes.list(DEFAULT_SIZE, |size| plan.fits(size)).map_err(|why| failure(Exit::Usage, why))?;
    let interrupt = Interrupt::register()?;
    let context = client::attach(&sockets.app_socket)?;
    let sweep = plan.sizes.is_sweep() && !plan.remote.json;
    for (number, size) in sizes.into_iter().enumerate() {
        let (result, signal) = measure(sockets, &context, plan, size, &interrupt)?;
        if sweep && number == 0 {
            println!("{}", result.title());
            println!("{}", report::HEADER);
        }
        println!("{}", if sweep { result.row() } else { result.print(plan.remote.json, plan.load.histogram)? });
        if let Some(signal) = signal {
            eprintln!("weftctl: interrupted: the numbers are those until then");
            return Ok(Exit::Signal(signal).code());
        }
    }
    Ok(0)
}

/// One size; and the signal that ended it early.
fn measure(
    sockets: &Sockets,
    context: &Context,
    plan: &Plan<'_>,
    size: u32,
    interrupt: &Interrupt,
) -> anyhow::Result<(StreamResult, Option<u8>)> {
    let mut lanes = open(context, plan, size, interrupt)?;
    let recovery = lanes.first().map_or(Recovery::Irn, |lane| lane.recovery);
    let daemon = cpu::daemon(&sockets.socket);
    let cpu_before = daemon.and_then(cpu::nanoseconds);
    let (here, there) = together(run_all(&mut lanes, plan.limits())?);
    let cpu_after = daemon.and_then(cpu::nanoseconds);
    let bytes = here.done * u64::from(size);
    let moved = bytes + there.map_or(0, |tally| tally.bytes);
    let goodput_bps = rate(bytes, here.span);
    let result = StreamResult {
        operation: plan.mode.word(),
        host: plan.remote.to.clone(),
        size,
        depth: plan.load.depth,
        queue_pairs: plan.load.qps,
        inline: plan.inline,
        messages: here.done,
        bytes,
        seconds: here.span.as_secs_f64(),
        goodput_bps,
        peak_bps: here.meter.peak().map(|peak| peak.max(goodput_bps)),
        messages_per_second: rate(here.done, here.span) / 8.0,
        back: there.map(Into::into),
        latency: Spans::of(&here.latency),
        histogram: report::buckets(&here.latency),
        recovery: text::recovery(recovery),
        retransmissions: lanes.iter().map(|lane| crate::retransmissions::of(&sockets.socket, lane.session.num())).sum(),
        daemon_cpu_ns_per_byte: cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before) as f64 / moved.max(1) as f64),
        interrupted: here.signal.is_some(),
    };
    Ok((result, here.signal))
}

fn open(context: &Context, plan: &Plan<'_>, size: u32, interrupt: &Interrupt) -> anyhow::Result<Vec<Lane>> {
    let remote = plan.remote;
    let what = (&plan.hello(size), plan.load.both, plan.inline);
    let lane = |_| Lane::open(context, (&remote.to, remote.service), what, remote.wishes(), interrupt);
    let mut lanes: Vec<Lane> = (0..plan.load.qps).map(lane).collect::<anyhow::Result<_>>()?;
    if lanes.len() > 1 {
        lanes.iter_mut().for_each(|lane| lane.session.share_events());
    }
    Ok(lanes)
}

/// Runs all lanes at the same time, a thread for each.
fn run_all(lanes: &mut [Lane], limits: Limits) -> anyhow::Result<Vec<Outcome>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = lanes.iter_mut().map(|lane| scope.spawn(move || lane.run(limits))).collect();
        let gone = |_| Err(anyhow::anyhow!("a measuring thread has ended unexpectedly"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(gone)).collect()
    })
}

/// The sum over all queue pairs.
fn together(outcomes: Vec<Outcome>) -> (Measured, Option<Tally>) {
    let (mut here, mut there) = (Measured::new(), None);
    for outcome in outcomes {
        here.merge(&outcome.here);
        let sum: &mut Tally = match outcome.there {
            Some(_) => there.get_or_insert_default(),
            None => continue,
        };
        let tally = outcome.there.unwrap_or_default();
        sum.messages += tally.messages;
        sum.bytes += tally.bytes;
        sum.nanoseconds = sum.nanoseconds.max(tally.nanoseconds);
    }
    (here, there)
}
