//! The batches of one version.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use futures::future::BoxFuture;
use outrigger_budget::{Account, Charge, Owner};
use outrigger_core::{ContributionSize, Explanation, Failure, ServableId};
use outrigger_run::{Call, RowLayout, Run, RunError};
use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    Settings, batch,
    form::{self, Extent, Form},
    metrics::Metrics,
    queue::{Answer, Full, Member, Next, Queue},
};

/// Runs one version, with calls joined into batches.
pub(crate) struct Batcher(Arc<Version>);

/// A version with its waiting calls.
pub(crate) struct Version {
    id: ServableId,
    layout: RowLayout,
    settings: Settings,
    pub(crate) inner: Arc<dyn Run>,
    /// The account of the memory of joined inputs.
    account: Account,
    pub(crate) metrics: Arc<Metrics>,
    /// True once the outputs of a batch did not have the rows of its inputs.
    runs_alone: AtomicBool,
    state: Mutex<State>,
}

struct State {
    queue: Queue,
    /// Batches in the engine.
    in_flight: usize,
    /// The time at which the soonest timer wakes, if one is set.
    timer: Option<Instant>,
}

impl Batcher {
    pub(crate) fn new(
        (id, layout): (ServableId, RowLayout),
        inner: Arc<dyn Run>,
        settings: Settings,
        account: Account,
        metrics: Arc<Metrics>,
    ) -> Self {
        let state = State { queue: Queue::new(settings), in_flight: 0, timer: None };
        let (runs_alone, state) = (AtomicBool::new(false), Mutex::new(state));
        Self(Arc::new(Version { id, layout, settings, inner, account, metrics, runs_alone, state }))
    }
}

impl Run for Batcher {
    fn run(&self, call: Call) -> BoxFuture<'_, Answer> {
        let joinable = match self.0.runs_alone.load(Relaxed) {
            true => None,
            false => form::of(&call, self.0.layout),
        };
        match joinable {
            Some((form, extent)) if extent.rows < self.0.settings.max_rows => {
                Box::pin(self.0.join(call, form, extent))
            }
            _ => {
                self.0.metrics.alone();
                self.0.inner.run(call)
            }
        }
    }

    fn contributions(&self) -> Result<ContributionSize, RunError> {
        self.0.inner.contributions()
    }

    fn explain(&self, call: Call) -> BoxFuture<'_, Result<Explanation, RunError>> {
        self.0.inner.explain(call)
    }
}

impl Version {
    /// Runs a call as part of a batch.
    async fn join(self: &Arc<Self>, call: Call, form: Form, extent: Extent) -> Answer {
        let deadline = call.deadline;
        let now = Instant::now();
        if deadline <= now {
            return Err(RunError::DeadlineExceeded);
        }
        let (answer, answered) = oneshot::channel();
        let place = self.enter(form, Member { call, extent, answer }, now)?;
        self.dispatch();
        let answered = timeout_at(deadline, answered).await;
        drop(place);
        answered.map_err(|_| RunError::DeadlineExceeded)?.unwrap_or_else(|_| {
            let (code, message) = ("Internal".to_owned(), "the run of a batch panicked".to_owned());
            Err(RunError::Failed { code, message })
        })
    }

    fn enter(
        self: &Arc<Self>,
        form: Form,
        member: Member,
        now: Instant,
    ) -> Result<Place, RunError> {
        let number = self.change(|state| state.queue.push(form, member, now));
        let number = number.map_err(|full| {
            self.metrics.refused(full);
            let message = match full {
                Full::Calls => format!("{} calls wait for a batch", self.settings.max_calls),
                Full::Bytes => {
                    format!("calls of {} bytes wait for a batch", self.settings.max_bytes)
                }
            };
            RunError::EngineOverloaded { message }
        })?;
        Ok(Place { version: Arc::clone(self), number })
    }

    /// Starts the batches that are due, as many as the engine may have, and a timer for the next.
    fn dispatch(self: &Arc<Self>) {
        loop {
            let (members, waited) =
                match self.change(|state| state.next(self.settings.max_in_flight)) {
                    Next::Run(members, waited) => (members, waited),
                    Next::WaitUntil(time) => {
                        let version = Arc::clone(self);
                        return spawn(async move { version.wake_at(time).await });
                    }
                    Next::Nothing => return,
                };
            self.metrics.due(waited);
            let slot = Slot(Arc::clone(self));
            spawn(async move { batch::run(&slot.0, members).await });
        }
    }

    async fn wake_at(self: &Arc<Self>, time: Instant) {
        sleep_until(time).await;
        self.change(|state| state.timer = state.timer.filter(|timer| *timer != time));
        self.dispatch();
    }

    /// Charges the memory of joined inputs.
    pub(crate) fn charge(&self, bytes: usize) -> Result<Charge, Failure> {
        self.account.charge(Owner::of(&self.id.name), bytes as u64)
    }

    /// Records that the model's outputs do not have the rows of its inputs: its calls run alone from
    /// now on.
    pub(crate) fn joins_nothing(&self) {
        if !self.runs_alone.swap(true, Relaxed) {
            let id = &self.id;
            tracing::warn!(
                "{id}: its outputs do not have the rows of its inputs: it runs without batches"
            );
        }
    }

    /// Changes the state, and records the size of the queue.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.queue.size();
        let result = change(&mut state);
        self.metrics.waiting(before, state.queue.size());
        result
    }
}

impl State {
    /// The next work, while fewer than `max_in_flight` batches are in the engine. A batch counts from
    /// now on. A timer is asked for only if none wakes as soon.
    fn next(&mut self, max_in_flight: usize) -> Next {
        if self.in_flight >= max_in_flight {
            return Next::Nothing;
        }
        match self.queue.next(Instant::now()) {
            Next::WaitUntil(time) if self.timer.is_some_and(|timer| timer <= time) => Next::Nothing,
            Next::WaitUntil(time) => {
                self.timer = Some(time);
                Next::WaitUntil(time)
            }
            Next::Run(members, waited) => {
                self.in_flight += 1;
                Next::Run(members, waited)
            }
            Next::Nothing => Next::Nothing,
        }
    }
}

/// The place of a call in the queue, which is free again when its caller stops waiting.
struct Place {
    version: Arc<Version>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.version.change(|state| state.queue.remove(self.number));
    }
}

/// The place of a batch in the engine.
struct Slot(Arc<Version>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.change(|state| state.in_flight -= 1);
        self.0.dispatch();
    }
}

/// Runs a future beside its caller, on the caller's runtime. Without one the process is stopping, and
/// the future is dropped.
fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(future);
    }
}
