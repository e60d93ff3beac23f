//! Requests in JSON, as text or drawn from the input, packed in one pass and by way of their
//! protobuf form.
#![no_main]

// Each target uses a part of what is shared.
#[allow(dead_code)]
#[path = "../../crates/features/tests/transcode/mod.rs"]
mod transcode;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transcode::json::any(bytes));
