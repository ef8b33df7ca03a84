//! See `weft_tests::fuzz::config_yaml`. Run: `cargo +nightly fuzz run config_yaml ../corpus/config_yaml` in `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::config_yaml(data));
