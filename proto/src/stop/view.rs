//! What stop control shows of itself: counters, events, tables.

use crate::stop::config::Request;
use crate::stop::rate::Share;
use crate::time::{Duration, Instant};
use crate::units::PortId;
use crate::wire::MacAddr;

/// What stop control counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopCounters {
    /// Stop packets sent to hosts that were free to send.
    pub stops_sent: u64,
    /// Stop packets sent to hosts already told.
    pub refreshes_sent: u64,
    /// Cancel packets sent.
    pub cancels_sent: u64,
    /// Stop packets that came in and were well-formed.
    pub stops_received: u64,
    /// Cancel packets that came in and were well-formed.
    pub cancels_received: u64,
    /// Stop packets that held back a host which was free before.
    pub obeyed: u64,
    /// Stop packets that prolonged or changed what already held.
    pub extended: u64,
    /// Stops that ended with their timer.
    pub expired: u64,
    /// Stops that ended with a cancel packet.
    pub cancelled: u64,
    /// Stops that ended because they had lasted for too long.
    pub capped: u64,
    /// Time for which destinations were held back, all together, in nanoseconds; slowed down to half counts half.
    pub stopped_nanos: u64,
    /// Frames to a host that left after its stop packet had come in and before it was obeyed, all together.
    pub late_frames: u64,
    /// The most for one stop packet.
    pub late_frames_max: u64,
    /// Times that a port became congested.
    pub congestions: u64,
}

/// Why a destination may be sent to again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// Its timer ran out.
    Expired,
    /// It said so.
    Cancelled,
    /// It held us back for longer than it may.
    Capped,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopEvent {
    /// A port shows signs of congestion, made by so many hosts.
    Congested {
        /** The port. */
        port: PortId,
        /** Hosts that contribute. */
        sources: u32,
    },
    /// The signs are over.
    Resolved {
        /** The port. */
        port: PortId,
    },
    /// We asked a host to stop or slow down.
    Asked {
        /** The host. */
        host: MacAddr,
        /** What we asked. */
        request: Request,
    },
    /// We told a host that it may send again.
    Cancelled {
        /** The host. */
        host: MacAddr,
    },
    /// We stop or slow down what we send to a host.
    Obeyed {
        /** The host. */
        host: MacAddr,
        /** Frames of lower priority are meant. */
        below: u8,
        /** What is left of the rate. */
        share: Share,
        /** Until then. */
        until: Instant,
    },
    /// A host may be sent to again.
    Released {
        /** The host. */
        host: MacAddr,
        /** Why. */
        cause: Release,
    },
    /// A host held us back for longer than it may: it is not obeyed any more.
    Runaway {
        /** The host. */
        host: MacAddr,
    },
    /// A host that had held us back for too long has been quiet: it is obeyed again.
    Forgiven {
        /** The host. */
        host: MacAddr,
    },
}

/// An event with its number and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopRecord {
    /// Counts up from 0 without gaps.
    pub number: u64,
    /// When.
    pub at: Instant,
    /// What.
    pub event: StopEvent,
}

/// What holds for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Sent to as usual.
    Free,
    /// Stopped or slowed down.
    Held {
        /** Frames of lower priority are meant. */
        below: u8,
        /** What is left of the rate. */
        share: Share,
        /** Since the first stop packet. */
        since: Instant,
        /** Until then, unless it asks again. */
        until: Instant,
    },
    /// Free again; what waited leaves at the rate of the link.
    Resuming,
    /// Not obeyed, because it held us back for too long.
    Ignored {
        /** Since then. */
        since: Instant,
    },
}

/// A host that asked us to stop at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskerView {
    /// The host.
    pub host: MacAddr,
    /// What holds for it now.
    pub standing: Standing,
    /// Time for which it held us back, all together.
    pub stopped: Duration,
    /// What of this is not in [`StopCounters::stopped_nanos`] yet: the stop that holds goes on.
    pub open: Duration,
    /// Stop packets of it that were obeyed.
    pub stops: u64,
}

/// A host that we asked to stop and have not told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedView {
    /// The host.
    pub host: MacAddr,
    /// What we asked last.
    pub request: Request,
    /// Since when.
    pub since: Instant,
    /// Until when it holds, as far as we know.
    pub until: Instant,
    /// The congested port; `None` if asked by hand.
    pub port: Option<PortId>,
    /// Times that it was asked.
    pub asked: u64,
}

/// How a receiving port stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchView {
    /// The port.
    pub port: PortId,
    /// Since when it has been congested.
    pub congested_since: Option<Instant>,
    /// Signs of the volume, gap and delimiter detectors; `None` if not in use.
    pub signs: [Option<bool>; 3],
    /// Hosts that contributed to the last complete period.
    pub sources: u32,
    /// Times that it became congested.
    pub congestions: u64,
}
