//! The numbers that the laws reckon with: fixed point, so that no value is ever NaN or infinite and every machine
//! gets the same ones.

use core::fmt;

use crate::time::Duration;
use crate::units::BitRate;

/// Bits behind the binary point.
const SHIFT: u32 = 16;
/// One, in fixed point.
const ONE: u64 = 1 << SHIFT;

/// A share of a whole, or a gain, in steps of 2^-16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The whole.
    pub const WHOLE: Self = Self(1 << SHIFT);

    /// `part / whole`, rounded down, at most 65,535; a `whole` of 0 counts as 1.
    pub const fn ratio(part: u64, whole: u64) -> Self {
        let whole = if whole == 0 { 1 } else { whole };
        let wide = ((part as u128) << SHIFT) / whole as u128;
        #[expect(clippy::cast_possible_truncation, reason = "compared with the limit first")]
        Self(if wide > u32::MAX as u128 { u32::MAX } else { wide as u32 })
    }

    /// This much of `value`, rounded down, saturating.
    pub const fn of(self, value: u64) -> u64 {
        let wide = (value as u128 * self.0 as u128) >> SHIFT;
        #[expect(clippy::cast_possible_truncation, reason = "compared with the limit first")]
        if wide > u64::MAX as u128 { u64::MAX } else { wide as u64 }
    }

    /// This much of another share.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        Self(u32::try_from(self.of(u64::from(other.0))).unwrap_or(u32::MAX))
    }

    /// What is left of the whole; nothing, if this is more than the whole.
    #[must_use]
    pub const fn rest(self) -> Self {
        Self(Self::WHOLE.0.saturating_sub(self.0))
    }

    /// The sum with another share, at most 65,535.
    #[must_use]
    pub const fn more(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference to another share, at least nothing.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The moving average of `self` and a new value that counts `gain`.
    #[must_use]
    pub fn average(self, gain: Self, new: Self) -> Self {
        Self(self.times(gain.rest()).0.saturating_add(new.times(gain).0))
    }

    /// How much more than `other` it is, in steps of 2^-16.
    pub(super) const fn excess(self, other: Self) -> u64 {
        self.0.saturating_sub(other.0) as u64
    }

    /// In thousandths, for people.
    pub const fn per_mille(self) -> u64 {
        (self.0 as u64 * 1000) >> SHIFT
    }
}

/// A congestion window: packets, in steps of 2^-16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window(u64);

impl Window {
    /// One packet.
    pub const ONE: Self = Self(ONE);

    /// So many packets.
    pub const fn packets(count: u32) -> Self {
        Self((count as u64) << SHIFT)
    }

    /// This much of a packet.
    pub const fn part(share: Share) -> Self {
        Self(share.0 as u64)
    }

    /// Whole packets, rounded down.
    pub fn whole(self) -> u32 {
        u32::try_from(self.0 >> SHIFT).unwrap_or(u32::MAX)
    }

    /// In thousandths of a packet, for people.
    pub const fn millis(self) -> u64 {
        (self.0 >> SHIFT) * 1000 + (((self.0 & (ONE - 1)) * 1000) >> SHIFT)
    }

    /// This much of it.
    #[must_use]
    pub const fn scaled(self, share: Share) -> Self {
        Self(share.of(self.0))
    }

    /// More by `increment` packets per window of acknowledgements, of which `acked` packets arrived now. Below one
    /// packet there is less than one acknowledgement per round trip, and each counts in full (as in Swift).
    #[must_use]
    pub fn increased(self, increment: Share, acked: u32) -> Self {
        let whole = u64::from(increment.0) * u64::from(acked);
        let step = if self.0 > ONE { (u128::from(whole) << SHIFT) / u128::from(self.0) } else { u128::from(whole) };
        Self(self.0.saturating_add(u64::try_from(step).unwrap_or(u64::MAX)))
    }

    /// More by so many packets.
    #[must_use]
    pub fn plus(self, packets: u32) -> Self {
        Self(self.0.saturating_add(Self::packets(packets).0))
    }

    /// One by the square root of the window.
    pub fn inverse_root(self) -> Share {
        let root = (u128::from(self.0.max(1)) << SHIFT).isqrt();
        Share(u32::try_from((1u128 << (2 * SHIFT)) / root.max(1)).unwrap_or(u32::MAX))
    }

    /// Time between packets if one window of them goes out in `rtt`.
    pub fn spacing(self, rtt: Duration) -> Duration {
        let nanos = (u128::from(rtt.as_nanos()) << SHIFT) / u128::from(self.0.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.millis() / 1000, self.millis() % 1000)
    }
}

/// A rate between two bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    bits: u64,
    least: u64,
    most: u64,
}

impl Rate {
    /// The highest allowed.
    pub(super) fn full(least: BitRate, most: BitRate) -> Self {
        let most = most.bits_per_second();
        Self { bits: most, least: least.bits_per_second().min(most), most }
    }

    pub(super) const fn bits(self) -> u64 {
        self.bits
    }

    pub(super) const fn is_full(self) -> bool {
        self.bits >= self.most
    }

    /// The nearest rate within the bounds.
    pub(super) fn limit(self, bits: u64) -> u64 {
        bits.clamp(self.least, self.most)
    }

    /// Sets it, within the bounds.
    pub(super) fn set(&mut self, bits: u64) {
        self.bits = self.limit(bits);
    }

    /// As a rate; it is never zero.
    pub(super) fn get(self) -> Option<BitRate> {
        BitRate::new(self.bits)
    }
}

/// The smallest round trip of the last while: what the path takes without queues. Forgotten after one to two
/// [`Smallest::MEMORY`], so that a longer path is noticed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Smallest {
    now: Duration,
    before: Duration,
    began: Option<crate::time::Instant>,
}

impl Smallest {
    /// As BBR's: 10 s (draft-ietf-ccwg-bbr, `MinRTTFilterLen`).
    pub(super) const MEMORY: Duration = Duration::from_secs(10);

    pub(super) const fn new() -> Self {
        Self { now: Duration::MAX, before: Duration::MAX, began: None }
    }

    /// Takes a sample and returns the smallest.
    pub(super) fn sample(&mut self, now: crate::time::Instant, rtt: Duration) -> Duration {
        let began = *self.began.get_or_insert(now);
        if now.since(began) >= Self::MEMORY {
            self.before = self.now;
            self.now = Duration::MAX;
            self.began = Some(now);
        }
        self.now = self.now.min(rtt);
        self.now.min(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;
    use std::string::ToString;

    #[test]
    fn shares_and_windows_reckon_like_fractions() {
        assert_eq!(Share::ratio(1, 2).of(1001), 500);
        assert_eq!(Share::ratio(3, 4).rest(), Share::ratio(1, 4));
        assert_eq!(Share::ratio(1, 2).times(Share::ratio(1, 2)), Share::ratio(1, 4));
        assert_eq!(Share::ratio(1, 2).average(Share::ratio(1, 2), Share::WHOLE), Share::ratio(3, 4));
        assert_eq!(Share::ratio(u64::MAX, 0).of(u64::MAX), u64::MAX, "saturates");
        assert_eq!(Window::packets(7).scaled(Share::ratio(1, 2)).to_string(), "3.500");
        assert_eq!(Window::part(Share::ratio(1, 4)).spacing(Duration::from_micros(50)), Duration::from_micros(200));
        assert_eq!(Window::packets(16).inverse_root(), Share::ratio(1, 4));
    }

    #[test]
    fn a_window_of_acknowledgements_adds_the_increment_once() {
        let mut window = Window::packets(10);
        (0..10).for_each(|_| window = window.increased(Share::WHOLE, 1));
        assert!((10_900..=11_000).contains(&window.millis()), "{window}");
        let half = Window::part(Share::ratio(1, 2));
        assert_eq!(half.increased(Share::WHOLE, 1).to_string(), "1.500");
    }

    #[test]
    fn a_shorter_round_trip_is_remembered_for_a_while_and_then_forgotten() {
        let mut smallest = Smallest::new();
        let at = Instant::from_nanos;
        assert_eq!(smallest.sample(at(0), Duration::from_micros(50)), Duration::from_micros(50));
        assert_eq!(smallest.sample(at(10_000_000_000), Duration::from_micros(90)), Duration::from_micros(50));
        assert_eq!(smallest.sample(at(20_000_000_000), Duration::from_micros(80)), Duration::from_micros(80));
    }
}
