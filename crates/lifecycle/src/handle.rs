//! The handle to the lifecycle for the rest of the server: cheap to clone, never blocks.

mod again;
mod wait;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use outrigger_core::{Failure, ModelName, Reason, Selector, Tag};
use outrigger_trials::{Act, By, Canaries, Reply};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use crate::{
    Error, Tunables,
    lease::{Choice, Lease},
    names::Names,
    routes::{Entry, Route, Routes},
    snapshot::Snapshot,
};
use outrigger_run::Clock;

/// Access to the models. Clones share everything.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
    /// The part of its leases in trials.
    pub(crate) part: Part,
    /// The caller whose requests it makes, if known.
    pub(crate) caller: Option<u64>,
}

/// The part that the leases of a handle have in trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A trial counts them.
    Counted,
    /// They are on the arm of their routing key, but no trial counts them.
    Uncounted,
    /// They are on the live version, and no trial counts them.
    Live,
}

pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) names: Arc<ArcSwap<Names>>,
    pub(crate) routes: Arc<ArcSwap<Routes>>,
    /// Counts publications of `routes`.
    pub(crate) routed: watch::Receiver<u64>,
    pub(crate) snapshot: watch::Receiver<Arc<Snapshot>>,
    pub(crate) canaries: watch::Receiver<Arc<Canaries>>,
    pub(crate) commands: mpsc::Sender<Command>,
    /// The longest wait of a request for the next attempt of a failed version.
    pub(crate) patience: Duration,
}

/// Commands from the handle to the task that owns the machines.
#[derive(Debug)]
pub(crate) enum Command {
    /// A request needs a model.
    Ask { model: ModelName, selector: Selector, caller: Option<u64> },
    /// Load a model now, despite earlier failures.
    Load { model: ModelName, selector: Selector, done: oneshot::Sender<()> },
    /// Unload a model from the engine; with `delete`, delete its files as well.
    Unload { model: ModelName, selector: Selector, delete: bool, done: Reply },
    /// Decide about a canary.
    Decide { model: ModelName, tag: Tag, act: Act, by: By, done: Reply },
    /// Follow another configuration.
    Reconfigure { names: Arc<Names>, tunables: Box<Tunables>, done: oneshot::Sender<()> },
    /// Stop the service.
    Shutdown { grace: Duration, done: oneshot::Sender<()> },
}

impl Handle {
    /// Acquires a lease on the servable that `selector` of `model` refers to now. A routed
    /// model costs one load of the routing table and a look-up; otherwise the call requests
    /// the model and waits until shortly before `deadline`. It waits for a failed version only
    /// if the next attempt comes soon and before the deadline.
    ///
    /// `routing_key` selects the arm of a canary split.
    ///
    /// # Errors
    /// The model's own failure if it cannot be served, `MODEL_LOADING` with a delay if it is
    /// on its way, or the obstacle: the registry's or the engine's failure.
    ///
    /// Cancel safe: the request for the model stays in effect.
    pub async fn acquire(
        &self,
        model: &ModelName,
        selector: &Selector,
        routing_key: &str,
        deadline: Instant,
    ) -> Result<Lease, Failure> {
        self.acquire_by(model, selector, self.choice(routing_key), deadline).await
    }

    /// Like [`Handle::acquire`], but the version of a tag is the live one, and a canary's trial does
    /// not count the lease.
    ///
    /// # Errors
    /// As there.
    pub async fn acquire_live(
        &self,
        model: &ModelName,
        selector: &Selector,
        deadline: Instant,
    ) -> Result<Lease, Failure> {
        self.acquire_by(model, selector, Choice::Live, deadline).await
    }

    async fn acquire_by(
        &self,
        model: &ModelName,
        selector: &Selector,
        choice: Choice<'_>,
        deadline: Instant,
    ) -> Result<Lease, Failure> {
        match self.try_acquire_by(model, selector, choice) {
            Some(result) => result,
            None => self.wait(model, selector, choice, deadline).await,
        }
    }

    fn choice<'k>(&self, routing_key: &'k str) -> Choice<'k> {
        match self.part {
            Part::Counted => Choice::Counted(routing_key),
            Part::Uncounted => Choice::Uncounted(routing_key),
            Part::Live => Choice::Live,
        }
    }

    /// Whether nothing is known about `selector` of a model that the configuration does not list:
    /// neither that it exists nor that it does not. A request for it makes the registry look it up.
    pub fn is_unknown(&self, model: &ModelName, selector: &Selector) -> bool {
        self.shared.routes.load().find(model, selector).is_none() && !self.is_listed(model)
    }

    fn is_listed(&self, model: &ModelName) -> bool {
        self.shared.names.load().is_configured(model)
    }

    /// Like [`Handle::acquire`], but without waiting: returns `None` if the model is not available,
    /// and does not request it.
    pub fn try_acquire(
        &self,
        model: &ModelName,
        selector: &Selector,
        routing_key: &str,
    ) -> Option<Result<Lease, Failure>> {
        self.try_acquire_by(model, selector, self.choice(routing_key))
    }

    fn try_acquire_by(
        &self,
        model: &ModelName,
        selector: &Selector,
        choice: Choice<'_>,
    ) -> Option<Result<Lease, Failure>> {
        self.find(model, selector, choice).or_else(|| self.refuse_unknown(model, selector))
    }

    /// The refusal of an unknown selector while too many others are looked up.
    fn refuse_unknown<T>(
        &self,
        model: &ModelName,
        selector: &Selector,
    ) -> Option<Result<T, Failure>> {
        let routes = self.shared.routes.load();
        let full = routes.full.as_ref().filter(|_| routes.find(model, selector).is_none())?;
        (!self.is_listed(model)).then(|| Err(full.clone()))
    }

    fn find(
        &self,
        model: &ModelName,
        selector: &Selector,
        choice: Choice<'_>,
    ) -> Option<Result<Lease, Failure>> {
        let routes = self.shared.routes.load();
        if let Some(failure) = &routes.closed {
            return Some(Err(failure.clone()));
        }
        let Entry { route, asked } = routes.find(model, selector)?;
        // Touched even if no servable is routed: a waiting request counts as use.
        asked.touch(self.shared.clock.now());
        match route {
            Route::Waiting(_) | Route::Retrying(..) => None,
            Route::Refused(failure) => Some(Err(failure.clone())),
            Route::Ready(servable) => {
                Some(Ok(Lease::new(Arc::clone(servable), selector, asked, self.shared.clock)))
            }
            Route::Split(split) => {
                Some(Ok(Lease::of_split(split, choice, selector, asked, self.shared.clock)))
            }
        }
    }

    /// A handle for callers that only inspect: its leases are those that a request with the routing
    /// key would get, but take no part in a trial.
    #[must_use]
    pub fn uncounted(&self) -> Self {
        Self { part: Part::Uncounted, ..self.clone() }
    }

    /// A handle for callers that take no part in trials: its leases of a tag are on the live
    /// version.
    #[must_use]
    pub fn live(&self) -> Self {
        Self { part: Part::Live, ..self.clone() }
    }

    /// A handle for the requests of one caller, named by a hash: the pulls of the models that only it
    /// asks for leave places to those of others.
    #[must_use]
    pub fn by(&self, caller: u64) -> Self {
        Self { caller: Some(caller), ..self.clone() }
    }

    /// Whether a version that a request asked for has neither come up nor been refused yet.
    pub fn is_awaited(&self, model: &ModelName, selector: &Selector) -> bool {
        let routes = self.shared.routes.load();
        let entry = routes.find(model, selector);
        entry.is_some_and(|it| matches!(it.route, Route::Waiting(_) | Route::Retrying(..)))
    }

    /// The selector of a request for `model` that names neither tag nor digest.
    pub fn default_selector(&self, model: &ModelName) -> Selector {
        let names = self.shared.names.load();
        let selector = names.default_selector(model);
        match names.before().get(model) {
            Some(before) if !self.is_up(model, &selector) && self.is_up(model, before) => {
                before.clone()
            }
            _ => selector,
        }
    }

    fn is_up(&self, model: &ModelName, selector: &Selector) -> bool {
        let routes = self.shared.routes.load();
        let entry = routes.find(model, selector);
        entry.is_some_and(|entry| matches!(entry.route, Route::Ready(_) | Route::Split(_)))
    }

    /// Replaces the part of the configuration that can change at run time. Returns when it is in
    /// effect. A model that is not listed any more is answered like any model that was never
    /// listed; requests under way end undisturbed. A model with another image, tag or digest is
    /// answered by its old version until the new one is up. With another engine, requests wait
    /// while the version is loaded there.
    ///
    /// # Errors
    /// [`Error::Config`] if it is not valid: then nothing changes. [`Error::Stopped`].
    pub async fn reconfigure(&self, tunables: Tunables) -> Result<(), Error> {
        let names = self.shared.names.load_full();
        let names = Arc::new(names.with(&tunables, |model| self.default_selector(model))?);
        let (done, reply) = oneshot::channel();
        let command = Command::Reconfigure { names, tunables: Box::new(tunables), done };
        self.send(command).await.map_err(|_| Error::Stopped)?;
        reply.await.map_err(|_| Error::Stopped)
    }

    /// The current state of all models.
    pub fn models(&self) -> Arc<Snapshot> {
        self.shared.snapshot.borrow().clone()
    }

    /// The state of all models, now and after every change. A slow reader skips intermediate states
    /// but always receives the last one.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shared.snapshot.clone()
    }

    /// The canaries of followed tags, now and after every change.
    pub fn canaries(&self) -> watch::Receiver<Arc<Canaries>> {
        self.shared.canaries.clone()
    }

    /// Decides by hand about the canary of `tag`. Returns when the decision has taken effect:
    /// an abort, when it is certain that the registry's tag is not being moved to the canary.
    ///
    /// # Errors
    /// `CANARY_NOT_FOUND` if no canary is on trial. For an abort, `CANARY_PROMOTED` if it comes
    /// too late, and the registry's failure if only the registry could confirm it.
    pub async fn decide(
        &self,
        model: &ModelName,
        tag: &Tag,
        act: Act,
        by: By,
    ) -> Result<(), Failure> {
        let (done, reply) = oneshot::channel();
        let (model, tag) = (model.clone(), tag.clone());
        self.send(Command::Decide { model, tag, act, by, done }).await?;
        reply.await.map_err(|_| stopping())?
    }

    /// Whether preloads have settled and the engine answers.
    pub fn ready(&self) -> bool {
        self.shared.snapshot.borrow().ready
    }

    /// Loads a version, even if its failure counted as permanent and while too many unknown models
    /// are asked for, and waits for it until `deadline`.
    ///
    /// # Errors
    /// Those of [`Handle::acquire`].
    pub async fn load(
        &self,
        model: &ModelName,
        selector: &Selector,
        deadline: Instant,
    ) -> Result<Lease, Failure> {
        let (done, accepted) = oneshot::channel();
        let command = Command::Load { model: model.clone(), selector: selector.clone(), done };
        self.send(command).await?;
        accepted.await.map_err(|_| stopping())?;
        self.wait_until_up(model, selector, self.choice(""), deadline, |_| None).await
    }

    /// Unloads a version from the engine once it is drained; with `delete`, deletes its files
    /// as well. Returns when that has begun. A later request loads the version again.
    ///
    /// # Errors
    /// `MODEL_NOT_FOUND`, `TAG_NOT_FOUND` or `DIGEST_NOT_FOUND` if it is unknown.
    pub async fn unload(
        &self,
        model: &ModelName,
        selector: &Selector,
        delete: bool,
    ) -> Result<(), Failure> {
        let (done, reply) = oneshot::channel();
        let (model, selector) = (model.clone(), selector.clone());
        self.send(Command::Unload { model, selector, delete, done }).await?;
        reply.await.map_err(|_| stopping())?
    }

    /// Stops the service: no new loads start, pulls are cancelled, and the journal is written. The
    /// engine keeps its models, and the next start adopts them. Returns when all is done, at the
    /// latest after `grace`.
    pub async fn shutdown(&self, grace: Duration) {
        let (done, stopped) = oneshot::channel();
        if self.shared.commands.send(Command::Shutdown { grace, done }).await.is_ok() {
            // An error means that the service has already ended.
            stopped.await.ok();
        }
    }

    fn ask(&self, model: &ModelName, selector: &Selector) -> Result<(), Failure> {
        let model = model.clone();
        let selector = selector.clone();
        let caller = self.caller;
        let command = Command::Ask { model, selector, caller };
        let overloaded = |_| Failure::new(Reason::Overloaded, "too many models are asked for");
        self.shared.commands.try_send(command).map_err(overloaded)
    }

    async fn send(&self, command: Command) -> Result<(), Failure> {
        self.shared.commands.send(command).await.map_err(|_| stopping())
    }
}

pub(crate) fn stopping() -> Failure {
    Failure::new(Reason::ShuttingDown, "the server is stopping")
}

#[cfg(test)]
mod tests {
    use outrigger_core::machines::Event;

    use super::*;
    use crate::rig::{churn, latest, service};

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_holds_its_demand() {
        let config = crate::Config::default();
        let idle_ttl = config.tunables.idle_ttl;
        let deadline = Instant::now() + idle_ttl * 10;
        let (handle, mut service, _dir) = service(config);
        service.apply(Event::Ask(churn(), latest()));
        service.publish_now();
        let (model, selector) = (churn(), latest());
        let mut waiting = std::pin::pin!(handle.wait(&model, &selector, Choice::Live, deadline));
        assert!(futures::poll!(&mut waiting).is_pending());
        // No publication happens for longer than the idle time.
        tokio::time::advance(idle_ttl * 2).await;
        service.apply(Event::Tick);
        service.publish_now();
        assert!(handle.models().models[&model].tags.values().all(|tag| tag.followed));
        assert!(futures::poll!(&mut waiting).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn publications_between_look_up_and_wait_are_not_missed() {
        let (handle, _service, _dir) = service(crate::Config::default());
        assert!(handle.try_acquire(&churn(), &latest(), "").is_none());
        // This is the only publication.
        let failure = Failure::new(Reason::ModelNotFound, "there is none");
        let routes = Routes { full: Some(failure.clone()), ..Routes::default() };
        handle.shared.routes.store(Arc::new(routes));
        let deadline = Instant::now() + Duration::from_secs(60);
        let answer = handle.wait(&churn(), &latest(), Choice::Live, deadline).await;
        assert_eq!(answer.expect_err("there is none"), failure);
    }
}
