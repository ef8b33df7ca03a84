//! What a sender is told, and what it answers.

use crate::time::{Duration, Instant};
use crate::transport::Psn;
use crate::transport::irn::rtt::RtoBounds;
use crate::transport::irn::{Profile, Window};

/// What a sender is made with.
#[derive(Clone, Copy, Debug, Hash)]
pub struct SenderConfig {
    /// How losses are noticed and recovered.
    pub profile: Profile,
    /// Most packets in flight (BDP-FC).
    pub window: Window,
    /// Retransmission time-outs.
    pub rto: RtoBounds,
    /// Time-outs in a row before giving up.
    pub retry_count: u8,
    /// How long the receiver may wait before it acknowledges.
    pub ack_delay: Duration,
    /// The last packet of what there is to send asks for an acknowledgement at once.
    pub tail_asks: bool,
}

/// What an acknowledgement says, reduced to packet numbers.
#[derive(Clone, Copy, Debug)]
pub struct Feedback<'a> {
    /// Everything before this has arrived.
    pub cumulative: Psn,
    /// The receiver saw a gap.
    pub negative: bool,
    /// The arrival that triggered the answer.
    pub trigger: Option<Psn>,
    /// Bit i: `cumulative + i` has arrived.
    pub bitmap: &'a [u64],
    /// The round trip that it measures.
    pub rtt: Option<Duration>,
    /// When the packet that arrived last was sent, as its timestamp tells (see [`crate::time::Timestamp::instant`]).
    pub echoed: Option<Instant>,
}

/// What an acknowledgement changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Packets that the cumulative acknowledgement passed.
    pub cumulative: u32,
    /// Packets newly known to have arrived behind a gap.
    pub selective: u32,
    /// Retransmissions that turn out to have been needless: the original had arrived.
    pub spurious: u32,
    /// The receiver reported a packet that it had before.
    pub duplicate: bool,
    /// A loss was noticed, the first since recovery last ended: once per window, as congestion control wants it.
    pub lost: bool,
    /// A probe repaired a loss, or its answer showed one.
    pub probe_helped: bool,
}

/// An acknowledgement that cannot be true: for packets never sent, or older than what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAck;

/// Why a packet is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Acknowledgements showed that it is missing.
    Fast,
    /// Nothing was heard for the time-out.
    Timeout,
    /// To learn whether the end of what was sent has arrived.
    Probe,
}

/// What to send in a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The next new packet, with this number.
    New(Psn),
    /// This packet again.
    Again {
        /// Its number.
        psn: Psn,
        /// Why.
        cause: Cause,
    },
}

impl Pick {
    /// The packet's number.
    pub const fn psn(self) -> Psn {
        match self {
            Self::New(psn) | Self::Again { psn, .. } => psn,
        }
    }
}

/// What the passing of time means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Nothing is due.
    Idle,
    /// The reordering allowance of a packet is over.
    LossCheck {
        /// A loss was noticed, the first since recovery last ended.
        lost: bool,
    },
    /// Nothing was heard for a while: a probe is sent.
    Probe,
    /// Nothing was heard for the retransmission time-out.
    Retransmit,
    /// That happened too often in a row.
    Exhausted,
}
