//! Signals that ask the program to end, remembered so that a command can clean up first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Exit, failure};

/// Cheap to clone; every clone sees the signal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// From now on the signals no longer end the program by themselves.
    pub(crate) fn register() -> io::Result<Self> {
        let interrupt = Self::default();
        for (number, value) in [(SIGINT, 2), (SIGTERM, 15), (SIGHUP, 1)] {
            signal_hook::flag::register_usize(number, Arc::clone(&interrupt.signal), value)?;
        }
        Ok(interrupt)
    }

    /// The signal that came, if any.
    pub(crate) fn signal(&self) -> Option<u8> {
        u8::try_from(self.signal.load(Ordering::Relaxed)).ok().filter(|signal| *signal != 0)
    }

    /// An error if a signal came.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.signal().map_or(Ok(()), |signal| Err(failure(Exit::Signal(signal), "interrupted")))
    }
}
