//! Tests of the machines together, in a world where every job succeeds at once.

mod canaries;
mod configured;
mod exchanged;
mod limits;
mod listed;
mod rollover;
mod watch;

use std::time::Duration;

use super::*;
use crate::{Failure, Reason, ServableName, Version};

/// Carries out the effects of the machines at once; its engine loads every version.
struct Bench {
    machines: Machines,
    now: Moment,
    /// Digests of tags that differ from the digest of their model's name.
    canaries: BTreeMap<TagKey, Digest>,
    /// Look-ups of tags so far.
    lookups: usize,
}

fn name(text: &str) -> ModelName {
    text.parse().expect("a valid name")
}

fn latest() -> Selector {
    Selector::Tag("latest".parse().expect("a valid tag"))
}

fn tag(text: &str) -> TagKey {
    TagKey { name: name(text), tag: "latest".parse().expect("a valid tag") }
}

fn model(text: &str) -> ModelKey {
    ModelKey { name: name(text), digest: Digest::of(text.as_bytes()) }
}

fn down() -> Failure {
    Failure::new(Reason::EngineUnavailable, "the engine does not answer")
}

impl Bench {
    fn new() -> Self {
        let now = Moment::at(Duration::from_secs(1));
        let versions = Versions::after(Version(0));
        let machines = Machines::new(Policy::default(), versions, [EngineId::default()]);
        let mut bench = Self { machines, now, canaries: BTreeMap::new(), lookups: 0 };
        bench.engine_does(Condition::up());
        bench.handle(Event::Tick);
        bench
    }

    fn engine_does(&mut self, condition: Condition) {
        self.handle(Event::Condition(EngineId::default(), condition));
    }

    /// Creates a bench with these models, each available by its latest tag.
    fn serving(names: &[&str]) -> Self {
        let mut bench = Self::new();
        for text in names {
            bench.handle(Event::Ask(name(text), latest()));
        }
        bench.pass(Duration::from_secs(2));
        for text in names {
            assert!(matches!(bench.answer(text), Answer::Ready(..)), "{text}");
        }
        bench
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut events = VecDeque::from([event]);
        let mut all = Vec::new();
        while let Some(event) = events.pop_front() {
            let effects = self.machines.handle(self.now, 0.5, event);
            let is_lookup = |effect: &&Effect| matches!(effect, Effect::Resolve(..));
            self.lookups += effects.iter().filter(is_lookup).count();
            events.extend(effects.iter().filter_map(|effect| self.done(effect)));
            all.extend(effects);
        }
        all
    }

    fn done(&mut self, effect: &Effect) -> Option<Event> {
        use model::Effect as M;
        let on = |key: &ModelKey, event| Some(Event::Model(key.clone(), event));
        match effect {
            Effect::Resolve(key, attempt) => {
                let digest = Digest::of(key.name.as_str().as_bytes());
                let resolved = match (self.canaries.get(key), key.tag.is_canary()) {
                    (Some(canary), _) => Ok(*canary),
                    (None, true) => Err(Failure::new(Reason::TagNotFound, "there is none")),
                    (None, false) if key.name.as_str().starts_with("nobody") => {
                        Err(Failure::new(Reason::ModelNotFound, "there is none"))
                    }
                    (None, false)
                        if key.tag.as_str().starts_with(|it: char| it.is_ascii_digit()) =>
                    {
                        Err(Failure::new(Reason::TagNotFound, "there is no such version"))
                    }
                    (None, false) => Ok(digest),
                };
                Some(Event::Tag(key.clone(), tags::Event::Resolved(*attempt, resolved)))
            }
            Effect::Switched(..) | Effect::LoadFailed(..) | Effect::CrashesUnexplained(_) => None,
            Effect::Model(key, M::Pull(it)) if key.digest == Digest::of(b"broken") => {
                let failure = Failure::new(Reason::ImageInvalid, "it is broken");
                on(key, model::Event::Pulled(*it, Err(model::Fault::Failed(failure))))
            }
            Effect::Model(key, M::Pull(it)) => on(key, model::Event::Pulled(*it, Ok(()))),
            Effect::Model(key, M::Prepare(it)) => {
                on(key, model::Event::Prepared(*it, Ok(EngineId::default())))
            }
            Effect::Model(key, M::Publish(it, _)) => on(key, model::Event::Published(*it, Ok(()))),
            Effect::Model(key, M::Check(it, _)) => on(key, model::Event::Checked(*it, Ok(()))),
            Effect::Model(key, M::Withdraw(route)) => on(key, model::Event::Drained(*route)),
            Effect::Model(key, M::Delete(it)) => on(key, model::Event::Deleted(*it)),
            Effect::Model(..) => None,
            Effect::Engine(engine, message) => {
                let answer = match message {
                    ToEngine::Add(id) => FromEngine::Up(id.clone()),
                    ToEngine::Remove(id) => FromEngine::Gone(id.clone()),
                    ToEngine::Expect(_) | ToEngine::Unexpect(_) => return None,
                };
                Some(Event::Engine(engine.clone(), answer))
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.machines.wakes_at().filter(|at| *at <= until) {
            self.now = at;
            self.handle(Event::Tick);
        }
        self.now = until;
    }

    fn answer(&self, text: &str) -> Answer {
        self.machines.answer_tag(&tag(text), self.now)
    }

    fn used(&self, names: &[&str]) -> Event {
        Event::Used(names.iter().map(|text| (name(text), latest(), self.now)).collect())
    }
}

#[test]
fn no_used_version_turns_idle_before_all_uses_are_reported() {
    let mut bench = Bench::serving(&["a", "b", "c"]);
    // No use has been reported until now, so all models would count as idle.
    bench.now = bench.now + bench.machines.policy().idle_ttl;
    let event = bench.used(&["a", "b", "c"]);
    let effects = bench.handle(event);
    let withdrawn = |it: &Effect| matches!(it, Effect::Model(_, model::Effect::Withdraw(_)));
    assert!(!effects.iter().any(withdrawn), "{effects:?}");
    for text in ["a", "b", "c"] {
        assert!(matches!(bench.answer(text), Answer::Ready(..)), "{text}");
    }
}

#[test]
fn while_the_engine_may_be_restarting_requests_wait_and_then_see_for_themselves() {
    let mut bench = Bench::serving(&["a"]);
    let ready = bench.answer("a");
    let down_since = Some(bench.now);
    let failure = Some(down());
    bench.engine_does(Condition { reachable: Some(false), down_since, failure, ..Condition::up() });
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.answer("a"), Answer::Waiting(Some(down())));
    bench.pass(bench.machines.policy().patience);
    assert_eq!(bench.answer("a"), ready);
    bench.engine_does(Condition::up());
    assert_eq!(bench.answer("a"), ready);
}

#[test]
fn an_engine_that_hangs_is_unavailable_to_requests_once_nobody_waits_for_it() {
    let mut bench = Bench::serving(&["a"]);
    let ready = bench.answer("a");
    let down_since = Some(bench.now);
    let failure = Some(Failure::new(Reason::Deadline, "no answer to the probe"));
    bench.engine_does(Condition { reachable: Some(false), down_since, failure, ..Condition::up() });
    assert_eq!(bench.answer("a"), ready, "predictions may be answered all the same");
    bench.pass(bench.machines.policy().patience);
    let Some(Answer::Refused(failure)) = bench.machines.outage(&EngineId::default(), bench.now)
    else {
        panic!("requests wait for it")
    };
    assert_eq!(failure.reason, Reason::EngineUnavailable);
    assert!(failure.message.contains("no answer to the probe"), "{failure}");
}

#[test]
fn an_outage_of_one_engine_is_no_outage_of_another() {
    let mut bench = Bench::serving(&["a", "b"]);
    let other = EngineId::new("other");
    bench.machines.placed.insert(model("b"), other.clone());
    bench.machines.touch(&name("b"));
    bench.handle(Event::Condition(other.clone(), Condition::up()));
    let down_since = Some(bench.now);
    let failure = Some(down());
    bench.engine_does(Condition { reachable: Some(false), down_since, failure, ..Condition::up() });
    assert_eq!(bench.answer("a"), Answer::Waiting(Some(down())));
    assert!(matches!(bench.answer("b"), Answer::Ready(..)));
    assert_eq!(bench.machines.outage(&other, bench.now), None);
}

#[test]
fn an_engine_that_is_down_does_not_keep_the_preloads_of_another_from_settling() {
    let mut bench = Bench::serving(&["b"]);
    let other = EngineId::new("other");
    bench.machines.handle(bench.now, 0.5, Event::Follow(tag("c")));
    bench.machines.placed.insert(model("c"), other.clone());
    bench.machines.insert(ModelMachine::new(model("c"), Attempt::default(), bench.now));
    bench.handle(Event::Condition(other.clone(), Condition::default()));
    assert!(!bench.machines.has_settled(&name("c"), bench.now), "its engine was not asked yet");
    let down = Condition { reachable: Some(false), ..Condition::default() };
    bench.machines.engines.insert(other.clone(), down);
    assert!(bench.machines.has_settled(&name("c"), bench.now), "its engine does not answer");
    bench.machines.engines.insert(other, Condition::up());
    assert!(!bench.machines.has_settled(&name("c"), bench.now), "its engine answers");
}

#[test]
fn retried_failures_carry_the_time_of_the_next_attempt() {
    let mut bench = Bench::new();
    bench.handle(Event::Ask(name("a"), latest()));
    let id = bench.machines.model(&model("a")).and_then(|it| it.state().servable().cloned());
    let failure = Failure::new(Reason::MemoryFull, "no room");
    let failed = model::Event::LoadFailed(id.expect("published"), failure.clone());
    bench.handle(Event::Model(model("a"), failed));
    let Answer::Retrying(reported, at) = bench.answer("a") else {
        panic!("{:?}", bench.answer("a"))
    };
    assert_eq!(reported, failure);
    assert!(at > bench.now);
}

#[test]
fn unknown_names_change_nothing_about_known_ones() {
    let mut bench = Bench::serving(&["a"]);
    bench.machines.take_changed();
    for i in 0..20 {
        bench.handle(Event::Ask(name(&format!("nobody-{i}")), latest()));
    }
    let changed = bench.machines.take_changed();
    assert_eq!(changed.len(), 20);
    assert!(!changed.contains(&name("a")));
    // The passing of time does not change their views until they are forgotten.
    bench.pass(bench.machines.policy().forget_after / 2);
    assert_eq!(bench.machines.take_changed(), BTreeSet::new());
    bench.pass(bench.machines.policy().forget_after);
    assert!(bench.machines.take_changed().len() > 20);
    assert_eq!(bench.machines.tags().count(), 1);
}

#[test]
fn the_versions_and_tags_of_a_name_are_its_own() {
    let bench = Bench::serving(&["a", "ab", "b"]);
    let name = name("ab");
    let keys: Vec<_> = bench.machines.models_of(&name).map(|model| model.key().clone()).collect();
    assert_eq!(keys, [model("ab")]);
    let keys: Vec<_> = bench.machines.tags_of(&name).map(|(key, _)| key.clone()).collect();
    assert_eq!(keys, [tag("ab")]);
}

#[test]
fn a_version_taken_down_comes_back_when_its_tag_moves_to_it() {
    let mut bench = Bench::serving(&["a"]);
    let moved = |bench: &mut Bench, to: Digest| {
        let due = bench
            .machines
            .tags()
            .next()
            .and_then(|(_, tag)| tag.wakes_at(bench.machines.policy(), bench.now));
        bench.now = due.expect("it is followed");
        let effects = bench.machines.handle(bench.now, 0.5, Event::Tick);
        let attempt = effects.iter().find_map(|effect| match effect {
            Effect::Resolve(_, attempt) => Some(*attempt),
            _ => None,
        });
        let resolved = tags::Event::Resolved(attempt.expect("it is due"), Ok(to));
        effects.iter().for_each(|effect| match effect {
            Effect::Resolve(..) => {}
            other => drop(bench.done(other).map(|event| bench.handle(event))),
        });
        bench.handle(Event::Tag(tag("a"), resolved));
        bench.pass(Duration::from_secs(2));
    };
    let (first, second) = (model("a").digest, Digest::of(b"second"));
    moved(&mut bench, second);
    let first_key = ModelKey { name: name("a"), digest: first };
    bench.handle(Event::Unload {
        name: name("a"),
        selector: Selector::Digest(first),
        delete: false,
    });
    assert!(bench.machines.model(&first_key).is_some_and(ModelMachine::is_suspended));
    moved(&mut bench, first);
    assert!(matches!(bench.answer("a"), Answer::Ready(key, _) if key == first_key));
}

#[test]
fn a_configured_tag_is_brought_up_without_requests() {
    let mut bench = Bench::new();
    bench.machines =
        Machines::new(Policy::default(), Versions::after(Version(0)), [EngineId::default()]);
    bench.engine_does(Condition::up());
    bench.handle(Event::Follow(tag("a")));
    bench.pass(Duration::from_secs(2));
    assert!(matches!(bench.answer("a"), Answer::Ready(..)));
}

#[test]
fn models_idle_in_an_earlier_process_stay_down_until_requested() {
    let mut bench = Bench::new();
    let legacy = Legacy { tags: [(tag("a"), model("a").digest)].into(), ..Legacy::default() };
    bench.machines.adopt(legacy, bench.now);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.machines.models().count(), 0);
    bench.handle(Event::Ask(name("a"), latest()));
    bench.pass(Duration::from_secs(2));
    assert!(matches!(bench.answer("a"), Answer::Ready(..)));
}
