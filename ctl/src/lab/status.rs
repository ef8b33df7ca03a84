//! `weftctl lab status`.

use std::path::PathBuf;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;
use weft_config::lab::{NodeKind, files};

use super::state::{DaemonState, NodeState, State};
use super::{client, folder};

#[derive(Debug, Serialize)]
struct LabStatus {
    name: String,
    /// `up`, `starting`, or `crashed` when the supervisor is gone.
    state: &'static str,
    topology: PathBuf,
    folder: PathBuf,
    supervisor_pid: i32,
    nodes: Vec<NodeStatus>,
}

#[derive(Debug, Serialize)]
struct NodeStatus {
    name: String,
    kind: NodeKind,
    /// `running`, `dead`, or `waiting` before its first start.
    daemon: &'static str,
    pid: Option<i32>,
    reason: Option<String>,
    control_socket: PathBuf,
    application_socket: PathBuf,
    log: PathBuf,
}

/// Shows one lab or all of them.
pub(crate) fn show(name: Option<&str>, json: bool) -> anyhow::Result<u8> {
    let labs: Vec<_> = match name {
        Some(name) => vec![lab_status(&client::known(name)?)],
        None => folder::names().iter().filter_map(|name| Some(lab_status(&client::known(name).ok()?))).collect(),
    };
    match (json, name) {
        (true, Some(_)) => println!("{}", serde_json::to_string_pretty(&labs[0])?),
        (true, None) => println!("{}", serde_json::to_string_pretty(&labs)?),
        (false, _) => print_tables(&labs),
    }
    Ok(0)
}

fn lab_status(state: &State) -> LabStatus {
    let alive = state.supervisor.is_alive();
    LabStatus {
        name: state.name.clone(),
        state: match (alive, state.ready) {
            (true, true) => "up",
            (true, false) => "starting",
            (false, _) => "crashed",
        },
        topology: state.topology.clone(),
        folder: state.folder.clone(),
        supervisor_pid: state.supervisor.pid,
        nodes: state.nodes.iter().map(|node| node_status(state, node)).collect(),
    }
}

fn node_status(state: &State, node: &NodeState) -> NodeStatus {
    let (daemon, pid, reason) = match &node.daemon {
        DaemonState::Waiting => ("waiting", None, None),
        DaemonState::Running(process) if process.is_alive() => ("running", Some(process.pid), None),
        // Its supervisor has not noticed yet, or is gone itself.
        DaemonState::Running(_) => ("dead", None, Some("ended".to_owned())),
        DaemonState::Dead { reason } => ("dead", None, Some(reason.clone())),
    };
    NodeStatus {
        name: node.name.clone(),
        kind: node.kind,
        daemon,
        pid,
        reason,
        control_socket: state.file(&node.name, files::CONTROL_SOCKET),
        application_socket: state.file(&node.name, files::APPLICATION_SOCKET),
        log: state.file(&node.name, files::LOG),
    }
}

fn print_tables(labs: &[LabStatus]) {
    if labs.is_empty() {
        println!("no lab is up; start one with `weftctl lab up FILE`");
    }
    for lab in labs {
        println!("lab {}: {} ({}, supervisor {})", lab.name, lab.state, lab.topology.display(), lab.supervisor_pid);
        let mut table = Table::new();
        table.load_preset(NOTHING).set_header(["NODE", "KIND", "DAEMON", "PID", "LOG"]);
        for node in &lab.nodes {
            let daemon = node.reason.as_ref().map_or_else(|| node.daemon.to_owned(), |reason| format!("{}: {reason}", node.daemon));
            let pid = node.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            table.add_row([node.name.clone(), node.kind.to_string(), daemon, pid, node.log.display().to_string()]);
        }
        println!("{table}");
    }
}
