//! Counters from the data plane to the board: plain copies into place, nothing allocated after the first time.

use weft_proto::stop::{Standing, Station, StopEvent};
use weft_proto::switch::Traffic;
use weft_proto::transport::MAX_PEERS;
use weft_proto::{Duration, Instant, PortId};

use super::Plane;
use super::interface::Interface;
use crate::port::PortState;
use crate::snapshot::{Board, LOCAL, PortSnapshot, Snapshot, StopSnapshot};

/// Queue pairs whose counts are summed up at a time: about 20 us of work, so that thousands do not hold up the frames.
const VISIT: usize = 256;

/// Hosts named in one go: forged addresses must not flood the log.
const ALARMS: usize = 8;

impl Plane {
    /// Copies all counters of this moment to the board, unless somebody reads it just now; says whether it did.
    pub fn publish(&mut self, now: Instant, board: &Board) -> bool {
        if let Some(local) = &mut self.local {
            local.visit_all_peers();
        }
        self.copy_to(now, board)
    }

    /// The same, but the sums over the queue pairs may be a little older: a part of them is visited at each call.
    pub(super) fn publish_in_passing(&mut self, now: Instant, board: &Board) -> bool {
        if let Some(local) = &mut self.local {
            local.visit_peers(VISIT);
        }
        self.copy_to(now, board)
    }

    fn copy_to(&mut self, now: Instant, board: &Board) -> bool {
        for interface in &mut self.interfaces {
            interface.port.update_counters(&mut interface.counters);
        }
        self.counters.frames_in_use = self.pool.in_use() as u64;
        self.raise_alarms(board);
        board.try_publish(|snapshot| self.fill(now, snapshot))
    }

    /// Tells the operator of hosts that held this one back for longer than they may.
    fn raise_alarms(&mut self, board: &Board) {
        let Some(journal) = self.switch.stop().map(Station::journal).filter(|journal| journal.next() > self.alarmed) else { return };
        let runaways = journal.since(self.alarmed).filter_map(|record| match record.event {
            StopEvent::Runaway { host } => Some(host),
            _ => None,
        });
        let mut count = 0_usize;
        for host in runaways {
            count += 1;
            if count <= ALARMS {
                let host = board.host_name(host);
                tracing::warn!(%host, "asked this node to stop for longer than stop.obey allows; it is not obeyed until it is silent for stop.obey.forgive_after: look why it is congested, raise longest or budget, or leave it out of accept");
            }
        }
        if count > ALARMS {
            tracing::warn!(hosts = count - ALARMS, "more hosts did the same at once; see weftctl stop show");
        }
        self.alarmed = journal.next();
    }

    fn fill(&self, now: Instant, snapshot: &mut Snapshot) {
        snapshot.taken = now;
        snapshot.worker = self.counters;
        snapshot.addresses = *self.switch.fdb_counters();
        snapshot.ports.resize_with(self.switch.ports(), PortSnapshot::default);
        for (interface, port) in self.interfaces.iter().zip(&mut snapshot.ports) {
            fill_interface(interface, port);
        }
        match self.switch.stop() {
            Some(station) => fill_stop(now, station, snapshot.stop.get_or_insert_default()),
            None => snapshot.stop = None,
        }
        if let (Some(local), Some(port)) = (&self.local, snapshot.ports.last_mut()) {
            port.queued = Traffic::default();
            port.name.clear();
            port.name.push_str(LOCAL);
            port.up = true;
            local.fill(snapshot);
        }
        // The queues are many, and mostly empty.
        let queued = self.switch.totals().queued > 0;
        for (index, port) in (0..).zip(&mut snapshot.ports) {
            port.counters = self.switch.port_counters(PortId(index));
            if queued {
                self.add_queued(PortId(index), &mut port.queued);
            }
        }
    }

    fn add_queued(&self, output: PortId, sum: &mut Traffic) {
        let frames = self.switch.queued(output);
        sum.frames += frames;
        if frames > 0 {
            let inputs = (0..).map(PortId).take(self.switch.ports());
            sum.bytes += inputs.map(|input| self.switch.queued_from(input, output).bytes).sum::<u64>();
        }
    }
}

fn fill_stop(now: Instant, station: &Station, stop: &mut StopSnapshot) {
    stop.counters = station.counters();
    stop.refused.clone_from(station.refused());
    stop.asked = station.asked().count() as u64;
    stop.watches.clear();
    stop.watches.extend(station.watches());
    stop.stopping = 0;
    stop.stopped.clear();
    let (mut all, mut shown) = (Duration::from_nanos(stop.counters.stopped_nanos), Duration::ZERO);
    // Hosts keep their places, so whoever is shown stays so until forgotten; `other` grows by it then.
    for view in station.obedience().into_iter().flat_map(|obedience| obedience.views(now)) {
        stop.stopping += u64::from(matches!(view.standing, Standing::Held { .. }));
        all = all + view.open;
        if stop.stopped.len() < MAX_PEERS {
            shown = shown + view.stopped;
            stop.stopped.push((view.host, view.stopped));
        }
    }
    stop.stopped_by_others = all.saturating_sub(shown);
}

fn fill_interface(interface: &Interface, port: &mut PortSnapshot) {
    port.name.clone_from(&interface.config.name);
    port.up = interface.up;
    port.mac = (interface.port.state() != PortState::Absent).then(|| interface.port.mac());
    port.mtu = interface.mtu();
    port.backend = interface.port.backend_name();
    port.link_changes = interface.link_changes;
    port.kernel_drops = interface.counters.kernel_drops;
    port.send_refusals = interface.counters.tx_refusals;
    port.reopens = interface.counters.reopens;
    port.io_drops.clone_from(&interface.counters.drops);
    port.queued = Traffic { frames: interface.backlog().len() as u64, bytes: 0 };
}
