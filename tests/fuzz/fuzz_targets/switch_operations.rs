//! See `weft_tests::fuzz::switch_operations`. Run: `cargo +nightly fuzz run switch_operations ../corpus/switch_operations` in `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::switch_operations(data));
