//! Models, calls and outputs generated from the input, packed and answered both
//! ways.
#![no_main]

// Each target uses a part of what is shared.
#[allow(dead_code)]
#[path = "../../crates/features/tests/transcode/mod.rs"]
mod transcode;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transcode::check::generated(bytes));
