//! How the end of the last lease reaches the task that owns the machines.

use std::sync::{Mutex, PoisonError};

use outrigger_core::ModelKey;
use tokio::sync::Notify;

/// Servables that nobody can reach any more. A destructor can neither wait nor
/// fail, so this is a list and a bell; its length is bounded by the number of
/// servables.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    drained: Mutex<Vec<(ModelKey, u64)>>,
    bell: Notify,
}

impl Drains {
    /// Notes that the servable of `key` known as `route` has been drained.
    pub(crate) fn drained(&self, key: ModelKey, route: u64) {
        self.drained.lock().unwrap_or_else(PoisonError::into_inner).push((key, route));
        self.bell.notify_one();
    }

    /// Waits until there is something, and takes it. Cancel safe.
    pub(crate) async fn take(&self) -> Vec<(ModelKey, u64)> {
        loop {
            let rung = self.bell.notified();
            let drained =
                std::mem::take(&mut *self.drained.lock().unwrap_or_else(PoisonError::into_inner));
            if !drained.is_empty() {
                return drained;
            }
            rung.await;
        }
    }
}
