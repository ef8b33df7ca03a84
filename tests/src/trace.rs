//! Loss recovery driven by a text trace: events in, expected answers beside them.
//!
//! One event per line, `=>`, and what must come of it; `#` starts a comment. Numbers are PSNs, times are microseconds.
//! The first line says which half of `irn-strict` is driven and from where:
//!
//! ```text
//! receiver start=N
//! arrive PSN inner|ends|completes => ack CUM [dup PSN] | nack CUM sack PSN | silence   [messages=N] [completions=N]
//!
//! sender start=N [cap=N] [low=US] [high=US] [retries=N]
//! at US                          the time from here on
//! slot [empty]                   => new PSN | again PSN [timeout] | nothing      (empty: no new data waits)
//! slots N                        => as many answers, separated by commas
//! ack CUM | nack CUM [sack PSN]  => ok | bad
//! timer                          => idle | retransmit | exhausted
//! state                          => unacknowledged=N next=N recovery=yes|no [deadline=US|none]
//! ```
//! The formats are our own; a foreign trace needs its lines rewritten, not its meaning.

use std::collections::HashMap;

use weft_proto::transport::irn::{
    AckTiming, Acker, Arrival, Cause, Feedback, Mark, Pick, Profile, Receiver, RtoBounds, Sender, SenderConfig, Timeout, Window,
};
use weft_proto::transport::{Psn, Recovery};
use weft_proto::{Duration, Instant};

/// Replays a trace.
///
/// # Errors
/// The first line that came out differently, with both answers.
pub fn replay(text: &str) -> Result<(), String> {
    let mut machine = None;
    for (line, number) in text.lines().zip(1..) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let step = match &mut machine {
            None => Machine::new(line).map(|made| machine = Some(made)),
            Some(machine) => machine.step(line),
        };
        step.map_err(|wrong| format!("line {number}, \"{line}\": {wrong}"))?;
    }
    machine.map(|_| ()).ok_or_else(|| String::from("the trace is empty"))
}

#[derive(Debug)]
enum Machine {
    Receiver(Box<Receiver>, Box<Acker>),
    Sender(Box<Sender>, Instant),
}

const NO_DELAY: AckTiming = AckTiming { every: 1, delay: Duration::ZERO };

impl Machine {
    fn new(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let kind = words.next().unwrap_or_default();
        let fields: HashMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
        let field = |name: &str, default: u64| fields.get(name).map_or(Ok(default), |text| number(text));
        let start = psn(field("start", 0)?)?;
        let profile = Profile::of(Recovery::IrnStrict);
        match kind {
            "receiver" => Ok(Self::Receiver(Box::new(Receiver::new(start)), Box::new(Acker::new(profile, NO_DELAY)))),
            "sender" => {
                let rto = RtoBounds {
                    low: Duration::from_micros(field("low", 100)?),
                    high: Duration::from_micros(field("high", 320)?),
                    longest: Duration::MAX,
                    adaptive: profile.rto_adaptive,
                };
                let narrow = |value: u64| u32::try_from(value).map_err(|_| String::from("too large"));
                let retry_count = u8::try_from(field("retries", 7)?).map_err(|_| String::from("too many retries"))?;
                let window = Window::fixed(narrow(field("cap", 110)?)?);
                let ack_delay = NO_DELAY.delay;
                let config = SenderConfig { profile, window, rto, retry_count, ack_delay, tail_asks: true };
                Ok(Self::Sender(Box::new(Sender::new(start, config)), Instant::ZERO))
            }
            _ => Err(String::from("a trace starts with `receiver` or `sender`")),
        }
    }

    fn step(&mut self, line: &str) -> Result<(), String> {
        let (event, expected) = line.split_once("=>").map_or((line, None), |(event, answer)| (event, Some(answer.trim())));
        let words: Vec<&str> = event.split_whitespace().collect();
        let answer = match self {
            Self::Receiver(receiver, acker) => step_receiver(receiver, acker, &words)?,
            Self::Sender(sender, now) => step_sender(sender, now, &words)?,
        };
        match expected {
            Some(expected) if normal(expected) != normal(&answer) => Err(format!("the answer was \"{answer}\"")),
            None if words[0] != "at" => Err(String::from("an event needs an expected answer")),
            _ => Ok(()),
        }
    }
}

fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("\"{text}\" is no number"))
}

fn psn(value: u64) -> Result<Psn, String> {
    u32::try_from(value).ok().filter(|&value| value < 1 << 24).map(Psn::new).ok_or_else(|| format!("{value} is no PSN"))
}

fn psn_at(words: &[&str], at: usize) -> Result<Psn, String> {
    psn(number(words.get(at).ok_or("a PSN is missing")?)?)
}

fn step_receiver(receiver: &mut Receiver, acker: &mut Acker, words: &[&str]) -> Result<String, String> {
    let (&["arrive", _, mark] | &["arrive", _, mark, ..]) = words else { return Err(String::from("unknown event")) };
    let number = psn_at(words, 1)?;
    let mark = match mark {
        "inner" => Mark::Inner,
        "ends" => Mark::Ends,
        "completes" => Mark::Completes,
        _ => return Err(format!("unknown mark \"{mark}\"")),
    };
    let arrival = receiver.classify(number);
    let fits = matches!(arrival, Arrival::Expected | Arrival::Early);
    let advance = if fits { receiver.accept(number, mark) } else { Default::default() };
    acker.on_arrival(Instant::ZERO, arrival, number, receiver.expected(), false);
    let mut text = reply_text(receiver, acker);
    if advance.messages > 0 {
        text += &format!(" messages={}", advance.messages);
    }
    if advance.completions > 0 {
        text += &format!(" completions={}", advance.completions);
    }
    Ok(text)
}

fn reply_text(receiver: &Receiver, acker: &mut Acker) -> String {
    let Some(reply) = acker.poll() else { return String::from("silence") };
    let cumulative = reply.cumulative.unwrap_or_else(|| receiver.expected());
    match (reply.negative, reply.trigger) {
        (true, Some(psn)) => format!("nack {cumulative:?} sack {psn:?}"),
        (true, None) => format!("nack {cumulative:?}"),
        (false, Some(psn)) => format!("ack {cumulative:?} dup {psn:?}"),
        (false, None) => format!("ack {cumulative:?}"),
    }
}

fn step_sender(sender: &mut Sender, now: &mut Instant, words: &[&str]) -> Result<String, String> {
    match *words {
        ["at", time] => {
            *now = Instant::from_nanos(number(time)? * 1000);
            Ok(String::new())
        }
        ["slot"] => Ok(slot(sender, *now, true)),
        ["slot", "empty"] => Ok(slot(sender, *now, false)),
        ["slots", count] => Ok((0..number(count)?).map(|_| slot(sender, *now, true)).collect::<Vec<_>>().join(", ")),
        ["ack", _] => acknowledge(sender, *now, words, false),
        ["nack", ..] => acknowledge(sender, *now, words, true),
        ["timer"] => Ok(String::from(match sender.on_timeout(*now) {
            Timeout::Idle | Timeout::LossCheck { .. } => "idle",
            Timeout::Probe => "probe",
            Timeout::Retransmit => "retransmit",
            Timeout::Exhausted => "exhausted",
        })),
        ["state"] => Ok(state(sender, false)),
        ["state", "deadline"] => Ok(state(sender, true)),
        _ => Err(String::from("unknown event")),
    }
}

fn slot(sender: &mut Sender, now: Instant, has_new: bool) -> String {
    let Some(pick) = sender.pick(now, has_new) else { return String::from("nothing") };
    sender.on_sent(now, pick, 0);
    match pick {
        Pick::New(psn) => format!("new {psn:?}"),
        Pick::Again { psn, cause: Cause::Fast } => format!("again {psn:?}"),
        Pick::Again { psn, cause: Cause::Timeout } => format!("again {psn:?} timeout"),
        Pick::Again { psn, cause: Cause::Probe } => format!("again {psn:?} probe"),
    }
}

fn acknowledge(sender: &mut Sender, now: Instant, words: &[&str], negative: bool) -> Result<String, String> {
    let trigger = if words.get(2) == Some(&"sack") { Some(psn_at(words, 3)?) } else { None };
    let feedback = Feedback { cumulative: psn_at(words, 1)?, negative, trigger, bitmap: &[], rtt: None, echoed: None };
    Ok(String::from(if sender.on_ack(now, feedback).is_ok() { "ok" } else { "bad" }))
}

fn state(sender: &Sender, with_deadline: bool) -> String {
    let recovery = if sender.in_recovery() { "yes" } else { "no" };
    let mut text = format!("unacknowledged={:?} next={:?} recovery={recovery}", sender.unacknowledged(), sender.next_new());
    if with_deadline {
        let deadline = sender.deadline().map_or_else(|| String::from("none"), |at| (at.as_nanos() / 1000).to_string());
        text += &format!(" deadline={deadline}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_different_answer_is_reported_with_its_line() {
        let wrong = replay("receiver start=5\n# comment\narrive 5 inner => ack 7\n").unwrap_err();
        assert_eq!(wrong, "line 3, \"arrive 5 inner => ack 7\": the answer was \"ack 6\"");
        assert!(replay("sender\nslot\n").unwrap_err().contains("needs an expected answer"));
        assert!(replay("").is_err());
    }
}
