//! Results as text and JSON.

use std::fmt;

use serde::Serialize;

use super::histogram::Histogram;
use crate::text;

/// A distribution of spans of time, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spans {
    min_us: f64,
    mean_us: f64,
    stddev_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

impl Spans {
    pub(super) fn of(spans: &Histogram) -> Self {
        let us = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        Self {
            min_us: us(spans.min()),
            mean_us: spans.mean() / 1000.0,
            stddev_us: spans.standard_deviation() / 1000.0,
            p50_us: us(spans.percentile(500)),
            p90_us: us(spans.percentile(900)),
            p99_us: us(spans.percentile(990)),
            p999_us: us(spans.percentile(999)),
            max_us: us(spans.max()),
        }
    }
}

impl fmt::Display for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min_us, mean_us, stddev_us, p50_us, p90_us, p99_us, p999_us, max_us } = self;
        write!(f, "min {min_us:.1}, mean {mean_us:.1}, max {max_us:.1}, standard deviation {stddev_us:.1} us; ")?;
        write!(f, "p50 {p50_us:.1}, p90 {p90_us:.1}, p99 {p99_us:.1}, p99.9 {p999_us:.1} us")
    }
}

/// What `bench write` and `bench send` found.
#[derive(Debug, Serialize)]
pub(super) struct StreamResult {
    pub(super) operation: &'static str,
    pub(super) host: String,
    pub(super) size: u32,
    pub(super) depth: u32,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) goodput_bps: f64,
    pub(super) messages_per_second: f64,
    /// From posting to completion.
    pub(super) latency: Spans,
    pub(super) recovery: &'static str,
    pub(super) retransmissions: Option<u64>,
    /// Of the daemon on this host.
    pub(super) daemon_cpu_ns_per_byte: Option<f64>,
}

impl StreamResult {
    pub(super) fn print(&self, json: bool) -> anyhow::Result<u8> {
        println!("{}", if json { serde_json::to_string(self)? } else { self.text() });
        Ok(0)
    }

    fn text(&self) -> String {
        let unknown = || "unknown (the administration socket cannot be asked)".to_owned();
        [
            format!(
                "{} of {} to {}, {} at a time, {}",
                self.operation,
                text::bytes(self.size.into()),
                self.host,
                self.depth,
                self.recovery
            ),
            format!("  goodput          {} ({} in {:.2} s)", text::rate(self.goodput_bps), text::bytes(self.bytes), self.seconds),
            format!("  messages         {}, {:.0} per second", self.messages, self.messages_per_second),
            format!("  latency          {}", self.latency),
            format!("  sent again       {}", self.retransmissions.map_or_else(unknown, |packets| format!("{packets} packets"))),
            format!(
                "  weftd here       {}",
                self.daemon_cpu_ns_per_byte.map_or_else(unknown, |ns| format!("{ns:.2} ns of processor time per byte"))
            ),
        ]
        .join("\n")
    }
}
