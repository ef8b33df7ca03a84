//! The results about stop control. Spans in microseconds up to the answer or from it on; names are those in `hosts`, where there are any.

use serde::{Deserialize, Serialize};

use super::{Drops, Page};

/// Stop control of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopInfo {
    /// The address that it asks from and obeys at.
    pub mac: String,
    /// It does as others ask.
    pub obeys: bool,
    /// It asks others by itself.
    pub detects: bool,
    /// Ports that it watches.
    pub ports: Vec<StopPort>,
    /// Hosts that asked this one to stop, as far as they are remembered, by address.
    pub askers: Page<StopAsker>,
    /// Hosts that this one asks to stop now, by address.
    pub asked: Page<StopAsked>,
    /// What it counts.
    pub counters: StopCounters,
    /// Control packets that changed nothing.
    pub refused: Drops,
}

/// A port that is watched for congestion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopPort {
    /// Name.
    pub port: String,
    /// For how long it has been congested; absent if it is not.
    pub congested_us: Option<u64>,
    /// Sign of the valid-data rate; absent if not in use.
    pub volume: Option<bool>,
    /// Sign of the packet interval; absent if not in use.
    pub gap: Option<bool>,
    /// Sign of the delimiter length; absent if not in use.
    pub delimiter: Option<bool>,
    /// Hosts that contributed to the last complete period.
    pub sources: u32,
    /// Times that it became congested.
    pub congestions: u64,
}

/// A host that asked this one to stop or slow down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopAsker {
    /// Address.
    pub mac: String,
    /// Name.
    pub name: Option<String>,
    /// `stopped`, `slowed`, `resuming`, `ignored` (it held this node back for too long) or `free`.
    pub standing: String,
    /// Frames of lower priority are meant, 0 to 16; absent if none are.
    pub below: Option<u8>,
    /// What is left of the rate, in thousandths; absent if nothing is held back.
    pub share_permille: Option<u32>,
    /// For how long it has been stopped, slowed or ignored.
    pub since_us: Option<u64>,
    /// How much longer, unless it asks again.
    pub remaining_us: Option<u64>,
    /// Time for which it held this node back, all together.
    pub stopped_us: u64,
    /// Stop packets of it that were obeyed.
    pub stops: u64,
}

/// A host that this one asks to stop or slow down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopAsked {
    /// Address.
    pub mac: String,
    /// Name.
    pub name: Option<String>,
    /// What it was asked: frames of lower priority are meant.
    pub priority: u8,
    /// In ticks; 0 = as it sees fit.
    pub timer: u8,
    /// 0 = nothing is to be sent.
    pub rate: u8,
    /// For how long it has been asked.
    pub since_us: u64,
    /// How much longer it holds, as far as is known here.
    pub remaining_us: u64,
    /// The congested port; absent if an operator asked.
    pub port: Option<String>,
    /// Times that it was asked.
    pub times: u64,
}

/// What stop control counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopCounters {
    /// Stop packets sent to hosts that were free to send.
    pub stops_sent: u64,
    /// Stop packets sent to hosts already told.
    pub refreshes_sent: u64,
    /// Cancel packets sent.
    pub cancels_sent: u64,
    /// Stop packets received and well-formed.
    pub stops_received: u64,
    /// Cancel packets received and well-formed.
    pub cancels_received: u64,
    /// Stops that began.
    pub obeyed: u64,
    /// Stop packets that prolonged or changed a stop.
    pub extended: u64,
    /// Stops that ended with their timer.
    pub expired: u64,
    /// Stops that ended with a cancel packet.
    pub cancelled: u64,
    /// Stops that ended because they had lasted for too long.
    pub capped: u64,
    /// Time for which destinations were held back, all together.
    pub stopped_us: u64,
    /// Frames that left between the arrival of a stop packet and its being obeyed, all together.
    pub late_frames: u64,
    /// The most for one stop packet.
    pub late_frames_max: u64,
    /// Times that a port became congested.
    pub congestions: u64,
}

/// A part of the events of stop control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopEvents {
    /// What to ask for next.
    pub next: u64,
    /// Events asked for that are not kept any more.
    pub missed: u64,
    /// Oldest first.
    pub events: Vec<StopEvent>,
}

/// Something that happened. What does not belong to the event is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopEvent {
    /// Counts up without gaps.
    pub number: u64,
    /// When, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// `congested`, `resolved`, `asked`, `cancelled`, `obeyed`, `released`, `runaway` or `forgiven`.
    pub event: String,
    /// The host's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The host's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Hosts that make the congestion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources: Option<u32>,
    /// Frames of lower priority are meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<u8>,
    /// The rate field of what was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u8>,
    /// The timer of what was asked, in ticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<u8>,
    /// What is left of the rate, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_permille: Option<u32>,
    /// For how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_us: Option<u64>,
    /// `expired`, `cancelled` or `capped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// A stop packet is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopSent {
    /// Address of the host.
    pub mac: String,
    /// Its name.
    pub name: Option<String>,
    /// What it is asked.
    pub priority: u8,
    /// In ticks.
    pub timer: u8,
    /// 0 = nothing is to be sent.
    pub rate: u8,
}

/// A cancel packet is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopCancelled {
    /// Address of the host.
    pub mac: String,
    /// Its name.
    pub name: Option<String>,
}
