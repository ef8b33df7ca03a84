//! How many packets a queue pair sent again, as the daemon's administration socket tells; its users may not.

use std::path::Path;

use weft_config::control::{QpInfo, Request};
use weft_verbs::QpNum;

use crate::admin::Admin;

/// Packets of the queue pair `num` sent again so far; `None` if the daemon does not tell this user.
pub(crate) fn of(socket: &Path, num: QpNum) -> Option<u64> {
    let counters = Admin::connect(socket).ok()?.request::<QpInfo>(Request::Qp { qp: num.0 }).ok()?.counters;
    Some(counters.retransmitted())
}
