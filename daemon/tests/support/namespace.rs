//! Threads and processes in namespaces of their own.

#![allow(unsafe_code, reason = "unshare changes what other threads may rely on, and pre_exec runs between fork and exec")]

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{UnshareFlags, unshare_unsafe};

type Job = Box<dyn FnOnce() + Send>;

/// A further network namespace, with a thread in it that runs jobs.
#[derive(Debug)]
pub struct Namespace {
    jobs: mpsc::Sender<Job>,
    handle: File,
}

impl Namespace {
    /// Makes one; the caller is already in a namespace, so it may.
    pub fn new() -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread(move || queue.into_iter().for_each(|job| job())).expect("a namespace in a namespace");
        let mut namespace = Self { jobs, handle: File::open("/dev/null").unwrap() };
        namespace.handle = namespace.run(|| File::open("/proc/thread-self/ns/net").unwrap());
        namespace
    }

    /// A descriptor that names the namespace.
    pub const fn handle(&self) -> &File {
        &self.handle
    }

    /// Runs a job in the namespace and waits for its result.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.start(job).recv().expect("the job panicked")
    }

    /// Runs a job in the namespace; its result arrives at the receiver.
    pub fn start<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
        let (done, result) = mpsc::channel();
        let job = move || {
            let _ = done.send(job());
        };
        self.jobs.send(Box::new(job)).expect("the namespace's thread has panicked");
        result
    }
}

/// Starts a thread in a network namespace of its own. `None` if that is not permitted.
pub fn thread(job: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    let (permission, permitted) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: only this thread's network namespace changes; no descriptor table or memory is unshared.
        let entered = unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.is_ok();
        let _ = permission.send(entered);
        if entered {
            job();
        }
    });
    permitted.recv().unwrap_or(false).then_some(thread)
}

/// Runs one test of this binary in a process that is root of its own user namespace.
pub fn run_again_as_root(name: &str) {
    let user_map = format!("0 {} 1", rustix::process::geteuid().as_raw());
    let group_map = format!("0 {} 1", rustix::process::getegid().as_raw());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--test-threads=1", "--nocapture"]);
    // SAFETY: between fork and exec the closure makes system calls only and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)?;
            write(c"/proc/self/setgroups", "deny")?;
            write(c"/proc/self/uid_map", &user_map)?;
            write(c"/proc/self/gid_map", &group_map)
        });
    }
    match command.status() {
        Ok(status) => assert!(status.success(), "{name} failed in its user namespace"),
        Err(error) => skip(&format!("this user may not make a user namespace: {error}")),
    }
}

/// Says why a test did not run.
pub fn skip(why: &str) {
    assert!(std::env::var_os("WEFT_REQUIRE_NAMESPACES").is_none(), "{why}");
    eprintln!("skipped: {why}");
}

fn write(path: &std::ffi::CStr, text: &str) -> std::io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes())?;
    Ok(())
}
