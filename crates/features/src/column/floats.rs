//! Operations on many float32 at once, as little-endian bytes.

use crate::vectors::widest;

/// The bits that are all set in a NaN or an infinity, and in no other float32.
pub(crate) const EXPONENT: u32 = 0x7f80_0000;
/// The lowest bit of the exponent: adding it to an exponent of all ones carries into the
/// sign bit.
pub(crate) const CARRY: u32 = 0x0080_0000;
/// The bit that marks a NaN as quiet.
const QUIET: u32 = 0x0040_0000;

/// Whether a float32 with these bits is finite.
pub(crate) const fn is_finite(bits: u32) -> bool {
    bits & EXPONENT != EXPONENT
}

/// A number whose highest bit is set if the float32 is not finite. The results for
/// several numbers are combined by bitwise or, which costs less than comparing each.
pub(crate) const fn overflow(bits: u32) -> u32 {
    (bits & EXPONENT) + CARRY
}

/// Whether all numbers are finite whose [`overflow`]s are combined in `overflows`.
pub(crate) const fn are_finite(overflows: u32) -> bool {
    overflows >> 31 == 0
}

widest! {
    /// Whether all float32 in `bytes` are finite. `bytes` holds whole elements.
    pub(crate) fn all_finite(bytes: &[u8]) -> bool = every_finite;
}

#[inline(always)]
fn every_finite(bytes: &[u8]) -> bool {
    // The inner loop has no early exit, so that the compiler vectorizes it.
    let (elements, _) = bytes.as_chunks::<4>();
    elements.chunks(1024).all(|block| {
        let join = |found, element: &[u8; 4]| found | overflow(u32::from_le_bytes(*element));
        are_finite(block.iter().fold(0, join))
    })
}

/// Sets the bit that marks a NaN as quiet in every NaN, as arithmetic does.
pub(crate) fn quiet(bytes: &mut [u8]) {
    let (elements, _) = bytes.as_chunks_mut::<4>();
    for element in elements {
        let value = f32::from_le_bytes(*element);
        if value.is_nan() {
            *element = (value.to_bits() | QUIET).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_not_finite_is_found_wherever_it_stands() {
        for count in (0..70).chain([1023, 1024, 1025, 2100]) {
            let mut bytes = [0x3f, 0x80, 0x7f, 0x7f].repeat(count);
            assert!(all_finite(&bytes), "{count}");
            for (at, value) in (0..count).zip([f32::NAN, f32::INFINITY, -f32::NAN].iter().cycle()) {
                let finite: [u8; 4] = bytes[4 * at..4 * at + 4].try_into().unwrap();
                bytes[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
                assert!(!all_finite(&bytes), "{value} at {at} of {count}");
                bytes[4 * at..4 * at + 4].copy_from_slice(&finite);
            }
        }
    }

    #[test]
    fn the_widest_vectors_give_the_result_of_the_narrowest() {
        for value in [0.0, -1.5, f32::MAX, f32::MIN_POSITIVE, f32::NAN, f32::NEG_INFINITY] {
            let bits = value.to_bits();
            assert_eq!(are_finite(overflow(bits)), value.is_finite());
            assert_eq!(is_finite(bits), value.is_finite());
            let bytes = value.to_le_bytes().repeat(100);
            assert_eq!(all_finite(&bytes), every_finite(&bytes), "{value}");
        }
    }
}
