//! READs and atomics on the answering side: InfiniBand's responder resources.
//!
//! A request that arrives early waits here for its turn; it is executed when everything before it has arrived. An
//! atomic is executed exactly once and its result kept, so that it can be sent again as often as it gets lost. A READ
//! is read from memory for each packet, the key checked each time: memory that was deregistered meanwhile is refused.
//! The asker says with each request which response it awaits, so a place is free as soon as its next user may come.

use alloc::boxed::Box;
use alloc::vec;

use crate::time::Instant;
use crate::transport::congestion::Gate;
use crate::transport::inbound::Turns;
use crate::transport::irn::{Feedback, Pick, Sender, SenderConfig};
use crate::transport::region::{AccessRefused, Memory, Regions, Right};
use crate::transport::work::MAX_MESSAGE;
use crate::transport::{AppId, AtomicOp, Psn};
use crate::wire::headers::{NakCode, Position};
use crate::wire::packet::Body;

/// What the answering side is made with, when the first READ comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponsesConfig {
    pub(super) sender: SenderConfig,
    /// Number of the first response.
    pub(super) first: Psn,
    /// Payload bytes of a full packet.
    pub(super) payload: u32,
    /// Most READs and atomics taken at a time, at least 1.
    pub(super) limit: u32,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
enum Question {
    Read {
        length: u32,
    },
    /// `result`: what the memory held before, once executed.
    Atomic {
        op: AtomicOp,
        result: u64,
    },
}

/// A READ or atomic that was taken.
#[derive(Clone, Copy, Debug)]
struct Resource {
    question: Question,
    va: u64,
    rkey: u32,
    /// Number of its request packet.
    request: Psn,
    /// Its responses, once it is executed.
    first: Psn,
    packets_sent: u32,
}

/// The READs and atomics taken and not known to be answered.
#[derive(Debug)]
pub(super) struct Responses {
    pub(super) sender: Sender,
    payload: u32,
    limit: u32,
    resources: Box<[Option<Resource>]>,
    /// READs before this are answered, and the asker has said so.
    oldest: u32,
    /// READs before this have left in full at least once.
    cursor: u32,
    /// READs before this are executed.
    executed: u32,
    /// Number of the first response to the next READ executed.
    next_response: Psn,
}

/// A response about to be built.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponsePlan {
    pub(super) pick: Pick,
    pub(super) body: Body<'static>,
    pub(super) payload_len: usize,
    pub(super) ack_request: bool,
    read_sn: u32,
    va: u64,
    rkey: u32,
}

impl Question {
    fn packets(self, payload: u32) -> u32 {
        match self {
            Self::Read { length } => length.div_ceil(payload).max(1),
            Self::Atomic { .. } => 1,
        }
    }

    /// Whether the asker may ask that.
    fn check(self, owner: AppId, va: u64, rkey: u32, regions: &Regions) -> Result<(), NakCode> {
        let (len, right) = match self {
            Self::Read { length } if length > MAX_MESSAGE => return Err(NakCode::InvalidRequest),
            // A read of nothing touches no memory, so it needs no key (InfiniBand vol. 1, 9.7.4.1.3).
            Self::Read { length: 0 } => return Ok(()),
            Self::Read { length } => (u64::from(length), Right::RemoteRead),
            Self::Atomic { .. } if !va.is_multiple_of(8) => return Err(NakCode::InvalidRequest),
            Self::Atomic { .. } => (8, Right::RemoteAtomic),
        };
        regions.check(owner, rkey, va, len, right).map(drop).map_err(|AccessRefused| NakCode::RemoteAccess)
    }
}

impl Responses {
    pub(super) fn new(config: &ResponsesConfig) -> Self {
        Self {
            sender: Sender::new(config.first, config.sender),
            payload: config.payload.max(1),
            limit: config.limit,
            resources: vec![None; config.limit.next_power_of_two() as usize].into_boxed_slice(),
            oldest: 0,
            cursor: 0,
            executed: 0,
            next_response: config.first,
        }
    }

    const fn slot(&self, read_sn: u32) -> usize {
        read_sn as usize & (self.resources.len() - 1)
    }

    fn resource(&self, read_sn: u32) -> Option<&Resource> {
        self.resources[self.slot(read_sn)].as_ref()
    }

    // ---- events

    /// A request arrived, in order or early. It waits for [`Self::execute`].
    pub(super) fn take(&mut self, now: Instant, request: Psn, body: &Body<'_>, owner: AppId, regions: &Regions) -> Result<(), NakCode> {
        let (read_sn, awaited, va, rkey, question) = match *body {
            Body::ReadRequest { read_sn, awaited, va, rkey, length } => (read_sn, awaited, va, rkey, Question::Read { length }),
            Body::Atomic { read_sn, awaited, va, rkey, op } => (read_sn, awaited, va, rkey, Question::Atomic { op, result: 0 }),
            _ => return Err(NakCode::InvalidRequest),
        };
        // What cannot be true, or is older than what is known, says nothing.
        let feedback = Feedback { cumulative: awaited, negative: false, trigger: None, bitmap: &[], rtt: None, echoed: None };
        let _ = self.on_ack(now, feedback);
        // The asker keeps to the number of READs agreed on, and numbers them in order.
        let waits_for = read_sn.wrapping_sub(self.executed);
        if waits_for >= self.limit || read_sn.wrapping_sub(self.oldest) >= self.limit {
            return Err(NakCode::InvalidRequest);
        }
        question.check(owner, va, rkey, regions)?;
        let slot = self.slot(read_sn);
        self.resources[slot] = Some(Resource { question, va, rkey, request, first: Psn::default(), packets_sent: 0 });
        Ok(())
    }

    /// True if this is the number of the next READ in order.
    pub(super) const fn is_next(&self, read_sn: u32) -> bool {
        read_sn == self.executed
    }

    /// True if a request waits for its turn.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting().is_some()
    }

    /// The next request to execute, if it has arrived.
    fn waiting(&self) -> Option<&Resource> {
        let has_room = self.executed.wrapping_sub(self.oldest) < self.limit;
        self.resource(self.executed).filter(|_| has_room)
    }

    /// Executes the next request; everything before it has arrived.
    fn execute(&mut self, owner: AppId, regions: &Regions, memory: &mut impl Memory) -> Result<(), NakCode> {
        let Some(&resource) = self.waiting() else { return Ok(()) };
        let question = execute_one(&resource, owner, regions, memory)?;
        let slot = self.slot(self.executed);
        self.resources[slot] = Some(Resource { question, first: self.next_response, ..resource });
        self.next_response = self.next_response.plus(question.packets(self.payload));
        self.executed = self.executed.wrapping_add(1);
        Ok(())
    }

    /// The asker acknowledged responses.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        feedback: Feedback<'_>,
    ) -> Result<crate::transport::irn::Acked, crate::transport::irn::BadAck> {
        let acked = self.sender.on_ack(now, feedback)?;
        while self.oldest != self.cursor {
            let Some(resource) = self.resource(self.oldest) else { break };
            let end = resource.first.plus(resource.question.packets(self.payload));
            if self.sender.unacknowledged().is_before(end) {
                break;
            }
            let slot = self.slot(self.oldest);
            self.resources[slot] = None;
            self.oldest = self.oldest.wrapping_add(1);
        }
        Ok(acked)
    }

    // ---- outputs

    /// True if responses wait for their first transmission.
    pub(super) const fn has_unsent(&self) -> bool {
        self.cursor != self.executed
    }

    /// Decides what to send now, and how it looks. `outstanding`: packets on the path, requests included.
    pub(super) fn plan(&mut self, now: Instant, gate: &mut Gate, outstanding: u32) -> Option<ResponsePlan> {
        let has_new = self.has_unsent() && gate.permits(now, outstanding);
        let pick = self.sender.pick(now, has_new)?;
        if !gate.permits_pick(now, pick) {
            return None;
        }
        let read_sn = match pick {
            Pick::New(_) => self.cursor,
            Pick::Again { psn, .. } => self.sender.work_of(psn),
        };
        let resource = self.resource(read_sn)?;
        let index = match pick {
            Pick::New(_) => resource.packets_sent,
            Pick::Again { psn, .. } => psn.distance_from(resource.first)?,
        };
        let packets = resource.question.packets(self.payload);
        let closing = self.sender.in_flight() + 1 >= self.sender.cap() || gate.closes(outstanding);
        Some(ResponsePlan {
            pick,
            body: resource.body(read_sn, index, packets, self.payload),
            payload_len: resource.payload_len(index, self.payload),
            ack_request: closing || matches!(pick, Pick::Again { .. }),
            read_sn,
            va: resource.va.wrapping_add(u64::from(index) * u64::from(self.payload)),
            rkey: resource.rkey,
        })
    }

    /// The planned packet is built: state moves on only now.
    pub(super) fn commit(&mut self, now: Instant, plan: &ResponsePlan) {
        self.sender.on_sent(now, plan.pick, plan.read_sn);
        let Pick::New(_) = plan.pick else { return };
        let (slot, payload) = (self.slot(plan.read_sn), self.payload);
        let Some(resource) = &mut self.resources[slot] else { return };
        resource.packets_sent += 1;
        if resource.packets_sent == resource.question.packets(payload) {
            self.cursor = self.cursor.wrapping_add(1);
        }
    }
}

/// READs and atomics having their turn.
pub(super) struct Execution<'a, M> {
    pub(super) responses: &'a mut Responses,
    pub(super) owner: AppId,
    pub(super) regions: &'a Regions,
    pub(super) memory: &'a mut M,
}

impl<M: Memory> Turns<NakCode> for Execution<'_, M> {
    fn next(&self) -> Option<Psn> {
        self.responses.waiting().map(|resource| resource.request)
    }

    fn run(&mut self) -> Result<(), NakCode> {
        self.responses.execute(self.owner, self.regions, self.memory)
    }
}

fn execute_one(resource: &Resource, owner: AppId, regions: &Regions, memory: &mut impl Memory) -> Result<Question, NakCode> {
    let Question::Atomic { op, .. } = resource.question else { return Ok(resource.question) };
    // The region may have gone since the request arrived early.
    let access = regions.check(owner, resource.rkey, resource.va, 8, Right::RemoteAtomic);
    let (mem, at) = access.map_err(|AccessRefused| NakCode::RemoteAccess)?;
    let result = memory.atomic(mem, at, op).map_err(|_| NakCode::RemoteOperational)?;
    Ok(Question::Atomic { op, result })
}

impl Resource {
    const fn body(&self, read_sn: u32, index: u32, packets: u32, payload: u32) -> Body<'static> {
        match self.question {
            Question::Read { .. } => {
                Body::ReadResponse { position: Position::of(index, packets), read_sn, offset: index.wrapping_mul(payload), payload: &[] }
            }
            Question::Atomic { result, .. } => Body::AtomicResponse { read_sn, original: result },
        }
    }

    fn payload_len(&self, index: u32, payload: u32) -> usize {
        match self.question {
            Question::Read { length } => length.saturating_sub(index.wrapping_mul(payload)).min(payload) as usize,
            Question::Atomic { .. } => 0,
        }
    }
}

impl ResponsePlan {
    /// Copies the packet's bytes from application memory, if the key still opens it.
    pub(super) fn fill(&self, owner: AppId, regions: &Regions, memory: &impl Memory, out: &mut [u8]) -> Result<(), AccessRefused> {
        if out.is_empty() {
            return Ok(());
        }
        let (mem, at) = regions.check(owner, self.rkey, self.va, out.len() as u64, Right::RemoteRead)?;
        memory.read(mem, at, out).map_err(|_| AccessRefused)
    }
}
