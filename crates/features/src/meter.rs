//! The memory and the time of a call while it is packed.

use std::fmt;

use outrigger_core::Failure;

/// The number of treatments after which the time is looked at again.
pub(crate) const OFTEN: usize = 64;

/// Admits the memory of a call, and ends the call when it takes too long.
pub trait Meter: fmt::Debug {
    /// Admits tensors of this size. Called before they are allocated.
    ///
    /// # Errors
    /// They do not fit.
    fn admit(&self, bytes: u64) -> Result<(), Failure>;

    /// Called repeatedly while a call is packed.
    ///
    /// # Errors
    /// The call's time is over.
    fn proceed(&self) -> Result<(), Failure>;
}

/// Admits everything.
#[derive(Debug)]
pub(crate) struct Unmetered;

impl Meter for Unmetered {
    fn admit(&self, _: u64) -> Result<(), Failure> {
        Ok(())
    }

    fn proceed(&self) -> Result<(), Failure> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
