//! Arguments of `cp` and `receive`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use weft_proto::stop::PRIORITIES;

use super::protocol::{MAX_CHUNK, MAX_WINDOW};

/// The service on which `receive` listens, unless told otherwise.
pub(crate) const SERVICE: u16 = 10;

#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// The files, then HOST: - a name from `hosts` in weftd's configuration, or an Ethernet address, and a colon
    #[arg(required = true, num_args = 2.., value_names = ["FILE", "HOST:"])]
    pub(crate) files: Vec<PathBuf>,
    /// How to recover from losses [default: as weftd is configured]
    #[arg(long)]
    pub(crate) recovery: Option<RecoveryName>,
    /// Priority for stop control: 0, which stops first, to 15 [default: as weftd is configured]
    #[arg(long, value_parser = clap::value_parser!(u8).range(..i64::from(PRIORITIES)))]
    pub(crate) priority: Option<u8>,
    /// Bytes written to the other host at a time
    #[arg(long, default_value = "256KiB", value_parser = chunk)]
    pub(crate) chunk: u32,
    /// Chunks on their way at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WINDOW)))]
    pub(crate) depth: u32,
    /// The service on which `weftctl receive` listens there
    #[arg(long, default_value_t = SERVICE)]
    pub(crate) service: u16,
    /// Print one JSON object about the transfer
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Receive {
    /// The folder that the files go to
    pub(crate) folder: PathBuf,
    /// End after one transfer
    #[arg(long)]
    pub(crate) once: bool,
    /// Replace files that exist
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// The service to listen on
    #[arg(long, default_value_t = SERVICE)]
    pub(crate) service: u16,
    /// Print a JSON object per event, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Recovery modes by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecoveryName {
    /// Selective retransmission
    Irn,
    /// Selective retransmission exactly as the paper has it
    IrnStrict,
    /// Everything from the gap on is sent again, as RoCE does
    GoBackN,
}

impl From<RecoveryName> for weft_verbs::Recovery {
    fn from(name: RecoveryName) -> Self {
        match name {
            RecoveryName::Irn => Self::Irn,
            RecoveryName::IrnStrict => Self::IrnStrict,
            RecoveryName::GoBackN => Self::GoBackN,
        }
    }
}

fn chunk(text: &str) -> Result<u32, String> {
    let bytes = weft_config::units::parse_bytes(text).map_err(|error| error.to_string())?;
    let chunk = u32::try_from(bytes).ok().filter(|chunk| (1024..=MAX_CHUNK).contains(chunk));
    chunk.ok_or_else(|| format!("from 1KiB to {}", weft_config::units::bytes_text(MAX_CHUNK.into())))
}
