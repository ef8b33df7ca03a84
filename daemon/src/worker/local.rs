//! The local transport as a port of the switch: the endpoint on one side, the applications on the other.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use crossbeam::channel::Sender;
use mio::Waker;
use weft_proto::stop::Station;
use weft_proto::switch::Switch;
use weft_proto::transport::Endpoint;
use weft_proto::wire::MacAddr;
use weft_proto::{FrameRef, Instant, Pool, PortId};

use crate::app::{AppCommand, AppTable, AppUpdate};
use crate::snapshot::{Snapshot, TransportSnapshot};

/// Where news for applications go: to the control thread, which talks to them.
#[derive(Clone, Debug)]
pub struct Mailbox {
    /// The news.
    pub updates: Sender<AppUpdate>,
    /// Wakes the control thread.
    pub waker: Arc<Waker>,
}

/// The local transport.
#[derive(Debug)]
pub struct Local {
    endpoint: Endpoint,
    mac: MacAddr,
    apps: AppTable,
    mailbox: Mailbox,
    id: PortId,
    requests: u64,
}

impl Local {
    /// The transport of address `mac`.
    pub const fn new(endpoint: Endpoint, mac: MacAddr, apps: AppTable, mailbox: Mailbox) -> Self {
        Self { endpoint, mac, apps, mailbox, id: PortId(u16::MAX), requests: 0 }
    }

    /// Takes its place in the switch: frames to its address go to port `id` and nowhere else.
    pub(super) fn attach(&mut self, id: PortId, switch: &mut Switch) {
        self.id = id;
        let bound = switch.set_static(self.mac, id);
        assert!(bound.is_ok(), "an empty address table has room for one entry");
    }

    pub(super) const fn id(&self) -> PortId {
        self.id
    }

    pub(super) const fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Becomes readable when an application rings while the worker sleeps.
    pub(super) fn wake_fd(&self) -> RawFd {
        self.apps.wake_fd().as_raw_fd()
    }

    /// Does what an application asked the control thread for.
    pub(super) fn execute(&mut self, now: Instant, command: AppCommand) {
        self.apps.execute(now, command, &mut self.endpoint);
    }

    /// Takes work requests out of the applications' rings.
    pub(super) fn take_requests(&mut self, now: Instant, budget: usize) -> usize {
        let taken = self.apps.collect_work(now, &mut self.endpoint, budget);
        self.requests += taken as u64;
        taken
    }

    /// Hands frames for this host to the transport: until there are none, but at most a batch for each port of the switch.
    /// In a breath no more can have come in, so that its queues do not fill up.
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        pool: &mut Pool,
        switch: &mut Switch,
        frames: &mut Vec<FrameRef>,
        batch: usize,
    ) -> usize {
        let mut moved = 0;
        for _ in 0..switch.ports() {
            switch.egress(now, pool, self.id, batch, frames);
            if frames.is_empty() {
                break;
            }
            moved += frames.len();
            for frame in frames.drain(..) {
                self.endpoint.handle_frame(now, pool.bytes(&frame), &mut self.apps);
                pool.free(frame);
            }
        }
        moved
    }

    /// Goes on with what stop control has released, and does what is due.
    pub(super) fn run_timers(&mut self, now: Instant, switch: &mut Switch) {
        let mut stops = switch.stop_mut().and_then(Station::obedience_mut);
        if let Some(stops) = &mut stops {
            self.endpoint.handle_released(now, stops);
        }
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout_within(now, stops.as_deref());
        }
    }

    /// Lets the transport build at most `budget` frames; they go through the switch like everybody's.
    pub(super) fn transmit(&mut self, now: Instant, pool: &mut Pool, switch: &mut Switch, budget: usize) -> usize {
        for moved in 0..budget {
            let Some(frame) = pool.alloc() else { return moved };
            let stops = switch.stop_mut().and_then(Station::obedience_mut);
            let Some(built) = self.endpoint.poll_transmit_within(now, pool.room_mut(&frame), &self.apps, stops) else {
                pool.free(frame);
                return moved;
            };
            pool.set_len(&frame, built.len);
            pool.set_priority(&frame, built.priority);
            switch.ingest(now, pool, self.id, frame);
        }
        budget
    }

    /// Gives completions to the applications, and news for them to the control thread.
    pub(super) fn complete(&mut self, now: Instant) {
        self.apps.deliver(now, &mut self.endpoint);
        let mut news = false;
        while let Some(update) = self.apps.poll_update() {
            // The control thread is gone only when the daemon ends.
            news |= self.mailbox.updates.send(update).is_ok();
        }
        if news && let Err(error) = self.mailbox.waker.wake() {
            tracing::warn!(%error, "the control thread cannot be woken");
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    /// True if all that peers ought to be told has been.
    pub(super) fn is_drained(&self) -> bool {
        self.endpoint.is_quiet()
    }

    /// True if the transport has a frame that it could not send yet.
    pub(super) fn wants_transmit(&self) -> bool {
        self.endpoint.wants_transmit()
    }

    /// The transport, to be looked at.
    pub(super) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Says to the applications that the worker is about to sleep; false if one of them has rung already.
    pub(super) fn prepare_sleep(&mut self) -> bool {
        self.apps.prepare_sleep()
    }

    /// Takes that back.
    pub(super) fn finish_sleep(&mut self) {
        self.apps.finish_sleep();
    }

    /// Sums up what some of the queue pairs counted; see [`Endpoint::visit_peers`].
    pub(super) fn visit_peers(&mut self, budget: usize) {
        self.endpoint.visit_peers(budget);
    }

    /// Sums up what all of them counted until now.
    pub(super) fn visit_all_peers(&mut self) {
        self.endpoint.visit_all_peers();
    }

    pub(super) fn fill(&self, snapshot: &mut Snapshot) {
        let (frames_received, frames_sent) = self.endpoint.frames();
        snapshot.transport = Some(TransportSnapshot {
            queue_pairs: self.endpoint.qp_count() as u64,
            regions: self.endpoint.region_count() as u64,
            frames_received,
            frames_sent,
            counters: self.endpoint.visited_counters(),
            connections: *self.endpoint.connection_counters(),
        });
        snapshot.peers.clear();
        snapshot.peers.extend(self.endpoint.peer_totals());
        snapshot.transport_drops.clone_from(self.endpoint.drops());
        snapshot.applications.requests = self.requests;
    }
}
