//! The last events of a queue pair in the words of the control protocol.

use weft_config::control::{ControlError, QpEvent, QpTrace};
use weft_config::model::Words;
use weft_proto::Instant;
use weft_proto::transport::trace::{AckWord, TRACE_LEN};
use weft_proto::transport::{Psn, QpNum, TraceEvent, TraceRecord};
use weft_proto::wire::NakCode;

use super::detail::{no_such_queue_pair, state_label};
use super::node::Node;

/// The last events of `qp`, at most `last`.
pub(super) fn events_of(node: &Node, qp: u32, last: u32) -> Result<QpTrace, ControlError> {
    let (now, records) = node.worker.ask(move |now, plane| (now, plane.endpoint().and_then(|endpoint| endpoint.trace_of(QpNum(qp)))))?;
    let records = records.ok_or_else(|| no_such_queue_pair(qp))?;
    let last = usize::try_from(last).unwrap_or(TRACE_LEN).min(records.len());
    let events = records[records.len() - last..].iter().map(|record| event(now, record)).collect();
    Ok(QpTrace { qp, events })
}

fn event(now: Instant, record: &TraceRecord) -> QpEvent {
    let of = |event: &str, psn: Option<Psn>, packets: Option<u16>, detail: Option<&str>| QpEvent {
        ago_ns: now.since(record.at).as_nanos(),
        event: event.to_owned(),
        psn: psn.map(Psn::value),
        packets: packets.map(u32::from),
        detail: detail.map(str::to_owned),
    };
    match record.event {
        TraceEvent::Connected { recovery } => of("connected", None, None, Some(recovery.word())),
        TraceEvent::State(state) => of("state", None, None, Some(state_label(state))),
        TraceEvent::Sent { psn, packets } => of("sent", Some(psn), Some(packets), None),
        TraceEvent::SentAgain { psn, cause } => of("sent_again", Some(psn), None, Some(cause.word())),
        TraceEvent::Arrived { psn, packets } => of("arrived", Some(psn), Some(packets), None),
        TraceEvent::ArrivedEarly { psn } => of("arrived_early", Some(psn), None, None),
        TraceEvent::Dropped { psn, reason } => of("dropped", Some(psn), None, Some(reason.label())),
        TraceEvent::Refused { psn, code } => of("refused", Some(psn), None, Some(nak_word(code))),
        TraceEvent::AckSent { psn, says } => of("ack_sent", Some(psn), None, ack_word(says)),
        TraceEvent::AckReceived { psn, says } => of("ack_received", Some(psn), None, ack_word(says)),
        TraceEvent::TimedOut { psn } => of("timeout", Some(psn), None, None),
        TraceEvent::Held(gate) => of("held", None, None, Some(gate.word())),
        TraceEvent::Failed(status) => of("failed", None, None, Some(status.description())),
    }
}

/// What an acknowledgement says beside its number.
const fn ack_word(says: AckWord) -> Option<&'static str> {
    match says {
        AckWord::Cumulative => None,
        AckWord::Gap => Some("gap"),
        AckWord::NotReady => Some("receiver not ready"),
        AckWord::Refused(code) => Some(nak_word(code)),
    }
}

const fn nak_word(code: NakCode) -> &'static str {
    match code {
        NakCode::SequenceError => "gap",
        NakCode::InvalidRequest => "invalid request",
        NakCode::RemoteAccess => "access refused",
        NakCode::RemoteOperational => "operation failed",
    }
}
