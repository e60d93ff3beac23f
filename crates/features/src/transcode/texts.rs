//! The texts of a message's repeated field, as slices of the message.

use smallvec::SmallVec;

use crate::wire::{Malformed, Reader, is_text};

/// The encoded key of field 1.
const FIRST: u8 = 0x0a;

/// The texts of field 1, in order. There can be very many, so only runs of them are
/// stored.
#[derive(Debug, Default)]
pub(super) struct Texts<'a> {
    /// Runs of adjacent fields, without the key of the first field. Usually there is one run.
    runs: SmallVec<[&'a [u8]; 1]>,
    len: usize,
}

impl<'a> Texts<'a> {
    /// Reads a field whose key has just been read, and the fields of the same key that follow it.
    /// Texts beyond the first `max` are counted but not kept.
    ///
    /// # Errors
    /// The bytes are cut short, or no text.
    pub(super) fn read(&mut self, rest: &mut Reader<'a>, max: usize) -> Result<(), Malformed> {
        let (run, count) = run(rest, FIRST)?;
        self.len += count;
        if self.len <= max {
            self.runs.push(run);
        }
        Ok(())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The kept texts, in UTF-8.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.runs.iter().flat_map(|run| of_run(run, FIRST))
    }
}

/// Reads a text whose `key` has just been read, and the texts of the same key that follow it.
/// Returns all their bytes without the first key, and their number.
///
/// # Errors
/// The bytes are cut short, or no text.
pub(super) fn run<'a>(rest: &mut Reader<'a>, key: u8) -> Result<(&'a [u8], usize), Malformed> {
    let (start, mut count) = (rest.rest(), 0);
    loop {
        rest.bytes()?;
        count += 1;
        if !rest.accept(key) {
            break;
        }
    }
    let run = &start[..start.len() - rest.rest().len()];
    // Usually the whole run is ASCII, keys and lengths included, and one check suffices.
    if !run.is_ascii() && !of_run(run, key).all(is_text) {
        return Err(Malformed::Text);
    }
    Ok((run, count))
}

/// The texts of a run that has been read.
pub(super) fn of_run(run: &[u8], key: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Reader::new(run);
    std::iter::from_fn(move || {
        let text = rest.bytes().ok()?;
        // The last text is not followed by a key.
        rest.accept(key);
        Some(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a message that consists only of fields with the key `FIRST`.
    fn read(message: &[u8], max: usize) -> Result<(usize, Vec<&[u8]>), Malformed> {
        let (mut texts, mut rest) = (Texts::default(), Reader::new(message));
        while rest.accept(FIRST) {
            texts.read(&mut rest, max)?;
        }
        assert!(rest.is_empty());
        Ok((texts.len(), texts.iter().collect()))
    }

    fn fields(texts: &[&[u8]]) -> Vec<u8> {
        let field = |text: &&[u8]| {
            assert!(text.len() < 0x100, "two bytes are enough for the length");
            let length = match u8::try_from(text.len()) {
                Ok(short) if short < 0x80 => vec![short],
                _ => vec![text.len() as u8 | 0x80, 1],
            };
            [&[FIRST], length.as_slice(), text].concat()
        };
        texts.iter().flat_map(field).collect()
    }

    #[test]
    fn texts_of_any_length_come_back_in_order() {
        let long = "é".repeat(70);
        let sent = [b"a".as_slice(), b"", long.as_bytes(), b"another"];
        assert_eq!(read(&fields(&sent), 4), Ok((4, sent.to_vec())));
        assert_eq!(read(b"", 4), Ok((0, vec![])));
    }

    #[test]
    fn more_than_are_kept_are_counted() {
        let sent = [b"a".as_slice(); 3];
        assert_eq!(read(&fields(&sent), 3), Ok((3, sent.to_vec())));
        assert_eq!(read(&fields(&sent), 2), Ok((3, vec![])));
    }

    #[test]
    fn a_text_that_is_not_utf8_is_refused() {
        assert_eq!(read(&fields(&[b"a", b"\xff", b"b"]), 4), Err(Malformed::Text));
        // The two bytes of one character, in two texts.
        assert_eq!(read(&fields(&[b"\xc3", b"\xa9"]), 4), Err(Malformed::Text));
        assert_eq!(read(b"\x0a\x05abc", 4), Err(Malformed::Truncated));
    }
}
