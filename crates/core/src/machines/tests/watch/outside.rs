//! An engine that something outside of it kills, beside versions that end it.

use super::{world::STEP, *};
use crate::machines::watch::view::UNEXPLAINED;

const MINUTE: Duration = Duration::from_secs(60);

/// A source of random numbers from a seed: `SplitMix64` (Steele, Lea and Flood, 2014).
struct Random(u64);

impl Random {
    /// A number from 0 to below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// The times and the traffic of a series of kills from outside.
#[derive(Debug, Clone, Copy)]
struct Weather {
    /// The mean time from one kill to the next: it is at least half, and below one and a half times.
    every: Duration,
    /// The time in which the engine starts.
    start: Duration,
    /// The time in which a version is loaded; the engine loads one at a time.
    load: Duration,
    /// The percentage of the time in which a version has calls in flight.
    busy: u64,
    /// The version that always has, if it is served.
    busiest: Option<&'static str>,
}

/// The world, with an engine that is killed from outside.
struct Storm {
    world: World,
    random: Random,
    weather: Weather,
    kill_at: Moment,
    /// The time at which the engine is back, and the versions whose calls its end cut off.
    back: Option<(Moment, BTreeSet<ModelKey>)>,
    loaded_at: Moment,
    /// Versions that were in quarantine at any time.
    quarantined: BTreeSet<ModelKey>,
}

impl Storm {
    /// A storm over nine versions, all of which are up.
    fn over(mut world: World, seed: u64, weather: Weather) -> Self {
        NAMES[..9].iter().for_each(|text| world.handle(Event::Follow(tag(text))));
        world.run(&[BTreeSet::new()]);
        assert!(NAMES[..9].iter().all(|text| world.is_ready(&model(text))));
        Self::begun(world, seed, weather)
    }

    /// A storm over nine versions from now on.
    fn begun(mut world: World, seed: u64, weather: Weather) -> Self {
        NAMES[..9].iter().for_each(|text| world.handle(Event::Follow(tag(text))));
        let mut random = Random(seed);
        let phase = random.below(u64::try_from(weather.every.as_millis()).expect("a short time"));
        Self {
            kill_at: world.now + Duration::from_millis(phase),
            loaded_at: world.now,
            world,
            random,
            weather,
            back: None,
            quarantined: BTreeSet::new(),
        }
    }

    /// The versions that have calls in flight now.
    fn calling(&mut self) -> BTreeSet<ModelKey> {
        let Weather { busy, busiest, .. } = self.weather;
        let is_called = |text: &&str| self.random.below(100) < busy || busiest == Some(*text);
        let called: Vec<_> = NAMES.into_iter().filter(is_called).map(model).collect();
        let mut calling: BTreeSet<_> =
            called.into_iter().filter(|key| self.world.may_call(key)).collect();
        let suspects = self.world.machines.suspects();
        if let Some(suspects) = suspects.get(&EngineId::default()).filter(|it| it.are_apart) {
            let apart: Vec<_> = calling.intersection(&suspects.versions).cloned().collect();
            calling.retain(|key| !suspects.versions.contains(key));
            let count = u64::try_from(apart.len()).expect("a small number");
            if count > 0 {
                let index = usize::try_from(self.random.below(count)).expect("a small number");
                calling.insert(apart[index].clone());
            }
        }
        calling
    }

    fn step(&mut self) {
        let now = self.world.now;
        if let Some((_, lost)) = self.back.take_if(|(at, _)| *at <= now) {
            self.world.come_back(lost);
            self.loaded_at = now;
        }
        if now >= self.kill_at {
            let every = u64::try_from(self.weather.every.as_millis()).expect("a short time");
            let after = every / 2 + self.random.below(every);
            self.kill_at = self.kill_at + Duration::from_millis(after);
            if self.back.is_none() {
                let calling = self.calling();
                self.world.end();
                self.back = Some((now + self.weather.start, calling));
            }
        }
        if self.back.is_none() && now >= self.loaded_at + self.weather.load {
            self.loaded_at = now;
            self.world.load(&BTreeSet::new());
        }
        self.quarantined.extend(self.world.machines.quarantined().cloned());
        // Nothing but calls happens before the next kill, or the turn of a held version.
        let is_idle = self.back.is_none() && self.world.loading.is_empty();
        let step = if is_idle { STEP * 5 } else { STEP };
        self.world.pass_until((self.world.now + step).min(self.kill_at.max(self.world.now + STEP)));
    }

    fn run(&mut self, time: Duration) {
        let until = self.world.now + time;
        while self.world.now < until {
            self.step();
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
const SEEDS: u64 = 6;

/// A storm with these kills and this traffic, and with other times for each seed.
fn weather(every: u32, busy: u64, seed: u64) -> Weather {
    let mut random = Random(seed);
    Weather {
        every: SECOND * every,
        start: Duration::from_millis(1000 + random.below(1000)),
        load: Duration::from_millis(200 + random.below(800)),
        busy,
        busiest: None,
    }
}

fn quarantined(world: &World) -> BTreeSet<ModelKey> {
    world.machines.quarantined().cloned().collect()
}

fn models(names: &[&str]) -> BTreeSet<ModelKey> {
    names.iter().map(|text| model(text)).collect()
}

fn is_unexplained(world: &World) -> bool {
    world.machines.unexplained().any(|(_, is_unexplained)| is_unexplained)
}

#[test]
fn kills_from_outside_put_no_version_with_little_traffic_in_quarantine() {
    for (seed, every) in (0..SEEDS).flat_map(|seed| [(seed, 5), (seed, 8), (seed, 12)]) {
        let mut storm = Storm::over(World::new(&[]), seed, weather(every, 10, seed));
        storm.run(SECOND * every * 12);
        assert_eq!(storm.quarantined, models(&[]), "seed {seed}, every {every} s");
        assert!(is_unexplained(&storm.world), "seed {seed}, every {every} s");
        storm.world.crash(BTreeSet::new());
        let loading = storm.world.machines.model(&model("a")).expect("it is known");
        assert_eq!(storm.world.machines.activity_of(loading), UNEXPLAINED);
        storm.kill_at = storm.world.now + MINUTE * 60;
        storm.run(MINUTE);
        assert!(NAMES[..9].iter().all(|text| storm.world.is_ready(&model(text))));
        assert!(storm.world.machines.suspects().is_empty());
        storm.world.now = storm.world.now + MINUTE * 10;
        storm.world.handle(Event::Tick);
        assert!(!is_unexplained(&storm.world), "the series is over");
    }
}

#[test]
fn suspected_versions_that_crashes_keep_from_their_turn_come_before_others() {
    let mut world = World::new(&[]);
    let names = &NAMES[..4];
    names.iter().for_each(|text| world.handle(Event::Follow(tag(text))));
    world.run(&[BTreeSet::new()]);
    let mut first: BTreeSet<&str> = BTreeSet::new();
    let mut calling: BTreeSet<_> = names.iter().map(|text| model(text)).collect();
    for _ in 0..2 {
        world.crash(std::mem::take(&mut calling));
        while !names.iter().any(|text| world.is_ready(&model(text))) {
            world.work(&BTreeSet::new());
            world.pass();
        }
        first.extend(names.iter().filter(|text| world.is_ready(&model(text))));
    }
    assert_eq!(first, BTreeSet::from(["a", "c"]), "b was being loaded at the second crash");
}

#[test]
fn kills_from_outside_that_go_on_release_each_version_whose_calls_never_cease() {
    for seed in 0..SEEDS {
        let mut storm = Storm::over(World::new(&[]), seed, weather(20, 100, seed));
        storm.run(SECOND * 20 * 12);
        assert!(storm.quarantined.len() <= 2, "seed {seed}: {:?}", storm.quarantined);
        assert_eq!(quarantined(&storm.world), models(&[]), "seed {seed}");
        assert!(is_unexplained(&storm.world), "seed {seed}");
    }
}

#[test]
fn kills_from_outside_put_the_busiest_version_in_no_quarantine() {
    for (seed, every) in (0..SEEDS).flat_map(|seed| [(seed, 5), (seed, 10), (seed, 15)]) {
        let busy = u64::from(every) * (seed % 2);
        let weather = Weather { busiest: Some("e"), ..weather(every, busy, seed) };
        let mut storm = Storm::over(World::new(&[]), seed, weather);
        storm.run(SECOND * every * 16);
        assert_eq!(storm.quarantined, models(&[]), "seed {seed}, {every} s, {busy} %");
    }
}

#[test]
fn a_quarantine_ends_by_a_trial_and_the_next_one_takes_twice_as_long() {
    let minutes = |world: &mut World, count: u32| {
        world.pass_until(world.now + MINUTE * count);
        world.run(&[BTreeSet::new()]);
        quarantined(world)
    };
    for kills in [Kills::Load, Kills::Calls] {
        let mut world = World::new(&[("j", kills)]);
        NAMES.iter().for_each(|text| world.handle(Event::Follow(tag(text))));
        world.run(&[BTreeSet::new()]);
        let before = world.crashes;
        assert_eq!(minutes(&mut world, 5), models(&["j"]));
        assert_eq!(world.crashes, before, "{kills:?}: the engine has run for five minutes");
        assert_eq!(minutes(&mut world, 6), models(&["j"]));
        assert_eq!(world.crashes, before + 1, "{kills:?}: it was tried again");
        assert_eq!(minutes(&mut world, 11), models(&["j"]));
        assert_eq!(world.crashes, before + 1, "{kills:?}: the next pause is longer");
        world.killers.clear();
        assert_eq!(minutes(&mut world, 11), models(&[]));
        assert!(world.is_ready(&model("j")) && world.machines.suspects().is_empty());
        assert_eq!(world.crashes, before + 1, "{kills:?}: it has passed");
    }
}

#[test]
fn kills_from_outside_release_versions_that_were_convicted_before_they_ever_came_up() {
    for seed in 0..SEEDS {
        let weather = weather(5, 3, seed);
        let mut storm = Storm::begun(World::new(&[]), seed, weather);
        storm.run(SECOND * 5 * 20);
        assert_eq!(quarantined(&storm.world), models(&[]), "seed {seed}");
    }
}

#[test]
fn a_version_that_ends_the_engine_at_its_load_is_found_among_kills_from_outside() {
    for seed in 0..SEEDS {
        let world = World::new(&[("j", Kills::Load)]);
        let mut storm = Storm::over(world, seed, weather(20, 3, seed));
        storm.world.handle(Event::Follow(tag("j")));
        storm.run(SECOND * 20 * 10);
        assert_eq!(quarantined(&storm.world), models(&["j"]), "seed {seed}");
        assert_eq!(storm.quarantined, models(&["j"]), "seed {seed}");
    }
}

#[test]
fn versions_that_end_the_engine_one_after_another_each_take_as_many_crashes_as_one() {
    let ways = [("h", Kills::Load, 2), ("i", Kills::FirstRun, 2), ("j", Kills::Calls, 4)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut world = World::new(&ways.map(|(text, kills, _)| (text, kills)));
        NAMES[..7].iter().for_each(|text| world.handle(Event::Follow(tag(text))));
        for (text, kills, most) in order.map(|index| ways[index]) {
            let before = world.crashes;
            world.handle(Event::Follow(tag(text)));
            world.run(&[0, 1, 2, 3].map(|index| BTreeSet::from([index])));
            assert!(quarantined(&world).contains(&model(text)), "{order:?}: {kills:?}");
            assert!(world.crashes <= before + most, "{order:?}: {kills:?}");
        }
        assert_eq!(quarantined(&world), models(&["h", "i", "j"]), "{order:?}");
        assert!(NAMES[..7].iter().all(|text| world.is_ready(&model(text))));
    }
}

#[test]
fn two_versions_that_end_the_engine_at_their_load_are_both_found() {
    let mut world = World::new(&[("c", Kills::Load), ("j", Kills::Load)]);
    NAMES.iter().for_each(|text| world.handle(Event::Follow(tag(text))));
    world.run(&[BTreeSet::from([0, 1]), BTreeSet::from([1, 4])]);
    assert_eq!(quarantined(&world), models(&["c", "j"]));
    assert!(world.crashes <= 4, "{} crashes", world.crashes);
}

#[test]
fn versions_that_are_too_many_for_the_engine_are_put_in_quarantine_until_the_others_fit() {
    let mut world = World::new(&[]);
    NAMES.iter().for_each(|text| world.handle(Event::Follow(tag(text))));
    world.run(&[BTreeSet::new()]);
    assert!(NAMES.iter().all(|text| world.is_ready(&model(text))));
    world.too_many = 9;
    world.crash(BTreeSet::new());
    (0..4).for_each(|_| world.run(&[BTreeSet::from([0, 1]), BTreeSet::new()]));
    assert_eq!(quarantined(&world).len(), 2);
    assert_eq!(NAMES.iter().filter(|text| world.is_ready(&model(text))).count(), 8);
    assert!(!is_unexplained(&world));
}
