//! The entries of an object.

use super::field;
use crate::{
    transcode::{
        lasts::{Keyed, Lasts},
        merged::{self, Merged},
    },
    wire::{MAX_DEPTH, Malformed, Reader},
};

/// An entry, of which only the bytes are kept: there can be very many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'r> {
    body: &'r [u8],
}

impl<'r> Entry<'r> {
    /// The key and the value.
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
        // It has been validated.
        self.last_key().unwrap_or_default()
    }
}

/// The entries of an object that is sent in parts, in the order of their keys.
pub(super) fn entries<'r>(object: &[&'r [u8]]) -> Result<Vec<Entry<'r>>, Malformed> {
    let mut entries = Lasts::default();
    for part in object {
        let mut rest = Reader::new(part);
        while !rest.is_empty() {
            match rest.key()? {
                // As prost does: whatever the wire type says.
                (1, _) => entries.push(Entry { body: rest.bytes()? }),
                (number, wire_type) => rest.skip(number, wire_type, MAX_DEPTH)?,
            }
        }
    }
    Ok(entries.into_sorted())
}
