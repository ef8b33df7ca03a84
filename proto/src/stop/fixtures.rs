//! Settings that the tests of stop control share.

use alloc::vec::Vec;

use crate::stop::config::{Accept, AskConfig, ObeyConfig, Presets, PriorityRule, RateRule, Request, StopConfig, Targets, TimerRule};
use crate::time::Duration;
use crate::units::BitRate;
use crate::wire::{EtherType, MacAddr};

/// Whatever is asked, within tight limits.
pub(crate) fn obey_config() -> ObeyConfig {
    ObeyConfig {
        accept: Accept::Anyone,
        timer_rule: TimerRule::Packet,
        priority_rule: PriorityRule::Packet,
        presets: Presets { timer: 50, priority: 15 },
        destinations: Vec::new(),
        resume_jitter: Duration::ZERO,
        longest: Duration::from_millis(20),
        budget_permille: 900,
        forgive_after: Duration::from_millis(100),
    }
}

/// A host on a link of 100 Mbit/s, where 101 bytes take 10 us, that has room for four others.
pub(crate) fn config(rate_rule: RateRule) -> StopConfig {
    let request = Request { priority: 15, timer: 20, rate: 3 };
    StopConfig {
        mac: MacAddr([2, 0, 0, 0, 0, 9]),
        ethertype: EtherType::STOP,
        transport: EtherType::TRANSPORT,
        priority: None,
        key: None,
        started: 1,
        tick: Duration::from_micros(10),
        rate_rule,
        line_rate: BitRate::megabits(100),
        table_size: 4,
        ask: AskConfig { targets: Targets::Contributing, request, requests: Vec::new(), preset_timer: 50 },
        obey: None,
        watch: None,
    }
}
