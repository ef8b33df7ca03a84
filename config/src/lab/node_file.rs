//! The configuration file of one node of a lab.

use std::path::Path;

use serde_yaml::{Mapping, Value};

use weft_proto::switch::FlowControl;

use super::{Lab, Link, Node, NodeKind, Port, files, overlay};
use crate::effective::{group, impairment};
use crate::model::Words;
use crate::units;

pub(super) fn text(lab: &Lab, node: usize, folder: &Path) -> String {
    let node = &lab.nodes[node];
    let mut file = generated(lab, node, folder);
    overlay::put(&mut file, node.config.clone());
    serde_yaml::to_string(&file).unwrap_or_else(|error| format!("# the configuration cannot be printed: {error}\n"))
}

fn generated(lab: &Lab, node: &Node, folder: &Path) -> Mapping {
    let socket = |name: &str| group([("socket", folder.join(name).display().to_string().into())]);
    let ports = node.ports.iter().map(|port| Value::Mapping(port_entry(lab, node, port))).collect();
    let entries = [
        ("version", 1.into()),
        ("node", node.name.as_str().into()),
        ("control", socket(files::CONTROL_SOCKET)),
        ("applications", socket(files::APPLICATION_SOCKET)),
        ("ports", Value::Sequence(ports)),
        ("hosts", hosts(lab).into()),
    ];
    entries.map(|(key, value)| (Value::from(key), value)).into_iter().collect()
}

fn port_entry(lab: &Lab, node: &Node, port: &Port) -> Mapping {
    let link = &lab.links[port.link];
    let mut entry = Mapping::new();
    let mut put = |key: &str, value: Value| drop(entry.insert(key.into(), value));
    put("name", port.name.as_str().into());
    put("interface", port.interface.as_str().into());
    put("role", node.kind.to_string().into());
    if let Some(rate) = link.rate {
        put("rate", units::rate_text(rate).into());
    }
    if link.flow_control != FlowControl::None {
        put("flow_control", link.flow_control.word().into());
    }
    if applies_impairment(lab, node, link) && !link.impairment.is_none() {
        put("impair", both_directions(link));
    }
    entry
}

fn applies_impairment(lab: &Lab, node: &Node, link: &Link) -> bool {
    lab.nodes[link.ends[link.impaired_end].node].name == node.name
}

/// Both directions of the link: what comes in through the port and what leaves by it.
fn both_directions(link: &Link) -> Value {
    group([("ingress", impairment(&link.impairment)), ("egress", impairment(&link.impairment)), ("seed", link.seed.into())])
}

/// Name and address of every host, so that any node can be named from any other.
fn hosts(lab: &Lab) -> Mapping {
    let hosts = lab.nodes.iter().filter(|node| node.kind == NodeKind::Host);
    hosts.filter_map(|node| Some((node.name.as_str().into(), node.ports.first()?.mac.to_string().into()))).collect()
}
