//! `transport.congestion`, its parameters, and `switch.marking`.

use weft_proto::Duration;
use weft_proto::transport::congestion::Algorithm;

use crate::defaults;
use crate::model::{Congestion, Marking};
use crate::scalar;
use crate::section::Section;

use super::check_order;

/// The algorithm of a transport and the parameters that are worth turning.
pub(super) fn congestion(transport: &Section<'_>) -> Congestion {
    let algorithm = transport.read("congestion", Algorithm::None, scalar::word);
    let section = transport.section("congestion_parameters");
    let span = |key, default| section.read(key, default, scalar::duration(Duration::from_micros(1), defaults::MAX_CONGESTION_TIME));
    let congestion = Congestion {
        algorithm,
        first_window: section.read("first_window", defaults::FIRST_WINDOW, scalar::integer(1..=defaults::MAX_BDP_CAP)),
        queueing_delay: span("queueing_delay", defaults::QUEUEING_DELAY),
        flow_scaling: section.read("flow_scaling", defaults::FLOW_SCALING, scalar::duration(Duration::ZERO, defaults::MAX_CONGESTION_TIME)),
        timely_low: span("timely_low", defaults::TIMELY_LOW),
        timely_high: span("timely_high", defaults::TIMELY_HIGH),
        notification_interval: span("notification_interval", defaults::NOTIFICATION_INTERVAL),
        min_rate: section.read("min_rate", defaults::MIN_CONGESTION_RATE, scalar::rate),
    };
    check_order(&section, ("timely_low", congestion.timely_low), ("timely_high", congestion.timely_high));
    section.finish();
    congestion
}

/// When the switch marks; `None` = never. The default is a part of the queue limit, so that it is reached before drops.
pub(super) fn marking(section: Section<'_>, voq_limit: u64) -> Option<Marking> {
    let bytes = || scalar::bytes(0..=defaults::MAX_VOQ_LIMIT);
    let enabled = section.read("enabled", true, scalar::boolean);
    let kmin = section.read("kmin", voq_limit / defaults::MARKING_PART, bytes());
    let marking = Marking {
        kmin,
        kmax: section.read("kmax", kmin, bytes()),
        pmax: section.read("pmax", defaults::MARKING_PMAX, scalar::probability),
    };
    check_order(&section, ("kmin", marking.kmin), ("kmax", marking.kmax));
    check_order(&section, ("kmax", marking.kmax), ("switch.voq_limit", voq_limit));
    section.finish();
    enabled.then_some(marking)
}
