//! See `weft_tests::fuzz::stop_packet`. Run: `cargo +nightly fuzz run stop_packet ../corpus/stop_packet` in `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::stop_packet(data));
