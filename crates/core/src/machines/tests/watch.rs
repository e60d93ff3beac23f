//! An engine that one version ends: at its load, at its first run, or by a call.

use proptest::prelude::*;

use super::*;
use crate::{Crashes, machines::watch::SUSPECTED};

/// The way in which the killer ends the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kills {
    Load,
    FirstRun,
    Calls,
}

/// The machines, and an engine that restarts when the killer ends it.
struct World {
    machines: Machines,
    now: Moment,
    killer: ModelKey,
    kills: Kills,
    /// Versions that the engine is loading, in order, and those that are up.
    loading: VecDeque<ServableId>,
    up: BTreeSet<ServableId>,
    crashes: u64,
    condition: Condition,
}

const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
const STEP: Duration = Duration::from_millis(100);

impl World {
    fn new(killer: &str, kills: Kills) -> Self {
        let mut world = Self {
            machines: machines(),
            now: Moment::at(Duration::from_secs(1)),
            killer: model(killer),
            kills,
            loading: VecDeque::new(),
            up: BTreeSet::new(),
            crashes: 0,
            condition: Condition::up(),
        };
        world.handle(Event::Condition(EngineId::default(), Condition::up()));
        world
    }

    fn handle(&mut self, event: Event) {
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
            Effect::Switched(..) | Effect::LoadFailed(..) => None,
            Effect::Model(key, M::Pull(it)) => on(key, model::Event::Pulled(it, Ok(()))),
            Effect::Model(key, M::Prepare(it)) => {
                on(key, model::Event::Prepared(it, Ok(EngineId::default())))
            }
            Effect::Model(key, M::Publish(it, _)) => on(key, model::Event::Published(it, Ok(()))),
            Effect::Model(key, M::Check(it, _)) => {
                let ends = self.kills == Kills::FirstRun && key == self.killer;
                match ends {
                    true => {
                        self.crash(BTreeSet::from([key.clone()]));
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
    fn crash(&mut self, lost: BTreeSet<ModelKey>) {
        self.crashes += 1;
        let engine = EngineId::default();
        let down = Condition { reachable: Some(false), ..self.condition.clone() };
        self.handle(Event::Condition(engine.clone(), down));
        self.now = self.now + STEP;
        let had: Vec<_> = self.loading.drain(..).chain(std::mem::take(&mut self.up)).collect();
        self.handle(Event::Restarted(engine.clone(), lost));
        self.condition.restarts += 1;
        self.handle(Event::Condition(engine.clone(), self.condition.clone()));
        for id in had {
            self.handle(Event::Engine(engine.clone(), FromEngine::Lost(id)));
        }
    }

    /// The engine loads the next version, or requests run: a call of the killer, and others.
    fn work(&mut self, others: &BTreeSet<usize>) {
        if let Some(id) = self.loading.pop_front() {
            let is_killer = self.machines.owner(&id) == Some(&self.killer);
            if is_killer && self.kills == Kills::Load {
                self.loading.push_front(id);
                let calls = self.calls(others);
                return self.crash(calls);
            }
            self.up.insert(id.clone());
            self.handle(Event::Engine(EngineId::default(), FromEngine::Up(id)));
        } else if self.kills == Kills::Calls && self.may_call(&self.killer) {
            let mut calls = self.calls(others);
            let suspects = self.machines.suspects();
            if let Some(suspects) = suspects.get(&EngineId::default()).filter(|it| it.are_apart) {
                calls.retain(|key| !suspects.versions.contains(key));
            }
            calls.insert(self.killer.clone());
            self.crash(calls);
        }
    }

    fn calls(&self, others: &BTreeSet<usize>) -> BTreeSet<ModelKey> {
        let names = others.iter().map(|index| model(NAMES[*index]));
        names.filter(|key| *key != self.killer && self.may_call(key)).collect()
    }

    fn may_call(&self, key: &ModelKey) -> bool {
        let suspects = self.machines.suspects();
        let suspects = suspects.get(&EngineId::default());
        let waits = suspects.is_some_and(|it| it.are_loading && it.versions.contains(key));
        self.is_ready(key) && !waits
    }

    fn is_ready(&self, key: &ModelKey) -> bool {
        matches!(self.machines.answer_digest(key, self.now), Answer::Ready(..))
    }

    fn pass(&mut self) {
        let until = self.now + STEP;
        while let Some(at) = self.machines.wakes_at().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.handle(Event::Tick);
        }
        self.now = until;
    }

    /// Lets the engine work with these calls in flight, in turns.
    fn run(&mut self, calls: &[BTreeSet<usize>]) {
        for others in calls.iter().cycle().take(400) {
            self.work(others);
            self.pass();
        }
    }
}

fn machines() -> Machines {
    Machines::new(Policy::default(), Versions::after(Version(0)), [EngineId::default()])
}

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
        calls in proptest::collection::vec(
            proptest::collection::btree_set(0..NAMES.len(), 0..NAMES.len()), 1..8,
        ),
    ) {
        let mut world = World::new(NAMES[killer], kills);
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
        prop_assert_eq!(quarantined, [world.killer.clone()]);
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
    let mut world = World::new("j", Kills::Load);
    NAMES.iter().for_each(|text| world.handle(Event::Follow(tag(text))));
    world.run(&[BTreeSet::new()]);
    assert!(world.machines.quarantined().eq([&model("j")]));
    world
}

#[test]
fn a_quarantine_outlives_both_processes_and_the_first_look_up() {
    let mut before = convicted();
    let legacy = before.machines.legacy();
    let mut next = World::new("j", Kills::Load);
    next.machines = machines();
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
    world.kills = Kills::Calls;
    world.killer = model("nobody");
    world.handle(Event::Load(name("j"), latest()));
    world.run(&[BTreeSet::new()]);
    assert!(world.is_ready(&model("j")));
    assert_eq!(world.machines.quarantined().count(), 0);
}

#[test]
fn a_suspected_version_shows_that_it_waits_until_its_load_begins() {
    let mut world = World::new("nobody", Kills::Load);
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
    let mut world = World::new("nobody", Kills::Load);
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
