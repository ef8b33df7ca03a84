//! Takes over a changed configuration: what the worker must change goes to it as one job, so that a batch sees
//! either the old settings or the new ones.

use weft_config::control::{ControlError, ErrorCode};
use weft_config::{Change, Config};
use weft_proto::stop::StopConfig;

use super::node::Node;
use crate::clock::wall_millis;
use crate::{stop_key, translate};

/// Applies `changes`, which lead from the node's configuration to `new`.
pub(super) fn apply(node: &Node, new: &Config, changes: &[Change]) -> Result<(), ControlError> {
    let config = new.clone();
    let stop = stop_settings(node, new)?;
    let ports = changed_ports(changes);
    node.worker.ask(move |now, worker| {
        worker.reconfigure_switch(&translate::switch(&config));
        for port in ports {
            worker.reconfigure_port(now, port, &config.ports[port]);
        }
        worker.set_stop(stop);
    })?;
    node.log.configure(new.log);
    Ok(())
}

/// Settings of stop control, with the key as its file has it now.
fn stop_settings(node: &Node, new: &Config) -> Result<Option<StopConfig>, ControlError> {
    let hint = "nothing has changed";
    let key = stop_key::of(new).map_err(|error| ControlError::new(ErrorCode::BadConfig, error.to_string(), hint))?;
    Ok(node.endpoint.and_then(|(mac, _)| translate::stop(new, mac, wall_millis(), key)))
}

/// Each port once: its impairment starts afresh from its seed with every change.
fn changed_ports(changes: &[Change]) -> Vec<usize> {
    let mut ports: Vec<usize> = changes
        .iter()
        .filter_map(|change| match change {
            Change::PortRate { port, .. } | Change::PortImpairment { port, .. } | Change::PortFlowControl { port, .. } => Some(*port),
            _ => None,
        })
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[cfg(test)]
mod tests {
    use weft_config::model::LogLevel;

    use super::*;

    #[test]
    fn a_port_with_two_changes_is_reconfigured_once() {
        let rate = |port| Change::PortRate { port, rate: None };
        assert_eq!(changed_ports(&[rate(2), Change::Log(LogLevel::Info), rate(0), rate(2)]), [0, 2]);
    }
}
