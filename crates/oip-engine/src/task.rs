//! The engine's task: loads, unloads, and checks of the servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, PoisonError},
};

use outrigger_core::{
    Failure, ServableId,
    engine::{Condition, FromEngine, ToEngine},
};
use outrigger_run::{Event, Start};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{Engine, engine::Inherited, servers};

/// Loads and unloads the versions that are wanted, and checks at intervals that the servers have
/// them. Loads of different versions take place at the same time.
pub(crate) struct Task {
    engine: Arc<Engine>,
    start: Start,
    /// The versions that are wanted.
    wanted: BTreeMap<ServableId, State>,
    /// The models that are being unloaded. A version with one of them is loaded afterwards.
    unloading: BTreeSet<Arc<str>>,
    work: JoinSet<Done>,
    condition: Condition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A model of it is being unloaded.
    Waiting,
    Loading,
    /// Removed during its load.
    Removed,
    Up,
}

/// The end of a piece of work.
enum Done {
    Loaded(ServableId, Result<(), Failure>),
    /// The version whose models these are, unless an earlier process left them.
    Unloaded(Option<ServableId>, Vec<Arc<str>>),
    /// The versions that no server has, or the failure of all servers.
    Checked(Result<Vec<ServableId>, Failure>),
}

impl Task {
    pub(crate) fn new(engine: Arc<Engine>, start: Start) -> Self {
        Self {
            engine,
            start,
            wanted: BTreeMap::new(),
            unloading: BTreeSet::new(),
            work: JoinSet::new(),
            condition: Condition::default(),
        }
    }

    pub(crate) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<ToEngine>) {
        self.inherit();
        self.start.report(Event::Settled).await;
        let (mut next, mut checking) = (self.next_check(), true);
        self.check();
        loop {
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => self.handle(message).await,
                    None => return,
                },
                Some(done) = self.work.join_next() => {
                    let done = done.expect("the work neither panics nor is cancelled");
                    checking &= !matches!(done, Done::Checked(_));
                    self.done(done).await;
                }
                () = self.engine.suspect.notified(), if !checking => {
                    (next, checking) = (self.next_check(), true);
                    self.check();
                }
                () = sleep_until(next), if !checking => {
                    (next, checking) = (self.next_check(), true);
                    self.check();
                }
            }
        }
    }

    /// Takes up what an earlier process left on the servers.
    fn inherit(&mut self) {
        let mut inherited = self.engine.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        let Inherited { versions, removed } = mem::take(&mut *inherited);
        drop(inherited);
        versions.into_iter().for_each(|id| self.add(id));
        if !removed.is_empty() {
            self.start_unload(None, removed);
        }
    }

    fn next_check(&self) -> Instant {
        Instant::now() + self.engine.settings.interval
    }

    async fn handle(&mut self, message: ToEngine) {
        match message {
            ToEngine::Add(id) => self.add(id),
            ToEngine::Remove(id) => match self.wanted.get_mut(&id) {
                Some(state @ (State::Loading | State::Removed)) => *state = State::Removed,
                Some(State::Up) => self.remove(id).await,
                Some(State::Waiting) | None => {
                    self.wanted.remove(&id);
                    self.report(FromEngine::Gone(id)).await;
                }
            },
            ToEngine::Expect(_) | ToEngine::Unexpect(_) => {}
        }
    }

    async fn done(&mut self, done: Done) {
        match done {
            Done::Loaded(id, result) => self.loaded(id, result).await,
            Done::Unloaded(id, models) => {
                self.unloading.retain(|model| !models.contains(model));
                if let Some(id) = id {
                    self.report(FromEngine::Gone(id)).await;
                }
                let waiting = self.wanted.iter().filter(|(_, state)| **state == State::Waiting);
                let waiting: Vec<_> = waiting.map(|(id, _)| id.clone()).collect();
                waiting.into_iter().for_each(|id| self.add(id));
            }
            Done::Checked(Ok(missing)) => {
                self.report_condition(Condition::up()).await;
                for id in missing {
                    if self.wanted.get(&id) == Some(&State::Up) {
                        self.wanted.remove(&id);
                        self.report(FromEngine::Lost(id)).await;
                    }
                }
            }
            Done::Checked(Err(failure)) => {
                let now = self.start.clock.now();
                let down_since = self.condition.down_since.or(Some(now));
                let condition = Condition {
                    reachable: Some(false),
                    down_since,
                    failure: Some(failure),
                    ..Condition::default()
                };
                self.report_condition(condition).await;
            }
        }
    }

    async fn loaded(&mut self, id: ServableId, result: Result<(), Failure>) {
        match (self.wanted.get(&id), result) {
            (Some(State::Removed), _) => self.remove(id).await,
            (_, Ok(())) => {
                self.wanted.insert(id.clone(), State::Up);
                self.report(FromEngine::Up(id)).await;
            }
            (_, Err(failure)) => {
                self.wanted.remove(&id);
                // Others of its models may be loaded.
                let unused = self.unused(&id);
                if !unused.is_empty() {
                    self.start_unload(None, unused);
                }
                self.report(FromEngine::Failed(id, failure)).await;
            }
        }
    }

    /// Starts to load a version, or lets it wait for the end of an unload.
    fn add(&mut self, id: ServableId) {
        let version = self.engine.versions.get(&id);
        let mut models = version.iter().flat_map(|version| &version.models);
        if models.any(|model| self.unloading.contains(model)) {
            self.wanted.insert(id, State::Waiting);
            return;
        }
        self.wanted.insert(id.clone(), State::Loading);
        let engine = Arc::clone(&self.engine);
        self.work.spawn(async move {
            let loaded = servers::load(&engine, &id).await;
            Done::Loaded(id, loaded)
        });
    }

    /// Removes a version, and starts to unload its models but those that another version uses.
    async fn remove(&mut self, id: ServableId) {
        self.wanted.remove(&id);
        let unused = self.unused(&id);
        if unused.is_empty() {
            self.report(FromEngine::Gone(id)).await;
        } else {
            self.start_unload(Some(id), unused);
        }
    }

    /// The models of a version that no wanted version uses, if they may be unloaded.
    fn unused(&self, id: &ServableId) -> Vec<Arc<str>> {
        let version = self.engine.versions.get(id).filter(|_| self.engine.settings.load);
        let others = self.wanted.keys().filter_map(|it| self.engine.versions.get(it));
        let used: BTreeSet<_> = others.flat_map(|other| other.models.clone()).collect();
        let models = version.iter().flat_map(|version| version.models.clone());
        models.filter(|model| !used.contains(model)).collect()
    }

    fn start_unload(&mut self, id: Option<ServableId>, models: Vec<Arc<str>>) {
        self.unloading.extend(models.iter().cloned());
        let engine = Arc::clone(&self.engine);
        self.work.spawn(async move {
            servers::unload(&engine, &models).await;
            Done::Unloaded(id, models)
        });
    }

    /// Starts a check of the versions that are up.
    fn check(&mut self) {
        let up = self.wanted.iter().filter(|(_, state)| **state == State::Up);
        let remote = |id: &ServableId| Some(self.engine.versions.get(id)?.remote.clone());
        let up = up.filter_map(|(id, _)| Some((id.clone(), remote(id)?)));
        let (up, engine): (Vec<_>, _) = (up.collect(), Arc::clone(&self.engine));
        self.work.spawn(async move { Done::Checked(servers::check(&engine, up).await) });
    }

    async fn report_condition(&mut self, condition: Condition) {
        if condition != self.condition {
            self.condition = condition.clone();
            self.start.report(Event::Condition(condition)).await;
        }
    }

    async fn report(&self, message: FromEngine) {
        self.start.report(Event::Version(message)).await;
    }
}
