//! A network port with what the worker keeps for it: frames on their way out, its counters, its link's history.

use std::collections::VecDeque;

use weft_config::model;
use weft_proto::switch::Switch;
use weft_proto::wire::MacAddr;
use weft_proto::{Duration, FrameRef, Instant, Pool, PortId};

use super::budget::Output;
use crate::port::{Port, PortCounters, PortState, RxOutcome, TxOutcome};
use crate::translate;

/// A kernel without room for a frame is asked again after this: a few dozen frames at 10 Gbit/s.
pub(super) const RETRY: Duration = Duration::from_micros(50);

/// One network port.
#[derive(Debug)]
pub(super) struct Interface {
    pub(super) port: Port,
    pub(super) config: model::Port,
    pub(super) counters: PortCounters,
    /// Times that the link went up or down.
    pub(super) link_changes: u64,
    /// What the switch was told last.
    pub(super) up: bool,
    id: PortId,
    mtu: usize,
    mac: MacAddr,
    /// Handed out by the switch, not yet taken by the kernel: at most a batch.
    queue: VecDeque<FrameRef>,
    /// Frames wait in the kernel that could not be taken yet.
    pending: bool,
    /// The kernel had no room; ask again then.
    blocked_until: Option<Instant>,
}

impl Interface {
    pub(super) fn new(port: Port, config: model::Port, id: PortId, batch: usize) -> Self {
        let (mtu, mac) = (port.mtu(), port.mac());
        let queue = VecDeque::with_capacity(batch);
        let counters = PortCounters::default();
        let up = port.state() == PortState::Up;
        Self { port, config, counters, link_changes: 0, up, id, mtu, mac, queue, pending: false, blocked_until: None }
    }

    pub(super) const fn id(&self) -> PortId {
        self.id
    }

    /// True if nothing waited in the kernel any more when frames were last taken.
    pub(super) const fn is_quiet(&self) -> bool {
        !self.pending
    }

    /// Takes frames for stop control too, with their times of arrival, or no more.
    pub(super) fn set_stop(&mut self, ethertypes: Vec<u16>, on: bool) {
        if self.config.role == model::Role::Host {
            self.port.set_timestamps(on);
            if let Err(error) = self.port.set_ethertypes(ethertypes) {
                tracing::error!(port = %self.config.name, %error, "the kernel does not take another filter; restart weftd to have stop control as configured");
            }
        }
    }

    /// As the local transport sees it.
    pub(super) fn output(&self) -> Output {
        Output { id: self.id, mtu: self.mtu() }
    }

    /// The MTU in use.
    pub(super) fn mtu(&self) -> usize {
        translate::mtu(&self.config, self.mtu)
    }

    /// Takes at most a batch from the kernel.
    pub(super) fn receive(&mut self, pool: &mut Pool, out: &mut Vec<FrameRef>, batch: usize) {
        let outcome = self.port.rx(pool, out, batch, &mut self.counters);
        self.pending = matches!(outcome, RxOutcome::More | RxOutcome::NoBuffer);
    }

    /// Frames that the switch may hand out now.
    pub(super) fn room(&self, batch: usize) -> usize {
        batch.saturating_sub(self.queue.len())
    }

    /// Hands frames to the kernel, in order behind those that it has not taken yet.
    pub(super) fn send(&mut self, now: Instant, pool: &mut Pool, frames: &mut Vec<FrameRef>) {
        self.queue.extend(frames.drain(..));
        if self.queue.is_empty() || self.blocked_until.is_some_and(|until| until > now) {
            return;
        }
        let outcome = self.port.tx(pool, &mut self.queue, &mut self.counters);
        self.blocked_until = (outcome == TxOutcome::Blocked).then(|| now + RETRY);
    }

    /// True if the switch may hand out frames.
    pub(super) const fn can_send(&self) -> bool {
        self.blocked_until.is_none()
    }

    /// True if nothing waits for the kernel.
    pub(super) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// Frames waiting for the kernel.
    pub(super) fn backlog(&self) -> &VecDeque<FrameRef> {
        &self.queue
    }

    /// When there is something to do whatever else happens.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let pending = self.pending.then(|| now + RETRY);
        [self.port.poll_timeout(), self.blocked_until, pending].into_iter().flatten().min()
    }

    /// Tells the switch what became of the link. The port's calls can find that out at any time.
    pub(super) fn sync(&mut self, now: Instant, pool: &mut Pool, switch: &mut Switch) {
        let up = self.port.state() == PortState::Up;
        if up != self.up {
            self.up = up;
            self.link_changes += 1;
            switch.set_port_up(pool, self.id, up);
            tracing::info!(port = %self.config.name, up, "link changed");
        }
        let found = (self.port.mtu(), self.port.mac());
        if up && found != (self.mtu, self.mac) {
            (self.mtu, self.mac) = found;
            switch.reconfigure_port(now, self.id, &translate::port(&self.config, self.mtu, self.mac));
        }
    }

    /// Takes over changed settings.
    pub(super) fn reconfigure(&mut self, now: Instant, switch: &mut Switch, config: &model::Port) {
        self.config.clone_from(config);
        switch.reconfigure_port(now, self.id, &translate::port(config, self.mtu, self.mac));
    }

    /// Drops what the kernel has not taken.
    pub(super) fn close(&mut self, pool: &mut Pool) {
        self.counters.drops.add(weft_proto::DropReason::PortClosed, self.queue.len() as u64);
        self.queue.drain(..).for_each(|frame| pool.free(frame));
    }
}
