//! Many float32 at once, as little-endian bytes.

/// The bits that are all set in a NaN or an infinity, and in no other float32.
const EXPONENT: u32 = 0x7f80_0000;
/// The bit that makes a NaN a quiet one.
const QUIET: u32 = 0x0040_0000;

/// Whether the bits of a float32 are those of a finite number.
pub(crate) const fn is_finite(bits: u32) -> bool {
    bits & EXPONENT != EXPONENT
}

/// Whether all of them are finite. `bytes` holds whole elements.
pub(crate) fn all_finite(bytes: &[u8]) -> bool {
    // Without a way out, the inner loop becomes vector instructions.
    let (elements, _) = bytes.as_chunks::<4>();
    elements.chunks(512).all(|block| {
        let found = |found, element: &[u8; 4]| found | !is_finite(u32::from_le_bytes(*element));
        !block.iter().fold(false, found)
    })
}

/// Makes every NaN a quiet one, as arithmetic does.
pub(crate) fn quiet(bytes: &mut [u8]) {
    let (elements, _) = bytes.as_chunks_mut::<4>();
    for element in elements {
        let value = f32::from_le_bytes(*element);
        if value.is_nan() {
            *element = (value.to_bits() | QUIET).to_le_bytes();
        }
    }
}
