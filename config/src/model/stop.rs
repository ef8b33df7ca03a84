//! Stop control as the operator wants it. What needs no choice between ways of writing it has the core's own types.

use std::path::PathBuf;

use weft_proto::stop::config::{AskConfig, Combine, Counting, Gap, ObeyConfig, PriorityRule, RateRule, SecondSign, TimerRule};
use weft_proto::wire::EtherType;
use weft_proto::{BitRate, Duration};

use super::Words;
use crate::units::Probability;

/// Receiver-driven stop control of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// EtherType of control packets.
    pub ethertype: EtherType,
    /// 802.1p priority of control packets sent; `None` = untagged.
    pub priority: Option<u8>,
    /// File with the key that control packets are sealed with; `None` = they are not.
    pub key_file: Option<PathBuf>,
    /// One unit of a control packet's timer.
    pub tick: Duration,
    /// How a rate field is meant.
    pub rate_rule: RateRule,
    /// Hosts known or remembered at a time.
    pub table_size: u32,
    /// How this host asks; its requests for particular hosts ordered by address.
    pub ask: AskConfig,
    /// How it obeys, particular hosts ordered by address; `None` = not at all.
    pub obey: Option<ObeyConfig>,
    /// When it asks of itself; `None` = only by hand.
    pub detect: Option<Detect>,
}

/// When a receiving port counts as congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detect {
    /// How the signs of the detectors are combined.
    pub combine: Combine,
    /// Bytes that came in; `None` = not in use.
    pub volume: Option<Volume>,
    /// Gaps between frames; `None` = not in use.
    pub gap: Option<Gap>,
    /// What must be seen besides.
    pub second_sign: SecondSign,
}

/// Valid-data rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// When the sign appears.
    pub detect: VolumeCriterion,
    /// When it is over.
    pub resolve: VolumeCriterion,
    /// Which bytes count.
    pub counting: Counting,
}

/// A threshold of the valid-data rate, and for how long it must be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeCriterion {
    /// How much in a period.
    pub threshold: Threshold,
    /// The monitoring period.
    pub period: Duration,
    /// So many periods in a row.
    pub stages: u32,
}

/// How much in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// A share of what the link carries.
    Share(Probability),
    /// So many bytes.
    Bytes(u64),
}

impl VolumeCriterion {
    /// The threshold in bytes per period on a link of `rate`; at least one, since none is always there.
    pub fn bytes_on(&self, rate: BitRate) -> u64 {
        match self.threshold {
            Threshold::Bytes(bytes) => bytes,
            Threshold::Share(share) => {
                let (part, whole) = (share.parts_per_million(), Probability::ALWAYS.parts_per_million());
                let bytes = u128::from(rate.bytes_in(self.period)) * u128::from(part) / u128::from(whole);
                u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
            }
        }
    }
}

impl Words for RateRule {
    const WORDS: &'static [(&'static str, Self)] =
        &[("absolute", Self::Absolute), ("function", Self::Function), ("halving", Self::Halving)];
}

impl Words for PriorityRule {
    const WORDS: &'static [(&'static str, Self)] =
        &[("packet", Self::Packet), ("selector", Self::Selector), ("local", Self::Local), ("none", Self::None)];
}

impl Words for TimerRule {
    const WORDS: &'static [(&'static str, Self)] = &[("packet", Self::Packet), ("preset", Self::Preset)];
}

impl Words for Combine {
    const WORDS: &'static [(&'static str, Self)] = &[("any", Self::Any), ("all", Self::All)];
}

impl Words for Counting {
    const WORDS: &'static [(&'static str, Self)] = &[("wire", Self::Wire), ("data", Self::Data)];
}
