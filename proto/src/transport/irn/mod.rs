//! Loss recovery as in IRN (Mittal et al., SIGCOMM 2018), and go-back-N for comparison, as small pure machines.
//!
//! [`Sender`] knows which packets are in flight, which arrived, and which to send next. [`Receiver`] knows which
//! arrived and what that completes; [`Acker`] decides what to answer and when. None of them knows what a packet
//! contains, so each can be driven alone by a list of events, for instance from somebody else's trace.

mod acker;
pub mod bitmap;
mod exchange;
pub mod histogram;
mod probe;
mod receiver;
mod recency;
mod rtt;
mod sender;
pub mod window;

pub use acker::{AckTiming, Acker, Answer, Reply};
pub use bitmap::Bitmap;
pub use exchange::{Acked, BadAck, Cause, Feedback, Pick, SenderConfig, Timeout};
pub use histogram::RttHistogram;
pub use receiver::{Advance, Arrival, Mark, Receiver};
pub use rtt::{RtoBounds, RttEstimator};
pub use sender::Sender;
pub use window::Window;

use crate::transport::Recovery;

/// When a packet counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossRule {
    /// The paper's: the packet of the cumulative acknowledgement on the first negative acknowledgement, after that
    /// every hole below a selectively acknowledged packet, each once per pass. Where nothing is acknowledged selectively
    /// no hole is known but the first: it is sent again when recovery begins and, until recovery ends, each time the
    /// cumulative acknowledgement reaches another one, so one per round trip (as in NewReno, RFC 6582).
    FirstGap,
    /// Ours: a packet sent later has arrived, and a round trip plus a reordering allowance has passed since the
    /// packet was last sent (in the manner of RACK, RFC 8985). Notices a lost retransmission without a time-out.
    Recency,
    /// Everything from the first missing packet on.
    GoBackN,
}

/// How a recovery mode behaves: one code path, small choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    /// When a packet counts as lost.
    pub loss: LossRule,
    /// The receiver keeps packets that arrive early.
    pub keeps_early: bool,
    /// The receiver says which packets arrived early, and the sender believes it.
    pub sack: bool,
    /// An acknowledgement for every packet, with the one PSN that triggered it, instead of coalesced ones with a bitmap.
    pub ack_every_packet: bool,
    /// Time-outs from measured round trips, with the configured values as lower bounds.
    pub rto_adaptive: bool,
    /// When nothing is heard, the last packet is sent again well before the time-out (RFC 8985, section 7).
    pub probes: bool,
}

impl Profile {
    /// The choices of a recovery mode.
    pub const fn of(recovery: Recovery) -> Self {
        let own =
            Self { loss: LossRule::Recency, keeps_early: true, sack: true, ack_every_packet: false, rto_adaptive: true, probes: true };
        match recovery {
            Recovery::Irn => own,
            Recovery::IrnStrict => Self { loss: LossRule::FirstGap, ack_every_packet: true, rto_adaptive: false, probes: false, ..own },
            Recovery::SelectiveNoSack => Self { loss: LossRule::FirstGap, sack: false, probes: false, ..own },
            Recovery::GoBackN => Self { loss: LossRule::GoBackN, keeps_early: false, sack: false, probes: false, ..own },
        }
    }
}

#[cfg(test)]
mod tests;
