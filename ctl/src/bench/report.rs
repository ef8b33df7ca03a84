//! Results as text and JSON.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::histogram::Histogram;
use super::protocol::Tally;
use crate::text;

/// Bits per second.
pub(super) fn rate(bytes: u64, span: Duration) -> f64 {
    if span.is_zero() { 0.0 } else { bytes as f64 * 8.0 / span.as_secs_f64() }
}

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

    /// As columns of a table.
    pub(super) fn row(&self) -> String {
        let Self { min_us, p50_us, p90_us, p99_us, p999_us, max_us, .. } = self;
        format!("{min_us:>9.1} {p50_us:>9.1} {p90_us:>9.1} {p99_us:>9.1} {p999_us:>9.1} {max_us:>9.1}")
    }
}

/// The names of [`Spans::row`].
const SPANS_HEADER: &str = "   MIN us    P50 us    P90 us    P99 us  P99.9 us    MAX us";

impl fmt::Display for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min_us, mean_us, stddev_us, p50_us, p90_us, p99_us, p999_us, max_us } = self;
        write!(f, "min {min_us:.1}, mean {mean_us:.1}, max {max_us:.1}, standard deviation {stddev_us:.1} us; ")?;
        write!(f, "p50 {p50_us:.1}, p90 {p90_us:.1}, p99 {p99_us:.1}, p99.9 {p999_us:.1} us")
    }
}

/// Requests that took at most so long, and longer than the bucket before.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Bucket {
    up_to_us: f64,
    count: u64,
}

pub(super) fn buckets(spans: &Histogram) -> Vec<Bucket> {
    spans.ranges().map(|(highest, count)| Bucket { up_to_us: highest as f64 / 1000.0, count }).collect()
}

/// A histogram, with bars.
pub(super) fn bars(buckets: &[Bucket]) -> String {
    /// Characters of the longest bar.
    const LONGEST: u64 = 50;
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    let bar = |count: u64| "#".repeat(usize::try_from((u128::from(count) * u128::from(LONGEST)).div_ceil(u128::from(most))).unwrap_or(0));
    let line = |bucket: &Bucket| format!("  {:>12.1} {:>10}  {}", bucket.up_to_us, bucket.count, bar(bucket.count));
    let lines: Vec<String> = buckets.iter().map(line).collect();
    format!("      up to us   requests\n{}", lines.join("\n"))
}

/// What the other side did at the same time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Back {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) goodput_bps: f64,
    pub(super) messages_per_second: f64,
}

impl From<Tally> for Back {
    fn from(tally: Tally) -> Self {
        let Tally { messages, bytes, nanoseconds } = tally;
        let span = Duration::from_nanos(nanoseconds);
        let goodput_bps = rate(bytes, span);
        Self { messages, bytes, seconds: span.as_secs_f64(), goodput_bps, messages_per_second: rate(messages, span) / 8.0 }
    }
}

/// What `bench write`, `send`, `read` and `atomic` found for one size.
#[derive(Debug, Serialize)]
pub(super) struct StreamResult {
    pub(super) operation: &'static str,
    pub(super) host: String,
    pub(super) size: u32,
    /// On each queue pair.
    pub(super) depth: u32,
    pub(super) queue_pairs: u32,
    pub(super) inline: bool,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) goodput_bps: f64,
    /// The highest within 100 ms; `None` if it took less.
    pub(super) peak_bps: Option<f64>,
    pub(super) messages_per_second: f64,
    /// With `--both`.
    pub(super) back: Option<Back>,
    /// From posting to completion.
    pub(super) latency: Spans,
    pub(super) histogram: Vec<Bucket>,
    pub(super) recovery: &'static str,
    pub(super) retransmissions: Option<u64>,
    /// Of the daemon on this host, for bytes in both directions.
    pub(super) daemon_cpu_ns_per_byte: Option<f64>,
    /// A signal ended it early.
    pub(super) interrupted: bool,
}

/// Names of the columns of [`StreamResult::row`]. With `--both`, rates are the sum of both directions.
pub(super) const HEADER: &str = "     BYTES   MESSAGES  PEAK Gbit/s  AVERAGE Gbit/s      Mpps    P50 us    P99 us    MAX us  SENT AGAIN";

impl StreamResult {
    /// What is measured, without the size.
    pub(super) fn title(&self) -> String {
        let queue_pairs = if self.queue_pairs == 1 { String::new() } else { format!(" on each of {} queue pairs", self.queue_pairs) };
        let both = if self.back.is_some() { ", both directions at once" } else { "" };
        let inline = if self.inline { ", inline" } else { "" };
        format!("{} to {}, {} at a time{queue_pairs}{both}{inline}, {}", self.operation, self.host, self.depth, self.recovery)
    }

    /// The rates of both directions together, in bit/s and messages per second.
    fn average(&self) -> (f64, f64) {
        let back = self.back.map_or((0.0, 0.0), |back| (back.goodput_bps, back.messages_per_second));
        (self.goodput_bps + back.0, self.messages_per_second + back.1)
    }

    /// One line of a table.
    pub(super) fn row(&self) -> String {
        let (bps, rate) = self.average();
        let peak = self.peak_bps.map_or_else(|| "-".to_owned(), |peak| format!("{:.2}", (peak + bps - self.goodput_bps) / 1e9));
        let again = self.retransmissions.map_or_else(|| "-".to_owned(), |packets| packets.to_string());
        let Spans { p50_us, p99_us, max_us, .. } = self.latency;
        let (size, messages, bps, mpps) = (self.size, self.messages, bps / 1e9, rate / 1e6);
        format!("{size:>10} {messages:>10} {peak:>12} {bps:>15.3} {mpps:>9.6} {p50_us:>9.1} {p99_us:>9.1} {max_us:>9.1} {again:>11}")
    }

    /// All of it.
    pub(super) fn print(&self, json: bool, histogram: bool) -> anyhow::Result<String> {
        if json {
            return Ok(serde_json::to_string(self)?);
        }
        let bars = if histogram { format!("\n{}", bars(&self.histogram)) } else { String::new() };
        Ok(self.text() + &bars)
    }

    fn text(&self) -> String {
        let unknown = || "unknown (the administration socket cannot be asked)".to_owned();
        let line = |name: &str, value: String| format!("  {name:<17}{value}");
        let goodput = format!("{} ({} in {:.2} s)", text::rate(self.goodput_bps), text::bytes(self.bytes), self.seconds);
        let mut lines = vec![format!("{} of {}", text::bytes(self.size.into()), self.title()), line("goodput", goodput)];
        lines.extend(self.peak_bps.map(|peak| line("peak", format!("{} within 100 ms", text::rate(peak)))));
        lines.extend(self.back.map(|back| {
            let amount = format!("{} in {:.2} s", text::bytes(back.bytes), back.seconds);
            line("the other way", format!("{} ({amount}); together {}", text::rate(back.goodput_bps), text::rate(self.average().0)))
        }));
        lines.extend([
            line("messages", format!("{}, {:.0} per second", self.messages, self.messages_per_second)),
            line("latency", self.latency.to_string()),
            line("sent again", self.retransmissions.map_or_else(unknown, |packets| format!("{packets} packets"))),
            line("weftd here", self.daemon_cpu_ns_per_byte.map_or_else(unknown, |ns| format!("{ns:.2} ns of processor time per byte"))),
        ]);
        lines.join("\n")
    }
}

/// What `bench latency` found for one size.
#[derive(Debug, Serialize)]
pub(super) struct LatencyResult {
    pub(super) operation: &'static str,
    pub(super) host: String,
    pub(super) size: u32,
    pub(super) count: u64,
    /// Of a message and its echo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) half_round_trip: Option<Spans>,
    /// From posting to completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_trip: Option<Spans>,
    pub(super) histogram: Vec<Bucket>,
    pub(super) recovery: &'static str,
    pub(super) retransmissions: Option<u64>,
    pub(super) interrupted: bool,
}

impl LatencyResult {
    /// What was measured, and it.
    fn spans(&self) -> Option<(&'static str, Spans)> {
        self.half_round_trip.map(|spans| ("half round trip", spans)).or_else(|| Some(("round trip", self.round_trip?)))
    }

    pub(super) fn header(&self) -> String {
        let what = self.spans().map_or("", |(what, _)| what);
        format!("{what} of {} to {}, {}\n     BYTES   REQUESTS {SPANS_HEADER}", self.operation, self.host, self.recovery)
    }

    pub(super) fn row(&self) -> String {
        format!("{:>10} {:>10} {}", self.size, self.count, self.spans().map_or_else(String::new, |(_, spans)| spans.row()))
    }

    pub(super) fn print(&self, json: bool, histogram: bool) -> anyhow::Result<String> {
        if json {
            return Ok(serde_json::to_string(self)?);
        }
        let spans = self.spans().map_or_else(String::new, |(what, spans)| format!("{what}: {spans}"));
        let bars = if histogram { format!("\n{}", bars(&self.histogram)) } else { String::new() };
        Ok(format!("{} of {} bytes to {}, {} times\n{spans}{bars}", self.operation, self.size, self.host, self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(back: Option<Back>) -> StreamResult {
        let mut spans = Histogram::new();
        (1..=100).for_each(|number| spans.record(number * 1000));
        StreamResult {
            operation: "write",
            host: "b".to_owned(),
            size: 4096,
            depth: 32,
            queue_pairs: 3,
            inline: false,
            messages: 100,
            bytes: 409_600,
            seconds: 0.5,
            goodput_bps: 2e9,
            peak_bps: Some(3e9),
            messages_per_second: 200_000.0,
            back,
            latency: Spans::of(&spans),
            histogram: buckets(&spans),
            recovery: "irn",
            retransmissions: Some(7),
            daemon_cpu_ns_per_byte: None,
            interrupted: false,
        }
    }

    #[test]
    fn a_row_has_a_value_under_each_name() {
        let row = result(None).row();
        let values: Vec<_> = row.split_whitespace().collect();
        assert_eq!(values[..5], ["4096", "100", "3.00", "2.000", "0.200000"]);
        assert_eq!(values.last(), Some(&"7"));
        assert_eq!(row.chars().count(), HEADER.chars().count());
        let both = Tally { messages: 100_000, bytes: 125_000_000, nanoseconds: 1_000_000_000 };
        let both = result(Some(both.into()));
        let values: Vec<_> = both.row().split_whitespace().map(str::to_owned).collect();
        assert_eq!(values[2..5], ["4.00", "3.000", "0.300000"], "the sum of both directions");
        assert!(both.text().contains("together 3.00 Gbit/s"), "{}", both.text());
    }

    #[test]
    fn a_histogram_has_a_bar_for_every_bucket_and_the_longest_is_the_fullest() {
        let mut spans = Histogram::new();
        (0..1000).for_each(|_| spans.record(10_000));
        spans.record(5_000_000);
        let text = bars(&buckets(&spans));
        let lengths: Vec<_> = text.lines().skip(1).map(|line| line.matches('#').count()).collect();
        assert_eq!(lengths, [50, 1], "{text}");
    }

    #[test]
    fn nothing_in_no_time_is_no_rate() {
        assert!(rate(0, Duration::ZERO).abs() < f64::EPSILON && rate(5, Duration::ZERO).abs() < f64::EPSILON);
        assert!((rate(125, Duration::from_secs(1)) - 1000.0).abs() < 1e-9);
    }
}
