//! `weftctl`: the operator's side of Weft.
//!
//! Owns what people see: commands, tables, progress, exit codes. Decides nothing about traffic; it asks daemons through
//! their control sockets, is an application of theirs to move files and to measure, and, for labs, builds namespaces and
//! starts daemons in them. The binary `weftctl` calls [`run`].
//!
//! | module | owns |
//! | --- | --- |
//! | `args` | the tree of commands and their arguments |
//! | `exit`, `interrupt` | exit codes; signals |
//! | `admin` | questions to the daemon's administration socket |
//! | `show`, `stop`, `configuration`, `retransmissions` | what is asked there |
//! | `session` | connections to these commands on other hosts, over the transport |
//! | `transfer` | `cp` and `receive` |
//! | `bench` | `ping`, `bench` and `serve` |
//! | `text` | quantities as people read them |
//! | `lab` | labs: namespaces, cables, supervisors, the demo |
//! | `netlink` | the few rtnetlink requests that a lab needs |

mod admin;
mod args;
mod bench;
mod configuration;
mod exit;
mod interrupt;
mod lab;
mod netlink;
mod retransmissions;
mod session;
mod show;
mod stop;
mod text;
mod transfer;

use std::process::ExitCode;

use args::{Args, Command};
use clap::{CommandFactory as _, Parser as _};

/// Parses the command line, runs the command, reports its failure on standard error.
pub fn run() -> ExitCode {
    exit::report(dispatch(Args::parse()))
}

fn dispatch(Args { sockets, command }: Args) -> anyhow::Result<u8> {
    match command {
        Command::Status(arguments) => show::status(&sockets, arguments),
        Command::Port(arguments) => show::ports(&sockets, arguments),
        Command::Peer(arguments) => show::peers(&sockets, arguments),
        Command::Qp(arguments) => show::queue_pairs(&sockets, arguments),
        Command::Fdb(arguments) => show::addresses(&sockets, arguments),
        Command::Queue(arguments) => show::queues(&sockets, arguments),
        Command::Stop(command) => stop::run(&sockets, command),
        Command::Counters(arguments) => show::counters(&sockets, arguments),
        Command::Config(command) => configuration::run(&sockets, command),
        Command::Reload(arguments) => configuration::reload(&sockets, arguments),
        Command::Ping(arguments) => bench::ping(&sockets, &arguments),
        Command::Cp(arguments) => transfer::copy(&sockets, &arguments),
        Command::Receive(arguments) => transfer::receive(&sockets, &arguments),
        Command::Bench(command) => bench::bench(&sockets, &command),
        Command::Serve(arguments) => bench::serve(&sockets, &arguments),
        Command::Lab(command) => lab::run(command),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Args::command(), "weftctl", &mut std::io::stdout());
            Ok(0)
        }
    }
}
