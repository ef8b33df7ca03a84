//! What an error of a packet socket means. Pure.

use std::io;

/// The socket's interface carries nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is down; the socket works again when it is up.
    Down,
    /// It no longer exists.
    Gone,
}

/// What to do about an error of a send or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No frame waits, or there is no room now: later again.
    Later,
    /// Disturbed by a signal: again at once.
    Again,
    /// This frame is too long for the interface.
    TooLong,
    /// This frame is impossible; the next may be fine.
    Frame,
    /// The port is in trouble, not the frame.
    Port(Fault),
}

impl From<&io::Error> for Trouble {
    fn from(error: &io::Error) -> Self {
        // pnet reports the end of its wait for room in its own way.
        if error.kind() == io::ErrorKind::TimedOut {
            return Self::Later;
        }
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Self::Later,
            Some(libc::EINTR) => Self::Again,
            Some(libc::EMSGSIZE) => Self::TooLong,
            Some(libc::ENETDOWN) => Self::Port(Fault::Down),
            Some(libc::ENXIO | libc::ENODEV) => Self::Port(Fault::Gone),
            _ => Self::Frame,
        }
    }
}

/// Counts how often in a row the kernel had no room for the first frame of a queue.
#[derive(Debug, Default)]
pub(super) struct Patience {
    refusals: u32,
}

/// At 2 us or more per attempt this is at least as long as a full queue of 1,000 long frames takes at 10 Gbit/s (1.2 ms);
/// a driver that takes nothing for longer does not deserve the buffers.
const REFUSALS: u32 = 1_000;

impl Patience {
    /// The kernel took something.
    pub(super) const fn restore(&mut self) {
        self.refusals = 0;
    }

    /// The kernel had no room. True if it is time to give the frame up.
    pub(super) const fn is_exhausted_by_refusal(&mut self) -> bool {
        self.refusals += 1;
        if self.refusals < REFUSALS {
            return false;
        }
        self.refusals = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_to_do_about_them() {
        let of = |code| Trouble::from(&io::Error::from_raw_os_error(code));
        assert_eq!(of(libc::ENOBUFS), Trouble::Later);
        assert_eq!(of(libc::EAGAIN), Trouble::Later);
        assert_eq!(of(libc::EINTR), Trouble::Again);
        assert_eq!(of(libc::EMSGSIZE), Trouble::TooLong);
        assert_eq!(of(libc::ENETDOWN), Trouble::Port(Fault::Down));
        assert_eq!(of(libc::ENXIO), Trouble::Port(Fault::Gone));
        assert_eq!(of(libc::EINVAL), Trouble::Frame);
        assert_eq!(Trouble::from(&io::Error::from(io::ErrorKind::TimedOut)), Trouble::Later);
    }

    #[test]
    fn patience_ends_after_a_thousand_refusals_in_a_row() {
        let mut patience = Patience::default();
        for _ in 0..REFUSALS - 1 {
            assert!(!patience.is_exhausted_by_refusal());
        }
        patience.restore();
        assert_eq!((0..2 * REFUSALS).filter(|_| patience.is_exhausted_by_refusal()).count(), 2);
    }
}
