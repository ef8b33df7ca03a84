//! `weftctl lab`: networks of namespaces on this machine, with a daemon in each.
//!
//! A lab belongs to its supervisor, a process of its own in the background ([`supervisor`]); the other commands start it,
//! read what it wrote down ([`state`]) and give it orders. Nothing outside this module knows about namespaces.

pub(crate) mod args;
mod child;
mod client;
mod daemon;
pub(crate) mod demo;
mod folder;
mod incast;
mod namespace;
mod network;
mod process;
mod start;
mod state;
mod status;
mod supervisor;

use std::path::Path;

use anyhow::Context as _;
use args::{LabCommand, LinkState};
use child::{Interrupt, Waited};
use supervisor::{Order, STOP_GRACE};
use weft_config::lab::Lab;

use crate::exit::{Exit, failure};

/// Runs one of the commands; the result is the exit code.
pub(crate) fn run(command: LabCommand) -> anyhow::Result<u8> {
    match command {
        LabCommand::Up(args) => up(&args),
        LabCommand::Down(args) => client::down(&args.name),
        LabCommand::Run(args) => run_command(&args),
        LabCommand::Exec(args) => client::exec(&args.name, &args.node, &args.command),
        LabCommand::Status(args) => status::show(args.name.as_deref(), args.json),
        LabCommand::Link(args) => {
            let up = args.state == LinkState::Up;
            client::order(&args.name, &Order::Link { node: args.node, neighbour: args.neighbour, up })
        }
        LabCommand::Kill(args) => client::order(&args.name, &Order::Kill { node: args.node }),
        LabCommand::Restart(args) => client::order(&args.name, &Order::Restart { node: args.node }),
        LabCommand::Demo(args) => demo::run(&args),
        LabCommand::Incast(args) => incast::run(&args),
        LabCommand::Supervise(args) => supervisor::run(&args),
    }
}

fn up(args: &args::Up) -> anyhow::Result<u8> {
    let (lab, text) = load(&args.file)?;
    let plan = start::Plan { lab: &lab, text: &text, topology: &args.file, weftd: daemon::find(args.weftd.weftd.as_deref())?, tied: false };
    start::start(&plan)?;
    println!("lab {} is up; see `weftctl lab status {}`, `weftctl lab exec {} NODE COMMAND`", lab.name, lab.name, lab.name);
    Ok(0)
}

fn run_command(args: &args::Run) -> anyhow::Result<u8> {
    let interrupt = Interrupt::register()?;
    let (lab, text) = load(&args.file)?;
    lab.node(&args.node).ok_or_else(|| failure(Exit::Usage, format!("{}: no node {}", args.file.display(), args.node)))?;
    let weftd = daemon::find(args.weftd.weftd.as_deref())?;
    let lab = start::start_tied(&start::Plan { lab: &lab, text: &text, topology: &args.file, weftd, tied: true })?;
    interrupt.check()?;
    let mut child = client::command_line(lab.state(), &args.node, &args.command, true)?
        .spawn()
        .with_context(|| args.command[0].display().to_string())?;
    match child::wait_command(&mut child, &interrupt)? {
        Waited::Exited(status) => Ok(child::code(status)),
        Waited::Interrupted(signal) => {
            child::end(&mut child, STOP_GRACE);
            Ok(Exit::Signal(signal).code())
        }
        Waited::TimedOut => Ok(Exit::Failed.code()),
    }
}

fn load(file: &Path) -> anyhow::Result<(Lab, String)> {
    Lab::load(file).map_err(|errors| failure(Exit::Usage, errors.to_string()))
}
