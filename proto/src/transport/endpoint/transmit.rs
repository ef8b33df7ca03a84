//! What the endpoint sends: connection messages first, then queue pairs in turn, each its answers before its requests.

use crate::stop::{CONTROL_PRIORITY, Obedience, Stage};
use crate::time::Instant;
use crate::transport::endpoint::{Endpoint, Transmit};
use crate::transport::irn::Pick;
use crate::transport::qp::{Failure, Outgoing, Permit};
use crate::transport::region::{AccessRefused, Memory};
use crate::transport::requester::Plan;
use crate::transport::responses::ResponsePlan;
use crate::transport::{EndpointConfig, Psn, Status};
use crate::wire::packet::{Base, Body, CONNECTION_QP, emit_with};
use crate::wire::{ConnectionMessage, Ethernet, MacAddr, VlanTag};

/// Frames that a queue pair may send in a row while others wait. Its state is fetched once for all of them, and its peer
/// acknowledges them together; 8 full frames keep the others waiting for 1 us at 100 Gbit/s.
const TURN: u32 = 8;

impl Endpoint {
    /// Builds the next frame into `out`, which has room for the MTU, an Ethernet header and a VLAN tag (MTU + 18 bytes).
    /// `None`: nothing to send now.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8], memory: &impl Memory) -> Option<Transmit> {
        self.poll_transmit_within(now, out, memory, None)
    }

    /// The same within what `stops` allows. Connection messages are built in any case: they are few, and whoever hands them
    /// to the wire asks once more.
    pub fn poll_transmit_within(
        &mut self,
        now: Instant,
        out: &mut [u8],
        memory: &impl Memory,
        stops: Option<&mut Obedience>,
    ) -> Option<Transmit> {
        let mut stops = stops.filter(|stops| !stops.is_idle());
        match &mut stops {
            Some(stops) => self.handle_released(now, stops),
            None if !self.parking.is_empty() => self.wake_everybody(now),
            None => {}
        }
        let message = self.poll_connection(out);
        if let (Some(sent), Some(stops)) = (&message, &mut stops) {
            book(now, sent, stops);
        }
        let sent = message.or_else(|| self.poll_queue_pairs(now, out, memory, stops));
        self.frames_sent += u64::from(sent.is_some());
        sent
    }

    /// True if [`Self::poll_transmit`] may have a frame.
    pub fn wants_transmit(&self) -> bool {
        self.connections.has_outgoing() || !self.ready.is_empty()
    }

    fn poll_connection(&mut self, out: &mut [u8]) -> Option<Transmit> {
        let (config, turn) = (&self.config, self.any_turn());
        let sent = self.connections.poll(config, |peer, message| emit_connection(config, turn, out, peer, message))?;
        self.connection_counters.messages_sent += 1;
        sent
    }

    fn poll_queue_pairs(
        &mut self,
        now: Instant,
        out: &mut [u8],
        memory: &impl Memory,
        mut stops: Option<&mut Obedience>,
    ) -> Option<Transmit> {
        while let Some(slot) = self.ready.pop() {
            self.slots[slot].ready = false;
            let permit = stops.as_deref().map_or(Permit::Everything, |stops| self.permit(now, slot, stops));
            let sent = self.poll_queue_pair(now, slot, out, memory, permit);
            if sent.is_some() {
                self.keep_turn(slot);
            } else {
                self.turn = 0;
                self.rearm(slot);
            }
            if let Some(stops) = &mut stops {
                sent.iter().for_each(|sent| book(now, sent, stops));
                self.end_turn(now, slot, sent.map(|sent| sent.priority), stops);
            }
            if sent.is_some() {
                return sent;
            }
        }
        None
    }

    /// A queue pair sent a frame: it goes on until its turn is over. Its deadline can wait for the end of the turn.
    fn keep_turn(&mut self, slot: usize) {
        self.turn += 1;
        let entry = &mut self.slots[slot];
        if let Some(qp) = entry.qp.as_ref().filter(|_| self.turn < TURN && !entry.ready) {
            entry.ready = true;
            return self.ready.push_front(slot, qp.priority);
        }
        self.turn = 0;
        self.touch(slot);
    }

    fn poll_queue_pair(&mut self, now: Instant, slot: usize, out: &mut [u8], memory: &impl Memory, permit: Permit) -> Option<Transmit> {
        self.run_local(now, slot);
        let qp = self.slots[slot].qp.as_deref_mut()?;
        let dst = qp.link()?.agreement.peer;
        let outgoing = qp.poll(now, &self.config, permit)?;
        let (class, priority) = (qp.priority / 2, outgoing.priority(qp.priority));
        let eth = ethernet(&self.config, dst, class, self.turn_of(&outgoing));
        let len = match outgoing {
            Outgoing::Answer(base, body) => emit_answer(out, &eth, &base, &body),
            Outgoing::Response(base, plan) => self.emit_response(now, slot, out, (&eth, &base), &plan, memory),
            Outgoing::Request(base, plan) => self.emit_request(now, slot, out, (&eth, &base), &plan, memory),
        };
        len.map(|len| Transmit { len, dst, priority })
    }

    /// Which path a packet takes: requests and responses one after the other by their number, what is sent again another one than
    /// at first, acknowledgements any.
    fn turn_of(&self, outgoing: &Outgoing) -> u32 {
        let (base, pick) = match outgoing {
            Outgoing::Answer(..) => return self.any_turn(),
            Outgoing::Response(base, plan) => (base, plan.pick),
            Outgoing::Request(base, plan) => (base, plan.pick),
        };
        match pick {
            Pick::New(_) => base.psn.value(),
            Pick::Again { .. } => base.psn.value() + self.config.paths.detour(self.any_turn()),
        }
    }

    /// Something that changes with every frame.
    fn any_turn(&self) -> u32 {
        u32::try_from(self.frames_sent & 0xffff).unwrap_or(0)
    }

    fn run_local(&mut self, now: Instant, slot: usize) {
        let Some(qp) = self.slots[slot].qp.as_deref_mut() else { return };
        if let Some(failure) = qp.run_local(&mut self.regions, &mut self.completions) {
            self.fail_qp(now, slot, failure);
        }
    }

    fn emit_request(
        &mut self,
        now: Instant,
        slot: usize,
        out: &mut [u8],
        (eth, base): (&Ethernet, &Base),
        plan: &Plan,
        memory: &impl Memory,
    ) -> Option<usize> {
        let qp = self.slots[slot].qp.as_deref_mut()?;
        let regions = &self.regions;
        match emit_with(out, eth, base, &plan.body, plan.payload_len, |room| plan.fill(qp.owner, regions, memory, room))? {
            Ok(len) => {
                qp.commit(now, plan);
                Some(len)
            }
            Err(AccessRefused) => {
                // The application deregistered memory that a posted request names.
                if plan.is_first() {
                    qp.refuse_request(plan.work);
                    self.touch(slot);
                } else {
                    self.fail_qp(now, slot, Failure::of_request(Status::LocalProtection, plan.work));
                }
                None
            }
        }
    }

    fn emit_response(
        &mut self,
        now: Instant,
        slot: usize,
        out: &mut [u8],
        (eth, base): (&Ethernet, &Base),
        plan: &ResponsePlan,
        memory: &impl Memory,
    ) -> Option<usize> {
        let qp = self.slots[slot].qp.as_deref_mut()?;
        let regions = &self.regions;
        match emit_with(out, eth, base, &plan.body, plan.payload_len, |room| plan.fill(qp.owner, regions, memory, room))? {
            Ok(len) => {
                qp.commit_response(now, plan);
                Some(len)
            }
            Err(AccessRefused) if plan.is_again() => {
                let plan = plan.without_bytes();
                let len = emit_answer(out, eth, base, &plan.body)?;
                qp.commit_response(now, &plan);
                Some(len)
            }
            Err(AccessRefused) => {
                // The application deregistered memory that the peer was reading.
                qp.refuse_response(&mut self.completions);
                self.tell_fault(slot);
                self.touch(slot);
                None
            }
        }
    }
}

/// `class`: the 802.1p priority.
fn ethernet(config: &EndpointConfig, dst: MacAddr, class: u8, turn: u32) -> Ethernet {
    let path = config.paths.at(turn);
    let tagged = config.priority.is_some() || class > 0;
    let vlan = path.or_else(|| tagged.then_some(0)).map(|id| VlanTag { priority: class, drop_eligible: false, id });
    Ethernet { dst, src: config.mac, vlan, ethertype: config.ethertype }
}

fn book(now: Instant, sent: &Transmit, stops: &mut Obedience) {
    stops.book(now, sent.dst, sent.priority, sent.len as u64, Stage::Build);
}

fn emit_answer(out: &mut [u8], eth: &Ethernet, base: &Base, body: &Body<'_>) -> Option<usize> {
    emit_with(out, eth, base, body, 0, |_| Ok::<(), AccessRefused>(()))?.ok()
}

fn emit_connection(config: &EndpointConfig, turn: u32, out: &mut [u8], peer: MacAddr, message: &ConnectionMessage<'_>) -> Option<Transmit> {
    let base = Base::new(0, CONNECTION_QP, Psn::default());
    let eth = ethernet(config, peer, config.priority.unwrap_or(0), turn);
    let len = emit_with(out, &eth, &base, &Body::Connection(*message), 0, |_| Ok::<(), AccessRefused>(()))?.ok()?;
    Some(Transmit { len, dst: peer, priority: CONTROL_PRIORITY })
}
