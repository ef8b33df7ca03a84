//! See `weft_tests::fuzz::shared_ring`. Run: `cargo +nightly fuzz run shared_ring ../corpus/shared_ring` in `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::shared_ring(data));
