//! Numbers, and arrays of them.

use crate::cursor::{Cursor, Odd, Read};

/// A number as its text says: without a fraction and an exponent it is whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Without a fraction and an exponent, and within 64 bits.
    Integer(i64),
    /// Any other: the float64 nearest to the text.
    Real(f64),
}

impl Number {
    /// The number as a float32: of a real, the float64 nearest to the text is rounded.
    #[inline]
    pub fn to_f32(self) -> f32 {
        match self {
            Self::Integer(value) => value as f32,
            Self::Real(value) => value as f32,
        }
    }
}

/// The digits of a decimal number.
#[derive(Debug, Default, Clone, Copy)]
struct Digits {
    /// Their value, unless there are too many.
    value: u64,
    count: usize,
}

/// The most digits whose value always fits.
const FIT: usize = 19;
/// The largest integer below which every integer is a float64.
const EXACT: u64 = 1 << 53;
/// The powers of ten that are exact as a float64.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

impl Digits {
    /// Appends the digits that `text` begins with; also returns the text after them.
    #[inline]
    fn with(mut self, mut text: &[u8]) -> (Self, &[u8]) {
        while let Some(word) = text.first_chunk::<8>() {
            let (value, count) = leading(u64::from_le_bytes(*word));
            self = self.and(value, count);
            text = &text[count..];
            if count < 8 {
                return (self, text);
            }
        }
        while let Some((byte, rest)) = text.split_first()
            && byte.is_ascii_digit()
        {
            self = self.and(u64::from(byte - b'0'), 1);
            text = rest;
        }
        (self, text)
    }

    /// Appends up to eight digits.
    #[inline]
    fn and(self, value: u64, count: usize) -> Self {
        let scaled = self.value.wrapping_mul(SCALES[count]);
        Self { value: scaled.wrapping_add(value), count: self.count + count }
    }
}

/// The powers of ten up to eight digits.
const SCALES: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// The value and the number of the digits that eight bytes begin with.
#[inline]
fn leading(word: u64) -> (u64, usize) {
    const ONES: u64 = u64::MAX / 0xff;
    let digits = word ^ (u64::from(b'0') * ONES);
    // The highest bit of the first byte above 9 is set; carries change only bytes after it.
    let others = (digits | digits.wrapping_add(0x76 * ONES)) & (0x80 * ONES);
    let bits = others.trailing_zeros() & !7;
    // Zeros take the place of leading digits.
    let digits = digits.unbounded_shl(64 - bits);
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    let value = fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff;
    (value, bits as usize / 8)
}

/// Reads the number that comes next; `None` if none does, or it is too large for a float64.
#[inline]
pub fn read(rest: &mut &[u8]) -> Option<Number> {
    let all = *rest;
    let (number, after) = parse(all)?;
    *rest = after;
    Some(number)
}

/// The number that `all` begins with, and the text after it.
#[inline]
fn parse(all: &[u8]) -> Option<(Number, &[u8])> {
    let negative = all.first() == Some(&b'-');
    let start = &all[usize::from(negative)..];
    let (whole, mut text) = Digits::default().with(start);
    if whole.count == 0 || (whole.count > 1 && start[0] == b'0') {
        return None;
    }
    let (mut digits, mut exponent) = (whole, 0);
    if let Some((b'.', fraction)) = text.split_first() {
        (digits, text) = whole.with(fraction);
        if digits.count == whole.count {
            return None;
        }
    }
    if let Some((b'e' | b'E', power)) = text.split_first() {
        (exponent, text) = read_exponent(power)?;
    } else if digits.count == whole.count {
        return Some((integer(digits, negative, &all[..all.len() - text.len()])?, text));
    }
    let scale = exponent - i64::try_from(digits.count - whole.count).ok()?;
    let value = match real(digits, scale, negative) {
        Some(value) => value,
        None => nearest(&all[..all.len() - text.len()])?,
    };
    Some((Number::Real(value), text))
}

/// Reads an exponent, whose letter has been read; also returns the text after it.
fn read_exponent(text: &[u8]) -> Option<(i64, &[u8])> {
    let sign = text.first().filter(|sign| matches!(sign, b'+' | b'-'));
    let (digits, after) = Digits::default().with(&text[usize::from(sign.is_some())..]);
    // Longer ones are beyond every float64.
    let value = if digits.count < FIT { i64::try_from(digits.value).ok()? } else { i64::MAX / 2 };
    let value = if sign == Some(&b'-') { -value } else { value };
    (digits.count > 0).then_some((value, after))
}

/// A number of digits alone, whose text is `text`.
#[inline]
fn integer(digits: Digits, negative: bool, text: &[u8]) -> Option<Number> {
    if digits.count < FIT && (!negative || digits.value > 0) {
        let value = digits.value.cast_signed();
        return Some(Number::Integer(if negative { -value } else { value }));
    }
    large(text)
}

/// An integer that may be too large for 64 bits, and then becomes the nearest float64.
#[cold]
fn large(text: &[u8]) -> Option<Number> {
    let whole = std::str::from_utf8(text).ok()?.parse();
    whole
        .ok()
        .filter(|whole| *whole != 0)
        .map(Number::Integer)
        .or_else(|| nearest(text).map(Number::Real))
}

/// The float64 nearest to `digits` times ten to the power of `scale`, if a single rounding gives
/// it: both factors are exact.
#[inline]
fn real(digits: Digits, scale: i64, negative: bool) -> Option<f64> {
    if digits.count > FIT || digits.value > EXACT {
        return None;
    }
    let power = *POWERS.get(usize::try_from(scale.unsigned_abs()).ok()?)?;
    let value = digits.value.cast_signed() as f64;
    let value = if scale < 0 { value / power } else { value * power };
    Some(if negative { -value } else { value })
}

/// The float64 nearest to a number's text; `None` if it is beyond the largest.
fn nearest(text: &[u8]) -> Option<f64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// Reads an array of numbers: calls `take` with each.
///
/// # Errors
/// The next value is no array of numbers, or `take` returns an error.
#[inline]
pub fn each(cursor: &mut Cursor<'_>, mut take: impl FnMut(Number) -> Read<()>) -> Read<()> {
    cursor.array(|cursor| take(read(&mut cursor.rest).ok_or(Odd)?))
}

/// Reads an array of just as many numbers as `to` has elements, of a float32 tensor.
///
/// # Errors
/// The next value is another one, or a number is none of float32.
pub fn float32s(cursor: &mut Cursor<'_>, to: &mut [[u8; 4]]) -> Read<()> {
    let mut to = to.iter_mut();
    each(cursor, |number| {
        let value = number.to_f32();
        let element = to.next().filter(|_| value.is_finite()).ok_or(Odd)?;
        *element = value.to_le_bytes();
        Ok(())
    })?;
    if to.next().is_none() { Ok(()) } else { Err(Odd) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The number as serde_json reads it, by its bits.
    fn expected(text: &str) -> Option<(bool, u64)> {
        let number: serde_json::Number = serde_json::from_str(text).ok()?;
        Some(match number.as_i64() {
            Some(integer) => (true, integer.cast_unsigned()),
            None => (false, number.as_f64()?.to_bits()),
        })
    }

    fn found(text: &str) -> Option<(bool, u64)> {
        let mut rest = text.as_bytes();
        let number = read(&mut rest)?;
        rest.is_empty().then_some(match number {
            Number::Integer(integer) => (true, integer.cast_unsigned()),
            Number::Real(real) => (false, real.to_bits()),
        })
    }

    #[test]
    fn numbers_at_the_borders_are_read_as_by_serde() {
        for text in [
            "0",
            "-0",
            "-",
            "",
            ".5",
            "1.",
            "1.e3",
            "1e",
            "1e+",
            "00",
            "01",
            "-01",
            "0.0",
            "-0.0",
            "9007199254740991",
            "9007199254740993",
            "9007199254740993.0",
            "0.1",
            "1e22",
            "1e23",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "-9223372036854775809",
            "18446744073709551615",
            "18446744073709551616",
            "1e308",
            "1.7976931348623158e308",
            "1.7976931348623159e308",
            "1e309",
            "-1e400",
            "4.9e-324",
            "2.4703282292062327e-324",
            "2.4703282292062328e-324",
            "1e-400",
            "0e999999999999999999999",
            "1e99999999999999999999",
            "1e-99999999999999999999",
            "123456789012345678901234567890",
            "0.00000000000000000000000000000000000001",
            "1E5",
            "1e+5",
            "1e05",
            "1.0e-05",
            "+1",
            "1_0",
            "12345678",
            "1234567a",
            "12345678.12345678",
            "/:",
            "1/",
            "1:",
            "NaN",
            "Infinity",
            "0x1",
            "8.5e-1",
            "3.4028235e38",
            "3.4028236e38",
            "1.00000005960464477540",
            "16777217",
        ] {
            assert_eq!(found(text), expected(text), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn any_number_is_read_as_by_serde(text in "-?[0-9]{1,22}(\\.[0-9]{0,22})?([eE][+-]?[0-9]{0,4})?") {
            prop_assert_eq!(found(&text), expected(&text), "{}", text);
        }

        #[test]
        fn every_float_is_read_back(bits: u64) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            for text in [format!("{value:e}"), format!("{value:?}"), format!("{value:.17e}")] {
                prop_assert_eq!(found(&text), expected(&text), "{}", text);
            }
        }

        #[test]
        fn any_text_is_taken_or_refused_as_by_serde(text in "[-+0-9.eE/:;a]{0,12}") {
            prop_assert_eq!(found(&text), expected(&text), "{}", text);
        }
    }

    #[test]
    fn arrays_of_floats_fill_their_room() {
        let mut room = [[0; 4]; 3];
        let mut cursor = Cursor::new(b"[1, -0.5,2e1 ],");
        assert_eq!(float32s(&mut cursor, &mut room), Ok(()));
        assert_eq!(room.map(f32::from_le_bytes), [1.0, -0.5, 20.0]);
        assert_eq!(cursor.rest, b",");
        for odd in ["[1,2]", "[1,2,3,4]", "[]", "[1,2,\"3\"]", "[1,2,1e39]", "3", "[1,2,3"] {
            assert_eq!(float32s(&mut Cursor::new(odd.as_bytes()), &mut room), Err(Odd), "{odd}");
        }
    }
}
