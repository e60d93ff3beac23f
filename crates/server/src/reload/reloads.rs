//! Requests for reloads, and the result of the last one.

use std::sync::Arc;

use outrigger_ui::Reload;
use tokio::sync::{Notify, watch};

/// Requests reloads, and has the result of the last one. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reloads(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    requested: Notify,
    last: watch::Sender<Option<Reload>>,
}

impl Reloads {
    /// Requests a reload, even if the file has not changed.
    pub(crate) fn request(&self) {
        self.0.requested.notify_one();
    }

    /// Waits until a reload is requested.
    pub(super) async fn requested(&self) {
        self.0.requested.notified().await;
    }

    /// Publishes the result of a reload.
    pub(super) fn set_last(&self, last: Reload) {
        self.0.last.send_replace(Some(last));
    }

    /// The last reload, now and after every change; `None` before the first.
    pub(crate) fn last(&self) -> watch::Receiver<Option<Reload>> {
        self.0.last.subscribe()
    }
}
