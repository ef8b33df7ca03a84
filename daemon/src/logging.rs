//! The log: to standard error, with a level that can change while the daemon runs.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};
use weft_config::model::LogLevel;

/// Changes the level of the running log.
#[derive(Clone, Debug)]
pub struct LogControl {
    filter: reload::Handle<LevelFilter, Registry>,
    /// The command line's level, which a reload does not override.
    fixed: bool,
}

impl LogControl {
    /// Starts the log. `forced` is the command line's level and stays for good.
    ///
    /// # Errors
    /// If the process has a log already.
    pub fn start(configured: LogLevel, forced: Option<LogLevel>) -> anyhow::Result<Self> {
        let (filter, handle) = reload::Layer::new(level(forced.unwrap_or(configured)));
        let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal()).with_target(false);
        tracing_subscriber::registry().with(filter).with(lines).try_init().context("the log cannot be started")?;
        Ok(Self { filter: handle, fixed: forced.is_some() })
    }

    /// Takes over the configured level, unless the command line has set one.
    pub fn configure(&self, configured: LogLevel) {
        if !self.fixed && self.filter.reload(level(configured)).is_err() {
            tracing::warn!("log: the level could not be changed");
        }
    }
}

fn level(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
