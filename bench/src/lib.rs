//! Drivers for the benches: the stages of the data path, each over a prepared world without I/O.
//!
//! `cargo bench -p weft-bench` prints nanoseconds and allocations per frame; `cargo test` runs the same code with
//! little input and asserts that the hot path allocates nothing.

pub mod fabric;
pub mod host;
pub mod recovery;
mod scale;
pub mod stream;
mod transit;

pub use host::{HostPort, Stops};
pub use scale::Crowd;
pub use stream::Stream;
pub use transit::Transit;

/// What a stage took for a number of frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Frames handled.
    pub frames: u64,
    /// Time spent.
    pub nanos: u64,
    /// Allocations made.
    pub allocations: u64,
}

impl Cost {
    /// Runs `stage`, which returns the frames it handled, and adds what it took.
    pub fn measure(&mut self, stage: impl FnOnce() -> u64) {
        let mut took = (0, 0);
        let allocations = allocation_counter::measure(|| {
            let start = std::time::Instant::now();
            let frames = stage();
            took = (frames, u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        });
        self.frames += took.0;
        self.nanos += took.1;
        self.allocations += allocations.count_total;
    }

    /// Nanoseconds per frame.
    #[allow(clippy::cast_precision_loss)]
    pub fn nanos_per_frame(&self) -> f64 {
        self.nanos as f64 / self.frames.max(1) as f64
    }
}
