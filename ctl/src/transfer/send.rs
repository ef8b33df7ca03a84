//! `weftctl cp`: the sending side.

mod files;
mod report;
mod sender;

use std::path::PathBuf;

use weft_verbs::Context;

use super::args::Copy;
use super::progress::Progress;
use super::protocol::{Grant, Hello, MAX_MESSAGE, encode};
use crate::args::Sockets;
use crate::exit::{Exit, failure};
use crate::interrupt::Interrupt;
use crate::session::{Session, Shape, Target, explain};
use files::FileToSend;
use report::Report;
use sender::Sender;

pub(crate) fn run(sockets: &Sockets, arguments: &Copy) -> anyhow::Result<u8> {
    let (paths, host) = split(&arguments.files)?;
    let files = files::open_all(paths)?;
    let interrupt = Interrupt::register()?;
    let context = Context::attach(&sockets.app_socket, "weftctl cp").map_err(|error| explain(error, "this host"))?;
    let total = files.iter().map(|file| file.size).sum();
    let progress = Progress::new(total, arguments.json);
    let hello = Hello::new(arguments.chunk, arguments.depth);
    // As many answers as messages can be on their way: a credit and a word about a file for each of the receiver's.
    let receives = 2 * arguments.depth + 4;
    let recovery = arguments.recovery.map(Into::into);
    let priority = arguments.priority;
    let shape = Shape { slot: MAX_MESSAGE, receives, sends: arguments.depth + 2, requests: arguments.depth, recovery, priority };
    let target = Target { host: &host, service: arguments.service, listener: "weftctl receive DIR" };
    let (session, agreed) = Session::connect(&context, &target, &encode(&hello), shape, &interrupt)?;
    let grant = Grant::decode(&agreed.private, &hello).ok_or_else(|| {
        failure(Exit::Failed, format!("{host}: something else than weftctl receive listens on service {}", target.service))
    })?;
    let start = std::time::Instant::now();
    let num = session.num();
    let mut sender = Sender::new(&context, session, grant, &progress)?;
    let sent = sender.send_all(&files)?;
    let seconds = start.elapsed().as_secs_f64();
    let retransmissions = crate::retransmissions::of(&sockets.socket, num);
    sender.end()?;
    progress.end();
    Report::new(&files, sent, seconds, agreed.recovery, retransmissions).print(&host, arguments.json)
}

/// The files, and the host without its colon.
fn split(arguments: &[PathBuf]) -> anyhow::Result<(&[PathBuf], String)> {
    let usage = |message: String| failure(Exit::Usage, message);
    let (last, paths) = arguments.split_last().ok_or_else(|| usage("no files".to_owned()))?;
    let shown = last.display();
    let host = last.to_str().and_then(|text| text.strip_suffix(':')).filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| usage(format!("{shown}: the last argument names the host, with a colon: HOST:")))?;
    if host.contains('/') {
        return Err(usage(format!("{shown}: the receiver chooses the folder; write HOST: without a path")));
    }
    Ok((paths, host.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_argument_is_the_host_with_a_colon() {
        let split = |words: &[&str]| split(&words.iter().map(PathBuf::from).collect::<Vec<_>>()).map(|(files, host)| (files.len(), host));
        assert_eq!(split(&["a", "b", "h:"]).unwrap(), (2, "h".to_owned()));
        assert_eq!(split(&["a", "02:00:00:00:00:0b:"]).unwrap().1, "02:00:00:00:00:0b");
        for wrong in ["h", ":", "h:dir", "a/b:"] {
            assert!(split(&["a", wrong]).is_err(), "{wrong}");
        }
    }
}
