//! How many packets a queue pair sent again, as the daemon's administration socket tells; its users may not.

use std::path::Path;

use weft_config::control::{QpInfo, Request};
use weft_verbs::QpNum;

use crate::admin::Admin;

/// Packets of the queue pair `num` sent again so far; `None` if the daemon does not tell this user.
pub(crate) fn of(socket: &Path, num: QpNum) -> Option<u64> {
    let queue_pairs: Vec<QpInfo> = Admin::connect(socket).ok()?.list(|offset| Request::Qps { offset }).ok()?;
    let counters = queue_pairs.iter().find(|qp| qp.qp == num.0)?.counters;
    Some(counters.retransmitted_fast + counters.retransmitted_timeout)
}
