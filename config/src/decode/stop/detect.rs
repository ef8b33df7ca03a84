//! `stop.detect`: when a receiving port counts as congested. What is not given follows the rate of the link.

use weft_proto::stop::config::{Combine, Counting, Criterion, Detector, Gap, SecondSign};
use weft_proto::{BitRate, Duration};

use crate::decode::check_order;
use crate::decode::stop::link_rate;
use crate::defaults;
use crate::document::Node;
use crate::model::{Backend, Detect, Port, Role, Threshold, Volume, VolumeCriterion};
use crate::scalar;
use crate::section::Section;
use crate::units::{self, Probability};

/// The detectors and how they are combined; `None` if switched off.
pub(super) fn detect(stop: &Section<'_>, ports: &[Port]) -> Option<Detect> {
    let section = stop.section_or_off("detect")?;
    let host = ports.iter().find(|port| port.role == Role::Host);
    let link = Link {
        rate: link_rate(ports),
        frame: host.and_then(|port| port.mtu).map_or(defaults::FRAME_PAYLOAD, u64::from) + defaults::FRAME_ON_WIRE_BESIDES,
    };
    let volume = section.section_or_off("volume").map(|section| volume(section, link));
    let gap = section.section_or_off("gap").filter(|_| section.has("gap")).map(|section| gap(section, link));
    if gap.is_some() && ports.iter().any(|port| port.role == Role::Host && port.backend == Backend::Pnet) {
        section.complain("gap", "the pnet backend does not tell when frames arrived; give the port backend: packet, or write gap: off");
    }
    if section.section_or_off("delimiter").is_some() && section.has("delimiter") {
        section.complain(
            "delimiter",
            "no Linux socket shows the preambles of frames, so this detector works only on the simulated link; use volume or gap instead",
        );
    }
    let spans = [volume.map(|volume| span(volume.detect.period, volume.detect.stages)), gap.map(|gap| arise(&gap.detector.detect))];
    let Some(longest) = spans.into_iter().flatten().max() else {
        section.complain("volume", "no detector is in use; turn volume or gap on, or write detect: off");
        return None;
    };
    let detect = Detect {
        combine: section.read("combine", Combine::Any, scalar::word),
        volume,
        gap,
        second_sign: second_sign(section.section("second_sign"), longest),
    };
    section.finish();
    Some(detect)
}

/// What defaults follow.
#[derive(Clone, Copy, Debug)]
struct Link {
    rate: BitRate,
    /// Bytes that a full frame takes on the wire.
    frame: u64,
}

fn arise(criterion: &Criterion) -> Duration {
    span(criterion.period, criterion.stages)
}

fn span(period: Duration, stages: u32) -> Duration {
    period.saturating_mul(u64::from(stages))
}

/// Long enough for full frames of a slow link, and for a receiver that looks now and then.
fn usual_period(link: Link) -> Duration {
    let frames = link.rate.time_for(defaults::FRAMES_PER_PERIOD * link.frame).as_nanos();
    Duration::from_nanos(frames.next_multiple_of(defaults::PERIOD_STEP.as_nanos())).max(defaults::MIN_DETECT_PERIOD)
}

fn period(node: &Node) -> Result<Duration, String> {
    let least = defaults::MIN_DETECT_PERIOD;
    let period = scalar::duration(Duration::from_nanos(1), defaults::MAX_DETECT_PERIOD)(node)?;
    if period < least {
        let poll = defaults::POLL_PERIOD;
        return Err(format!(
            "{period} is too short; at least {least} are needed: a receiver takes frames in batches, every {poll} or so, and one period has to hold several"
        ));
    }
    Ok(period)
}

fn timing(section: &Section<'_>, (usual_period, usual_stages): (Duration, u32)) -> (Duration, u32) {
    let stages = scalar::integer(1..=defaults::MAX_DETECT_STAGES);
    (section.read("period", usual_period, period), section.read("stages", usual_stages, stages))
}

// ---- valid-data rate

fn volume(section: Section<'_>, link: Link) -> Volume {
    let rate = link.rate;
    let usual = (usual_period(link), defaults::DETECT_STAGES);
    let detect = volume_criterion(section.section("detect"), defaults::DETECT_SHARE_PPM, usual, rate);
    let volume = Volume {
        detect,
        resolve: volume_criterion(section.section("resolve"), defaults::RESOLVE_SHARE_PPM, (detect.period, defaults::RESOLVE_STAGES), rate),
        counting: section.read("count", Counting::Wire, scalar::word),
    };
    let (detect, resolve) = (detect.bytes_on(rate), volume.resolve.bytes_on(rate));
    // Compared as rates: their periods may differ.
    let per = |bytes: u64, period: Duration| u128::from(bytes) * u128::from(period.as_nanos());
    if per(resolve, volume.detect.period) > per(detect, volume.resolve.period) {
        section.complain(
            "resolve",
            format!(
                "{} in {} are more than the {} in {} of detect: signs would come and go at the same load; lower the one or raise the other",
                units::bytes_text(resolve),
                volume.resolve.period,
                units::bytes_text(detect),
                volume.detect.period
            ),
        );
    }
    section.finish();
    volume
}

fn volume_criterion(section: Section<'_>, usual_share: u32, usual: (Duration, u32), rate: BitRate) -> VolumeCriterion {
    let share = Probability::from_parts_per_million(usual_share).unwrap_or(Probability::ALWAYS);
    if section.has("share") && section.has("bytes") {
        section.complain("bytes", "share is given, too; leave one of them out");
    }
    let share = section.read("share", share, share_of_rate);
    let bytes = section.read("bytes", None, |node| scalar::bytes(1..=defaults::MAX_VOQ_LIMIT)(node).map(Some));
    let (period, stages) = timing(&section, usual);
    let carried = rate.bytes_in(period);
    if let Some(bytes) = bytes.filter(|&bytes| bytes > carried) {
        let (bytes, carried, rate) = (units::bytes_text(bytes), units::bytes_text(carried), units::rate_text(rate));
        section.complain(
            "bytes",
            format!("{bytes} are more than a link of {rate} carries in {period}, which is {carried}; lower it, or write a share"),
        );
    }
    section.finish();
    VolumeCriterion { threshold: bytes.map_or(Threshold::Share(share), Threshold::Bytes), period, stages }
}

fn share_of_rate(node: &Node) -> Result<Probability, String> {
    let share = scalar::probability(node)?;
    if share == Probability::NEVER {
        Err(format!("{share} is always reached; write how much of the link's rate, as in 80%"))
    } else {
        Ok(share)
    }
}

// ---- packet interval

fn gap(section: Section<'_>, link: Link) -> Gap {
    let detect = gap_criterion(section.section("detect"), defaults::DETECT_GAP, (usual_period(link), defaults::DETECT_STAGES));
    let resolve = gap_criterion(section.section("resolve"), defaults::RESOLVE_GAP, (detect.period, defaults::RESOLVE_STAGES));
    let resolution = scalar::duration(Duration::ZERO, defaults::MAX_DETECT_PERIOD);
    let resolution = section.read("resolution", defaults::GAP_RESOLUTION, resolution);
    check_order(&section, ("detect.bytes", detect.threshold), ("resolve.bytes", resolve.threshold));
    check_order(&section, ("resolution", resolution), ("detect.period", detect.period));
    check_order(&section, ("resolution", resolution), ("resolve.period", resolve.period));
    section.finish();
    Gap { detector: Detector { detect, resolve }, resolution }
}

fn gap_criterion(section: Section<'_>, usual_bytes: u64, usual: (Duration, u32)) -> Criterion {
    let threshold = section.read("bytes", usual_bytes, scalar::bytes(0..=defaults::MAX_GAP));
    let (period, stages) = timing(&section, usual);
    section.finish();
    Criterion { threshold, period, stages }
}

// ---- second sign

fn second_sign(section: Section<'_>, longest: Duration) -> SecondSign {
    let usual = longest.max(defaults::MIN_DELAY_SIGN);
    let sign = SecondSign {
        sources: section.read("sources", true, scalar::boolean),
        // The clock in a packet is read when it is built: a sender with a long queue of its own would look congested.
        delay: section.read("delay", None, |node| delay(node, usual)),
    };
    section.finish();
    sign
}

/// `auto`, `off` or a duration.
fn delay(node: &Node, usual: Duration) -> Result<Option<Duration>, String> {
    match scalar::text(node) {
        Ok("auto") => Ok(Some(usual)),
        Ok("off") => Ok(None),
        _ => match scalar::duration(Duration::from_micros(1), defaults::MAX_DETECT_PERIOD)(node) {
            Ok(delay) => Ok(Some(delay)),
            Err(message) => Err(format!("{message}; or write auto or off")),
        },
    }
}
