//! One port of the switch: its settings, its scheduler and pacer, its impaired link and its counters.

use alloc::vec;

use crate::drops::DropReason;
use crate::pace::Pacer;
use crate::pool::{FrameRef, Pool};
use crate::rng::Rng;
use crate::switch::config::PortConfig;
use crate::switch::counters::{PortCounters, Totals};
use crate::switch::drr::Drr;
use crate::switch::flow::{Flow, FlowControl};
use crate::switch::impair::Impairer;
use crate::switch::stops::Holding;
use crate::time::{Instant, earliest};
use crate::wire::eth::{ETH_HEADER, Ethernet, VLAN_HEADER};

/// A port and everything that belongs to it alone.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) config: PortConfig,
    pub(super) up: bool,
    pub(super) ingress: Impairer,
    pub(super) egress: Impairer,
    pub(super) drr: Drr,
    pub(super) pacer: Pacer,
    /// Frames whose receivers asked us to stop.
    pub(super) held: Holding,
    pub(super) flow: Flow,
    /// Without those of the impairments, which count for themselves.
    pub(super) counters: PortCounters,
}

impl Port {
    /// A port with `queues` queues towards it and delay lines for `frames` frames.
    pub(super) fn new(config: &PortConfig, queues: usize, frames: usize, rng: &mut Rng) -> Self {
        let (ingress, egress) = generators(config, rng);
        Self {
            up: true,
            ingress: Impairer::new(config.impair_ingress, ingress, frames),
            egress: Impairer::new(config.impair_egress, egress, frames),
            drr: Drr::new(u32::try_from(queues).expect("2^16 ports of 8 classes fit"), vec![1]),
            pacer: Pacer::new(config.rate, Instant::ZERO),
            held: Holding::default(),
            flow: Flow::new(config.flow_control),
            counters: PortCounters::default(),
            config: config.clone(),
        }
    }

    /// Takes over new settings. The link starts afresh from its seed.
    pub(super) fn reconfigure(&mut self, now: Instant, config: &PortConfig, frames: usize, rng: &mut Rng) {
        let (ingress, egress) = generators(config, rng);
        self.ingress.reconfigure(config.impair_ingress, ingress, frames);
        self.egress.reconfigure(config.impair_egress, egress, frames);
        self.pacer = Pacer::new(config.rate, now);
        if self.flow.kind != config.flow_control {
            self.reset_flow(config.flow_control);
        }
        self.config = config.clone();
    }

    /// Flow control starts afresh: nobody has asked anybody to stop.
    fn reset_flow(&mut self, kind: FlowControl) {
        self.flow = Flow::new(kind);
        self.drr.hold(0);
    }

    /// Longest ordinary frame that leaves here.
    pub(super) const fn frame_max(&self) -> usize {
        self.config.mtu.saturating_add(ETH_HEADER + VLAN_HEADER)
    }

    /// Why this frame may not leave here, if so.
    pub(super) fn refusal(&self, pool: &Pool, header: &Ethernet, frame: &FrameRef) -> Option<DropReason> {
        if !self.up {
            return Some(DropReason::PortDown);
        }
        let offload = pool.offload(frame);
        // A super-frame is cut later; what must fit are its segments.
        let length = if offload.is_super_frame() {
            usize::from(offload.header_len) + usize::from(offload.gso_size)
        } else {
            pool.bytes(frame).len()
        };
        (length > self.config.mtu.saturating_add(header.len())).then_some(DropReason::Oversize)
    }

    /// A queue towards this port holds a frame again.
    pub(super) fn handle_backlog(&mut self, now: Instant, queue: usize) {
        if self.drr.is_empty() {
            self.pacer.handle_backlog(now);
        }
        self.drr.handle_backlog(u32::try_from(queue).unwrap_or(u32::MAX));
    }

    /// When the next frame leaves a queue or the delay line.
    pub(super) fn departure(&self) -> Option<Instant> {
        let queued = if self.drr.is_empty() { None } else { Some(self.pacer.ready_at()) };
        let held = self.held.due().filter(|_| !self.drr.holds_any()).map(|due| due.max(self.pacer.ready_at()));
        earliest(earliest(queued, held), self.egress.line().release())
    }

    /// The counters, with those of the impairments.
    pub(super) fn counters(&self) -> PortCounters {
        let (ingress_impairment, egress_impairment) = (*self.ingress.counters(), *self.egress.counters());
        PortCounters { ingress_impairment, egress_impairment, ..self.counters.clone() }
    }

    /// Throws away what waits in the delay lines; the queues are empty already.
    pub(super) fn flush(&mut self, pool: &mut Pool) {
        self.drr.clear();
        self.reset_flow(self.flow.kind);
        let lines = [(&mut self.ingress, &mut self.counters.received_drops), (&mut self.egress, &mut self.counters.sent_drops)];
        for (impairer, drops) in lines {
            while let Some(frame) = impairer.line_mut().pop() {
                drops.count(DropReason::PortDown);
                pool.free(frame);
            }
        }
    }

    /// Adds this port's frames to the balance.
    pub(super) fn add_to(&self, totals: &mut Totals) {
        totals.ingested += self.counters.received.frames;
        totals.duplicated += self.ingress.counters().duplicated + self.egress.counters().duplicated;
        totals.flooded += self.counters.flooded;
        totals.generated += self.counters.flow.sent;
        totals.consumed += self.counters.flow.received;
        totals.sent += self.counters.sent.frames;
        totals.dropped += self.counters.received_drops.total() + self.counters.sent_drops.total();
        totals.generated += self.counters.generated;
        totals.consumed += self.counters.consumed;
        totals.queued += (self.ingress.line().len() + self.egress.line().len() + self.held.len()) as u64;
    }
}

/// Generators of the two directions: from the port's seed if it has one.
fn generators(config: &PortConfig, rng: &mut Rng) -> (Rng, Rng) {
    let mut own = config.seed.map_or_else(|| rng.fork(), Rng::from_seed);
    (own.fork(), own.fork())
}
