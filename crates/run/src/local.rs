//! An engine in this process, built from a function that loads a model.

mod cost;
mod floats;
mod large;
mod loader;
mod pool;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use outrigger_budget::{Budget, Owner};
use outrigger_core::{
    ContributionSize, Digest, Explanation, Failure, Interface, Reason, ServableId, Tensor,
    engine::{Condition, FromEngine, ToEngine},
};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::{JoinSet, spawn_blocking},
    time::{Instant, timeout_at},
};

pub use self::floats::{doubles, floats, integers, malformed, not_finite, tensor, unsigned};
use self::{
    cost::Cost,
    loader::{Held, Loader},
    pool::Pool,
};
use crate::{
    Call, Engine, Event, Failed, Framework, Location, Pace, PackagedModel, Run, RunError, Start,
    Target, run::UNEXPLAINED,
};

/// A model loaded into this process.
pub trait Model: Send + Sync + 'static {
    /// The inputs and outputs of the signature called `signature`, if the model has it.
    fn interface(&self, signature: &str) -> Option<Interface>;

    /// Runs the model once. Blocks. See [`Run::run`].
    ///
    /// # Errors
    /// [`RunError`].
    fn run(&self, call: Call) -> Result<Vec<Tensor>, RunError>;

    /// The number of rows of the call, if it may be divided. None also if its inputs are not those
    /// of the model, which [`Self::run`] reports.
    fn rows(&self, call: &Call) -> Option<usize> {
        let _ = call;
        None
    }

    /// Divides a call of which [`Self::rows`] knows the number of rows into calls of `rows` rows
    /// each, which is not 0; the last one may have fewer. Each output must have a row for each row,
    /// and the outputs of the parts, one after the other, must be those of the whole call in every
    /// bit. The parts share the call's [`StageTimes`](crate::StageTimes), so that those of all
    /// parts add up. None if the call is to run as a whole.
    fn divide(&self, call: &Call, rows: usize) -> Option<Vec<Call>> {
        let _ = (call, rows);
        None
    }

    /// See [`Run::contributions`], for calls of this signature.
    ///
    /// # Errors
    /// [`RunError::Unexplained`].
    fn contributions(&self, signature: &str) -> Result<ContributionSize, RunError> {
        let _ = signature;
        Err(RunError::Unexplained(UNEXPLAINED.to_owned()))
    }

    /// See [`Run::explain`]. Blocks. It is called only if the model has contributions. `proceed` is
    /// to be called again and again: it returns false once the call's deadline has passed, or its
    /// caller has stopped waiting. The work then ends soon.
    ///
    /// # Errors
    /// [`RunError`]; [`RunError::DeadlineExceeded`] if the work ended early.
    fn explain(&self, call: Call, proceed: Proceed<'_>) -> Result<Explanation, RunError> {
        drop((call, proceed));
        Err(RunError::Unexplained(UNEXPLAINED.to_owned()))
    }

    /// See [`Engine::remark`].
    fn remark(&self) -> Option<String> {
        None
    }

    /// The memory that the model takes as long as it is loaded, in bytes.
    fn memory(&self) -> usize;
}

/// False if work is to end early.
pub type Proceed<'a> = &'a dyn Fn() -> bool;

/// Loads a model from its files. Blocks.
pub type Load = fn(&PackagedModel) -> Result<Arc<dyn Model>, Failure>;

/// An engine in this process. A run that is expected to be short takes place on the caller's thread,
/// any other on the threads of a pool, of which the process has one. A call of many rows is divided
/// into parts there, which run on several threads if those are free.
///
/// Models are loaded into the memory of this process. While a model is read, the memory that this
/// takes is charged to the account of packages, and a model that needs more than the account has is
/// refused. A loaded model is charged to the account of plans.
pub struct Local {
    models: Arc<Models>,
    inbox: mpsc::UnboundedSender<ToEngine>,
    received: Mutex<Option<mpsc::UnboundedReceiver<ToEngine>>>,
}

/// The published versions, and the loaded models.
struct Models {
    loader: Loader,
    pool: Pool,
    /// A permit for each explanation that may be computed at the same time.
    explanations: Arc<Semaphore>,
    published: Mutex<HashMap<ServableId, (Digest, PackagedModel)>>,
    loaded: Mutex<HashMap<ServableId, Arc<Held>>>,
}

impl Local {
    /// Creates an engine for models of `frameworks`, loaded by `load`, whose memory is charged to
    /// `budget`.
    ///
    /// # Panics
    /// Panics if the threads of the process's pool cannot be created.
    pub fn new(frameworks: Vec<Framework>, load: Load, budget: &Budget) -> Self {
        Self::on(Pool::of_process(), frameworks, load, budget)
    }

    /// An engine whose long runs are on this pool.
    fn on(pool: Pool, frameworks: Vec<Framework>, load: Load, budget: &Budget) -> Self {
        // At most two messages per version wait, so the number of versions bounds the queue.
        let (inbox, received) = mpsc::unbounded_channel();
        let received = Mutex::new(Some(received));
        let loader = Loader { frameworks, load, budget: budget.clone() };
        let explanations = Arc::new(Semaphore::new(pool.threads()));
        let (published, loaded) = Default::default();
        let models = Models { loader, pool, explanations, published, loaded };
        Self { models: Arc::new(models), inbox, received }
    }
}

/// The result of a load.
struct Loaded {
    id: ServableId,
    result: Result<Held, Failure>,
}

/// The state of the engine's task: the loads under way.
struct Task {
    start: Start,
    models: Arc<Models>,
    loads: JoinSet<Loaded>,
    /// Versions being loaded; true for a version that was removed during its load.
    loading: HashMap<ServableId, bool>,
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<ToEngine>) {
        self.start.report(Event::Condition(Condition::up())).await;
        self.start.report(Event::Settled).await;
        loop {
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => self.handle(message).await,
                    None => return,
                },
                Some(loaded) = self.loads.join_next() => {
                    self.loaded(loaded.expect("a load neither panics nor is cancelled")).await;
                }
            }
        }
    }

    async fn handle(&mut self, message: ToEngine) {
        match message {
            ToEngine::Add(id) => {
                self.loading.insert(id.clone(), false);
                self.loads.spawn(Arc::clone(&self.models).load(id));
            }
            ToEngine::Remove(id) => match self.loading.get_mut(&id) {
                Some(removed) => *removed = true,
                None => {
                    lock(&self.models.loaded).remove(&id);
                    self.report(FromEngine::Gone(id)).await;
                }
            },
            ToEngine::Expect(_) | ToEngine::Unexpect(_) => {}
        }
    }

    async fn loaded(&mut self, Loaded { id, result }: Loaded) {
        if self.loading.remove(&id) == Some(true) {
            return self.report(FromEngine::Gone(id)).await;
        }
        let message = match result {
            Ok(held) => {
                lock(&self.models.loaded).insert(id.clone(), Arc::new(held));
                FromEngine::Up(id)
            }
            Err(failure) => FromEngine::Failed(id, failure),
        };
        self.report(message).await;
    }

    async fn report(&self, message: FromEngine) {
        self.start.report(Event::Version(message)).await;
    }
}

impl Engine for Local {
    fn frameworks(&self) -> &[Framework] {
        &self.models.loader.frameworks
    }

    fn location(&self) -> Location {
        Location::InProcess
    }

    fn publish(
        &self,
        id: ServableId,
        digest: Digest,
        model: PackagedModel,
    ) -> BoxFuture<'_, Result<(), Failed>> {
        lock(&self.models.published).insert(id, (digest, model));
        Box::pin(std::future::ready(Ok(())))
    }

    fn unpublish(&self, id: ServableId) -> BoxFuture<'_, ()> {
        lock(&self.models.published).remove(&id);
        Box::pin(std::future::ready(()))
    }

    fn unpublish_image(&self, digest: Digest) -> BoxFuture<'_, ()> {
        lock(&self.models.published).retain(|_, (of, _)| *of != digest);
        Box::pin(std::future::ready(()))
    }

    fn send(&self, message: ToEngine) {
        // The receiver ends only with the engine's task, when the process stops.
        self.inbox.send(message).ok();
    }

    fn run(self: Arc<Self>, start: Start) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let received = lock(&self.received).take();
            let received = received.expect("an engine is run once");
            let models = Arc::clone(&self.models);
            let (loads, loading) = (JoinSet::new(), HashMap::new());
            Task { start, models, loads, loading }.run(received).await;
        })
    }

    fn bind(&self, target: Target) -> Arc<dyn Run> {
        let (models, estimates) = (Arc::clone(&self.models), Arc::default());
        let Target { id, signature, .. } = target;
        Arc::new(Bound { id, signature, models, estimates })
    }

    fn interface<'a>(
        &'a self,
        id: &'a ServableId,
        signature: &'a str,
        _: Instant,
    ) -> BoxFuture<'a, Result<Interface, RunError>> {
        let interface = self.models.get(id).and_then(|held| {
            let missing =
                || RunError::NoSignature { signature: signature.to_owned(), known: Vec::new() };
            held.model.interface(signature).ok_or_else(missing)
        });
        Box::pin(std::future::ready(interface))
    }

    fn remark(&self, id: &ServableId) -> Option<String> {
        self.models.get(id).ok()?.model.remark()
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("frameworks", &self.frameworks()).finish_non_exhaustive()
    }
}

impl Models {
    /// Loads the published version `id`.
    async fn load(self: Arc<Self>, id: ServableId) -> Loaded {
        let result = self.load_published(&id).await;
        Loaded { id, result }
    }

    async fn load_published(&self, id: &ServableId) -> Result<Held, Failure> {
        let published = lock(&self.published).get(id).cloned();
        let missing = || Failure::new(Reason::Internal, "the version was not published");
        let published = published.ok_or_else(missing)?;
        let digest = published.0;
        let held = self.loader.load(Owner::of(&id.name), published).await?;
        if let Some(remark) = held.model.remark() {
            tracing::warn!(servable = %id, model.digest = %digest, "{remark}");
        }
        Ok(held)
    }

    fn get(&self, id: &ServableId) -> Result<Arc<Held>, RunError> {
        let model = lock(&self.loaded).get(id).cloned();
        model.ok_or_else(|| RunError::NotServed { servable: id.clone() })
    }
}

/// One version. The model is looked up for each run, because it may not be loaded yet when it is
/// bound.
struct Bound {
    id: ServableId,
    signature: Arc<str>,
    models: Arc<Models>,
    estimates: Arc<Estimates>,
}

/// Estimates from the runs of a version.
#[derive(Debug, Default)]
struct Estimates {
    pace: Pace,
    cost: Cost,
}

impl Run for Bound {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        Box::pin(async move {
            if call.deadline <= Instant::now() {
                return Err(RunError::DeadlineExceeded);
            }
            let (held, pace) = (self.models.get(&self.id)?, &self.estimates.pace);
            let bytes = call.inputs.iter().map(Tensor::size).sum();
            if pace.is_short(bytes) {
                return timed(&*held.model, call, bytes, pace);
            }
            let estimates = Arc::clone(&self.estimates);
            large::run(&self.models.pool, held, estimates, call, bytes).await
        })
    }

    fn contributions(&self) -> Result<ContributionSize, RunError> {
        self.models.get(&self.id)?.model.contributions(&self.signature)
    }

    fn explain(&self, call: Call) -> BoxFuture<'_, Result<Explanation, RunError>> {
        Box::pin(async move {
            let held = self.models.get(&self.id)?;
            held.model.contributions(&self.signature)?;
            let permits = Arc::clone(&self.models.explanations);
            let permit = timeout_at(call.deadline, permits.acquire_owned()).await;
            let permit = permit.map_err(|_| RunError::DeadlineExceeded)?;
            let permit = permit.expect("the semaphore is never closed");
            let (deadline, (sender, answer)) = (call.deadline, oneshot::channel());
            spawn_blocking(move || {
                // The permit is held as long as the work, which may last longer than the call.
                let _permit = permit;
                let is_late = || deadline.into_std() <= std::time::Instant::now();
                let explained = held.model.explain(call, &|| !sender.is_closed() && !is_late());
                // The error is ignored: the caller may have stopped waiting.
                sender.send(explained).ok();
            });
            let answer = timeout_at(deadline, answer).await;
            let answer = answer.map_err(|_| RunError::DeadlineExceeded)?;
            answer.unwrap_or_else(|_| Err(large::panicked()))
        })
    }
}

/// Runs the model on this thread, and records the time it took.
fn timed(
    model: &dyn Model,
    call: Call,
    bytes: usize,
    pace: &Pace,
) -> Result<Vec<Tensor>, RunError> {
    let start = Instant::now();
    let result = model.run(call);
    pace.record(bytes, start.elapsed());
    result
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
