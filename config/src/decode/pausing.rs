//! `switch.flow_control` and `switch.strict_classes`.

use weft_proto::Duration;
use weft_proto::switch::FlowConfig;

use crate::defaults;
use crate::scalar;
use crate::section::Section;
use crate::units::bytes_text;

/// How many of the highest classes go first. A single class has none to go before.
pub(super) fn strict_classes(switch: &Section<'_>, classes: u32) -> u8 {
    let default = if classes > 1 { defaults::STRICT_CLASSES } else { 0 };
    let most = u8::try_from(classes).unwrap_or(u8::MAX);
    switch.read("strict_classes", default, scalar::integer(0..=most))
}

/// When ports ask for pauses and how long they obey them. The defaults leave room in a queue of `voq_limit` bytes.
pub(super) fn flow_control(section: Section<'_>, voq_limit: u64) -> FlowConfig {
    let bytes = |least| scalar::bytes(least..=defaults::MAX_VOQ_LIMIT);
    let xoff = section.read("xoff", defaults::XOFF.min(voq_limit / 2).max(1), bytes(1));
    let config = FlowConfig {
        xoff,
        xon: section.read("xon", xoff / defaults::XON_PART, bytes(0)),
        pause_time: section.read("pause_time", defaults::PAUSE_TIME, scalar::duration(Duration::from_micros(1), defaults::MAX_PAUSE_TIME)),
        watchdog: section.read(
            "watchdog",
            defaults::PAUSE_WATCHDOG,
            scalar::duration(defaults::MIN_PAUSE_WATCHDOG, defaults::MAX_PAUSE_WATCHDOG),
        ),
    };
    check(&section, &config, voq_limit);
    section.finish();
    config
}

fn check(section: &Section<'_>, config: &FlowConfig, voq_limit: u64) {
    if config.xon > config.xoff {
        let (xon, xoff) = (bytes_text(config.xon), bytes_text(config.xoff));
        section.complain("xon", format!("{xon} is above xoff, which is {xoff}; lower the one or raise the other"));
    }
    if config.xoff > voq_limit {
        let (xoff, limit) = (bytes_text(config.xoff), bytes_text(voq_limit));
        section.complain("xoff", format!("{xoff} is above switch.voq_limit, which is {limit}: frames would be lost before anybody is asked to stop; lower the one or raise the other"));
    }
    if config.watchdog <= config.pause_time {
        let (watchdog, pause) = (config.watchdog, config.pause_time);
        section.complain("watchdog", format!("{watchdog} is not above pause_time, which is {pause}: a single pause would look like a storm; raise the one or lower the other"));
    }
}
