//! The engine's task: compares the versions that should be loaded with those that the process has,
//! and has the process load and unload the difference.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use outrigger_core::{
    Failure, ServableId,
    engine::{Condition, FromEngine, ToEngine},
};
use outrigger_run::{Event, RunError, Start};
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use crate::{
    client::{Seen, wire_name},
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
    /// Its load was cut off: the process may have ended.
    Cut,
    /// The process has it.
    Up,
}

/// The result of a load.
struct Loaded {
    id: ServableId,
    result: Result<(), RunError>,
}

/// The state of the task.
pub(crate) struct Task {
    engine: Arc<Engine>,
    start: Start,
    versions: BTreeMap<ServableId, State>,
    /// Versions that were removed and that the process may still have.
    leaving: BTreeSet<ServableId>,
    loads: JoinSet<Loaded>,
    /// The versions of `loads`.
    loading: BTreeSet<ServableId>,
    condition: Condition,
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
            loading: BTreeSet::new(),
            condition: Condition::default(),
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
                Some(ended) = self.loads.join_next() => match ended {
                    Ok(loaded) => self.loaded(loaded).await,
                    Err(error) => tracing::error!("a load panicked: {error}"),
                },
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

    async fn loaded(&mut self, Loaded { id, result }: Loaded) {
        self.loading.remove(&id);
        let Some(state) = self.versions.get_mut(&id).filter(|it| **it == State::Loading) else {
            return;
        };
        let report = match result {
            Ok(()) => {
                *state = State::Up;
                FromEngine::Up(id)
            }
            Err(error @ (RunError::Failed { .. } | RunError::Answer { .. })) => {
                self.versions.remove(&id);
                FromEngine::Failed(id, Failure::because(error.reason(), &error))
            }
            Err(error) => {
                tracing::warn!("{id}: its load was cut off: {error}");
                *state = State::Cut;
                return;
            }
        };
        self.report(report).await;
    }

    /// Takes notice of the state of the process, and requests what it lacks.
    async fn compare(&mut self, seen: Result<Seen, RunError>) {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return self.unreachable(&error).await,
        };
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

    /// Reports the versions as lost that the process had, or was loading, before it restarted.
    async fn lose(&mut self, seen: &Seen, has_restarted: bool) {
        let is_lost = |id: &ServableId, state: State| match state {
            State::Wanted => false,
            State::Up => !seen.loaded.contains(&wire_name(id)),
            State::Loading | State::Cut => has_restarted,
        };
        let lost = self.versions.extract_if(.., |id, state| is_lost(id, *state));
        let lost: Vec<_> = lost.map(|(id, _)| id).collect();
        for id in lost {
            self.report(FromEngine::Lost(id)).await;
        }
    }

    /// Has the process unload all versions that are not wanted.
    async fn unload(&mut self, seen: &Seen) {
        let known: BTreeSet<_> = self.versions.keys().chain(&self.loading).map(wire_name).collect();
        for unwanted in seen.loaded.difference(&known) {
            if let Err(error) = self.engine.client.unload(unwanted.clone()).await {
                tracing::warn!("a model cannot be unloaded: {error}");
                return;
            }
        }
        let loading = &self.loading;
        let gone: Vec<_> = self.leaving.extract_if(.., |id| !loading.contains(id)).collect();
        for id in gone {
            self.report(FromEngine::Gone(id)).await;
        }
    }

    /// Has the process load the versions that it lacks.
    async fn load(&mut self, seen: &Seen) {
        let has = |id: &ServableId| seen.loaded.contains(&wire_name(id));
        let mut up = Vec::new();
        for (id, state) in &mut self.versions {
            match *state {
                State::Wanted | State::Cut if has(id) => {
                    *state = State::Up;
                    up.push(id.clone());
                }
                State::Wanted | State::Cut if self.loads.len() < LOADS => {
                    *state = State::Loading;
                    self.loading.insert(id.clone());
                    self.loads.spawn(load(Arc::clone(&self.engine), id.clone()));
                }
                _ => {}
            }
        }
        for id in up {
            self.report(FromEngine::Up(id)).await;
        }
    }

    async fn unreachable(&mut self, error: &RunError) {
        let now = self.start.clock.now();
        self.set_condition(Condition {
            reachable: Some(false),
            down_since: self.condition.down_since.or(Some(now)),
            failure: Some(Failure::because(error.reason(), error)),
            restarts: self.condition.restarts,
            reloading: false,
        })
        .await;
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

async fn load(engine: Arc<Engine>, id: ServableId) -> Loaded {
    let result = match engine.directory(&id) {
        Some(directory) => engine.client.load(&id, &directory).await,
        None => Err(RunError::Failed {
            code: "NotFound".to_owned(),
            message: "the version was not published".to_owned(),
        }),
    };
    Loaded { id, result }
}
