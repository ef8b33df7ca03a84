//! Randomness, always from a seed that the driver hands in.
//!
//! ChaCha with 8 rounds: reproducible from a printed seed, and good enough for keys and starting PSNs when the
//! daemon seeds it from the operating system.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// A generator for tests, labs and simulations: the same seed gives the same stream on every machine.
    pub fn from_seed(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A generator from 256 bits of operating-system entropy.
    pub fn from_entropy(entropy: [u8; 32]) -> Self {
        Self(ChaCha8Rng::from_seed(entropy))
    }

    /// An independent generator, so that one consumer's draws do not shift another's.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        Self(ChaCha8Rng::from_seed(seed))
    }

    /// 32 uniform bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..bound` (0 for an empty range). The bias of the multiply-shift method is below 2^-32 for the bounds used here.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        // The high half of a 64 x 64 bit product is below `bound`, so it fits.
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// True with a probability of `parts_per_million` in a million. Draws nothing at 0.
    pub fn chance(&mut self, parts_per_million: u32) -> bool {
        parts_per_million > 0 && self.below(1_000_000) < u64::from(parts_per_million)
    }
}
