//! Finds the end of an array or an object without reading what is in it: 64 bytes at a time, by
//! bitmaps of the bytes that matter.

#[cfg(target_arch = "x86_64")]
mod x86_64;

/// The number of bytes that are looked at together.
const WIDTH: usize = 64;

/// An array or an object in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Skipped {
    /// The number of its bytes.
    pub(super) length: usize,
    /// The number of arrays and objects directly in it.
    pub(super) items: usize,
}

/// Bitmaps of a block of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Masks {
    quotes: u64,
    backslashes: u64,
    /// Brackets, and a few letters that no JSON has outside of strings.
    brackets: u64,
}

/// The state between two blocks.
#[derive(Debug, Default)]
struct State {
    /// All bits are set within a string.
    in_string: u64,
    /// 1 if the last byte was a backslash that escapes the next one.
    escaping: u64,
    depth: usize,
    items: usize,
}

/// The bits that are set in all brackets, and in no other byte that JSON has outside of strings.
const BRACKET: u8 = 0x59;

impl State {
    /// Takes the next block; returns the position after the last bracket if it is in the block.
    #[inline(always)]
    fn take(&mut self, block: &[u8; WIDTH], masks: Masks) -> Option<usize> {
        let quotes = masks.quotes & !self.escaped(masks.backslashes);
        let inside = parity(quotes) ^ self.in_string;
        self.in_string = (inside.cast_signed() >> 63).cast_unsigned();
        let mut brackets = masks.brackets & !inside;
        while brackets != 0 {
            let at = brackets.trailing_zeros() as usize;
            brackets &= brackets - 1;
            match block[at] {
                b'{' | b'[' => {
                    self.items += usize::from(self.depth == 1);
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The bytes that a backslash escapes.
    #[inline(always)]
    fn escaped(&mut self, backslashes: u64) -> u64 {
        let mut escaped = std::mem::take(&mut self.escaping);
        let mut left = backslashes & !escaped;
        while left != 0 {
            let backslash = left & left.wrapping_neg();
            let next = backslash << 1;
            self.escaping = u64::from(next == 0);
            escaped |= next;
            // An escaped backslash escapes nothing.
            left &= !(backslash | next);
        }
        escaped
    }
}

/// For each bit, whether the number of set bits up to it is odd.
#[inline(always)]
fn parity(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// Finds the end of the array or the object that `text` begins with; `None` if it has none, or
/// `text` begins with another value.
pub(super) fn skip(text: &[u8]) -> Option<Skipped> {
    if !matches!(text.first(), Some(b'{' | b'[')) {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    return x86_64::skip(text);
    #[cfg(not(target_arch = "x86_64"))]
    return skip_by(text, masks);
}

#[inline(always)]
fn skip_by(text: &[u8], masks: impl Fn(&[u8; WIDTH]) -> Masks) -> Option<Skipped> {
    let (mut state, (blocks, tail)) = (State::default(), text.as_chunks());
    for (index, block) in blocks.iter().enumerate() {
        if let Some(end) = state.take(block, masks(block)) {
            return Some(Skipped { length: index * WIDTH + end, items: state.items });
        }
    }
    let mut last = [b' '; WIDTH];
    last[..tail.len()].copy_from_slice(tail);
    let end = state.take(&last, masks(&last))?;
    Some(Skipped { length: text.len() - tail.len() + end, items: state.items })
}

/// The bitmaps of a block, byte by byte.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn masks(block: &[u8; WIDTH]) -> Masks {
    let mask = |is: fn(u8) -> bool| {
        let bits = block.iter().zip(0..).map(|(byte, at)| u64::from(is(*byte)) << at);
        bits.fold(0, |mask, bit| mask | bit)
    };
    Masks {
        quotes: mask(|byte| byte == b'"'),
        backslashes: mask(|byte| byte == b'\\'),
        brackets: mask(|byte| byte | !BRACKET == u8::MAX && byte < 0x80),
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    /// As [`skip`], byte by byte.
    fn plain(text: &[u8]) -> Option<Skipped> {
        let (mut depth, mut items, mut in_string, mut escaped) = (0, 0, false, false);
        for (at, byte) in text.iter().enumerate() {
            let was_escaped = std::mem::take(&mut escaped);
            match byte {
                b'\\' => escaped = !was_escaped,
                b'"' if !was_escaped => in_string = !in_string,
                b'{' | b'[' if !in_string => {
                    items += usize::from(depth == 1);
                    depth += 1;
                }
                b'}' | b']' if !in_string => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(Skipped { length: at + 1, items });
                    }
                }
                _ => {}
            }
        }
        None
    }

    #[test]
    fn the_end_is_that_of_the_first_value() {
        let skipped = skip(br#"[{"a":"]\"}"},{},1,[2]] ]"#);
        assert_eq!(skipped, Some(Skipped { length: 23, items: 3 }));
        for cut in ["", "1", "\"a\"", "[", "{\"}", "[[]", "]"] {
            assert_eq!(skip(cut.as_bytes()), None, "{cut}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn blocks_are_read_as_single_bytes_are(
            pieces in vec(select(&["{", "}", "[", "]", "\"", "\\", "\\\\", "a", "Y", "_", "é", "          "][..]), 0..200)
        ) {
            let text = format!("[{}", pieces.concat());
            prop_assert_eq!(skip(text.as_bytes()), plain(text.as_bytes()));
            prop_assert_eq!(skip_by(text.as_bytes(), masks), plain(text.as_bytes()));
        }

        #[cfg(target_arch = "x86_64")]
        #[test]
        fn the_narrowest_vectors_find_what_single_bytes_do(bytes in any::<[u8; WIDTH]>()) {
            // SAFETY: every x86-64 processor has SSE2.
            prop_assert_eq!(unsafe { x86_64::of_16(&bytes) }, masks(&bytes));
        }
    }
}
