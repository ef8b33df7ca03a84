//! Which differences between two configurations a running daemon can take over.

use std::collections::{BTreeMap, BTreeSet};

use weft_proto::switch::{FlowConfig, FlowControl};
use weft_proto::wire::MacAddr;
use weft_proto::{BitRate, Duration};

use crate::model::{LogLevel, PortImpairment};
use crate::{Config, effective};

/// A change that applies live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `ports[N].rate`
    PortRate {
        /** Index in [`Config::ports`]. */
        port: usize,
        /** The new rate; `None` = unlimited. */
        rate: Option<BitRate>,
    },
    /// `ports[N].impair`
    PortImpairment {
        /** Index in [`Config::ports`]. */
        port: usize,
        /** All of the new impairment. */
        impair: PortImpairment,
    },
    /// `ports[N].flow_control`
    PortFlowControl {
        /** Index in [`Config::ports`]. */
        port: usize,
        /** The new kind. */
        kind: FlowControl,
    },
    /// `hosts`: all of the new names.
    Hosts(BTreeMap<String, MacAddr>),
    /// `switch.mac_ageing`
    MacAgeing(Duration),
    /// `switch.voq_limit`, in bytes.
    VoqLimit(u64),
    /// `switch.weights`: as many as before.
    Weights(Vec<u32>),
    /// `stop`, with what it means on a link of another rate.
    Stop,
    /// `switch.strict_classes`
    StrictClasses(u8),
    /// `switch.flow_control`: all of it.
    FlowControl(FlowConfig),
    /// `log`
    Log(LogLevel),
}

/// What to change in a running daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reload {
    /// What to apply.
    pub changes: Vec<Change>,
    /// The same for people, one line per key: `key: old -> new`.
    pub lines: Vec<String>,
}

/// A change that a running daemon cannot take over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {old} -> {new} cannot change while weftd runs; restart weftd")]
pub struct Refusal {
    /// Path of the key.
    pub key: String,
    /// The running value, or `(absent)`.
    pub old: String,
    /// The new value, or `(absent)`.
    pub new: String,
}

impl Config {
    /// What a daemon that runs with `self` has to change to run with `new`.
    ///
    /// # Errors
    /// Every difference that needs a restart. Nothing is to be applied then.
    pub fn reload_from(&self, new: &Self) -> Result<Reload, Vec<Refusal>> {
        let differences = differences(self, new);
        let refused: Vec<_> = differences.iter().filter(|difference| !is_live(&difference.key)).cloned().collect();
        if !refused.is_empty() {
            return Err(refused);
        }
        let lines = differences.iter().map(|Refusal { key, old, new }| format!("{key}: {old} -> {new}")).collect();
        Ok(Reload { changes: changes(self, new), lines })
    }
}

/// Keys whose changes apply to a running daemon.
fn is_live(key: &str) -> bool {
    let of_port = key.strip_prefix("ports[").and_then(|rest| rest.split_once("].")).map(|(_, key)| key);
    match of_port {
        Some(key) => matches!(key, "rate" | "flow_control") || key.starts_with("impair."),
        None => {
            let groups = ["hosts.", "switch.weights.", "switch.flow_control.", "stop."];
            matches!(key, "log" | "switch.mac_ageing" | "switch.voq_limit" | "switch.strict_classes" | "stop")
                || groups.iter().any(|group| key.starts_with(group))
        }
    }
}

/// All keys with different values. Ports that only one side has count as one difference.
fn differences(old: &Config, new: &Config) -> Vec<Refusal> {
    let absent = || "(absent)".to_owned();
    let (old_values, new_values) = (effective::flat(old), effective::flat(new));
    let keys: BTreeSet<_> = old_values.keys().chain(new_values.keys()).collect();
    let value = |values: &BTreeMap<String, String>, key: &str| values.get(key).cloned().unwrap_or_else(absent);
    let all = keys.into_iter().map(|key| Refusal { key: key.clone(), old: value(&old_values, key), new: value(&new_values, key) });
    let mut found: Vec<_> = all.filter(|difference| difference.old != difference.new).collect();
    if old.ports.len() != new.ports.len() {
        let common = old.ports.len().min(new.ports.len());
        found.retain(|difference| port_index(&difference.key).is_none_or(|index| index < common));
        let count = |config: &Config| format!("{} in number", config.ports.len());
        found.push(Refusal { key: "ports".to_owned(), old: count(old), new: count(new) });
    }
    found
}

fn port_index(key: &str) -> Option<usize> {
    key.strip_prefix("ports[")?.split_once(']')?.0.parse().ok()
}

/// The live changes, typed.
fn changes(old: &Config, new: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    for (port, (before, after)) in old.ports.iter().zip(&new.ports).enumerate() {
        changes.extend((before.rate != after.rate).then_some(Change::PortRate { port, rate: after.rate }));
        changes.extend((before.impair != after.impair).then_some(Change::PortImpairment { port, impair: after.impair }));
        let kind = after.flow_control;
        changes.extend((before.flow_control != kind).then_some(Change::PortFlowControl { port, kind }));
    }
    changes.extend((old.hosts != new.hosts).then(|| Change::Hosts(new.hosts.clone())));
    let (before, after) = (&old.switch, &new.switch);
    changes.extend((before.mac_ageing != after.mac_ageing).then_some(Change::MacAgeing(after.mac_ageing)));
    changes.extend((before.voq_limit != after.voq_limit).then_some(Change::VoqLimit(after.voq_limit)));
    changes.extend((before.weights != after.weights).then(|| Change::Weights(after.weights.clone())));
    let rate_counts = new.stop.is_some() && old.link_rate() != new.link_rate();
    changes.extend((old.stop != new.stop || rate_counts).then_some(Change::Stop));
    changes.extend((before.strict_classes != after.strict_classes).then_some(Change::StrictClasses(after.strict_classes)));
    changes.extend((before.flow_control != after.flow_control).then_some(Change::FlowControl(after.flow_control)));
    changes.extend((old.log != new.log).then_some(Change::Log(new.log)));
    changes
}

#[cfg(test)]
mod tests;
