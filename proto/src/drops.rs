//! Why a frame was dropped: one closed list, each reason with a label for metrics and a line of explanation.

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident => $label:literal,)+) => {
        /// Why a frame went no further. Every drop in Weft is counted under exactly one of these.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])+ $variant,)+ }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The metric label, `snake_case`.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)+ }
            }

            /// What happened, for people.
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+),)+ }
            }
        }
    };
}

drop_reasons! {
    // Frame parsing (`wire`).
    /// Shorter than the headers that it announces.
    Truncated => "truncated",
    /// The EtherType is neither ours nor one that anyone here handles.
    ForeignEtherType => "foreign_ethertype",
    /// Our EtherType, but not our magic number: somebody else's experiment.
    ForeignMagic => "foreign_magic",
    /// Our magic number with a version that we do not speak.
    UnsupportedVersion => "unsupported_version",
    /// The length field disagrees with the frame.
    BadLength => "bad_length",
    /// The ICRC does not match: damaged on the way.
    BadIcrc => "bad_icrc",
    /// An opcode that is not assigned or not supported.
    UnknownOpcode => "unknown_opcode",
    /// A field holds a value that its header does not allow.
    BadField => "bad_field",
    /// A control packet with a command other than stop or cancel.
    UnknownCommand => "unknown_command",
    // Stop control.
    /// A control packet of a host that this one does not obey.
    StopStranger => "stop_stranger",
    /// A control packet without a valid authentication tag, where one is required.
    StopBadTag => "stop_bad_tag",
    /// A control packet that came before, or is older than one that came.
    StopReplay => "stop_replay",
    /// A control packet of a host that has stopped us for longer than it may.
    StopBudget => "stop_budget",
    /// A control packet of one host too many.
    StopTableFull => "stop_table_full",
    // Transport.
    /// No queue pair has this number: closed, never opened, or of an earlier incarnation.
    UnknownQueuePair => "unknown_queue_pair",
    /// The connection tag is not the one agreed on: a frame of an earlier connection.
    StaleConnection => "stale_connection",
    /// The frame comes from a host other than the one this queue pair is connected to.
    WrongPeer => "wrong_peer",
    /// The queue pair's state does not accept this frame.
    QueuePairState => "queue_pair_state",
    /// The PSN lies outside the receive window.
    OutOfWindow => "out_of_window",
    /// The packet arrived before; it was acknowledged again, not applied again.
    Duplicate => "duplicate",
    /// Out of order where the recovery mode keeps only in-order packets (go-back-N).
    OutOfOrder => "out_of_order",
    /// No receive was posted for it.
    ReceiverNotReady => "receiver_not_ready",
    /// Out of order and faulty: refused until it is in order, where the fault is reported.
    EarlyFault => "early_fault",
    /// A response that does not fit what was asked for.
    BadResponse => "bad_response",
    /// The access was refused: key, range or right.
    AccessRefused => "access_refused",
    /// An acknowledgement for packets never sent, or older than what is known.
    BadAcknowledgement => "bad_acknowledgement",
    /// A connection message that fits no connection in its state.
    BadConnectionMessage => "bad_connection_message",
    /// Addressed to neither this host nor a group.
    NotForUs => "not_for_us",
    // Switch.
    /// The source address is a group address or zero.
    InvalidSource => "invalid_source",
    /// A link-local group address (01-80-C2-00-00-0x): never forwarded.
    ReservedAddress => "reserved_address",
    /// A MAC control frame (PAUSE, PFC): it ends where it arrives.
    MacControl => "mac_control",
    /// The destination is on the port that it came from, or no port is left to flood to.
    NoOutput => "no_output",
    /// The port does not belong to the frame's VLAN.
    VlanNotMember => "vlan_not_member",
    /// The output port is down.
    PortDown => "port_down",
    /// The virtual output queue is full.
    QueueFull => "queue_full",
    /// Lost by configured impairment.
    ImpairedLoss => "impaired_loss",
    /// The delay line of the impairment is full.
    ImpairedFull => "impaired_full",
    /// Longer than the output port takes.
    Oversize => "oversize",
    /// No frame buffer was free.
    NoBuffer => "no_buffer",
    // Ports.
    /// Larger than the receive buffer: cut off by the kernel.
    CutOff => "cut_off",
    /// A segmentation super-frame where no port header can carry it.
    SuperFrame => "super_frame",
    /// The kernel refused to send it.
    SendFailed => "send_failed",
    /// Still queued when its port was closed.
    PortClosed => "port_closed",
}

/// Number of drop reasons.
pub const DROP_REASONS: usize = DropReason::ALL.len();

/// A counter per drop reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCounts([u64; DROP_REASONS]);

impl Default for DropCounts {
    fn default() -> Self {
        Self([0; DROP_REASONS])
    }
}

impl DropCounts {
    /// Counts one frame.
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Counts `frames` frames.
    pub fn add(&mut self, reason: DropReason, frames: u64) {
        self.0[reason as usize] += frames;
    }

    /// Frames dropped for this reason.
    pub const fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// Frames dropped for any reason.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons that occurred, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.of(reason))).filter(|&(_, frames)| frames > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn labels_are_unique_snake_case_and_described() {
        let labels: BTreeSet<_> = DropReason::ALL.iter().map(|r| r.label()).collect();
        assert_eq!(labels.len(), DROP_REASONS);
        for reason in DropReason::ALL {
            assert!(reason.label().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", reason.label());
            assert!(!reason.description().is_empty());
        }
    }
}
