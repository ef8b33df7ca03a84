//! What operators see of hosts and of events.

use alloc::vec::Vec;

use crate::transport::endpoint::{Endpoint, slot_of};
use crate::transport::peers::PeerTotals;
use crate::transport::qp::QueuePair;
use crate::transport::trace::TraceRecord;
use crate::transport::{QpCounters, QpNum};

impl Endpoint {
    /// The last events of a queue pair, oldest first; `None` if there is no such queue pair.
    pub fn trace_of(&self, number: QpNum) -> Option<Vec<TraceRecord>> {
        self.slots.get(slot_of(number))?.qp.as_deref().filter(|qp| qp.number == number).map(|qp| qp.trace.records())
    }

    /// Totals per connected host as of the last complete visit by [`Self::visit_peers`]: first those of all hosts beyond
    /// [`crate::transport::MAX_PEERS`], then one per host.
    pub fn peer_totals(&self) -> impl ExactSizeIterator<Item = PeerTotals> + '_ {
        self.peers.totals()
    }

    /// Sums up the counts of at most `budget` slots of queue pairs per host, going on where it stopped; true if that
    /// completes the totals.
    pub fn visit_peers(&mut self, budget: usize) -> bool {
        let start = self.peers.cursor();
        if start == 0 {
            self.peers.begin();
        }
        let end = start.saturating_add(budget).min(self.slots.len());
        for slot in self.slots.get(start..end).unwrap_or_default() {
            if let Some((qp, place)) = slot.qp.as_deref().and_then(|qp| Some((qp, qp.peer?))) {
                self.peers.visit(place, &qp.counters, qp.link().and_then(|link| link.requester.sender.rtt().smoothed()));
            }
        }
        self.peers.go_on(end);
        let complete = end == self.slots.len();
        if complete {
            self.peers.end();
        }
        complete
    }

    /// Sums up the counts of all queue pairs as they are now.
    pub fn visit_all_peers(&mut self) {
        if self.peers.cursor() > 0 {
            self.visit_peers(usize::MAX);
        }
        self.visit_peers(usize::MAX);
    }

    /// The sum over all hosts of what [`Self::peer_totals`] tells.
    pub fn visited_counters(&self) -> QpCounters {
        self.peers.totals().fold(QpCounters::default(), |mut sum, totals| {
            sum.add(&totals.counters);
            sum
        })
    }

    /// A queue pair that is gone counts no more; what it counted stays.
    pub(super) fn release_peer(&mut self, slot: usize, qp: &QueuePair) {
        if let Some(place) = qp.peer {
            self.peers.release(place, slot, &qp.counters);
        }
    }
}
