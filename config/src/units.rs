//! Quantities as people write them: `10Gbit`, `5us`, `256KiB`, `0.01%`.
//!
//! Everything is exact: a number that its unit cannot hold without rounding is refused. What is printed reads back as the same value.

use std::fmt;
use std::str::FromStr;

use weft_proto::{BitRate, Duration};

use crate::problem::quoted;

/// Why a text is not a quantity, in words for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitError(String);

/// A kind of quantity: its units with their sizes in the smallest one, and how to speak of it.
struct Kind {
    /// What it is, with article.
    name: &'static str,
    /// How to write one.
    example: &'static str,
    /// The smallest amount, in words.
    smallest: &'static str,
    /// Spellings and sizes; the first of several spellings of a size is the one printed. Largest last.
    units: &'static [(&'static str, u64)],
    /// The unit of a number that has none, if that is clear.
    bare: Option<u64>,
}

const RATE: Kind = Kind {
    name: "a rate",
    example: "a number with bit, kbit, Mbit, Gbit or Tbit (per second), as in 10Gbit",
    smallest: "one bit per second",
    units: &[("bit", 1), ("kbit", 1_000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000), ("Tbit", 1_000_000_000_000)],
    bare: None,
};

const DURATION: Kind = Kind {
    name: "a duration",
    example: "a number with ns, us, ms, s, min or h, as in 5us",
    smallest: "one nanosecond",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("\u{b5}s", 1_000),
        ("\u{3bc}s", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
    bare: None,
};

const BYTES: Kind = Kind {
    name: "a number of bytes",
    example: "a number with B, KiB, MiB, GiB, TiB, kB, MB, GB or TB, as in 256KiB",
    smallest: "one byte",
    units: &[
        ("B", 1),
        ("kB", 1_000),
        ("KB", 1_000),
        ("KiB", 1 << 10),
        ("MB", 1_000_000),
        ("MiB", 1 << 20),
        ("GB", 1_000_000_000),
        ("GiB", 1 << 30),
        ("TB", 1_000_000_000_000),
        ("TiB", 1 << 40),
    ],
    bare: Some(1),
};

const PROBABILITY: Kind = Kind {
    name: "a probability",
    example: "a number with % or ppm, as in 0.1% or 500ppm",
    smallest: "one in a million (1ppm)",
    units: &[("ppm", 1), ("%", 10_000)],
    bare: None,
};

impl Kind {
    /// The value of `text` in the smallest unit.
    fn parse(&self, text: &str) -> Result<u64, UnitError> {
        let (number, unit) = split_number(text.trim());
        let digits = Decimal::parse(number).ok_or_else(|| self.malformed(text))?;
        let scale = self.scale_of(unit, &digits).ok_or_else(|| self.unknown_unit(text, unit))?;
        let scaled = digits.mantissa.checked_mul(u128::from(scale)).ok_or_else(|| self.too_large(text))?;
        if scaled % digits.divisor != 0 {
            return Err(UnitError(format!("{} is finer than {}", quoted(text), self.smallest)));
        }
        u64::try_from(scaled / digits.divisor).map_err(|_| self.too_large(text))
    }

    /// The size of a unit. Zero needs none.
    fn scale_of(&self, unit: &str, digits: &Decimal) -> Option<u64> {
        if unit.is_empty() {
            return if digits.mantissa == 0 { Some(1) } else { self.bare };
        }
        self.units.iter().find(|(name, _)| *name == unit).map(|&(_, scale)| scale)
    }

    fn malformed(&self, text: &str) -> UnitError {
        UnitError(format!("{} is not {}; write {}", quoted(text), self.name, self.example))
    }

    fn unknown_unit(&self, text: &str, unit: &str) -> UnitError {
        match unit {
            "" => UnitError(format!("{} has no unit; write {}", quoted(text), self.example)),
            unit => UnitError(format!("{} has the unknown unit {}; write {}", quoted(text), quoted(unit), self.example)),
        }
    }

    fn too_large(&self, text: &str) -> UnitError {
        UnitError(format!("{} is too large", quoted(text)))
    }

    /// The value in the largest unit that holds it without a fraction.
    fn print(&self, value: u64) -> String {
        let fitting = self.units.iter().rev().filter(|(_, scale)| value.is_multiple_of(*scale) && value >= *scale);
        let largest = fitting.clone().map(|(_, scale)| *scale).max();
        match self.units.iter().find(|(_, scale)| Some(*scale) == largest) {
            Some((unit, scale)) => format!("{}{unit}", value / scale),
            None => format!("0{}", self.units[0].0),
        }
    }
}

/// A non-negative decimal number: `mantissa / divisor`.
struct Decimal {
    mantissa: u128,
    divisor: u128,
}

/// Digits in front of the point: as many as 2^64 has.
const MAX_WHOLE: usize = 20;
/// Digits behind the point; together at most 38, which 128 bits hold.
const MAX_FRACTION: usize = 18;

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let wrong_point = text.contains('.') && fraction.is_empty();
        if whole.is_empty() || wrong_point || whole.len() > MAX_WHOLE || fraction.len() > MAX_FRACTION {
            return None;
        }
        let mantissa = format!("{whole}{fraction}").parse().ok()?;
        Some(Self { mantissa, divisor: 10_u128.pow(u32::try_from(fraction.len()).ok()?) })
    }
}

/// The leading number and what follows it.
fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Reads a rate such as `10Gbit`, `1.5Gbit` or `100kbit/s`.
///
/// # Errors
/// If the text is no positive rate.
pub fn parse_rate(text: &str) -> Result<BitRate, UnitError> {
    let bits = RATE.parse(text.trim().strip_suffix("/s").unwrap_or(text))?;
    BitRate::new(bits).ok_or_else(|| UnitError(format!("{} is no rate: it must be above zero", quoted(text))))
}

/// Prints a rate so that [`parse_rate`] reads the same one.
pub fn rate_text(rate: BitRate) -> String {
    RATE.print(rate.bits_per_second())
}

/// Reads a duration such as `5us`, `1.5ms` or `2s`.
///
/// # Errors
/// If the text is no duration, or finer than a nanosecond.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    DURATION.parse(text).map(Duration::from_nanos)
}

/// Prints a duration so that [`parse_duration`] reads the same one.
pub fn duration_text(span: Duration) -> String {
    span.to_string()
}

/// Reads a number of bytes such as `256KiB`, `1MB` or `1514`.
///
/// # Errors
/// If the text is no whole number of bytes.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    BYTES.parse(text)
}

/// Prints a number of bytes so that [`parse_bytes`] reads the same one.
pub fn bytes_text(bytes: u64) -> String {
    BYTES.print(bytes)
}

/// A probability in steps of one in a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Probability(u32);

impl Probability {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(1_000_000);

    /// `parts` in a million; `None` above one million.
    pub const fn from_parts_per_million(parts: u32) -> Option<Self> {
        if parts <= Self::ALWAYS.0 { Some(Self(parts)) } else { None }
    }

    /// Parts in a million.
    pub const fn parts_per_million(self) -> u32 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let parts = PROBABILITY.parse(text)?;
        let within = u32::try_from(parts).ok().and_then(Self::from_parts_per_million);
        within.ok_or_else(|| UnitError(format!("{} is above 100%", quoted(text))))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (percent, rest) = (self.0 / 10_000, self.0 % 10_000);
        match rest {
            0 => write!(f, "{percent}%"),
            _ => write!(f, "{percent}.{}%", format!("{rest:04}").trim_end_matches('0')),
        }
    }
}

#[cfg(test)]
mod tests;
