//! The engine's task: compares the versions that should be loaded with those that the process has,
//! and has the process load and unload the difference.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use outrigger_core::{
    Failure, Moment, Reason, ServableId,
    engine::{Condition, FromEngine, ToEngine},
};
use outrigger_run::{Event, RunError, Start};
use tokio::{
    sync::mpsc,
    task::{Id, JoinError, JoinSet},
    time::sleep,
};

use crate::{
    client::{Held, LoadError, Seen, WireName, wire_name},
    engine::Engine,
};

/// The time between two comparisons, if nothing happens before.
const INTERVAL: Duration = Duration::from_millis(500);
/// Loads at the same time.
const LOADS: usize = 2;

/// The position of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is loaded as soon as the process answers and has room for a load.
    Wanted,
    /// The process loads it.
    Loading,
    /// The process has it.
    Up,
}

/// The state of the task.
pub(crate) struct Task {
    engine: Arc<Engine>,
    start: Start,
    versions: BTreeMap<ServableId, State>,
    /// Versions that were removed and that the process may still have.
    leaving: BTreeSet<ServableId>,
    loads: JoinSet<Result<(), LoadError>>,
    /// The versions of `loads`.
    loading: HashMap<Id, ServableId>,
    condition: Condition,
    /// The last time at which the process answered.
    answered: Option<Moment>,
    /// The process's start, once it is known.
    started: Option<String>,
    is_settled: bool,
}

impl Task {
    pub(crate) fn new(engine: Arc<Engine>, start: Start, adopted: BTreeSet<ServableId>) -> Self {
        Self {
            engine,
            start,
            versions: adopted.into_iter().map(|id| (id, State::Wanted)).collect(),
            leaving: BTreeSet::new(),
            loads: JoinSet::new(),
            loading: HashMap::new(),
            condition: Condition::default(),
            answered: None,
            started: None,
            is_settled: false,
        }
    }

    pub(crate) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<ToEngine>) {
        loop {
            let seen = self.engine.client.look().await;
            self.compare(seen).await;
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => self.handle(message),
                    None => return,
                },
                Some(ended) = self.loads.join_next_with_id() => self.load_ended(ended).await,
                () = self.engine.suspect.notified() => {}
                () = sleep(INTERVAL) => {}
            }
            while let Ok(message) = inbox.try_recv() {
                self.handle(message);
            }
        }
    }

    fn handle(&mut self, message: ToEngine) {
        match message {
            ToEngine::Add(id) => drop(self.versions.insert(id, State::Wanted)),
            ToEngine::Remove(id) => {
                self.versions.remove(&id);
                self.leaving.insert(id);
            }
            ToEngine::Expect(_) | ToEngine::Unexpect(_) => {}
        }
    }

    async fn load_ended(&mut self, ended: Result<(Id, Result<(), LoadError>), JoinError>) {
        let (task, result) = match ended {
            Ok(ended) => ended,
            // The process has restarted since.
            Err(error) if error.is_cancelled() => return,
            Err(defect) => {
                tracing::error!("a load panicked: {defect}");
                let failure = Failure::new(Reason::Internal, "a task ended unexpectedly");
                (defect.id(), Err(LoadError::Refused(failure)))
            }
        };
        let Some(id) = self.loading.remove(&task) else { return };
        let Some(state) = self.versions.get_mut(&id).filter(|it| **it == State::Loading) else {
            return;
        };
        let report = match result {
            Ok(()) => {
                *state = State::Up;
                FromEngine::Up(id)
            }
            Err(LoadError::Refused(failure)) => {
                self.versions.remove(&id);
                FromEngine::Failed(id, failure)
            }
            Err(LoadError::CutOff(error)) => {
                tracing::warn!(servable = %id, error = %error, "a load was cut off");
                *state = State::Wanted;
                return;
            }
        };
        self.report(report).await;
    }

    /// Records the state of the process, and requests the loads and unloads that it lacks.
    async fn compare(&mut self, seen: Result<Seen, RunError>) {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return self.unreachable(&error).await,
        };
        self.answered = Some(self.start.clock.now());
        let before = self.started.replace(seen.start.clone());
        let has_restarted = before.is_some_and(|before| before != seen.start);
        let restarts = self.condition.restarts + u64::from(has_restarted);
        self.set_condition(Condition { restarts, ..Condition::up() }).await;
        self.lose(&seen, has_restarted).await;
        self.unload(&seen).await;
        self.load(&seen).await;
        if !std::mem::replace(&mut self.is_settled, true) {
            self.start.report(Event::Settled).await;
        }
    }

    /// Reports the versions as lost that the process does not have any more. After a restart these
    /// are all: nothing is loaded again unless it is added again.
    async fn lose(&mut self, seen: &Seen, has_restarted: bool) {
        if has_restarted {
            tracing::warn!(
                engine = %self.start.engine,
                "the engine has restarted; its models are loaded again"
            );
            self.loads.abort_all();
            self.loading.clear();
        }
        let ready = |id: &ServableId| {
            let name = wire_name(id);
            seen.models.iter().any(|held| held.name == name && held.is_ready)
        };
        let is_lost =
            |id: &ServableId, state: State| has_restarted || (state == State::Up && !ready(id));
        let lost = self.versions.extract_if(.., |id, state| is_lost(id, *state));
        let lost: Vec<_> = lost.map(|(id, _)| id).collect();
        for id in lost {
            self.report(FromEngine::Lost(id)).await;
        }
    }

    /// Has the process unload all models that are not wanted: other versions, and other files under
    /// the name of a version.
    async fn unload(&mut self, seen: &Seen) {
        let files = |id: &ServableId| Some((wire_name(id), self.engine.directory(id)?));
        let known: BTreeSet<_> =
            self.versions.keys().chain(self.loading.values()).filter_map(files).collect();
        let is_known = |held: &Held| known.contains(&(held.name.clone(), held.directory.clone()));
        let mut stay: BTreeSet<WireName> = self.loading.values().map(wire_name).collect();
        for held in seen.models.iter().filter(|held| !is_known(held)) {
            if let Err(error) = self.engine.client.unload(&held.name).await {
                tracing::debug!(error = %error, "a model is not unloaded yet");
                stay.insert(held.name.clone());
            }
        }
        let gone: Vec<_> =
            self.leaving.extract_if(.., |id| !stay.contains(&wire_name(id))).collect();
        for id in gone {
            self.report(FromEngine::Gone(id)).await;
        }
    }

    /// Has the process load the versions that it lacks. A call for a model that it has, or is
    /// loading, ends with that load.
    async fn load(&mut self, seen: &Seen) {
        let has = |id: &ServableId| {
            let (name, directory) = (wire_name(id), self.engine.directory(id));
            let is_it =
                |held: &&Held| held.name == name && Some(&held.directory) == directory.as_ref();
            seen.models.iter().find(is_it).is_some_and(|held| held.is_ready)
        };
        let mut up = Vec::new();
        for (id, state) in self.versions.iter_mut().filter(|(_, it)| **it == State::Wanted) {
            if has(id) {
                *state = State::Up;
                up.push(id.clone());
            } else if self.loads.len() < LOADS {
                *state = State::Loading;
                let load = load(Arc::clone(&self.engine), id.clone());
                self.loading.insert(self.loads.spawn(load).id(), id.clone());
            }
        }
        for id in up {
            self.report(FromEngine::Up(id)).await;
        }
    }

    async fn unreachable(&mut self, error: &RunError) {
        let failure = Failure::because(error.reason(), error);
        let now = self.start.clock.now();
        self.set_condition(self.condition.down(failure, self.answered, now)).await;
    }

    async fn set_condition(&mut self, condition: Condition) {
        if condition != self.condition {
            self.condition = condition.clone();
            self.start.report(Event::Condition(condition)).await;
        }
    }

    async fn report(&self, message: FromEngine) {
        self.start.report(Event::Version(message)).await;
    }
}

async fn load(engine: Arc<Engine>, id: ServableId) -> Result<(), LoadError> {
    match engine.directory(&id) {
        Some(directory) => engine.client.load(&id, &directory).await,
        None => {
            let failure = Failure::new(Reason::Internal, "the version was not published");
            Err(LoadError::Refused(failure))
        }
    }
}
