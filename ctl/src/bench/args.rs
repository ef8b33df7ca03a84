//! Arguments of `ping`, `bench` and `serve`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::protocol::{MAX_DEPTH, MAX_SIZE, MIN_ECHO};
use crate::transfer::args::RecoveryName;

/// The service on which `serve` listens, unless told otherwise.
pub(crate) const SERVICE: u16 = 11;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Write to the other host's memory: goodput, messages per second, latency percentiles
    Write(Stream),
    /// Send messages that the other host receives and throws away
    Send(Stream),
    /// Send a small message back and forth, one at a time: half of the round trip
    Latency(Latency),
}

/// The other side of a measurement.
#[derive(Debug, Args)]
pub(crate) struct Remote {
    /// The host, on which `weftctl serve` runs: a name from `hosts` in weftd's configuration, or an Ethernet address
    #[arg(long, value_name = "HOST")]
    pub(crate) to: String,
    /// The service on which `weftctl serve` listens there
    #[arg(long, default_value_t = SERVICE)]
    pub(crate) service: u16,
    /// How to recover from losses [default: as weftd is configured]
    #[arg(long)]
    pub(crate) recovery: Option<RecoveryName>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Stream {
    #[command(flatten)]
    pub(crate) remote: Remote,
    /// Bytes of a message
    #[arg(long, default_value = "64KiB", value_parser = size)]
    pub(crate) size: u32,
    /// Messages on their way at a time
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DEPTH)))]
    pub(crate) depth: u32,
    /// End after so many messages
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after so long [default: 5s, without --count]
    #[arg(long, value_parser = duration)]
    pub(crate) duration: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Latency {
    #[command(flatten)]
    pub(crate) remote: Remote,
    /// Bytes of a message
    #[arg(long, default_value = "64", value_parser = echo_size)]
    pub(crate) size: u32,
    /// Round trips
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Ping {
    /// The host, on which `weftctl serve` runs: a name from `hosts` in weftd's configuration, or an Ethernet address
    pub(crate) host: String,
    /// End after so many [default: until Ctrl-C]
    #[arg(long, short, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Time between two
    #[arg(long, short, default_value = "1s", value_parser = duration)]
    pub(crate) interval: Duration,
    /// Bytes of a message
    #[arg(long, short, default_value = "64", value_parser = echo_size)]
    pub(crate) size: u32,
    /// An answer that takes longer counts as lost
    #[arg(long, default_value = "1s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// The service on which `weftctl serve` listens there
    #[arg(long, default_value_t = SERVICE)]
    pub(crate) service: u16,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The service to listen on
    #[arg(long, default_value_t = SERVICE)]
    pub(crate) service: u16,
}

fn size(text: &str) -> Result<u32, String> {
    size_from(text, 1)
}

fn echo_size(text: &str) -> Result<u32, String> {
    size_from(text, MIN_ECHO)
}

fn size_from(text: &str, least: u32) -> Result<u32, String> {
    let bytes = weft_config::units::parse_bytes(text).map_err(|error| error.to_string())?;
    let size = u32::try_from(bytes).ok().filter(|size| (least..=MAX_SIZE).contains(size));
    size.ok_or_else(|| format!("from {least} to {}", weft_config::units::bytes_text(MAX_SIZE.into())))
}

fn duration(text: &str) -> Result<Duration, String> {
    let span = weft_config::units::parse_duration(text).map_err(|error| error.to_string())?;
    Ok(Duration::from_nanos(span.as_nanos()))
}
