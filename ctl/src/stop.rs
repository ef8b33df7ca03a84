//! `stop`: stop control shown, steered by hand, and followed.

mod text;

use std::io::Write as _;
use std::time::Duration;

use weft_config::control::{Page, Request, StopAsked, StopAsker, StopCancelled, StopEvents, StopInfo, StopSent};

use crate::admin::Admin;
use crate::args::{Json, Sockets, StopCommand};
use crate::interrupt::Interrupt;
use crate::show::print;

/// The daemon is asked for news this often: its journal holds far more than happens in that time.
const POLL: Duration = Duration::from_millis(100);

pub(crate) fn run(sockets: &Sockets, command: StopCommand) -> anyhow::Result<u8> {
    match command {
        StopCommand::Show(Json { json }) => print(&whole(&mut Admin::connect(&sockets.socket)?)?, json, text::info),
        StopCommand::Send { host, priority, timer, rate, json } => {
            let request = Request::StopSend { host, priority, timer, rate };
            print(&Admin::connect(&sockets.socket)?.request::<StopSent>(request)?, json.json, text::sent)
        }
        StopCommand::Cancel { host, json } => {
            let request = Request::StopCancel { host };
            print(&Admin::connect(&sockets.socket)?.request::<StopCancelled>(request)?, json.json, text::cancelled)
        }
        StopCommand::Watch { all, count, json } => watch(sockets, all, count, json.json),
    }
}

/// Both lists in full, part by part.
fn whole(admin: &mut Admin) -> anyhow::Result<StopInfo> {
    let mut info: StopInfo = admin.request(Request::StopShow { offset: 0 })?;
    let mut offset = 0;
    while let Some(next) = next_of(&info.askers, &info.asked).filter(|next| *next > offset) {
        let more: StopInfo = admin.request(Request::StopShow { offset: next })?;
        info.askers.items.extend(more.askers.items);
        info.asked.items.extend(more.asked.items);
        offset = next;
    }
    Ok(info)
}

/// Where the longer of the lists goes on.
fn next_of(askers: &Page<StopAsker>, asked: &Page<StopAsked>) -> Option<u64> {
    askers.next_offset().max(asked.next_offset())
}

fn watch(sockets: &Sockets, all: bool, count: Option<u64>, json: bool) -> anyhow::Result<u8> {
    let interrupt = Interrupt::register()?;
    let mut admin = Admin::connect(&sockets.socket)?;
    let mut since = all.then_some(0);
    let mut left = count.unwrap_or(u64::MAX);
    let mut out = std::io::stdout().lock();
    // An interrupted watch has done its work.
    while left > 0 && interrupt.signal().is_none() {
        let StopEvents { next, missed, events } = match admin.request(Request::StopEvents { since }) {
            Ok(answer) => answer,
            // The signal broke off the request.
            Err(_) if interrupt.signal().is_some() => break,
            Err(error) => return Err(error),
        };
        if missed > 0 {
            eprintln!("{missed} events came too fast to be shown");
        }
        for event in events.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
            writeln!(out, "{}", if json { serde_json::to_string(event)? } else { text::event(event) })?;
            left -= 1;
        }
        out.flush()?;
        let idle = events.is_empty();
        since = Some(next);
        if idle && left > 0 {
            std::thread::sleep(POLL);
        }
    }
    Ok(0)
}
