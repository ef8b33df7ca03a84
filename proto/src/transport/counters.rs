//! What the transport counts.

use crate::transport::congestion::Counts;
use crate::transport::irn::{Acked, Cause, Pick};
use crate::wire::AckKind;

macro_rules! counters {
    ($(#[doc = $struct_doc:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $field:ident,)+ }) => {
        $(#[doc = $struct_doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[doc = $doc])+ pub $field: u64,)+ }

        impl $name {
            /// Adds another set of counts.
            pub const fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
            }

            /// Every counter with its name and meaning, in order.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
                [$((stringify!($field), self.$field, concat!($($doc),+)),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Counts of one queue pair, or the sum over many.
    QpCounters {
        /// Request and response packets sent for the first time.
        packets_sent,
        /// Request and response packets received that fit the connection.
        packets_received,
        /// Payload bytes sent for the first time.
        bytes_sent,
        /// Payload bytes placed in memory.
        bytes_received,
        /// Packets sent again because acknowledgements showed a loss.
        retransmitted_fast,
        /// Packets sent again because nothing was heard for the time-out.
        retransmitted_timeout,
        /// Packets sent again as tail-loss probes, to learn whether the end of what was sent has arrived.
        retransmitted_probe,
        /// Probes that repaired a loss, or whose answer showed one.
        probes_helpful,
        /// Retransmissions that turned out to be needless: the original had arrived.
        retransmitted_spurious,
        /// Retransmission time-outs.
        timeouts,
        /// Packets received a second time.
        duplicates_received,
        /// Packets received behind a gap.
        early_received,
        /// How far ahead of the gap these were, in packets, summed up.
        early_distance,
        /// Nanoseconds for which unsent packets waited because the window was full.
        window_limited_nanos,
        /// Nanoseconds for which stop control held back packets that could have been sent.
        stop_limited_nanos,
        /// Acknowledgements sent, positive or negative.
        acks_sent,
        /// Of these, negative: a gap, not ready, or refused.
        naks_sent,
        /// Receiver-not-ready answers sent.
        rnr_sent,
        /// Acknowledgements received.
        acks_received,
        /// Of these, negative.
        naks_received,
        /// Receiver-not-ready answers received.
        rnr_received,
        /// Messages completed as the sender.
        messages_sent,
        /// Messages completed as the receiver.
        messages_received,
        /// Signs of life asked of an idle peer.
        keepalives_sent,
        /// Times that congestion made us slower.
        congestion_decreases,
        /// Nanoseconds for which pacing held packets back.
        paced_nanos,
        /// Packets received that a switch had marked.
        marked_received,
        /// Congestion notifications sent.
        notifications_sent,
        /// Congestion notifications received.
        notifications_received,
    }
}

impl QpCounters {
    /// Packets sent again, for whatever cause.
    pub const fn retransmitted(&self) -> u64 {
        self.retransmitted_fast + self.retransmitted_timeout + self.retransmitted_probe
    }

    /// A packet left, with so many bytes of payload.
    pub(super) const fn count_sent(&mut self, pick: Pick, payload: usize) {
        match pick {
            Pick::New(_) => {
                self.packets_sent += 1;
                self.bytes_sent += payload as u64;
            }
            Pick::Again { cause: Cause::Fast, .. } => self.retransmitted_fast += 1,
            Pick::Again { cause: Cause::Timeout, .. } => self.retransmitted_timeout += 1,
            Pick::Again { cause: Cause::Probe, .. } => self.retransmitted_probe += 1,
        }
    }

    /// What an acknowledgement told of packets sent again.
    pub(super) fn count_acked(&mut self, acked: &Acked) {
        self.retransmitted_spurious += u64::from(acked.spurious);
        self.probes_helpful += u64::from(acked.probe_helped);
    }

    /// What congestion control did.
    pub(super) const fn count_congestion(&mut self, counts: Counts) {
        self.congestion_decreases += counts.decreases;
        self.paced_nanos += counts.paced.as_nanos();
    }

    /// An acknowledgement left.
    pub(super) fn count_ack_sent(&mut self, kind: AckKind) {
        self.acks_sent += 1;
        self.naks_sent += u64::from(!matches!(kind, AckKind::Ack(_)));
        self.rnr_sent += u64::from(matches!(kind, AckKind::ReceiverNotReady(_)));
    }

    /// An acknowledgement arrived.
    pub(super) fn count_ack_received(&mut self, kind: AckKind) {
        self.acks_received += 1;
        self.naks_received += u64::from(!matches!(kind, AckKind::Ack(_)));
    }
}

counters! {
    /// Counts of the connection manager.
    ConnectionCounters {
        /// Connection messages sent.
        messages_sent,
        /// Connection messages received.
        messages_received,
        /// Connection messages sent again for want of an answer.
        messages_resent,
        /// Connections that came to stand.
        established,
        /// Connections that did not come about.
        failed,
        /// Connections that ended.
        closed,
        /// Connections that ended because the peer restarted.
        peer_restarts,
        /// Peers told that the connection which they use does not exist here.
        unknown_told,
        /// Connections that ended because the peer said that it does not know them.
        unknown_at_peer,
    }
}
