//! See `weft_tests::fuzz::mac_control`. Run: `cargo +nightly fuzz run mac_control ../corpus/mac_control` in `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::mac_control(data));
