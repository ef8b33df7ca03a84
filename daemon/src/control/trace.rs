//! The last events of a queue pair in the words of the control protocol.

use weft_config::control::{ControlError, QpEvent, QpTrace};
use weft_config::model::Words as _;
use weft_proto::Instant;
use weft_proto::transport::irn::Cause;
use weft_proto::transport::trace::{AckWord, Stream, TRACE_LEN};
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
    let Words { event, stream, psn, packets, detail } = words(record.event);
    QpEvent {
        ago_ns: now.since(record.at).as_nanos(),
        event: event.to_owned(),
        stream: stream.map(|stream| stream_word(stream).to_owned()),
        psn: psn.map(Psn::value),
        packets: packets.map(u32::from),
        detail: detail.map(str::to_owned),
    }
}

/// An event as the protocol tells it.
#[derive(Clone, Copy, Debug, Default)]
struct Words {
    event: &'static str,
    stream: Option<Stream>,
    psn: Option<Psn>,
    packets: Option<u16>,
    detail: Option<&'static str>,
}

impl Words {
    const fn plain(event: &'static str, detail: Option<&'static str>) -> Self {
        Self { event, stream: None, psn: None, packets: None, detail }
    }

    const fn packet(event: &'static str, of: Stream, psn: Psn, detail: Option<&'static str>) -> Self {
        Self { event, stream: Some(of), psn: Some(psn), packets: None, detail }
    }
}

fn words(event: TraceEvent) -> Words {
    use Stream::{Requests, Responses};
    match event {
        TraceEvent::Connected { recovery } => Words::plain("connected", Some(recovery.word())),
        TraceEvent::State(state) => Words::plain("state", Some(state_label(state))),
        TraceEvent::Sent { of, psn, packets } => Words { packets: Some(packets), ..Words::packet("sent", of, psn, None) },
        TraceEvent::SentAgain { of, psn, cause } => Words::packet("sent_again", of, psn, Some(cause_word(cause))),
        TraceEvent::Arrived { of, psn, packets } => Words { packets: Some(packets), ..Words::packet("arrived", of, psn, None) },
        TraceEvent::ArrivedEarly { psn } => Words::packet("arrived_early", Requests, psn, None),
        TraceEvent::Dropped { of, psn, reason } => Words::packet("dropped", of, psn, Some(reason.label())),
        TraceEvent::Refused { psn, code } => Words::packet("refused", Requests, psn, Some(nak_word(code))),
        TraceEvent::Unusable { psn } => Words::packet("unusable", Responses, psn, None),
        TraceEvent::AckSent { of, psn, says } => Words::packet("ack_sent", of, psn, ack_word(says)),
        TraceEvent::AckReceived { of, psn, says } => Words::packet("ack_received", of, psn, ack_word(says)),
        TraceEvent::TimedOut => Words::plain("timeout", None),
        TraceEvent::LossNoticed => Words::plain("loss", None),
        TraceEvent::ProbeDue => Words::plain("probe", None),
        TraceEvent::Held(gate) => Words::plain("held", Some(gate.word())),
        TraceEvent::Failed(status) => Words::plain("failed", Some(status.description())),
    }
}

const fn stream_word(stream: Stream) -> &'static str {
    match stream {
        Stream::Requests => "requests",
        Stream::Responses => "responses",
    }
}

/// Why a packet goes out again.
const fn cause_word(cause: Cause) -> &'static str {
    match cause {
        Cause::Fast => "loss",
        Cause::Timeout => "timeout",
        Cause::Probe => "probe",
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
