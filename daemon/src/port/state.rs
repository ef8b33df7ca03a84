//! What state a port is in, and when its socket must be opened anew. Pure: no socket, no clock.
//!
//! | in \ event | link up | link down | other number | gone | socket fault | opened |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | `Absent` | open | open | open | - | - | `Up` or `Down` |
//! | `Down` | `Up` | - | `Absent`, close, open | `Absent`, close | - | - |
//! | `Up` | - | `Down` | `Absent`, close, open | `Absent`, close | `Down` | - |
//!
//! Down and up again keep the socket: it works again by itself. An interface that was deleted and made again under
//! its name has another number, and a socket of the old one stays deaf for ever.

use weft_proto::{Duration, Instant};

/// The first wait after an opening that failed; it doubles from there. A name can be there before its interface is usable.
const BACKOFF_LOW: Duration = Duration::from_millis(10);
/// The longest wait between two attempts.
const BACKOFF_HIGH: Duration = Duration::from_secs(1);

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// There is no interface of this name, or none that could be opened.
    Absent,
    /// The interface is there but carries nothing: switched off, or its peer is.
    Down,
    /// Frames can flow.
    Up,
}

/// What the owner has to do with the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Action {
    /// Nothing.
    Keep,
    /// Close it: its interface is gone.
    Close,
}

/// The state of one port and its plan to recover.
#[derive(Debug)]
pub(super) struct Machine {
    state: PortState,
    /// Number of the interface that the socket is bound to.
    index: u32,
    retry_at: Option<Instant>,
    backoff: Duration,
}

impl Machine {
    /// A port whose socket was just opened.
    pub(super) const fn opened(index: u32, up: bool) -> Self {
        Self { state: if up { PortState::Up } else { PortState::Down }, index, retry_at: None, backoff: BACKOFF_LOW }
    }

    pub(super) const fn state(&self) -> PortState {
        self.state
    }

    /// The interface of our name exists, has this number and is up or not.
    pub(super) fn handle_present(&mut self, index: u32, up: bool) -> Action {
        if self.state == PortState::Absent {
            // A new interface is tried at once; a known one waits out its backoff.
            if self.retry_at.is_none() || self.index != index {
                self.plan(index);
            }
            return Action::Keep;
        }
        if self.index != index {
            self.state = PortState::Absent;
            self.plan(index);
            return Action::Close;
        }
        self.state = if up { PortState::Up } else { PortState::Down };
        Action::Keep
    }

    /// The interface with this number no longer exists, or no longer has our name.
    pub(super) fn handle_gone(&mut self, index: u32) -> Action {
        if self.index != index {
            return Action::Keep;
        }
        self.retry_at = None;
        match std::mem::replace(&mut self.state, PortState::Absent) {
            PortState::Absent => Action::Keep,
            PortState::Down | PortState::Up => Action::Close,
        }
    }

    /// The socket reported that its interface carries nothing.
    pub(super) fn handle_fault(&mut self) {
        if self.state == PortState::Up {
            self.state = PortState::Down;
        }
    }

    /// An attempt to open succeeded.
    pub(super) const fn handle_opened(&mut self, index: u32, up: bool) {
        *self = Self::opened(index, up);
    }

    /// An attempt to open failed.
    pub(super) fn handle_open_failed(&mut self, now: Instant) {
        self.retry_at = Some(now + self.backoff);
        self.backoff = self.backoff.saturating_mul(2).min(BACKOFF_HIGH);
    }

    /// An attempt to open found no interface: nothing to do before one appears.
    pub(super) const fn handle_not_found(&mut self) {
        self.retry_at = None;
        self.backoff = BACKOFF_LOW;
    }

    /// When the next attempt to open is due.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Due at once, whatever the time is.
    const fn plan(&mut self, index: u32) {
        self.index = index;
        self.retry_at = Some(Instant::ZERO);
        self.backoff = BACKOFF_LOW;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent() -> Machine {
        let mut machine = Machine::opened(7, true);
        assert_eq!(machine.handle_gone(7), Action::Close);
        machine
    }

    #[test]
    fn down_and_up_again_keep_the_socket() {
        let mut machine = Machine::opened(7, true);
        assert_eq!(machine.handle_present(7, false), Action::Keep);
        assert_eq!(machine.state(), PortState::Down);
        assert_eq!(machine.handle_present(7, true), Action::Keep);
        assert_eq!((machine.state(), machine.poll_timeout()), (PortState::Up, None));
    }

    #[test]
    fn a_socket_fault_means_down_until_the_link_says_up() {
        let mut machine = Machine::opened(7, true);
        machine.handle_fault();
        assert_eq!((machine.state(), machine.poll_timeout()), (PortState::Down, None));
        assert_eq!(machine.handle_present(7, true), Action::Keep);
        assert_eq!(machine.state(), PortState::Up);
    }

    #[test]
    fn a_deleted_interface_closes_the_socket_and_a_new_one_is_opened_at_once() {
        let mut machine = absent();
        assert_eq!((machine.state(), machine.poll_timeout()), (PortState::Absent, None));
        assert_eq!(machine.handle_present(8, false), Action::Keep);
        assert_eq!((machine.state(), machine.poll_timeout()), (PortState::Absent, Some(Instant::ZERO)));
        machine.handle_opened(8, false);
        assert_eq!((machine.state(), machine.poll_timeout()), (PortState::Down, None));
    }

    #[test]
    fn another_number_under_the_same_name_replaces_the_socket_even_if_the_deletion_was_missed() {
        for up in [false, true] {
            let mut machine = Machine::opened(7, up);
            assert_eq!(machine.handle_present(8, true), Action::Close);
            assert_eq!((machine.state(), machine.poll_timeout()), (PortState::Absent, Some(Instant::ZERO)));
        }
    }

    #[test]
    fn the_deletion_of_another_interface_changes_nothing() {
        let mut machine = Machine::opened(7, true);
        assert_eq!(machine.handle_gone(8), Action::Keep);
        assert_eq!(machine.state(), PortState::Up);
        assert_eq!(absent().handle_gone(7), Action::Keep);
    }

    #[test]
    fn a_fault_of_a_closed_or_silent_port_changes_nothing() {
        let mut machine = absent();
        machine.handle_fault();
        assert_eq!(machine.state(), PortState::Absent);
    }

    #[test]
    fn failed_attempts_are_spaced_further_and_further_up_to_a_second() {
        let mut machine = absent();
        let _ = machine.handle_present(8, true);
        let mut now = Instant::from_nanos(5);
        let mut waits = Vec::new();
        for _ in 0..9 {
            machine.handle_open_failed(now);
            // News about the same interface do not shorten the wait.
            let _ = machine.handle_present(8, true);
            let due = machine.poll_timeout().unwrap();
            waits.push(due.since(now).as_nanos() / 1_000_000);
            now = due;
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        let _ = machine.handle_present(9, true);
        assert_eq!(machine.poll_timeout(), Some(Instant::ZERO), "a new interface is tried at once");
    }

    #[test]
    fn an_attempt_that_finds_no_interface_waits_for_news() {
        let mut machine = absent();
        let _ = machine.handle_present(8, true);
        machine.handle_not_found();
        assert_eq!((machine.state(), machine.poll_timeout()), (PortState::Absent, None));
    }
}
