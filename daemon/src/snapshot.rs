//! What the worker shows of itself to the other threads.
//!
//! The worker copies its counters into the [`Board`] at batch boundaries and never waits for a reader: if the
//! board is locked it tries again at the next boundary. The control and metrics threads read copies. Nothing
//! here is a source of truth; a snapshot is at most one publishing interval old.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weft_proto::stop::{StopCounters, WatchView};
use weft_proto::switch::{FdbCounters, PortCounters, Traffic};
use weft_proto::transport::{ConnectionCounters, PeerTotals, QpCounters};
use weft_proto::wire::MacAddr;
use weft_proto::{DropCounts, DropReason, Duration, Instant};

/// What the port of the local transport is called.
pub const LOCAL: &str = "local";

/// One port of the switch, its queues included.
#[derive(Clone, Debug, Default)]
pub struct PortSnapshot {
    /// The port's name in the configuration; [`LOCAL`] for the local transport's port.
    pub name: String,
    /// Frames can flow.
    pub up: bool,
    /// The interface's address, while there is an interface.
    pub mac: Option<MacAddr>,
    /// Longest Ethernet payload in bytes.
    pub mtu: usize,
    /// The backend that was chosen.
    pub backend: &'static str,
    /// Times that the link went up or down.
    pub link_changes: u64,
    /// What the switch counts at this port.
    pub counters: PortCounters,
    /// Frames that did not get from the kernel into the switch, or from the switch into the kernel.
    pub io_drops: DropCounts,
    /// Frames that the kernel dropped because the worker did not fetch them in time.
    pub kernel_drops: u64,
    /// Times that the kernel had no room for a frame, which was tried again later.
    pub send_refusals: u64,
    /// Times that the port was opened anew.
    pub reopens: u64,
    /// Frames and bytes waiting to leave.
    pub queued: Traffic,
}

impl PortSnapshot {
    /// Frames dropped at this port for one reason, on either side of it.
    pub const fn drops(&self, reason: DropReason) -> u64 {
        self.counters.received_drops.of(reason) + self.counters.sent_drops.of(reason) + self.io_drops.of(reason)
    }
}

/// Counters of the local transport.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransportSnapshot {
    /// Queue pairs that exist.
    pub queue_pairs: u64,
    /// Regions that are registered.
    pub regions: u64,
    /// Frames that came in for the transport.
    pub frames_received: u64,
    /// Frames that the transport built.
    pub frames_sent: u64,
    /// All queue pairs together, closed ones included.
    pub counters: QpCounters,
    /// The connection manager.
    pub connections: ConnectionCounters,
}

/// What stop control counts.
#[derive(Clone, Debug, Default)]
pub struct StopSnapshot {
    /// Packets, stops, times.
    pub counters: StopCounters,
    /// Control packets that changed nothing, by reason.
    pub refused: DropCounts,
    /// Time for which hosts held this node back, for as many as are told apart.
    pub stopped: Vec<(MacAddr, Duration)>,
    /// The same for all further hosts together.
    pub stopped_by_others: Duration,
    /// Ports that are watched.
    pub watches: Vec<WatchView>,
    /// Hosts that hold this node back now.
    pub stopping: u64,
    /// Hosts that this node asks to stop now.
    pub asked: u64,
}

/// Counters of the worker itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerSnapshot {
    /// Rounds of the loop.
    pub breaths: u64,
    /// Rounds that moved at least one frame.
    pub busy_breaths: u64,
    /// Times the worker blocked.
    pub sleeps: u64,
    /// Frame buffers in use.
    pub frames_in_use: u64,
    /// Frame buffers in the pool.
    pub frames_total: u64,
    /// Rounds in which a port had frames but the pool had no buffer for them.
    pub pool_exhausted: u64,
}

/// Counters about attached applications.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplicationSnapshot {
    /// Applications attached now.
    pub attached: u64,
    /// Work requests taken from the rings.
    pub requests: u64,
}

/// Everything the worker counts, copied at one batch boundary.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was taken, on the daemon's clock.
    pub taken: Instant,
    /// One entry per port of the switch.
    pub ports: Vec<PortSnapshot>,
    /// The transport, if this node has one.
    pub transport: Option<TransportSnapshot>,
    /// Totals per connected host: first those without a name of their own, then one per host.
    pub peers: Vec<PeerTotals>,
    /// What hosts are called.
    pub hosts: Arc<BTreeMap<MacAddr, String>>,
    /// Frames that the transport refused, by reason.
    pub transport_drops: DropCounts,
    /// Stop control, if this node has it.
    pub stop: Option<StopSnapshot>,
    /// What happened to the address table.
    pub addresses: FdbCounters,
    /// The worker.
    pub worker: WorkerSnapshot,
    /// The attached applications.
    pub applications: ApplicationSnapshot,
}

/// Where the worker leaves its [`Snapshot`]. Shared by reference between the threads.
#[derive(Debug, Default)]
pub struct Board {
    snapshot: Mutex<Snapshot>,
    /// Nanoseconds on the daemon's clock at the worker's last breath.
    breathed: AtomicU64,
    /// Applications attached: the control thread knows.
    attached: AtomicU64,
    /// What hosts are called: the control thread knows.
    hosts: Mutex<Arc<BTreeMap<MacAddr, String>>>,
}

impl Board {
    /// Notes that the worker is alive.
    pub fn breathe(&self, now: Instant) {
        self.breathed.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// How long the worker has not breathed.
    pub fn silence(&self, now: Instant) -> Duration {
        now.since(Instant::from_nanos(self.breathed.load(Ordering::Relaxed)))
    }

    /// Lets `fill` update the snapshot in place, unless a reader holds it; says whether it did.
    pub fn try_publish(&self, fill: impl FnOnce(&mut Snapshot)) -> bool {
        let Some(mut snapshot) = self.snapshot.try_lock() else { return false };
        fill(&mut snapshot);
        true
    }

    /// Notes how many applications are attached.
    pub fn set_attached(&self, applications: usize) {
        self.attached.store(applications as u64, Ordering::Relaxed);
    }

    /// Notes what hosts are called.
    pub fn set_hosts(&self, hosts: &BTreeMap<String, MacAddr>) {
        *self.hosts.lock() = Arc::new(hosts.iter().map(|(name, &mac)| (mac, name.clone())).collect());
    }

    /// What a host is called: its name or, if there is none or the names are just being changed, its address.
    pub fn host_name(&self, host: MacAddr) -> String {
        let name = self.hosts.try_lock().and_then(|hosts| hosts.get(&host).cloned());
        name.unwrap_or_else(|| host.to_string())
    }

    /// A copy of the latest snapshot.
    pub fn read(&self) -> Snapshot {
        let mut snapshot = self.snapshot.lock().clone();
        snapshot.hosts = Arc::clone(&self.hosts.lock());
        snapshot.applications.attached = self.attached.load(Ordering::Relaxed);
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishing_never_waits_for_a_reader() {
        let board = Board::default();
        let reader = board.snapshot.lock();
        assert!(!board.try_publish(|s| s.addresses.learned = 1));
        drop(reader);
        assert!(board.try_publish(|s| s.addresses.learned = 2));
        assert_eq!(board.read().addresses.learned, 2);
    }

    #[test]
    fn silence_is_the_time_since_the_last_breath() {
        let board = Board::default();
        board.breathe(Instant::from_nanos(100));
        assert_eq!(board.silence(Instant::from_nanos(350)), Duration::from_nanos(250));
    }
}
