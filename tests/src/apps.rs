//! The applications of a world: they connect, post in fits and starts, sometimes too late, and close.

use weft_proto::transport::{Access, Event, MemId, PostError, QpInit, QpNum, RequestId};
use weft_proto::{Duration, transport::CqId};

use crate::flow::{BASE, Kind, Phase};
use crate::scenario::{Scenario, draw_recovery, span};
use crate::world::{World, service_of};

/// Rights on the memory that messages go to.
const INBOX: Access = Access { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };
/// Rights on the memory that messages come from, and to which what is read comes back.
const OUTBOX: Access = Access { local_write: true, remote_write: false, remote_read: false, remote_atomic: false };

impl World {
    /// Lets every application act whose time has come.
    pub(crate) fn act(&mut self) {
        for flow in 0..self.flows.len() {
            for side in 0..2 {
                if self.flows[flow].sides[side].next_action.is_some_and(|at| at <= self.now) {
                    self.act_once(flow, side);
                }
            }
        }
    }

    fn act_once(&mut self, flow: usize, side: usize) {
        let think = if self.calm { self.scenario.think.div(10) } else { self.scenario.think };
        // With everything posted there is nothing to be late with.
        let end = &self.flows[flow].sides[side];
        let idle = end.posted == end.plan.len() && end.receives_posted == self.flows[flow].consuming(1 - side).count();
        let pause = if idle { Duration::from_millis(1) } else { span(&mut self.rng, Duration::from_nanos(200), think) };
        self.flows[flow].sides[side].next_action = Some(self.now + pause);
        match (self.flows[flow].sides[side].phase, side) {
            (Phase::New, 0) => self.connect(flow),
            (Phase::New, _) | (Phase::Gone, _) => self.flows[flow].sides[side].next_action = None,
            (Phase::Connecting, _) => self.post_receives(flow, side),
            (Phase::Up, _) => self.work(flow, side),
            (Phase::Down, _) => self.bury(flow, side),
        }
    }

    fn work(&mut self, flow: usize, side: usize) {
        self.post_receives(flow, side);
        self.post_sends(flow, side);
        self.drain(flow, side);
        if side == 0 && self.flows[flow].is_complete() && self.pick(3) == 0 {
            self.disconnect(flow, side);
        }
    }

    /// Now and then the requests begun are to end before others begin.
    fn drain(&mut self, flow: usize, side: usize) {
        if self.pick(20) != 0 {
            return;
        }
        let end = &mut self.flows[flow].sides[side];
        if let (Some(qp), false) = (end.qp, end.draining) {
            end.draining = self.hosts[end.host].endpoint.drain(end.app, qp).is_ok();
        }
    }

    fn resume(&mut self, host: usize, qp: QpNum) -> Result<(), String> {
        let (flow, side) = *self.owners.get(&(host, qp)).ok_or("a drain of an unknown queue pair ended")?;
        let end = &mut self.flows[flow].sides[side];
        if !std::mem::take(&mut end.draining) {
            return Err(String::from("a drain that nobody asked for ended"));
        }
        // It may have failed since.
        let _ = self.hosts[host].endpoint.resume(end.app, qp);
        Ok(())
    }

    /// A failed queue pair still takes work, to flush it; in the end it is destroyed.
    fn bury(&mut self, flow: usize, side: usize) {
        if self.pick(2) == 0 {
            self.post_receives(flow, side);
            self.post_sends(flow, side);
        } else {
            self.destroy(flow, side);
        }
    }

    // ---- connecting

    fn connect(&mut self, flow: usize) {
        let Some(qp) = self.make_queue_pair(flow, 0) else { return };
        let [from, to] = [0, 1].map(|side| (self.flows[flow].sides[side].host, self.flows[flow].sides[side].app));
        let private = u32::try_from(flow).unwrap_or(0).to_be_bytes();
        let peer = Scenario::mac(to.0);
        let endpoint = &mut self.hosts[from.0].endpoint;
        endpoint.connect(self.now, from.1, qp, peer, service_of(to.1), &private).expect("room for a connection");
        self.provide_memory(flow);
        if self.flows[flow].proof {
            self.post_receives(flow, 0);
        }
    }

    fn make_queue_pair(&mut self, flow: usize, side: usize) -> Option<QpNum> {
        let recovery = (self.pick(2) == 0).then(|| draw_recovery(&mut self.rng));
        let priority = self.stops.priority();
        let end = &mut self.flows[flow].sides[side];
        let [sq_depth, rq_depth] = end.depth;
        let init = QpInit { send_cq: CqId(0), recv_cq: CqId(1), sq_depth, rq_depth, srq: None, recovery, priority };
        let qp = self.hosts[end.host].endpoint.create_qp(end.app, init).ok()?;
        end.qp = Some(qp);
        end.phase = Phase::Connecting;
        self.owners.insert((end.host, qp), (flow, side));
        Some(qp)
    }

    /// Both ends know each other's keys before they connect, as if they had exchanged them elsewhere.
    fn provide_memory(&mut self, flow: usize) {
        for side in 0..2 {
            let [outgoing, incoming] = [side, 1 - side].map(|side| self.flows[flow].sides[side].memory_len());
            let outbox = self.add_region(flow, side, outgoing, OUTBOX);
            let inbox = self.add_region(flow, side, incoming, INBOX);
            let end = &mut self.flows[flow].sides[side];
            (end.outbox, end.inbox) = (Some(outbox), Some(inbox));
            end.fill_outbox(&mut self.hosts[end.host].memory);
            let sides = &self.flows[flow].sides;
            sides[side].fill_inbox(&sides[1 - side].plan, &mut self.hosts[sides[side].host].memory);
            self.provide_victims(flow, side);
        }
    }

    /// Each key that will be made void is that of a region of its own.
    fn provide_victims(&mut self, flow: usize, side: usize) {
        for index in 0..self.flows[flow].sides[side].plan.len() {
            let owner = match self.flows[flow].sides[side].plan[index].kind {
                Kind::SendInvalidate => 1 - side,
                Kind::LocalInvalidate => side,
                _ => continue,
            };
            let (_, keys) = self.add_region(flow, owner, 8, INBOX);
            self.flows[flow].sides[side].plan[index].victim = keys.rkey;
        }
    }

    fn add_region(&mut self, flow: usize, side: usize, len: usize, access: Access) -> (MemId, weft_proto::transport::Keys) {
        let end = &self.flows[flow].sides[side];
        let host = &mut self.hosts[end.host];
        let mem = host.memory.add(len);
        (mem, host.endpoint.register(end.app, mem, BASE, len as u64, access).expect("room for a region"))
    }

    fn answer(&mut self, host: usize, request: RequestId, private: &[u8]) {
        let flow = private.try_into().map_or(0, u32::from_be_bytes) as usize;
        let app = self.flows[flow].sides[1].app;
        let refuse = self.flows[flow].sides[1].phase != Phase::New;
        let qp = if refuse { None } else { self.make_queue_pair(flow, 1) };
        let Some(qp) = qp else {
            self.hosts[host].endpoint.reject(app, request, b"").expect("an open request");
            return;
        };
        if self.flows[flow].proof || self.pick(2) == 0 {
            self.post_receives(flow, 1);
        }
        self.hosts[host].endpoint.accept(self.now, app, request, qp, b"").expect("an open request");
        self.flows[flow].sides[1].next_action = Some(self.now);
    }

    // ---- work

    fn post_receives(&mut self, flow: usize, side: usize) {
        let limit = if self.flows[flow].proof { usize::MAX } else { self.pick(4) };
        for _ in 0..limit {
            let end = &self.flows[flow].sides[side];
            let (host, app, Some(qp)) = (end.host, end.app, end.qp) else { return };
            let Some(work) = self.flows[flow].recv_work(side, end.receives_posted) else { return };
            match self.hosts[host].endpoint.post_recv(app, qp, work) {
                Ok(()) => self.flows[flow].sides[side].receives_posted += 1,
                Err(PostError::QueueFull) => return,
                Err(error) => panic!("a receive was refused: {error:?}"),
            }
        }
    }

    fn post_sends(&mut self, flow: usize, side: usize) {
        for _ in 0..1 + self.pick(6) {
            let end = &self.flows[flow].sides[side];
            let (host, app, Some(qp)) = (end.host, end.app, end.qp) else { return };
            let index = end.posted;
            if index == end.plan.len() {
                return;
            }
            let work = self.flows[flow].send_work(side, index);
            match self.hosts[host].endpoint.post_send(self.now, app, qp, work) {
                Ok(()) => {
                    self.flows[flow].sides[side].posted += 1;
                    self.flows[flow].sides[side].pending.push_back(index);
                }
                Err(PostError::QueueFull) => return,
                // It failed before it was connected.
                Err(PostError::WrongState) if self.flows[flow].sides[side].phase == Phase::Down => return,
                Err(error) => panic!("a request was refused: {error:?}"),
            }
        }
    }

    // ---- closing

    pub(crate) fn disconnect(&mut self, flow: usize, side: usize) {
        let end = &self.flows[flow].sides[side];
        let (host, app, Some(qp)) = (end.host, end.app, end.qp) else { return };
        // Refused if the peer was faster; then the news is on its way.
        if self.hosts[host].endpoint.disconnect(self.now, app, qp).is_ok() {
            self.go_down(flow, side);
        }
    }

    pub(crate) fn destroy(&mut self, flow: usize, side: usize) {
        let end = &mut self.flows[flow].sides[side];
        let (host, app, Some(qp)) = (end.host, end.app, end.qp) else { return };
        if end.phase == Phase::Gone {
            return;
        }
        end.phase = Phase::Gone;
        end.next_action = None;
        self.flows[flow].disturbed |= !self.flows[flow].is_complete();
        self.hosts[host].endpoint.destroy_qp(self.now, app, qp).expect("it exists");
        self.ending.push((flow, side));
        self.seal_inbox(flow, side);
    }

    /// A queue pair is closed: from now on nothing may reach the memory that the peer was given.
    pub(crate) fn go_down(&mut self, flow: usize, side: usize) {
        let end = &mut self.flows[flow].sides[side];
        if !end.is_over() {
            end.phase = Phase::Down;
            end.next_action = Some(self.now);
        }
        self.seal_inbox(flow, side);
    }

    fn seal_inbox(&mut self, flow: usize, side: usize) {
        let end = &self.flows[flow].sides[side];
        if let Some((mem, _)) = end.inbox {
            let memory = &mut self.hosts[end.host].memory;
            memory.seal(mem, 0..memory.bytes(mem).len());
        }
    }

    /// An endpoint has news for an application.
    pub(crate) fn handle_event(&mut self, host: usize, event: &Event) -> Result<(), String> {
        let qp = match event {
            Event::ConnectRequest { request, private, .. } => {
                self.answer(host, *request, private);
                return Ok(());
            }
            Event::Established { qp, .. } | Event::ConnectFailed { qp, .. } | Event::Disconnected { qp } | Event::QpFailed { qp, .. } => {
                *qp
            }
            Event::SendQueueFailed { qp, .. } => return self.give_up(host, *qp, event),
            Event::SendQueueDrained { qp } => return self.resume(host, *qp),
            Event::SrqLimit { .. } => {
                return Err(format!("nobody asked for {event:?}"));
            }
        };
        let Some(&(flow, side)) = self.owners.get(&(host, qp)) else { return Err(format!("news of an unknown queue pair: {event:?}")) };
        if let Event::Established { .. } = event {
            let end = &mut self.flows[flow].sides[side];
            if end.phase == Phase::Connecting {
                (end.phase, end.next_action) = (Phase::Up, Some(self.now));
            }
            return Ok(());
        }
        self.check_failure(flow, side, event)?;
        self.go_down(flow, side);
        Ok(())
    }

    /// A request could not be sent; this application does not go on without it.
    fn give_up(&mut self, host: usize, qp: QpNum, event: &Event) -> Result<(), String> {
        let Some(&(flow, side)) = self.owners.get(&(host, qp)) else { return Err(format!("news of an unknown queue pair: {event:?}")) };
        self.check_failure(flow, side, event)?;
        self.disconnect(flow, side);
        Ok(())
    }
}
