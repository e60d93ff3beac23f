//! Events of connections, for metrics and logs.

use std::fmt;

use crate::TransportError;

/// Receives the events of a set of connections. Each method must return at once: it is called on
/// the runtime that drives the connection.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// A connection was opened.
    fn opened(&self) {}

    /// An open connection accepts no more requests, or was dropped.
    fn closed(&self) {}

    /// The reason why a connection accepts no more requests; follows [`Self::closed`].
    fn lost(&self, _error: &TransportError) {}

    /// An attempt to connect failed.
    fn failed(&self, _error: &TransportError) {}

    /// A call is repeated, because the server has certainly not begun to process it.
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
