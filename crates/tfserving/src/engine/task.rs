//! The task that runs the engine's machine.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, PoisonError},
};

use futures::FutureExt as _;
use outrigger_core::{
    Attempt, Failure, Moment, Outcome, Reason, ServableId, Version,
    engine::{Condition, FromEngine, ToEngine},
    invariants::EngineVersions as _,
};
use outrigger_run::{Event as Report, Start};
use rand::random;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::sleep_until,
};

use super::{Engine, calls, metrics, reloads::Reloads};
use crate::machine::{Context, Effect, Event, PushOutcome, ServingMachine};

/// The state of the engine's task.
pub(super) struct Task {
    engine: Arc<Engine>,
    start: Start,
    machine: ServingMachine,
    /// Jobs requested by the machine. Each ends with an event.
    jobs: JoinSet<Option<Event>>,
    reloads: Reloads,
    ticked_at: Moment,
    /// The condition as it was last reported.
    reported: Condition,
    /// Versions up to this one were assigned by earlier processes.
    inherited: Version,
}

impl Task {
    pub(super) fn new(engine: Arc<Engine>, start: Start) -> Self {
        let mut machine = ServingMachine::new(start.clock.now());
        let inherited =
            std::mem::take(&mut *engine.inherited.lock().unwrap_or_else(PoisonError::into_inner));
        for placeholder in inherited.placeholders.into_values() {
            machine.adopt(placeholder);
        }
        for version in inherited.versions {
            machine.adopt_version(version);
        }
        Self {
            engine,
            inherited: start.versions.last(),
            start,
            machine,
            jobs: JoinSet::new(),
            reloads: Reloads::default(),
            ticked_at: Moment::default(),
            reported: Condition::default(),
        }
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<ToEngine>) {
        metrics::begin(&self.start.engine);
        let suspect = Arc::clone(&self.engine.suspect);
        self.handle(Event::Tick).await;
        loop {
            let wake = self.machine.wakes_at(&self.engine.settings.policy, self.ticked_at);
            let clock = self.start.clock;
            let tick = async {
                match wake {
                    Some(at) => sleep_until(clock.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            // Finished jobs come first: the machine may be waiting for their results.
            let event = tokio::select! {
                biased;
                Some(done) = self.jobs.join_next() => ended(done),
                message = inbox.recv() => match message {
                    Some(message) => Some(event(message)),
                    None => return,
                },
                () = suspect.notified() => Some(Event::Suspect),
                () = tick => Some(Event::Tick),
            };
            if let Some(event) = event {
                self.handle(event).await;
            }
        }
    }

    async fn handle(&mut self, event: Event) {
        self.reloads.record(&event);
        let now = self.start.clock.now();
        if event == Event::Tick {
            self.ticked_at = now;
        }
        let context = Context {
            now,
            jitter: random(),
            policy: &self.engine.settings.policy,
            versions: &self.start.versions,
        };
        let (effects, outcome) = self.machine.handle(&context, event);
        metrics::event(&self.start.engine, outcome);
        debug_assert_ne!(outcome, Outcome::Unexpected);
        // A restart is reported before the versions that were lost by it.
        let condition = self.machine.condition();
        if condition != self.reported {
            self.reported = condition.clone();
            self.start.report(Report::Condition(condition)).await;
        }
        for effect in effects {
            self.carry_out(effect).await;
        }
    }

    async fn carry_out(&mut self, effect: Effect) {
        let message = match effect {
            Effect::PublishPlaceholder(attempt, id) => return self.publish(attempt, id),
            Effect::Unpublish(id) => {
                let engine = Arc::clone(&self.engine);
                self.jobs.spawn(async move {
                    engine.files.unpublish(id).await;
                    None
                });
                return;
            }
            Effect::Push(attempt, set) => {
                self.reloads.begin(&self.engine.settings.tracer, &set);
                let (engine, id) = (Arc::clone(&self.engine), self.start.engine.clone());
                self.job(Event::Pushed(attempt, PushOutcome::TimedOut), async move {
                    let result = calls::push(&engine, set).await;
                    metrics::reloaded(&id, &result);
                    Event::Pushed(attempt, calls::outcome(result))
                });
                return;
            }
            Effect::Probe(attempt, names) => {
                let engine = Arc::clone(&self.engine);
                self.job(Event::Probed(attempt, Err(defect())), async move {
                    Event::Probed(attempt, calls::probe(&engine, names).await)
                });
                return;
            }
            Effect::Restarted => {
                tracing::warn!(
                    engine = %self.start.engine,
                    "the engine has restarted; its models are loaded again"
                );
                return;
            }
            Effect::Settled => return self.settled().await,
            Effect::Up(id) => FromEngine::Up(id),
            Effect::Failed(id, failure) => FromEngine::Failed(id, failure),
            Effect::Lost(id) => FromEngine::Lost(id),
            Effect::Gone(id) => FromEngine::Gone(id),
        };
        self.start.report(Report::Version(message)).await;
    }

    fn publish(&mut self, attempt: Attempt, id: ServableId) {
        let engine = Arc::clone(&self.engine);
        let done = {
            let id = id.clone();
            move |result| Event::PlaceholderPublished(attempt, id, result)
        };
        self.job(done.clone()(Err(defect())), async move {
            done(engine.files.publish_placeholder(id).await)
        });
    }

    /// Removes files of earlier processes. Called after the engine has taken this process's
    /// configuration.
    async fn settled(&mut self) {
        let (engine, last) = (Arc::clone(&self.engine), self.inherited);
        let keep = self.machine.mentioned();
        self.jobs.spawn(async move {
            engine.files.clean(last, keep).await;
            None
        });
        self.start.report(Report::Settled).await;
    }

    /// Starts a job; if the job panics, `if_panicked` is its result.
    fn job(&mut self, if_panicked: Event, job: impl Future<Output = Event> + Send + 'static) {
        self.jobs.spawn(async move {
            let done = AssertUnwindSafe(job).catch_unwind().await;
            Some(done.unwrap_or_else(|_| {
                tracing::error!(event = ?if_panicked, "a call to the engine panicked");
                if_panicked
            }))
        });
    }
}

fn event(message: ToEngine) -> Event {
    match message {
        ToEngine::Add(id) => Event::Add(id),
        ToEngine::Remove(id) => Event::Remove(id),
        ToEngine::Expect(name) => Event::Expect(name),
        ToEngine::Unexpect(name) => Event::Unexpect(name),
    }
}

fn ended(done: Result<Option<Event>, JoinError>) -> Option<Event> {
    done.unwrap_or_else(|error| {
        tracing::error!(error = %error, "a job of the engine panicked");
        None
    })
}

fn defect() -> Failure {
    Failure::new(Reason::Internal, "a task ended unexpectedly")
}
