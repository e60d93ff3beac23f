//! A model of which the engine has one version at a time.

use super::*;
use crate::model::{State, Trouble};

/// A bench whose effects wait until they are carried out one by one.
struct Steps {
    bench: Bench,
    waiting: VecDeque<Effect>,
}

const NEW: &[u8] = b"new";

fn version(content: &[u8]) -> ModelKey {
    ModelKey { name: name("a"), digest: Digest::of(content) }
}

fn old() -> ModelKey {
    version(b"a")
}

fn new() -> ModelKey {
    version(NEW)
}

fn replace() -> Event {
    Event::Rollover(name("a"), Some(latest()))
}

fn gate(key: &ModelKey) -> impl Fn(&Effect) -> bool {
    move |effect| matches!(effect, Effect::Model(it, model::Effect::Check(..)) if it == key)
}

fn failed(reason: Reason) -> Failure {
    Failure::new(reason, "it failed")
}

impl Steps {
    /// The old version serves, and the registry names the new one at the next look-up.
    fn new() -> Self {
        let mut bench = Bench::new();
        bench.handle(replace());
        bench.handle(Event::Follow(tag("a")));
        bench.canaries.insert(tag("a"), new().digest);
        let mut steps = Self { bench, waiting: VecDeque::new() };
        assert!(steps.is_ready(&old()));
        steps.look_up();
        steps
    }

    fn handle(&mut self, event: Event) {
        let effects = self.bench.machines.handle(self.bench.now, 0.5, event);
        self.waiting.extend(effects);
        self.check();
    }

    /// At most one version is in the engine.
    fn check(&self) {
        let inside = self.bench.machines.models().filter(|model| model.state().in_engine());
        let inside: Vec<_> = inside.map(|model| (model.key(), model.state())).collect();
        assert!(inside.len() <= 1, "{inside:?}");
    }

    /// Has the registry asked at the time at which that is due.
    fn look_up(&mut self) {
        let (machines, now) = (&self.bench.machines, self.bench.now);
        let live = machines.tag(&tag("a")).expect("it is followed");
        self.bench.now = live.wakes_at(machines.policy(), now).expect("it is looked up");
        self.handle(Event::Tick);
    }

    /// Carries out effects until one that is to `stop`, or until there are none.
    fn run_until(&mut self, stop: impl Fn(&Effect) -> bool) -> Option<Effect> {
        while let Some(effect) = self.waiting.pop_front() {
            if stop(&effect) {
                return Some(effect);
            }
            if let Some(event) = self.bench.done(&effect) {
                self.handle(event);
            }
        }
        None
    }

    fn run(&mut self) {
        assert_eq!(self.run_until(|_| false), None);
    }

    /// Carries out effects until the new version is at its gate, which then ends with `failure`.
    fn fail_at_the_gate(&mut self, failure: Failure) {
        let check = self.run_until(gate(&new()));
        let Some(Effect::Model(key, model::Effect::Check(attempt, _))) = check else {
            panic!("it does not come up")
        };
        self.handle(Event::Model(key, model::Event::Checked(attempt, Err(failure))));
    }

    fn answer(&self) -> Answer {
        self.bench.answer("a")
    }

    fn is_ready(&self, key: &ModelKey) -> bool {
        matches!(self.answer(), Answer::Ready(ready, _) if ready == *key)
    }

    fn state(&self, key: &ModelKey) -> &State {
        self.bench.machines.model(key).expect("it is known").state()
    }

    fn trouble(&self, key: &ModelKey) -> Option<&Trouble> {
        self.bench.machines.model(key).and_then(ModelMachine::trouble)
    }
}

#[test]
fn the_old_version_leaves_when_the_new_one_is_prepared_and_callers_wait() {
    let mut steps = Steps::new();
    let prepare = |effect: &Effect| matches!(effect, Effect::Model(key, model::Effect::Prepare(_)) if *key == new());
    let prepare = steps.run_until(prepare).expect("it is prepared");
    assert!(steps.is_ready(&old()), "the new version is only on disk");
    let prepared = steps.bench.done(&prepare).expect("it ends");
    steps.handle(prepared);
    assert_eq!(steps.state(&new()), &State::Prepared);
    assert!(matches!(steps.state(&old()), State::Draining { .. }));
    assert_eq!(steps.answer(), Answer::Waiting(None));
    let removed = |effect: &Effect| matches!(effect, Effect::Engine(_, ToEngine::Remove(_)));
    let remove = steps.run_until(removed).expect("it leaves");
    assert_eq!(steps.state(&new()), &State::Prepared, "the engine still has the old version");
    let gone = steps.bench.done(&remove).expect("it ends");
    steps.handle(gone);
    assert!(matches!(steps.state(&new()), State::Publishing { .. }));
    while !steps.waiting.is_empty() {
        assert_eq!(steps.answer(), Answer::Waiting(None));
        steps.run_until(gate(&new())).into_iter().for_each(|effect| {
            let passed = steps.bench.done(&effect).expect("it ends");
            steps.handle(passed);
            assert!(steps.is_ready(&new()), "its callers are answered at once");
            steps.run();
        });
    }
    assert_eq!(steps.state(&old()), &State::Downloaded);
}

#[test]
fn versions_overlap_without_the_setting() {
    let mut bench = Bench::serving(&["a"]);
    bench.canaries.insert(tag("a"), new().digest);
    while !matches!(bench.answer("a"), Answer::Ready(key, _) if key == new()) {
        assert!(matches!(bench.answer("a"), Answer::Ready(..)));
        bench.now = bench.machines.wakes_at().expect("it is followed");
        bench.handle(Event::Tick);
    }
}

#[test]
fn the_old_version_serves_again_if_the_new_one_fails() {
    for reason in [Reason::GoldenMismatch, Reason::EngineUnavailable] {
        let mut steps = Steps::new();
        steps.fail_at_the_gate(failed(reason));
        assert_eq!(steps.answer(), Answer::Waiting(None), "callers wait for the old version");
        steps.run();
        assert!(steps.is_ready(&old()), "{reason}");
        assert!(matches!(steps.state(&new()), State::Downloaded));
        let trouble = steps.trouble(&new()).expect("it failed").clone();
        assert_eq!(trouble.failure.reason, reason);
        // The old version stays until the next attempt is due, if there is one.
        let until = trouble.retry_at.unwrap_or(steps.bench.now + Duration::from_secs(3600));
        steps.bench.pass(until.since(steps.bench.now) - Duration::from_millis(1));
        assert!(steps.is_ready(&old()), "{reason}");
        assert_eq!(steps.trouble(&new()), Some(&trouble), "it was not tried in the meantime");
        steps.bench.pass(Duration::from_millis(2));
        assert_eq!(steps.is_ready(&new()), trouble.retry_at.is_some(), "{reason}");
    }
}

#[test]
fn a_version_that_cannot_be_loaded_gives_the_slot_back() {
    let mut steps = Steps::new();
    let added = |effect: &Effect| matches!(effect, Effect::Engine(_, ToEngine::Add(_)));
    let Some(Effect::Engine(engine, ToEngine::Add(id))) = steps.run_until(added) else {
        panic!("it is not loaded")
    };
    let failure = failed(Reason::MemoryFull);
    steps.handle(Event::Engine(engine, FromEngine::Failed(id, failure)));
    steps.run();
    assert!(steps.is_ready(&old()));
}

#[test]
fn a_new_version_that_cannot_be_prepared_leaves_the_old_one_alone() {
    let mut steps = Steps::new();
    let prepared = |effect: &Effect| matches!(effect, Effect::Model(_, model::Effect::Prepare(_)));
    let Some(Effect::Model(key, model::Effect::Prepare(attempt))) = steps.run_until(prepared)
    else {
        panic!("it is not prepared")
    };
    let fault = model::Fault::Failed(failed(Reason::ImageInvalid));
    let route = steps.answer();
    steps.handle(Event::Model(key, model::Event::Prepared(attempt, Err(fault))));
    steps.run();
    assert!(steps.is_ready(&old()));
    assert_eq!(steps.answer(), route, "it was never withdrawn");
}

#[test]
fn a_tag_that_moves_back_while_the_old_version_drains_keeps_it() {
    let mut steps = Steps::new();
    let drained = |effect: &Effect| matches!(effect, Effect::Model(_, model::Effect::Withdraw(_)));
    let withdraw = steps.run_until(drained).expect("it leaves");
    steps.bench.canaries.clear();
    steps.look_up();
    steps.run();
    assert!(steps.is_ready(&old()));
    let late = steps.bench.done(&withdraw).expect("it ends");
    steps.handle(late);
    steps.run();
    assert!(steps.is_ready(&old()), "the drain is that of the earlier route");
}

#[test]
fn other_tags_and_digests_are_answered_by_the_version_in_the_engine_only() {
    let mut steps = Steps::new();
    let other = TagKey { name: name("a"), tag: "stable".parse().unwrap() };
    steps.bench.canaries.insert(other.clone(), old().digest);
    steps.handle(Event::Ask(name("a"), Selector::Tag(other.tag.clone())));
    steps.handle(Event::Ask(name("a"), Selector::Digest(old().digest)));
    steps.run();
    let Bench { machines, now, .. } = &steps.bench;
    assert!(steps.is_ready(&new()));
    assert!(matches!(machines.answer_digest(&new(), *now), Answer::Ready(..)));
    for answer in [machines.answer_tag(&other, *now), machines.answer_digest(&old(), *now)] {
        let Answer::Refused(failure) = answer else { panic!("{answer:?}") };
        assert_eq!(failure.reason, Reason::VersionExcluded);
    }
    // The other tag is answered when it names the version that is loaded.
    steps.bench.canaries.insert(other.clone(), new().digest);
    steps.bench.pass(steps.bench.machines.policy().poll_interval * 2);
    let answer = steps.bench.machines.answer_tag(&other, steps.bench.now);
    assert!(matches!(answer, Answer::Ready(key, _) if key == new()));
}

#[test]
fn tags_that_name_an_excluded_version_do_not_keep_unknown_models_out() {
    let mut steps = Steps::new();
    steps.run();
    let policy = Policy { max_unproven: 1, ..steps.bench.machines.policy().clone() };
    steps.bench.handle(Event::Policy(policy));
    let other = TagKey { name: name("a"), tag: "stable".parse().unwrap() };
    steps.bench.canaries.insert(other.clone(), old().digest);
    steps.bench.handle(Event::Ask(name("a"), Selector::Tag(other.tag)));
    assert!(!steps.bench.machines.is_full(steps.bench.now));
}

#[test]
fn a_canary_tag_of_the_model_is_not_followed() {
    let mut steps = Steps::new();
    let canaries = CanaryTags { default_tag: "latest".parse().unwrap(), default_tags: [].into() };
    let canary = TagKey { name: name("a"), tag: "latest_canary".parse().unwrap() };
    steps.bench.canaries.insert(canary.clone(), version(b"canary").digest);
    steps.handle(Event::Canaries(Some(canaries)));
    steps.run();
    assert_eq!(steps.bench.machines.canary(&tag("a")), None);
    assert!(steps.bench.machines.tag(&canary).is_none());
    // Without the setting it is, until the model is replaced again.
    steps.handle(Event::Rollover(name("a"), None));
    while let Some(effect) = steps.waiting.pop_front() {
        steps.bench.done(&effect).map(|event| steps.bench.handle(event));
    }
    assert!(steps.bench.machines.canary(&tag("a")).is_some());
    steps.bench.handle(replace());
    assert_eq!(steps.bench.machines.canary(&tag("a")), None);
    steps.check();
    assert!(steps.is_ready(&new()));
}

/// The journal of a process that ended in the middle of a replacement.
fn interrupted(stop: impl Fn(&Effect) -> bool) -> (Legacy, Moment) {
    let mut steps = Steps::new();
    steps.run_until(stop).expect("it takes place");
    (steps.bench.machines.legacy(), steps.bench.now)
}

/// A process that takes the journal over; the engine has what it had. `is_known`: the registry
/// answers.
fn restarted((legacy, now): (Legacy, Moment), is_known: bool) -> Steps {
    let bench = Bench { now, ..Bench::new() };
    let mut steps = Steps { bench, waiting: VecDeque::new() };
    steps.bench.machines =
        Machines::new(Policy::default(), Versions::after(Version(100)), [EngineId::default()]);
    steps.bench.canaries.insert(tag("a"), new().digest);
    let loaded: Vec<_> = legacy.loaded.values().cloned().collect();
    steps.bench.machines.adopt(legacy, now);
    for event in [replace(), Event::Follow(tag("a"))] {
        steps.handle(event);
    }
    if !is_known {
        let look_up = steps.run_until(|effect| matches!(effect, Effect::Resolve(..)));
        let Some(Effect::Resolve(key, attempt)) = look_up else { panic!("it is not looked up") };
        let failure = failed(Reason::RegistryUnavailable);
        steps.handle(Event::Tag(key, tags::Event::Resolved(attempt, Err(failure))));
    }
    steps.handle(Event::Condition(EngineId::default(), Condition::up()));
    for Loaded { engine, id } in loaded {
        steps.handle(Event::Engine(engine, FromEngine::Up(id)));
    }
    steps.run();
    steps
}

#[test]
fn a_restart_in_the_middle_ends_the_replacement_or_goes_back_without_the_registry() {
    let removed = |effect: &Effect| matches!(effect, Effect::Engine(_, ToEngine::Remove(_)));
    let added = |effect: &Effect| matches!(effect, Effect::Engine(_, ToEngine::Add(_)));
    let published =
        |effect: &Effect| matches!(effect, Effect::Model(_, model::Effect::Publish(..)));
    let journals = || [interrupted(removed), interrupted(published), interrupted(added)];
    for journal in journals() {
        let loads = journal.0.loaded.len();
        assert!(loads <= 1, "{:?}", journal.0.loaded);
        let steps = restarted(journal, true);
        assert!(steps.is_ready(&new()), "{:?}", steps.answer());
    }
    for journal in journals() {
        let steps = restarted(journal, false);
        assert!(steps.is_ready(&old()), "{:?}", steps.answer());
    }
}

#[test]
fn a_new_version_that_is_loaded_at_a_restart_is_not_loaded_twice() {
    let added = |effect: &Effect| matches!(effect, Effect::Engine(_, ToEngine::Add(_)));
    let journal = interrupted(added);
    let id = journal.0.loaded[&new()].id.clone();
    let steps = restarted(journal, true);
    assert_eq!(steps.state(&new()), &State::Serving { id });
}

#[test]
fn another_default_tag_replaces_the_version_too() {
    let mut steps = Steps::new();
    steps.run();
    let stable = TagKey { name: name("a"), tag: "stable".parse().unwrap() };
    steps.bench.canaries.insert(stable.clone(), old().digest);
    let live = Selector::Tag(stable.tag.clone());
    steps.handle(Event::Rollover(name("a"), Some(live)));
    steps.handle(Event::Unfollow(tag("a")));
    steps.handle(Event::Follow(stable.clone()));
    steps.run();
    let answer = steps.bench.machines.answer_tag(&stable, steps.bench.now);
    assert!(matches!(&answer, Answer::Ready(key, _) if *key == old()), "{answer:?}");
}

#[test]
fn of_two_versions_at_a_restart_the_one_that_answered_stays() {
    let (others, now) = ([b"0", b"1", b"2", b"3"].map(|it| version(it)), Moment::default());
    let versions = Versions::after(Version(0));
    for other in others {
        let loaded = |key: &ModelKey| Loaded {
            engine: EngineId::default(),
            id: versions.next(ServableName::of(&key.name)),
        };
        let loaded = [old(), other].map(|key| (key.clone(), loaded(&key))).into();
        let tags = [(tag("a"), old().digest)].into();
        let mut machines =
            Machines::new(Policy::default(), versions.clone(), [EngineId::default()]);
        machines.adopt(Legacy { tags, loaded, ..Legacy::default() }, now);
        machines.handle(now, 0.5, replace());
        let state = machines.model(&old()).map(ModelMachine::state);
        assert!(matches!(state, Some(State::Loading { .. })), "{state:?}");
    }
}
