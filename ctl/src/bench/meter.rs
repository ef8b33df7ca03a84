//! Bytes by time, for the highest rate within a measurement. Pure.

use std::time::Duration;

/// How long a rate must hold to count as a peak.
const STEP: Duration = Duration::from_millis(100);
/// Steps that are kept: an hour and three quarters. What comes later counts for the average only.
const MAX_STEPS: usize = 1 << 16;

/// Bytes per step of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    steps: Vec<u64>,
}

impl Meter {
    pub(super) const fn new() -> Self {
        Self { steps: Vec::new() }
    }

    /// Counts bytes that were done so long after the start.
    pub(super) fn add(&mut self, since_start: Duration, bytes: u64) {
        let step = usize::try_from(since_start.as_nanos() / STEP.as_nanos()).unwrap_or(usize::MAX);
        if step >= self.steps.len() && step < MAX_STEPS {
            self.steps.resize(step + 1, 0);
        }
        if let Some(sum) = self.steps.get_mut(step) {
            *sum += bytes;
        }
    }

    /// Adds what was counted elsewhere from the same start.
    pub(super) fn merge(&mut self, other: &Self) {
        self.steps.resize(self.steps.len().max(other.steps.len()), 0);
        self.steps.iter_mut().zip(&other.steps).for_each(|(sum, bytes)| *sum += bytes);
    }

    /// The highest rate in bit/s over a whole step; `None` if there was none.
    pub(super) fn peak(&self) -> Option<f64> {
        let (_, whole) = self.steps.split_last()?;
        whole.iter().max().map(|bytes| *bytes as f64 * 8.0 / STEP.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_best_whole_step_of_all_queue_pairs_together() {
        let mut meter = Meter::new();
        assert_eq!(meter.peak(), None);
        meter.add(Duration::from_millis(99), 1000);
        assert_eq!(meter.peak(), None, "the step is not over");
        meter.add(Duration::from_millis(150), 3000);
        meter.add(Duration::from_millis(250), 9000);
        let mut other = Meter::new();
        other.add(Duration::from_millis(101), 500);
        other.add(Duration::from_millis(320), 1);
        meter.merge(&other);
        meter.add(Duration::MAX, 1 << 40);
        // 100 ms with 9,000 bytes.
        assert_eq!(meter.peak(), Some(720_000.0));
    }
}
