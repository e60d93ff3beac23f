//! An engine in this process, built from a function that loads a model.

mod floats;
mod loader;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use outrigger_budget::{Budget, Owner};
use outrigger_core::{
    Digest, Failure, Interface, Reason, ServableId, Tensor,
    engine::{Condition, FromEngine, ToEngine},
};
use tokio::{
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
    time::{Instant, timeout_at},
};

pub use self::floats::{floats, integers, malformed, tensor, unsigned};
use self::loader::{Held, Loader};
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

    /// See [`Run::contributions`].
    ///
    /// # Errors
    /// [`RunError::Unexplained`].
    fn contributions(&self) -> Result<usize, RunError> {
        Err(RunError::Unexplained(UNEXPLAINED.to_owned()))
    }

    /// See [`Run::explain`]. Blocks, and ends soon after the call's deadline. It is called only if
    /// the model has contributions.
    ///
    /// # Errors
    /// [`RunError`].
    fn explain(&self, call: Call) -> Result<Tensor, RunError> {
        drop(call);
        Err(RunError::Unexplained(UNEXPLAINED.to_owned()))
    }

    /// The memory that the model takes as long as it is loaded, in bytes.
    fn memory(&self) -> usize;
}

/// Loads a model from its files. Blocks.
pub type Load = fn(&PackagedModel) -> Result<Arc<dyn Model>, Failure>;

/// An engine in this process. A run that is expected to be short takes place on the caller's thread,
/// any other on a thread that may block.
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
    published: Mutex<HashMap<ServableId, (Digest, PackagedModel)>>,
    loaded: Mutex<HashMap<ServableId, Arc<Held>>>,
}

impl Local {
    /// Creates an engine for models of `frameworks`, loaded by `load`, whose memory is charged to
    /// `budget`.
    pub fn new(frameworks: Vec<Framework>, load: Load, budget: &Budget) -> Self {
        // At most two messages per version wait, so the number of versions bounds the queue.
        let (inbox, received) = mpsc::unbounded_channel();
        let received = Mutex::new(Some(received));
        let loader = Loader { frameworks, load, budget: budget.clone() };
        let models =
            Arc::new(Models { loader, published: Mutex::default(), loaded: Mutex::default() });
        Self { models, inbox, received }
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
        Arc::new(Bound { id: target.id, models: Arc::clone(&self.models), pace: Arc::default() })
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
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("frameworks", &self.frameworks()).finish_non_exhaustive()
    }
}

impl Models {
    /// Loads the published version `id`.
    async fn load(self: Arc<Self>, id: ServableId) -> Loaded {
        let published = lock(&self.published).get(&id).cloned();
        let result = match published {
            Some(published) => self.loader.load(Owner::of(&id.name), published).await,
            None => Err(Failure::new(Reason::Internal, "the version was not published")),
        };
        Loaded { id, result }
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
    models: Arc<Models>,
    pace: Arc<Pace>,
}

impl Run for Bound {
    fn run(&self, call: Call) -> BoxFuture<'_, Result<Vec<Tensor>, RunError>> {
        Box::pin(async move {
            if call.deadline <= Instant::now() {
                return Err(RunError::DeadlineExceeded);
            }
            let (held, pace) = (self.models.get(&self.id)?, Arc::clone(&self.pace));
            let bytes = call.inputs.iter().map(Tensor::size).sum();
            if pace.is_short(bytes) {
                return timed(&*held.model, call, bytes, &pace);
            }
            let deadline = call.deadline;
            aside(deadline, move || timed(&*held.model, call, bytes, &pace)).await
        })
    }

    fn contributions(&self) -> Result<usize, RunError> {
        self.models.get(&self.id)?.model.contributions()
    }

    fn explain(&self, call: Call) -> BoxFuture<'_, Result<Tensor, RunError>> {
        Box::pin(async move {
            let held = self.models.get(&self.id)?;
            held.model.contributions()?;
            aside(call.deadline, move || held.model.explain(call)).await
        })
    }
}

/// Runs `work` on a thread that may block, and waits for it until `deadline`. Work cannot be
/// interrupted, so it goes on after its caller has stopped waiting.
async fn aside<T: Send + 'static>(
    deadline: Instant,
    work: impl FnOnce() -> Result<T, RunError> + Send + 'static,
) -> Result<T, RunError> {
    let ended = timeout_at(deadline, spawn_blocking(work)).await;
    let ended = ended.map_err(|_| RunError::DeadlineExceeded)?;
    let (code, message) = ("Internal".to_owned(), "the run panicked".to_owned());
    ended.unwrap_or(Err(RunError::Failed { code, message }))
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
