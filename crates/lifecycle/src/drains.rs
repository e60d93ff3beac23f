//! Reports the end of the last lease to the task that owns the machines.

use std::sync::{Mutex, PoisonError};

use outrigger_core::ModelKey;
use tokio::sync::Notify;

/// Servables without any holder left. A destructor can neither wait nor fail, so it appends to a
/// list and notifies; the number of servables bounds the list.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    drained: Mutex<Vec<(ModelKey, u64)>>,
    bell: Notify,
}

impl Drains {
    /// Records that `route` of the version `key` has been drained.
    pub(crate) fn drained(&self, key: ModelKey, route: u64) {
        self.drained.lock().unwrap_or_else(PoisonError::into_inner).push((key, route));
        self.bell.notify_one();
    }

    /// Waits until the list is not empty, and takes it. Cancel safe.
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
