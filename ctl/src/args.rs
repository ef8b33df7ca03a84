//! The tree of commands.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use weft_config::defaults::{APPLICATIONS_SOCKET, CONTROL_SOCKET};

use crate::bench::args::{BenchCommand, Ping, Serve};
use crate::exit;
use crate::lab::args::LabCommand;
use crate::transfer::args::{Copy, Receive};

/// Shows and steers Weft, moves files, measures, runs labs.
#[derive(Debug, Parser)]
#[command(name = "weftctl", version, propagate_version = true, after_help = exit::HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) sockets: Sockets,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the daemon of this host is met.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Where weftd is")]
pub(crate) struct Sockets {
    /// Administration socket
    #[arg(long, global = true, env = "WEFT_SOCKET", default_value = CONTROL_SOCKET, value_name = "PATH")]
    pub(crate) socket: PathBuf,
    /// Socket for applications: ping, cp, receive, bench and serve are some
    #[arg(long, global = true, env = "WEFT_APP_SOCKET", default_value = APPLICATIONS_SOCKET, value_name = "PATH")]
    pub(crate) app_socket: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The daemon at a glance
    Status(Json),
    /// Network ports
    #[command(subcommand)]
    Port(Show),
    /// Nodes that this one is connected to
    #[command(subcommand)]
    Peer(Show),
    /// Queue pairs
    #[command(subcommand)]
    Qp(QpCommand),
    /// Addresses that the switch has learned
    #[command(subcommand)]
    Fdb(Show),
    /// Virtual output queues of the switch, one per input, output and class in use
    #[command(subcommand)]
    Queue(Show),
    /// Stop control: who may not send to whom
    #[command(subcommand)]
    Stop(StopCommand),
    /// Sums over the whole node
    Counters(Json),
    /// Check and print configurations
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Make the daemon read its configuration file again
    Reload(Json),
    /// Measure round trips to a host on which `weftctl serve` runs
    Ping(Ping),
    /// Copy files to a host on which `weftctl receive` runs
    Cp(Copy),
    /// Take files from `weftctl cp` on other hosts
    Receive(Receive),
    /// Measure the transport to a host on which `weftctl serve` runs
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Answer `weftctl ping` and `weftctl bench` of other hosts
    Serve(Serve),
    /// Networks of namespaces on this machine, with a daemon in each: to try, teach, test
    #[command(subcommand)]
    Lab(LabCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Json {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum QpCommand {
    /// List them, one line each, or show everything about one
    Show {
        /// The number of one
        qp: Option<u32>,
        #[command(flatten)]
        json: Json,
    },
    /// Print the last events of one: packets, acknowledgements, losses, time-outs, states
    Trace {
        /// Its number
        qp: u32,
        /// At most so many events [default: all that are kept, 64]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        last: Option<u32>,
        #[command(flatten)]
        json: Json,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum StopCommand {
    /// Show who holds this node back, whom it asks to stop, its watched ports and what it counts
    Show(Json),
    /// Ask a host to stop sending to this node, once; what is not said is as configured
    Send {
        /// Its name in `hosts` of the daemon's configuration, or its address
        host: String,
        /// Frames of lower priority are to stop: 15 = all but acknowledgements, 0 = as the host sees fit
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=15))]
        priority: Option<u8>,
        /// For so many ticks (`stop.tick`, 10us by default); 0 = as the host sees fit
        #[arg(long, value_name = "N")]
        timer: Option<u8>,
        /// What it may still send, as its `stop.rate_rule` takes it: by default sixteenths of its rate, 0 = nothing
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=15))]
        rate: Option<u8>,
        #[command(flatten)]
        json: Json,
    },
    /// Tell a host that it may send again
    Cancel {
        /// Its name in `hosts` of the daemon's configuration, or its address
        host: String,
        #[command(flatten)]
        json: Json,
    },
    /// Print what happens, a line per event, until Ctrl-C
    Watch {
        /// Begin with what happened before, as far as the daemon keeps it (512 events)
        #[arg(long)]
        all: bool,
        /// End after so many events
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
        #[command(flatten)]
        json: Json,
    },
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Show {
    /// List them
    Show(Json),
}

impl Show {
    pub(crate) const fn json(self) -> bool {
        let Self::Show(arguments) = self;
        arguments.json
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say what is wrong with a configuration file; nothing is started or changed
    Check {
        /// The file
        file: PathBuf,
    },
    /// Print an effective configuration, every key with its value: the daemon's, that of a file, or the defaults
    Show {
        /// The defaults instead, with the smallest valid configuration filled in
        #[arg(long, conflicts_with = "file")]
        defaults: bool,
        /// A configuration file instead of the running daemon's
        file: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_tree_of_commands_is_consistent_and_every_shell_has_completions() {
        Args::command().debug_assert();
        for shell in <clap_complete::Shell as clap::ValueEnum>::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Args::command(), "weftctl", &mut script);
            assert!(String::from_utf8(script).unwrap().contains("receive"), "{shell}");
        }
    }

    #[test]
    fn copying_takes_files_and_then_a_host() {
        let parse = |words: &[&str]| Args::try_parse_from([&["weftctl"], words].concat());
        let Command::Cp(copy) = parse(&["cp", "one", "two", "b:", "--recovery", "irn-strict"]).unwrap().command else { panic!() };
        assert_eq!(copy.files.len(), 3);
        for wrong in [&["cp", "b:"][..], &["cp", "one", "b:", "--chunk", "17MiB"], &["cp", "one", "b:", "--depth", "0"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
