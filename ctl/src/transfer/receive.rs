//! `weftctl receive`: listens, and lets each sender have a thread.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use weft_verbs::{Access, Context};

use super::args::Receive;
use super::assembly::{Arrived, Assembly, Refusal, Step};
use super::folder::Folder;
use super::protocol::{Grant, Hello, MAX_MESSAGE, ToSender, encode};
use crate::args::Sockets;
use crate::exit::{self, Exit, failure};
use crate::interrupt::Interrupt;
use crate::session::{Arrival, Incoming, Listener, Session, Shape, explain};
use crate::text;

/// Transfers at a time.
const MAX_TRANSFERS: usize = 16;
/// How long a sender may take to hang up after its last message.
const FAREWELL: Duration = Duration::from_secs(2);

/// Something to tell the user.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum News<'a> {
    Listening { folder: &'a str, address: String },
    Received { name: String, bytes: u64, sha256: &'a str, from: &'a str },
    Failed { from: &'a str, message: String },
}

impl News<'_> {
    fn text(&self) -> String {
        match self {
            Self::Listening { folder, address } => format!("{address}: waiting for files; they go to {folder}"),
            Self::Received { name, bytes, sha256, from } => format!("{sha256}  {name}  ({} from {from})", text::bytes(*bytes)),
            // What went wrong with the connection names the peer already.
            Self::Failed { from, message } if message.starts_with(from) => message.clone(),
            Self::Failed { from, message } => format!("{from}: {message}"),
        }
    }

    /// One line, at once: whoever started us may wait for it.
    fn print(&self, json: bool) {
        use std::io::Write as _;
        let line = if json { serde_json::to_string(self).unwrap_or_default() } else { self.text() };
        let mut stdout = std::io::stdout().lock();
        // Nobody may be reading any more, which is no reason to stop.
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
}

/// What all transfers share.
#[derive(Debug)]
struct Receiver {
    context: Context,
    folder: Folder,
    json: bool,
    interrupt: Interrupt,
}

pub(crate) fn run(sockets: &Sockets, arguments: &Receive) -> anyhow::Result<u8> {
    let folder = Folder::open(&arguments.folder, arguments.overwrite)?;
    let interrupt = Interrupt::register()?;
    let context = Context::attach(&sockets.app_socket, "weftctl receive").map_err(|error| explain(error, "this host"))?;
    let listener = Listener::open(&context, arguments.service)?;
    let receiver = Arc::new(Receiver { context, folder, json: arguments.json, interrupt });
    let shown = receiver.folder.path().display().to_string();
    News::Listening { folder: &shown, address: receiver.context.mac().to_string() }.print(receiver.json);
    if arguments.once { receive_one(&receiver, &listener) } else { receive_all(&receiver, &listener) }
}

fn receive_one(receiver: &Receiver, listener: &Listener) -> anyhow::Result<u8> {
    loop {
        let Some(incoming) = listener.next(&receiver.interrupt)? else { continue };
        if let Some(mut transfer) = receiver.admit(listener, &incoming)? {
            transfer.session.own_events();
            return receiver.take_files(transfer).map(|()| 0);
        }
    }
}

/// Until a signal comes. A transfer that fails is told and leaves the others alone.
fn receive_all(receiver: &Arc<Receiver>, listener: &Listener) -> anyhow::Result<u8> {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let outcome = loop {
        let incoming = match listener.next(&receiver.interrupt) {
            Ok(Some(incoming)) => incoming,
            Ok(None) => continue,
            Err(error) => break error,
        };
        threads.retain(|thread| !thread.is_finished());
        if threads.len() >= MAX_TRANSFERS {
            listener.reject(&incoming, "as many transfers as weftctl receive takes at a time go on; try again later");
            continue;
        }
        match receiver.admit(listener, &incoming) {
            Ok(Some(transfer)) => threads.push(start(receiver, transfer)?),
            Ok(None) => {}
            Err(error) => receiver.tell_failure(&incoming.peer.to_string(), &error),
        }
    };
    // They see the signal, or the daemon's end, as well, and remove what is incomplete.
    threads.into_iter().for_each(|thread| drop(thread.join()));
    match exit::of(&outcome) {
        Exit::Signal(_) => Ok(0),
        _ => Err(outcome),
    }
}

fn start(receiver: &Arc<Receiver>, transfer: Transfer) -> anyhow::Result<JoinHandle<()>> {
    let receiver = Arc::clone(receiver);
    let work = move || {
        let peer = transfer.session.peer().to_owned();
        if let Err(error) = receiver.take_files(transfer) {
            receiver.tell_failure(&peer, &error);
        }
    };
    std::thread::Builder::new().name("receive".to_owned()).spawn(work).context("cannot start a thread")
}

/// A sender that was let in.
#[derive(Debug)]
struct Transfer {
    session: Session,
    memory: Arc<weft_verbs::MemoryRegion>,
    grant: Grant,
}

impl Receiver {
    /// Lets a sender in, unless it is none.
    fn admit(&self, listener: &Listener, incoming: &Incoming) -> anyhow::Result<Option<Transfer>> {
        let hello = match Hello::decode(&incoming.private) {
            Ok(hello) => hello,
            Err(why) => {
                listener.reject(incoming, why);
                return Ok(None);
            }
        };
        let (chunk, window) = hello.granted();
        let access = Access { local_write: true, remote_write: true, ..Access::default() };
        let len = usize::try_from(u64::from(chunk) * u64::from(window))?;
        let memory = Arc::new(self.context.register(len, access).map_err(|error| explain(error, "this host"))?);
        let grant = Grant { chunk, window, rkey: memory.rkey() };
        // Two more: a message may come while the one before it is being answered.
        let shape = Shape { slot: MAX_MESSAGE, receives: window + 2, sends: window + 2, requests: 0, recovery: None, priority: None };
        let session = Session::accept(&self.context, incoming, &encode(&grant), shape, &self.interrupt)?;
        Ok(Some(Transfer { session, memory, grant }))
    }

    /// Takes a sender's files until it has no more.
    fn take_files(&self, transfer: Transfer) -> anyhow::Result<()> {
        let Transfer { session, memory, grant } = transfer;
        let mut assembly = Assembly::new(&self.folder, memory, grant)?;
        // Declared last, so that it is dropped first: the connection ends before the memory that the peer writes to
        // goes, and the peer is told that we left, not that its key is wrong.
        let mut session = session;
        loop {
            let step = match session.next()? {
                Arrival::Written { imm, len } => assembly.handle_chunk(imm, len).map(|()| Step::Quiet),
                Arrival::Message { slot, len } => assembly.handle_message(&session.take(slot, len)?),
                Arrival::Done(_) => continue,
            };
            match step {
                Ok(Step::Quiet) => {}
                Ok(Step::Arrived(file)) => self.answer(&mut session, &file)?,
                Ok(Step::Finished) => return await_end(&mut session),
                Err(refusal) => return Err(refuse(&mut session, refusal)),
            }
            if let Some(credit) = assembly.poll_credit() {
                session.send(&encode(&credit))?;
            }
        }
    }

    fn answer(&self, session: &mut Session, file: &Arrived) -> anyhow::Result<()> {
        let name = text::foreign(&file.name);
        News::Received { name, bytes: file.bytes, sha256: &file.sha256, from: session.peer() }.print(self.json);
        session.send(&encode(&ToSender::Done { sha256: file.sha256.clone() }))
    }

    fn tell_failure(&self, from: &str, error: &anyhow::Error) {
        let news = News::Failed { from, message: format!("{error:#}") };
        if self.json {
            news.print(true);
        } else {
            eprintln!("weftctl: {}", news.text());
        }
    }
}

/// The sender says that it is finished once it has all answers, and then hangs up; until then the connection must stay. A
/// credit on its way is of no use to it any more, so whether it arrives does not matter.
fn await_end(session: &mut Session) -> anyhow::Result<()> {
    // The end of the connection is an error everywhere else; here it is what we wait for.
    let _ = session.next_within(FAREWELL);
    session.interrupt().check()
}

/// Tells the sender why, and waits a moment so that it hears it before the connection goes.
fn refuse(session: &mut Session, refusal: Refusal) -> anyhow::Error {
    if !refusal.aborted {
        let told = session.send(&encode(&refusal.message())).and_then(|()| session.flush());
        if told.is_ok() {
            let deadline = std::time::Instant::now() + FAREWELL;
            while session.interrupt().signal().is_none()
                && matches!(session.next_within(FAREWELL), Ok(Some(_)))
                && std::time::Instant::now() < deadline
            {}
        }
    }
    if refusal.damaged { failure(Exit::Damaged, format!("{:#}", refusal.error)) } else { refusal.error }
}
