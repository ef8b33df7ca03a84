//! Keys of a node's configuration file that the topology states itself.

use serde_yaml::{Mapping, Number, Value as Yaml};

use crate::document::{Node, Value};

/// Reads a group of keys as it stands; the node file that it becomes part of is checked as a whole.
pub(super) fn read(node: &Node) -> Result<Mapping, String> {
    match yaml(node) {
        Yaml::Mapping(keys) => Ok(keys),
        _ => Err(format!("expected keys of a node's configuration file, found {}", node.shown())),
    }
}

/// A value as it stands.
pub(super) fn yaml(node: &Node) -> Yaml {
    match &node.value {
        Value::Null => Yaml::Null,
        Value::Bool(value) => Yaml::Bool(*value),
        Value::Integer(value) => integer(*value),
        Value::Float(value) => Yaml::Number(Number::from(*value)),
        Value::Text(text) => Yaml::String(text.clone()),
        Value::List(nodes) => Yaml::Sequence(nodes.iter().map(yaml).collect()),
        Value::Map(entries) => Yaml::Mapping(entries.iter().map(|entry| (entry.key.as_str().into(), yaml(&entry.node))).collect()),
    }
}

/// Beyond 64 bits nothing in a node file is valid; as text it is refused with a message that shows it.
fn integer(value: i128) -> Yaml {
    let unsigned = u64::try_from(value).map(Yaml::from);
    let signed = || i64::try_from(value).map(Yaml::from);
    unsigned.or_else(|_| signed()).unwrap_or_else(|_| Yaml::String(value.to_string()))
}

/// Puts `over` on top of `base`: groups of keys merge, everything else is replaced.
pub(super) fn put(base: &mut Mapping, over: Mapping) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Yaml::Mapping(inner)), Yaml::Mapping(value)) => put(inner, value),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}
