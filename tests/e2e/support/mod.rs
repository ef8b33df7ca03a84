//! What all tests stand on.

mod command;
mod files;
mod lab;
mod programs;
mod transfer;

pub(crate) use command::{Background, Ended, run};
pub(crate) use files::{Folder, pattern, sha256};
pub(crate) use lab::{LONG, Lab, Topology};
pub(crate) use programs::Programs;
pub(crate) use transfer::{Receiver, copy, copy_ok, part_size};

use std::io::Write as _;
use std::time::{Duration, Instant};

/// Whether `condition` holds within `limit`.
pub(crate) fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Says, where nobody can overlook it, what was not tested and why.
pub(crate) fn skip(what: &str, why: &str) {
    // Not by a macro: the test harness would keep it to itself, since the test passes.
    let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: {what}: {why}\n");
}
