//! Draining the send queue of a queue pair, and setting it going again.

use crate::transport::endpoint::Endpoint;
use crate::transport::{AppId, CommandError, QpNum, QpState};

impl Endpoint {
    /// Lets the requests that have begun finish and holds the others back, those still to be posted too.
    /// [`Event::SendQueueDrained`](crate::transport::Event::SendQueueDrained) follows when none is under way.
    ///
    /// # Errors
    /// [`CommandError::NoSuchQp`], [`CommandError::WrongState`] if it is not ready to send.
    pub fn drain(&mut self, owner: AppId, number: QpNum) -> Result<(), CommandError> {
        self.change_state(owner, number, QpState::SendQueueDrain)
    }

    /// Goes on sending after a drain, or after [`Event::SendQueueFailed`](crate::transport::Event::SendQueueFailed).
    ///
    /// # Errors
    /// [`CommandError::NoSuchQp`], [`CommandError::WrongState`] if the send queue was neither drained nor failed.
    pub fn resume(&mut self, owner: AppId, number: QpNum) -> Result<(), CommandError> {
        let slot = self.owned_slot(owner, number).ok_or(CommandError::NoSuchQp)?;
        let stopped = |state| matches!(state, QpState::SendQueueDrain | QpState::SendQueueError);
        if !self.slots[slot].qp.as_ref().is_some_and(|qp| stopped(qp.state())) {
            return Err(CommandError::WrongState);
        }
        self.change_state(owner, number, QpState::ReadyToSend)
    }

    fn change_state(&mut self, owner: AppId, number: QpNum, next: QpState) -> Result<(), CommandError> {
        let slot = self.owned_slot(owner, number).ok_or(CommandError::NoSuchQp)?;
        if !self.qp(slot).is_some_and(|qp| qp.enter(next)) {
            return Err(CommandError::WrongState);
        }
        self.touch(slot);
        Ok(())
    }

    /// Tells the application what has become of a send queue.
    pub(super) fn settle(&mut self, slot: usize) {
        let Some(qp) = self.slots[slot].qp.as_deref_mut() else { return };
        let news = qp.settle(&mut self.completions).map(|event| (qp.owner, event));
        self.events.extend(news);
    }
}
