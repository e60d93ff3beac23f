//! Stops a run early.

use std::{convert::Infallible, future::pending, time::Instant};

use tokio::{sync::watch, time::timeout_at};

/// Ends the measured window of a run from any thread. Clones stop the same run.
#[derive(Debug, Clone, Default)]
pub struct Stop(watch::Sender<Option<Instant>>);

impl Stop {
    /// Ends the window now: no more requests are sent, and the report covers the time
    /// until now. Only the first call has an effect.
    pub fn stop(&self) {
        self.0.send_if_modified(|moment| {
            let first = moment.is_none();
            moment.get_or_insert_with(Instant::now);
            first
        });
    }

    /// The time of the stop, if any.
    pub(crate) fn moment(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Waits for the stop.
    pub(crate) async fn requested(&self) -> Instant {
        let mut moments = self.0.subscribe();
        let moment = moments.wait_for(Option::is_some).await.expect("its sender is here");
        moment.expect("just waited for")
    }

    /// Stops when `other` does.
    pub(crate) async fn follow(&self, other: &Self) -> Infallible {
        other.requested().await;
        self.stop();
        pending().await
    }

    /// Waits until `moment`, or until the stop if that is earlier; returns whether it
    /// was.
    pub(crate) async fn before(&self, moment: Instant) -> bool {
        timeout_at(moment.into(), self.requested()).await.is_ok()
    }
}
