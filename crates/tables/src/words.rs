//! The values that the words of a cell of CSV state.

use std::str::FromStr;

/// The bound below which an integer in a float is exact.
const EXACT: f64 = (1_u64 << 53) as f64;

/// The integer that a float is exactly.
pub(crate) fn whole(value: f64) -> Option<i128> {
    (value.fract() == 0.0 && value.abs() < EXACT).then_some(value as i128)
}

/// The integer of a word: that of a float is exact, and a boolean is 0 or 1.
pub fn integer<T: FromStr + TryFrom<i128>>(word: &str) -> Option<T> {
    let other = || real(word).and_then(whole).or_else(|| flag(word).map(Into::into));
    word.parse().ok().or_else(|| T::try_from(other()?).ok())
}

/// The number of a word, such as `-1.5e3`, `NaN` or `-inf`. One with digits is not infinite.
pub fn real<T: FromStr + Copy + Into<f64>>(word: &str) -> Option<T> {
    let is_word = !word.contains(|letter: char| letter.is_ascii_digit());
    word.parse().ok().filter(|number: &T| (*number).into().is_finite() || is_word)
}

/// The boolean of a word, in any case of letters.
pub fn flag(word: &str) -> Option<bool> {
    let words = [("true", true), ("false", false)];
    let found = words.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    found.map(|(_, flag)| flag)
}
