//! A request as part of its version's load.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use outrigger_lifecycle::{Load, Running};
use outrigger_net::timeout_at;
use tokio::time::Instant;

use super::Call;
use crate::metrics::{self, Stage};

/// The time that a body may take after its request was admitted to a crowded version. Then its turn
/// passes to another request.
const BODY_TIME: Duration = Duration::from_millis(100);

/// The turn of a call at its version.
#[derive(Debug, Default)]
pub(super) struct Turn {
    running: Mutex<Option<Running>>,
    /// True if it was admitted to a crowded version, and its turn has passed to another one.
    has_lost: AtomicBool,
    /// The time that it waited for its turn, in microseconds.
    waited: AtomicU64,
}

impl Turn {
    /// Ends the request, which was answered.
    pub(super) fn answered(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        running.into_iter().for_each(Running::answered);
    }
}

impl Call {
    /// Counts the request in the load of a version, in place of another version, until the call
    /// ends.
    pub(crate) fn enters(&self, running: Running) {
        let before = self.running().replace(running);
        // The next one enters outside of the lock.
        drop(before);
    }

    /// True if the request has entered the version of `load` before its body was read. Its duration
    /// is measured from now on. If it has entered another version, it leaves that one.
    pub(crate) fn has_entered(&self, load: &Arc<Load>) -> bool {
        let mut running = self.running();
        let other = running.take_if(|entered| !Arc::ptr_eq(entered.load(), load));
        if let Some(running) = &*running {
            running.begins(Instant::now());
        }
        let has_entered = running.is_some();
        drop(running);
        // The next one enters outside of the lock.
        drop(other);
        has_entered
    }

    /// True if it was admitted to a crowded version, and its turn has passed to another one.
    pub(crate) fn has_lost_its_turn(&self) -> bool {
        self.0.turn.has_lost.load(Relaxed)
    }

    /// Waits for the body of the request. If it was admitted to a crowded version, and the body
    /// takes long, its turn passes to another one, so that a slow sender does not keep others
    /// waiting.
    pub(crate) async fn receive<T>(&self, body: impl Future<Output = T>) -> T {
        let mut body = pin!(body);
        if self.running().is_some() {
            let whole = timeout_at(Instant::now() + BODY_TIME, body.as_mut()).await;
            if let Ok(body) = whole {
                return body;
            }
            self.lose_turn();
        }
        body.await
    }

    /// Passes its turn, if it has one, to another request. Later it comes before others of its caller.
    pub(crate) fn lose_turn(&self) {
        let lost = self.running().take();
        self.0.turn.has_lost.fetch_or(lost.is_some(), Relaxed);
        drop(lost);
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.turn.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the request waited for its turn.
    pub(crate) fn waited(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.0.turn.waited.fetch_add(micros, Relaxed);
    }

    /// Records the stage `Queue`, of which `time` was spent waiting for the model.
    pub(crate) fn queued(&self, time: Duration) {
        let waited = Duration::from_micros(self.0.turn.waited.load(Relaxed));
        metrics::stage(Stage::Queue, &self.served_as(), waited + time);
    }
}
