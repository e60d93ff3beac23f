//! One server: looks at it, and has it load and unload what the orders say.

mod held;
mod look;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use outrigger_core::{EngineId, Failure, Moment, ServableId};
use outrigger_oip_client::Backoff;
use outrigger_run::{Clock, Start};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use self::held::{Held, Phase};
use crate::{
    Engine,
    fleet::{Away, Orders, Report, Standing},
    framework::Remote,
    servers,
};

/// The time between two questions whether a server is live.
const LIVE: Duration = Duration::from_secs(1);
/// The time between two looks at a server that does not answer.
const AWAY: Duration = Duration::from_millis(500);
/// The least time between two looks because of failed calls.
const SUSPECTED: Duration = Duration::from_millis(100);
/// The pauses between loads that fail while another server has the version.
const LOADS: Backoff = Backoff { first: Duration::from_secs(2), most: Duration::from_secs(60) };

/// Keeps one server as the orders say.
pub(crate) struct Keeper {
    engine: Arc<Engine>,
    id: EngineId,
    clock: Clock,
    server: usize,
    name: Arc<str>,
    orders: watch::Receiver<Orders>,
    reports: mpsc::Sender<(usize, Report)>,
    /// The orders that were taken up.
    taken: Orders,
    held: BTreeMap<ServableId, Held>,
    /// Models to unload that belong to no version any more, in this order.
    stale: Vec<Arc<str>>,
    /// The models that are being unloaded. A version with one of them is loaded afterwards.
    unloading: BTreeSet<Arc<str>>,
    work: JoinSet<Done>,
    state: State,
    /// The last time at which it was known to answer.
    answered: Option<Moment>,
    /// The time of the last look.
    asked: Instant,
    /// The time of the last look at all models.
    looked: Instant,
    last: Option<Report>,
}

/// The server as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Unknown,
    Answers,
    /// It has not answered the last question in time. The next time it counts as away.
    Silent,
    Away(Away),
}

/// The end of a piece of work.
enum Done {
    /// The models that were loaded, and the failure of the next one.
    Loaded(ServableId, Vec<Arc<str>>, Result<(), Failure>),
    /// The version whose models these are, and those that may still be there.
    Unloaded(Option<ServableId>, Vec<Arc<str>>, Vec<Arc<str>>),
}

impl Keeper {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        start: &Start,
        server: usize,
        orders: watch::Receiver<Orders>,
        reports: mpsc::Sender<(usize, Report)>,
        stale: Vec<Arc<str>>,
    ) -> Self {
        let name = engine.client.addresses().nth(server).map_or_else(Arc::default, Arc::clone);
        Self {
            engine: Arc::clone(engine),
            id: start.engine.clone(),
            clock: start.clock,
            server,
            name,
            orders,
            reports,
            taken: Orders::default(),
            held: BTreeMap::new(),
            stale,
            unloading: BTreeSet::new(),
            work: JoinSet::new(),
            state: State::Unknown,
            answered: None,
            asked: Instant::now(),
            looked: Instant::now(),
            last: None,
        }
    }

    /// Works until the engine's task ends.
    pub(crate) async fn run(mut self) {
        let mut is_due = true;
        loop {
            self.obey();
            self.look(is_due).await;
            self.obey();
            self.act();
            self.report().await;
            let next = self.next();
            let suspected = async {
                sleep_until(self.looked + SUSPECTED).await;
                self.engine.client.suspected(self.server).await;
            };
            is_due = tokio::select! {
                changed = self.orders.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    false
                }
                Some(done) = self.work.join_next() => {
                    self.done(done.expect("the work neither panics nor is cancelled"));
                    false
                }
                () = suspected => true,
                () = sleep_until(next) => self.looked.elapsed() >= self.engine.settings.interval,
            };
        }
    }

    /// The time of the next look, if nothing happens before.
    fn next(&self) -> Instant {
        let pause = match self.state {
            State::Away(_) | State::Silent => AWAY,
            State::Unknown | State::Answers => LIVE,
        };
        let next = self.asked + pause.min(self.engine.settings.interval);
        let to_load = self.held.iter().filter(|(id, held)| {
            held.phase == Phase::ToLoad && self.may_load(id) && !self.is_away()
        });
        let now = Instant::now();
        let due = to_load.map(|(_, held)| held.due).filter(|due| *due > now).min();
        due.map_or(next, |due| due.min(next))
    }

    fn is_away(&self) -> bool {
        matches!(self.state, State::Away(_))
    }

    fn may_load(&self, id: &ServableId) -> bool {
        let wanted = self.taken.wanted.get(id);
        wanted.is_some_and(|wanted| wanted.may_load(self.server))
    }

    /// Takes up the latest orders.
    fn obey(&mut self) {
        self.taken = self.orders.borrow_and_update().clone();
        let wanted = &self.taken.wanted;
        let dropped =
            self.held.iter().filter(|(id, held)| !wanted.contains_key(*id) && !held.is_leaving);
        let dropped: Vec<_> = dropped.map(|(id, _)| id.clone()).collect();
        for (id, order) in wanted {
            let engine = &self.engine;
            let held = self.held.entry(id.clone()).or_insert_with(|| Held::new(engine, id));
            if held.since != order.since {
                held.begin(order.since, engine.settings.load);
            }
        }
        for id in dropped {
            self.release(id);
        }
    }

    /// Gives up a version: its models are unloaded, but those that others use.
    fn release(&mut self, id: ServableId) {
        let Some(held) = self.held.get_mut(&id) else { return };
        held.is_leaving = true;
        if held.phase == Phase::Loading {
            // The end of the load goes on with it.
            return;
        }
        let models = std::mem::take(&mut held.loaded);
        let models = self.unused(models.into_iter().rev().collect());
        if self.is_away() {
            self.stale.extend(models);
            self.forget(&id);
        } else if models.is_empty() {
            self.forget(&id);
        } else {
            self.unload(Some(id), models);
        }
    }

    fn forget(&mut self, id: &ServableId) {
        let Some(Held { remote, .. }) = self.held.remove(id) else { return };
        let is_used = self.held.values().any(|other| other.remote == remote);
        if let Some(remote) = remote.filter(|_| !is_used) {
            self.engine.client.forget(self.server, remote.reference());
        }
    }

    /// Those of `models` that no version uses.
    fn unused(&self, mut models: Vec<Arc<str>>) -> Vec<Arc<str>> {
        let staying = self.held.values().filter(|held| !held.is_leaving);
        let used: BTreeSet<_> = staying.flat_map(|held| &held.models).collect();
        models.retain(|model| !used.contains(model));
        models
    }

    fn unload(&mut self, id: Option<ServableId>, models: Vec<Arc<str>>) {
        self.unloading.extend(models.iter().cloned());
        let engine = Arc::clone(&self.engine);
        let server = self.server;
        self.work.spawn(async move {
            let left = servers::unload(&engine, server, &models).await;
            Done::Unloaded(id, models, left)
        });
    }

    /// Starts the loads that are due, and unloads what is left over.
    fn act(&mut self) {
        if self.is_away() {
            return;
        }
        let stale = std::mem::take(&mut self.stale);
        let stale = self.unused(stale);
        if !stale.is_empty() {
            self.unload(None, stale);
        }
        let now = Instant::now();
        let due = self.held.iter().filter(|(id, held)| {
            let waits = held.models.iter().any(|model| self.unloading.contains(model));
            let is_due = held.phase == Phase::ToLoad && held.due <= now && !held.is_leaving;
            is_due && !waits && self.may_load(id)
        });
        for id in due.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            let Some(held) = self.held.get_mut(&id) else { continue };
            held.phase = Phase::Loading;
            held.standing = Standing::Pending;
            let engine = Arc::clone(&self.engine);
            let server = self.server;
            let models = held.models.clone();
            self.work.spawn(async move {
                let (loaded, result) = servers::load(&engine, server, &models).await;
                Done::Loaded(id, loaded, result)
            });
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Loaded(id, loaded, result) => self.loaded(id, loaded, result),
            Done::Unloaded(id, models, left) => {
                self.unloading.retain(|model| !models.contains(model));
                self.stale.extend(left);
                if let Some(id) = id {
                    self.forget(&id);
                }
            }
        }
    }

    fn loaded(&mut self, id: ServableId, loaded: Vec<Arc<str>>, result: Result<(), Failure>) {
        let Some(held) = self.held.get_mut(&id) else { return };
        held.loaded = loaded;
        held.phase = Phase::Loaded;
        if held.is_leaving {
            return self.release(id);
        }
        if let Err(failure) = result {
            if held.failures == 0 {
                tracing::warn!(
                    engine = %self.id, server = %self.name, servable = %id, %failure,
                    "a server did not load a model"
                );
            }
            held.failed(failure, LOADS);
        }
    }

    /// Reports what has changed, and takes the server into rotation for the models that it has.
    async fn report(&mut self) {
        if self.state == State::Unknown || self.state == State::Silent {
            return;
        }
        self.rotate();
        let state = match &self.state {
            State::Away(away) => Err(away.clone()),
            _ => Ok(self.held.iter().map(|(id, held)| (id.clone(), held.standing())).collect()),
        };
        let withdrawn = self.engine.client.withdrawn(self.server);
        let remark = (!withdrawn.is_empty())
            .then(|| format!("fails the calls of {}, which others get", withdrawn.join(", ")));
        let report = Report { generation: self.taken.generation, state, remark };
        if self.last.as_ref() != Some(&report) {
            self.last = Some(report.clone());
            // The receiver ends with the engine's task.
            self.reports.send((self.server, report)).await.ok();
        }
    }

    fn rotate(&self) {
        let client = &self.engine.client;
        if self.is_away() {
            return;
        }
        let mut has: BTreeMap<&Remote, bool> = BTreeMap::new();
        for held in self.held.values().filter(|held| !held.is_leaving) {
            if let Some(remote) = &held.remote {
                *has.entry(remote).or_default() |= held.standing == Standing::Ready;
            }
        }
        for (remote, has) in has {
            client.set_absent(self.server, remote.reference(), !has);
        }
        client.set_away(self.server, false);
    }
}
