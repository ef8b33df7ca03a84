//! The node as its operator sees it: answers the requests of the control protocol.
//!
//! Owns the running configuration. Numbers come from the board; lists that are too long for it are asked of the
//! worker, which answers between two batches.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use weft_config::control::LineTooLong;
use weft_config::control::{
    self, ConfigText, ControlError, ErrorCode, Reloaded, Reply, Request, Status, Stopping, encode_line, parse_request, too_long,
};
use weft_config::{Config, Refusal};
use weft_proto::Instant;
use weft_proto::wire::MacAddr;

use super::client::Answer;
use super::stop::ByHand;
use super::{detail, show, stop, trace};
use crate::app::session::Settings;
use crate::clock::monotonic;
use crate::logging::LogControl;
use crate::snapshot::{Board, Snapshot};
use crate::translate;
use crate::worker::{WorkerHandle, WorkerSilent};

/// Nobody reads the board so often that so many attempts in a row meet a reader; a bound all the same.
const PUBLISH_ATTEMPTS: usize = 100;

/// What the control thread knows about the node.
#[derive(Debug)]
pub struct Node {
    /// What runs now.
    pub config: Config,
    /// Where it came from, and where a reload looks again.
    pub config_file: PathBuf,
    /// When the daemon started.
    pub started: Instant,
    /// Address and incarnation of the local transport, if there is one.
    pub endpoint: Option<(MacAddr, u64)>,
    /// The worker.
    pub worker: WorkerHandle,
    /// Its counters.
    pub board: Arc<Board>,
    /// The log.
    pub log: LogControl,
    /// An operator asked for the end.
    pub stop_requested: bool,
    /// A reload changed what the applications' server needs to know.
    pub settings_changed: bool,
}

impl Node {
    /// A node that starts now.
    pub fn new(
        config: Config,
        config_file: PathBuf,
        endpoint: Option<(MacAddr, u64)>,
        worker: WorkerHandle,
        board: Arc<Board>,
        log: LogControl,
    ) -> Self {
        let started = monotonic();
        board.set_hosts(&config.hosts);
        Self { config, config_file, started, endpoint, worker, board, log, stop_requested: false, settings_changed: false }
    }

    /// The answer to one line of a client.
    pub(super) fn handle_line(&mut self, now: Instant, line: Result<&[u8], LineTooLong>) -> Answer {
        let parsed = line.map_err(|e| Reply::error(None, too_long(e.limit))).and_then(parse_request);
        match parsed {
            Ok(envelope) => answer(envelope.id, self.handle_request(now, envelope.request)),
            Err(refusal) => {
                let last = refuses_stream(&refusal);
                Answer { line: encode_line(&refusal, control::MAX_REPLY).unwrap_or_default(), last }
            }
        }
    }

    fn handle_request(&mut self, now: Instant, request: Request) -> Result<Value, ControlError> {
        match request {
            Request::Status => json(&self.status(now)),
            Request::Ports { offset } => json(&show::ports(&self.config, &self.snapshot(), offset)),
            Request::Counters => json(&show::counters(&self.config, &self.snapshot())),
            Request::Hosts { offset } => json(&show::hosts(&self.config.hosts, offset)),
            Request::Fdb { offset } => json(&detail::addresses(self, offset)?),
            Request::Queues { offset } => json(&detail::queues(self, offset)?),
            Request::Peers { offset } => json(&detail::peers(self, offset)?),
            Request::Qps { offset } => json(&detail::queue_pairs(self, offset)?),
            Request::Qp { qp } => json(&detail::queue_pair_of(self, qp)?),
            Request::QpTrace { qp, last } => json(&trace::events_of(self, qp, last)?),
            Request::StopShow { offset } => json(&stop::show(self, offset)?),
            Request::StopEvents { since } => json(&stop::events(self, since)?),
            Request::StopSend { host, priority, timer, rate } => json(&stop::send(self, &host, ByHand { priority, timer, rate })?),
            Request::StopCancel { host } => json(&stop::cancel(self, &host)?),
            Request::Config => json(&self.config_text()),
            Request::Reload => json(&self.reload()?),
            Request::Shutdown => {
                self.stop_requested = true;
                json(&Stopping { pid: std::process::id() })
            }
        }
    }

    /// The settings for the applications' server, if they changed since last asked.
    pub(super) fn take_changed_settings(&mut self) -> Option<Settings> {
        std::mem::take(&mut self.settings_changed).then(|| translate::applications(&self.config, self.endpoint.map(|(mac, _)| mac)))
    }

    /// The counters of this moment, so that whoever asks after something happened sees it counted; those that were
    /// published last, if the worker does not answer.
    fn snapshot(&self) -> Snapshot {
        let publish = || {
            let board = Arc::clone(&self.board);
            self.worker.ask(move |now, plane| plane.publish(now, &board))
        };
        match publish_surely(publish) {
            Ok(true) => {}
            Ok(false) => tracing::warn!("the counters are read all the time; those shown are old"),
            Err(error) => tracing::warn!("{error}; its counters are old"),
        }
        self.board.read()
    }

    fn status(&self, now: Instant) -> Status {
        let snapshot = self.snapshot();
        Status {
            node: self.config.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: now.since(self.started).as_nanos() / 1_000_000_000,
            pid: std::process::id(),
            config_file: self.config_file.display().to_string(),
            ports: show::port_summaries(&self.config, &snapshot),
            endpoint_mac: self.endpoint.map(|(mac, _)| mac.to_string()),
            incarnation: self.endpoint.map(|(_, incarnation)| incarnation),
            qps: snapshot.transport.map_or(0, |t| u32::try_from(t.queue_pairs).unwrap_or(u32::MAX)),
            applications: u32::try_from(snapshot.applications.attached).unwrap_or(u32::MAX),
        }
    }

    fn config_text(&self) -> ConfigText {
        ConfigText { file: self.config_file.display().to_string(), yaml: weft_config::effective_yaml(&self.config) }
    }

    /// Reads the configuration file again and takes over what can change.
    ///
    /// # Errors
    /// If the file is faulty or asks for a change that needs a restart: nothing has changed then. If the worker does not
    /// answer: it may still take the change over later.
    pub fn reload(&mut self) -> Result<Reloaded, ControlError> {
        let new = Config::load(&self.config_file).map_err(|errors| {
            ControlError::new(ErrorCode::BadConfig, errors.to_string(), "correct the file and reload again; nothing has changed")
        })?;
        let reload = self.config.reload_from(&new).map_err(|refusals| restart_needed(&refusals))?;
        super::reload::apply(self, &new, &reload.changes)?;
        self.config = new;
        self.board.set_hosts(&self.config.hosts);
        self.settings_changed = true;
        for line in &reload.lines {
            tracing::info!("reload: {line}");
        }
        Ok(Reloaded { file: self.config_file.display().to_string(), changes: reload.lines })
    }
}

/// Has the counters published and says whether they are. That fails while somebody copies the old ones, which takes
/// microseconds.
///
/// # Errors
/// If the worker does not answer.
fn publish_surely(mut publish: impl FnMut() -> Result<bool, WorkerSilent>) -> Result<bool, WorkerSilent> {
    for _ in 0..PUBLISH_ATTEMPTS {
        if publish()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A stream in which even the line structure or the JSON is broken cannot be trusted any further.
fn refuses_stream(refusal: &control::ErrorReply) -> bool {
    matches!(&refusal.outcome, control::Outcome::Error(error) if matches!(error.code, ErrorCode::BadJson | ErrorCode::TooLong))
}

fn answer(id: u64, result: Result<Value, ControlError>) -> Answer {
    let reply = result.map_or_else(|error| Reply::error(Some(id), error), |value| Reply::result(id, value));
    let line = encode_line(&reply, control::MAX_REPLY)
        .or_else(|error| encode_line(&Reply::<()>::error(Some(id), error), control::MAX_REPLY))
        .unwrap_or_default();
    Answer { line, last: false }
}

fn json(value: &impl serde::Serialize) -> Result<Value, ControlError> {
    serde_json::to_value(value).map_err(|e| ControlError::new(ErrorCode::Internal, format!("the answer could not be written: {e}"), ""))
}

fn restart_needed(refusals: &[Refusal]) -> ControlError {
    let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    ControlError::new(ErrorCode::RestartNeeded, lines.join("\n"), "restart weftd to take these over; nothing has changed")
}

impl From<WorkerSilent> for ControlError {
    fn from(silent: WorkerSilent) -> Self {
        Self::new(ErrorCode::Busy, silent.to_string(), "try again; if it persists, see /healthz and the log, and restart weftd")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_published_although_somebody_reads_the_old_ones_at_first() {
        let mut answers = [Ok(false), Ok(false), Ok(true), Err(WorkerSilent)].into_iter();
        assert_eq!(publish_surely(|| answers.next().unwrap()), Ok(true));
        assert_eq!(answers.len(), 1, "the third attempt succeeded");
        assert_eq!(publish_surely(|| answers.next().unwrap()), Err(WorkerSilent));
        assert_eq!(publish_surely(|| Ok(false)), Ok(false), "never for ever");
    }
}
