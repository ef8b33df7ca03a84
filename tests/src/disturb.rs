//! What goes wrong around the connections of a world: closing, restarting, unplugging, giving memory back.

use weft_proto::Instant;
use weft_proto::transport::AppId;

use crate::flow::{Flow, Phase};
use crate::scenario::{one_of, span};
use crate::world::{World, port_of};
use weft_proto::Duration;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disturbance {
    /// An application closes a connection.
    Disconnect,
    /// An application destroys a queue pair.
    Destroy,
    /// An application gives back the memory that it sends from, or receives in.
    Deregister,
    /// A host forgets everything.
    Restart,
    /// An application ends.
    Release,
    /// A cable is pulled out for some time.
    Unplug,
    /// And put in again.
    Plug(usize),
}

const KINDS: [Disturbance; 6] = [
    Disturbance::Disconnect,
    Disturbance::Destroy,
    Disturbance::Deregister,
    Disturbance::Restart,
    Disturbance::Release,
    Disturbance::Unplug,
];

impl World {
    pub(crate) fn plan_flows(&mut self) {
        for number in 0..self.scenario.flows {
            let from = if number == 0 { 0 } else { self.pick(self.scenario.hosts) };
            let to = (from + 1 + self.pick(self.scenario.hosts - 1)) % self.scenario.hosts;
            let half = self.scenario.faults_end.div(2);
            let start = if number == 0 { self.now } else { self.now + span(&mut self.rng, Duration::ZERO, half) };
            self.add_flow([from, to], start, false);
        }
    }

    /// Connections that must succeed because nothing is wrong any more: between all neighbours.
    pub(crate) fn plan_proof(&mut self) {
        for from in 0..self.scenario.hosts {
            self.add_flow([from, (from + 1) % self.scenario.hosts], self.now, true);
        }
    }

    fn add_flow(&mut self, hosts: [usize; 2], start: Instant, proof: bool) {
        let flow = Flow::draw(self.flows.len(), hosts, &self.scenario, &mut self.rng, start, proof);
        self.flows.push(flow);
        self.summary.flows += 1;
    }

    pub(crate) fn plan_disturbances(&mut self) {
        for _ in 0..self.scenario.disturbances {
            let at = self.now + span(&mut self.rng, Duration::from_micros(10), self.scenario.faults_end);
            self.disturbances.push((at, one_of(&mut self.rng, &KINDS)));
        }
    }

    /// A uniform number below `bound`.
    pub(crate) fn pick(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.below(bound as u64)).unwrap_or(0)
    }

    /// Lets happen what is due.
    pub(crate) fn disturb(&mut self) {
        while let Some(due) = self.disturbances.iter().position(|(at, _)| *at <= self.now) {
            let (_, kind) = self.disturbances.swap_remove(due);
            self.apply(kind);
        }
    }

    fn apply(&mut self, kind: Disturbance) {
        let (flow, side, host) = (self.pick(self.flows.len()), self.pick(2), self.pick(self.hosts.len()));
        match kind {
            Disturbance::Disconnect => self.close(flow, side),
            Disturbance::Destroy => self.destroy(flow, side),
            Disturbance::Deregister => self.deregister(flow, side),
            Disturbance::Restart => self.restart(host),
            Disturbance::Release => self.release(host, side),
            Disturbance::Unplug => self.unplug(host),
            Disturbance::Plug(host) => self.switch.set_port_up(&mut self.pool, port_of(host), true),
        }
    }

    fn close(&mut self, flow: usize, side: usize) {
        if matches!(self.flows[flow].sides[side].phase, Phase::Connecting | Phase::Up) {
            self.flows[flow].disturbed = true;
            self.disconnect(flow, side);
        }
    }

    fn deregister(&mut self, flow: usize, side: usize) {
        let inbox = self.pick(2) == 0;
        let end = &self.flows[flow].sides[side];
        let (host, app) = (end.host, end.app);
        let Some((mem, keys)) = (if inbox { end.inbox } else { end.outbox }) else { return };
        if end.phase == Phase::Gone || self.hosts[host].endpoint.deregister(app, keys.lkey).is_err() {
            return;
        }
        self.flows[flow].disturbed = true;
        self.hosts[host].memory.give_back(mem);
    }

    fn restart(&mut self, host: usize) {
        self.forsake(host, None);
        self.replace_endpoint(host);
    }

    fn release(&mut self, host: usize, app: usize) {
        let app = AppId(u32::try_from(app).unwrap_or(0));
        self.forsake(host, Some(app));
        for mem in self.hosts[host].endpoint.release(self.now, app) {
            self.hosts[host].memory.give_back(mem);
        }
        self.listen(host);
    }

    /// All that an application, or all applications of a host, had is gone, completions included.
    fn forsake(&mut self, host: usize, app: Option<AppId>) {
        for flow in &mut self.flows {
            let started = flow.sides[0].phase != Phase::New;
            for side in flow.sides.iter_mut().filter(|side| started && side.host == host && app.is_none_or(|app| side.app == app)) {
                (side.phase, side.forsaken, side.next_action) = (Phase::Gone, true, None);
                flow.disturbed = true;
            }
        }
    }

    fn unplug(&mut self, host: usize) {
        self.blackout = true;
        self.switch.set_port_up(&mut self.pool, port_of(host), false);
        let back = self.now + span(&mut self.rng, Duration::from_micros(50), Duration::from_millis(3));
        self.disturbances.push((back, Disturbance::Plug(host)));
    }
}
