//! How a test holds something up until it says so.

use std::sync::Arc;

use tokio::sync::watch;

/// Closed until a test opens it; then open for ever. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Lets everybody through who waits or comes later.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until it is open.
    pub async fn pass(&self) {
        let opened = self.0.subscribe().wait_for(|open| *open).await.is_ok();
        debug_assert!(opened, "a gate keeps its own sender");
    }
}
