//! Tests of changes of the configuration, and of the work that events take.

use super::*;

impl Bench {
    fn serving_many(count: usize) -> Self {
        let mut bench = Self::new();
        for i in 0..count {
            bench.handle(Event::Follow(tag(&format!("model-{i}"))));
        }
        bench.pass(Duration::from_secs(2));
        bench
    }

    fn examined_by(&mut self, event: Event) -> u64 {
        let before = self.machines.counts().examined;
        self.handle(event);
        self.machines.counts().examined - before
    }

    /// Sets the tag `model-0` back as if a look-up had moved it.
    fn looked_up(&mut self, digest: Digest) -> u64 {
        self.canaries.insert(tag("model-0"), digest);
        self.examined_by(Event::Tag(tag("model-0"), tags::Event::Retry))
    }
}

#[test]
fn the_machines_examined_for_an_event_do_not_depend_on_the_number_of_models() {
    let examined = [1, 60].map(|count| {
        let mut bench = Bench::serving_many(count);
        let digest = model("model-0").digest;
        let ask = bench.examined_by(Event::Ask(name("model-0"), latest()));
        let (same, moved) = (bench.looked_up(digest), bench.looked_up(Digest::of(b"next")));
        let condition = Event::Condition(EngineId::default(), Condition::up());
        [ask, same, moved, bench.examined_by(condition)]
    });
    assert_eq!(examined[0], examined[1]);
    assert!(examined[0][1] > 0 && examined[0][2] > examined[0][1], "{examined:?}");
    assert_eq!(examined[0][3], 0, "an engine's condition changes no machine");
}

#[test]
fn a_tick_examines_only_machines_that_are_due() {
    let mut bench = Bench::serving_many(60);
    bench.handle(Event::Tick);
    assert_eq!(bench.examined_by(Event::Tick), 0);
    bench.handle(Event::Tag(tag("model-7"), tags::Event::Retry));
    assert!(bench.examined_by(Event::Tick) <= 4);
}

#[test]
fn a_preload_has_not_settled_while_its_tag_is_looked_up() {
    let mut bench = Bench::new();
    let effects = bench.machines.handle(bench.now, 0.5, Event::Follow(tag("a")));
    assert!(matches!(effects[..], [Effect::Resolve(..)]), "{effects:?}");
    assert_eq!(bench.machines.first_unsettled(None, bench.now), Some(name("a")));
    effects
        .iter()
        .filter_map(|it| bench.done(it))
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|event| drop(bench.handle(event)));
    assert_eq!(bench.machines.first_unsettled(None, bench.now), None);
}

#[test]
fn a_tag_that_is_not_configured_any_more_idles_away_and_is_forgotten() {
    let mut bench = Bench::new();
    bench.handle(Event::Follow(tag("a")));
    bench.pass(bench.machines.policy().idle_ttl * 3);
    assert!(matches!(bench.answer("a"), Answer::Ready(..)), "it is configured");
    bench.handle(Event::Unfollow(tag("a")));
    bench.pass(Duration::from_secs(1));
    assert!(!matches!(bench.answer("a"), Answer::Ready(..)), "no request asked for it");
    let Policy { idle_ttl, retain, .. } = *bench.machines.policy();
    bench.pass(idle_ttl + retain * 2);
    bench.handle(Event::Tick);
    assert_eq!((bench.machines.tags().count(), bench.machines.models().count()), (0, 0));
}

#[test]
fn a_tag_that_requests_use_stays_when_it_is_not_configured_any_more() {
    let mut bench = Bench::new();
    bench.handle(Event::Follow(tag("a")));
    let half = bench.machines.policy().idle_ttl / 2;
    for _ in 0..6 {
        bench.handle(Event::Unfollow(tag("a")));
        bench.pass(half);
        bench.handle(Event::Ask(name("a"), latest()));
        assert!(matches!(bench.answer("a"), Answer::Ready(..)));
    }
}

#[test]
fn a_pin_keeps_a_version_up_as_long_as_it_lasts() {
    let mut bench = Bench::new();
    let up = |bench: &Bench| {
        matches!(bench.machines.answer_digest(&model("a"), bench.now), Answer::Ready(..))
    };
    bench.handle(Event::Pin(model("a")));
    bench.pass(bench.machines.policy().idle_ttl * 3);
    assert!(up(&bench));
    bench.handle(Event::Unpin(model("a")));
    assert!(!up(&bench));
    bench.handle(Event::Unload {
        name: name("a"),
        selector: Selector::Digest(model("a").digest),
        delete: false,
    });
    bench.handle(Event::Pin(model("a")));
    assert!(up(&bench), "the configuration reverses an unload");
}

#[test]
fn a_shorter_idle_time_counts_from_the_last_request() {
    let mut bench = Bench::serving(&["a", "b"]);
    let idle_ttl = bench.machines.policy().idle_ttl / 4;
    bench.pass(idle_ttl * 2);
    bench.handle(Event::Ask(name("b"), latest()));
    let policy = Policy { idle_ttl, ..bench.machines.policy().clone() };
    bench.handle(Event::Policy(policy));
    assert!(!matches!(bench.answer("a"), Answer::Ready(..)));
    assert!(matches!(bench.answer("b"), Answer::Ready(..)));
}

#[test]
fn a_forgotten_image_answers_no_request_while_a_changed_one_does() {
    for forget in [false, true] {
        let mut bench = Bench::serving(&["a"]);
        let next = Digest::of(b"next");
        bench.canaries.insert(tag("a"), next);
        let name = name("a");
        let effects = bench.machines.handle(bench.now, 0.5, Event::ImageChanged { name, forget });
        assert_eq!(matches!(bench.answer("a"), Answer::Ready(..)), !forget);
        let events: Vec<_> = effects.iter().filter_map(|it| bench.done(it)).collect();
        events.into_iter().for_each(|event| drop(bench.handle(event)));
        bench.pass(Duration::from_secs(2));
        assert!(matches!(bench.answer("a"), Answer::Ready(key, _) if key.digest == next));
    }
}

#[test]
fn a_version_leaves_an_engine_that_is_not_the_named_one() {
    let mut bench = Bench::serving(&["a", "b"]);
    let other = EngineId::new("other");
    let effects = bench.handle(Event::EngineChanged(name("a"), Some(other)));
    let prepared = |it: &&Effect| matches!(it, Effect::Model(_, model::Effect::Prepare(_)));
    assert_eq!(effects.iter().filter(prepared).count(), 1);
    assert!(matches!(bench.answer("a"), Answer::Ready(..)));
    let same = bench.handle(Event::EngineChanged(name("b"), Some(EngineId::default())));
    assert_eq!(same, []);
}
