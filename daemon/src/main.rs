//! `weftd`: the daemon's command line.
//!
//! Exit codes: 0 = ended as asked, or the configuration is fine; 1 = could not start, or failed while running;
//! 2 = wrong command line or faulty configuration, which no restart will mend.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use weft_config::Config;
use weft_config::model::{LogLevel, Words};
use weft_daemon::daemon::{Daemon, Options};

/// The wrong command line of clap has the same code.
const BAD_CONFIGURATION: u8 = 2;

/// Userspace packet-processing dataplane: RDMA-like transport and switch over Ethernet.
#[derive(Debug, Parser)]
#[command(
    name = "weftd",
    version,
    after_help = "Exit codes: 0 ended as asked; 1 could not start or failed; 2 bad command line or configuration."
)]
struct Arguments {
    /// The configuration (YAML).
    #[arg(long, value_name = "FILE", default_value = "/etc/weft/weftd.yaml")]
    config: PathBuf,
    /// Check the configuration and end.
    #[arg(long)]
    check: bool,
    /// How much to log, instead of the configuration's: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", value_parser = parse_level)]
    log: Option<LogLevel>,
}

fn parse_level(word: &str) -> Result<LogLevel, String> {
    LogLevel::from_word(word).ok_or_else(|| "choose error, warn, info, debug or trace".to_owned())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let config = match Config::load(&arguments.config) {
        Ok(config) => config,
        Err(errors) => {
            eprintln!("{errors}");
            return BAD_CONFIGURATION.into();
        }
    };
    if arguments.check {
        println!("{}: fine", arguments.config.display());
        return ExitCode::SUCCESS;
    }
    match Daemon::start(config, Options { config_file: arguments.config, log: arguments.log }).and_then(Daemon::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weftd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
