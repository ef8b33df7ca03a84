//! Network namespaces with virtual interfaces for tests, made without external programs.
//!
//! A test runs in a thread with a network namespace of its own, which vanishes with the thread and takes its
//! interfaces along. An ordinary user's test runs itself again in a user namespace in which it is root. Where neither
//! is permitted, the test says so and passes; with `WEFT_REQUIRE_NAMESPACES` set it fails.

#![allow(dead_code, reason = "each test binary uses its part")]

pub mod allocations;
pub mod network;
pub mod tap;

mod namespace;

use std::panic::resume_unwind;
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "each test binary uses its part")]
pub use namespace::{Namespace, skip};

/// Longest that any single wait of a test may take before the test is declared broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test in a network namespace of its own. `name` is the test's full name, as the harness knows it.
pub fn in_namespace(name: &str, test: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        return namespace::run_again_as_root(name);
    }
    match namespace::thread(test) {
        Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
        None => skip("this user may not make a network namespace"),
    }
}

/// Repeats `step` until it gives a value. Panics with `what` after a long while.
pub fn until<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = step() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::yield_now();
    }
}
