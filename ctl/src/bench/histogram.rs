//! Spans of time, counted in classes of at most 1.6 % width, and their percentiles. Pure.

/// Logarithm of the classes per power of two.
const CLASS_BITS: u32 = 6;
/// Classes per power of two.
const CLASSES: u64 = 1 << CLASS_BITS;
/// Logarithm of the ranges per power of two that a histogram is printed in.
const RANGE_BITS: u32 = 3;
/// Enough for every `u64`.
const LEN: usize = (64 - CLASS_BITS as usize + 1) << CLASS_BITS;

/// Values in nanoseconds, though it could be anything.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: f64,
    sum_of_squares: f64,
    min: u64,
    max: u64,
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; LEN], count: 0, sum: 0.0, sum_of_squares: 0.0, min: u64::MAX, max: 0 }
    }

    pub(super) fn record(&mut self, value: u64) {
        self.counts[class(value)] += 1;
        self.count += 1;
        self.sum += value as f64;
        self.sum_of_squares += (value as f64).powi(2);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Takes in the values of another.
    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.count += other.count;
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Ranges of at most an eighth of their start that hold values: highest value and how many.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let joined = 1 << (CLASS_BITS - RANGE_BITS);
        let sums = self.counts.chunks(joined).map(|classes| classes.iter().sum::<u64>());
        (1..).zip(sums).filter(|(_, count)| *count > 0).map(move |(range, count)| (highest(range * joined - 1), count))
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn min(&self) -> u64 {
        self.min.min(self.max)
    }

    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    pub(super) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    pub(super) fn standard_deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        (self.sum_of_squares / self.count as f64 - self.mean().powi(2)).max(0.0).sqrt()
    }

    /// The value that `per_mille` thousandths of all values do not exceed, at most 1.6 % too high.
    pub(super) fn percentile(&self, per_mille: u64) -> u64 {
        let rank = (self.count * per_mille).div_ceil(1000).max(1);
        let mut below = 0;
        for (class, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return highest(class).clamp(self.min(), self.max);
            }
        }
        self.max
    }
}

fn class(value: u64) -> usize {
    // Values below CLASSES have a class each; above, the leading bits after the first tell the class.
    let shift = value.checked_ilog2().unwrap_or(0).saturating_sub(CLASS_BITS);
    let class = u64::from(shift) * CLASSES + (value >> shift);
    usize::try_from(class).unwrap_or(LEN - 1)
}

/// The highest value of a class.
fn highest(class: usize) -> u64 {
    let class = class as u64;
    let shift = (class / CLASSES).saturating_sub(1);
    let lead = class - shift * CLASSES;
    // The last class of all ends at the highest value that there is.
    u64::try_from(((u128::from(lead) + 1) << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_a_class_that_is_narrow_and_in_order() {
        let mut values: Vec<u64> = (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1, u64::MAX >> bit]).collect();
        values.extend(0..10_000);
        values.sort_unstable();
        for pair in values.windows(2) {
            assert!(class(pair[0]) <= class(pair[1]));
        }
        for value in values {
            let top = highest(class(value));
            assert!(top >= value && top - value <= value / 63, "{value}: {top}");
            assert!(value == 0 || highest(class(value) - 1) < value);
        }
    }

    #[test]
    fn percentiles_agree_with_a_sorted_list() {
        let values: Vec<u64> = (1..=1000).map(|n| n * n).collect();
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| histogram.record(*value));
        for per_mille in [1, 500, 900, 990, 999, 1000] {
            let exact = values[usize::try_from(per_mille).unwrap() - 1];
            let found = histogram.percentile(per_mille);
            assert!(found >= exact && found <= exact + exact / 60, "{per_mille}: {found}, {exact}");
        }
        assert_eq!((histogram.min(), histogram.max(), histogram.count()), (1, 1_000_000, 1000));
    }

    #[test]
    fn ranges_hold_every_value_once_and_are_narrow() {
        let mut histogram = Histogram::new();
        let values = [0, 1, 7, 8, 63, 64, 65, 1000, 1001, 1_000_000, u64::MAX];
        values.into_iter().for_each(|value| histogram.record(value));
        let ranges: Vec<_> = histogram.ranges().collect();
        assert_eq!(ranges.iter().map(|(_, count)| count).sum::<u64>(), values.len() as u64);
        let mut lower = 0;
        for &(upper, count) in &ranges {
            let inside = values.iter().filter(|value| **value <= upper && (lower == 0 || **value > lower)).count() as u64;
            assert_eq!(inside, count, "{ranges:?}");
            lower = upper;
        }
        assert!(ranges.iter().any(|(upper, count)| *count == 2 && *upper >= 1001 && *upper <= 1001 + 1001 / 8), "{ranges:?}");
    }

    #[test]
    fn merged_histograms_are_one_of_all_values() {
        let [mut one, mut two, mut all] = [Histogram::new(), Histogram::new(), Histogram::new()];
        for value in [5, 900, 70_000] {
            one.record(value);
            all.record(value);
        }
        for value in [3, 1 << 40] {
            two.record(value);
            all.record(value);
        }
        one.merge(&two);
        one.merge(&Histogram::new());
        assert_eq!((one.count(), one.min(), one.max(), one.percentile(500)), (5, 3, 1 << 40, all.percentile(500)));
        assert!((one.mean() - all.mean()).abs() < 1e-6 && (one.standard_deviation() - all.standard_deviation()).abs() < 1e-3);
    }

    #[test]
    fn mean_and_deviation_are_those_of_the_textbook() {
        let mut histogram = Histogram::new();
        assert_eq!((histogram.mean(), histogram.standard_deviation(), histogram.percentile(500)), (0.0, 0.0, 0));
        [2, 4, 4, 4, 5, 5, 7, 9].into_iter().for_each(|value| histogram.record(value));
        assert!((histogram.mean() - 5.0).abs() < 1e-9 && (histogram.standard_deviation() - 2.0).abs() < 1e-9);
    }
}
