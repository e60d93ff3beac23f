//! The one task that owns all machines.

mod bring_ups;
mod commands;
mod effects;
mod publish;
mod reloads;
mod start;
mod steps;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use outrigger_backend::Backend;
use outrigger_core::{
    Digest, Failure, ModelKey, ModelName, Moment, Policy, Selector, Version,
    fleet::{Answer, Event, Fleet, Legacy},
    model, serving, tags,
};
use outrigger_oci::Client;
use outrigger_store::Store;
use outrigger_trials::{Arms, CanaryRecord, Effect as TrialEffect, LocalJudge, Trials, Worker};
use tokio::{
    sync::{Notify, mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{sleep_until, timeout},
};

use self::{bring_ups::BringUps, reloads::Reloads, steps::Steps};
use crate::{
    Config, Error, Handle, Replayed,
    clock::Clock,
    drains::Drains,
    handle::{Command, Shared},
    jobs::{Done, Jobs, Kept, Origin, Prepared},
    lease::Live,
    metrics,
    names::Names,
    recent::Recent,
    routes::{LastAsked, Routes},
    signatures,
    snapshot::Snapshot,
    trial_context::TrialContext,
    watched::Watched,
    world::{World, blocking, defect},
};

/// Demands that may wait to be looked at; more are refused.
const COMMANDS: usize = 4096;
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
    suspect: Arc<Notify>,
    /// What requests get: the backend, watched.
    backend: Arc<dyn Backend>,
    outside: Outside,
    trials: Trials,
    /// Numbers the states of the trials that are written.
    trials_written: u64,
    /// Until it runs.
    worker: Option<Worker>,
    bring_ups: BringUps,
    steps: Steps,
    reloads: Reloads,
    journal: (u64, Arc<Legacy>),
    /// Versions up to this one are of earlier processes.
    inherited: Version,
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
    /// What stands in the way of all that need the engine.
    outage: Option<Answer>,
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
    backend: Arc<dyn Backend>,
) -> Result<(Handle, Service), Error> {
    let names = Arc::new(Names::new(&config)?);
    let signatures = signatures::policy(&config)?;
    let clock = Clock::start();
    let (sender, commands) = mpsc::channel(COMMANDS);
    let outside = Outside::default();
    let (trials, worker) = Trials::new(config.canary.clone(), Box::new(LocalJudge));
    let shared = Shared {
        clock,
        names: Arc::clone(&names),
        routes: Arc::clone(&outside.routes),
        routed: outside.routed.subscribe(),
        snapshot: outside.snapshot.subscribe(),
        canaries: trials.subscribe(),
        commands: sender,
        patience: config.engine.patience,
    };
    let suspect = Arc::new(Notify::new());
    let fleet = Fleet::new(policy(&config), Version(0), clock.now());
    let service = Service {
        backend: Arc::new(Watched::new(Arc::clone(&backend), Arc::clone(&suspect))),
        world: Arc::new(World::new(config, (names, signatures), client, store, backend)),
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
        suspect,
        outside,
        trials,
        trials_written: 0,
        worker: Some(worker),
        bring_ups: BringUps::default(),
        steps: Steps::default(),
        reloads: Reloads::default(),
        journal: (0, Arc::default()),
        inherited: Version(0),
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
        busy_probe: config.engine.busy,
        steady_probe: config.engine.steady,
        patience: config.engine.patience,
        reload_limit: config.engine.reload_limit,
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
        outrigger_trials::metrics::begin();
        self.take_over().await?;
        self.verify_later();
        let mut aside = JoinSet::new();
        self.worker.take().map(|worker| aside.spawn(worker.run()));
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
                () = self.suspect.notified() => self.engine(serving::Event::Suspect),
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

    #[cfg(test)]
    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
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

    fn engine(&mut self, event: serving::Event) -> Option<Stop> {
        self.apply(Event::Engine(event));
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

    /// Waits until the trials are to be judged; for ever when there is none.
    fn judging(&self) -> impl Future<Output = ()> + Send + use<> {
        let at = self.trials.judge_at().map(|at| self.clock.instant(at));
        async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    fn judge(&mut self) -> Option<Stop> {
        self.try_canaries(|trials, cx| trials.judge(cx));
        self.show_canaries();
        None
    }

    /// Shows the canaries as they are now.
    fn show_canaries(&mut self) {
        self.try_canaries(|trials, cx| trials.show(cx));
    }

    /// Takes a step of the trials and carries out its effects.
    fn try_canaries(&mut self, step: impl FnOnce(&mut Trials, &TrialContext<'_>)) {
        let now = self.clock.now();
        let (fleet, kept, live) = (&self.fleet, &self.kept, &self.live);
        step(&mut self.trials, &TrialContext { fleet, kept, live, now });
        for effect in self.trials.take_effects() {
            self.carry_out_trial(effect);
        }
    }

    fn trial_context(&self, now: Moment) -> TrialContext<'_> {
        TrialContext { fleet: &self.fleet, kept: &self.kept, live: &self.live, now }
    }

    fn carry_out_trial(&mut self, effect: TrialEffect) {
        use TrialEffect as E;
        match effect {
            E::Reject(key, canary) => self.apply(Event::Tag(key, tags::Event::Reject(canary))),
            E::Promote(key, canary) => self.apply(Event::Tag(key, tags::Event::Promote(canary))),
            E::LookUp(key) => self.apply(Event::Tag(key, tags::Event::Retry)),
            E::Removed(key) => {
                // Its version still answers those who ask for it by name.
                let used = self.used(self.clock.now());
                self.apply(used);
                self.apply(Event::Tag(key, tags::Event::Removed));
            }
            E::Run(job) => {
                let world = Arc::clone(&self.world);
                self.jobs.start(Done::Trial(job.panicked(defect())), async move {
                    Done::Trial(job.run(&*world).await)
                });
            }
            E::Save(record) => self.save_trials(record),
        }
    }

    fn save_trials(&mut self, record: CanaryRecord) {
        self.trials_written += 1;
        let (world, number) = (Arc::clone(&self.world), self.trials_written);
        self.jobs.start(Done::Nothing, async move {
            blocking(&world, move |world| world.write_canaries(number, &record)).await;
            Done::Nothing
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
        self.reloads.note(&event);
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
        let canaries_number = self.trials_written + 1;
        let canaries = self.trials.record(self.clock.now());
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
    use super::*;
    use crate::rig::{churn, latest, service};

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
        service.apply(Event::Engine(serving::Event::Suspect));
        let (_, tag) = service.fleet.tags().next().expect("it was asked for");
        assert!(tag.is_followed(service.fleet.policy(), service.clock.now()));
    }
}
