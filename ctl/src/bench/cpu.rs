//! Processor time of the daemon on this host, as far as this user may see it.

use std::path::Path;

use weft_config::control::{Request, Status};

use crate::admin::Admin;

/// The daemon's process, if its administration socket tells this user.
pub(super) fn daemon(socket: &Path) -> Option<u32> {
    Some(Admin::connect(socket).ok()?.request::<Status>(Request::Status).ok()?.pid)
}

/// Nanoseconds that the threads of a process have run (the first field of `/proc/PID/task/*/schedstat`).
pub(crate) fn nanoseconds(pid: u32) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let run = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok();
    tasks.flatten().map(run).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_that_works_grows() {
        let before = nanoseconds(std::process::id()).unwrap();
        // Until the kernel has accounted for some, which it does at the latest with its next tick.
        while nanoseconds(std::process::id()).unwrap() <= before {}
        assert_eq!(nanoseconds(u32::MAX), None);
    }
}
