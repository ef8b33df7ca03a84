//! What the switch counts. Plain integers, owned by the worker and copied out by whoever shows them.

use crate::drops::DropCounts;
use crate::time::Duration;

/// Frames and their bytes from the destination address to the end of the payload, without FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of frames.
    pub frames: u64,
    /// Sum of their lengths.
    pub bytes: u64,
}

impl Traffic {
    /// Counts one frame.
    pub(super) const fn count(&mut self, bytes: u64) {
        self.frames += 1;
        self.bytes += bytes;
    }

    /// Takes one frame out again.
    pub(super) const fn uncount(&mut self, bytes: u64) {
        self.frames -= 1;
        self.bytes -= bytes;
    }
}

/// Counters of one port. Drops of the input side are frames that came in here, those of the output side frames
/// that were to leave here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames ingested.
    pub received: Traffic,
    /// Frames handed out.
    pub sent: Traffic,
    /// Dropped on the input side, by reason.
    pub received_drops: DropCounts,
    /// Dropped on the output side, by reason.
    pub sent_drops: DropCounts,
    /// Copies made by flooding frames from this port to more than one output.
    pub flooded: u64,
    /// Control frames of our own that left here.
    pub generated: u64,
    /// Control frames that came in here and were meant for this switch.
    pub consumed: u64,
    /// Transport frames marked because their queue was long.
    pub marked: u64,
    /// What flow control did.
    pub flow: FlowCounters,
    /// What the ingress impairment did.
    pub ingress_impairment: ImpairmentCounters,
    /// What the egress impairment did.
    pub egress_impairment: ImpairmentCounters,
}

/// What flow control (PAUSE, PFC) did at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Frames sent that ask the other end to stop or to go on.
    pub sent: u64,
    /// Frames received from it, those ignored too.
    pub received: u64,
    /// Frames received whose request to stop was ignored, because the watchdog had tripped.
    pub ignored: u64,
    /// How long the port was silent at the other end's request; with PFC, in at least one priority.
    pub paused: Duration,
    /// Times that the watchdog put an end to a silence (with PFC, of one priority).
    pub watchdog_trips: u64,
}

/// What an impairment did. Lost frames are in the port's drop counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImpairmentCounters {
    /// Second copies made.
    pub duplicated: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames held back so that later ones overtake them.
    pub reordered: u64,
}

/// Counters of one virtual output queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VoqCounters {
    /// Frames that were admitted.
    pub enqueued: Traffic,
    /// Frames that the scheduler took.
    pub dequeued: Traffic,
    /// Frames refused because the queue was full.
    pub refused: Traffic,
    /// Frames thrown away when the output went down.
    pub flushed: Traffic,
    /// Frames that wait now.
    pub queued: Traffic,
}

/// Counters of the address table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdbCounters {
    /// Addresses learned.
    pub learned: u64,
    /// Addresses that changed their port.
    pub moved: u64,
    /// Addresses forgotten because of their age.
    pub aged: u64,
    /// Addresses not learned for want of room; their frames are flooded.
    pub refused: u64,
}

/// All frames that the switch ever had to do with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames ingested.
    pub ingested: u64,
    /// Copies made by impairments.
    pub duplicated: u64,
    /// Copies made by flooding: one less than the outputs of each flooded frame.
    pub flooded: u64,
    /// Frames that the switch made itself: flow and stop control.
    pub generated: u64,
    /// Frames handed out.
    pub sent: u64,
    /// Frames that were for the switch itself: flow and stop control.
    pub consumed: u64,
    /// Frames dropped for any reason.
    pub dropped: u64,
    /// Frames counted in the queues and delay lines, not derived from the other numbers.
    pub queued: u64,
}

impl Totals {
    /// The conservation law: every frame that came into being is sent, consumed, dropped or still queued.
    pub const fn conserved(&self) -> bool {
        self.ingested + self.duplicated + self.flooded + self.generated == self.sent + self.consumed + self.dropped + self.queued
    }
}
