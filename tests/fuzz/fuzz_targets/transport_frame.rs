//! See `weft_tests::fuzz::transport_frame`. Run: `cargo +nightly fuzz run transport_frame ../corpus/transport_frame` in `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::transport_frame(data));
