//! The sizes of values that are encoded as differences, before the library decodes them: a short page
//! may stand for many lengths, and each text may repeat the one before.

use parquet::{
    basic::Encoding,
    column::page::Page,
    errors::{ParquetError, Result},
};

use super::budget::Budget;

/// The bytes of a length in memory.
const LENGTH: u64 = 4;

/// The bytes that the values of a page of DELTA_LENGTH_BYTE_ARRAY or DELTA_BYTE_ARRAY take beside the
/// page while they are decoded. `levels` are the maxima of a column's repetition and definition levels.
///
/// # Errors
/// The page is damaged, or has more lengths than fit.
pub(super) fn decoded(page: &Page, levels: [i16; 2], budget: &Budget) -> Result<u64> {
    let damaged = || ParquetError::General("a page ends before its lengths".to_owned());
    let mut lengths = Lengths { rest: values(page, levels).ok_or_else(damaged)? };
    let of_lengths = lengths.count().ok_or_else(damaged)?.saturating_mul(LENGTH);
    budget.check(of_lengths)?;
    if page.encoding() == Encoding::DELTA_LENGTH_BYTE_ARRAY {
        return Ok(of_lengths);
    }
    let repeated = lengths.read().ok_or_else(damaged)?;
    let of_others = lengths.count().ok_or_else(damaged)?.saturating_mul(LENGTH);
    Ok(of_lengths.saturating_add(of_others).saturating_add(repeated))
}

/// The bytes of a page after its levels, each of which is behind its length in pages of the first
/// version.
fn values(page: &Page, levels: [i16; 2]) -> Option<&[u8]> {
    match page {
        Page::DataPage { buf, .. } => {
            let mut rest = &buf[..];
            for _ in levels.iter().filter(|most| **most > 0) {
                let (length, after) = rest.split_first_chunk()?;
                rest = after.get(u32::from_le_bytes(*length) as usize..)?;
            }
            Some(rest)
        }
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            buf.get(*def_levels_byte_len as usize..)?.get(*rep_levels_byte_len as usize..)
        }
        Page::DictionaryPage { .. } => None,
    }
}

/// Reads integers in the encoding DELTA_BINARY_PACKED.
#[derive(Clone, Copy)]
struct Lengths<'a> {
    rest: &'a [u8],
}

impl<'a> Lengths<'a> {
    /// The number of integers that come next.
    fn count(self) -> Option<u64> {
        let mut header = self;
        header.unsigned()?;
        header.unsigned()?;
        header.unsigned()
    }

    /// Reads all of them. Returns the sum of those that are positive.
    fn read(&mut self) -> Option<u64> {
        let block = self.unsigned()?;
        let parts = self.unsigned()?;
        let mut left = self.unsigned()?;
        let mut value = self.signed()?;
        let size = usize::try_from(block.checked_div(parts)?).ok()?;
        let mut sum = 0_u64;
        let mut add = |value: i32| sum = sum.saturating_add(u64::try_from(value).unwrap_or(0));
        if left > 0 {
            add(value);
        }
        left = left.saturating_sub(1);
        while left > 0 {
            let least = self.signed()?;
            let widths = self.take(usize::try_from(parts).ok()?)?;
            for width in widths.iter().map(|width| usize::from(*width)) {
                if left == 0 {
                    break;
                }
                let bits = self.take(size.checked_mul(width)?.div_ceil(8))?;
                let here = usize::try_from(left).unwrap_or(size).min(size);
                for at in 0..here {
                    value =
                        value.wrapping_add(least).wrapping_add(number(bits, at * width, width)?);
                    add(value);
                }
                left -= here as u64;
            }
        }
        Some(sum)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// A number in groups of seven bits, the lowest ones first.
    fn unsigned(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A number whose lowest bit is its sign.
    fn signed(&mut self) -> Option<i32> {
        let number = self.unsigned()?;
        Some(((number >> 1) as i64 ^ -((number & 1) as i64)) as i32)
    }
}

/// The number of `width` bits, of which the lowest are of use, from the bit at `start` on.
fn number(bits: &[u8], start: usize, width: usize) -> Option<i32> {
    let mask = 1_u64.checked_shl(u32::try_from(width).ok()?)?.wrapping_sub(1);
    let bytes = bits.get(start / 8..)?.iter().take(size_of::<u64>() + 1).rev();
    let word = bytes.fold(0_u128, |word, byte| word << 8 | u128::from(*byte));
    Some((word >> (start % 8)) as u64 as i64 as i32 & mask as i32)
}
