//! See `weft_tests::fuzz::stop_dialogue`. Run: `cargo +nightly fuzz run stop_dialogue ../corpus/stop_dialogue` in `tests/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_tests::fuzz::stop_dialogue(data));
