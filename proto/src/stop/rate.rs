//! Shares of a rate, and what a rate field makes of them.

use crate::stop::config::RateRule;
use crate::units::BitRate;

/// A share of the unreduced rate, in 65,536ths: halving 15 times once still leaves something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

/// One sixteenth.
const SIXTEENTH: u32 = 1 << 12;

impl Share {
    /// Nothing: stopped.
    pub const NONE: Self = Self(0);
    /// All of it.
    pub const FULL: Self = Self(1 << 16);

    /// So many sixteenths; more than 16 count as 16.
    pub const fn sixteenths(count: u8) -> Self {
        Self(if count >= 16 { 1 << 16 } else { count as u32 * SIXTEENTH })
    }

    /// In thousandths, rounded down.
    pub const fn permille(self) -> u32 {
        (self.0 * 1000) >> 16
    }

    /// This share of a rate; `None` if nothing is left.
    pub fn of(self, rate: BitRate) -> Option<BitRate> {
        let bits = (u128::from(rate.bits_per_second()) * u128::from(self.0)) >> 16;
        BitRate::new(u64::try_from(bits).unwrap_or(u64::MAX))
    }

    /// The share after a stop packet with rate field `field`, 0 to 15.
    #[must_use]
    pub fn after(self, rule: RateRule, field: u8) -> Self {
        match rule {
            RateRule::Absolute => Self::sixteenths(field),
            // The unreduced rate has no number of its own: the highest stands for it.
            RateRule::Function => Self::sixteenths((field + self.in_sixteenths()).saturating_sub(8).min(15)),
            RateRule::Halving => Self(self.0.checked_shr(u32::from(field)).unwrap_or(0)),
        }
    }

    fn in_sixteenths(self) -> u8 {
        u8::try_from(self.0 / SIXTEENTH).unwrap_or(15).min(15)
    }
}

impl RateRule {
    /// The rate field that leaves a reduced rate as it is, if this rule has one.
    pub const fn neutral(self) -> Option<u8> {
        match self {
            Self::Absolute => None,
            Self::Function => Some(8),
            Self::Halving => Some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numeric_examples_of_the_source() {
        assert_eq!(Share::sixteenths(15).after(RateRule::Function, 7), Share::sixteenths(14), "15 and 7 give 14");
        assert_eq!(Share::sixteenths(8).after(RateRule::Halving, 2).permille(), 125, "50 % and 2 give 12.5 %");
        assert_eq!(Share::FULL.after(RateRule::Absolute, 4), Share::sixteenths(4), "n/16 whatever it was");
    }

    #[test]
    fn a_function_stays_between_stopped_and_fifteen_sixteenths() {
        assert_eq!(Share::FULL.after(RateRule::Function, 15), Share::sixteenths(15));
        assert_eq!(Share::sixteenths(3).after(RateRule::Function, 0), Share::NONE);
        assert_eq!(Share::sixteenths(5).after(RateRule::Function, 8), Share::sixteenths(5));
    }

    #[test]
    fn a_share_of_a_rate_is_exact_and_halving_ends_in_a_stop() {
        let rate = BitRate::megabits(100);
        assert_eq!(Share::sixteenths(2).of(rate), BitRate::new(12_500_000));
        assert_eq!(Share::FULL.of(rate), Some(rate));
        let halved = (0..3).fold(Share::FULL, |share, _| share.after(RateRule::Halving, 15));
        assert_eq!((halved, halved.of(rate)), (Share::NONE, None));
    }

    #[test]
    fn the_neutral_field_changes_no_reduced_rate() {
        for rule in [RateRule::Function, RateRule::Halving] {
            let field = rule.neutral().unwrap();
            for share in (1..16).map(Share::sixteenths) {
                assert_eq!(share.after(rule, field), share);
            }
        }
    }
}
