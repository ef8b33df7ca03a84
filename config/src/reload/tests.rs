use super::*;
use crate::units::Probability;

const BASE: &str = "
version: 1
node: a
ports:
  - { name: p, interface: eth0, role: switch, rate: 1Gbit }
  - { interface: eth1, role: host }
hosts: { b: '02:00:00:00:00:0b' }
";

fn base() -> Config {
    Config::from_yaml(BASE, "base").unwrap()
}

#[test]
fn an_equal_configuration_changes_nothing() {
    assert_eq!(base().reload_from(&base()), Ok(Reload::default()));
}

#[test]
fn live_changes_are_listed_typed_and_in_words() {
    let mut new = base();
    new.ports[0].rate = None;
    new.ports[1].impair.egress.loss = Probability::from_parts_per_million(10_000).unwrap();
    new.hosts.clear();
    new.switch.mac_ageing = Duration::from_secs(60);
    new.switch.voq_limit = 1 << 16;
    new.switch.weights[7] = 4;
    new.switch.strict_classes = 3;
    new.switch.flow_control.xoff = 1 << 15;
    new.ports[0].flow_control = FlowControl::Pfc;
    new.log = LogLevel::Debug;
    let reload = base().reload_from(&new).unwrap();
    assert_eq!(
        reload.changes,
        [
            Change::PortRate { port: 0, rate: None },
            Change::PortFlowControl { port: 0, kind: FlowControl::Pfc },
            Change::PortImpairment { port: 1, impair: new.ports[1].impair },
            Change::Hosts(BTreeMap::new()),
            Change::MacAgeing(Duration::from_secs(60)),
            Change::VoqLimit(1 << 16),
            Change::Weights(vec![1, 1, 1, 1, 1, 1, 1, 4]),
            Change::StrictClasses(3),
            Change::FlowControl(new.switch.flow_control),
            Change::Log(LogLevel::Debug),
        ]
    );
    assert_eq!(
        reload.lines,
        [
            "hosts.b: 02:00:00:00:00:0b -> (absent)",
            "log: info -> debug",
            "ports[0].flow_control: none -> pfc",
            "ports[0].rate: 1Gbit -> none",
            "ports[1].impair.egress.loss: 0% -> 1%",
            "switch.flow_control.xoff: 64KiB -> 32KiB",
            "switch.mac_ageing: 300s -> 60s",
            "switch.strict_classes: 1 -> 3",
            "switch.voq_limit: 1MiB -> 64KiB",
            "switch.weights.7: 1 -> 4",
        ]
    );
}

#[test]
fn stop_control_and_the_rate_that_it_reckons_with_apply_live() {
    let with = |text: &str| Config::from_yaml(&format!("version: 1\nnode: a\n{text}\n"), "f").unwrap();
    let (off, on, slow) = (
        with("ports: [{ interface: e0, role: host }]"),
        with("ports: [{ interface: e0, role: host }]\nstop: {}"),
        with("ports: [{ interface: e0, role: host, rate: 1Gbit }]\nstop: {}"),
    );
    assert_eq!(off.reload_from(&on).unwrap().changes, [Change::Stop]);
    assert_eq!(on.reload_from(&off).unwrap().changes, [Change::Stop]);
    let rate = Change::PortRate { port: 0, rate: slow.ports[0].rate };
    assert_eq!(on.reload_from(&slow).unwrap().changes, [rate, Change::Stop]);
    let tick = with("ports: [{ interface: e0, role: host }]\nstop: { tick: 20us }");
    assert_eq!(on.reload_from(&tick).unwrap().lines, ["stop.tick: 10us -> 20us"]);
}

/// The keys that a reload refuses after `change`.
fn refused(change: impl FnOnce(&mut Config)) -> Vec<String> {
    let mut new = base();
    change(&mut new);
    new.log = LogLevel::Trace;
    base().reload_from(&new).unwrap_err().into_iter().map(|refusal| refusal.key).collect()
}

#[test]
fn what_needs_a_restart_is_refused_by_key_and_nothing_is_applied() {
    assert_eq!(refused(|config| config.node = "x".to_owned()), ["node"]);
    assert_eq!(refused(|config| config.control.socket = "/x".into()), ["control.socket"]);
    assert_eq!(refused(|config| config.applications.max_applications = 1), ["applications.max_applications"]);
    assert_eq!(refused(|config| config.metrics = None), ["metrics.enabled", "metrics.listen"]);
    assert_eq!(refused(|config| config.ports[1].interface = "eth9".to_owned()), ["ports[1].interface"]);
    assert_eq!(refused(|config| config.ports[0].mtu = Some(9000)), ["ports[0].mtu"]);
    assert_eq!(refused(|config| drop(config.ports.pop())), ["ports"]);
    assert_eq!(refused(|config| config.switch.weights.truncate(7)), ["switch.classes"]);
    assert_eq!(refused(|config| config.transport.rto_low = Duration::from_micros(500)), ["transport.rto_low"]);
    assert_eq!(refused(|config| config.worker.frames = 8192), ["worker.frames"]);
}

#[test]
fn a_refusal_says_what_to_do() {
    let mut new = base();
    new.worker.frames = 8192;
    let refusals = base().reload_from(&new).unwrap_err();
    assert_eq!(refusals[0].to_string(), "worker.frames: 4096 -> 8192 cannot change while weftd runs; restart weftd");
}
