//! A world for the fleet: registry, disk, engine and requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use outrigger_core::{
    Attempt, Digest, Failure, ModelKey, ModelName, Moment, Policy, Reason, Selector, ServableId,
    Tag, Version,
    fleet::{Answer, Effect, Event, Fleet, TagKey},
    model::{self, Fault},
    serving::{self, EngineState, PushOutcome, Seen, ServingSet},
    tags,
};

/// Something that happens.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    AskTag(u8),
    AskDigest(u8, u8),
    Load(u8),
    Unload(u8, bool),
    MoveTag(u8, u8),
    Complete(u8),
    Fail(u8),
    Repeat(u8),
    EngineWorks,
    LoadFails(u8),
    EngineRestarts,
    EngineDies,
    ReloadHangs,
    Lease(u8),
    Release(u8),
    Evict(u8),
    /// Tenths of a second.
    Pass(u16),
}

/// Work that the fleet wants done and that has not ended.
#[derive(Debug, Clone)]
enum Job {
    Resolve(TagKey, Attempt),
    Pull(ModelKey, Attempt),
    Prepare(ModelKey, Attempt),
    Publish(ModelKey, Attempt, ServableId),
    Check(ModelKey, Attempt),
    Delete(ModelKey, Attempt),
    Placeholder(Attempt, ServableId),
    Probe(Attempt, BTreeSet<outrigger_core::ServableName>),
}

/// A reload that the engine has got.
#[derive(Debug, Clone)]
struct Reload {
    attempt: Attempt,
    set: ServingSet,
    taken: bool,
    hangs: bool,
    answered: bool,
}

#[derive(Debug, Default)]
struct Engine {
    up: bool,
    config: ServingSet,
    states: BTreeMap<ServableId, EngineState>,
}

pub(crate) struct World {
    now: Moment,
    fleet: Fleet,
    tags: BTreeMap<u8, u8>,
    jobs: Vec<Job>,
    past: Vec<Event>,
    engine: Engine,
    reload: Option<Reload>,
    trees: BTreeSet<Digest>,
    links: BTreeSet<ServableId>,
    versions: BTreeSet<ServableId>,
    /// Routes by model: whether it is still published, and its leases.
    routes: BTreeMap<ModelKey, (u64, bool, usize)>,
}

fn name(index: u8) -> ModelName {
    ["a", "b", "c"][usize::from(index % 3)].parse().expect("valid")
}

fn digest(index: u8) -> Digest {
    Digest::of(&[index % 4])
}

fn tag_key(index: u8) -> TagKey {
    TagKey { name: name(index), tag: tag() }
}

fn tag() -> Tag {
    "latest".parse().expect("valid")
}

fn down() -> Failure {
    Failure::new(Reason::EngineUnavailable, "down")
}

fn policy() -> Policy {
    Policy {
        idle_ttl: Duration::from_secs(60),
        retain: Duration::from_secs(600),
        reload_limit: Duration::from_secs(120),
        ..Policy::default()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let now = Moment::at(Duration::from_secs(1));
        let mut fleet = Fleet::new(policy(), Version(1000), now);
        fleet.follow(tag_key(0), now);
        let mut world = Self {
            now,
            fleet,
            tags: BTreeMap::from([(0, 0), (1, 1), (2, 2)]),
            jobs: Vec::new(),
            past: Vec::new(),
            engine: Engine { up: true, ..Engine::default() },
            reload: None,
            trees: BTreeSet::new(),
            links: BTreeSet::new(),
            versions: BTreeSet::new(),
            routes: BTreeMap::new(),
        };
        world.handle(Event::Tick);
        world
    }

    pub(crate) fn step(&mut self, step: Step) {
        match step {
            Step::AskTag(i) => self.handle(Event::Ask(name(i), Selector::Tag(tag()))),
            Step::AskDigest(i, d) => {
                self.handle(Event::Ask(name(i), Selector::Digest(digest(d))));
            }
            Step::Load(i) => self.handle(Event::Load(name(i), Selector::Tag(tag()))),
            Step::Unload(i, delete) => {
                let selector = Selector::Tag(tag());
                self.handle(Event::Unload { name: name(i), selector, delete });
            }
            Step::MoveTag(i, d) => drop(self.tags.insert(i, d)),
            Step::Complete(n) => self.complete(n, true),
            Step::Fail(n) => self.complete(n, false),
            Step::Repeat(n) => self.repeat(n),
            Step::EngineWorks => self.engine_works(None),
            Step::LoadFails(n) => self.engine_works(Some(n)),
            Step::EngineRestarts => self.engine_restarts(),
            Step::EngineDies => self.engine_dies(),
            Step::ReloadHangs => self.reload.iter_mut().for_each(|reload| reload.hangs = true),
            Step::Lease(i) => self.lease(i),
            Step::Release(n) => self.release(n),
            Step::Evict(n) => self.evict(n),
            Step::Pass(tenths) => self.pass(Duration::from_millis(u64::from(tenths) * 100)),
        }
    }

    fn handle(&mut self, event: Event) {
        if self.past.len() < 500 {
            self.past.push(event.clone());
        }
        let effects = self.fleet.handle(self.now, 0.5, event);
        effects.into_iter().for_each(|effect| self.carry_out(effect));
        assert_eq!(self.fleet.counts().unexpected, 0);
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Resolve(key, attempt) => self.jobs.push(Job::Resolve(key, attempt)),
            Effect::Switched(..) | Effect::LoadFailed(..) => {}
            Effect::Model(key, effect) => self.carry_out_model(key, effect),
            Effect::Engine(effect) => self.carry_out_engine(effect),
        }
    }

    fn carry_out_model(&mut self, key: ModelKey, effect: model::Effect) {
        use model::Effect as E;
        match effect {
            E::Pull(attempt) => self.jobs.push(Job::Pull(key, attempt)),
            E::CancelPull(attempt) => {
                let cancelled =
                    |job: &Job| matches!(job, Job::Pull(k, a) if *k == key && *a == attempt);
                self.jobs.retain(|job| !cancelled(job));
            }
            E::Prepare(attempt) => self.jobs.push(Job::Prepare(key, attempt)),
            E::Publish(attempt, id) => {
                assert!(self.versions.insert(id.clone()), "{id} is used twice");
                self.jobs.push(Job::Publish(key, attempt, id));
            }
            E::Unpublish(id) => self.unlink(&id),
            E::Check(attempt, _) => self.jobs.push(Job::Check(key, attempt)),
            E::Route(id, route) => {
                assert!(self.links.contains(&id));
                let leases = match self.routes.get(&key) {
                    // Leases of the route before are of the same servable.
                    Some((_, _, leases)) if *leases > 0 => *leases,
                    _ => 0,
                };
                self.routes.insert(key, (route, true, leases));
            }
            E::Withdraw(route) => {
                let entry = self.routes.get_mut(&key).expect("it was routed");
                assert_eq!((entry.0, entry.1), (route, true));
                entry.1 = false;
                self.drain(&key);
            }
            E::Delete(attempt) => {
                assert!(!self.routes.contains_key(&key), "{key} is deleted in use");
                self.jobs.push(Job::Delete(key, attempt));
            }
            E::Add(_) | E::Remove(_) => panic!("not for the world"),
        }
    }

    fn carry_out_engine(&mut self, effect: serving::Effect) {
        use serving::Effect as E;
        match effect {
            E::PublishPlaceholder(attempt, id) => {
                assert!(self.versions.insert(id.clone()), "{id} is used twice");
                self.jobs.push(Job::Placeholder(attempt, id));
            }
            E::Unpublish(id) => self.unlink(&id),
            E::Push(attempt, set) => {
                if let Some(before) = &self.reload {
                    assert!(before.answered, "two reloads on their way");
                }
                for id in ids(&set) {
                    assert!(self.links.contains(&id), "{id} is pushed and not published");
                }
                let reload = Reload { attempt, set, taken: false, hangs: false, answered: false };
                self.reload = Some(reload);
            }
            E::Probe(attempt, names) => self.jobs.push(Job::Probe(attempt, names)),
            E::Restarted | E::Settled => {}
            E::Up(_) | E::Failed(..) | E::Lost(_) | E::Gone(_) => panic!("not for the world"),
        }
    }

    fn unlink(&mut self, id: &ServableId) {
        let configured = self.engine.config.get(&id.name);
        let configured = configured.is_some_and(|versions| versions.contains(&id.version));
        assert!(!configured, "{id} is configured and loses its files");
        self.links.remove(id);
    }

    fn complete(&mut self, n: u8, well: bool) {
        if self.jobs.is_empty() {
            return self.answer_reload(well);
        }
        let index = usize::from(n) % self.jobs.len();
        let job = self.jobs.remove(index);
        if let Some(event) = self.outcome(job, well) {
            self.handle(event);
        }
    }

    fn outcome(&mut self, job: Job, well: bool) -> Option<Event> {
        let failure = || Failure::new(Reason::RegistryUnavailable, "not now");
        let result = |well: bool| if well { Ok(()) } else { Err(Fault::Failed(failure())) };
        let on = |key: ModelKey, event| Some(Event::Model(key, event));
        match job {
            Job::Resolve(key, attempt) => {
                let index = ["a", "b", "c"].iter().position(|text| *text == key.name.as_str());
                let index = u8::try_from(index.expect("one of them")).expect("small");
                let found = digest(self.tags[&index]);
                let result = if well { Ok(found) } else { Err(failure()) };
                Some(Event::Tag(key, tags::Event::Resolved(attempt, result)))
            }
            Job::Pull(key, attempt) => {
                self.trees.extend(well.then_some(key.digest));
                on(key, model::Event::Pulled(attempt, result(well)))
            }
            Job::Prepare(key, attempt) => {
                let there = self.trees.contains(&key.digest);
                let result = if there { result(well) } else { Err(Fault::FilesMissing) };
                on(key, model::Event::Prepared(attempt, result))
            }
            Job::Publish(key, attempt, id) => {
                let there = self.trees.contains(&key.digest);
                let result = if there { result(well) } else { Err(Fault::FilesMissing) };
                self.links.extend(result.is_ok().then_some(id));
                on(key, model::Event::Published(attempt, result))
            }
            Job::Check(key, attempt) => {
                let result = if well { Ok(()) } else { Err(down()) };
                on(key, model::Event::Checked(attempt, result))
            }
            Job::Delete(key, attempt) => {
                self.trees.remove(&key.digest);
                on(key, model::Event::Deleted(attempt))
            }
            Job::Placeholder(attempt, id) => {
                self.links.extend(well.then(|| id.clone()));
                let result = if well { Ok(()) } else { Err(failure()) };
                let event = serving::Event::PlaceholderPublished(attempt, id, result);
                Some(Event::Engine(event))
            }
            Job::Probe(attempt, names) => {
                let answer = names.into_iter().map(|name| {
                    let seen = self.engine.seen(&name);
                    (name, seen)
                });
                let result =
                    if well && self.engine.up { Ok(answer.collect()) } else { Err(down()) };
                Some(Event::Engine(serving::Event::Probed(attempt, result)))
            }
        }
    }

    fn repeat(&mut self, n: u8) {
        if self.past.is_empty() {
            return;
        }
        let event = self.past[usize::from(n) % self.past.len()].clone();
        // What is repeated are completions; their truth may have passed.
        let completion = match &event {
            Event::Model(_, event) => !matches!(event, model::Event::Drained(_)),
            Event::Tag(..) | Event::Engine(_) => true,
            _ => false,
        };
        if completion {
            self.handle(event);
        }
    }

    fn answer_reload(&mut self, well: bool) {
        let Some(reload) = self.reload.as_mut().filter(|reload| !reload.answered) else { return };
        let outcome = match (reload.hangs, self.engine.up, reload.taken) {
            (_, false, _) => PushOutcome::Lost(down()),
            (true, true, _) => PushOutcome::TimedOut,
            (false, true, false) if !well => PushOutcome::Refused(down()),
            _ => PushOutcome::Taken(None),
        };
        if outcome == PushOutcome::Taken(None) {
            self.engine.config = reload.set.clone();
            reload.taken = true;
        }
        if !matches!(outcome, PushOutcome::TimedOut) {
            reload.hangs = false;
        }
        reload.answered = true;
        let event = serving::Event::Pushed(reload.attempt, outcome);
        self.handle(Event::Engine(event));
    }

    /// The engine gets one step further with everything.
    fn engine_works(&mut self, fails: Option<u8>) {
        if !self.engine.up {
            self.engine.up = true;
            return;
        }
        if let Some(reload) = self.reload.as_mut().filter(|it| it.hangs && !it.taken) {
            self.engine.config = reload.set.clone();
            reload.taken = true;
        }
        let wanted: BTreeSet<_> = ids(&self.engine.config).collect();
        for id in &wanted {
            assert!(self.links.contains(id), "{id} is configured and has no files");
            self.engine.states.entry(id.clone()).or_insert(EngineState::Start);
        }
        for (i, (id, state)) in self.engine.states.iter_mut().enumerate() {
            *state = match (*state, wanted.contains(id)) {
                (EngineState::Start, _) => EngineState::Loading,
                (EngineState::Loading, _) if fails.is_some_and(|n| usize::from(n % 4) == i) => {
                    EngineState::End
                }
                (EngineState::Loading, _) => EngineState::Available,
                (EngineState::Available, false) => {
                    let leased =
                        |(_, published, leases): &(u64, bool, usize)| *published || *leases > 0;
                    let owner = self.fleet.owner(id);
                    let route = owner.and_then(|key| self.routes.get(key));
                    assert!(!route.is_some_and(leased), "{id} is unloaded in use");
                    EngineState::Unloading
                }
                (EngineState::Unloading, _) => EngineState::End,
                (state, _) => state,
            };
        }
    }

    fn engine_dies(&mut self) {
        self.engine = Engine::default();
        if self.reload.is_some() {
            self.answer_reload(true);
        }
    }

    fn engine_restarts(&mut self) {
        self.engine_dies();
        self.engine.up = true;
    }

    fn lease(&mut self, i: u8) {
        let answer = self.fleet.answer_tag(&tag_key(i), self.now);
        if let Answer::Ready(key, route) = answer {
            let entry = self.routes.get_mut(&key).expect("it was routed");
            assert_eq!((entry.0, entry.1), (route, true));
            entry.2 += 1;
        }
    }

    fn release(&mut self, n: u8) {
        let leased: Vec<_> =
            self.routes.iter().filter(|(_, entry)| entry.2 > 0).map(|(key, _)| key).collect();
        if leased.is_empty() {
            return;
        }
        let key = leased[usize::from(n) % leased.len()].clone();
        self.routes.get_mut(&key).expect("leased").2 -= 1;
        self.drain(&key);
    }

    fn drain(&mut self, key: &ModelKey) {
        if let Some((route, false, 0)) = self.routes.get(key).copied() {
            self.routes.remove(key);
            self.handle(Event::Model(key.clone(), model::Event::Drained(route)));
        }
    }

    fn evict(&mut self, n: u8) {
        let in_use = self.fleet.in_use(self.now);
        let digest = digest(n);
        let linked = self.fleet.models().any(|model| {
            model.key().digest == digest
                && model.state().servable().is_some_and(|id| self.links.contains(id))
        });
        if !in_use.contains(&digest) && !linked && self.trees.remove(&digest) {
            self.handle(Event::Evicted(digest));
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        // As the shell does: wake up whenever something is due.
        while let Some(at) = self.fleet.wakes_at().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.handle(Event::Tick);
        }
        self.now = until;
    }

    /// No more faults: everything that is wanted comes up, and stays.
    pub(crate) fn calm_down(&mut self) {
        self.reload.iter_mut().for_each(|reload| reload.hangs = false);
        for i in 0..3 {
            self.handle(Event::Load(name(i), Selector::Tag(tag())));
        }
        for round in 0..1500 {
            while !self.jobs.is_empty() {
                self.complete(0, true);
            }
            self.answer_reload(true);
            self.engine_works(None);
            for i in 0..3 {
                let used = (name(i), Selector::Tag(tag()), self.now);
                self.handle(Event::Used(vec![used]));
            }
            for _ in 0..4 {
                self.release(0);
            }
            self.pass(Duration::from_millis(500));
            if round > 60 && self.all_served() {
                return;
            }
        }
        let answers: Vec<_> =
            (0..3).map(|i| self.fleet.answer_tag(&tag_key(i), self.now)).collect();
        panic!("not everything came up: {answers:#?}\n{:#?}", self.fleet);
    }

    fn all_served(&self) -> bool {
        (0..3).all(|i| {
            let wanted = ModelKey { name: name(i), digest: digest(self.tags[&i]) };
            matches!(self.fleet.answer_tag(&tag_key(i), self.now),
                Answer::Ready(key, _) if key == wanted)
        })
    }
}

impl Engine {
    fn seen(&self, name: &outrigger_core::ServableName) -> Vec<Seen> {
        let own = self.states.iter().filter(|(id, _)| id.name == *name);
        let seen = |(id, state): (&ServableId, &EngineState)| Seen {
            version: id.version,
            state: *state,
            failure: None,
        };
        own.map(seen).rev().collect()
    }
}

fn ids(set: &ServingSet) -> impl Iterator<Item = ServableId> + '_ {
    set.iter().flat_map(|(name, versions)| {
        versions.iter().map(|version| ServableId { name: name.clone(), version: *version })
    })
}
