//! `ping`, `bench` and `serve`: measuring the transport between two hosts.
//!
//! `serve` listens; the others connect and say in the private data of the connection request what they are about to
//! do ([`protocol::Hello`]): have messages sent back, have them thrown away, or write, read and change memory that the
//! answer ([`protocol::Answer`]) opens. Both sides can do the same at the same time. The connection's end ends it.
//!
//! | module | owns |
//! | --- | --- |
//! | `protocol` | what both sides say when they connect |
//! | `serve` | the answering side |
//! | `ping`, `latency`, `stream` | the measuring side |
//! | `lane`, `flow` | one connection of it, and its requests |
//! | `histogram`, `meter` | percentiles of spans of time; rates |
//! | `cpu` | processor time of the daemon |
//! | `report` | results as text and JSON |

pub(crate) mod args;
mod client;
mod cpu;
mod flow;
mod histogram;
mod lane;
mod latency;
mod meter;
mod ping;
mod protocol;
mod report;
mod serve;
mod stream;

pub(crate) use cpu::nanoseconds as cpu_nanoseconds;
pub(crate) use ping::run as ping;
pub(crate) use serve::run as serve;

use args::{AtomicName, BenchCommand, Sizes};
use protocol::{ATOMIC, Mode};
use stream::Plan;

use crate::args::Sockets;

pub(crate) fn bench(sockets: &Sockets, command: &BenchCommand) -> anyhow::Result<u8> {
    let eight = Sizes { size: Some(ATOMIC), sizes: None, all: false };
    let plan = match command {
        BenchCommand::Write(a) => Plan { inline: a.inline, ..Plan::of(Mode::Write, &a.moving) },
        BenchCommand::Send(a) => Plan { inline: a.inline, ..Plan::of(Mode::Sink, &a.moving) },
        BenchCommand::Read(moving) => Plan::of(Mode::Read, moving),
        BenchCommand::Atomic(a) => {
            let mode = if a.operation == AtomicName::FetchAdd { Mode::FetchAdd } else { Mode::CompareSwap };
            Plan { mode, remote: &a.remote, sizes: &eight, load: &a.load, inline: false }
        }
        BenchCommand::Latency(arguments) => return latency::run(sockets, arguments),
    };
    stream::run(sockets, &plan)
}
