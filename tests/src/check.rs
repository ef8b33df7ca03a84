//! What must hold in a world, looked at after every step, and how a seed is run from beginning to end.

use weft_proto::switch::VoqStatus;
use weft_proto::transport::congestion::Algorithm;
use weft_proto::transport::{BdpCap, Event, Status};
use weft_proto::{DropReason, Duration, Instant};

use crate::flow::{Phase, Side};
use crate::world::{Summary, World, port_of};

/// Virtual time within which everything comes to its end once faults are over: the longest chain of time-outs (8 in a
/// row, the last ones 64 times the first) of a queue pair that had measured a round trip of several milliseconds.
const LIVENESS: Duration = Duration::from_secs(20);

/// Reasons that only damage on the wire explains.
const DAMAGE: [DropReason; 7] = [
    DropReason::Truncated,
    DropReason::ForeignMagic,
    DropReason::UnsupportedVersion,
    DropReason::BadLength,
    DropReason::BadIcrc,
    DropReason::UnknownOpcode,
    DropReason::BadField,
];

impl World {
    /// Runs the world of a seed: safety while faults last, then liveness, then a clean end.
    ///
    /// # Errors
    /// Which promise was broken, and when.
    pub fn run(&mut self) -> Result<Summary, String> {
        self.run_phases().map_err(|broken| format!("at {:?}: {broken}", self.now))?;
        for host in &self.hosts {
            let counters = host.endpoint.counters();
            self.summary.retransmissions += counters.retransmitted();
            self.summary.stopped = self.summary.stopped + Duration::from_nanos(counters.stop_limited_nanos);
        }
        Ok(self.summary)
    }

    fn run_phases(&mut self) -> Result<(), String> {
        let calm = self.now + self.scenario.faults_end;
        while self.now < calm {
            self.step()?;
        }
        self.calm_down();
        self.run_until("every connection settles", |world| world.flows.iter().all(crate::flow::Flow::is_settled))?;
        self.count_outcomes();
        self.tear_down();
        self.run_until("everything is quiet", Self::is_quiet)?;
        self.check_quiet()
    }

    fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        let end = self.now + LIVENESS;
        while !done(self) {
            if self.now > end {
                return Err(format!("not within {LIVENESS}: {what}; {}", self.unsettled()));
            }
            self.step()?;
        }
        Ok(())
    }

    fn unsettled(&self) -> String {
        let flows = self.flows.iter().enumerate().filter(|(_, flow)| !flow.is_settled());
        let mut text = String::new();
        for (number, flow) in flows {
            let end = |side: &Side| {
                let view = side.qp.and_then(|qp| self.hosts[side.host].endpoint.view_of(qp));
                format!(
                    "host {} {:?} posted {}/{} pending {} receives {}/{} received {} {view:?}",
                    side.host,
                    side.phase,
                    side.posted,
                    side.plan.len(),
                    side.pending.len(),
                    side.receives_done,
                    side.receives_posted,
                    side.received
                )
            };
            text += &format!("\n  flow {number}: {}\n    {}", end(&flow.sides[0]), end(&flow.sides[1]));
        }
        text
    }

    fn count_outcomes(&mut self) {
        for flow in &self.flows {
            self.summary.complete += u64::from(flow.is_complete());
            self.summary.messages += flow.sides.iter().map(|side| side.succeeded as u64).sum::<u64>();
        }
    }

    fn tear_down(&mut self) {
        for flow in 0..self.flows.len() {
            (0..2).for_each(|side| self.destroy(flow, side));
        }
    }

    fn is_quiet(&self) -> bool {
        self.pool.in_use() == 0 && self.ending.is_empty() && self.hosts.iter().all(|host| host.endpoint.is_quiet())
    }

    fn check_quiet(&self) -> Result<(), String> {
        for (number, host) in self.hosts.iter().enumerate() {
            if host.endpoint.qp_count() != 0 {
                return Err(format!("host {number} still has {} queue pairs", host.endpoint.qp_count()));
            }
        }
        if self.switch.totals().queued != 0 {
            return Err(String::from("the switch counts frames that no buffer holds"));
        }
        self.check_damage()
    }

    fn check_damage(&self) -> Result<(), String> {
        let damaged: u64 = self.hosts.iter().map(|host| DAMAGE.iter().map(|&reason| host.endpoint.drops().of(reason)).sum::<u64>()).sum();
        let corrupted: u64 = (0..self.hosts.len())
            .map(|host| self.switch.port_counters(port_of(host)))
            .map(|counters| counters.ingress_impairment.corrupted + counters.egress_impairment.corrupted)
            .sum();
        // A frame damaged before it was copied by flooding or doubling is found at each host that gets a copy.
        if damaged > 0 && corrupted == 0 {
            return Err(format!("{damaged} frames were damaged, though the links damage none"));
        }
        Ok(())
    }

    /// Takes completions and news out of the endpoints and holds them against the plans.
    pub(crate) fn collect(&mut self) -> Result<(), String> {
        self.excuse();
        for host in 0..self.hosts.len() {
            while let Some((app, _, completion)) = self.hosts[host].endpoint.poll_completion() {
                let owner = self.owners.get(&(host, completion.qp)).copied();
                let (flow, side) = owner.ok_or_else(|| format!("a completion of an unknown queue pair: {completion:?}"))?;
                let flow_state = &mut self.flows[flow];
                if flow_state.sides[side].app != app {
                    return Err(format!("application {app:?} got a completion of another"));
                }
                self.summary.failures += u64::from(completion.status != Status::Success);
                let ends = [flow_state.sides[0].host, flow_state.sides[1].host];
                let memories = Self::memories(&mut self.hosts, ends);
                let checked = flow_state.check(side, &completion, memories);
                checked.map_err(|wrong| format!("flow {flow} side {side}: {wrong}: {completion:?}"))?;
            }
            while let Some((_, event)) = self.hosts[host].endpoint.poll_event() {
                self.handle_event(host, &event)?;
            }
        }
        self.check_ends()
    }

    fn check_ends(&mut self) -> Result<(), String> {
        for (flow, side) in std::mem::take(&mut self.ending) {
            let state = &mut self.flows[flow];
            let memories = Self::memories(&mut self.hosts, [state.sides[0].host, state.sides[1].host]);
            state.check_end(side, memories).map_err(|wrong| format!("flow {flow} side {side} at its end: {wrong}"))?;
        }
        Ok(())
    }

    /// Where peers may be given up, any connection made under faults may fail.
    fn excuse(&mut self) {
        if self.blackout || !self.scenario.forbids_giving_up() || self.scenario.endpoint.rnr_retry != 7 || self.is_overloaded() {
            self.flows.iter_mut().filter(|flow| !flow.proof).for_each(|flow| flow.disturbed = true);
        }
        // With neither a window nor congestion control, going back N only adds to an overload, faults or not.
        let unbounded = self.scenario.endpoint.bdp_cap == BdpCap::Off && self.scenario.endpoint.congestion.algorithm == Algorithm::None;
        if unbounded && self.is_overloaded() {
            self.flows.iter_mut().for_each(|flow| flow.disturbed = true);
        }
    }

    fn is_overloaded(&self) -> bool {
        self.switch.totals().dropped > 0
            && (0..self.hosts.len()).any(|host| {
                let counters = self.switch.port_counters(port_of(host));
                [DropReason::QueueFull, DropReason::ImpairedFull, DropReason::NoBuffer]
                    .iter()
                    .any(|&reason| counters.sent_drops.of(reason) + counters.received_drops.of(reason) > 0)
            })
    }

    /// A connection failed: was there a reason?
    pub(crate) fn check_failure(&self, flow: usize, side: usize, event: &Event) -> Result<(), String> {
        let state = &self.flows[flow];
        let closed_in_the_end = matches!(event, Event::Disconnected { .. }) && state.is_complete();
        if !state.disturbed && !closed_in_the_end {
            return Err(format!("flow {flow} side {side} failed for no reason: {event:?}"));
        }
        let Event::QpFailed { qp, status: Status::RetryExceeded } = event else { return Ok(()) };
        // A peer that no longer knows the queue pair says so, and nobody need wait for time-outs.
        if state.sides[1 - side].is_over() {
            return Ok(());
        }
        let view = self.hosts[state.sides[side].host].endpoint.view_of(*qp);
        let timeouts = view.map_or(u64::MAX, |view| view.counters.timeouts);
        let retries = u64::from(self.scenario.endpoint.retry_count);
        if timeouts < retries { Err(format!("flow {flow} side {side} was given up after {timeouts} time-outs")) } else { Ok(()) }
    }

    /// The invariants that do not belong to one completion.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let totals = self.switch.totals();
        if !totals.conserved() {
            return Err(format!("frames are not conserved: {totals:?}"));
        }
        self.check_buffers(totals.queued)?;
        self.check_windows()?;
        self.check_queues()?;
        self.hosts.iter_mut().find_map(|host| host.memory.take_violation()).map_or(Ok(()), Err)
    }

    /// Every buffer is in a queue of the switch or on a cable. Flooded frames share one.
    fn check_buffers(&self, queued: u64) -> Result<(), String> {
        let on_cables: usize = self.hosts.iter().map(|host| host.up.len() + host.down.len()).sum();
        let held = queued + on_cables as u64;
        let used = self.pool.in_use() as u64;
        if used > held || (used == 0) != (held == 0) {
            return Err(format!("{used} buffers are in use, but {held} frames exist"));
        }
        Ok(())
    }

    fn check_windows(&self) -> Result<(), String> {
        for view in self.hosts.iter().flat_map(|host| host.endpoint.views()) {
            let cap = if let BdpCap::Packets(packets) = self.scenario.endpoint.bdp_cap { packets } else { u32::MAX };
            if view.in_flight > view.cap || view.recovery.is_some() && view.cap > cap {
                return Err(format!("{} packets in flight, {} allowed, configured {cap}: {view:?}", view.in_flight, view.cap));
            }
        }
        Ok(())
    }

    fn check_queues(&self) -> Result<(), String> {
        let full = |voq: &VoqStatus| voq.counters.queued.bytes > self.scenario.voq_limit_bytes;
        let mut queues = (0..self.hosts.len()).flat_map(|host| self.switch.voqs_of(port_of(host)));
        queues.find(full).map_or(Ok(()), |voq| Err(format!("a queue is longer than it may be: {voq:?}")))
    }

    /// The virtual time.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Ends that are still connected.
    pub fn connected(&self) -> usize {
        self.flows.iter().flat_map(|flow| &flow.sides).filter(|side| side.phase == Phase::Up).count()
    }
}
