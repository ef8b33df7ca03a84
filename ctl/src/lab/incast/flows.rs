//! The flows of one setting, and what was counted meanwhile.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::Signal;
use serde::de::{DeserializeOwned, IgnoredAny};
use weft_config::control::{Counters, PortInfo, Request, StopInfo};
use weft_config::lab::{NodeKind, files};
use weft_proto::switch::FRAME_OVERHEAD;

use super::RATE_MBIT;
use super::report::{Outcome, Victim};
use crate::admin::Admin;
use crate::bench::cpu_nanoseconds;
use crate::lab::child::{self, Interrupt, Waited};
use crate::lab::client;
use crate::lab::daemon::{ending, log_tail};
use crate::lab::process::Process;
use crate::lab::state::{DaemonState, State};

const SENDERS: [&str; 8] = ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"];
const HOT: &str = "hot";
/// The hot one, and those of the victims.
const RECEIVERS: [&str; 3] = [HOT, "r1", "r2"];
/// What is measured without the hot flows.
const CALM: Duration = Duration::from_secs(1);
/// Until the hot flows count.
const WARM_UP: Duration = Duration::from_millis(500);
const READY_LIMIT: Duration = Duration::from_secs(5);
/// How long a flow may take to end beyond its time.
const END_LIMIT: Duration = Duration::from_secs(15);
const END_GRACE: Duration = Duration::from_secs(2);

/// What `weftctl bench latency --json` says.
#[derive(Debug, serde::Deserialize)]
struct Latency {
    half_round_trip: Spans,
}

#[derive(Debug, serde::Deserialize)]
struct Spans {
    p99_us: f64,
}

/// A command in a node, which ends with this value.
#[derive(Debug)]
struct Running {
    child: Child,
    name: String,
    log: PathBuf,
}

/// Counters at one moment.
#[derive(Debug)]
struct Counts {
    at: Instant,
    /// Payload bytes that came to the hot receiver and to those of the victims, each once.
    received: [u64; 3],
    lost: u64,
    link_bytes: u64,
    control_frames: u64,
    cpu_nanos: u64,
}

/// What the flows of victims and the ping-pong say.
#[derive(Debug)]
struct Beside {
    victims: [Running; 2],
    pings: Running,
}

/// A lab with time to measure in it.
#[derive(Debug)]
pub(super) struct Course<'a> {
    pub(super) state: &'a State,
    pub(super) interrupt: &'a Interrupt,
    pub(super) span: Duration,
}

impl Course<'_> {
    pub(super) fn run(&self) -> anyhow::Result<Outcome> {
        let _servers = RECEIVERS.map(|node| self.serve(node)).into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let calm = self.beside(WARM_UP + CALM)?;
        self.pause(&calm.pings, WARM_UP)?;
        let before = self.counts()?;
        self.pause(&calm.pings, CALM)?;
        let start = self.counts()?;
        let unloaded = self.end(calm, CALM)?;
        let time = self.span + WARM_UP;
        // The others first: under PAUSE the hot flows leave no room even for their connection messages.
        let beside = self.beside(time)?;
        let hot = SENDERS.iter().map(|sender| self.write(sender, HOT, time)).collect::<anyhow::Result<Vec<_>>>()?;
        self.pause(&beside.pings, WARM_UP)?;
        let warm = self.counts()?;
        self.pause(&beside.pings, self.span.saturating_sub(WARM_UP))?;
        let end = self.counts()?;
        let loaded = self.end(beside, time)?;
        for flow in hot {
            self.result::<IgnoredAny>(flow, time)?;
        }
        let (alone, busy) = (start.goodput_since(&before), end.goodput_since(&warm));
        let seconds = end.at.duration_since(warm.at).as_secs_f64();
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Outcome {
            frames_lost: end.lost - start.lost,
            frames_lost_later: end.lost - warm.lost,
            hot_bps: busy[0],
            link_percent: (end.link_bytes - warm.link_bytes) as f64 * 800.0 / seconds / (f64::from(RATE_MBIT) * 1e6),
            victims: [1, 2].map(|victim| Victim::new(alone[victim], busy[victim])),
            control_frames: end.control_frames - warm.control_frames,
            p99_us: Some(loaded).filter(|span| *span > 0.0),
            p99_unloaded_us: unloaded,
            cpu_percent: Some((end.cpu_nanos - warm.cpu_nanos) as f64 / 1e7 / seconds / processors as f64),
        })
    }

    fn beside(&self, time: Duration) -> anyhow::Result<Beside> {
        let victims = [self.write("s1", "r1", time)?, self.write("by", "r2", time)?];
        // It ends when told.
        let arguments =
            ["bench", "latency", "--to", HOT, "--size", "1024", "--priority", "15", "--count", "1000000", "--interval", "10ms", "--json"];
        Ok(Beside { victims, pings: self.start("s2", &arguments)? })
    }

    /// The 99th percentile of the ping-pong in microseconds, there and back.
    fn end(&self, beside: Beside, time: Duration) -> anyhow::Result<f64> {
        let Beside { victims, pings } = beside;
        for victim in victims {
            self.result::<IgnoredAny>(victim, time)?;
        }
        if let Some(process) = i32::try_from(pings.child.id()).ok().and_then(Process::of) {
            process.signal(Signal::INT)?;
        }
        let latency: Latency = self.result(pings, Duration::ZERO)?;
        Ok(latency.half_round_trip.p99_us * 2.0)
    }

    fn write(&self, from: &str, to: &str, time: Duration) -> anyhow::Result<Running> {
        let time = format!("{}ms", time.as_millis());
        self.start(
            from,
            &["bench", "write", "--to", to, "--size", "16KiB", "--depth", "16", "--duration", &time, "--priority", "0", "--json"],
        )
    }

    fn serve(&self, node: &str) -> anyhow::Result<Running> {
        let server = self.start(node, &["serve"])?;
        let stdout = server.child.stdout.as_ref().context("no output")?;
        anyhow::ensure!(
            child::wait_output(stdout, self.interrupt, READY_LIMIT)?,
            "{} is not ready\n{}",
            server.name,
            log_tail(&server.log)
        );
        Ok(server)
    }

    fn start(&self, node: &str, arguments: &[&str]) -> anyhow::Result<Running> {
        let log = self.state.file(node, &format!("{}.log", arguments.join("-").replace('/', "-")));
        let own = std::env::current_exe()?;
        let arguments: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
        let mut command = client::command(self.state, node, own.as_os_str(), &arguments, true)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        Ok(Running { child: command.spawn()?, name: format!("weftctl {} on {node}", arguments[0].display()), log })
    }

    /// Lets time pass, unless a signal comes.
    fn pause(&self, silent: &Running, time: Duration) -> anyhow::Result<()> {
        let stdout = silent.child.stdout.as_ref().context("no output")?;
        anyhow::ensure!(!child::wait_output(stdout, self.interrupt, time)?, "{} ended early\n{}", silent.name, log_tail(&silent.log));
        Ok(())
    }

    fn result<T: DeserializeOwned>(&self, mut running: Running, time: Duration) -> anyhow::Result<T> {
        let Running { child, name, log } = &mut running;
        match child::wait(child, self.interrupt, time + END_LIMIT)? {
            Waited::Exited(status) => {
                let mut text = String::new();
                child.stdout.take().context("no output")?.take(1 << 16).read_to_string(&mut text)?;
                serde_json::from_str(text.trim())
                    .with_context(|| format!("{name}: {}; it printed: {text}\n{}", ending(status), log_tail(log)))
            }
            Waited::Interrupted(signal) => Err(child::interrupted(signal)),
            Waited::TimedOut => Err(anyhow::anyhow!("{name}: not done in time\n{}", log_tail(log))),
        }
    }

    fn counts(&self) -> anyhow::Result<Counts> {
        let ask = |node: &str| Admin::connect(&self.state.file(node, files::CONTROL_SOCKET)).with_context(|| format!("node {node}"));
        let (mut lost, mut control_frames, mut cpu_nanos, mut hot) = (0, 0, 0, None);
        for node in &self.state.nodes {
            if let DaemonState::Running(process) = &node.daemon {
                cpu_nanos += u32::try_from(process.pid).ok().and_then(cpu_nanoseconds).unwrap_or(0);
            }
            let mut admin = ask(&node.name)?;
            let counters: Counters = admin.request(Request::Counters)?;
            control_frames += counters.flow.sent;
            if node.kind == NodeKind::Switch {
                lost += counters.switch_drops.get("queue_full").copied().unwrap_or(0);
                let ports: Vec<PortInfo> = admin.list(|offset| Request::Ports { offset })?;
                hot = hot.or_else(|| ports.into_iter().find(|port| port.name == HOT || port.interface == HOT));
            } else if let Ok(StopInfo { counters, .. }) = admin.request(Request::StopShow { offset: 0 }) {
                // A host without stop control has nothing to show.
                control_frames += counters.stops_sent + counters.refreshes_sent + counters.cancels_sent;
            }
        }
        let hot = hot.context("no switch has a port to the hot receiver")?;
        let mut received = [0; 3];
        for (bytes, node) in received.iter_mut().zip(RECEIVERS) {
            *bytes = ask(node)?.request::<Counters>(Request::Counters)?.transport.received_bytes;
        }
        let link_bytes = hot.counters.tx_bytes + hot.counters.tx_frames * FRAME_OVERHEAD;
        Ok(Counts { at: Instant::now(), received, lost, link_bytes, control_frames, cpu_nanos })
    }
}

impl Counts {
    /// Bits per second that came to each receiver since an earlier moment.
    #[allow(clippy::cast_precision_loss)]
    fn goodput_since(&self, earlier: &Self) -> [f64; 3] {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64();
        [0, 1, 2].map(|receiver| (self.received[receiver] - earlier.received[receiver]) as f64 * 8.0 / seconds)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        child::end(&mut self.child, END_GRACE);
    }
}
