//! Network and user namespaces: make, enter, spawn into.
//!
//! A network namespace lives as long as somebody holds it: a descriptor of the supervisor's, or a process in it. It has
//! no name in the file system, so nothing of it can be left behind.
#![allow(unsafe_code)] // unshare and pre_exec are unsafe functions; each use says why it is sound.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities, move_into_link_name_space, unshare_unsafe};

/// What a process needs to enter a node: its network namespace, behind a user namespace if that is not its own.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) user: Option<OwnedFd>,
    pub(crate) network: OwnedFd,
}

/// Whether this process may create network namespaces and interfaces as it is.
pub(crate) fn is_privileged() -> io::Result<bool> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    Ok(capabilities(None)?.effective.contains(needed))
}

/// Moves this process, which must have one thread, into a user namespace of its own where it is root.
pub(crate) fn enter_user_namespace() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: the descriptor table stays shared; only the user namespace changes.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER)? };
    // An ordinary user may map its group only after giving up setgroups (user_namespaces(7)).
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// A new, empty network namespace.
pub(crate) fn create_network() -> io::Result<OwnedFd> {
    in_thread(|| {
        // SAFETY: the descriptor table stays shared; only the network namespace of this short-lived thread changes.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET)? };
        Ok(File::open("/proc/thread-self/ns/net")?.into())
    })
}

/// Runs `work` on a thread inside `network`.
pub(crate) fn inside<T: Send>(network: BorrowedFd<'_>, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    in_thread(|| {
        move_into_link_name_space(network, Some(LinkNameSpaceType::Network))?;
        work()
    })
}

fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let panicked = |_| Err(io::Error::other("the thread in the namespace panicked"));
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(panicked))
}

/// Makes `command` start inside `door`, and die by `signal` when the calling thread does, if one is given.
pub(crate) fn start_inside(command: &mut Command, door: Door, signal: Option<Signal>) {
    let parent = rustix::process::getpid();
    let enter = move || {
        if let Some(user) = &door.user {
            move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
        }
        move_into_link_name_space(door.network.as_fd(), Some(LinkNameSpaceType::Network))?;
        // After the user namespace: a change of credentials clears the death signal.
        signal.map_or(Ok(()), |signal| die_with(parent, signal))
    };
    // SAFETY: between fork and exec the closure makes system calls only, without allocation or locks.
    unsafe { command.pre_exec(enter) };
}

/// Asks for `signal` when the parent dies, which must be `parent` still.
pub(crate) fn die_with(parent: Pid, signal: Signal) -> io::Result<()> {
    set_parent_process_death_signal(Some(signal))?;
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}
