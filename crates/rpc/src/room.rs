//! The room for an answer.

use outrigger_proto::raw::unary::Unreadable;

/// The room for an answer, which is taken while the message arrives.
pub trait Room: Send + Sync {
    /// The most bytes of the message.
    fn limit(&self) -> usize;

    /// Takes room for further bytes.
    ///
    /// # Errors
    /// There is none, which ends the call.
    fn take(&self, bytes: usize) -> Result<(), Unreadable>;
}

/// A limit, and nothing beside it.
impl Room for usize {
    fn limit(&self) -> usize {
        *self
    }

    fn take(&self, _: usize) -> Result<(), Unreadable> {
        Ok(())
    }
}

impl<R: Room> Room for &R {
    fn limit(&self) -> usize {
        (**self).limit()
    }

    fn take(&self, bytes: usize) -> Result<(), Unreadable> {
        (**self).take(bytes)
    }
}
