//! Progress of transfers, and the space for their bytes.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use outrigger_core::Failure;

use crate::Layer;

/// The counterpart of a transfer at its destination. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Receiver {
    /// Counts the bytes.
    pub progress: Progress,
    /// Grants the space for them; `None`: no grant is needed.
    pub space: Option<Space>,
}

/// Grants space for the bytes of layers before they are written.
#[derive(Clone)]
pub struct Space(Arc<Grant>);

type Grant = dyn Fn(&Layer, u64) -> Result<(), Failure> + Send + Sync;

impl Space {
    /// Space granted by `grant`, which is called with a layer and the length that its file is about
    /// to have. It may block. A failure ends the transfer.
    pub fn new(grant: impl Fn(&Layer, u64) -> Result<(), Failure> + Send + Sync + 'static) -> Self {
        Self(Arc::new(grant))
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Space")
    }
}

impl Receiver {
    pub(crate) fn grant(&self, layer: &Layer, length: u64) -> Result<(), Failure> {
        self.space.as_ref().map_or(Ok(()), |space| (space.0)(layer, length))
    }
}

/// Counts the bytes that are received, or were there already, and hashed; for a progress bar.
/// Clones share one count. A transfer that starts over subtracts its bytes again.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<AtomicU64>);

impl Progress {
    /// The bytes counted so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn take(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}
