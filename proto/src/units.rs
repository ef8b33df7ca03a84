//! Newtypes for numbers that must not be mixed up.

use crate::time::Duration;

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

impl BitRate {
    /// `bits` per second; `None` for zero, which no link has.
    pub const fn new(bits: u64) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(bits)) }
    }

    /// So many million bits per second; 0 counts as 1.
    pub const fn megabits(count: u32) -> Self {
        Self(if count == 0 { 1 } else { count as u64 } * 1_000_000)
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Time that `bytes` take on the link, rounded up to a nanosecond.
    pub fn time_for(self, bytes: u64) -> Duration {
        let nanos = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(self.0));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Bytes that fit on the link in `span`, rounded down.
    pub fn bytes_in(self, span: Duration) -> u64 {
        let bytes = u128::from(self.0) * u128::from(span.as_nanos()) / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// A port of the local switch: an index into its port table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

impl PortId {
    /// The port as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialisation_time_rounds_up_and_its_inverse_down() {
        let rate = BitRate::new(10_000_000_000).unwrap();
        assert_eq!(rate.time_for(1500), Duration::from_nanos(1200));
        assert_eq!(rate.time_for(1), Duration::from_nanos(1));
        assert_eq!(rate.bytes_in(Duration::from_nanos(1201)), 1501);
        assert_eq!(BitRate::new(3).unwrap().time_for(u64::MAX), Duration::MAX);
    }
}
