//! Bounds on the number of entries in a request.

use crate::wire::{MAX_DEPTH, Malformed, Reader};

/// The number of features in a request that the model does not name: this many, and some more for
/// each treatment.
pub(crate) const STRANGERS: usize = 4096;
pub(crate) const STRANGERS_PER_ROW: usize = 64;

/// The number of fields in an encoded object: each element of a list in it has two or more.
pub(crate) const OBJECT_FIELDS: usize = 1 << 20;

/// The number of names of outputs in a request's options.
pub(crate) const OUTPUTS: usize = 1024;

/// Counts down the entries that a request may still have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entries(pub(crate) usize);

impl Entries {
    /// Counts one more entry; fails if there have been as many as allowed.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<(), Malformed> {
        self.take_many(1)
    }

    #[inline]
    pub(crate) fn take_many(&mut self, count: usize) -> Result<(), Malformed> {
        self.0 = self.0.checked_sub(count).ok_or(Malformed::Entries)?;
        Ok(())
    }
}

/// Refuses encoded `ResponseOptions` with too many names of outputs, which take ten times their
/// bytes once they are decoded.
pub(crate) fn check_outputs(options: &[u8]) -> Result<(), Malformed> {
    let (mut rest, mut left) = (Reader::new(options), Entries(OUTPUTS));
    while !rest.is_empty() {
        let (number, wire_type) = rest.key()?;
        if number == 3 {
            left.take()?;
        }
        rest.skip(number, wire_type, MAX_DEPTH)?;
    }
    Ok(())
}
