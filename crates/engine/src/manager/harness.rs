//! The manager's record of one servable.

use std::sync::Arc;

use crate::loader::Loader;

/// The position of a servable in its life cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Aspired; nothing has been done yet.
    New,
    /// Waits for a thread to load it.
    LoadRequested,
    /// A thread loads it or waits before a retry.
    Loading,
    /// In memory and served.
    Ready,
    /// Waits for a thread to unload it.
    UnloadRequested,
    /// Not served any more; freed when its last request ends.
    Unloading,
    /// Out of memory. Final.
    Unloaded,
    /// The load has failed. Final.
    Failed,
}

impl Phase {
    /// True if nothing is in memory or being loaded.
    pub(super) fn is_settled(self) -> bool {
        matches!(self, Self::New | Self::Unloaded | Self::Failed)
    }
}

/// A servable under management.
pub(super) struct Harness<S> {
    pub(super) phase: Phase,
    /// True if the version should be in memory.
    pub(super) aspired: bool,
    pub(super) loader: Arc<dyn Loader<S>>,
    /// Set in `Ready` and `UnloadRequested`.
    pub(super) servable: Option<Arc<S>>,
}

impl<S> Harness<S> {
    pub(super) fn new(loader: Arc<dyn Loader<S>>) -> Self {
        Self { phase: Phase::New, aspired: true, loader, servable: None }
    }
}
