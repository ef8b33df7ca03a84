//! See `weft_tests::fuzz::attach_request`. Run: `cargo +nightly fuzz run attach_request ../corpus/attach_request` in `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::attach_request(data));
