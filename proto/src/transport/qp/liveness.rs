//! Whether the peer still lives: who asks whom, and when a silent one is given up.

use crate::time::Instant;
use crate::transport::EndpointConfig;
use crate::transport::link::Link;
use crate::transport::qp::QueuePair;

impl QueuePair {
    /// With the first request outstanding begins the wait for the peer.
    pub(super) fn begin_waiting(&mut self, now: Instant) {
        let began = self.link.as_ref().is_some_and(|link| self.waits_for_peer(link));
        if let Some(link) = self.link.as_mut().filter(|_| !began) {
            link.begin_waiting(now);
        }
    }

    /// True if something is wanted from the peer: requests, or a sign of life.
    fn waits_for_peer(&self, link: &Link) -> bool {
        self.send_queue.len() > 0 || !link.requester.is_idle()
    }

    /// When a peer that something is wanted from is given up, however many retries are left. While it is not ready it
    /// is not asked, so that its silence says nothing.
    pub(super) fn silence_deadline(&self, config: &EndpointConfig) -> Option<Instant> {
        let link = self.link.as_ref().filter(|_| self.state.sends())?;
        let waits = self.waits_for_peer(link) && !link.requester.waits_for_receiver();
        waits.then(|| link.silent_since() + config.peer_timeout)
    }

    /// Asks a silent peer for a sign of life.
    pub(super) fn keep_alive(&mut self, now: Instant) {
        if self.keepalive_deadline().is_none_or(|at| at > now) {
            return;
        }
        self.begin_waiting(now);
        if let Some(link) = &mut self.link {
            link.requester.ask_for_life();
            self.counters.keepalives_sent += 1;
        }
    }

    /// Packets in flight have their own time-out; the peer's silence matters when there are none. That is also so while
    /// a READ waits for its answer: then it is the peer that has the time-out, as long as it lives.
    pub(super) fn keepalive_deadline(&self) -> Option<Instant> {
        let link = self.link.as_ref()?;
        let idle = self.state.sends() && link.requester.is_idle();
        idle.then(|| link.keepalive_deadline())
    }
}
