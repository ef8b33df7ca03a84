//! See `weft_tests::fuzz::control_request`. Run: `cargo +nightly fuzz run control_request ../corpus/control_request` in `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::control_request(data));
