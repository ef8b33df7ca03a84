//! `ping`, `bench` and `serve`: measuring the transport between two hosts.
//!
//! `serve` listens; the others connect and say in the private data of the connection request what they are about to
//! do ([`protocol::Hello`]): have messages sent back (`echo`), have them thrown away (`sink`), or write to memory that
//! the answer ([`protocol::Answer`]) opens (`write`). Nothing else is agreed on, and the connection's end ends it.
//!
//! | module | owns |
//! | --- | --- |
//! | `protocol` | what both sides say when they connect |
//! | `serve` | the answering side |
//! | `ping`, `latency`, `stream` | the measuring side |
//! | `histogram` | percentiles of spans of time |
//! | `cpu` | processor time of the daemon |
//! | `report` | results as text and JSON |

pub(crate) mod args;
mod client;
mod cpu;
mod histogram;
mod latency;
mod ping;
mod protocol;
mod report;
mod serve;
mod stream;

pub(crate) use ping::run as ping;
pub(crate) use serve::run as serve;

use args::BenchCommand;

use crate::args::Sockets;

pub(crate) fn bench(sockets: &Sockets, command: &BenchCommand) -> anyhow::Result<u8> {
    match command {
        BenchCommand::Write(arguments) => stream::run(sockets, arguments, protocol::Mode::Write),
        BenchCommand::Send(arguments) => stream::run(sockets, arguments, protocol::Mode::Sink),
        BenchCommand::Latency(arguments) => latency::run(sockets, arguments),
    }
}
