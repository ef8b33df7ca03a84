//! `weftctl serve`: a thread per connection.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use weft_verbs::{Access, Context, MemoryRegion};

use super::args::Serve;
use super::protocol::{Answer, Hello, Mode};
use crate::args::Sockets;
use crate::exit::{self, Exit};
use crate::interrupt::Interrupt;
use crate::session::{Arrival, Incoming, Listener, Session, explain};

/// Connections at a time.
const MAX_CONNECTIONS: usize = 32;
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
    let (alive, mode) = (Arc::clone(alive), hello.mode);
    let work = move || {
        let (_alive, _memory) = (alive, memory);
        answer(session, mode);
    };
    std::thread::Builder::new().name("serve".to_owned()).spawn(work).context("cannot start a thread")?;
    Ok(())
}

fn accept(context: &Context, incoming: &Incoming, hello: &Hello, interrupt: &Interrupt) -> anyhow::Result<(Session, Option<MemoryRegion>)> {
    let access = Access { local_write: true, remote_write: true, ..Access::default() };
    let memory = match hello.mode {
        Mode::Write => Some(context.register(usize::try_from(hello.size)?, access).map_err(|error| explain(error, "this host"))?),
        Mode::Echo | Mode::Sink => None,
    };
    let private = serde_json::to_vec(&Answer { rkey: memory.as_ref().map(MemoryRegion::rkey) })?;
    Ok((Session::accept(context, incoming, &private, hello.serving(), interrupt)?, memory))
}

/// Until the other side hangs up, which is the only end that there is.
fn answer(mut session: Session, mode: Mode) {
    while let Ok(arrival) = session.next_within(IDLE) {
        let Some(Arrival::Message { slot, len }) = arrival else { continue };
        let handled = match mode {
            Mode::Echo => session.take(slot, len).and_then(|message| session.send(&message)),
            Mode::Sink | Mode::Write => session.discard(slot),
        };
        if handled.is_err() {
            return;
        }
    }
}
