//! The one task that owns all machines.

mod bring_ups;
mod canaries;
mod commands;
mod effects;
mod publish;
mod start;
mod steps;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use outrigger_core::{
    Digest, EngineId, Failure, ModelKey, ModelName, Moment, Policy, Selector, Version, Versions,
    fleet::{Answer, Event, Fleet},
    model,
};
use outrigger_oci::Client;
use outrigger_store::Store;
use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{sleep_until, timeout},
};

pub(crate) use self::canaries::CanaryRecord;
use self::{
    bring_ups::BringUps,
    canaries::{Arms, Canaries},
    steps::Steps,
};
use crate::{
    Config, Engines, Error, Handle, Replayed,
    aside::{Aside, Worker, aside},
    courier::{Courier, Journal},
    drains::Drains,
    engines,
    handle::{Command, Shared},
    jobs::{Done, Jobs, Kept, Origin, Prepared},
    lease::Live,
    metrics,
    names::Names,
    recent::Recent,
    routes::{LastAsked, Routes},
    signatures,
    snapshot::Snapshot,
    world::{World, blocking},
};
use outrigger_run::{self as run, Clock};

/// Demands that may wait to be looked at; more are refused.
const COMMANDS: usize = 4096;
/// Events of engines that may wait to be looked at; an engine waits with more.
const ENGINE_EVENTS: usize = 256;
/// How often files that no model is known of are looked for.
const SWEEP: Duration = Duration::from_secs(3600);

/// Owns the machines and runs until it is told to stop.
pub struct Service {
    world: Arc<World>,
    clock: Clock,
    fleet: Fleet,
    jobs: Jobs,
    /// Models of one digest and one repository share one.
    pulls: BTreeMap<Origin, Pull>,
    prepared: BTreeMap<ModelKey, Arc<Prepared>>,
    /// What lies in the store of each version.
    kept: BTreeMap<ModelKey, Kept>,
    live: BTreeMap<ModelKey, Live>,
    /// Of each model that is up.
    recent: BTreeMap<ModelName, Arc<Recent>>,
    /// How the versions were warmed up.
    replayed: BTreeMap<ModelKey, Replayed>,
    asked: BTreeMap<(ModelName, Selector), Asked>,
    commands: mpsc::Receiver<Command>,
    drains: Arc<Drains>,
    couriers: BTreeMap<EngineId, Courier>,
    /// Events of the engines.
    engine_events: mpsc::Receiver<(EngineId, run::Event)>,
    /// Handed to each engine's task when it starts.
    engine_reports: mpsc::Sender<(EngineId, run::Event)>,
    outside: Outside,
    canaries: Canaries,
    aside: Aside,
    /// Until it runs.
    worker: Option<Worker>,
    bring_ups: BringUps,
    steps: Steps,
    journal: Journal,
    sweep_at: Moment,
    /// When what is up is verified again; `None` while it is, or need not be.
    verify_at: Option<Moment>,
    /// Before that, time alone changes nothing.
    wake_at: Moment,
    preloaded: bool,
}

/// A pull and those who wait for it.
struct Pull {
    waiting: BTreeMap<ModelKey, outrigger_core::Attempt>,
    job: AbortHandle,
}

/// What requests for one model get.
type Answers = BTreeMap<Selector, Told>;

/// What requests for one tag or digest get.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    answer: Answer,
    /// The other version that the traffic is split with.
    arms: Option<Arms>,
}

/// When something was last asked for, and up to when the machines know of it.
struct Asked {
    at: Arc<LastAsked>,
    told: Option<Moment>,
}

/// What others see of us, and what was shown last.
#[derive(Default)]
struct Outside {
    routes: Arc<ArcSwap<Routes>>,
    routed: watch::Sender<u64>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    answers: BTreeMap<ModelName, Answers>,
    full: bool,
    /// The answer to all requests that need an engine which is down.
    outages: BTreeMap<EngineId, Answer>,
    stages: BTreeMap<ModelName, BTreeMap<Digest, publish::Shown>>,
}

/// Prepares a service and its handle. Nothing happens before [`Service::run`].
///
/// # Errors
/// [`Error::Config`].
pub fn start(
    config: Config,
    client: Client,
    store: Store,
    engines: Engines,
) -> Result<(Handle, Service), Error> {
    let names = Arc::new(Names::new(&config)?);
    let signatures = signatures::policy(&config)?;
    let clock = Clock::start();
    let (sender, commands) = mpsc::channel(COMMANDS);
    let (outside, canaries) = (Outside::default(), Canaries::default());
    let shared = Shared {
        clock,
        names: Arc::clone(&names),
        routes: Arc::clone(&outside.routes),
        routed: outside.routed.subscribe(),
        snapshot: outside.snapshot.subscribe(),
        canaries: canaries.shown.subscribe(),
        commands: sender,
        patience: config.engine.patience,
    };
    let (engine_reports, engine_events) = mpsc::channel(ENGINE_EVENTS);
    let (aside, worker) = aside();
    let fleet = Fleet::new(policy(&config), Versions::after(Version(0)), engines.keys().cloned());
    let service = Service {
        world: Arc::new(World::new(
            config,
            (names, signatures),
            client,
            store,
            engines::Engines::new(engines),
        )),
        clock,
        fleet,
        jobs: Jobs::default(),
        pulls: BTreeMap::new(),
        prepared: BTreeMap::new(),
        kept: BTreeMap::new(),
        live: BTreeMap::new(),
        recent: BTreeMap::new(),
        replayed: BTreeMap::new(),
        asked: BTreeMap::new(),
        commands,
        drains: Arc::default(),
        couriers: BTreeMap::new(),
        engine_events,
        engine_reports,
        outside,
        canaries,
        aside,
        worker: Some(worker),
        bring_ups: BringUps::default(),
        steps: Steps::default(),
        journal: (0, Arc::default()),
        sweep_at: clock.now() + SWEEP,
        verify_at: None,
        wake_at: clock.now(),
        preloaded: false,
    };
    Ok((Handle { shared: Arc::new(shared), is_counted: true }, service))
}

fn policy(config: &Config) -> Policy {
    Policy {
        idle_ttl: config.idle_ttl,
        retain: config.retain,
        backoff: outrigger_core::Backoff { first: config.retry.first, most: config.retry.most },
        poll_interval: config.images.poll_interval,
        patience: config.engine.patience,
        max_unproven: config.max_unproven.max(1),
        ..Policy::default()
    }
}

impl Service {
    /// Runs until [`Handle::shutdown`], or until every handle is gone.
    ///
    /// # Errors
    /// [`Error::Journal`] when the store cannot be read at the start.
    pub async fn run(mut self) -> Result<(), Error> {
        metrics::begin();
        self.take_over().await?;
        self.verify_later();
        let mut aside = JoinSet::new();
        self.worker.take().map(|worker| aside.spawn(worker.run()));
        self.start_engines(&mut aside);
        self.apply(Event::Tick);
        self.publish();
        let stop = loop {
            let (wake_at, judging) = (self.wake_at(), self.judging());
            // The order: what makes room first, then what became of work that
            // was begun, then new demands, then canaries, and the clock last. Each
            // of the first three is bounded by the work that is there.
            let stop = tokio::select! {
                biased;
                drained = self.drains.take() => self.drained(drained),
                done = self.jobs.next() => self.done(done),
                command = self.commands.recv() => self.command(command),
                Some((engine, event)) = self.engine_events.recv() => self.engine(engine, event),
                () = judging => self.judge(),
                () = sleep_until(wake_at) => self.tick(),
            };
            self.publish();
            if let Some(stop) = stop {
                break stop;
            }
        };
        self.stop(stop).await;
        Ok(())
    }

    fn wake_at(&mut self) -> tokio::time::Instant {
        let (fleet, sweep_at) = (&self.fleet, Some(self.sweep_at));
        let times = [fleet.wakes_at(), fleet.patience_ends_at(), sweep_at, self.verify_at];
        self.wake_at = times.into_iter().flatten().min().unwrap_or(self.sweep_at);
        self.clock.instant(self.wake_at)
    }

    fn drained(&mut self, drained: Vec<(ModelKey, u64)>) -> Option<Stop> {
        for (key, route) in drained {
            self.apply(Event::Model(key, model::Event::Drained(route)));
        }
        None
    }

    /// Starts the task of every engine, and the courier of its messages.
    fn start_engines(&mut self, tasks: &mut JoinSet<()>) {
        for (id, engine) in self.world.engines.iter() {
            let (courier, deliver) = Courier::new(Arc::clone(&self.world), Arc::clone(engine));
            self.couriers.insert(id.clone(), courier);
            tasks.spawn(deliver);
            tasks.spawn(Arc::clone(engine).run(run::Start {
                engine: id.clone(),
                clock: self.clock,
                versions: self.fleet.versions().clone(),
                events: self.engine_reports.clone(),
            }));
        }
    }

    fn engine(&mut self, engine: EngineId, event: run::Event) -> Option<Stop> {
        match event {
            run::Event::Version(message) => self.apply(Event::Engine(engine, message)),
            run::Event::Condition(condition) => self.apply(Event::Condition(engine, condition)),
            run::Event::Settled => self.sweep(),
        }
        None
    }

    fn tick(&mut self) -> Option<Stop> {
        self.apply(Event::Tick);
        if self.sweep_at <= self.clock.now() {
            self.sweep();
        }
        if self.verify_at.is_some_and(|at| at <= self.clock.now()) {
            self.verify();
        }
        None
    }

    /// When what is up is verified next.
    fn verify_later(&mut self) {
        let config = &self.world.config.images;
        let required = !self.world.signatures.is_empty();
        self.verify_at = required.then(|| self.clock.now() + config.poll_interval);
    }

    /// Verifies what is up once more: keys may have changed.
    fn verify(&mut self) {
        self.verify_at = None;
        let up = self.fleet.models().filter(|model| model.state().in_engine());
        let keys: Vec<_> = up.map(|model| model.key().clone()).collect();
        let world = Arc::clone(&self.world);
        self.jobs.start(Done::Verified(Vec::new()), async move {
            Done::Verified(signatures::revoked(&world, keys).await)
        });
    }

    /// What requests have used that the machines do not know of yet.
    fn used(&mut self, now: Moment) -> Event {
        let mut used = Vec::new();
        for ((name, selector), asked) in &mut self.asked {
            let at = asked.at.get(now);
            if asked.told < at {
                asked.told = at;
                used.extend(at.map(|at| (name.clone(), selector.clone(), at)));
            }
        }
        Event::Used(used)
    }

    fn sweep(&mut self) {
        self.sweep_at = self.clock.now() + SWEEP;
        let known: BTreeSet<_> = self.fleet.models().map(|model| model.key().digest).collect();
        let world = Arc::clone(&self.world);
        self.jobs.start(Done::Nothing, async move {
            crate::jobs::disk::sweep(&world, known).await;
            Done::Nothing
        });
    }

    /// Hands an event to the machines and starts what they want done. Where time
    /// may have made something idle they hear first of what is in use.
    pub(crate) fn apply(&mut self, event: Event) {
        let now = self.clock.now();
        if now >= self.wake_at {
            let used = self.used(now);
            self.apply_at(now, used);
        }
        self.apply_at(now, event);
    }

    fn apply_at(&mut self, now: Moment, event: Event) {
        let effects = self.fleet.handle(now, rand::random(), event);
        self.world.in_use.store(Arc::new(self.fleet.in_use(now)));
        self.note_journal();
        for effect in effects {
            self.carry_out(effect);
        }
    }

    /// What of the present has to survive us is numbered when it changes.
    fn note_journal(&mut self) {
        let legacy = self.fleet.legacy();
        if *self.journal.1 == legacy {
            return;
        }
        self.journal = (self.journal.0 + 1, Arc::new(legacy));
        let (world, (number, legacy)) = (Arc::clone(&self.world), self.journal.clone());
        self.jobs.start(Done::Nothing, async move {
            blocking(&world, move |world| world.write_journal(number, &legacy)).await;
            Done::Nothing
        });
    }

    async fn stop(mut self, stop: Stop) {
        tracing::info!("lifecycle is stopping; the engine keeps its models");
        self.outside.close();
        let (number, legacy) = (self.journal.0 + 1, self.journal.1.clone());
        let (canaries_number, canaries) = self.last_canary_record();
        let last = async {
            self.jobs.stop().await;
            let write = move |world: &World| {
                world.write_journal(number, &legacy);
                world.write_canaries(canaries_number, &canaries);
            };
            blocking(&self.world, write).await;
        };
        if timeout(stop.grace, last).await.is_err() {
            tracing::warn!("the journal was not written within the grace period");
        }
        if let Some(done) = stop.done {
            // Who asked may have gone.
            done.send(()).ok();
        }
    }
}

/// How to stop.
struct Stop {
    grace: Duration,
    done: Option<tokio::sync::oneshot::Sender<()>>,
}

/// Says what became of the requests that a version was warmed up with.
fn note_replay(key: &ModelKey, replayed: &Replayed) {
    metrics::replayed(replayed);
    if let Some(failure) = &replayed.failure {
        tracing::warn!(
            model.name = %key.name, model.digest = %key.digest,
            failed = replayed.failed, answered = replayed.answered,
            reason = %failure.reason, error = %failure.message,
            "a version fails requests that its model was asked before"
        );
    }
}

/// Counts a failure where it becomes known.
fn note_failure(key: &ModelKey, doing: &'static str, failure: &Failure) {
    metrics::failed(failure);
    tracing::warn!(
        model.name = %key.name,
        model.digest = %key.digest,
        reason = %failure.reason,
        error = %failure.message,
        "{doing} failed"
    );
}

#[cfg(test)]
mod tests {
    use outrigger_core::engine::Condition;

    use super::*;
    use crate::bench::{churn, latest, service};

    #[tokio::test(start_paused = true)]
    async fn the_machines_hear_of_use_before_anything_could_find_it_idle() {
        let config = Config::default();
        let (idle_ttl, moment) = (config.idle_ttl, Duration::from_millis(1));
        let (handle, mut service, _dir) = service(config);
        service.apply(Event::Ask(churn(), latest()));
        service.publish();
        tokio::time::advance(idle_ttl - moment).await;
        service.apply(Event::Tick);
        service.wake_at();
        assert!(handle.try_acquire(&churn(), &latest(), "").is_none(), "there is nothing yet");
        tokio::time::advance(moment).await;
        // Not the clock: whatever happens to come first.
        service.apply(Event::Condition(EngineId::default(), Condition::default()));
        let (_, tag) = service.fleet.tags().next().expect("it was asked for");
        assert!(tag.is_followed(service.fleet.policy(), service.clock.now()));
    }
}
