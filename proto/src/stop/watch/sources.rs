//! Who sends to us, how much of it, and how long it takes lately.

use alloc::vec::Vec;

use crate::rng::Rng;
use crate::stop::table::Table;
use crate::time::{Duration, Instant, Timestamp};
use crate::wire::MacAddr;

/// A host contributes if it sends at least one over this of what it would if all sent the same: those who only
/// acknowledge do not.
const EVEN_SHARE_PARTS: u64 = 4;
/// The shortest transit time is taken from the last one to two spans of this: clocks of two hosts drift apart by up to
/// 200 us in it (100 ppm), and a queue that stop control empties becomes empty more often.
const BASE_SPAN: Duration = Duration::from_secs(1);

/// A source of frames.
#[derive(Debug)]
struct Source {
    /// The period in which it was last heard.
    period: u64,
    /// Bytes in that period and in the one before.
    bytes: [u64; 2],
    transit: Transit,
}

/// How long packets of a source take, as the difference of two clocks.
#[derive(Clone, Copy, Debug, Default)]
struct Transit {
    /// Shortest of this span and of the one before, in ticks of a [`Timestamp`].
    shortest: [Option<u32>; 2],
    span: u64,
    last: u32,
}

impl Transit {
    fn note(&mut self, at: Instant, sent: Timestamp) {
        let span = at.as_nanos() / BASE_SPAN.as_nanos();
        if span != self.span {
            self.shortest = [None, if span == self.span + 1 { self.shortest[0] } else { None }];
            self.span = span;
        }
        self.last = Timestamp::of(at).ticks().wrapping_sub(sent.ticks());
        let shortest = self.shortest[0].filter(|&shortest| is_shorter(shortest, self.last));
        self.shortest[0] = Some(shortest.unwrap_or(self.last));
    }

    /// How much longer the last packet took than the fastest.
    fn growth(&self) -> Duration {
        let base = match self.shortest {
            [Some(a), Some(b)] => Some(if is_shorter(a, b) { a } else { b }),
            [a, b] => a.or(b),
        };
        base.map_or(Duration::ZERO, |base| Timestamp::span(self.last.wrapping_sub(base)))
    }
}

/// Differences of clocks wrap around.
const fn is_shorter(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) < u32::MAX / 2
}

/// All sources heard lately.
#[derive(Debug)]
pub(super) struct Sources {
    table: Table<Source>,
    period: Duration,
    now: u64,
    /// When the present period is over.
    ends: Instant,
    /// Places of those heard in this period and in the one before.
    heard: [Vec<usize>; 2],
}

impl Sources {
    /// Remembers at most `limit` sources and sums up over `period`.
    pub(super) fn new(limit: usize, period: Duration, rng: &mut Rng) -> Self {
        let heard = [Vec::with_capacity(limit), Vec::with_capacity(limit)];
        Self { table: Table::new(limit, rng), period, now: 0, ends: Instant::ZERO + period, heard }
    }

    /// Time goes on.
    pub(super) fn advance(&mut self, at: Instant) {
        if at < self.ends {
            return;
        }
        let period = at.as_nanos() / self.period.as_nanos().max(1);
        self.heard.swap(0, 1);
        self.heard[0].clear();
        if period > self.now + 1 {
            self.heard[1].clear();
        }
        self.now = period;
        self.ends = Instant::ZERO + self.period.saturating_mul(period.saturating_add(1));
    }

    /// A frame of a source arrived; `sent` is what its clock showed, if known.
    pub(super) fn note(&mut self, at: Instant, host: MacAddr, bytes: u64, sent: Option<Timestamp>) {
        self.advance(at);
        let period = self.now;
        let Some(place) = self.table.find(host).or_else(|| self.add(host)) else { return };
        let Some((_, source)) = self.table.get_mut(place) else { return };
        if source.period != period {
            source.bytes = [0, if source.period.wrapping_add(1) == period { source.bytes[0] } else { 0 }];
            source.period = period;
            self.heard[0].push(place);
        }
        source.bytes[0] += bytes;
        if let Some(sent) = sent {
            source.transit.note(at, sent);
        }
    }

    fn add(&mut self, host: MacAddr) -> Option<usize> {
        let now = self.now;
        // Not of this period, so that the first frame puts it among those heard.
        let source = Source { period: now.wrapping_sub(2), bytes: [0; 2], transit: Transit::default() };
        self.table.insert(host, source, |source| source.period.wrapping_add(1) < now)
    }

    /// Those that contribute to what came in during this period and the one before.
    pub(super) fn contributing(&self) -> impl Iterator<Item = MacAddr> + '_ {
        let (mut count, mut total) = (0, 0);
        for bytes in self.recent().map(|(_, bytes)| bytes) {
            count += 1;
            total += bytes;
        }
        self.recent().filter(move |&(_, bytes)| bytes > 0 && bytes * EVEN_SHARE_PARTS * count >= total).map(|(host, _)| host)
    }

    /// The most that packets of a source take longer than its fastest.
    pub(super) fn growth(&self) -> Duration {
        let places = self.heard[0].iter();
        places.filter_map(|&place| self.table.get(place)).map(|source| source.transit.growth()).max().unwrap_or_default()
    }

    /// Sources of this period and of the one before, each once.
    fn recent(&self) -> impl Iterator<Item = (MacAddr, u64)> + '_ {
        let now = self.now;
        let of = move |&place: &usize| self.table.host_and_entry(place);
        let this = self.heard[0].iter().filter_map(of).map(|(host, source)| (host, source.bytes[0] + source.bytes[1]));
        let before = self.heard[1].iter().filter_map(of).filter(move |(_, source)| source.period + 1 == now);
        this.chain(before.map(|(host, source)| (host, source.bytes[0])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, number])
    }

    fn sources() -> Sources {
        Sources::new(100, Duration::from_millis(1), &mut Rng::from_seed(1))
    }

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + micros * 1_000)
    }

    fn contributing(sources: &Sources) -> Vec<MacAddr> {
        let mut hosts: Vec<_> = sources.contributing().collect();
        hosts.sort();
        hosts
    }

    #[test]
    fn who_only_acknowledges_does_not_contribute_and_equal_senders_all_do() {
        let mut seen = sources();
        (0..8).for_each(|frame| seen.note(at(frame * 100), host(1), 1500, None));
        seen.note(at(801), host(2), 90, None);
        assert_eq!(contributing(&seen), [host(1)]);
        let mut many = sources();
        (1..=64).for_each(|number| many.note(at(10), host(number), 1500, None));
        assert_eq!(many.contributing().count(), 64);
    }

    #[test]
    fn the_last_two_periods_count_and_no_earlier_one() {
        let mut seen = sources();
        seen.note(at(100), host(1), 1500, None);
        seen.note(at(1_100), host(2), 1500, None);
        assert_eq!(contributing(&seen), [host(1), host(2)]);
        seen.note(at(2_100), host(3), 1500, None);
        assert_eq!(contributing(&seen), [host(2), host(3)]);
        seen.note(at(2_200), host(2), 1500, None);
        assert_eq!(contributing(&seen), [host(2), host(3)], "each once");
        seen.advance(at(9_000));
        assert_eq!(contributing(&seen), []);
    }

    #[test]
    fn growing_delay_is_told_from_clocks_that_differ() {
        let mut seen = sources();
        let sent = |micros: u64| Some(Timestamp::from_ticks(Timestamp::of(at(micros)).ticks().wrapping_sub(1 << 30)));
        (0..10).for_each(|packet| seen.note(at(packet * 100 + 40), host(1), 1500, sent(packet * 100)));
        assert!(seen.growth() < Duration::from_micros(1));
        seen.note(at(2_000 + 540), host(1), 1500, sent(2_000));
        assert!((499..501).contains(&seen.growth().as_micros()), "{}", seen.growth());
        seen.note(at(2_700 + 40), host(1), 1500, sent(2_700));
        assert!(seen.growth() < Duration::from_micros(1));
    }

    #[test]
    fn the_base_is_forgotten_after_two_spans() {
        let mut seen = sources();
        let span = 1_000_000;
        seen.note(at(40), host(1), 1500, Some(Timestamp::of(at(0))));
        for (later, longer) in [(1, 500), (2, 0)] {
            let sent = later * span;
            seen.note(at(sent + 540), host(1), 1500, Some(Timestamp::of(at(sent))));
            assert!(seen.growth().as_micros().abs_diff(longer) <= 1, "{later}: {}", seen.growth());
        }
    }
}
