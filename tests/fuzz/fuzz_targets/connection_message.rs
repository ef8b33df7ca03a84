//! See `weft_tests::fuzz::connection_message`. Run: `cargo +nightly fuzz run connection_message ../corpus/connection_message` in `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::connection_message(data));
