//! The texts of a repeated field, left where they stand.

use super::wire::{Malformed, Reader, is_text};

/// Texts, in order. There can be very many: only runs of them are noted.
#[derive(Debug, Default)]
pub(super) struct Texts<'a> {
    /// Fields one right after the other, without the key of the first.
    runs: Vec<&'a [u8]>,
    len: usize,
}

impl<'a> Texts<'a> {
    /// Reads a field whose key has just been read, and those that follow it with
    /// the same key, of one byte. Beyond `max` texts they are only counted.
    ///
    /// # Errors
    /// The bytes are cut short, or no text.
    pub(super) fn read(
        &mut self,
        key: u8,
        rest: &mut Reader<'a>,
        max: usize,
    ) -> Result<(), Malformed> {
        let start = rest.rest();
        loop {
            rest.bytes()?;
            self.len += 1;
            if !rest.accept(key) {
                break;
            }
        }
        let run = &start[..start.len() - rest.rest().len()];
        // Mostly all of it is ASCII, keys and lengths included.
        if !run.is_ascii() && !texts(run).all(is_text) {
            return Err(Malformed::Text);
        }
        if self.len <= max {
            self.runs.push(run);
        }
        Ok(())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The texts, in UTF-8; at most as many as [`Self::read`] was to keep.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.runs.iter().flat_map(|run| texts(run))
    }
}

/// The texts of a run that has been read.
fn texts(run: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Reader::new(run);
    std::iter::from_fn(move || {
        let text = rest.bytes().ok()?;
        // Nothing follows the last one.
        let _ = rest.key();
        Some(text)
    })
}
