//! Stop control: what is said is what is meant, what is not said follows the link, what is printed reads back.

use weft_config::model::{Stop, Threshold};
use weft_config::{Config, defaults, effective_yaml};
use weft_proto::Duration;
use weft_proto::stop::StopConfig;
use weft_proto::stop::config::{Accept, Combine, Counting, DestinationPresets, PriorityRule, RateRule, Request, Targets, TimerRule};
use weft_proto::wire::MacAddr;

/// Every key with a value that is no default.
const FULL: &str = "
  ethertype: 0xfffe
  priority: 7
  key_file: /etc/weft/stop.key
  tick: 20us
  rate_rule: halving
  table_size: 10
  ask: { targets: [b, \"02:00:00:00:00:0c\"], priority: 9, timer: 100, rate: 4, assumed_timer: 90 }
  obey:
    accept: [b]
    timer_rule: preset
    priority_rule: selector
    timer: 50
    priority: 11
    resume_jitter: 30us
    longest: 90ms
    budget: 50.5%
    forgive_after: 3s
  destinations:
    \"02:00:00:00:00:0c\": { ask: { rate: 8 }, priority: 2 }
    b: { timer: 7 }
  detect:
    combine: all
    volume:
      detect: { share: 90.5%, period: 300us, stages: 3 }
      resolve: { bytes: 1000, period: 400us, stages: 5 }
      count: data
    gap:
      detect: { bytes: 6, period: 500us, stages: 4 }
      resolve: { bytes: 14, period: 600us, stages: 6 }
      resolution: 70us
    second_sign: { sources: false, delay: 800us }
";

const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);
const C: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0c]);

/// A node with a host port of these further keys and this section.
fn node(port: &str, stop: &str) -> Config {
    let text = format!("version: 1\nnode: n\nports: [{{ interface: e, role: host{port} }}]\nhosts: {{ b: \"{B}\" }}\nstop: {stop}\n");
    Config::from_yaml(&text, "test.yaml").unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

fn stop(port: &str, section: &str) -> Stop {
    node(port, section).stop.unwrap()
}

#[test]
fn stop_control_is_off_unless_the_file_has_its_section() {
    assert_eq!(Config::minimal().stop, None);
    assert_eq!(node("", "off").stop, None);
    assert_eq!(stop("", "{}"), stop("", "{ obey: {}, ask: {}, detect: { volume: {} } }"));
}

#[test]
fn what_is_printed_reads_back_to_the_same() {
    let sections = ["off", "{}", FULL, "{ obey: off, detect: off }", "{ detect: { gap: {}, volume: off, second_sign: { delay: off } } }"];
    for config in sections.map(|section| node(", rate: 1Gbit", section)) {
        let printed = effective_yaml(&config);
        assert_eq!(Config::from_yaml(&printed, "printed").unwrap_or_else(|errors| panic!("{errors}\n{printed}")), config);
    }
}

/// The keys of the printed section.
fn keys(section: &str) -> Vec<String> {
    let printed = effective_yaml(&node("", section));
    let lines = printed.lines().skip_while(|line| *line != "stop:").skip(1).take_while(|line| line.starts_with(' '));
    let mut keys: Vec<_> = lines.filter_map(|line| line.split_once(':')).map(|(key, _)| key.trim().to_owned()).collect();
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn the_printed_defaults_have_every_key_that_there_is() {
    let mut full = keys(FULL);
    full.retain(|key| !key.contains("02"));
    // Of a detector that is off by default, and of a threshold written in the other way.
    assert_eq!(full.iter().filter(|key| !keys("{}").contains(key)).collect::<Vec<_>>(), ["bytes", "resolution"]);
}

#[test]
fn what_is_said_is_what_is_meant() {
    let stop = stop("", FULL);
    assert_eq!((stop.ethertype.0, stop.priority, stop.table_size), (0xfffe, Some(7), 10));
    assert_eq!(stop.key_file.as_deref(), Some(std::path::Path::new("/etc/weft/stop.key")));
    assert_eq!((stop.tick, stop.rate_rule), (Duration::from_micros(20), RateRule::Halving));
    let usual = Request { priority: 9, timer: 100, rate: 4 };
    assert_eq!((&stop.ask.targets, stop.ask.request, stop.ask.preset_timer), (&Targets::Listed(vec![B, C]), usual, 90));
    assert_eq!(stop.ask.requests, [(C, Request { rate: 8, ..usual })], "what is not said there is as for everybody");
    let obey = stop.obey.unwrap();
    assert_eq!((obey.accept, obey.timer_rule, obey.priority_rule), (Accept::Listed(vec![B]), TimerRule::Preset, PriorityRule::Selector));
    assert_eq!((obey.presets.timer, obey.presets.priority, obey.budget_permille), (50, 11, 505));
    assert_eq!([obey.resume_jitter, obey.longest, obey.forgive_after].map(Duration::as_micros), [30, 90_000, 3_000_000]);
    let presets = |timer, priority| DestinationPresets { timer, priority };
    assert_eq!(obey.destinations, [(B, presets(Some(7), None)), (C, presets(None, Some(2)))]);
}

#[test]
fn what_is_said_of_detection_is_what_is_meant() {
    let detect = stop("", FULL).detect.unwrap();
    let volume = detect.volume.unwrap();
    assert_eq!((detect.combine, volume.counting), (Combine::All, Counting::Data));
    assert_eq!((volume.detect.period.as_micros(), volume.detect.stages), (300, 3));
    assert_eq!((volume.resolve.threshold, volume.resolve.period.as_micros(), volume.resolve.stages), (Threshold::Bytes(1000), 400, 5));
    assert_eq!(volume.detect.bytes_on(defaults::LINK_RATE), 339_375, "90.5% of 375 kB");
    let gap = detect.gap.unwrap();
    let of = |criterion: weft_proto::stop::config::Criterion| (criterion.threshold, criterion.period.as_micros(), criterion.stages);
    assert_eq!((of(gap.detector.detect), of(gap.detector.resolve), gap.resolution.as_micros()), ((6, 500, 4), (14, 600, 6), 70));
    assert_eq!((detect.second_sign.sources, detect.second_sign.delay), (false, Some(Duration::from_micros(800))));
}

#[test]
fn periods_and_the_delay_that_counts_follow_the_rate_of_the_link() {
    let of = |port: &str| {
        assert_eq!(stop(port, "{}").detect.unwrap().second_sign.delay, None, "off unless it is asked for");
        let detect = stop(port, "{ detect: { second_sign: { delay: auto } } }").detect.unwrap();
        let volume = detect.volume.unwrap();
        [volume.detect.period, volume.resolve.period, detect.second_sign.delay.unwrap()].map(Duration::as_micros)
    };
    assert_eq!(of(""), [200, 200, 500]);
    assert_eq!(of(", rate: 1Gbit"), [200, 200, 500]);
    assert_eq!(of(", rate: 100Mbit"), [500, 500, 1000], "4 full frames take 492.16 us");
    assert_eq!(of(", rate: 100Mbit, mtu: 9000"), [2900, 2900, 5800], "4 of them take 2,892.16 us");
}

#[test]
fn what_the_file_leaves_out_is_what_is_usual() {
    let (given, usual) = (stop("", "{}"), StopConfig::new(B, defaults::LINK_RATE));
    assert_eq!((given.ask, given.obey), (usual.ask, usual.obey));
    assert_eq!((given.tick, given.rate_rule, given.table_size), (usual.tick, usual.rate_rule, usual.table_size));
    assert_eq!((given.ethertype, given.priority), (usual.ethertype, usual.priority));
}

#[test]
fn the_longest_stop_lets_a_switch_of_a_slow_link_send_what_it_holds() {
    let longest = |port: &str| stop(port, "{}").obey.unwrap().longest.as_micros() / 1000;
    assert_eq!([longest(""), longest(", rate: 1Gbit"), longest(", rate: 20Mbit"), longest(", rate: 100kbit")], [200, 200, 1678, 60_000]);
}

#[test]
fn shares_become_bytes_of_a_period_and_never_none() {
    let volume = stop(", rate: 1Gbit", "{}").detect.unwrap().volume.unwrap();
    let rate = weft_proto::BitRate::megabits(1000);
    assert_eq!((volume.detect.bytes_on(rate), volume.resolve.bytes_on(rate)), (20_000, 10_000));
    assert_eq!(volume.detect.bytes_on(weft_proto::BitRate::new(1).unwrap()), 1);
}
