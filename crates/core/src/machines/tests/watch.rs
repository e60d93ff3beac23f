//! An engine that one version ends: at its load, at its first run, or by a call.

use proptest::prelude::*;

use super::*;
use crate::{Crashes, machines::watch::view::SUSPECTED};
use world::{Kills, NAMES, World, machines};

mod outside;
mod world;

fn kills() -> impl Strategy<Value = Kills> {
    prop_oneof![Just(Kills::Load), Just(Kills::FirstRun), Just(Kills::Calls)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn neighbours_are_away_a_few_times_and_only_the_killer_stays_away(
        killer in 0..NAMES.len(),
        kills in kills(),
        together: bool,
        is_seen_late: bool,
        is_abandoned: bool,
        calls in proptest::collection::vec(
            proptest::collection::btree_set(0..NAMES.len(), 0..NAMES.len()), 1..8,
        ),
    ) {
        let mut world = World::new(&[(NAMES[killer], kills)]);
        (world.is_seen_late, world.is_abandoned) = (is_seen_late, is_abandoned);
        for text in NAMES.iter().filter(|text| together || **text != NAMES[killer]) {
            world.handle(Event::Follow(tag(text)));
        }
        if !together {
            world.run(&calls);
            world.handle(Event::Follow(tag(NAMES[killer])));
        }
        world.run(&calls);
        let most = if kills == Kills::Calls { 4 } else { 2 };
        prop_assert!(world.crashes <= most, "{} crashes", world.crashes);
        let quarantined: Vec<_> = world.machines.quarantined().cloned().collect();
        prop_assert_eq!(quarantined, [model(NAMES[killer])]);
        for text in NAMES {
            prop_assert_eq!(world.is_ready(&model(text)), text != NAMES[killer], "{}", text);
        }
        let answer = world.machines.answer_tag(&tag(NAMES[killer]), world.now);
        let is_refused = matches!(&answer, Answer::Refused(it) if it.reason == Reason::ModelQuarantined);
        prop_assert!(is_refused, "{:?}", answer);
    }
}

/// A world in which the killer is in quarantine.
fn convicted() -> World {
    let mut world = World::new(&[("j", Kills::Load)]);
    NAMES.iter().for_each(|text| world.handle(Event::Follow(tag(text))));
    world.run(&[BTreeSet::new()]);
    assert!(world.machines.quarantined().eq([&model("j")]));
    world
}

#[test]
fn a_quarantine_outlives_both_processes_and_the_first_look_up() {
    let mut before = convicted();
    let legacy = before.machines.legacy();
    let mut next = World::new(&[("j", Kills::Load)]);
    next.machines = machines(before.machines.versions().clone());
    let crashes = before.machines.take_crashes().expect("it has changed");
    let text = serde_json::to_string(&crashes).expect("JSON");
    let crashes: BTreeMap<EngineId, Crashes> = serde_json::from_str(&text).expect("JSON");
    next.machines.adopt_crashes(crashes, Duration::ZERO);
    next.machines.adopt(legacy, next.now);
    next.handle(Event::Condition(EngineId::default(), Condition::up()));
    NAMES.iter().for_each(|text| next.handle(Event::Follow(tag(text))));
    next.run(&[BTreeSet::new()]);
    assert_eq!(next.crashes, 0);
    assert!(matches!(next.machines.answer_tag(&tag("j"), next.now), Answer::Refused(_)));
}

#[test]
fn an_operator_may_load_a_version_in_quarantine() {
    let mut world = convicted();
    world.killers.clear();
    world.handle(Event::Load(name("j"), latest()));
    world.run(&[BTreeSet::new()]);
    assert!(world.is_ready(&model("j")));
    assert_eq!(world.machines.quarantined().count(), 0);
}

#[test]
fn a_suspected_version_shows_that_it_waits_until_its_load_begins() {
    let mut world = World::new(&[]);
    NAMES[..2].iter().for_each(|text| world.handle(Event::Follow(tag(text))));
    world.work(&BTreeSet::new());
    world.crash(BTreeSet::new());
    let shown = |world: &World, text| {
        let version = world.machines.model(&model(text)).expect("it is known");
        world.machines.activity_of(version)
    };
    world.machines.take_changed();
    assert_eq!([shown(&world, "a"), shown(&world, "b")], ["loading", SUSPECTED]);
    while shown(&world, "b") == SUSPECTED {
        assert!(!world.machines.take_changed().contains(&name("b")), "it still waits");
        world.work(&BTreeSet::new());
        world.pass();
    }
    assert!(world.machines.take_changed().contains(&name("b")), "its view is published again");
    assert_eq!(shown(&world, "b"), "loading");
    world.work(&BTreeSet::new());
    assert_eq!(shown(&world, "b"), "serving");
}

#[test]
fn suspects_wait_until_all_others_serve_and_then_load_one_at_a_time() {
    let mut world = World::new(&[]);
    NAMES[..5].iter().for_each(|text| world.handle(Event::Follow(tag(text))));
    for _ in 0..4 {
        world.work(&BTreeSet::new());
    }
    // The last one is still being loaded, and two calls are in flight.
    world.crash([model("a"), model("b")].into());
    let owners = |world: &World| {
        let owner = |id: &ServableId| world.machines.owner(id).map(|key| key.name.to_string());
        world.loading.iter().filter_map(owner).collect::<Vec<_>>()
    };
    let mut order = Vec::new();
    while order.len() < 5 {
        let loading = owners(&world);
        assert!(order.len() < 2 || loading.len() <= 1, "{loading:?} after {order:?}");
        order.extend(loading.first().cloned());
        world.work(&BTreeSet::new());
        world.pass();
    }
    order[..2].sort();
    assert_eq!(order, ["c", "d", "a", "b", "e"]);
}

#[test]
fn a_version_that_most_likely_ends_the_engine_waits_long_for_the_loads_of_others() {
    let mut world = World::new(&[("j", Kills::Calls)]);
    NAMES.iter().for_each(|text| world.handle(Event::Follow(tag(text))));
    while world.crashes < 2 {
        world.work(&BTreeSet::new());
        world.pass();
    }
    // No load makes progress.
    let restarted_at = world.now;
    let loads_killer = |world: &World| {
        world.loading.iter().any(|id| world.machines.owner(id) == Some(&model("j")))
    };
    while !loads_killer(&world) {
        assert!(world.now.since(restarted_at) < Duration::from_secs(70), "it waits for ever");
        world.pass();
    }
    assert!(world.now.since(restarted_at) >= Duration::from_secs(60));
}
