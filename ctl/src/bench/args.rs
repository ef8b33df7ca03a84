//! Arguments of `ping`, `bench` and `serve`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use weft_proto::stop::PRIORITIES;

use super::client::Wishes;
use super::protocol::{MAX_DEPTH, MAX_QUEUE_PAIRS, MAX_SIZE, MIN_ECHO};
use crate::transfer::args::RecoveryName;

/// The service on which `serve` listens, unless told otherwise.
pub(crate) const SERVICE: u16 = 11;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Write to the other host's memory: goodput, messages per second, latency percentiles
    Write(Sending),
    /// Send messages that the other host receives and throws away
    Send(Sending),
    /// Read the other host's memory
    Read(Moving),
    /// Change eight bytes of the other host's memory
    Atomic(Atomic),
    /// One request at a time: what it takes
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
    /// Priority for stop control: 0, which stops first, to 15 [default: as weftd is configured]
    #[arg(long, value_parser = clap::value_parser!(u8).range(..i64::from(PRIORITIES)))]
    pub(crate) priority: Option<u8>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Remote {
    pub(super) fn wishes(&self) -> Wishes {
        Wishes { recovery: self.recovery.map(Into::into), priority: self.priority }
    }
}

/// Which sizes of messages are measured, one after another.
#[derive(Clone, Debug, Args)]
pub(crate) struct Sizes {
    /// Bytes of a message [default: 64KiB, latency: 64]
    #[arg(long, value_parser = size, conflicts_with_all = ["sizes", "all"])]
    pub(crate) size: Option<u32>,
    /// Measure every size from A to B, each twice the one before
    #[arg(long, value_name = "A..B", value_parser = sizes, conflicts_with = "all")]
    pub(crate) sizes: Option<SizeRange>,
    /// Measure every size from 2 bytes to 8 MiB that fits into memory, each twice the one before
    #[arg(long, short)]
    pub(crate) all: bool,
}

/// Sizes from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeRange {
    first: u32,
    last: u32,
}

impl SizeRange {
    /// What `--all` stands for, as in perftest.
    const ALL: Self = Self { first: 2, last: 8 << 20 };

    fn iter(self) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(self.first), |size| size.checked_mul(2)).take_while(move |size| *size <= self.last)
    }
}

impl Sizes {
    /// The sizes, `default` if none are named. `fits` says why one cannot be; with `--all` that one is left out.
    pub(super) fn list(&self, default: u32, fits: impl Fn(u32) -> Result<(), String>) -> Result<Vec<u32>, String> {
        if self.all {
            return Ok(SizeRange::ALL.iter().filter(|size| fits(*size).is_ok()).collect());
        }
        let sizes: Vec<u32> = match self.sizes {
            Some(range) => range.iter().collect(),
            None => vec![self.size.unwrap_or(default)],
        };
        sizes.iter().try_for_each(|size| fits(*size))?;
        Ok(sizes)
    }

    /// Whether there is one row per size.
    pub(super) const fn is_sweep(&self) -> bool {
        self.all || self.sizes.is_some()
    }
}

/// How hard to work, and for how long.
#[derive(Clone, Debug, Args)]
pub(crate) struct Load {
    /// Messages on their way at a time, on each queue pair
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DEPTH)))]
    pub(crate) depth: u32,
    /// End after so many messages, on each queue pair
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after so long, for each size [default: 5s without --count, 1s for each of several sizes]
    #[arg(long, value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Queue pairs that work at the same time, each with a connection of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_QUEUE_PAIRS)))]
    pub(crate) qps: u32,
    /// Both hosts do the same at the same time
    #[arg(long)]
    pub(crate) both: bool,
    /// Print how many requests took how long
    #[arg(long)]
    pub(crate) histogram: bool,
}

/// What all that moves bytes needs to know.
#[derive(Debug, Args)]
pub(crate) struct Moving {
    #[command(flatten)]
    pub(crate) remote: Remote,
    #[command(flatten)]
    pub(crate) sizes: Sizes,
    #[command(flatten)]
    pub(crate) load: Load,
}

#[derive(Debug, Args)]
pub(crate) struct Sending {
    #[command(flatten)]
    pub(crate) moving: Moving,
    /// Put the bytes into the request itself instead of registered memory; up to 64
    #[arg(long)]
    pub(crate) inline: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Atomic {
    #[command(flatten)]
    pub(crate) remote: Remote,
    /// What to do with them
    #[arg(long, value_enum, default_value_t = AtomicName::FetchAdd)]
    pub(crate) operation: AtomicName,
    #[command(flatten)]
    pub(crate) load: Load,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AtomicName {
    FetchAdd,
    CompareSwap,
}

/// What `latency` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// Half of the time of a message to the other application and back
    Send,
    /// From posting a write until the other host has acknowledged it
    Write,
    /// From posting until the bytes are here
    Read,
    /// From posting until the value from before is here
    FetchAdd,
    /// The same
    CompareSwap,
}

#[derive(Debug, Args)]
pub(crate) struct Latency {
    #[command(flatten)]
    pub(crate) remote: Remote,
    /// What to measure
    #[arg(long, value_enum, default_value_t = Operation::Send)]
    pub(crate) operation: Operation,
    #[command(flatten)]
    pub(crate) sizes: Sizes,
    /// Requests, for each size
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    /// Time between the beginnings of two messages [default: one after the other]
    #[arg(long, value_parser = duration)]
    pub(crate) interval: Option<Duration>,
    /// Print how many requests took how long
    #[arg(long)]
    pub(crate) histogram: bool,
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

fn sizes(text: &str) -> Result<SizeRange, String> {
    let (first, last) = text.split_once("..").ok_or("two sizes, as in 64..1MiB")?;
    let range = SizeRange { first: size(first)?, last: size(last)? };
    if range.first <= range.last { Ok(range) } else { Err("the first size is above the last".to_owned()) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(sizes: &Sizes) -> Vec<u32> {
        sizes.list(64, |size| if size <= 4096 { Ok(()) } else { Err(format!("{size} is too much")) }).unwrap()
    }

    #[test]
    fn sizes_double_from_the_first_to_the_last() {
        let none = Sizes { size: None, sizes: None, all: false };
        assert_eq!(listed(&none), [64]);
        assert_eq!(listed(&Sizes { size: Some(7), ..none.clone() }), [7]);
        assert_eq!(listed(&Sizes { sizes: Some(sizes("100..1KiB").unwrap()), ..none.clone() }), [100, 200, 400, 800]);
        assert_eq!(listed(&Sizes { sizes: Some(sizes("64..64").unwrap()), ..none.clone() }), [64]);
        let all = listed(&Sizes { all: true, ..none.clone() });
        assert_eq!((all[0], all.len(), all.last()), (2, 12, Some(&4096)), "what does not fit is left out");
        let top = Sizes { sizes: Some(sizes("8MiB..16MiB").unwrap()), ..none };
        assert_eq!(top.list(64, |_| Ok(())).unwrap().len(), 2);
        assert_eq!(top.list(64, |size| Err(format!("{size} is too much"))), Err("8388608 is too much".to_owned()));
    }

    #[test]
    fn ranges_that_are_none_are_refused_with_an_example_or_the_limit() {
        for (text, reason) in
            [("64", "64..1MiB"), ("1KiB..64", "above the last"), ("0..64", "from 1"), ("1..17MiB", "16.0 MiB"), ("..", "")]
        {
            let error = sizes(text).unwrap_err();
            assert!(error.contains(reason) || error.contains("16MiB"), "{text}: {error}");
        }
    }
}
