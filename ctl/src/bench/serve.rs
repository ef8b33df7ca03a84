//! `weftctl serve`: a thread per connection.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use weft_verbs::{Context, MemoryRegion};

use super::args::Serve;
use super::flow::{Flow, Limits};
use super::lane::{OPEN, PATTERN, list};
use super::protocol::{Answer, DONE, Hello, Layout, MAX_QUEUE_PAIRS, Mode, STOP, Tally};
use crate::args::Sockets;
use crate::exit::{self, Exit};
use crate::interrupt::Interrupt;
use crate::session::{Arrival, Incoming, Listener, Session, explain};

/// Connections at a time.
const MAX_CONNECTIONS: usize = MAX_QUEUE_PAIRS as usize;
/// How often a connection on which nothing happens is looked at.
const IDLE: Duration = Duration::from_secs(1);

/// Answers until a signal comes.
pub(crate) fn run(sockets: &Sockets, arguments: &Serve) -> anyhow::Result<u8> {
    let interrupt = Interrupt::register()?;
    let context = Context::attach(&sockets.app_socket, "weftctl serve").map_err(|error| explain(error, "this host"))?;
    let listener = Listener::open(&context, arguments.service)?;
    println!("{}: answering weftctl ping and bench", context.mac());
    let alive = Arc::new(());
    loop {
        match listener.next(&interrupt) {
            // Each connection's thread holds one more.
            Ok(Some(incoming)) if Arc::strong_count(&alive) > MAX_CONNECTIONS => {
                listener.reject(&incoming, "weftctl serve has as many connections as it takes; try again later");
            }
            Ok(Some(incoming)) => admit(&context, &listener, &incoming, &interrupt, &alive)?,
            Ok(None) => {}
            Err(error) if matches!(exit::of(&error), Exit::Signal(_)) => return Ok(0),
            Err(error) => return Err(error),
        }
    }
}

/// Lets somebody in, unless it is the wrong one. What fails concerns that one only.
fn admit(context: &Context, listener: &Listener, incoming: &Incoming, interrupt: &Interrupt, alive: &Arc<()>) -> anyhow::Result<()> {
    let hello = match Hello::decode(&incoming.private) {
        Ok(hello) => hello,
        Err(why) => {
            listener.reject(incoming, why);
            return Ok(());
        }
    };
    let (session, memory) = match accept(context, incoming, &hello, interrupt) {
        Ok(accepted) => accepted,
        Err(error) => {
            eprintln!("weftctl: {}: {error:#}", incoming.peer);
            return Ok(());
        }
    };
    let alive = Arc::clone(alive);
    let work = move || {
        let _alive = alive;
        answer(session, &hello, memory);
    };
    std::thread::Builder::new().name("serve".to_owned()).spawn(work).context("cannot start a thread")?;
    Ok(())
}

fn accept(context: &Context, incoming: &Incoming, hello: &Hello, interrupt: &Interrupt) -> anyhow::Result<(Session, Option<MemoryRegion>)> {
    let memory = match hello.mode {
        Mode::Echo => None,
        Mode::Sink if !hello.is_both() => None,
        _ => Some(open_memory(context, hello)?),
    };
    let private = serde_json::to_vec(&Answer { rkey: memory.as_ref().map(MemoryRegion::rkey) })?;
    Ok((Session::accept(context, incoming, &private, hello.serving(), interrupt)?, memory))
}

fn open_memory(context: &Context, hello: &Hello) -> anyhow::Result<MemoryRegion> {
    let len = usize::try_from(Layout::of(hello).len())?;
    let mut memory = context.register(len, OPEN).map_err(|error| explain(error, "this host"))?;
    if hello.mode == Mode::Read {
        memory.copy_in(0, &vec![PATTERN; usize::try_from(hello.size)?])?;
    }
    Ok(memory)
}

/// Until the other side hangs up, which is the only end that there is.
fn answer(mut session: Session, hello: &Hello, mut memory: Option<MemoryRegion>) {
    if let (Some(rkey), Some(memory)) = (hello.back, &mut memory) {
        // What goes wrong ends the connection, which the other side notices.
        let _ = measure_back(&mut session, hello, memory, rkey);
    }
    while let Ok(arrival) = session.next_within(IDLE) {
        let Some(Arrival::Message { slot, len }) = arrival else { continue };
        let handled = match hello.mode {
            Mode::Echo => session.take(slot, len).and_then(|message| session.send(&message)),
            _ => session.discard(slot),
        };
        if handled.is_err() {
            break;
        }
    }
    // Only now: until here the other side may use it.
    drop(memory);
}

/// Does the same as the other side until that says stop, then tells what was done.
fn measure_back(session: &mut Session, hello: &Hello, memory: &mut MemoryRegion, rkey: u32) -> anyhow::Result<()> {
    let layout = Layout::of(hello);
    let mut flow = Flow::new(hello, list(memory, layout.local(), hello.size)?, rkey);
    let measured = flow.run(session, Limits::NONE)?;
    anyhow::ensure!(flow.wait_told(session)? == STOP, "the other side says something without meaning");
    let tally = measured.tally(hello.size).encode();
    let piece = memory.sge(layout.tally(), Tally::LEN.try_into()?)?;
    memory.copy_in(layout.tally(), &tally)?;
    session.write(flow.posted(), piece, (layout.tally(), rkey), Some(DONE))
}
