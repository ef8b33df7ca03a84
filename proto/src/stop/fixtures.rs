//! Settings that the tests of stop control share.

use crate::stop::config::{AskConfig, ObeyConfig, Presets, RateRule, Request, StopConfig};
use crate::time::Duration;
use crate::units::BitRate;
use crate::wire::MacAddr;

/// Whatever is asked, within tight limits.
pub(crate) fn obey_config() -> ObeyConfig {
    ObeyConfig {
        presets: Presets { timer: 50, priority: 15 },
        longest: Duration::from_millis(20),
        budget_permille: 900,
        forgive_after: Duration::from_millis(100),
        ..ObeyConfig::new()
    }
}

/// A host on a link of 100 Mbit/s, where 101 bytes take 10 us, that has room for four others.
pub(crate) fn config(rate_rule: RateRule) -> StopConfig {
    let usual = StopConfig::new(MacAddr([2, 0, 0, 0, 0, 9]), BitRate::megabits(100));
    let ask = AskConfig { request: Request { priority: 15, timer: 20, rate: 3 }, preset_timer: 50, ..usual.ask };
    StopConfig { rate_rule, table_size: 4, ask, obey: None, ..usual }
}
