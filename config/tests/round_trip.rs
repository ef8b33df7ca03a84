//! Configurations survive being printed, and any text is read to a configuration or a message.

use std::fmt::Write;

use proptest::prelude::*;
use weft_config::model::{BdpCap, Transport};
use weft_config::{Config, defaults, effective_yaml};

/// A file that gives every key that there is a value of its own.
const FULL: &str = include_str!("full.yaml");

fn read(text: &str) -> Config {
    Config::from_yaml(text, "test.yaml").unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

#[test]
fn the_printed_configuration_reads_back_to_an_equal_one() {
    for config in [Config::minimal(), read(FULL)] {
        assert_eq!(read(&effective_yaml(&config)), config);
    }
}

/// Keys of a document, without their values.
fn keys(yaml: &str) -> Vec<String> {
    let words = yaml.lines().filter_map(|line| line.split_once(':'));
    words.map(|(key, _)| key.trim_start_matches([' ', '-']).to_owned()).collect()
}

#[test]
fn the_printed_defaults_have_every_key_that_a_full_file_has() {
    let (mut all, mut defaults) = (keys(&effective_yaml(&read(FULL))), keys(&effective_yaml(&Config::minimal())));
    for list in [&mut all, &mut defaults] {
        list.sort();
        list.dedup();
    }
    all.retain(|key| key != "b" && key != "c.example");
    assert_eq!(defaults, all);
}

#[test]
fn no_value_of_the_full_file_is_a_default() {
    let (full, defaults) = (effective_yaml(&read(FULL)), effective_yaml(&Config::minimal()));
    // Lists of numbers, which take more lines than the words that are their defaults.
    let full = full.lines().filter(|line| line.contains(':') || !line.trim_start().starts_with('-'));
    let same: Vec<_> = full.zip(defaults.lines()).filter(|(a, b)| a == b && !a.trim_end().ends_with(':')).map(|(a, _)| a).collect();
    // Stop control, which takes a host port, has tests of its own. The version has one value, metrics would lose their address if disabled, and fewer classes would have fewer weights.
    assert_eq!(same, ["version: 1", "  enabled: true", "  classes: 8", "    enabled: true", "  bdp_fc: on", "stop: off"]);
}

#[test]
fn defaults_are_those_of_the_module_of_defaults() {
    let config = Config::minimal();
    assert_eq!(config.transport.keepalive, defaults::KEEPALIVE);
    assert_eq!(config.ports[0].name, "eth0");
    assert_eq!(config.link_rate(), defaults::LINK_RATE);
    assert_eq!(config.metrics, Some(defaults::METRICS_LISTEN));
}

/// The transport section `text` with everything around it.
fn transport(text: &str) -> Transport {
    read(&format!("version: 1\nnode: n\nports: [{{ interface: e, role: host }}]\ntransport: {text}\n")).transport
}

#[test]
fn timing_that_is_not_given_follows_what_is_given() {
    let micros = |transport: Transport| [transport.rto_low, transport.rto_high, transport.ack_delay].map(|span| span.as_nanos() / 1_000);
    assert_eq!(micros(transport("{}")), [1_000, 4_000, 100]);
    assert_eq!(micros(transport("{ rto_low: 5ms }")), [5_000, 20_000, 500]);
    assert_eq!(
        [transport("{}"), transport("{ bdp_fc: off }"), transport("{ bdp_fc: on, bdp_cap: 9 }")].map(|t| t.bdp_cap),
        [BdpCap::Auto, BdpCap::Off, BdpCap::Packets(9)]
    );
    assert_eq!((transport("{}").ack_every, transport("{ bdp_cap: 8 }").ack_every), (16, 8));
    // The paper's values, with an acknowledgement per packet, leave nothing to wait for.
    assert_eq!(micros(transport("{ recovery: irn-strict, rto_low: 100us, rto_high: 320us, ack_delay: 100us }")), [100, 320, 100]);
}

#[test]
fn a_node_with_few_queues_and_regions_gives_no_application_more() {
    let text = "version: 1\nnode: n\nports: [{ interface: e, role: host }]\ntransport: { max_qps: 10, max_regions: 20, max_srqs: 3 }\n";
    let limits = read(text).applications;
    assert_eq!((limits.max_qps_per_application, limits.max_regions_per_application, limits.max_srqs_per_application), (10, 20, 3));
}

#[test]
fn flow_control_and_strict_classes_follow_the_queues_there_are() {
    let switch = |text: &str| read(&format!("version: 1\nnode: n\nports: [{{ interface: e, role: host }}]\nswitch: {text}\n")).switch;
    let thresholds = |text| (switch(text).flow_control.xoff, switch(text).flow_control.xon);
    assert_eq!(thresholds("{}"), (64 << 10, 32 << 10));
    assert_eq!(thresholds("{ voq_limit: 50KiB }"), (25 << 10, 25 << 9), "half of the queue stays for what is on its way");
    assert_eq!(thresholds("{ flow_control: { xoff: 10KiB } }"), (10 << 10, 5 << 10));
    assert_eq!([switch("{}"), switch("{ classes: 2 }"), switch("{ classes: 1 }")].map(|s| s.strict_classes), [1, 1, 0]);
}

fn percent() -> impl Strategy<Value = String> {
    (0..=1_000_000_u32).prop_map(|parts| format!("{parts}ppm"))
}

fn span(nanos: std::ops::Range<u64>) -> impl Strategy<Value = String> {
    nanos.prop_map(|nanos| format!("{nanos}ns"))
}

prop_compose! {
    fn impairment()(loss in percent(), reorder in percent(), reorder_delay in span(1..1_000_000), jitter in span(0..1_000_000)) -> String {
        format!("{{ loss: {loss}, reorder: {reorder}, reorder_delay: {reorder_delay}, jitter: {jitter} }}")
    }
}

prop_compose! {
    fn ports()(ports in prop::collection::vec((20_000..1_000_000_000_000_u64, 272..9000_u32, impairment(), impairment(), any::<u64>()), 1..5)) -> String {
        let mut text = String::new();
        for (index, (rate, mtu, ingress, egress, seed)) in ports.into_iter().enumerate() {
            let impair = format!("{{ ingress: {ingress}, egress: {egress}, seed: {seed} }}");
            let rate = rate.max(u64::from(mtu) * 8 + 200);
            writeln!(text, "  - {{ interface: e{index}, role: switch, rate: {rate}bit, mtu: {mtu}, impair: {impair} }}").unwrap();
        }
        text
    }
}

prop_compose! {
    fn files()(
        ports in ports(),
        hosts in prop::collection::btree_map("[a-z0-9][a-z0-9._-]{0,8}", any::<[u8; 4]>(), 0..4),
        rto_low in 50_000..1_000_000_u64,
        more in 0..1_000_000_u64,
        voq in 10_000..10_000_000_u64,
        weights in prop::collection::btree_map(0..8_u8, 1..1000_u32, 0..8),
    ) -> String {
        let mut text = format!("version: 1\nnode: n\nports:\n{ports}switch: {{ voq_limit: {voq}, weights: {{");
        for (class, weight) in weights {
            write!(text, " {class}: {weight},").unwrap();
        }
        let high = rto_low + more;
        write!(text, "}} }}\ntransport: {{ ack_delay: 10us, rto_low: {rto_low}ns, rto_high: {high}ns }}\nhosts:\n").unwrap();
        for (index, (name, [a, b, c, d])) in hosts.into_iter().enumerate() {
            writeln!(text, "  {name}: \"02:{index:02x}:{a:02x}:{b:02x}:{c:02x}:{d:02x}\"").unwrap();
        }
        text
    }
}

/// Pieces of configurations, put together at random: deeper into the reader than random letters get.
fn soup() -> impl Strategy<Value = String> {
    let words = [
        "version",
        "node",
        "ports",
        "switch",
        "transport",
        "hosts",
        "weights",
        "impair",
        "ingress",
        "interface",
        "role",
        "rate",
        "rto_low",
        "ethertype",
        "mode",
        "socket",
        "1",
        "0",
        "-1",
        "0x88b5",
        "1e309",
        ".nan",
        "1%",
        "5us",
        "10Gbit",
        "a",
        "\"",
        "'",
        "~",
        "|",
        ">",
        "&a",
        "*a",
        "<<",
        "!t",
        "!!int",
        "#",
        "%TAG",
        "---",
        "...",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        ": ",
        "- ",
        "? ",
        "\n",
        "\n  ",
        "\n    ",
        "\t",
        "\r",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..60).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn any_valid_configuration_survives_being_printed(text in files()) {
        let config = read(&text);
        prop_assert_eq!(read(&effective_yaml(&config)), config);
    }

    #[test]
    fn any_text_is_a_configuration_or_a_list_of_problems(text in prop_oneof![any::<String>(), soup()]) {
        if let Err(errors) = Config::from_yaml(&text, "f.yaml") {
            prop_assert!(!errors.problems.is_empty());
            prop_assert!(errors.to_string().lines().all(|line| line.starts_with("f.yaml")), "{}", errors);
        }
    }

    #[test]
    fn a_damaged_file_is_a_configuration_or_a_list_of_problems(at in 0..FULL.len(), with in soup(), skip in 0..40_usize) {
        let (head, tail) = (FULL.get(..at).unwrap_or(""), FULL.get(at + skip..).unwrap_or(""));
        let text = format!("{head}{with}{tail}");
        if let Err(errors) = Config::from_yaml(&text, "f.yaml") {
            prop_assert!(!errors.problems.is_empty());
        }
    }
}
