//! `status`, `counters`, and the lists: ports, peers, queue pairs, addresses, queues.

mod queue_pair;
pub(crate) mod tables;

use comfy_table::Table;
use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_config::control::{Counters, QpInfo, QpTrace, Request, Status};

use crate::admin::Admin;
use crate::args::{Json, QpCommand, Show, Sockets};

pub(crate) fn status(sockets: &Sockets, arguments: Json) -> anyhow::Result<u8> {
    let status: Status = Admin::connect(&sockets.socket)?.request(Request::Status)?;
    print(&status, arguments.json, tables::status)
}

pub(crate) fn counters(sockets: &Sockets, arguments: Json) -> anyhow::Result<u8> {
    let counters: Counters = Admin::connect(&sockets.socket)?.request(Request::Counters)?;
    print(&counters, arguments.json, tables::counters)
}

pub(crate) fn ports(sockets: &Sockets, show: Show) -> anyhow::Result<u8> {
    list(sockets, show, |offset| Request::Ports { offset }, tables::ports, "no ports are configured")
}

pub(crate) fn peers(sockets: &Sockets, show: Show) -> anyhow::Result<u8> {
    list(sockets, show, |offset| Request::Peers { offset }, tables::peers, "no connections to other nodes")
}

pub(crate) fn queue_pairs(sockets: &Sockets, command: QpCommand) -> anyhow::Result<u8> {
    match command {
        QpCommand::Show { qp: None, json } => list_queue_pairs(sockets, json),
        QpCommand::Show { qp: Some(qp), json } => {
            let info: QpInfo = Admin::connect(&sockets.socket)?.request(Request::Qp { qp })?;
            print(&info, json.json, queue_pair::sections)
        }
        QpCommand::Trace { qp, last, json } => {
            let request = Request::QpTrace { qp, last: last.unwrap_or(u32::MAX) };
            let trace: QpTrace = Admin::connect(&sockets.socket)?.request(request)?;
            print(&trace, json.json, queue_pair::trace)
        }
    }
}

fn list_queue_pairs(sockets: &Sockets, json: Json) -> anyhow::Result<u8> {
    list(sockets, Show::Show(json), |offset| Request::Qps { offset }, tables::queue_pairs, "no queue pairs")
}

pub(crate) fn addresses(sockets: &Sockets, show: Show) -> anyhow::Result<u8> {
    list(sockets, show, |offset| Request::Fdb { offset }, tables::addresses, "no addresses learned")
}

pub(crate) fn queues(sockets: &Sockets, show: Show) -> anyhow::Result<u8> {
    list(sockets, show, |offset| Request::Queues { offset }, tables::queues, "no queue has been used")
}

fn list<T: Serialize + DeserializeOwned>(
    sockets: &Sockets,
    show: Show,
    request: impl Fn(u64) -> Request,
    table: impl Fn(&[T]) -> Table,
    none: &str,
) -> anyhow::Result<u8> {
    let items: Vec<T> = Admin::connect(&sockets.socket)?.list(request)?;
    let text = |items: &Vec<T>| if items.is_empty() { none.to_owned() } else { lines(&table(items)) };
    print(&items, show.json(), text)
}

/// A table without blanks at the ends of its lines.
pub(crate) fn lines(table: &Table) -> String {
    table.to_string().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

pub(crate) fn print<T: Serialize>(value: &T, json: bool, text: impl Fn(&T) -> String) -> anyhow::Result<u8> {
    println!("{}", if json { serde_json::to_string_pretty(value)? } else { text(value) });
    Ok(0)
}
