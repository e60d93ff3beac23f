//! The entries of an object.

use super::field;
use crate::{
    entries::Entries,
    transcode::{
        lasts::{Keyed, Lasts},
        merged::{self, Merged},
    },
    wire::{MAX_DEPTH, Malformed, Reader},
};

/// An entry, stored as its bytes only: an object can have very many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'r> {
    body: &'r [u8],
}

impl<'r> Entry<'r> {
    /// Reads the key and the value.
    pub(super) fn read(self) -> Result<(&'r [u8], Merged<'r>), Malformed> {
        merged::entry(self.body, field)
    }

    fn last_key(self) -> Result<&'r [u8], Malformed> {
        let (mut rest, mut key) = (Reader::new(self.body), &[][..]);
        while !rest.is_empty() {
            match rest.key()? {
                (1, wire_type) => key = rest.bytes_field(wire_type)?,
                (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
            }
        }
        Ok(key)
    }
}

impl Keyed for Entry<'_> {
    fn key(&self) -> &[u8] {
        // The entry has been validated, so it cannot fail here.
        self.last_key().unwrap_or_default()
    }
}

/// The entries of an object that may be sent in several parts, in the order of their
/// keys. `left` are
/// the entries that the whole object may still have.
pub(super) fn entries<'r>(
    object: &[&'r [u8]],
    left: &mut Entries,
) -> Result<Vec<Entry<'r>>, Malformed> {
    let mut entries = Lasts::default();
    for part in object {
        let mut rest = Reader::new(part);
        while !rest.is_empty() {
            match rest.key()? {
                // prost ignores the wire type here, so any is accepted.
                (1, _) => {
                    left.take()?;
                    entries.push(Entry { body: rest.bytes()? });
                }
                (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
            }
        }
    }
    Ok(entries.into_sorted())
}
