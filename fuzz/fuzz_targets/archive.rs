//! The input as a layer: its first byte chooses the compression.
#![no_main]

use outrigger_core::LayerKind;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((first, layer)) = bytes.split_first() else { return };
    let kind = match first % 3 {
        0 => LayerKind::Tar,
        1 => LayerKind::TarGzip,
        _ => LayerKind::TarZstd,
    };
    outrigger_store::fuzzing::layer(layer, kind);
});
