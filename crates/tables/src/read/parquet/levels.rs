//! The repetition levels of a page: a level of 0 begins a row.
//!
//! <https://parquet.apache.org/docs/file-format/data-pages/encodings/>, "RLE/bit-packing hybrid"

/// Calls `run` with each run of equal levels and its length, until it returns false or there are
/// `count` levels; `width` is the number of bits of a level, at most 8.
///
/// # Errors
/// The levels end early.
pub(super) fn runs(
    mut bytes: &[u8],
    width: u32,
    count: u64,
    mut run: impl FnMut(u8, u64) -> bool,
) -> Result<(), &'static str> {
    let mut left = count;
    while left > 0 {
        let header = varint(&mut bytes)?;
        if header & 1 == 0 {
            let level = *bytes.split_off_first().ok_or(SHORT)?;
            let length = (header >> 1).min(left);
            left -= length;
            if length > 0 && !run(level, length) {
                return Ok(());
            }
            continue;
        }
        let length =
            usize::try_from(header >> 1).ok().and_then(|it| it.checked_mul(width as usize));
        let packed = bytes.split_off(..length.ok_or(SHORT)?).ok_or(SHORT)?;
        for level in unpack(packed, width).take(usize::try_from(left).unwrap_or(usize::MAX)) {
            left -= 1;
            if !run(level, 1) {
                return Ok(());
            }
        }
    }
    Ok(())
}

const SHORT: &str = "a page's levels end early";

fn varint(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.split_off_first().ok_or(SHORT)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a page's levels are not valid")
}

/// The levels in bytes of `width` bits each, the lowest bits first.
fn unpack(bytes: &[u8], width: u32) -> impl Iterator<Item = u8> {
    let count = bytes.len() as u64 * 8 / u64::from(width.max(1));
    (0..count).map(move |index| {
        let bit = index * u64::from(width);
        let (byte, shift) = ((bit / 8) as usize, bit % 8);
        let next = bytes.get(byte + 1).copied().unwrap_or_default();
        let both = u16::from(bytes[byte]) | u16::from(next) << 8;
        (both >> shift) as u8 & ((1_u16 << width) - 1) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(bytes: &[u8], width: u32, count: u64) -> Result<Vec<u8>, &'static str> {
        let mut levels = Vec::new();
        runs(bytes, width, count, |level, length| {
            levels.extend(vec![level; length as usize]);
            true
        })?;
        Ok(levels)
    }

    #[test]
    fn runs_and_packed_levels_are_read() {
        // Three ones, then eight levels of one bit, of which five count.
        assert_eq!(levels(&[6, 1, 3, 0b1_0110], 1, 8), Ok(vec![1, 1, 1, 0, 1, 1, 0, 1]));
        // Eight levels of three bits: 0 to 7.
        let packed = [3, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        assert_eq!(levels(&packed, 3, 8), Ok((0..8).collect()));
    }

    #[test]
    fn levels_that_end_early_are_refused() {
        for bytes in [&[][..], &[6], &[3], &[0x80], &[6, 1], &[0xff, 0xff, 0xff, 0xff, 0xff]] {
            assert!(levels(bytes, 1, 8).is_err(), "{bytes:?}");
        }
    }
}
