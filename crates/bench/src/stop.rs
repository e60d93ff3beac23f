//! The end of a run before its time.

use std::{convert::Infallible, future::pending, time::Instant};

use tokio::{sync::watch, time::timeout_at};

/// Ends the measured window of a run, from any thread. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Stop(watch::Sender<Option<Instant>>);

impl Stop {
    /// Ends it now: nothing more is sent, and the report covers what was measured until
    /// now. Only the first time counts.
    pub fn stop(&self) {
        self.0.send_if_modified(|moment| {
            let first = moment.is_none();
            moment.get_or_insert_with(Instant::now);
            first
        });
    }

    /// When it was.
    pub(crate) fn moment(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Waits for it.
    pub(crate) async fn requested(&self) -> Instant {
        let mut moments = self.0.subscribe();
        let moment = moments.wait_for(Option::is_some).await.expect("its sender is here");
        moment.expect("just waited for")
    }

    /// Ends when another one does.
    pub(crate) async fn follow(&self, other: &Self) -> Infallible {
        other.requested().await;
        self.stop();
        pending().await
    }

    /// Waits until `moment`; sooner, and true, if it is asked for before.
    pub(crate) async fn before(&self, moment: Instant) -> bool {
        timeout_at(moment.into(), self.requested()).await.is_ok()
    }
}
