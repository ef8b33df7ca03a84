//! What stop control is told by the operator. Values are taken as they are; the configuration crate refuses nonsense
//! with an explanation before it comes here.

use alloc::vec::Vec;

use crate::time::Duration;
use crate::units::BitRate;
use crate::wire::{EtherType, MacAddr, StopKey};

/// Priorities that a queue pair or a control packet can have: 0 (lowest) to 15.
pub const PRIORITIES: u8 = 16;
/// Above all priorities: everything is meant.
pub const EVERYTHING: u8 = PRIORITIES;
/// The priority of acknowledgements and connection messages: little, and needed by those who slow down.
pub const CONTROL_PRIORITY: u8 = PRIORITIES - 1;

/// Two milliseconds of the usual tick.
const USUAL_TIMER: u8 = 200;

/// Settings of stop control on one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopConfig {
    /// The address that control packets come from and are obeyed at: that of the local transport.
    pub mac: MacAddr,
    /// EtherType of control packets, 0xFF10 to 0xFFFE.
    pub ethertype: EtherType,
    /// EtherType of transport frames, which carry their sender's clock.
    pub transport: EtherType,
    /// 802.1p priority of control packets sent; `None` = untagged.
    pub priority: Option<u8>,
    /// Control packets carry, and must carry, a tag made with this key.
    pub key: Option<StopKey>,
    /// When the node started, in milliseconds of a clock that restarts do not turn back: where sequence numbers begin.
    pub started: u64,
    /// One unit of a control packet's timer.
    pub tick: Duration,
    /// How a rate field is meant, here and by those that we ask.
    pub rate_rule: RateRule,
    /// Rate of the link, of which others take their share.
    pub line_rate: BitRate,
    /// Hosts known or remembered at a time, of each kind: those that ask us, and those that we ask.
    pub table_size: u32,
    /// How we ask.
    pub ask: AskConfig,
    /// How we obey; `None` = not at all.
    pub obey: Option<ObeyConfig>,
    /// When we ask of ourselves; `None` = only by hand.
    pub watch: Option<WatchConfig>,
}

impl StopConfig {
    /// The usual settings: everybody is obeyed, and nobody is asked but by hand.
    pub const fn new(mac: MacAddr, line_rate: BitRate) -> Self {
        Self {
            mac,
            ethertype: EtherType::STOP,
            transport: EtherType::TRANSPORT,
            priority: None,
            key: None,
            started: 1,
            tick: Duration::from_micros(10),
            rate_rule: RateRule::Absolute,
            line_rate,
            table_size: 4096,
            ask: AskConfig {
                targets: Targets::Contributing,
                request: Request { priority: CONTROL_PRIORITY, timer: USUAL_TIMER, rate: 0 },
                requests: Vec::new(),
                preset_timer: USUAL_TIMER,
            },
            obey: Some(ObeyConfig::new()),
            watch: None,
        }
    }
}

/// What a rate field means (the source's rules 1b, 2b and 3b).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateRule {
    /// n/16 of the unreduced rate.
    Absolute,
    /// n + r - 8 sixteenths, from 0 to 15, of a rate that was r sixteenths.
    Function,
    /// The rate so far, halved n times.
    Halving,
}

/// Which frames a stop packet means: those of lower priority than what this rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PriorityRule {
    /// The packet's priority; if that is 0, the preset.
    Packet,
    /// The packet's top two bits choose: 00 the overall preset, 01 the destination's, 10 the packet's priority, 11 everything.
    Selector,
    /// Always the preset.
    Local,
    /// Everything.
    None,
}

/// How long a stop packet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerRule {
    /// As long as the packet says; if that is 0, the preset.
    Packet,
    /// Always the preset.
    Preset,
}

/// What a stop packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Frames of lower priority are meant, 0 to 15; the receiver's [`PriorityRule`] decides.
    pub priority: u8,
    /// In ticks; 0 = the receiver's preset.
    pub timer: u8,
    /// 0 to 15, see [`RateRule`].
    pub rate: u8,
}

/// How we ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskConfig {
    /// Whom we ask.
    pub targets: Targets,
    /// What we ask.
    pub request: Request,
    /// What we ask of particular hosts instead.
    pub requests: Vec<(MacAddr, Request)>,
    /// What those that we ask are believed to take for a timer of 0, in ticks.
    pub preset_timer: u8,
}

/// Who is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Those whose frames make the congestion.
    Contributing,
    /// These, always.
    Listed(Vec<MacAddr>),
}

/// How we obey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObeyConfig {
    /// Whom we obey.
    pub accept: Accept,
    /// How long a stop packet holds.
    pub timer_rule: TimerRule,
    /// Which frames it means.
    pub priority_rule: PriorityRule,
    /// The presets for everybody.
    pub presets: Presets,
    /// Presets for particular hosts, where they differ.
    pub destinations: Vec<(MacAddr, DestinationPresets)>,
    /// A host that may send again waits up to so long, at random, so that not all begin at once.
    pub resume_jitter: Duration,
    /// Longest time for which one host may stop us altogether without a pause.
    pub longest: Duration,
    /// Share of the time for which one host may hold us back in the long run, in thousandths.
    pub budget_permille: u32,
    /// A host that exceeded either is obeyed again when it has not asked for so long.
    pub forgive_after: Duration,
}

impl ObeyConfig {
    /// The usual settings: everybody is obeyed as his packets say.
    pub const fn new() -> Self {
        Self {
            accept: Accept::Anyone,
            timer_rule: TimerRule::Packet,
            priority_rule: PriorityRule::Packet,
            presets: Presets { timer: USUAL_TIMER, priority: CONTROL_PRIORITY },
            destinations: Vec::new(),
            resume_jitter: Duration::ZERO,
            longest: Duration::from_millis(200),
            budget_permille: 970,
            forgive_after: Duration::from_secs(1),
        }
    }
}

impl Default for ObeyConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// What holds where a packet leaves it to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presets {
    /// In ticks, 1 to 255.
    pub timer: u8,
    /// 0 to 15.
    pub priority: u8,
}

/// What holds for one host where a packet leaves it to us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DestinationPresets {
    /// In ticks, 1 to 255.
    pub timer: Option<u8>,
    /// 0 to 15.
    pub priority: Option<u8>,
}

/// Who is obeyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Everybody.
    Anyone,
    /// These.
    Listed(Vec<MacAddr>),
}

/// When a receiving port counts as congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchConfig {
    /// Bytes that came in.
    pub volume: Option<Volume>,
    /// Gaps between frames.
    pub gap: Option<Gap>,
    /// Preambles.
    pub delimiter: Option<Detector>,
    /// How their signs are combined.
    pub combine: Combine,
    /// What must be seen besides.
    pub second_sign: SecondSign,
}

impl WatchConfig {
    /// By bytes alone, from more than one host.
    pub const fn of_volume(detector: Detector, counting: Counting) -> Self {
        Self {
            volume: Some(Volume { detector, counting }),
            gap: None,
            delimiter: None,
            combine: Combine::Any,
            second_sign: SecondSign { sources: true, delay: None },
        }
    }
}

/// How the signs of several detectors are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// One is enough; it is over when none is left.
    Any,
    /// It takes all; it is over when one is gone.
    All,
}

/// A threshold, and for how long it must be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Criterion {
    /// In the detector's unit.
    pub threshold: u64,
    /// The monitoring period.
    pub period: Duration,
    /// So many periods in a row (the source's protection stages), at least 1.
    pub stages: u32,
}

/// When a sign appears, and when it is over. What lies between changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detector {
    /// When it appears.
    pub detect: Criterion,
    /// When it is over.
    pub resolve: Criterion,
}

/// Valid-data rate: bytes per period at or above the one threshold, then below the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Thresholds in bytes per period.
    pub detector: Detector,
    /// Which bytes.
    pub counting: Counting,
}

/// Which bytes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counting {
    /// What a frame takes on the wire, preamble, FCS and gap included: short frames fill a link, too.
    Wire,
    /// The bytes of the frame.
    Data,
}

/// Packet interval: bytes between two frames at or below the one threshold, then at or above the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Thresholds in bytes.
    pub detector: Detector,
    /// Arrivals closer together than this are seen as one, with the mean of their gaps: how finely times can be told.
    pub resolution: Duration,
}

/// A full link says nothing about the queue in front of it if one sender fills it alone. One of these is asked for
/// besides; if both are off, a full link is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecondSign {
    /// More than one host contributes.
    pub sources: bool,
    /// Packets of the transport take so much longer than the fastest lately.
    pub delay: Option<Duration>,
}
