//! A connection of one of these commands to another, over the transport.
//!
//! Owns the queue pair, its completion queue, and a mailbox: registered memory cut into slots, from which small messages
//! are sent and in which they arrive. Slots are posted again by themselves, so the peer finds room for as many messages
//! at a time as both agreed on. Every wait ends: with what was waited for, the peer's or a daemon's end, a signal, or [`STALL`].

mod failure;
mod listener;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use weft_verbs::{
    Access, Completion, CompletionOp, CompletionQueue, Context, Data, MemoryRegion, QpNum, QpOptions, QueuePair, Recovery, SendOp,
    SendWork, Sge, Status,
};

use crate::interrupt::Interrupt;
pub(crate) use failure::explain;
pub(crate) use listener::{Incoming, Listener};

/// How long a peer may take to connect. The daemon's own limit, about 1 s by default, usually comes first.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// How long a living peer may let us wait: a stuck disk or a stopped process, as the daemons notice everything else.
pub(crate) const STALL: Duration = Duration::from_secs(60);
/// How often a wait looks whether a signal came.
const SLICE: Duration = Duration::from_millis(100);
/// Completions taken at a time.
const BATCH: usize = 64;
/// Names of requests that are not the mailbox's start here.
const OWN_REQUESTS: u64 = 1 << 32;

/// Whom to connect to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// A name in the daemon's configuration, or an Ethernet address.
    pub(crate) host: &'a str,
    pub(crate) service: u16,
    /// The command that should listen there, for messages.
    pub(crate) listener: &'static str,
}

/// Sizes that both sides of a connection reckon with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes of a slot, the longest message.
    pub(crate) slot: u32,
    /// Slots for arrivals.
    pub(crate) receives: u32,
    /// Slots for messages on their way.
    pub(crate) sends: u32,
    /// Requests outstanding besides messages.
    pub(crate) requests: u32,
    /// What to offer instead of the daemon's recovery mode.
    pub(crate) recovery: Option<Recovery>,
    /// Instead of the daemon's priority.
    pub(crate) priority: Option<u8>,
}

/// Something that happened on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A message, until [`Session::take`] or [`Session::discard`] in this slot.
    Message { slot: u64, len: u32 },
    /// The peer wrote so many bytes to our memory and told us with this number.
    Written { imm: u32, len: u32 },
    /// Our own request with this name is done.
    Done(u64),
}

/// What was agreed on with the peer.
#[derive(Clone, Debug)]
pub(crate) struct Agreed {
    pub(crate) private: Vec<u8>,
    pub(crate) recovery: Recovery,
}

#[derive(Debug)]
pub(crate) struct Session {
    qp: QueuePair,
    cq: CompletionQueue,
    mailbox: MemoryRegion,
    context: Context,
    /// Whether events are read here; else the listener reads them.
    owns_events: bool,
    shape: Shape,
    free: Vec<u64>,
    completions: Vec<Completion>,
    pending: VecDeque<Arrival>,
    /// How the first request ended that the connection's end took down. What came before is still to be had.
    ended: Option<Status>,
    interrupt: Interrupt,
    peer: String,
}

impl Session {
    /// Connects to `target`, telling the application there `private`.
    pub(crate) fn connect(
        context: &Context,
        target: &Target<'_>,
        private: &[u8],
        shape: Shape,
        interrupt: &Interrupt,
    ) -> anyhow::Result<(Self, Agreed)> {
        let mut session = Self::new(context.clone(), shape, interrupt.clone(), target.host.to_owned())?;
        let outcome = session.qp.connect(target.host, target.service, private, CONNECT_PATIENCE);
        let connected = outcome.map_err(|error| failure::not_connected(error, target))?;
        session.own_events();
        Ok((session, Agreed { private: connected.private, recovery: connected.recovery }))
    }

    /// Accepts `incoming`, telling the application there `private`.
    pub(crate) fn accept(
        context: &Context,
        incoming: &Incoming,
        private: &[u8],
        shape: Shape,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let mut session = Self::new(context.clone(), shape, interrupt.clone(), incoming.peer.to_string())?;
        session.qp.accept(incoming.request, private, CONNECT_PATIENCE).map_err(|error| explain(error, &session.peer))?;
        Ok(session)
    }

    fn new(context: Context, shape: Shape, interrupt: Interrupt, peer: String) -> anyhow::Result<Self> {
        let error = |error| explain(error, &peer);
        let sq_depth = shape.sends + shape.requests;
        let cq = context.create_cq(sq_depth + shape.receives).map_err(error)?;
        let options = QpOptions { sq_depth, rq_depth: shape.receives, recovery: shape.recovery, priority: shape.priority };
        let qp = context.create_qp(&cq, &cq, &options).map_err(error)?;
        let len = usize::try_from(u64::from(shape.slot) * u64::from(shape.receives + shape.sends))?;
        let mailbox = context.register(len, Access { local_write: true, ..Access::default() }).map_err(error)?;
        let free = (u64::from(shape.receives)..u64::from(shape.receives + shape.sends)).collect();
        let (completions, pending) = (Vec::with_capacity(BATCH), VecDeque::new());
        let mut session =
            Self { qp, cq, mailbox, context, owns_events: false, shape, free, completions, pending, ended: None, interrupt, peer };
        for slot in 0..u64::from(shape.receives) {
            session.discard(slot)?;
        }
        Ok(session)
    }

    /// From now on nobody else reads this application's events, so that the connection's end can be explained by them.
    pub(crate) const fn own_events(&mut self) {
        self.owns_events = true;
    }

    /// Others read this application's events as well.
    pub(crate) const fn share_events(&mut self) {
        self.owns_events = false;
    }

    pub(crate) fn num(&self) -> QpNum {
        self.qp.num()
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Sends a message, waiting for a slot if all are on their way.
    pub(crate) fn send(&mut self, message: &[u8]) -> anyhow::Result<()> {
        let slot = self.wait(|session| session.free.pop())?;
        let len = u32::try_from(message.len()).ok().filter(|len| *len <= self.shape.slot).context("the message is longer than a slot")?;
        self.mailbox.copy_in(self.offset(slot), message)?;
        self.qp.send(slot, &[self.mailbox.sge(self.offset(slot), len)?], None).map_err(failure::not_posted)
    }

    /// Waits until no message is on its way any more.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        let all = usize::try_from(self.shape.sends)?;
        self.wait(|session| (session.free.len() == all).then_some(()))
    }

    /// Posts a request of any kind; [`Arrival::Done`] with `name` follows.
    pub(crate) fn request(&mut self, name: u64, op: SendOp, local: Data) -> anyhow::Result<()> {
        self.qp.post_send(&SendWork::new(OWN_REQUESTS + name, op, local)).map_err(failure::not_posted)
    }

    /// Tells the peer a number, without memory; [`Arrival::Done`] with `name` follows.
    pub(crate) fn tell(&mut self, name: u64, number: u32) -> anyhow::Result<()> {
        self.qp.write(OWN_REQUESTS + name, &[], 0, 0, Some(number)).map_err(failure::not_posted)
    }

    /// Writes `piece` to the peer's memory; [`Arrival::Done`] with `name` follows.
    pub(crate) fn write(&mut self, name: u64, piece: Sge, target: (u64, u32), imm: Option<u32>) -> anyhow::Result<()> {
        self.qp.write(OWN_REQUESTS + name, &[piece], target.0, target.1, imm).map_err(failure::not_posted)
    }

    /// The next arrival. Fails if nothing comes within [`STALL`].
    pub(crate) fn next(&mut self) -> anyhow::Result<Arrival> {
        self.wait(|session| session.pending.pop_front())
    }

    /// The next arrival within `limit`.
    pub(crate) fn next_within(&mut self, limit: Duration) -> anyhow::Result<Option<Arrival>> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.pending.is_empty() {
                self.pump(left.min(SLICE))?;
            }
            if !self.pending.is_empty() || left.is_zero() {
                return Ok(self.pending.pop_front());
            }
        }
    }

    /// The message in `slot`, which is free for another one afterwards.
    pub(crate) fn take(&mut self, slot: u64, len: u32) -> anyhow::Result<Vec<u8>> {
        let mut message = vec![0; usize::try_from(len)?];
        self.mailbox.copy_out(self.offset(slot), &mut message)?;
        self.discard(slot)?;
        Ok(message)
    }

    /// Frees `slot` for another message.
    pub(crate) fn discard(&mut self, slot: u64) -> anyhow::Result<()> {
        self.qp.recv(slot, &[self.mailbox.sge(self.offset(slot), self.shape.slot)?]).map_err(failure::not_posted)
    }

    const fn offset(&self, slot: u64) -> u64 {
        slot * self.shape.slot as u64
    }

    /// Waits until `take` finds what it looks for.
    fn wait<T>(&mut self, mut take: impl FnMut(&mut Self) -> Option<T>) -> anyhow::Result<T> {
        let deadline = Instant::now() + STALL;
        loop {
            if let Some(found) = take(self) {
                return Ok(found);
            }
            anyhow::ensure!(Instant::now() < deadline, "{}: nothing happened for {} s; giving up", self.peer, STALL.as_secs());
            self.pump(SLICE)?;
        }
    }

    /// Takes what is in the completion queue, waiting for something up to `limit`.
    fn pump(&mut self, limit: Duration) -> anyhow::Result<()> {
        self.interrupt.check()?;
        if let Some(status) = self.ended {
            return Err(self.explain_end(status));
        }
        let mut completions = std::mem::take(&mut self.completions);
        let polled = self.cq.wait(limit).and_then(|_| self.cq.poll(&mut completions, BATCH)).map_err(|error| explain(error, &self.peer));
        let outcome = polled.and_then(|_| completions.iter().try_for_each(|completion| self.handle_completion(completion)));
        completions.clear();
        self.completions = completions;
        outcome
    }

    fn handle_completion(&mut self, completion: &Completion) -> anyhow::Result<()> {
        if completion.status != Status::Success {
            self.ended.get_or_insert(completion.status);
            return Ok(());
        }
        let len = completion.byte_len;
        match completion.op {
            CompletionOp::Recv => self.pending.push_back(Arrival::Message { slot: completion.wr_id, len }),
            CompletionOp::RecvWriteImm => {
                self.discard(completion.wr_id)?;
                self.pending.push_back(Arrival::Written { imm: completion.imm.unwrap_or(0), len });
            }
            _ => match completion.wr_id.checked_sub(OWN_REQUESTS) {
                Some(name) => self.pending.push_back(Arrival::Done(name)),
                None => self.free.push(completion.wr_id),
            },
        }
        Ok(())
    }

    /// Why the connection ended, given the status of the first request that it took down.
    fn explain_end(&self, status: Status) -> anyhow::Error {
        let reason = if self.owns_events { failure::reason(&self.context, self.num()) } else { Some(status) };
        failure::ended(&self.peer, reason)
    }
}
