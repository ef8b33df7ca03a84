//! Packet sequence numbers: 24-bit serial numbers.
//!
//! Plain `<` is wrong after a wrap (16.8 million packets, a second or two at full speed), so `Psn` has no `Ord`:
//! positions are compared through [`Psn::distance_from`], in the manner of RFC 1982 with 2^24 values.

use core::fmt;

const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;
const HALF: u32 = 1 << (BITS - 1);

/// A packet sequence number, modulo 2^24.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The number with the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// The number as 24 bits.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number `count` steps on.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count) & MASK)
    }

    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The number before this one.
    #[must_use]
    pub const fn previous(self) -> Self {
        self.plus(MASK)
    }

    /// Steps from `base` forward to `self`, or `None` if `self` lies behind `base`.
    /// Defined for positions less than 2^23 apart, far more than any window.
    pub const fn distance_from(self, base: Self) -> Option<u32> {
        let steps = self.0.wrapping_sub(base.0) & MASK;
        if steps < HALF { Some(steps) } else { None }
    }

    /// True if `self` comes before `other`.
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other).is_none()
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn serial_arithmetic_agrees_with_unbounded_counting(base in 0u32..=MASK, ahead in 0u32..HALF) {
            let (base, far) = (Psn::new(base), Psn::new(base).plus(ahead));
            prop_assert_eq!(far.distance_from(base), Some(ahead));
            prop_assert_eq!(base.is_before(far), ahead > 0);
            prop_assert_eq!(base.distance_from(far), if ahead == 0 { Some(0) } else { None });
            prop_assert_eq!(far.next().previous(), far);
        }
    }
}
