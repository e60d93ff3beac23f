//! The events that a caller counts and logs.

use std::fmt;

use crate::TransportError;

/// Receives the events of a set of connections. Each method returns at once: it is called on
/// the runtime that drives the connection.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// A connection was opened.
    fn opened(&self) {}

    /// A connection that was opened takes no more requests, or was dropped.
    fn closed(&self) {}

    /// The reason why a connection takes no more requests; follows [`Self::closed`].
    fn lost(&self, _error: &TransportError) {}

    /// An attempt to connect failed.
    fn failed(&self, _error: &TransportError) {}

    /// A call is made again, because the server has certainly not begun with it.
    fn retried(&self) {}
}

/// Ignores all events.
impl Observer for () {}

/// Reports [`Observer::opened`], and [`Observer::closed`] when dropped.
pub(crate) struct Open<'a>(&'a dyn Observer);

impl<'a> Open<'a> {
    pub(crate) fn new(observer: &'a dyn Observer) -> Self {
        observer.opened();
        Self(observer)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.closed();
    }
}
