//! A gate at which a test holds an operation.

use std::sync::Arc;

use tokio::sync::watch;

/// Closed until a test opens it, then open for good. Clones are one gate.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Opens the gate, for all present and later waiters.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until the gate is open.
    pub async fn pass(&self) {
        let opened = self.0.subscribe().wait_for(|open| *open).await.is_ok();
        debug_assert!(opened, "a gate keeps its own sender");
    }
}
