//! Time as the core sees it: unsigned nanoseconds, always handed in.
//!
//! A 1,500-byte frame lasts 1.2 us at 10 Gbit/s, so microseconds would be too coarse. 64 bits of nanoseconds
//! last 584 years. Only the daemon's clock and tests create an [`Instant`].

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};

/// A point on a monotonic clock, in nanoseconds since an origin that the driver chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Instant {
    /// The origin of the driver's clock.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Longer than any deadline.
    pub const MAX: Self = Self(u64::MAX);

    /// `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// `micros` microseconds, saturating.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// `millis` milliseconds, saturating.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// `secs` seconds, saturating.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// The span in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span in whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// `self * factor`, at most [`Duration::MAX`].
    #[must_use]
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// `self / divisor`, rounded down; `divisor` 0 counts as 1.
    #[must_use]
    pub const fn div(self, divisor: u64) -> Self {
        Self(self.0 / if divisor == 0 { 1 } else { divisor })
    }

    /// `self - other`, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// A clock reading on the wire: ticks of 256 ns, modulo 2^32 (18 minutes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timestamp(u32);

impl Timestamp {
    /// Nanoseconds of a tick, as a power of two.
    const SHIFT: u32 = 8;

    /// The reading at an instant.
    pub const fn of(at: Instant) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "modulo 2^32 is what it is")]
        Self((at.0 >> Self::SHIFT) as u32)
    }

    /// The reading as its number.
    pub const fn ticks(self) -> u32 {
        self.0
    }

    /// The reading with this number.
    pub const fn from_ticks(ticks: u32) -> Self {
        Self(ticks)
    }

    /// Time from the reading to `now`; `None` if it lies in the future, which no reading of ours does.
    pub const fn age(self, now: Instant) -> Option<Duration> {
        let ticks = Self::of(now).0.wrapping_sub(self.0);
        if ticks > u32::MAX / 2 { None } else { Some(Self::span(ticks)) }
    }

    /// When the reading was taken, rounded down to a tick; `None` if it lies in the future of `now`.
    pub fn instant(self, now: Instant) -> Option<Instant> {
        self.age(now).map(|age| Instant(Self::floor(now).0.saturating_sub(age.0)))
    }

    /// An instant as a reading of it can tell: rounded down to a tick.
    pub const fn floor(at: Instant) -> Instant {
        Instant(at.0 >> Self::SHIFT << Self::SHIFT)
    }

    /// So many ticks as a span.
    pub const fn span(ticks: u32) -> Duration {
        Duration((ticks as u64) << Self::SHIFT)
    }
}

impl Duration {
    /// The span in ticks of a [`Timestamp`], at most [`u16::MAX`].
    pub fn ticks(self) -> u16 {
        u16::try_from(self.0 >> Timestamp::SHIFT).unwrap_or(u16::MAX)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Duration {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        self.saturating_mul(factor)
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns % 1_000_000_000 == 0 => write!(f, "{}s", ns / 1_000_000_000),
            ns if ns % 1_000_000 == 0 => write!(f, "{}ms", ns / 1_000_000),
            ns if ns % 1_000 == 0 => write!(f, "{}us", ns / 1_000),
            ns => write!(f, "{ns}ns"),
        }
    }
}

/// The earlier of two optional deadlines.
pub fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
