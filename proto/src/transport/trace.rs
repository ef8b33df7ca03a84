//! The last events of one queue pair, for whoever asks what it has been doing.
//!
//! A ring of [`TRACE_LEN`] records of 16 bytes, allocated when the queue pair connects. Writing is a comparison and a
//! store. Packets in a row share a record, so that the ring tells of more packets than it has records.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::drops::DropReason;
use crate::time::{Duration, Instant};
use crate::transport::irn::{Cause, Pick, Timeout};
use crate::transport::reads::Answered;
use crate::transport::responder::Outcome;
use crate::transport::state::QpState;
use crate::transport::{Psn, Recovery, Status};
use crate::wire::headers::{AckKind, NakCode};

/// Records that are kept: 1 KiB per connected queue pair. A power of two.
pub const TRACE_LEN: usize = 64;
/// Packets that are further apart do not share a record: it tells the time of the first only.
const RUN: Duration = Duration::from_millis(1);

/// Something that happened to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When; of packets in a row, the first.
    pub at: Instant,
    /// What.
    pub event: TraceEvent,
}

const _: () = assert!(size_of::<TraceRecord>() == 16, "a record has grown");

/// What can happen to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// Both sides agreed on a connection.
    Connected {
        /** The recovery mode agreed on. */
        recovery: Recovery,
    },
    /// It is in this state now.
    State(QpState),
    /// Packets went out for the first time.
    Sent {
        /** Requests or responses. */
        of: Stream,
        /** The first of them. */
        psn: Psn,
        /** How many in a row. */
        packets: u16,
    },
    /// A packet went out again.
    SentAgain {
        /** Request or response. */
        of: Stream,
        /** Its number. */
        psn: Psn,
        /** Why. */
        cause: Cause,
    },
    /// Packets came: requests in order, or responses.
    Arrived {
        /** Requests or responses. */
        of: Stream,
        /** The first of them. */
        psn: Psn,
        /** How many in a row. */
        packets: u16,
    },
    /// A request packet came behind a gap.
    ArrivedEarly {
        /** Its number. */
        psn: Psn,
    },
    /// A packet was dropped.
    Dropped {
        /** Request or response. */
        of: Stream,
        /** Its number. */
        psn: Psn,
        /** Why. */
        reason: DropReason,
    },
    /// A request packet was refused for good: the queue pair fails.
    Refused {
        /** Its number. */
        psn: Psn,
        /** What the peer is told. */
        code: NakCode,
    },
    /// A response came that fits no question, or for which there is no memory: the queue pair fails.
    Unusable {
        /** Its number. */
        psn: Psn,
    },
    /// An acknowledgement went out.
    AckSent {
        /** What it acknowledges. */
        of: Stream,
        /** Everything before this has arrived. */
        psn: Psn,
        /** What it says. */
        says: AckWord,
    },
    /// An acknowledgement came.
    AckReceived {
        /** What it acknowledges. */
        of: Stream,
        /** Everything before this has arrived there. */
        psn: Psn,
        /** What it says. */
        says: AckWord,
    },
    /// Nothing was heard for the retransmission time-out.
    TimedOut,
    /// A packet was sent long enough before one that has arrived: it counts as lost.
    LossNoticed,
    /// Nothing was heard for a while: a probe goes out.
    ProbeDue,
    /// Requests wait, and this holds them back.
    Held(Gate),
    /// It failed.
    Failed(Status),
}

/// The packet streams of a queue pair, each with numbers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// SEND, WRITE, and what asks for a READ or atomic.
    Requests,
    /// What READs and atomics are answered with.
    Responses,
}

impl Stream {
    pub(super) const fn of_responses(responses: bool) -> Self {
        if responses { Self::Responses } else { Self::Requests }
    }
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckWord {
    /// So far all has arrived.
    Cumulative,
    /// A packet is missing, others behind it have arrived.
    Gap,
    /// No receive is posted.
    NotReady,
    /// Refused for good.
    Refused(NakCode),
}

impl AckWord {
    /// Reduces an acknowledgement to what it says.
    pub(super) const fn of(kind: AckKind) -> Self {
        match kind {
            AckKind::Ack(_) => Self::Cumulative,
            AckKind::ReceiverNotReady(_) => Self::NotReady,
            AckKind::Nak(NakCode::SequenceError) => Self::Gap,
            AckKind::Nak(code) => Self::Refused(code),
        }
    }
}

/// What can hold requests back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// As many packets are in flight as may be.
    Window,
    /// The peer has no receive posted and has asked for a delay.
    ReceiverNotReady,
    /// As many packets are in flight as congestion control allows.
    Congestion,
    /// Congestion control spaces packets out.
    Pacing,
    /// A loss has to be recovered first.
    Recovery,
    /// The peer has told of no receive for the next message.
    Credits,
    /// As many READs and atomics are under way as the peer answers at a time, or a fence waits for them.
    Reads,
    /// The peer's host has asked us to stop or slow down.
    Stopped,
}

impl Gate {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::ReceiverNotReady => "receiver not ready",
            Self::Congestion => "congestion window",
            Self::Pacing => "pacing",
            Self::Recovery => "recovery",
            Self::Credits => "no credit",
            Self::Reads => "reads under way",
            Self::Stopped => "stop control",
        }
    }
}

impl TraceEvent {
    /// What became of a request packet.
    pub(super) const fn of_request(psn: Psn, outcome: &Outcome) -> Self {
        match *outcome {
            Outcome::Taken { ahead: 0, .. } => Self::Arrived { of: Stream::Requests, psn, packets: 1 },
            Outcome::Taken { .. } => Self::ArrivedEarly { psn },
            Outcome::Dropped(reason) => Self::Dropped { of: Stream::Requests, psn, reason },
            Outcome::Fatal { code, .. } => Self::Refused { psn, code },
        }
    }

    /// What became of a response.
    pub(super) const fn of_response(psn: Psn, answered: Answered) -> Self {
        match answered {
            Answered::Taken => Self::Arrived { of: Stream::Responses, psn, packets: 1 },
            Answered::Dropped(reason) => Self::Dropped { of: Stream::Responses, psn, reason },
            Answered::Nonsense | Answered::NoMemory(_) | Answered::Withheld(_) => Self::Unusable { psn },
        }
    }

    /// A packet went out.
    pub(super) const fn of_pick(of: Stream, pick: Pick) -> Self {
        match pick {
            Pick::New(psn) => Self::Sent { of, psn, packets: 1 },
            Pick::Again { psn, cause } => Self::SentAgain { of, psn, cause },
        }
    }

    /// Takes `next` in, if it only continues this.
    fn extend(&mut self, next: &Self) -> bool {
        match (self, next) {
            (Self::Sent { of, psn, packets }, Self::Sent { of: stream, psn: next, .. })
            | (Self::Arrived { of, psn, packets }, Self::Arrived { of: stream, psn: next, .. })
                if of == stream && *packets < u16::MAX && psn.plus(u32::from(*packets)) == *next =>
            {
                *packets += 1;
                true
            }
            (Self::Held(gate), Self::Held(next)) => gate == next,
            _ => false,
        }
    }
}

/// The ring. Empty until [`Trace::open`].
#[derive(Debug, Default)]
pub(super) struct Trace {
    ring: Box<[TraceRecord]>,
    /// Records ever written, modulo 2^32, which is a multiple of the ring's size.
    written: u32,
    full: bool,
    state: Option<QpState>,
}

impl Trace {
    /// Begins to keep events.
    pub(super) fn open(&mut self, now: Instant, event: TraceEvent) {
        if self.ring.is_empty() {
            self.ring = vec![TraceRecord { at: now, event }; TRACE_LEN].into_boxed_slice();
        }
        self.note(now, event);
    }

    /// Keeps an event; nothing before [`Self::open`].
    pub(super) fn note(&mut self, now: Instant, event: TraceEvent) {
        let (last, next) = (self.place(self.written.wrapping_sub(1)), self.place(self.written));
        let has_last = self.full || self.written > 0;
        if let Some(last) = self.ring.get_mut(last)
            && has_last
            && now.since(last.at) < RUN
            && last.event.extend(&event)
        {
            return;
        }
        let Some(record) = self.ring.get_mut(next) else { return };
        *record = TraceRecord { at: now, event };
        self.written = self.written.wrapping_add(1);
        self.full |= self.place(self.written) == 0;
    }

    /// Keeps the state, if it is another than last time.
    pub(super) fn watch(&mut self, now: Instant, state: QpState) {
        if self.state != Some(state) {
            self.state = Some(state);
            self.note(now, TraceEvent::State(state));
        }
    }

    /// Keeps what the passing of time meant.
    pub(super) fn note_timeout(&mut self, now: Instant, timeout: Timeout) {
        match timeout {
            Timeout::Retransmit | Timeout::Exhausted => self.note(now, TraceEvent::TimedOut),
            Timeout::Probe => self.note(now, TraceEvent::ProbeDue),
            Timeout::LossCheck { lost: true } => self.note(now, TraceEvent::LossNoticed),
            Timeout::Idle | Timeout::LossCheck { lost: false } => {}
        }
    }

    /// The kept events, oldest first.
    pub(super) fn records(&self) -> Vec<TraceRecord> {
        let (newer, older) = self.ring.split_at(self.place(self.written).min(self.ring.len()));
        if self.full { [older, newer].concat() } else { newer.to_vec() }
    }

    const fn place(&self, number: u32) -> usize {
        number as usize & (TRACE_LEN - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    const fn sent(psn: u32, packets: u16) -> TraceEvent {
        TraceEvent::Sent { of: Stream::Requests, psn: Psn::new(psn), packets }
    }

    const CONNECTED: TraceEvent = TraceEvent::Connected { recovery: Recovery::Irn };

    fn open() -> Trace {
        let mut trace = Trace::default();
        trace.open(at(0), CONNECTED);
        trace
    }

    fn events(trace: &Trace) -> Vec<TraceEvent> {
        trace.records().into_iter().map(|record| record.event).collect()
    }

    #[test]
    fn a_queue_pair_that_never_connected_keeps_nothing() {
        let mut trace = Trace::default();
        trace.note(at(1), sent(1, 1));
        assert!(trace.records().is_empty());
    }

    #[test]
    fn packets_in_a_row_share_a_record_until_one_is_missing_or_time_has_passed() {
        let mut trace = open();
        for psn in [0x00ff_fffe, 0x00ff_ffff, 0, 1, 3, 4] {
            trace.note(at(5), sent(psn, 1));
        }
        trace.note(at(1005), sent(5, 1));
        trace.note(at(1006), TraceEvent::Arrived { of: Stream::Requests, psn: Psn::new(6), packets: 1 });
        let expected = [
            CONNECTED,
            sent(0x00ff_fffe, 4),
            sent(3, 2),
            sent(5, 1),
            TraceEvent::Arrived { of: Stream::Requests, psn: Psn::new(6), packets: 1 },
        ];
        assert_eq!(events(&trace), expected);
    }

    #[test]
    fn what_is_asked_again_and_again_is_noted_once() {
        let mut trace = open();
        for time in 0..3 {
            trace.note(at(time), TraceEvent::Held(Gate::Window));
            trace.watch(at(time), QpState::ReadyToSend);
        }
        trace.note(at(4), TraceEvent::Held(Gate::Recovery));
        let held = TraceEvent::Held(Gate::Window);
        let state = TraceEvent::State(QpState::ReadyToSend);
        assert_eq!(events(&trace), [CONNECTED, held, state, held, TraceEvent::Held(Gate::Recovery)]);
    }

    #[test]
    fn the_last_events_stay_when_there_are_more_than_fit() {
        let mut trace = open();
        for number in 0..1000 {
            trace.note(at(number), sent(u32::try_from(number).unwrap() * 2, 1));
            let kept = trace.records();
            assert_eq!(kept.len(), TRACE_LEN.min(usize::try_from(number).unwrap() + 2));
            assert_eq!(kept.last().unwrap().at, at(number));
        }
        let times: Vec<_> = trace.records().iter().map(|record| record.at).collect();
        assert_eq!(times, (1000 - 64..1000).map(at).collect::<Vec<_>>());
    }
}
