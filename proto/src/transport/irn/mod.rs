//! Loss recovery as in IRN (Mittal et al., SIGCOMM 2018), and go-back-N for comparison, as small pure machines.
//!
//! [`Sender`] knows which packets are in flight, which arrived, and which to send next. [`Receiver`] knows which
//! arrived and what that completes; [`Acker`] decides what to answer and when. None of them knows what a packet
//! contains, so each can be driven alone by a list of events, for instance from somebody else's trace.

mod acker;
pub mod bitmap;
mod receiver;
mod rtt;
mod sender;

pub use acker::{AckTiming, Acker, Reply};
pub use bitmap::Bitmap;
pub use receiver::{Advance, Arrival, Mark, Receiver};
pub use rtt::{RtoBounds, RttEstimator};
pub use sender::{Acked, BadAck, Feedback, Pick, Sender, SenderConfig, Timeout};

use crate::transport::Recovery;

/// When a packet counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossRule {
    /// The paper's: the packet of the cumulative acknowledgement on the first negative acknowledgement, after that
    /// every hole below a selectively acknowledged packet, each once per pass.
    FirstGap,
    /// Ours: a packet sent later has arrived, and a round trip plus a reordering allowance has passed since the
    /// packet was last sent (in the manner of RACK, RFC 8985). Notices a lost retransmission without a time-out.
    Recency,
    /// Everything from the first missing packet on.
    GoBackN,
}

/// How a recovery mode behaves: one code path, small choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// When a packet counts as lost.
    pub loss: LossRule,
    /// The receiver keeps packets that arrive early.
    pub keeps_early: bool,
    /// An acknowledgement for every packet, with the one PSN that triggered it, instead of coalesced ones with a bitmap.
    pub ack_every_packet: bool,
    /// Time-outs from measured round trips, with the configured values as lower bounds.
    pub rto_adaptive: bool,
}

impl Profile {
    /// The choices of a recovery mode.
    pub const fn of(recovery: Recovery) -> Self {
        match recovery {
            Recovery::Irn => Self { loss: LossRule::Recency, keeps_early: true, ack_every_packet: false, rto_adaptive: true },
            Recovery::IrnStrict => Self { loss: LossRule::FirstGap, keeps_early: true, ack_every_packet: true, rto_adaptive: false },
            Recovery::SelectiveNoSack => Self { loss: LossRule::FirstGap, keeps_early: true, ack_every_packet: false, rto_adaptive: true },
            Recovery::GoBackN => Self { loss: LossRule::GoBackN, keeps_early: false, ack_every_packet: false, rto_adaptive: true },
        }
    }
}

#[cfg(test)]
mod tests;
