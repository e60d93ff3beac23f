//! The one task that owns all machines.

mod canaries;
mod commands;
mod effects;
mod publish;
mod report;
mod start;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use futures::FutureExt as _;
use outrigger_core::{
    Digest, EngineId, Failure, ModelKey, ModelName, Moment, Policy, Version, Versions,
    engine::Condition,
    machines::{Event, Machines},
    model,
};
use outrigger_oci::Client;
use outrigger_store::Store;
use outrigger_trials::{Job, LocalJudge, Reply, Trials, Worker};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{sleep_until, timeout},
};

use crate::{
    Config, Engines, Error, Handle, Tunables,
    courier::Courier,
    engines,
    handle::{Command, Part, Shared},
    jobs::{Done, Jobs},
    journal::{self, Changes},
    metrics,
    names::Names,
    numbered::Watches,
    publishing::Publishing,
    pulls::Pulls,
    schedule::Schedule,
    signatures,
    versions::VersionData,
    world::{World, blocking},
};
use outrigger_run::{self as run, Clock};

/// The limit of commands that wait to be handled; more are refused.
const COMMANDS: usize = 4096;
/// The limit of engine events that wait to be handled; an engine with more waits.
const ENGINE_EVENTS: usize = 256;

/// The limit of events that are handled between two publications.
const BATCH: usize = 256;

/// Owns the machines and runs until it is stopped.
pub struct Service {
    world: Arc<World>,
    clock: Clock,
    machines: Machines,
    jobs: Jobs,
    pulls: Pulls,
    /// The callers that asked first for models whose files may still have to be pulled.
    askers: BTreeMap<ModelName, u64>,
    versions: VersionData,
    commands: mpsc::Receiver<Command>,
    couriers: BTreeMap<EngineId, Courier>,
    /// The events of the engines.
    engine_events: mpsc::Receiver<(EngineId, run::Event)>,
    /// The sender given to each engine's task at its start.
    engine_reports: mpsc::Sender<(EngineId, run::Event)>,
    /// The tasks that poll directories of versions.
    watches: Watches,
    publishing: Publishing,
    trials: Trials,
    /// The results of decisions on canaries and their askers, who are answered when what followed has
    /// been published.
    decisions: Vec<(oneshot::Receiver<Result<(), Failure>>, Reply)>,
    /// Set until the service runs.
    worker: Option<Worker>,
    schedule: Schedule,
    /// Models that have changed since the last publication.
    changed: BTreeSet<ModelName>,
    /// Models whose canaries have changed since then.
    tried: BTreeSet<ModelName>,
    /// Jobs with the registry that start with the next publication.
    registry_jobs: Vec<Job>,
    /// Digests whose files may have become unneeded since the last publication.
    released: BTreeSet<Digest>,
    /// Answers to callers that are due with the next publication.
    replies: Vec<Box<dyn FnOnce() + Send>>,
}

/// Creates a service and its handle. It is idle until [`Service::run`].
///
/// # Errors
/// [`Error::Config`].
pub fn start(
    config: Config,
    client: Client,
    store: Store,
    engines: Engines,
) -> Result<(Handle, Service), Error> {
    let names = Names::new(&config.images, &config.tunables)?;
    let names = Arc::new(ArcSwap::from_pointee(names));
    let signatures = signatures::policy(&config)?;
    let clock = Clock::start();
    let (sender, commands) = mpsc::channel(COMMANDS);
    let publishing = Publishing::default();
    let (trials, worker) =
        Trials::new(config.tunables.canary.clone(), config.salt, Box::new(LocalJudge));
    let shared = Shared {
        clock,
        names: Arc::clone(&names),
        routes: Arc::clone(&publishing.routing.routes),
        routed: publishing.routing.subscribe(),
        snapshot: publishing.subscribe(),
        canaries: trials.subscribe(),
        commands: sender,
        patience: config.engine.patience,
    };
    let (engine_reports, engine_events) = mpsc::channel(ENGINE_EVENTS);
    let versions = Versions::after(Version(0));
    let machines =
        Machines::new(policy(&config, &config.tunables), versions, engines.keys().cloned());
    let engines = engines::Engines::new(engines);
    let service = Service {
        world: Arc::new(World::new(config, (names, signatures), client, store, engines)),
        clock,
        machines,
        jobs: Jobs::default(),
        pulls: Pulls::default(),
        askers: BTreeMap::new(),
        versions: VersionData::default(),
        commands,
        couriers: BTreeMap::new(),
        engine_events,
        engine_reports,
        watches: Watches::new(),
        publishing,
        trials,
        decisions: Vec::new(),
        worker: Some(worker),
        schedule: Schedule::new(clock.now()),
        changed: BTreeSet::new(),
        tried: BTreeSet::new(),
        registry_jobs: Vec::new(),
        released: BTreeSet::new(),
        replies: Vec::new(),
    };
    Ok((Handle { shared: Arc::new(shared), part: Part::Counted, caller: None }, service))
}

fn policy(config: &Config, tunables: &Tunables) -> Policy {
    Policy {
        idle_ttl: tunables.idle_ttl,
        retain: tunables.retain,
        backoff: outrigger_core::Backoff { first: config.retry.first, most: config.retry.most },
        poll_interval: config.images.poll_interval,
        patience: config.engine.patience,
        max_unproven: config.max_unproven.max(1),
        max_absent: config.max_absent.max(1),
        max_tags: config.max_tags,
        ..Policy::default()
    }
}

impl Service {
    /// Runs until [`Handle::shutdown`], or until every handle is dropped.
    ///
    /// # Errors
    /// [`Error::Journal`] if the store cannot be read at the start.
    pub async fn run(mut self) -> Result<(), Error> {
        metrics::begin();
        outrigger_trials::metrics::begin();
        self.take_over().await?;
        self.verify_later();
        let mut aside = JoinSet::new();
        self.worker.take().map(|worker| aside.spawn(worker.run()));
        aside.spawn(journal::write(Arc::clone(&self.world)));
        self.start_engines(&mut aside);
        let configured = self.world.names.load().begin(&self.world.config.tunables);
        configured.into_iter().for_each(|event| self.apply(event));
        self.apply(Event::Tick);
        self.watch_directories();
        self.collect();
        self.publish().await;
        let stop = loop {
            let mut stop = self.step().await;
            // One write of the journal covers everything that is ready.
            let mut room = BATCH;
            while stop.is_none()
                && room > 0
                && let Some(next) = self.step().now_or_never()
            {
                stop = next;
                room -= 1;
            }
            self.publish().await;
            if let Some(stop) = stop {
                break stop;
            }
        };
        self.stop(stop).await;
        Ok(())
    }

    /// Waits for an event and handles it. Cancel safe.
    async fn step(&mut self) -> Option<Stop> {
        let wake_at = self.wake_at();
        let judging = self.judging();
        // The order of the branches: events that free resources, results of jobs, new commands,
        // engines, directories, canaries, and last the clock. The work under way bounds each of
        // the first three.
        let stop = tokio::select! {
            biased;
            drained = self.versions.drains.take() => self.drained(drained),
            done = self.jobs.next() => self.done(done),
            command = self.commands.recv() => self.command(command),
            Some((engine, event)) = self.engine_events.recv() => self.engine(engine, event),
            Some(model) = self.watches.changed() => self.directory_changed(model),
            () = judging => self.judge(),
            () = sleep_until(wake_at) => self.tick(),
        };
        self.collect();
        stop
    }

    fn wake_at(&mut self) -> tokio::time::Instant {
        let times = [self.machines.wakes_at(), self.machines.patience_ends_at()];
        self.clock.instant(self.schedule.set_wake(times))
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
                versions: self.machines.versions().clone(),
                events: self.engine_reports.clone(),
            }));
        }
    }

    /// Polls the directories that the configuration names.
    fn watch_directories(&mut self) {
        let (names, world) = (self.world.names.load_full(), &self.world);
        let period = world.config.images.directory_poll_interval;
        self.watches.follow(names.directories(), &world.store, period);
    }

    fn directory_changed(&mut self, model: ModelName) -> Option<Stop> {
        let names = self.world.names.load_full();
        let listed = names.directory(&model).and_then(|versions| versions.listed());
        if let Some(listed) = listed {
            self.apply(Event::Listed(model, listed));
        }
        None
    }

    fn engine(&mut self, engine: EngineId, event: run::Event) -> Option<Stop> {
        match event {
            run::Event::Version(message) => self.apply(Event::Engine(engine, message)),
            run::Event::Condition(condition) => self.condition(engine, condition),
            run::Event::Settled => self.sweep(),
        }
        None
    }

    fn condition(&mut self, engine: EngineId, condition: Condition) {
        /// The time within which the failure of a call shows that the engine does not answer.
        const NOTICED: Duration = Duration::from_secs(5);
        let before = self.machines.engines().get(&engine);
        let (restarts, down_since) = before.map_or((0, None), |it| (it.restarts, it.down_since));
        if condition.restarts > restarts {
            let down_at = self.clock.instant(down_since.unwrap_or(self.clock.now()));
            let since = down_at.checked_sub(NOTICED).unwrap_or(down_at);
            let calls = self.world.flights.take_cut_calls(&engine, since);
            self.apply(Event::Restarted(engine.clone(), calls));
        }
        self.apply(Event::Condition(engine, condition));
    }

    fn tick(&mut self) -> Option<Stop> {
        self.apply(Event::Tick);
        let now = self.clock.now();
        if self.schedule.take_uses(now) {
            // Shows the last use of models for which no time is due.
            let names = self.machines.names();
            let used = self.publishing.routing.take_used(&names, now);
            self.apply_at(now, Event::Used(used));
            self.askers.retain(|name, _| names.contains(name));
        }
        if self.schedule.is_sweep_due(now) {
            self.sweep();
        }
        if self.schedule.take_verification(now) {
            self.verify();
        }
        None
    }

    /// Schedules the next verification of versions that are up.
    fn verify_later(&mut self) {
        let config = &self.world.config.images;
        let required = !self.world.signatures.is_empty();
        let at = required.then(|| self.clock.now() + config.poll_interval);
        self.schedule.verify_at(at);
    }

    /// Verifies versions that are up once more: keys may have changed.
    fn verify(&mut self) {
        let up = self.machines.models().filter(|model| model.state().in_engine());
        let keys: Vec<_> = up.map(|model| model.key().clone()).collect();
        let world = Arc::clone(&self.world);
        self.jobs.start(Done::Verified(Vec::new()), async move {
            Done::Verified(signatures::revoked(&world, keys).await)
        });
    }

    fn sweep(&mut self) {
        self.schedule.swept(self.clock.now());
        let known: BTreeSet<_> = self.machines.models().map(|model| model.key().digest).collect();
        let (world, retain) = (Arc::clone(&self.world), self.machines.policy().retain);
        self.jobs.start(Done::Nothing, async move {
            crate::jobs::disk::sweep(&world, known, retain).await;
            Done::Nothing
        });
    }

    /// Passes an event to the machines and carries out their effects. If the event may make
    /// something idle, uses by requests are reported to the machines first.
    pub(crate) fn apply(&mut self, event: Event) {
        let now = self.clock.now();
        if self.schedule.may_have_changed(now) {
            let used = self.publishing.routing.take_used(&self.machines.due(now), now);
            self.apply_at(now, Event::Used(used));
        }
        self.apply_at(now, event);
    }

    fn apply_at(&mut self, now: Moment, event: Event) {
        let effects = self.machines.handle(now, rand::random(), event);
        self.update_files_in_use();
        self.world.flights.set(self.machines.suspects());
        self.update_journal();
        for effect in effects {
            self.carry_out(effect);
        }
    }

    /// Keeps the files that are needed from now on. Others are released with the next publication,
    /// since the journal may still name their versions.
    fn update_files_in_use(&mut self) {
        for (digest, is_needed) in self.machines.take_files_changed() {
            match is_needed {
                true => self.world.keep([digest]),
                false => drop(self.released.insert(digest)),
            }
        }
    }

    /// Passes on the state that must survive a restart, if it has changed.
    fn update_journal(&mut self) {
        let models = self.machines.take_durable();
        let crashes = self.machines.take_crashes();
        if crashes.is_some() {
            let quarantined = self.machines.quarantined().count();
            let unexplained = self.machines.unexplained().map(|(id, it)| (id.clone(), it));
            let unexplained: Vec<_> = unexplained.collect();
            self.publishing.reports.add(move || {
                metrics::quarantined(quarantined);
                metrics::unexplained(unexplained.iter().map(|(id, it)| (id, *it)));
            });
        }
        self.world.durable.update(Changes { models, crashes, canaries: None });
    }

    async fn stop(mut self, stop: Stop) {
        tracing::info!("lifecycle is stopping; the engine keeps its models");
        self.publishing.routing.close();
        let now = self.clock.now();
        self.world.durable.close();
        self.world.durable.update(Changes {
            models: Vec::new(),
            crashes: Some(self.machines.stopped_crashes()),
            canaries: Some(self.trials.record(now)),
        });
        let last = async {
            self.jobs.stop().await;
            // A failure was logged.
            blocking(&self.world, World::write_journal).await.ok();
        };
        if timeout(stop.grace, last).await.is_err() {
            tracing::warn!("the journal was not written within the grace period");
        }
        if let Some(done) = stop.done {
            // The caller may have gone.
            done.send(()).ok();
        }
    }
}

/// The parameters of a stop.
struct Stop {
    grace: Duration,
    done: Option<tokio::sync::oneshot::Sender<()>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{churn, latest, service};

    #[tokio::test(start_paused = true)]
    async fn use_is_reported_to_the_machines_before_anything_could_be_found_idle() {
        let config = Config::default();
        let (idle_ttl, moment) = (config.tunables.idle_ttl, Duration::from_millis(1));
        let (handle, mut service, _dir) = service(config);
        service.apply(Event::Ask(churn(), latest()));
        service.publish_now();
        tokio::time::advance(idle_ttl - moment).await;
        service.apply(Event::Tick);
        service.wake_at();
        assert!(handle.try_acquire(&churn(), &latest(), "").is_none(), "there is nothing yet");
        tokio::time::advance(moment).await;
        // The first event after the idle time need not be a tick: any event must report uses first.
        service.apply(Event::Condition(EngineId::default(), Condition::default()));
        let (_, tag) = service.machines.tags().next().expect("it was asked for");
        assert!(tag.is_followed(service.machines.policy(), service.clock.now()));
    }
}
