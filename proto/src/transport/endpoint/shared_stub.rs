//! Placeholders until the core has draining.

use super::Endpoint;
use crate::time::Instant;
use crate::transport::{AppId, CommandError, QpNum};

impl Endpoint {
    /// Not yet.
    ///
    /// # Errors
    /// Always.
    pub fn drain(&mut self, _now: Instant, _owner: AppId, _qp: QpNum) -> Result<(), CommandError> {
        Err(CommandError::WrongState)
    }

    /// Not yet.
    ///
    /// # Errors
    /// Always.
    pub fn resume(&mut self, _now: Instant, _owner: AppId, _qp: QpNum) -> Result<(), CommandError> {
        Err(CommandError::WrongState)
    }
}
