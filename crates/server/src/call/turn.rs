//! A request as part of its version's load.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use outrigger_lifecycle::{Admitted, Load, Running};
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
    state: Mutex<State>,
    /// The time that it waited for its turn, in microseconds.
    waited: AtomicU64,
}

#[derive(Debug, Default)]
enum State {
    /// It has not been admitted to a version.
    #[default]
    Outside,
    Running(Running),
    /// It was admitted to this version, and its turn has passed to another one.
    Lost(Arc<Load>, Admitted),
}

impl Turn {
    /// Ends the request, which was answered.
    pub(super) fn answered(&mut self) {
        if let State::Running(running) = self.take() {
            running.answered();
        }
    }

    /// Ends the request, which was not answered before its caller gave up.
    pub(super) fn missed(&mut self) {
        match self.take() {
            State::Outside => {}
            State::Running(running) => running.load().missed(running.admitted()),
            State::Lost(load, admitted) => load.missed(admitted),
        }
    }

    fn take(&mut self) -> State {
        std::mem::take(self.state.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// The running request, if its turn has come and has not passed.
    fn running(&self) -> Option<&Running> {
        match self {
            Self::Running(running) => Some(running),
            Self::Outside | Self::Lost(..) => None,
        }
    }
}

impl Call {
    /// Counts the request in the load of a version, in place of another version, until the call
    /// ends.
    pub(crate) fn enters(&self, running: Running) {
        let before = std::mem::replace(&mut *self.turn(), State::Running(running));
        // The next one enters outside of the lock.
        drop(before);
    }

    /// Counts the request, whose body has been read, in the load of a version without a wait.
    pub(crate) fn enters_at_once(&self, load: &Arc<Load>) {
        let running = load.enter_at_once(Instant::now());
        self.enters(running);
    }

    /// True if the request has entered the version of `load` before its body was read. Its duration
    /// is measured from now on. If it has entered another version, it leaves that one.
    pub(crate) fn has_entered(&self, load: &Arc<Load>) -> bool {
        let mut turn = self.turn();
        let other = match &*turn {
            State::Running(running) if Arc::ptr_eq(running.load(), load) => {
                running.begins(Instant::now());
                return true;
            }
            State::Running(_) => std::mem::take(&mut *turn),
            State::Outside | State::Lost(..) => return false,
        };
        drop(turn);
        // The next one enters outside of the lock.
        drop(other);
        false
    }

    /// True if it was admitted to a crowded version, and its turn has passed to another one.
    pub(crate) fn has_lost_its_turn(&self) -> bool {
        matches!(&*self.turn(), State::Lost(..))
    }

    /// Waits for the body of the request. If it was admitted to a crowded version, and the body
    /// takes long, its turn passes to another one, so that a slow sender does not keep others
    /// waiting.
    pub(crate) async fn receive<T>(&self, body: impl Future<Output = T>) -> T {
        let mut body = pin!(body);
        if self.turn().running().is_some() {
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
        let mut turn = self.turn();
        let Some(running) = turn.running() else { return };
        let lost = State::Lost(Arc::clone(running.load()), running.admitted());
        let running = std::mem::replace(&mut *turn, lost);
        drop(turn);
        drop(running);
    }

    fn turn(&self) -> MutexGuard<'_, State> {
        self.inner.turn.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the request waited for its turn.
    pub(crate) fn waited(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.inner.turn.waited.fetch_add(micros, Relaxed);
    }

    /// Records the stage `Queue`, of which `time` was spent waiting for the model.
    pub(crate) fn queued(&self, time: Duration) {
        let waited = Duration::from_micros(self.inner.turn.waited.load(Relaxed));
        metrics::stage(Stage::Queue, &self.served_as(), waited + time);
    }
}
