use super::*;

const DEMO: &str = "
name: demo
nodes: { a: {kind: host}, b: {kind: host}, s: {kind: switch} }
links:
  - { ends: [a, s], rate: 2Gbit, delay: 50us, loss: 1%, seed: 7 }
  - { ends: [b, s], mtu: 9000 }
";

fn parse(text: &str) -> Result<Lab, String> {
    Lab::from_yaml(text, "lab.yaml").map_err(|error| error.to_string())
}

fn node_file(lab: &Lab, name: &str) -> serde_yaml::Value {
    let text = lab.node_file(lab.node(name).unwrap(), Path::new("/run/weft/labs/demo").join(name).as_path());
    serde_yaml::from_str(&text).unwrap()
}

#[test]
fn the_switch_end_applies_the_impairment_in_both_directions() {
    let lab = parse(DEMO).unwrap();
    let switch = node_file(&lab, "s");
    let port = &switch["ports"][0];
    assert_eq!(port["name"], "a");
    assert_eq!(port["role"], "switch");
    assert_eq!(port["rate"], "2Gbit");
    assert_eq!(port["impair"]["ingress"]["loss"], "1%");
    assert_eq!(port["impair"]["egress"]["delay"], "50us");
    assert_eq!(port["impair"]["seed"], 7);
    let host = node_file(&lab, "a");
    assert!(host["ports"][0].get("impair").is_none());
    assert_eq!(host["ports"][0]["rate"], "2Gbit", "the rate holds in both directions");
}

#[test]
fn a_host_of_a_lab_has_stop_control_as_its_topology_says_and_a_switch_has_none() {
    let text = |a: &str, s: &str| {
        format!(
            "{{name: x, nodes: {{a: {{kind: host{a}}}, b: {{kind: host}}, s: {{kind: switch{s}}}}}, links: [{{ends: [a, s]}}, {{ends: [b, s]}}]}}"
        )
    };
    let lab = parse(&text(", stop: {tick: 20us, ask: {targets: [b]}}", "")).unwrap();
    assert_eq!(node_file(&lab, "a")["stop"]["tick"], "20us");
    assert_eq!(node_file(&lab, "b").get("stop"), None);
    let wrong = parse(&text(", stop: {tick: 20}", "")).unwrap_err();
    assert!(wrong.contains("nodes.a.config: stop.tick: \"20\" has no unit"), "{wrong}");
    let switch = parse(&text("", ", stop: {}")).unwrap_err();
    assert!(switch.contains("nodes.s.stop: stop control is for hosts"), "{switch}");
}

#[test]
fn a_link_without_a_switch_is_impaired_at_its_first_end() {
    let lab = parse("{name: x, nodes: {a: {kind: host}, b: {kind: host}}, links: [{ends: [b, a], loss: 2%}]}").unwrap();
    assert_eq!(node_file(&lab, "b")["ports"][0]["impair"]["ingress"]["loss"], "2%");
    assert!(node_file(&lab, "a")["ports"][0].get("impair").is_none());
}

#[test]
fn every_node_knows_every_host_by_the_address_of_its_first_port() {
    let lab = parse(DEMO).unwrap();
    for node in ["a", "b", "s"] {
        let file = node_file(&lab, node);
        let hosts = file["hosts"].as_mapping().unwrap();
        assert_eq!(hosts.len(), 2);
        let mac = lab.nodes[lab.node("b").unwrap()].ports[0].mac.to_string();
        assert_eq!(hosts["b"], mac.as_str());
    }
}

#[test]
fn addresses_are_local_unique_and_the_same_every_time() {
    let lab = parse(DEMO).unwrap();
    let macs = |lab: &Lab| lab.nodes.iter().flat_map(|node| node.ports.iter().map(|port| port.mac)).collect::<Vec<_>>();
    let mut all = macs(&lab);
    assert_eq!(all, macs(&parse(DEMO).unwrap()));
    assert_ne!(all, macs(&lab.renamed("other").unwrap()));
    assert!(all.iter().all(|mac| mac.0[0] == 0x02));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4);
}

#[test]
fn parallel_links_get_ports_and_interfaces_of_their_own() {
    let lab = parse("{name: x, nodes: {s: {kind: switch}, t: {kind: switch}}, links: [{ends: [s, t]}, {ends: [s, t]}]}").unwrap();
    let names: Vec<_> = lab.nodes[0].ports.iter().map(|port| (port.name.as_str(), port.interface.as_str())).collect();
    assert_eq!(names, [("t", "eth0"), ("t.2", "eth1")]);
}

#[test]
fn a_nodes_own_keys_win_over_the_defaults_and_the_generated_ones() {
    let text = "
name: x
defaults: { config: { log: debug, transport: { recovery: irn, max_qps: 8 } } }
nodes: { a: {kind: host, config: { transport: { recovery: go-back-n } }}, b: {kind: host} }
links: [ { ends: [a, b] } ]
";
    let file = node_file(&parse(text).unwrap(), "a");
    assert_eq!(file["log"], "debug");
    assert_eq!(file["transport"]["recovery"], "go-back-n");
    assert_eq!(file["transport"]["max_qps"], 8);
}

#[test]
fn flow_control_of_a_link_is_that_of_both_ends_and_a_node_may_set_up_its_switch() {
    let text = "
name: x
nodes: { a: {kind: host}, s: {kind: switch, switch: { strict_classes: 2, flow_control: { xoff: 8KiB } }, config: { switch: { strict_classes: 3 } }} }
links: [ { ends: [a, s], flow_control: pfc }, { ends: [a, s] } ]
";
    let lab = parse(text).unwrap();
    for node in ["a", "s"] {
        let file = node_file(&lab, node);
        assert_eq!(file["ports"][0]["flow_control"], "pfc");
        assert!(file["ports"][1].get("flow_control").is_none());
    }
    let switch = &node_file(&lab, "s")["switch"];
    assert_eq!(switch["flow_control"]["xoff"], "8KiB");
    assert_eq!(switch["strict_classes"], 3, "config has the last word");
    let wrong = text.replace("xoff: 8KiB", "xoff: 2GiB");
    assert!(parse(&wrong).unwrap_err().contains("switch.flow_control.xoff"));
    assert!(
        parse(&text.replace("flow_control: pfc", "flow_control: on")).unwrap_err().contains("links[0].flow_control: \"on\" is not known")
    );
}

#[test]
fn an_end_may_name_its_interface_and_an_address() {
    let lab =
        parse("{name: x, nodes: {a: {kind: host}, s: {kind: switch}}, links: [{ends: [{node: a, interface: up0, ip: 10.1.0.1/24}, s]}]}")
            .unwrap();
    let port = &lab.nodes[0].ports[0];
    assert_eq!(port.interface, "up0");
    assert_eq!(port.address, Some(InterfaceAddress { ip: IpAddr::from([10, 1, 0, 1]), prefix: 24 }));
}

#[test]
fn the_topologies_in_deploy_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/labs");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 3);
    for file in files {
        Lab::load(&file).unwrap();
    }
}

#[test]
fn every_node_file_is_one_that_a_daemon_takes() {
    let lab = parse(DEMO).unwrap();
    let text = lab.node_file(lab.node("s").unwrap(), Path::new("/tmp/labs/demo/s"));
    let config = Config::from_yaml(&text, "weftd.yaml").unwrap();
    assert_eq!(config.control.socket, Path::new("/tmp/labs/demo/s/weftd.sock"));
    assert_eq!(config.applications.socket, Path::new("/tmp/labs/demo/s/app.sock"));
    assert_eq!(config.ports[0].impair.ingress, lab.links[0].impairment);
    assert_eq!(config.ports[0].impair.egress, lab.links[0].impairment);
    assert_eq!(config.ports[0].rate, lab.links[0].rate);
    assert!(config.ports[1].impair.ingress.is_none());
}

#[test]
fn errors_name_file_line_key_value_and_what_is_allowed() {
    let link = |link: &str| format!("name: x\nnodes: {{a: {{kind: host}}, s: {{kind: switch}}}}\nlinks:\n  - {link}\n");
    let cases = [
        (link("{ends: [a, s], loss: 200%}"), "lab.yaml:4: links[0].loss: \"200%\" is above 100%"),
        (link("{ends: [a, s], delay: 5 weeks}"), "links[0].delay: \"5 weeks\""),
        (link("{ends: [a, s], rate: 2}"), "links[0].rate: \"2\" has no unit"),
        (link("{ends: [a, c]}"), "lab.yaml:4: links[0].ends[1]: \"c\" is no node; known are a, s"),
        (link("{ends: [a, a]}"), "links[0].ends: both ends are at a"),
        (link("{ends: [a, {node: s, ip: 10.0.0.1/8}]}"), "links[0].ends[1].ip: a switch has no IP addresses"),
        (link("{ends: [{node: a, ip: 10.0.0.1}, s]}"), "links[0].ends[0].ip: \"10.0.0.1\" is no address of an interface; write an"),
        (link("{ends: [{node: a, ip: 10.0.0.1/33}, s]}"), "links[0].ends[0].ip: \"10.0.0.1/33\""),
        (link("{ends: [{node: a, interface: abcdefghijklmnop}, s]}"), "\"abcdefghijklmnop\" is no interface name"),
        (link("{ends: [{node: a, interface: eth%d}, s]}"), "\"eth%d\" is no name"),
        (link("{ends: [{node: a, interface: all}, s]}"), "links[0].ends[0].interface: all is a name that the kernel uses"),
        (link("{ends: [{node: c, ip: 1.2.3.4/8}, s]}"), "links[0].ends[0].node: \"c\" is no node"),
        (link("{ends: [a, s], mtu: 20}"), "links[0].mtu: 20 is out of range; allowed are 272 to 65535"),
        (link("{ends: [a, s], lose: 1%}"), "links[0].lose: unknown key; did you mean loss?"),
        (link("{ends: [a]}"), "links[0].ends: 1 ends; a link has two"),
        (link("{ends: [a, s]}\n  - {ends: [{node: a, interface: eth0}, s]}"), "a has an interface eth0 already"),
        ("{name: x, nodes: {a: {kind: router}}, links: []}".into(), "nodes.a.kind: \"router\" is not known; allowed are host, switch"),
        ("{name: x, nodes: {a: {kind: host}}, links: []}".into(), "nodes.a: no link ends at this node"),
        ("{name: ../x, nodes: {a: {kind: host}}, links: []}".into(), "name: \"../x\" is no name"),
        ("{name: Lab, nodes: {a: {kind: host}}, links: []}".into(), "name: \"Lab\" is no name"),
        ("{name: x, nodes: {a/b: {kind: host}}, links: []}".into(), "nodes.a/b: \"a/b\" is no name"),
        ("{name: x, nodes: {a: {kind: host}, a: {kind: host}}, links: []}".into(), "nodes.a: the key is given twice"),
        ("{name: x, nodes: {}, links: []}".into(), "nodes: 0 nodes; allowed are 1 to 256"),
        (
            "{name: x, nodes: {a: {kind: host, config: {log: loud}}, b: {kind: host}}, links: [{ends: [a, b]}]}".into(),
            "lab.yaml: nodes.a.config: log: \"loud\" is not known",
        ),
    ];
    for (text, expected) in cases {
        let error = parse(&text).unwrap_err();
        assert!(error.contains(expected), "{text}\n gave {error}\n wanted {expected}");
    }
}

#[test]
fn a_node_may_have_255_links_and_no_more() {
    let links = |count: usize| {
        format!("name: x\nnodes: {{a: {{kind: switch}}, b: {{kind: switch}}}}\nlinks: [{}]", "{ends: [a, b]},".repeat(count))
    };
    let lab = parse(&links(NODE_LINKS_MAX)).unwrap();
    assert_eq!(lab.nodes[0].ports.last().unwrap().mac.0[5], 254);
    assert!(parse(&links(NODE_LINKS_MAX + 1)).unwrap_err().contains("links[255].ends[0]: a has 255 links already"));
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    /// Pieces of topologies, so that random text gets past the first key now and then.
    fn piece() -> impl Strategy<Value = String> {
        let words = "name: |x|\n|nodes: |links: |{|}|[|]|, |a: |b: |kind: |host|switch|ends: |a|b|loss: |1%|mtu: |1500|config: |ip: |10.0.0.1/8|node: |- |  ";
        let words: Vec<_> = words.split('|').map(str::to_owned).collect();
        prop_oneof![4 => proptest::sample::select(words), 1 => "\\PC{0,3}"]
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_a_topology_panic(pieces in proptest::collection::vec(piece(), 0..40)) {
            let _ = Lab::from_yaml(&pieces.concat(), "lab.yaml");
        }

        #[test]
        fn what_is_accepted_has_unique_names_and_addresses(ends in proptest::collection::vec((0_usize..4, 0_usize..4), 1..40), switches: [bool; 4]) {
            let kind = |switch| if switch { "switch" } else { "host" };
            let nodes: String = switches.iter().enumerate().map(|(index, switch)| format!("  n{index}: {{ kind: {} }}\n", kind(*switch))).collect();
            let links: String = ends.iter().map(|(one, other)| format!("  - {{ ends: [n{one}, n{other}] }}\n")).collect();
            let valid = ends.iter().all(|(one, other)| one != other) && (0..4).all(|node| ends.iter().any(|(one, other)| [*one, *other].contains(&node)));
            let lab = Lab::from_yaml(&format!("name: x\nnodes:\n{nodes}links:\n{links}"), "lab.yaml");
            prop_assert_eq!(lab.is_ok(), valid);
            let Ok(lab) = lab else { return Ok(()) };
            let mut macs = std::collections::BTreeSet::new();
            for node in &lab.nodes {
                prop_assert!(node.ports.iter().all(|port| macs.insert(port.mac.0)));
                let interfaces: std::collections::BTreeSet<_> = node.ports.iter().map(|port| &port.interface).collect();
                let names: std::collections::BTreeSet<_> = node.ports.iter().map(|port| &port.name).collect();
                prop_assert_eq!((interfaces.len(), names.len()), (node.ports.len(), node.ports.len()));
            }
            for (index, link) in lab.links.iter().enumerate() {
                prop_assert!(link.ends.iter().all(|end| lab.nodes[end.node].ports[end.port].link == index));
            }
        }
    }
}
