//! A connection in a simulated world, with the application at each end and all that is known about its messages.
//!
//! Everything that will ever be sent is planned beforehand, and every message has a place of its own in the sender's and
//! in the receiver's memory. So the application at either end can check each completion against the plan.

use std::collections::VecDeque;

use weft_proto::transport::work::MAX_INLINE;
use weft_proto::transport::{
    AppId, AtomicOp, Completion, CompletionOp, Data, Inline, Keys, MemId, QpNum, RecvWork, SendOp, SendWork, SgList, Sge, Status,
};
use weft_proto::{Instant, Rng};

use crate::memory::{Blocks, fill_pattern, find_difference};
use crate::scenario::{Scenario, one_of};

/// Where applications see their blocks: not at zero, so that addresses and offsets are told apart.
pub const BASE: u64 = 0x7000_0000_0000;
/// Untouched bytes between any two places.
const GAP: u64 = 16;

/// What is wrong with a request on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// A key that the peer never gave.
    RemoteKey,
    /// The peer's receive is too short.
    ShortReceive,
    /// A key that the sender does not have.
    LocalKey,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Deliver into a receive.
    Send,
    /// Write to the place that the message has at the peer.
    Write,
    /// Read from there.
    Read,
    /// Add 1 to the eight bytes there.
    Add,
    /// Deliver into a receive, and make a key of the peer's void.
    SendInvalidate,
    /// Make a key of its own void.
    LocalInvalidate,
}

/// A message of the plan.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// What its bytes are made of.
    pub id: u64,
    /// Length in bytes.
    pub len: u64,
    /// What is done with them.
    pub kind: Kind,
    /// It waits for the READs before it.
    pub fence: bool,
    /// Its bytes travel in the request.
    pub inline: bool,
    /// Immediate data.
    pub imm: Option<u32>,
    /// The sender asks for a completion.
    pub signaled: bool,
    /// The sender asks for a solicited event.
    pub solicited: bool,
    /// The key that it makes void.
    pub victim: u32,
    /// What is wrong with it.
    pub fault: Fault,
    /// Where it lies in the sender's block.
    pub source: u64,
    /// Where it goes in the receiver's block.
    pub target: u64,
}

impl Message {
    /// True if it takes up a receive.
    pub const fn consumes_receive(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::SendInvalidate) || self.imm.is_some()
    }

    /// True if bytes come back to where the message lies at its sender.
    pub const fn comes_back(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Add)
    }

    const fn source_range(&self) -> std::ops::Range<usize> {
        range(self.source, self.len)
    }

    /// Where it goes.
    pub const fn target_range(&self) -> std::ops::Range<usize> {
        range(self.target, self.len)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "simulated blocks are a few megabytes")]
const fn range(start: u64, len: u64) -> std::ops::Range<usize> {
    start as usize..(start + len) as usize
}

/// How far one end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing has happened.
    New,
    /// It has a queue pair and waits for the connection.
    Connecting,
    /// It may send.
    Up,
    /// Its queue pair has failed or was closed; it still exists.
    Down,
    /// Its queue pair was destroyed, or its application or host is gone.
    Gone,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Side {
    /// Its host.
    pub host: usize,
    /// Its application.
    pub app: AppId,
    /// Its queue pair.
    pub qp: Option<QpNum>,
    /// How far it is.
    pub phase: Phase,
    /// Where its messages come from.
    pub outbox: Option<(MemId, Keys)>,
    /// Where the peer's messages go.
    pub inbox: Option<(MemId, Keys)>,
    /// What it will send.
    pub plan: Vec<Message>,
    /// Requests posted.
    pub posted: usize,
    /// Positions in the plan of requests posted and not known to be done.
    pub pending: VecDeque<usize>,
    /// Requests known to have succeeded.
    pub succeeded: usize,
    /// Receives posted, and receives completed in whatever way.
    pub receives_posted: usize,
    /// Receives completed.
    pub receives_done: usize,
    /// Of these, with a message in them.
    pub received: usize,
    /// A request or a receive failed; whatever follows is flushed.
    pub send_failed: bool,
    /// A failure with a cause has been told.
    pub send_blamed: bool,
    /// As for sends.
    pub receive_failed: bool,
    /// When the application does something next; `None` once it has nothing left to do.
    pub next_action: Option<Instant>,
    /// It has asked for a drain and waits for its end.
    pub draining: bool,
    /// Depth of its queues.
    pub depth: [u32; 2],
    /// The completions went away together with application or host.
    pub forsaken: bool,
}

/// A connection.
#[derive(Debug)]
pub struct Flow {
    /// Both ends; the first one connects.
    pub sides: [Side; 2],
    /// Something was done to it, or to what it depends on, that may make it fail.
    pub disturbed: bool,
    /// Made when all faults are over, so it must succeed in any case.
    pub proof: bool,
}

const SEND_BIT: u64 = 1 << 20;

impl Side {
    fn new(host: usize, app: AppId, plan: Vec<Message>, start: Instant) -> Self {
        Self {
            host,
            app,
            qp: None,
            phase: Phase::New,
            outbox: None,
            inbox: None,
            plan,
            posted: 0,
            pending: VecDeque::new(),
            succeeded: 0,
            receives_posted: 0,
            receives_done: 0,
            received: 0,
            send_failed: false,
            send_blamed: false,
            receive_failed: false,
            next_action: Some(start),
            draining: false,
            depth: [64; 2],
            forsaken: false,
        }
    }

    /// Bytes that the messages take at either end.
    pub fn memory_len(&self) -> usize {
        self.plan.last().map_or(GAP, |message| message.source + message.len + GAP).try_into().unwrap_or(0)
    }

    /// Puts the bytes of all messages in place that it sends.
    pub fn fill_outbox(&self, memory: &mut Blocks) {
        let Some((mem, _)) = self.outbox else { return };
        for message in self.plan.iter().filter(|message| !message.comes_back()) {
            fill_pattern(message.id, &mut memory.bytes_mut(mem)[message.source_range()]);
        }
    }

    /// Puts the bytes in place that `plan`, the peer's, reads or changes here.
    pub fn fill_inbox(&self, plan: &[Message], memory: &mut Blocks) {
        let Some((mem, _)) = self.inbox else { return };
        for message in plan.iter().filter(|message| message.comes_back()) {
            fill_pattern(message.id, &mut memory.bytes_mut(mem)[message.target_range()]);
        }
    }

    /// True if everything that it sends is known to have succeeded.
    pub fn all_sent(&self) -> bool {
        self.posted == self.plan.len() && self.pending.is_empty()
    }

    /// True if no work of it is outstanding any more, one way or another.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Down | Phase::Gone)
    }
}

impl Flow {
    /// A connection of applications on two hosts with its plans drawn.
    pub fn draw(number: usize, hosts: [usize; 2], scenario: &Scenario, rng: &mut Rng, start: Instant, proof: bool) -> Self {
        let mut side = |index: usize| {
            let id = (number as u64) << 32 | (index as u64) << 31;
            let app = AppId(u32::try_from(rng.below(2)).unwrap_or(0));
            let mut side = Side::new(hosts[index], app, draw_plan(id, scenario, rng, proof), start);
            if !proof {
                side.depth = [one_of(rng, &[1, 4, 64]), one_of(rng, &[1, 8, 64])];
            }
            side
        };
        let sides = [side(0), side(1)];
        let faulty = sides.iter().flat_map(|side| &side.plan).any(|message| message.fault != Fault::None);
        Self { sides, disturbed: faulty, proof }
    }

    /// The work request for message `index` of a side.
    pub fn send_work(&self, side: usize, index: usize) -> SendWork {
        let message = self.sides[side].plan[index];
        let lkey = self.sides[side].outbox.map_or(0, |(_, keys)| keys.lkey) ^ u32::from(message.fault == Fault::LocalKey);
        let rkey = self.sides[1 - side].inbox.map_or(0, |(_, keys)| keys.rkey) ^ u32::from(message.fault == Fault::RemoteKey);
        let remote_addr = BASE + message.target;
        let op = match message.kind {
            Kind::Send => SendOp::Send,
            Kind::SendInvalidate => SendOp::SendInvalidate { rkey: message.victim },
            Kind::LocalInvalidate => SendOp::LocalInvalidate { key: message.victim },
            Kind::Write => SendOp::Write { remote_addr, rkey },
            Kind::Read => SendOp::Read { remote_addr, rkey },
            Kind::Add => SendOp::Atomic { remote_addr, rkey, op: AtomicOp::FetchAdd { add: 1 } },
        };
        let list = Data::List(pieces(BASE + message.source, message.len, lkey, message.id));
        SendWork {
            imm: message.imm,
            signaled: message.signaled,
            solicited: message.solicited,
            fence: message.fence,
            ..SendWork::new(message.id | SEND_BIT, op, if message.inline { inline(&message) } else { list })
        }
    }

    /// The receive for the `index`-th message of the other side that takes one.
    pub fn recv_work(&self, side: usize, index: usize) -> Option<RecvWork> {
        let message = self.consuming(1 - side).nth(index)?;
        let lkey = self.sides[side].inbox.map_or(0, |(_, keys)| keys.lkey);
        let len = if message.fault == Fault::ShortReceive { message.len / 2 } else { message.len };
        // A WRITE with immediate has its own place; its receive needs no memory.
        let local = if message.kind == Kind::Write { SgList::EMPTY } else { pieces(BASE + message.target, len, lkey, !message.id) };
        Some(RecvWork { wr_id: self.recv_id(side, index), local })
    }

    const fn recv_id(&self, side: usize, index: usize) -> u64 {
        (side as u64) << 40 | index as u64
    }

    /// The messages of a side that take a receive.
    pub fn consuming(&self, side: usize) -> impl Iterator<Item = &Message> {
        self.sides[side].plan.iter().filter(|message| message.consumes_receive())
    }

    /// True if both ends have done all that they ever will: all messages through, or both closed.
    pub fn is_settled(&self) -> bool {
        self.is_complete() || self.sides.iter().all(Side::is_over) || self.sides[0].is_over() && self.sides[1].phase == Phase::New
    }

    /// True if all messages went through both ways.
    pub fn is_complete(&self) -> bool {
        (0..2).all(|side| self.sides[side].all_sent() && self.sides[side].received == self.consuming(1 - side).count())
    }

    /// Checks a completion of one end against the plan.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&mut self, side: usize, completion: &Completion, memories: [&mut Blocks; 2]) -> Result<(), String> {
        match (completion.op.is_receive(), completion.wr_id & SEND_BIT != 0) {
            (true, _) => self.check_receive(side, completion, memories),
            (false, true) => self.check_send(side, completion, memories),
            (false, false) => Err(String::from("a receive completed as a send")),
        }
    }

    fn check_send(&mut self, side: usize, completion: &Completion, mut memories: [&mut Blocks; 2]) -> Result<(), String> {
        loop {
            let index = self.sides[side].pending.pop_front().ok_or("a completion for no request")?;
            let message = self.sides[side].plan[index];
            if completion.wr_id == message.id | SEND_BIT {
                return self.end_send(side, &message, completion, &mut memories);
            }
            if message.signaled {
                return Err(format!("request {index} was skipped"));
            }
            // Not asked for a completion, and a later one has come: it succeeded.
            self.succeed(side, &message, &mut memories)?;
        }
    }

    fn end_send(&mut self, side: usize, message: &Message, completion: &Completion, memories: &mut [&mut Blocks; 2]) -> Result<(), String> {
        let op = match message.kind {
            Kind::Send | Kind::SendInvalidate => CompletionOp::Send,
            Kind::LocalInvalidate => CompletionOp::LocalInvalidate,
            Kind::Write => CompletionOp::Write,
            Kind::Read => CompletionOp::Read,
            Kind::Add => CompletionOp::Atomic,
        };
        ensure(completion.op == op && u64::from(completion.byte_len) == message.len, "wrong operation or length")?;
        if completion.status == Status::Success {
            ensure(!self.sides[side].send_failed, "success after a failure")?;
            ensure(message.signaled, "a successful request completed though it was not to")?;
            return self.succeed(side, message, memories);
        }
        self.sides[side].send_failed = true;
        if message.comes_back() {
            // The application may use the bytes for something else now.
            let place = self.sides[side].outbox;
            memories.get_mut(side).zip(place).into_iter().for_each(|(memory, (mem, _))| memory.seal(mem, message.source_range()));
        }
        if completion.status != Status::Flushed {
            let first = !std::mem::replace(&mut self.sides[side].send_blamed, true);
            ensure(first, "only one request is at fault, the others are flushed")?;
        }
        ensure(fault_explains(message.fault, completion.status) || self.disturbed, "a failure that nothing explains")
    }

    /// A request succeeded: its bytes are where they belong and stay there.
    fn succeed(&mut self, side: usize, message: &Message, memories: &mut [&mut Blocks; 2]) -> Result<(), String> {
        ensure(message.fault == Fault::None, "a faulty request succeeded")?;
        self.sides[side].succeeded += 1;
        let peer = &self.sides[1 - side];
        if message.consumes_receive() && !peer.forsaken {
            let before = self.consuming(side).take_while(|other| other.id != message.id).count();
            ensure(peer.received > before, "the sender knows of a success before the receiver does")?;
        }
        let (Some((outbox, _)), Some((inbox, _))) = (self.sides[side].outbox, peer.inbox) else { return Ok(()) };
        match message.kind {
            Kind::Write if !peer.forsaken => delivered(message, inbox, memories[1 - side]),
            Kind::Read => came_back(message, outbox, memories[side]),
            Kind::Add => {
                came_back(message, outbox, memories[side])?;
                if peer.forsaken { Ok(()) } else { added(message, inbox, memories[1 - side]) }
            }
            Kind::Send | Kind::SendInvalidate | Kind::LocalInvalidate | Kind::Write => Ok(()),
        }
    }

    fn check_receive(&mut self, side: usize, completion: &Completion, memories: [&mut Blocks; 2]) -> Result<(), String> {
        let index = self.sides[side].receives_done;
        ensure(completion.wr_id == self.recv_id(side, index), "receives complete in the order in which they were posted")?;
        self.sides[side].receives_done += 1;
        let message = *self.consuming(1 - side).nth(index).ok_or("more receives than posted")?;
        let Some((mem, _)) = self.sides[side].inbox else { return Err(String::from("a receive without memory")) };
        if completion.status != Status::Success {
            self.sides[side].receive_failed = true;
            // The application may use the bytes for something else now.
            if message.kind != Kind::Write {
                memories.into_iter().nth(side).into_iter().for_each(|memory| memory.seal(mem, message.target_range()));
            }
            return ensure(completion.status == Status::Flushed, "receives are flushed, not failed");
        }
        ensure(!self.sides[side].receive_failed, "a receive succeeded after one was flushed")?;
        let op = if message.kind == Kind::Write { CompletionOp::RecvWriteImm } else { CompletionOp::Recv };
        ensure(completion.op == op, "wrong operation")?;
        let told = (u64::from(completion.byte_len), completion.imm, completion.solicited);
        ensure(told == (message.len, message.imm, message.solicited), "wrong length, immediate or solicited flag")?;
        let victim = (message.kind == Kind::SendInvalidate).then_some(message.victim);
        ensure(completion.invalidated == victim, "wrong key made void")?;
        self.sides[side].received += 1;
        memories.into_iter().nth(side).map_or(Ok(()), |memory| delivered(&message, mem, memory))
    }

    /// The end of one side: what is still pending was not asked for a completion, so it succeeded.
    ///
    /// # Errors
    /// What is missing.
    pub fn check_end(&mut self, side: usize, mut memories: [&mut Blocks; 2]) -> Result<(), String> {
        if self.sides[side].forsaken {
            return Ok(());
        }
        let end = &mut self.sides[side];
        ensure(end.receives_done == end.receives_posted, "a receive without a completion")?;
        for index in std::mem::take(&mut end.pending) {
            let message = self.sides[side].plan[index];
            ensure(!message.signaled, "a request without a completion")?;
            self.succeed(side, &message, &mut memories)?;
        }
        Ok(())
    }
}

fn delivered(message: &Message, mem: MemId, memory: &mut Blocks) -> Result<(), String> {
    if let Some(at) = find_difference(message.id, &memory.bytes(mem)[message.target_range()]) {
        return Err(format!("byte {at} of {message:?} is wrong"));
    }
    memory.seal(mem, message.target_range());
    Ok(())
}

/// What was read lies at its sender, and stays.
fn came_back(message: &Message, mem: MemId, memory: &mut Blocks) -> Result<(), String> {
    if let Some(at) = find_difference(message.id, &memory.bytes(mem)[message.source_range()]) {
        return Err(format!("byte {at} of what {message:?} brought back is wrong"));
    }
    memory.seal(mem, message.source_range());
    Ok(())
}

/// The number at the peer grew by exactly one, and nobody changes it again.
fn added(message: &Message, mem: MemId, memory: &mut Blocks) -> Result<(), String> {
    let mut before = [0; 8];
    fill_pattern(message.id, &mut before);
    let after = u64::from_ne_bytes(before).wrapping_add(1).to_ne_bytes();
    ensure(memory.bytes(mem)[message.target_range()] == after, "an atomic was not applied exactly once")?;
    memory.seal(mem, message.target_range());
    Ok(())
}

/// The bytes of a short message, to travel in its request.
fn inline(message: &Message) -> Data {
    let mut bytes = [0; MAX_INLINE];
    let len = usize::try_from(message.len).unwrap_or(0).min(MAX_INLINE);
    fill_pattern(message.id, &mut bytes[..len]);
    Inline::new(&bytes[..len]).map_or(Data::EMPTY, Data::Inline)
}

fn ensure(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(String::from(otherwise)) }
}

const fn fault_explains(fault: Fault, status: Status) -> bool {
    matches!(
        (fault, status),
        (Fault::RemoteKey, Status::RemoteAccess)
            | (Fault::ShortReceive, Status::RemoteInvalidRequest)
            | (Fault::LocalKey, Status::LocalProtection)
    )
}

/// `len` bytes at `addr` in up to three pieces.
fn pieces(addr: u64, len: u64, lkey: u32, variety: u64) -> SgList {
    let cuts = [0, len * (variety % 5) / 7, len * (variety % 5 + variety % 3) / 7, len];
    let entries: Vec<Sge> = cuts
        .windows(2)
        .map(|cut| Sge { addr: addr + cut[0], len: u32::try_from(cut[1] - cut[0]).unwrap_or(0), lkey })
        .filter(|sge| sge.len > 0 || len == 0)
        .collect();
    SgList::new(&entries).unwrap_or(SgList::EMPTY)
}

fn draw_plan(base: u64, scenario: &Scenario, rng: &mut Rng, proof: bool) -> Vec<Message> {
    let mut at = GAP;
    let count = rng.below(scenario.messages_max + 1) + u64::from(proof);
    let mut plan = Vec::new();
    for index in 0..count {
        let mut message = draw_message(base | index, scenario, rng);
        // Only the success of a later request tells that one without completion succeeded.
        message.signaled |= index + 1 == count;
        message.fault = if proof { Fault::None } else { message.fault };
        (message.source, message.target) = (at, at);
        // Atomics need an address that is a multiple of eight.
        at = (at + message.len + GAP).next_multiple_of(8);
        plan.push(message);
    }
    plan
}

fn draw_message(id: u64, scenario: &Scenario, rng: &mut Rng) -> Message {
    let rare = one_of(rng, &[Kind::Send, Kind::Write, Kind::SendInvalidate, Kind::LocalInvalidate]);
    let kind = one_of(rng, &[Kind::Send, Kind::Send, Kind::Write, Kind::Write, Kind::Read, Kind::Add, rare]);
    let len = match (kind, rng.below(4)) {
        (Kind::Add, _) => 8,
        (Kind::LocalInvalidate, _) => 0,
        (_, 0) => 0,
        (_, 1) => rng.below(64),
        _ => rng.below(scenario.message_max + 1),
    };
    let fault = draw_fault(kind, len, scenario, rng);
    let message = Message {
        id,
        len,
        kind,
        fence: rng.below(8) == 0,
        inline: false,
        imm: (rng.below(3) == 0).then(|| rng.next_u32()),
        signaled: rng.below(4) != 0,
        solicited: matches!(kind, Kind::Send | Kind::SendInvalidate) && rng.below(4) == 0,
        victim: 0,
        fault,
        source: 0,
        target: 0,
    };
    let imm = message.imm.filter(|_| matches!(kind, Kind::Send | Kind::Write));
    if message.comes_back() || kind == Kind::LocalInvalidate {
        return Message { imm, ..message };
    }
    Message { imm, inline: len <= MAX_INLINE as u64 && fault != Fault::LocalKey && rng.below(2) == 0, ..message }
}

fn draw_fault(kind: Kind, len: u64, scenario: &Scenario, rng: &mut Rng) -> Fault {
    if scenario.faulty_one_in == 0 || rng.below(scenario.faulty_one_in) != 0 || len <= 1 {
        return Fault::None;
    }
    match (kind, rng.below(2)) {
        (_, 0) => Fault::LocalKey,
        (Kind::Send | Kind::SendInvalidate, _) => Fault::ShortReceive,
        _ => Fault::RemoteKey,
    }
}
