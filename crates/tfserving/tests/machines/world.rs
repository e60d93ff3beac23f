//! A simulated world for the machines: registry, disk, engine and requests.

mod replaced;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use outrigger_core::{
    Attempt, Backoff, Digest, EngineId, Failure, ModelKey, ModelName, Moment, Outcome, Policy,
    Reason, Selector, ServableId, Tag, Version, Versions,
    engine::{Condition, FromEngine, ToEngine},
    invariants,
    machines::{Answer, CanaryTags, Effect, Event, Listed, Machines, TagKey},
    model::{self, Fault},
    tags,
};
use outrigger_tfserving::machine::{
    self, EngineState, PushOutcome, Seen, ServingMachine, ServingSet,
};

/// A random action on the world.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    AskTag(u8),
    AskDigest(u8, u8),
    Load(u8),
    Unload(u8, bool),
    MoveTag(u8, u8),
    Follow(u8, bool),
    Pin(u8, u8, bool),
    /// Set the idle time and the retention, in seconds.
    Policy(u8, u8),
    ImageChanged(u8, bool),
    /// Take a model's versions out of their engine; they are prepared for the same one again.
    EngineChanged(u8),
    /// The source of a model lists the latest tag, a number, both; or it lists no tags any more.
    List(u8, bool, bool),
    Canaries(bool),
    /// True: the engine may have one version of the model at a time. False: versions overlap.
    Rollover(u8, bool),
    Complete(u8),
    Fail(u8),
    Repeat(u8),
    /// Deliver the messages between the machines.
    Deliver,
    EngineWorks,
    LoadFails(u8),
    EngineRestarts,
    /// The engine restarts before a reload that is on its way has reached it.
    EngineRestartsBefore,
    EngineDies,
    ReloadHangs,
    Lease(u8),
    Release(u8),
    Evict(u8),
    /// Let time pass, in tenths of a second.
    Pass(u16),
}

/// A job of the machines that has not ended.
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

/// An event for core's machines or for the engine's machine.
#[derive(Debug, Clone)]
enum Past {
    Machines(Event),
    Engine(machine::Event),
}

/// A reload that the engine has received.
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
    unloaded: BTreeSet<ServableId>,
}

pub(crate) struct World {
    now: Moment,
    machines: Machines,
    machine: ServingMachine,
    versions: Versions,
    /// Messages not delivered yet.
    to_engine: VecDeque<ToEngine>,
    from_engine: VecDeque<FromEngine>,
    condition: Condition,
    ticked_at: Moment,
    tags: BTreeMap<u8, u8>,
    jobs: Vec<Job>,
    past: Vec<Past>,
    engine: Engine,
    reload: Option<Reload>,
    trees: BTreeSet<Digest>,
    links: BTreeSet<ServableId>,
    used: BTreeSet<ServableId>,
    placeholders: BTreeSet<ServableId>,
    /// Routes by model: the route, true while it is published, and the number of its leases.
    routes: BTreeMap<ModelKey, (u64, bool, usize)>,
    /// Models of which the engine may have several versions.
    overlapping: BTreeSet<u8>,
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

fn model_key(index: u8, of: u8) -> ModelKey {
    ModelKey { name: name(index), digest: digest(of) }
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
        replace_backoff: Backoff { first: Duration::from_secs(10), most: Duration::from_secs(60) },
        ..Policy::default()
    }
}

fn machine_policy() -> machine::Policy {
    machine::Policy { reload_limit: Duration::from_secs(120), ..Default::default() }
}

fn engine_id() -> EngineId {
    EngineId::default()
}

impl World {
    /// Creates a world in which these models are replaced.
    pub(crate) fn new(replaced: &BTreeSet<u8>) -> Self {
        let now = Moment::at(Duration::from_secs(1));
        let versions = Versions::after(Version(1000));
        let machines = Machines::new(policy(), versions.clone(), [engine_id()]);
        let mut world = Self {
            now,
            machines,
            machine: ServingMachine::new(now),
            versions,
            to_engine: VecDeque::new(),
            from_engine: VecDeque::new(),
            condition: Condition::default(),
            ticked_at: Moment::default(),
            tags: BTreeMap::from([(0, 0), (1, 1), (2, 2)]),
            jobs: Vec::new(),
            past: Vec::new(),
            engine: Engine { up: true, ..Engine::default() },
            reload: None,
            trees: BTreeSet::new(),
            links: BTreeSet::new(),
            used: BTreeSet::new(),
            placeholders: BTreeSet::new(),
            routes: BTreeMap::new(),
            overlapping: (0..3).collect(),
        };
        replaced.iter().for_each(|i| world.roll_over(*i, true));
        world.handle(Event::Follow(tag_key(0)));
        world.handle_engine(machine::Event::Tick);
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
            Step::Follow(i, true) => self.handle(Event::Follow(tag_key(i))),
            Step::Follow(i, false) => self.handle(Event::Unfollow(tag_key(i))),
            Step::Pin(i, d, true) => self.handle(Event::Pin(model_key(i, d))),
            Step::Pin(i, d, false) => self.handle(Event::Unpin(model_key(i, d))),
            Step::Policy(idle, retain) => {
                let seconds = |seconds: u8| Duration::from_secs(seconds.into());
                let (idle_ttl, retain) = (seconds(idle), seconds(retain));
                self.handle(Event::Policy(Policy { idle_ttl, retain, ..policy() }));
            }
            Step::ImageChanged(i, forget) => {
                self.handle(Event::ImageChanged { name: name(i), forget });
            }
            Step::EngineChanged(i) => {
                self.handle(Event::EngineChanged(name(i), Some(EngineId::new("other"))));
            }
            Step::List(i, false, false) => self.handle(Event::Unlisted(name(i))),
            Step::List(i, latest, numbered) => {
                let numbered = numbered.then(|| "7".parse().expect("valid"));
                let tags = latest.then(tag).into_iter().chain(numbered);
                let listed = Listed { tags: tags.collect(), latest: None };
                self.handle(Event::Listed(name(i), listed));
            }
            Step::Canaries(on) => {
                let tags = CanaryTags { default_tag: tag(), default_tags: BTreeMap::new() };
                self.handle(Event::Canaries(on.then_some(tags)));
            }
            Step::Rollover(i, is_replaced) => self.roll_over(i, is_replaced),
            Step::Complete(n) => self.complete(n, true),
            Step::Fail(n) => self.complete(n, false),
            Step::Repeat(n) => self.repeat(n),
            Step::Deliver => self.deliver(),
            Step::EngineWorks => self.engine_works(None),
            Step::LoadFails(n) => self.engine_works(Some(n)),
            Step::EngineRestarts => self.engine_restarts(),
            Step::EngineRestartsBefore => self.engine_restarts_before(),
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
            self.past.push(Past::Machines(event.clone()));
        }
        let effects = self.machines.handle(self.now, 0.5, event);
        effects.into_iter().for_each(|effect| self.carry_out(effect));
        assert_eq!(self.machines.counts().unexpected, 0);
        self.check();
    }

    fn handle_engine(&mut self, event: machine::Event) {
        if self.past.len() < 500 {
            self.past.push(Past::Engine(event.clone()));
        }
        let (policy, versions) = (machine_policy(), self.versions.clone());
        let context =
            machine::Context { now: self.now, jitter: 0.5, policy: &policy, versions: &versions };
        let (effects, outcome) = self.machine.handle(&context, event);
        assert_ne!(outcome, Outcome::Unexpected);
        effects.into_iter().for_each(|effect| self.carry_out_engine(effect));
        self.check();
    }

    fn check(&mut self) {
        self.check_replaced();
        let checked = invariants::check_engine(&self.machines, &engine_id(), &self.machine);
        assert_eq!(checked, Ok(()));
    }

    /// Delivers all messages between the machines, and those that follow from them.
    fn deliver(&mut self) {
        loop {
            if let Some(message) = self.to_engine.pop_front() {
                self.handle_engine(match message {
                    ToEngine::Add(id) => machine::Event::Add(id),
                    ToEngine::Remove(id) => machine::Event::Remove(id),
                    ToEngine::Expect(name) => machine::Event::Expect(name),
                    ToEngine::Unexpect(name) => machine::Event::Unexpect(name),
                });
            } else if let Some(message) = self.from_engine.pop_front() {
                self.handle(Event::Engine(engine_id(), message));
            } else if self.machine.condition() != self.condition {
                self.condition = self.machine.condition();
                self.handle(Event::Condition(engine_id(), self.condition.clone()));
            } else {
                return;
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Resolve(key, attempt) => self.jobs.push(Job::Resolve(key, attempt)),
            Effect::Switched(..) | Effect::LoadFailed(..) | Effect::CrashesUnexplained(_) => {}
            Effect::Model(key, effect) => self.carry_out_model(key, effect),
            Effect::Engine(_, message) => self.to_engine.push_back(message),
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
                assert!(self.used.insert(id.clone()), "{id} is used twice");
                self.jobs.push(Job::Publish(key, attempt, id));
            }
            E::Unpublish(id) => self.unlink(&id),
            E::Check(attempt, _) => self.jobs.push(Job::Check(key, attempt)),
            E::Route(id, route) => {
                assert!(self.links.contains(&id));
                let leases = match self.routes.get(&key) {
                    // Leases of the previous route use the same servable.
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

    fn carry_out_engine(&mut self, effect: machine::Effect) {
        use machine::Effect as E;
        match effect {
            E::PublishPlaceholder(attempt, id) => {
                assert!(self.used.insert(id.clone()), "{id} is used twice");
                self.placeholders.insert(id.clone());
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
            E::Up(id) => self.from_engine.push_back(FromEngine::Up(id)),
            E::Failed(id, failure) => self.from_engine.push_back(FromEngine::Failed(id, failure)),
            E::Lost(id) => self.from_engine.push_back(FromEngine::Lost(id)),
            E::Gone(id) => self.from_engine.push_back(FromEngine::Gone(id)),
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
        match self.outcome(job, well) {
            Past::Machines(event) => self.handle(event),
            Past::Engine(event) => self.handle_engine(event),
        }
    }

    fn outcome(&mut self, job: Job, well: bool) -> Past {
        let failure = || Failure::new(Reason::RegistryUnavailable, "not now");
        let result = |well: bool| if well { Ok(()) } else { Err(Fault::Failed(failure())) };
        let on = |key: ModelKey, event| Past::Machines(Event::Model(key, event));
        match job {
            Job::Resolve(key, attempt) => {
                let index = ["a", "b", "c"].iter().position(|text| *text == key.name.as_str());
                let index = u8::try_from(index.expect("one of them")).expect("small");
                let found = digest(self.tags[&index]);
                let result = match well {
                    true if key.tag.is_canary() => Ok(digest(index + 1)),
                    true => Ok(found),
                    false => Err(failure()),
                };
                Past::Machines(Event::Tag(key, tags::Event::Resolved(attempt, result)))
            }
            Job::Pull(key, attempt) => {
                self.trees.extend(well.then_some(key.digest));
                on(key, model::Event::Pulled(attempt, result(well)))
            }
            Job::Prepare(key, attempt) => {
                let there = self.trees.contains(&key.digest);
                let result = if there { result(well) } else { Err(Fault::FilesMissing) };
                on(key, model::Event::Prepared(attempt, result.map(|()| engine_id())))
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
                Past::Engine(machine::Event::PlaceholderPublished(attempt, id, result))
            }
            Job::Probe(attempt, names) => {
                let answer = names.into_iter().map(|name| {
                    let seen = self.engine.seen(&name);
                    (name, seen)
                });
                let result =
                    if well && self.engine.up { Ok(answer.collect()) } else { Err(down()) };
                Past::Engine(machine::Event::Probed(attempt, result))
            }
        }
    }

    fn repeat(&mut self, n: u8) {
        if self.past.is_empty() {
            return;
        }
        // Repeats an earlier completion, which may no longer be true.
        match self.past[usize::from(n) % self.past.len()].clone() {
            Past::Machines(Event::Model(_, model::Event::Drained(_))) => {}
            Past::Machines(event @ (Event::Model(..) | Event::Tag(..) | Event::Engine(..))) => {
                self.handle(event);
            }
            Past::Engine(event) if is_completion(&event) => self.handle_engine(event),
            Past::Machines(_) | Past::Engine(_) => {}
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
        let event = machine::Event::Pushed(reload.attempt, outcome);
        self.handle_engine(event);
    }

    /// Advances all the engine's work by one step.
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
            assert!(!self.engine.unloaded.contains(id), "{id} is loaded again");
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
                    let owner = self.machines.owner(id);
                    let route = owner.and_then(|key| self.routes.get(key));
                    assert!(!route.is_some_and(leased), "{id} is unloaded in use");
                    self.engine.unloaded.insert(id.clone());
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

    fn engine_restarts_before(&mut self) {
        match &self.reload {
            Some(reload) if !reload.taken && !reload.answered => {
                self.engine = Engine { up: true, ..Engine::default() };
            }
            _ => self.engine_restarts(),
        }
    }

    fn lease(&mut self, i: u8) {
        let answer = self.machines.answer_tag(&tag_key(i), self.now);
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
        let digest = digest(n);
        let linked = self.machines.models().any(|model| {
            model.key().digest == digest
                && model.state().servable().is_some_and(|id| self.links.contains(id))
        });
        if !self.machines.needs_files(&digest) && !linked && self.trees.remove(&digest) {
            self.handle(Event::Evicted(digest));
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        // Wakes up whenever something is due, as the shell does.
        loop {
            let engine_at = self.machine.wakes_at(&machine_policy(), self.ticked_at);
            let at = [self.machines.wakes_at(), engine_at].into_iter().flatten().min();
            let Some(at) = at.filter(|at| *at <= until) else { break };
            self.now = at.max(self.now);
            self.handle(Event::Tick);
            self.ticked_at = self.now;
            self.handle_engine(machine::Event::Tick);
        }
        self.now = until;
    }

    /// Ends all faults, and checks that everything wanted becomes available and stays so.
    pub(crate) fn calm_down(&mut self) {
        self.reload.iter_mut().for_each(|reload| reload.hangs = false);
        for i in 0..3 {
            // Its other tags would stop answering.
            self.handle(Event::Unlisted(name(i)));
            self.handle(Event::Load(name(i), Selector::Tag(tag())));
        }
        for round in 0..1500 {
            self.deliver();
            while !self.jobs.is_empty() {
                self.complete(0, true);
            }
            self.deliver();
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
            (0..3).map(|i| self.machines.answer_tag(&tag_key(i), self.now)).collect();
        panic!("not everything came up: {answers:#?}\n{:#?}\n{:#?}", self.machines, self.machine);
    }

    fn all_served(&self) -> bool {
        (0..3).all(|i| {
            let wanted = ModelKey { name: name(i), digest: digest(self.tags[&i]) };
            matches!(self.machines.answer_tag(&tag_key(i), self.now),
                Answer::Ready(key, _) if key == wanted)
        })
    }
}

fn is_completion(event: &machine::Event) -> bool {
    use machine::Event as E;
    matches!(event, E::PlaceholderPublished(..) | E::Pushed(..) | E::Probed(..))
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
