//! The input as a manifest, an index or an image's configuration, read as a pull does.
#![no_main]

libfuzzer_sys::fuzz_target!(|document: &[u8]| outrigger_oci::fuzzing::document(document));
