//! The topology file: from a document to a [`Lab`].

use std::net::IpAddr;

use weft_proto::switch::FlowControl;
use weft_proto::wire::MacAddr;

use super::{InterfaceAddress, LAB_NAME_MAX, Lab, Link, LinkEnd, NODE_LINKS_MAX, NODE_NAME_MAX, NODES_MAX, Node, NodeKind, Port, overlay};
use crate::document::{self, Value};
use crate::problem::quoted;
use crate::section::{Item, Section};
use crate::{decode, defaults, scalar};

/// Reads the whole file.
pub(super) fn lab(root: Section<'_>) -> Lab {
    let name = root.require("name", String::new(), |node| name_of(node, LAB_NAME_MAX));
    let (mtu, config) = defaults(root.section("defaults"));
    let mut lab = Lab { name, nodes: nodes(&root, &config), links: Vec::new() };
    for item in root.require_list("links", "- { ends: [a, b] }") {
        link(&mut lab, root.item(&item), mtu);
    }
    for lonely in lab.nodes.iter().filter(|node| node.ports.is_empty()) {
        root.complain(&format!("nodes.{}", lonely.name), "no link ends at this node; give it one, or remove it");
    }
    assign_addresses(&mut lab);
    root.finish();
    lab
}

fn defaults(section: Section<'_>) -> (u32, serde_yaml::Mapping) {
    let mtu = section.read("mtu", defaults::USUAL_MTU, mtu);
    let config = section.read("config", serde_yaml::Mapping::new(), overlay::read);
    section.finish();
    (mtu, config)
}

fn mtu(node: &document::Node) -> Result<u32, String> {
    scalar::integer(defaults::MIN_MTU..=defaults::MAX_MTU)(node)
}

fn nodes(root: &Section<'_>, config: &serde_yaml::Mapping) -> Vec<Node> {
    let section = root.section("nodes");
    let entries = section.entries();
    if entries.is_empty() || entries.len() > NODES_MAX {
        root.complain("nodes", format!("{} nodes; allowed are 1 to {NODES_MAX}", entries.len()));
    }
    let mut nodes = Vec::new();
    for entry in entries.iter().take(NODES_MAX) {
        if let Err(message) = check_name(&entry.key, NODE_NAME_MAX) {
            section.complain_entry(entry, message);
        }
        nodes.push(node(entry.key.clone(), section.below(entry), config.clone()));
    }
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    nodes
}

fn node(name: String, section: Section<'_>, mut config: serde_yaml::Mapping) -> Node {
    let kind = section.require("kind", NodeKind::Host, scalar::word);
    let switch = section.read("switch", serde_yaml::Mapping::new(), overlay::read);
    if !switch.is_empty() {
        overlay::put(&mut config, [("switch".into(), switch.into())].into_iter().collect());
    }
    overlay::put(&mut config, section.read("config", serde_yaml::Mapping::new(), overlay::read));
    if section.has("stop") {
        if kind == NodeKind::Switch {
            section.complain(
                "stop",
                "stop control is for hosts: a switch forwards its packets like any other; remove it, or write it at a host",
            );
        }
        let stop = section.read("stop", serde_yaml::Value::Null, |node| Ok(overlay::yaml(node)));
        overlay::put(&mut config, [("stop".into(), stop)].into_iter().collect());
    }
    section.finish();
    Node { name, kind, ports: Vec::new(), config }
}

fn name_of(node: &document::Node, longest: usize) -> Result<String, String> {
    let name = scalar::name(node)?;
    check_name(&name, longest)?;
    Ok(name)
}

/// Checks a name that becomes a folder, part of a socket's path and a word in a command line.
pub(super) fn check_name(name: &str, longest: usize) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=longest).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('-') {
        return Ok(());
    }
    Err(format!("{} is no name; allowed are 1 to {longest} of a-z, 0-9 and -, the first not -", quoted(name)))
}

fn link(lab: &mut Lab, section: Section<'_>, mtu_default: u32) {
    let index = lab.links.len();
    let seed = u64::try_from(index).unwrap_or(0) + 1;
    let mut link = Link {
        ends: [LinkEnd { node: 0, port: 0 }; 2],
        mtu: section.read("mtu", mtu_default, mtu),
        rate: section.read("rate", None, |node| scalar::rate(node).map(Some)),
        impairment: decode::impairment(&section),
        seed: section.read("seed", seed, scalar::integer(0..=u64::MAX)),
        flow_control: section.read("flow_control", FlowControl::None, scalar::word),
        impaired_end: 0,
    };
    if let Some(ends) = ends(lab, &section, index) {
        link.impaired_end = ends.iter().position(|end| lab.nodes[end.node].kind == NodeKind::Switch).unwrap_or(0);
        link.ends = ends;
        lab.links.push(link);
    }
    section.finish();
}

fn ends(lab: &mut Lab, section: &Section<'_>, link: usize) -> Option<[LinkEnd; 2]> {
    let items = section.require_list("ends", "[a, b]");
    let [first, second] = items.as_slice() else {
        if items.is_empty() {
            return None;
        }
        section.complain("ends", format!("{} ends; a link has two, as in [a, b]", items.len()));
        return None;
    };
    let (first, second) = (end(lab, section, first), end(lab, section, second));
    let (first, second) = (first?, second?);
    if first.node == second.node {
        section.complain("ends", format!("both ends are at {}; a link joins two different nodes", lab.nodes[first.node].name));
        return None;
    }
    let neighbours = [first.node, second.node];
    Some([add_port(lab, first, neighbours[1], link), add_port(lab, second, neighbours[0], link)])
}

/// A link's end as written.
struct End {
    node: usize,
    interface: String,
    address: Option<InterfaceAddress>,
}

/// Reads `a` or `{ node: a, interface: eth7, ip: 10.1.0.1/24 }`.
fn end(lab: &Lab, section: &Section<'_>, item: &Item<'_>) -> Option<End> {
    if let Value::Map(_) = item.node.value {
        return end_in_full(lab, section.item(item));
    }
    let node = known_node(lab, item.node).map_err(|message| section.complain_item(item, message)).ok()?;
    Some(End { node, interface: next_interface(&lab.nodes[node]), address: None })
}

fn end_in_full(lab: &Lab, keys: Section<'_>) -> Option<End> {
    let node = keys.require("node", None, |node| known_node(lab, node).map(Some));
    let end = node.map(|node| End {
        node,
        interface: keys.read("interface", next_interface(&lab.nodes[node]), |value| interface(&lab.nodes[node], value)),
        address: keys.read("ip", None, |value| address(&lab.nodes[node], value).map(Some)),
    });
    // Known keys too if the node, on which their values depend, is wrong.
    for key in ["interface", "ip"] {
        keys.has(key);
    }
    keys.finish();
    end
}

fn known_node(lab: &Lab, node: &document::Node) -> Result<usize, String> {
    let name = scalar::name(node)?;
    let known = || lab.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
    let index = lab.node(&name).ok_or_else(|| format!("{} is no node; known are {}", quoted(&name), known()))?;
    if lab.nodes[index].ports.len() >= NODE_LINKS_MAX {
        return Err(format!("{name} has {NODE_LINKS_MAX} links already, the most that are allowed"));
    }
    Ok(index)
}

fn next_interface(node: &Node) -> String {
    let taken = |name: &String| node.ports.iter().any(|port| port.interface == *name);
    (0..).map(|number| format!("eth{number}")).find(|name| !taken(name)).unwrap_or_default()
}

fn interface(node: &Node, value: &document::Node) -> Result<String, String> {
    let name = scalar::interface(value)?;
    check_name(&name, defaults::MAX_INTERFACE_NAME)?;
    // `all` and `default` are the kernel's own entries beside the interfaces in /proc/sys/net.
    if ["lo", "all", "default"].contains(&name.as_str()) {
        return Err(format!("{name} is a name that the kernel uses itself; write another"));
    }
    match node.ports.iter().any(|port| port.interface == name) {
        true => Err(format!("{} has an interface {name} already; each needs its own name", node.name)),
        false => Ok(name),
    }
}

fn address(node: &Node, value: &document::Node) -> Result<InterfaceAddress, String> {
    let text = scalar::text(value)?;
    if node.kind == NodeKind::Switch {
        return Err("a switch has no IP addresses: its ports take every frame, the kernel sees none".to_owned());
    }
    let form = "write an address with its prefix length, as in 10.1.0.1/24";
    parse_address(text).ok_or_else(|| format!("{} is no address of an interface; {form}", quoted(text)))
}

fn parse_address(text: &str) -> Option<InterfaceAddress> {
    let (ip, prefix) = text.split_once('/')?;
    let ip: IpAddr = ip.parse().ok()?;
    let prefix: u8 = prefix.parse().ok()?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    (prefix <= longest && !ip.is_unspecified() && !ip.is_multicast()).then_some(InterfaceAddress { ip, prefix })
}

fn add_port(lab: &mut Lab, end: End, neighbour: usize, link: usize) -> LinkEnd {
    let neighbour = lab.nodes[neighbour].name.clone();
    let node = &mut lab.nodes[end.node];
    let name = match node.kind {
        NodeKind::Host => end.interface.clone(),
        NodeKind::Switch => port_name(node, &neighbour),
    };
    node.ports.push(Port { name, interface: end.interface, mac: MacAddr::ZERO, link, address: end.address });
    LinkEnd { node: end.node, port: node.ports.len() - 1 }
}

/// The neighbour's name; with its number from the second parallel link on.
fn port_name(node: &Node, neighbour: &str) -> String {
    let taken = |name: &String| node.ports.iter().any(|port| port.name == *name);
    let numbered = (2..).map(|number| format!("{neighbour}.{number}"));
    std::iter::once(neighbour.to_owned()).chain(numbered).find(|name| !taken(name)).unwrap_or_default()
}

/// Gives every port its MAC address. Node and port are numbered, so no two ports of a lab can share one.
pub(super) fn assign_addresses(lab: &mut Lab) {
    let [high, low] = fold(&lab.name).to_be_bytes();
    for (node, number) in lab.nodes.iter_mut().zip(1_u16..) {
        let [node_high, node_low] = number.to_be_bytes();
        for (port, number) in node.ports.iter_mut().zip(0_u8..) {
            port.mac = MacAddr([0x02, high, low, node_high, node_low, number]);
        }
    }
}

/// FNV-1a of `text` folded to 16 bits: enough to tell two labs' captures apart.
fn fold(text: &str) -> u16 {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [one, two, three, four] = hash.to_be_bytes();
    u16::from_be_bytes([one ^ three, two ^ four])
}
