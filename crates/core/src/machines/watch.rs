//! Versions that may end an engine: they are loaded by themselves, or not at all.

pub(super) mod view;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub use view::Suspects;

use super::{Effect, Event, Machines, Turn};
use crate::{
    Crashes, EngineId, Failure, ModelKey, Moment, ServableId,
    crashes::{CutCalls, Verdict},
    engine::{Condition, ToEngine},
    model::{self, ModelMachine, State},
};

/// The time for which all other versions serve before a version is loaded that most likely ends the
/// engine.
const SETTLE: Duration = Duration::from_secs(2);
/// The longest such time for a version that the next crash during its calls convicts.
const LONGEST: Duration = Duration::from_secs(30);
/// The time after a restart in which the engine reports the versions that were lost.
const LOSSES: Duration = Duration::from_millis(200);
/// The time for which suspected versions wait for others to be loaded.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same time for a version that most likely ends the engine. At a crash while others are being
/// loaded, one of those may be the cause as well.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

/// The suspected versions of one engine.
#[derive(Debug, Default)]
pub(super) struct Watch {
    crashes: Crashes,
    /// Versions whose load waits for its turn.
    held: BTreeMap<ModelKey, ServableId>,
    /// The number of turns that each held version has had in this series of crashes.
    turns: BTreeMap<ModelKey, u32>,
    /// Versions that were being loaded when the engine ceased to answer.
    cut_off: Option<BTreeSet<ModelKey>>,
    /// Versions whose first run got no answer, and that have not come up since. The engine's end may
    /// be seen later than the end of the call.
    unanswered: BTreeSet<ModelKey>,
    /// The earliest time of the next load of a held version.
    from: Moment,
    /// The last time at which a version was being loaded.
    busy_at: Moment,
    /// The last restart in this series of crashes, and the shortest time between two.
    last: Option<Moment>,
    shortest: Option<Duration>,
    /// The time from which the next held version waits for the load of others.
    patient_from: Moment,
}

impl Watch {
    /// Forgets the versions for which `is_known` returns false, unless they are suspected.
    pub(super) fn retain(&mut self, is_known: impl Fn(&ModelKey) -> bool) {
        self.crashes.retain(is_known);
    }

    /// The time for which all other versions serve before `key` is loaded. If something outside of
    /// the engine kills it every few seconds, it does so in this time as well, which clears a version
    /// that would be convicted next.
    fn settle(&self, key: &ModelKey) -> Duration {
        let shortest = self.shortest.filter(|_| self.crashes.is_next(key));
        shortest.map_or(SETTLE, |shortest| (shortest * 3).clamp(SETTLE, LONGEST))
    }

    /// Records a restart.
    fn restarted(&mut self, now: Moment) {
        let since = self.last.replace(now).map(|last| now.since(last));
        self.shortest = self.shortest.into_iter().chain(since).min();
    }
}

impl Machines {
    /// Takes up the suspicion of an earlier process. `epoch` is the time since 1970 at which the
    /// clock of all moments began. Must be called before [`Machines::adopt`].
    pub fn adopt_crashes(&mut self, crashes: BTreeMap<EngineId, Crashes>, epoch: Duration) {
        self.epoch = epoch;
        for (engine, crashes) in crashes {
            self.watches.insert(engine, Watch { crashes, ..Watch::default() });
        }
        self.crashes_changed = true;
    }

    /// The time since 1970.
    fn time(&self, now: Moment) -> Duration {
        self.epoch + now.elapsed()
    }

    fn watch(&mut self, engine: &EngineId) -> &mut Watch {
        self.crashes_changed = true;
        self.watches.entry(engine.clone()).or_default()
    }

    pub(super) fn condition(&mut self, engine: EngineId, condition: Condition) {
        let before = self.engines.get(&engine).and_then(|before| before.reachable);
        match condition.reachable {
            Some(false) if before != Some(false) => {
                let loading = self.being_loaded(&engine);
                self.watches.entry(engine.clone()).or_default().cut_off = Some(loading);
            }
            Some(true) => {
                self.watches.get_mut(&engine).into_iter().for_each(|watch| watch.cut_off = None);
            }
            _ => {}
        }
        self.engines.insert(engine, condition);
    }

    /// Handles a restart of `engine`, which cut `calls` off.
    pub(super) fn restarted(&mut self, turn: &mut Turn, engine: &EngineId, calls: CutCalls) {
        let now = self.time(turn.now);
        let cut_off = self.watches.get_mut(engine).and_then(|watch| watch.cut_off.take());
        let mut loading = cut_off.unwrap_or_else(|| self.being_loaded(engine));
        // A version that lost a call and does not serve was at its first run.
        let is_up = |key: &ModelKey| self.models.get(key).is_some_and(serves);
        let (lost, first): (BTreeSet<_>, BTreeSet<_>) = calls.lost.into_iter().partition(is_up);
        loading.extend(first);
        let calls =
            CutCalls { lost, abandoned: calls.abandoned.into_iter().filter(is_up).collect() };
        let watch = self.watch(engine);
        loading.extend(std::mem::take(&mut watch.unanswered));
        watch.patient_from = turn.now;
        (watch.from, watch.busy_at) = (turn.now + LOSSES, turn.now);
        watch.restarted(turn.now);
        let calling = calls.calling(&watch.crashes);
        let verdict = watch.crashes.crashed(now, &loading, &calling);
        self.execute(turn, engine, verdict);
    }

    fn execute(&mut self, turn: &mut Turn, engine: &EngineId, verdict: Verdict) {
        let Verdict { convicted, released, is_unexplained } = verdict;
        if is_unexplained {
            turn.effects.push(Effect::CrashesUnexplained(engine.clone()));
        }
        for key in released {
            turn.events.push_back(Event::Model(key, model::Event::Retry));
        }
        let Some(key) = convicted else { return };
        let Some(failure) = self.watches[engine].crashes.failure(&key) else { return };
        let in_engine =
            |state: &&State| state.in_engine() && !matches!(state, State::Unloading { .. });
        let state = self.models.get(&key).map(ModelMachine::state).filter(in_engine);
        let event = match state.and_then(State::servable).cloned() {
            Some(id) => model::Event::LoadFailed(id, failure.clone()),
            None => model::Event::Quarantined(failure.clone()),
        };
        turn.effects.push(Effect::LoadFailed(key.clone(), failure));
        turn.events.push_back(Event::Model(key, event));
    }

    /// The versions that were given to `engine` and have not passed their first run yet.
    fn being_loaded(&self, engine: &EngineId) -> BTreeSet<ModelKey> {
        let held = self.watches.get(engine).map(|watch| &watch.held);
        let is_held = |key: &ModelKey| held.is_some_and(|held| held.contains_key(key));
        let loading = self.models.values().filter(|model| {
            matches!(model.state(), State::Loading { .. } | State::Checking { .. })
                && self.engine_of(model.key()) == Some(engine)
                && !is_held(model.key())
        });
        loading.map(|model| model.key().clone()).collect()
    }

    /// Gives a version to its engine, unless its load has to wait or must not take place.
    pub(super) fn load(&mut self, turn: &mut Turn, key: &ModelKey, id: ServableId) {
        let engine =
            self.placed.get(key).expect("a version is prepared before it is loaded").clone();
        let convicted = self.conviction(key);
        let watch = self.watch(&engine);
        if convicted.is_some() || watch.crashes.is_suspect(key) {
            watch.held.insert(key.clone(), id.clone());
            if let Some(failure) = convicted {
                let failed = model::Event::LoadFailed(id, failure);
                turn.events.push_back(Event::Model(key.clone(), failed));
            }
            return;
        }
        watch.crashes.load(key);
        turn.effects.push(Effect::Engine(engine, ToEngine::Add(id)));
    }

    /// Takes a version from its engine.
    pub(super) fn unload_from_engine(&mut self, turn: &mut Turn, key: &ModelKey, id: ServableId) {
        let engine =
            self.placed.get(key).expect("a version is prepared before it is loaded").clone();
        let watch = self.watch(&engine);
        watch.crashes.left(key);
        match watch.held.remove(key) {
            // The engine never had it, or has forgotten it.
            Some(_) => turn.events.push_back(Event::Model(key.clone(), model::Event::Gone(id))),
            None => turn.effects.push(Effect::Engine(engine, ToEngine::Remove(id))),
        }
    }

    /// Records that a version has passed the gate.
    pub(super) fn arrived(&mut self, key: &ModelKey) {
        if let Some(engine) = self.placed.get(key).cloned() {
            let watch = self.watch(&engine);
            watch.unanswered.remove(key);
            watch.crashes.arrived(key);
        }
    }

    /// Records that the first run of a version got no answer.
    pub(super) fn unanswered(&mut self, key: &ModelKey) {
        if let Some(engine) = self.placed.get(key).cloned() {
            self.watch(&engine).unanswered.insert(key.clone());
        }
    }

    /// Drops data about a version whose machine is dropped.
    pub(super) fn unwatch(&mut self, key: &ModelKey) {
        for watch in self.watches.values_mut() {
            watch.turns.remove(key);
            watch.unanswered.remove(key);
            self.crashes_changed |= watch.crashes.forget(key);
        }
    }

    /// Begins the trials that are due.
    pub(super) fn try_again(&mut self, turn: &mut Turn) {
        let now = self.time(turn.now);
        for watch in self.watches.values_mut() {
            if let Some(key) = watch.crashes.try_again(now) {
                self.crashes_changed = true;
                turn.events.push_back(Event::Model(key, model::Event::Retry));
            }
        }
    }

    /// Loads the versions whose turn has come.
    pub(super) fn release(&mut self, turn: &mut Turn) {
        let now = self.time(turn.now);
        let engines: Vec<_> = self.watches.keys().cloned().collect();
        for engine in engines {
            let has_expired =
                self.watches.get_mut(&engine).is_some_and(|it| it.crashes.expire(now));
            self.crashes_changed |= has_expired;
            if has_expired {
                let watch = self.watch(&engine);
                watch.turns.clear();
                (watch.last, watch.shortest) = (None, None);
            }
            while let Some((key, id)) = self.next_load(turn.now, &engine) {
                self.changed.insert(key.name.clone());
                let watch = self.watch(&engine);
                watch.held.remove(&key);
                *watch.turns.entry(key.clone()).or_default() += 1;
                watch.crashes.load(&key);
                (watch.busy_at, watch.patient_from) = (turn.now, turn.now);
                turn.effects.push(Effect::Engine(engine.clone(), ToEngine::Add(id)));
            }
        }
    }

    /// The next version to load in `engine`: at once if it is not suspected any more, else when
    /// nothing else is being loaded, and graver suspects when that has been so for a while. Of equal
    /// ones those with fewer turns come first, so that each comes up at times even if crashes cut
    /// the others off, and the newest comes last.
    fn next_load(&mut self, now: Moment, engine: &EngineId) -> Option<(ModelKey, ServableId)> {
        if !self.is_reachable(engine) || self.watches[engine].held.is_empty() {
            return None;
        }
        let is_busy = self.is_loading(engine);
        let watch = self.watches.get_mut(engine)?;
        let Watch { crashes, held, turns, .. } = watch;
        let waits = |key: &ModelKey| crashes.convicted().contains_key(key);
        let rank = |(key, id): &(&ModelKey, &ServableId)| {
            let turns = turns.get(*key).copied().unwrap_or_default();
            (crashes.is_suspect(key), crashes.is_grave(key), turns, id.version)
        };
        let next = held.iter().filter(|(key, _)| !waits(key)).min_by_key(rank);
        let (key, id) = next.map(|(key, id)| (key.clone(), id.clone()))?;
        if !crashes.is_suspect(&key) {
            return Some((key, id));
        }
        let patience = if crashes.is_grave(&key) { LONG_PATIENCE } else { PATIENCE };
        if is_busy && now < watch.patient_from + patience {
            watch.busy_at = now;
            return None;
        }
        if now < watch.from {
            return None;
        }
        let is_due = !crashes.is_grave(&key) || now >= watch.busy_at + watch.settle(&key);
        is_due.then_some((key, id))
    }

    /// True while `engine` loads or checks a version.
    fn is_loading(&self, engine: &EngineId) -> bool {
        let held = &self.watches[engine].held;
        self.models.values().any(|model| {
            matches!(model.state(), State::Loading { .. } | State::Checking { .. })
                && self.engine_of(model.key()) == Some(engine)
                && !held.contains_key(model.key())
        })
    }

    /// The next time at which a held version may be loaded, or a suspicion ends.
    pub(super) fn watches_wake_at(&self) -> Option<Moment> {
        let times = self.watches.values().flat_map(|watch| {
            let is_held = !watch.held.is_empty();
            let patience = [PATIENCE, LONG_PATIENCE].map(|it| watch.patient_from + it);
            let settled = watch.held.keys().map(|key| watch.busy_at + watch.settle(key));
            let turns = settled.chain([watch.from]).chain(patience);
            let changes = [watch.crashes.expires_at(), watch.crashes.tries_at()];
            let changes = changes.into_iter().flatten();
            let changes = changes.map(|at| Moment::at(at.saturating_sub(self.epoch)));
            turns.filter(move |_| is_held).chain(changes)
        });
        times.filter(|at| *at > self.ticked_at).min()
    }

    /// The failure of a version that was convicted.
    pub(super) fn conviction(&self, key: &ModelKey) -> Option<Failure> {
        self.watches.values().find_map(|watch| watch.crashes.failure(key))
    }

    /// Loads a version again although it was convicted.
    pub(super) fn pardon(&mut self, key: &ModelKey) {
        for watch in self.watches.values_mut() {
            self.crashes_changed |= watch.crashes.convicted().contains_key(key);
            watch.crashes.pardon(key);
        }
    }

    /// The suspicion to store for the process that follows this one, if it may have changed since the
    /// last call.
    pub fn take_crashes(&mut self) -> Option<BTreeMap<EngineId, Crashes>> {
        std::mem::take(&mut self.crashes_changed).then(|| self.crashes())
    }

    /// The suspicion to store for the process that follows this one.
    pub fn crashes(&self) -> BTreeMap<EngineId, Crashes> {
        let each = self.watches.iter();
        each.map(|(engine, watch)| (engine.clone(), watch.crashes.clone())).collect()
    }

    /// The suspicion to store when the process ends in order.
    pub fn stopped_crashes(&mut self) -> BTreeMap<EngineId, Crashes> {
        self.watches.values_mut().for_each(|watch| watch.crashes.stop());
        self.crashes()
    }
}

/// Whether requests use the version.
fn serves(model: &ModelMachine) -> bool {
    matches!(model.state(), State::Serving { .. } | State::Draining { .. })
}
