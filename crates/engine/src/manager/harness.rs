//! What the manager knows of one servable.

use std::sync::Arc;

use crate::loader::Loader;

/// Where a servable is on its way into memory and out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Aspired, nothing done.
    New,
    /// Waits for a thread to load it.
    LoadRequested,
    /// A thread loads it, or sleeps before trying again.
    Loading,
    /// In memory and served.
    Ready,
    /// Waits for a thread to unload it.
    UnloadRequested,
    /// Not served any more; waits for its requests, then is freed.
    Unloading,
    /// Out of memory again. Final.
    Unloaded,
    /// Could not be loaded. Final.
    Failed,
}

impl Phase {
    /// Nothing is in memory or on its way there.
    pub(super) fn is_settled(self) -> bool {
        matches!(self, Self::New | Self::Unloaded | Self::Failed)
    }
}

/// A servable under management.
pub(super) struct Harness<S> {
    pub(super) phase: Phase,
    /// Whether it should be in memory.
    pub(super) aspired: bool,
    pub(super) loader: Arc<dyn Loader<S>>,
    /// There while `Ready` and `UnloadRequested`.
    pub(super) servable: Option<Arc<S>>,
}

impl<S> Harness<S> {
    pub(super) fn new(loader: Arc<dyn Loader<S>>) -> Self {
        Self { phase: Phase::New, aspired: true, loader, servable: None }
    }
}
