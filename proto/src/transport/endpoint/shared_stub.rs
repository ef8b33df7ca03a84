//! Placeholders until the core has shared receive queues and draining.

use super::Endpoint;
use crate::time::Instant;
use crate::transport::{AppId, CommandError, PostError, QpNum, RecvWork, SrqId};

impl Endpoint {
    /// Not yet.
    ///
    /// # Errors
    /// Always.
    pub fn create_srq(&mut self, _owner: AppId, _depth: u32) -> Result<SrqId, CommandError> {
        Err(CommandError::LimitReached)
    }

    /// Not yet.
    ///
    /// # Errors
    /// Always.
    pub fn post_srq_recv(&mut self, _owner: AppId, _srq: SrqId, _work: RecvWork) -> Result<(), PostError> {
        Err(PostError::QueueFull)
    }

    /// Not yet.
    ///
    /// # Errors
    /// Always.
    pub fn set_srq_limit(&mut self, _owner: AppId, _srq: SrqId, _limit: u32) -> Result<(), CommandError> {
        Err(CommandError::BadArgument)
    }

    /// Not yet.
    ///
    /// # Errors
    /// Always.
    pub fn destroy_srq(&mut self, _owner: AppId, _srq: SrqId) -> Result<(), CommandError> {
        Err(CommandError::BadArgument)
    }

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
