//! An engine that versions end.

use super::*;
use crate::crashes::CutCalls;

/// The way in which a killer ends the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kills {
    Load,
    FirstRun,
    Calls,
}

/// The machines, and an engine that restarts when a killer ends it.
pub(super) struct World {
    pub(super) machines: Machines,
    pub(super) now: Moment,
    pub(super) killers: BTreeMap<ModelKey, Kills>,
    /// The number of versions whose load takes all memory of the engine.
    pub(super) too_many: usize,
    /// True if the failure of a first run is seen before the engine's end.
    pub(super) is_seen_late: bool,
    has_ended: bool,
    /// True if the callers of killers cease to wait before the engine ends.
    pub(super) is_abandoned: bool,
    /// Versions with a call whose caller ceased to wait before the engine's end.
    abandoned: BTreeSet<ModelKey>,
    /// Versions that the engine is loading, in order, and those that are up.
    pub(super) loading: VecDeque<ServableId>,
    pub(super) up: BTreeSet<ServableId>,
    pub(super) crashes: u64,
    condition: Condition,
}

pub(super) const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
pub(super) const STEP: Duration = Duration::from_millis(100);

impl World {
    pub(super) fn new(killers: &[(&str, Kills)]) -> Self {
        let mut world = Self {
            machines: machines(Versions::after(Version(0))),
            now: Moment::at(Duration::from_secs(1)),
            killers: killers.iter().map(|(text, kills)| (model(text), *kills)).collect(),
            too_many: usize::MAX,
            is_seen_late: false,
            has_ended: false,
            is_abandoned: false,
            abandoned: BTreeSet::new(),
            loading: VecDeque::new(),
            up: BTreeSet::new(),
            crashes: 0,
            condition: Condition::up(),
        };
        world.handle(Event::Condition(EngineId::default(), Condition::up()));
        world
    }

    pub(super) fn handle(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.machines.handle(self.now, 0.5, event) {
                events.extend(self.carry_out(effect));
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Option<Event> {
        use model::Effect as M;
        let on = |key, event| Some(Event::Model(key, event));
        match effect {
            Effect::Resolve(key, attempt) => {
                let digest = Digest::of(key.name.as_str().as_bytes());
                Some(Event::Tag(key, tags::Event::Resolved(attempt, Ok(digest))))
            }
            Effect::Switched(..) | Effect::LoadFailed(..) | Effect::CrashesUnexplained(_) => None,
            Effect::Model(key, M::Pull(it)) => on(key, model::Event::Pulled(it, Ok(()))),
            Effect::Model(key, M::Prepare(it)) => {
                on(key, model::Event::Prepared(it, Ok(EngineId::default())))
            }
            Effect::Model(key, M::Publish(it, _)) => on(key, model::Event::Published(it, Ok(()))),
            Effect::Model(key, M::Check(it, _)) => {
                match self.killers.get(&key) == Some(&Kills::FirstRun) {
                    true if self.is_seen_late => {
                        self.has_ended = true;
                        on(key, model::Event::Checked(it, Err(down())))
                    }
                    true => {
                        // The loss of its call is not always known: the call belongs to the
                        // version's plan, which may be dropped before the engine is back.
                        self.crash(BTreeSet::new());
                        on(key, model::Event::Checked(it, Err(down())))
                    }
                    false => on(key, model::Event::Checked(it, Ok(()))),
                }
            }
            Effect::Model(key, M::Withdraw(route)) => on(key, model::Event::Drained(route)),
            Effect::Model(key, M::Delete(it)) => on(key, model::Event::Deleted(it)),
            Effect::Model(..) => None,
            Effect::Engine(engine, message) => {
                let gone = self.message(message)?;
                Some(Event::Engine(engine, gone))
            }
        }
    }

    fn message(&mut self, message: ToEngine) -> Option<FromEngine> {
        match message {
            ToEngine::Add(id) => self.loading.push_back(id),
            ToEngine::Remove(id) => {
                self.loading.retain(|it| *it != id);
                self.up.remove(&id);
                return Some(FromEngine::Gone(id));
            }
            ToEngine::Expect(_) | ToEngine::Unexpect(_) => {}
        }
        None
    }

    /// The engine ends, which cuts calls of `lost` off, and comes back empty.
    pub(super) fn crash(&mut self, lost: BTreeSet<ModelKey>) {
        self.end();
        self.now = self.now + STEP;
        self.come_back(lost);
    }

    /// The engine ends.
    pub(super) fn end(&mut self) {
        self.crashes += 1;
        let down = Condition { reachable: Some(false), ..self.condition.clone() };
        self.handle(Event::Condition(EngineId::default(), down));
    }

    /// The engine comes back empty. Its end has cut calls of `lost` off.
    pub(super) fn come_back(&mut self, lost: BTreeSet<ModelKey>) {
        let engine = EngineId::default();
        let had: Vec<_> = self.loading.drain(..).chain(std::mem::take(&mut self.up)).collect();
        let calls = CutCalls { lost, abandoned: std::mem::take(&mut self.abandoned) };
        self.handle(Event::Restarted(engine.clone(), calls));
        self.condition.restarts += 1;
        self.handle(Event::Condition(engine.clone(), self.condition.clone()));
        for id in had {
            self.handle(Event::Engine(engine.clone(), FromEngine::Lost(id)));
        }
    }

    /// The engine loads the next version, or requests run: a call of each killer, and others.
    pub(super) fn work(&mut self, others: &BTreeSet<usize>) {
        match self.loading.is_empty() {
            true => self.call(others),
            false => self.load(others),
        }
    }

    /// The engine loads the next version, with calls of others in flight.
    pub(super) fn load(&mut self, others: &BTreeSet<usize>) {
        let Some(id) = self.loading.pop_front() else { return };
        let owner = self.machines.owner(&id);
        let kills = owner.is_some_and(|key| self.killers.get(key) == Some(&Kills::Load));
        if kills || self.up.len() + 1 >= self.too_many {
            self.loading.push_front(id);
            let calls = self.calls(others);
            return self.crash(calls);
        }
        self.up.insert(id.clone());
        self.handle(Event::Engine(EngineId::default(), FromEngine::Up(id)));
    }

    /// The first killer that may make a call does so, with calls of others in flight.
    fn call(&mut self, others: &BTreeSet<usize>) {
        let mut killers = self.killers.iter().filter(|(_, kills)| **kills == Kills::Calls);
        let Some(killer) = killers.find(|(key, _)| self.may_call(key)) else { return };
        let killer = killer.0.clone();
        let mut calls = self.calls(others);
        let suspects = self.machines.suspects();
        if let Some(suspects) = suspects.get(&EngineId::default()).filter(|it| it.are_apart) {
            calls.retain(|key| !suspects.versions.contains(key));
        }
        let to = if self.is_abandoned { &mut self.abandoned } else { &mut calls };
        to.insert(killer);
        self.crash(calls);
    }

    fn calls(&self, others: &BTreeSet<usize>) -> BTreeSet<ModelKey> {
        let names = others.iter().map(|index| model(NAMES[*index]));
        names.filter(|key| !self.killers.contains_key(key) && self.may_call(key)).collect()
    }

    pub(super) fn may_call(&self, key: &ModelKey) -> bool {
        let suspects = self.machines.suspects();
        let suspects = suspects.get(&EngineId::default());
        let waits = suspects.is_some_and(|it| it.are_loading && it.versions.contains(key));
        self.is_ready(key) && !waits
    }

    pub(super) fn is_ready(&self, key: &ModelKey) -> bool {
        matches!(self.machines.answer_digest(key, self.now), Answer::Ready(..))
    }

    pub(super) fn pass(&mut self) {
        if std::mem::take(&mut self.has_ended) {
            self.crash(BTreeSet::new());
        }
        self.pass_until(self.now + STEP);
    }

    pub(super) fn pass_until(&mut self, until: Moment) {
        while let Some(at) = self.machines.wakes_at().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.handle(Event::Tick);
        }
        self.now = until;
    }

    /// Lets the engine work with these calls in flight, in turns.
    pub(super) fn run(&mut self, calls: &[BTreeSet<usize>]) {
        for others in calls.iter().cycle().take(400) {
            self.work(others);
            self.pass();
        }
    }
}

pub(super) fn machines(versions: Versions) -> Machines {
    Machines::new(Policy::default(), versions, [EngineId::default()])
}
