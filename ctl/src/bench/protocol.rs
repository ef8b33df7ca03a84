//! What both sides of a measurement say to each other. Pure.
//!
//! The measuring side says in its connection request what it is about to do ([`Hello`]); the answer opens memory for it
//! ([`Answer`]). If both sides measure at once, the measuring side says [`STOP`] at the end, and the other writes its
//! [`Tally`] to the measuring side's memory and says [`DONE`].

use serde::{Deserialize, Serialize};
use weft_verbs::{AtomicOp, SendOp};

use crate::session::Shape;

/// Tells these connections from others that reach the same service.
const MAGIC: &str = "weft-bench";
/// Version of the protocol.
const VERSION: u32 = 1;
/// Longest message in bytes.
pub(super) const MAX_SIZE: u32 = 16 << 20;
/// Most messages on their way.
pub(super) const MAX_DEPTH: u32 = 1024;
/// Most queue pairs of one measurement: as many as an application may have by default.
pub(super) const MAX_QUEUE_PAIRS: u32 = 256;
/// Shortest message to be sent back: a sequence number.
pub(super) const MIN_ECHO: u32 = 8;
/// Bytes that an atomic changes.
pub(super) const ATOMIC: u32 = 8;
/// Room for messages that are thrown away, in bytes, if the depth does not ask for more: a sender that finds none has to wait
/// and try again, and then the delay is measured and not the transport. All queue pairs of a measurement share it.
const SINK_MEMORY: u32 = 8 << 20;
/// Most memory for one measurement, in bytes.
const MAX_MEMORY: u64 = 256 << 20;
/// What an answering side says that does not know what it is asked for.
pub(super) const NOT_UNDERSTOOD: &str = "weftctl serve does not understand the greeting";

/// From the measuring side: stop and tell.
pub(super) const STOP: u32 = 1;
/// From the answering side: the tally is written.
pub(super) const DONE: u32 = 2;

/// What the answering side does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// Sends every message back.
    Echo,
    /// Throws every message away.
    Sink,
    /// Opens memory to be written.
    Write,
    /// Opens memory to be read.
    Read,
    /// Opens memory for additions.
    FetchAdd,
    /// Opens memory for comparisons.
    CompareSwap,
}

impl Mode {
    /// What a user calls the operation.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Echo | Self::Sink => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::FetchAdd => "fetch-add",
            Self::CompareSwap => "compare-swap",
        }
    }

    pub(super) const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// True if the bytes move with messages that consume receives.
    const fn is_messages(self) -> bool {
        matches!(self, Self::Echo | Self::Sink)
    }

    /// The request with this number, to memory that `rkey` opens.
    pub(super) const fn operation(self, number: u64, rkey: u32) -> SendOp {
        let remote_addr = 0;
        match self {
            Self::Echo | Self::Sink => SendOp::Send,
            Self::Write => SendOp::Write { remote_addr, rkey },
            Self::Read => SendOp::Read { remote_addr, rkey },
            Self::FetchAdd => SendOp::Atomic { remote_addr, rkey, op: AtomicOp::FetchAdd { add: 1 } },
            Self::CompareSwap => {
                let op = AtomicOp::CompareSwap { compare: number, swap: number.wrapping_add(1) };
                SendOp::Atomic { remote_addr, rkey, op }
            }
        }
    }
}

/// What the measuring side says. What an older answering side would not know is left out where it does not matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hello {
    magic: String,
    version: u32,
    pub(super) mode: Mode,
    /// Bytes of a message.
    pub(super) size: u32,
    /// Messages on their way.
    pub(super) depth: u32,
    /// Queue pairs of the measurement, each with a connection of its own.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(super) queue_pairs: u32,
    /// The answering side does the same at the same time; the key of the measuring side's [`Layout`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) back: Option<u32>,
}

const fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

impl Hello {
    pub(super) fn new(mode: Mode, size: u32, depth: u32) -> Self {
        Self { magic: MAGIC.to_owned(), version: VERSION, mode, size, depth, queue_pairs: 1, back: None }
    }

    /// The same with so many queue pairs.
    pub(super) fn on(self, queue_pairs: u32) -> Self {
        Self { queue_pairs, ..self }
    }

    /// The same with both sides at work, if there is a key for the other one.
    pub(super) fn and_back(self, back: Option<u32>) -> Self {
        Self { back, ..self }
    }

    /// Reads it, or says why the other side is turned down.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let value: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
        if value["magic"] != MAGIC {
            return Err("weftctl serve listens here, and answers weftctl ping and bench only");
        }
        if value["version"] != VERSION {
            return Err("weftctl serve is of another version here; run the same version on both hosts");
        }
        let hello: Self = serde_json::from_value(value).map_err(|_| NOT_UNDERSTOOD)?;
        hello.check()?;
        Ok(hello)
    }

    /// Whether it keeps the limits.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !(1..=MAX_SIZE).contains(&self.size) || !(1..=MAX_DEPTH).contains(&self.depth) {
            return Err("the size or depth is out of range");
        }
        if !(1..=MAX_QUEUE_PAIRS).contains(&self.queue_pairs) {
            return Err("the number of queue pairs is out of range");
        }
        if self.mode.is_atomic() && self.size != ATOMIC {
            return Err("an atomic has 8 bytes");
        }
        if self.memory() > MAX_MEMORY {
            return Err("this needs more than 256 MiB of memory; take less of --size, --depth or --qps");
        }
        Ok(())
    }

    /// Bytes that the side with more of it needs, on all queue pairs.
    fn memory(&self) -> u64 {
        let mailbox = |shape: Shape| u64::from(shape.receives + shape.sends) * u64::from(shape.slot);
        let one = mailbox(self.serving()).max(mailbox(self.measuring())) + Layout::of(self).len();
        u64::from(self.queue_pairs) * one
    }

    pub(super) const fn is_both(&self) -> bool {
        self.back.is_some()
    }

    /// The answering side's mailbox: at least twice the depth, so that a message finds room while earlier ones are being handled.
    pub(super) fn serving(&self) -> Shape {
        let (receives, sends) = match self.mode {
            Mode::Echo => (2 * self.depth, self.depth),
            Mode::Sink => (self.sink_receives(), 1),
            Mode::Write | Mode::Read | Mode::FetchAdd | Mode::CompareSwap => (1, 1),
        };
        Shape {
            slot: self.slot(),
            receives,
            sends,
            requests: if self.is_both() { self.requests() } else { 0 },
            recovery: None,
            priority: None,
        }
    }

    /// The measuring side's mailbox.
    pub(super) fn measuring(&self) -> Shape {
        let shape = |receives| Shape { slot: MIN_ECHO, receives, sends: 1, requests: self.requests(), recovery: None, priority: None };
        match self.mode {
            Mode::Echo => {
                Shape { slot: self.size, receives: 2 * self.depth, sends: self.depth, requests: 0, recovery: None, priority: None }
            }
            Mode::Sink if self.is_both() => Shape { slot: self.slot(), ..shape(self.sink_receives()) },
            _ => shape(1),
        }
    }

    fn slot(&self) -> u32 {
        if self.mode.is_messages() { self.size } else { MIN_ECHO }
    }

    fn sink_receives(&self) -> u32 {
        let share = SINK_MEMORY / self.queue_pairs.max(1);
        (2 * self.depth).max(share / self.size.max(1)).min(4 * MAX_DEPTH)
    }

    /// Besides the messages of the measurement, one number at its end.
    const fn requests(&self) -> u32 {
        self.depth + 1
    }
}

/// How each side's memory is used: first what the other side writes to, reads from or changes, then, if both measure, what
/// the own requests use, then the other side's tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    size: u32,
    both: bool,
}

impl Layout {
    pub(super) const fn of(hello: &Hello) -> Self {
        // At least what an atomic needs, so that all that follows stays aligned to it.
        Self { size: hello.size.next_multiple_of(ATOMIC), both: hello.is_both() }
    }

    pub(super) const fn len(self) -> u64 {
        if self.both { self.tally() + Tally::LEN as u64 } else { self.size as u64 }
    }

    /// Where the own requests take bytes from, or put them.
    pub(super) const fn local(self) -> u64 {
        if self.both { self.size as u64 } else { 0 }
    }

    /// Where the tally goes.
    pub(super) const fn tally(self) -> u64 {
        2 * self.size as u64
    }
}

/// What the answering side says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Key of `size` bytes of memory from address 0, if it was to open some.
    pub(super) rkey: Option<u32>,
}

/// What the answering side did itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) nanoseconds: u64,
}

impl Tally {
    pub(super) const LEN: usize = 24;

    pub(super) fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (place, number) in bytes.chunks_exact_mut(8).zip([self.messages, self.bytes, self.nanoseconds]) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: [u8; Self::LEN]) -> Self {
        let mut numbers = bytes.as_chunks().0.iter().map(|number| u64::from_be_bytes(*number));
        let mut next = || numbers.next().unwrap_or(0);
        Self { messages: next(), bytes: next(), nanoseconds: next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Mode; 6] = [Mode::Echo, Mode::Sink, Mode::Write, Mode::Read, Mode::FetchAdd, Mode::CompareSwap];

    #[test]
    fn a_greeting_comes_back_as_it_was_and_fits_the_private_data() {
        for mode in ALL {
            let size = if mode.is_atomic() { ATOMIC } else { 1000 };
            let hello = Hello { queue_pairs: MAX_QUEUE_PAIRS, back: Some(u32::MAX), ..Hello::new(mode, size, 16) };
            let bytes = serde_json::to_vec(&hello).unwrap();
            assert!(bytes.len() <= weft_verbs::protocol::MAX_PRIVATE);
            assert_eq!(Hello::decode(&bytes), Ok(hello));
        }
        let longest = Hello { back: Some(u32::MAX), queue_pairs: MAX_QUEUE_PAIRS, ..Hello::new(Mode::CompareSwap, MAX_SIZE, MAX_DEPTH) };
        assert!(serde_json::to_vec(&longest).unwrap().len() <= weft_verbs::protocol::MAX_PRIVATE);
    }

    #[test]
    fn what_older_commands_can_do_is_asked_for_and_understood_as_they_say_it() {
        let old = r#"{"magic":"weft-bench","version":1,"mode":"write","size":100,"depth":7}"#;
        assert_eq!(serde_json::to_string(&Hello::new(Mode::Write, 100, 7)).unwrap(), old);
        assert_eq!(Hello::decode(old.as_bytes()), Ok(Hello::new(Mode::Write, 100, 7)));
    }

    #[test]
    fn greetings_of_others_are_turned_down_with_a_reason() {
        let reason = |text: &str| Hello::decode(text.as_bytes()).unwrap_err();
        assert!(reason("").contains("ping and bench only"));
        assert!(reason(r#"{"magic":"weft-files","version":1}"#).contains("ping and bench only"));
        assert!(reason(r#"{"magic":"weft-bench","version":2}"#).contains("another version"));
        assert!(reason(r#"{"magic":"weft-bench","version":1}"#).contains("not understand"));
        let encode = |hello: Hello| serde_json::to_string(&hello).unwrap();
        assert!(reason(&encode(Hello::new(Mode::Echo, 0, 1))).contains("range"));
        assert!(reason(&encode(Hello::new(Mode::Echo, 64, MAX_DEPTH + 1))).contains("range"));
        assert!(reason(&encode(Hello::new(Mode::Sink, MAX_SIZE, 32))).contains("256 MiB"));
        assert!(reason(&encode(Hello { queue_pairs: 0, ..Hello::new(Mode::Sink, 64, 1) })).contains("range"));
        assert!(reason(&encode(Hello { queue_pairs: MAX_QUEUE_PAIRS, ..Hello::new(Mode::Read, 2 << 20, 1) })).contains("256 MiB"));
        assert!(reason(&encode(Hello::new(Mode::FetchAdd, 16, 1))).contains("8 bytes"));
        assert!(Hello::decode(encode(Hello::new(Mode::Write, MAX_SIZE, MAX_DEPTH)).as_bytes()).is_ok());
    }

    #[test]
    fn no_two_uses_of_the_memory_overlap() {
        let hello = Hello { back: Some(1), ..Hello::new(Mode::Write, 13, 1) };
        let layout = Layout::of(&hello);
        assert!(13 <= layout.local() && layout.local() + 13 <= layout.tally());
        assert_eq!(layout.len(), layout.tally() + Tally::LEN as u64);
        assert_eq!((layout.local() % 8, layout.tally() % 8), (0, 0));
        assert_eq!(Layout::of(&Hello::new(Mode::Write, 13, 1)).len(), 16);
    }

    #[test]
    fn a_tally_comes_back_as_it_was() {
        let tally = Tally { messages: 1, bytes: u64::MAX, nanoseconds: 77 };
        assert_eq!(Tally::decode(tally.encode()), tally);
    }
}
