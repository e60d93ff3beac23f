//! Tests of canary tags beside the tags that they belong to.

use super::*;

fn canary_of(text: &str) -> TagKey {
    TagKey { name: name(text), tag: "latest_canary".parse().expect("a valid tag") }
}

/// A bench where `a` is available and its canary is looked up.
fn with_canaries() -> Bench {
    let mut bench = Bench::new();
    let default_tag = "latest".parse().expect("a valid tag");
    let tags = CanaryTags { default_tag, default_tags: BTreeMap::new() };
    bench.handle(Event::Canaries(Some(tags)));
    bench.handle(Event::Ask(name("a"), latest()));
    bench.pass(Duration::from_secs(2));
    bench
}

fn version(text: &str, digest: Digest) -> ModelKey {
    ModelKey { name: name(text), digest }
}

impl Bench {
    fn is_up(&self, digest: Digest) -> bool {
        matches!(self.machines.answer_digest(&version("a", digest), self.now), Answer::Ready(..))
    }

    fn canary_becomes(&mut self, digest: Digest) {
        self.canaries.insert(canary_of("a"), digest);
        self.pass(self.machines.policy().poll_interval.mul_f64(1.2));
    }
}

#[test]
fn a_canary_comes_up_beside_the_live_version() {
    let mut bench = with_canaries();
    assert_eq!(bench.machines.canary(&tag("a")), None, "that there is none is normal");
    let canary = Digest::of(b"canary");
    bench.canary_becomes(canary);
    assert_eq!(bench.machines.canary(&tag("a")), Some((&canary_of("a"), canary)));
    assert!(bench.is_up(canary));
    assert!(matches!(bench.answer("a"), Answer::Ready(key, _) if key == model("a")));
}

#[test]
fn the_default_tag_has_a_canary_by_its_plain_name() {
    let mut bench = with_canaries();
    let plain = TagKey { name: name("a"), tag: "canary".parse().expect("a valid tag") };
    bench.canaries.insert(plain.clone(), Digest::of(b"plain"));
    bench.pass(bench.machines.policy().poll_interval.mul_f64(1.2));
    assert_eq!(bench.machines.canary(&tag("a")), Some((&plain, Digest::of(b"plain"))));
    bench.canary_becomes(Digest::of(b"own"));
    assert_eq!(bench.machines.canary(&tag("a")), Some((&canary_of("a"), Digest::of(b"own"))));
}

#[test]
fn a_rejected_canary_goes_and_stays_away_until_its_tag_moves() {
    let mut bench = with_canaries();
    let (first, second) = (Digest::of(b"first"), Digest::of(b"second"));
    bench.canary_becomes(first);
    bench.handle(Event::Tag(canary_of("a"), tags::Event::Reject(first)));
    bench.pass(bench.machines.policy().poll_interval * 3);
    assert!(!bench.is_up(first));
    let legacy = bench.machines.legacy();
    assert_eq!(legacy.rejected, [(canary_of("a"), first)].into());
    bench.canary_becomes(second);
    assert!(bench.is_up(second) && !bench.is_up(first));
    bench.canary_becomes(first);
    assert!(bench.is_up(first), "the tag has moved to it anew");
}

#[test]
fn a_rejected_canary_is_served_on_request() {
    let mut bench = with_canaries();
    let canary = Digest::of(b"canary");
    bench.canary_becomes(canary);
    bench.handle(Event::Tag(canary_of("a"), tags::Event::Reject(canary)));
    assert!(!bench.is_up(canary));
    bench.handle(Event::Ask(name("a"), Selector::Tag(canary_of("a").tag)));
    // The unload of the rejected version ends before its next load begins.
    bench.pass(Duration::from_secs(30));
    assert!(bench.is_up(canary));
}

#[test]
fn a_canary_whose_tag_is_removed_goes_and_may_come_back() {
    let mut bench = with_canaries();
    let canary = Digest::of(b"canary");
    bench.canary_becomes(canary);
    bench.canaries.clear();
    bench.pass(bench.machines.policy().poll_interval * 3);
    assert!(bench.machines.canary(&tag("a")).is_some(), "not found is not gone");
    bench.handle(Event::Tag(canary_of("a"), tags::Event::Removed));
    assert_eq!(bench.machines.canary(&tag("a")), None);
    assert!(!bench.machines.legacy().tags.contains_key(&canary_of("a")));
    bench.pass(bench.machines.policy().poll_interval * 3);
    assert!(!bench.is_up(canary));
    bench.canary_becomes(canary);
    assert_eq!(bench.machines.canary(&tag("a")), Some((&canary_of("a"), canary)));
    assert!(bench.is_up(canary));
}

#[test]
fn a_rejected_canary_is_forgotten_with_its_tag() {
    let mut bench = with_canaries();
    let canary = Digest::of(b"canary");
    bench.canary_becomes(canary);
    bench.handle(Event::Tag(canary_of("a"), tags::Event::Reject(canary)));
    bench.canaries.clear();
    bench.handle(Event::Tag(canary_of("a"), tags::Event::Removed));
    assert_eq!(bench.machines.legacy().rejected, BTreeMap::new());
    bench.canary_becomes(canary);
    assert!(bench.is_up(canary), "it was pushed anew");
}

#[test]
fn a_removed_canary_is_served_to_those_who_ask_for_it() {
    let mut bench = with_canaries();
    let canary = Digest::of(b"canary");
    bench.canary_becomes(canary);
    bench.handle(Event::Ask(name("a"), Selector::Tag(canary_of("a").tag)));
    bench.canaries.clear();
    bench.handle(Event::Tag(canary_of("a"), tags::Event::Removed));
    bench.pass(bench.machines.policy().poll_interval * 3);
    assert_eq!(bench.machines.canary(&tag("a")), None);
    assert!(bench.is_up(canary));
    let idle_ttl = bench.machines.policy().idle_ttl;
    for _ in 0..4 {
        bench.pass(idle_ttl / 3);
        bench.handle(Event::Ask(name("a"), latest()));
    }
    assert!(!bench.is_up(canary), "nobody does");
}

#[test]
fn a_local_promotion_answers_until_the_registry_names_another_digest() {
    let mut bench = with_canaries();
    let canary = Digest::of(b"canary");
    bench.canary_becomes(canary);
    bench.handle(Event::Tag(tag("a"), tags::Event::Promote(canary)));
    bench.pass(bench.machines.policy().poll_interval * 3);
    let by = |bench: &Bench| match bench.answer("a") {
        Answer::Ready(key, _) => key.digest,
        other => panic!("{other:?}"),
    };
    assert_eq!(by(&bench), canary);
    assert_eq!(bench.machines.legacy().promoted[&tag("a")], (model("a").digest, canary));
    bench.canaries.insert(tag("a"), Digest::of(b"next"));
    bench.pass(bench.machines.policy().poll_interval * 2);
    assert_eq!(by(&bench), Digest::of(b"next"));
}

#[test]
fn canaries_are_looked_for_only_as_long_as_their_tag_is_followed() {
    let mut bench = with_canaries();
    let idle = bench.machines.policy().idle_ttl + bench.machines.policy().forget_after * 3;
    bench.pass(idle);
    let left: Vec<_> = bench.machines.tags().map(|(key, _)| key.clone()).collect();
    assert_eq!(left, [tag("a")]);
}

#[test]
fn a_canary_on_an_engine_that_is_down_does_not_settle_the_preload_of_its_live_version() {
    let (mut bench, other) = (Bench::new(), EngineId::new("other"));
    let versions = bench.machines.versions().clone();
    let loaded = |key: &ModelKey, engine: &EngineId| {
        let servable = versions.next(ServableName::of(&key.name));
        (key.clone(), Loaded { engine: engine.clone(), id: servable })
    };
    let (live, canary) = (model("a"), ModelKey { digest: Digest::LEAST, ..model("a") });
    let legacy = Legacy {
        tags: [(tag("a"), live.digest)].into(),
        loaded: [loaded(&live, &EngineId::default()), loaded(&canary, &other)].into(),
        ..Legacy::default()
    };
    bench.machines.adopt(legacy, bench.now);
    bench.machines.handle(bench.now, 0.5, Event::Follow(tag("a")));
    let down = Condition { reachable: Some(false), ..Condition::default() };
    bench.machines.engines.insert(other, down.clone());
    assert!(!bench.machines.has_settled(&name("a"), bench.now), "live's engine answers");
    bench.machines.engines.insert(EngineId::default(), down);
    assert!(bench.machines.has_settled(&name("a"), bench.now), "live's engine does not answer");
}
