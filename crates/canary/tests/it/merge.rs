//! Merged statistics of replicas equal those of a single recorder.

use std::{sync::Arc, time::Duration};

use outrigger_canary::{
    Config, Decider, Decision, Merge, Observation, Outcome, Pair, Reference, Share, Statistics,
    simulation::{Effect, Generated, Live, Traffic},
};
use outrigger_core::Arm;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Seen {
    Request(Share, Observation),
    Features(Share, Arm, Vec<usize>),
    Pair(Pair),
}

fn share() -> impl Strategy<Value = Share> {
    prop::sample::select(vec![0.01, 0.1, 0.5]).prop_map(|share| Share::new(share).expect("a share"))
}

fn arm() -> impl Strategy<Value = Arm> {
    prop::sample::select(vec![Arm::Live, Arm::Canary, Arm::Pinned])
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Failed),
        Just(Outcome::NonFinite),
        Just(Outcome::Empty),
        (-2.0..2.0).prop_map(Outcome::Scored),
    ]
}

fn seen() -> impl Strategy<Value = Seen> {
    let microseconds = prop::option::weighted(0.9, 0..10_000_000_u64);
    let request = (share(), arm(), microseconds, outcome()).prop_map(
        |(share, arm, microseconds, outcome)| {
            let latency = microseconds.map(Duration::from_micros);
            Seen::Request(share, Observation { arm, latency, outcome })
        },
    );
    let features = (share(), arm(), prop::collection::vec(0..9_usize, 0..4))
        .prop_map(|(share, arm, categories)| Seen::Features(share, arm, categories));
    let pair = (any::<bool>(), prop::option::of(-1.0..1.0))
        .prop_map(|(same_top, difference)| Seen::Pair(Pair { same_top, difference }));
    prop_oneof![6 => request, 1 => features, 1 => pair]
}

fn reference() -> Arc<Reference> {
    let sample = (0..100).map(|number| Observation {
        arm: Arm::Live,
        latency: Some(Duration::from_millis(number)),
        outcome: Outcome::Scored(number as f64 / 100.0),
    });
    Arc::new(Reference::new(&sample.collect::<Vec<_>>(), 0.95))
}

fn statistics(all: &[Seen]) -> Statistics {
    on_scale(reference(), all)
}

fn on_scale(reference: Arc<Reference>, all: &[Seen]) -> Statistics {
    let mut statistics = Statistics::new(reference);
    record(&mut statistics, all);
    statistics
}

fn record(statistics: &mut Statistics, all: &[Seen]) {
    for seen in all {
        match seen {
            Seen::Request(share, observation) => statistics.record(*share, observation),
            Seen::Features(share, arm, categories) => {
                statistics.record_features(*share, *arm, categories);
            }
            Seen::Pair(pair) => statistics.record_pair(pair),
        }
    }
}

fn sum(parts: &[&Statistics]) -> Statistics {
    let (first, others) = parts.split_first().expect("at least one");
    let mut sum = (*first).clone();
    others.iter().for_each(|part| sum.merge(part));
    sum
}

proptest! {
    #[test]
    fn replicas_add_up_to_one_stream(
        [a, b, c] in [(); 3].map(|()| prop::collection::vec(seen(), 0..60)),
    ) {
        let one = statistics(&[a.clone(), b.clone(), c.clone()].concat());
        let [a, b, c] = [a, b, c].map(|seen| statistics(&seen));
        let whole = sum(&[&a, &b, &c]);
        prop_assert_eq!(&sum(&[&c, &a, &b]), &whole);
        prop_assert_eq!(&sum(&[&a, &sum(&[&b, &c])]), &whole);
        // All but the latencies' threshold, which follows live in each replica by itself.
        for arm in [Arm::Live, Arm::Canary] {
            let [one, whole] = [&one, &whole].map(|statistics| statistics.arm(arm));
            prop_assert_eq!(
                (one.requests(), one.failed(), one.non_finite(), one.latency(), one.scores()),
                (whole.requests(), whole.failed(), whole.non_finite(), whole.latency(), whole.scores())
            );
        }
    }
}

proptest! {
    #[test]
        fn restored_statistics_continue(
        [before, after] in [(); 2].map(|()| prop::collection::vec(seen(), 0..60)),
    ) {
        let written = serde_json::to_string(&statistics(&before)).unwrap();
        let mut restarted: Statistics = serde_json::from_str(&written).unwrap();
        record(&mut restarted, &after);
        prop_assert_eq!(restarted, statistics(&[before, after].concat()));
    }
}

#[test]
fn statistics_saved_without_a_threshold_are_read() {
    let request = Observation {
        arm: Arm::Live,
        latency: Some(Duration::from_millis(20)),
        outcome: Outcome::Scored(0.5),
    };
    let share = Share::new(0.1).expect("a share");
    let before = statistics(&[Seen::Request(share, request)]);
    let mut written = serde_json::to_value(&before).unwrap();
    let mut remove = |pointer: &str, key| {
        let object = written.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
        assert!(object.remove(key).is_some(), "{pointer}/{key}");
    };
    remove("", "threshold");
    remove("/reference", "quantile");
    remove("/stages/0/1/live", "relative_latency");
    remove("/stages/0/1/canary", "relative_latency");
    let mut after: Statistics = serde_json::from_value(written).unwrap();
    assert_eq!(after.requests(), before.requests());
    after.record(share, &request);
    assert_eq!(after.requests(), (2, 0));
}

#[test]
fn statistics_on_another_scale_than_their_own_are_refused() {
    let scored = Observation {
        arm: Arm::Live,
        latency: Some(Duration::from_millis(20)),
        outcome: Outcome::Scored(0.5),
    };
    let mut statistics = Statistics::new(reference());
    statistics.record(Share::new(0.1).expect("a share"), &scored);
    let mut written = serde_json::to_value(&statistics).unwrap();
    let bins = written["stages"][0][1]["live"]["score_bins"].as_array_mut().unwrap();
    bins.pop();
    assert!(serde_json::from_value::<Statistics>(written).is_err());
}

/// References of replicas: a usual one, one with other scores and latencies, one with few
/// different scores, and one without scores.
fn scales() -> [Arc<Reference>; 4] {
    let scale = |slow: u64, score: &dyn Fn(u64) -> Outcome| {
        let sample = (0..500).map(|number| Observation {
            arm: Arm::Live,
            latency: Some(Duration::from_millis(slow + number)),
            outcome: score(number),
        });
        Arc::new(Reference::new(&sample.collect::<Vec<_>>(), 0.95))
    };
    [
        reference(),
        scale(900, &|number| Outcome::Scored(1.0 - number as f64 / 400.0)),
        scale(5, &|number| Outcome::Scored((number % 3) as f64 / 2.0)),
        scale(5, &|_| Outcome::Empty),
    ]
}

proptest! {
    #[test]
    fn statistics_on_different_scales_add_up_in_any_order(
        seen in [(); 5].map(|()| prop::collection::vec(seen(), 0..40)),
    ) {
        let [usual, other, few, none] = scales();
        let of = [&usual, &other, &few, &none, &few];
        let parts: Vec<_> =
            of.iter().zip(&seen).map(|(scale, seen)| on_scale(Arc::clone(scale), seen)).collect();
        let [a, b, c, d, e] = std::array::from_fn(|part| &parts[part]);
        let whole = sum(&[a, b, c, d, e]);
        prop_assert_eq!(&sum(&[e, d, c, b, a]), &whole);
        prop_assert_eq!(&sum(&[&sum(&[c, e]), &sum(&[d, &sum(&[b, a])])]), &whole);
        let count = |all: &[&Statistics]| all.iter().map(|it| it.requests().0).sum::<u64>();
        prop_assert_eq!(whole.requests().0, count(&[a, b, c, d, e]));
        let written = serde_json::to_string(&whole).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Statistics>(&written).unwrap(), &whole);
    }
}

/// A replica with a reference of its own.
struct Replica {
    traffic: Traffic,
    statistics: Statistics,
}

impl Replica {
    /// A replica whose live has a median latency of `latency` and whose reference is made
    /// of `sample` requests.
    fn new(latency: Duration, effect: Effect, sample: usize, seed: u64) -> Self {
        let live = Live::Generated(Generated { latency, ..Generated::default() });
        let share = Share::new(0.1).expect("a share");
        let mut traffic = Traffic::new(share, live, effect, seed);
        let reference = Reference::new(&traffic.before(sample), 0.95);
        Self { traffic, statistics: Statistics::new(Arc::new(reference)) }
    }

    fn serve(&mut self, requests: u64) {
        for _ in 0..requests {
            self.statistics.record(self.traffic.share, &self.traffic.request());
        }
    }
}

/// The decision on the merged statistics of all replicas, and the canary requests until
/// it. The judge looks after every 250 requests.
fn decided(replicas: &mut [Replica]) -> (Decision, u64) {
    let decider = Decider::new(Config::default());
    for _ in 0..1600 {
        let each = 250 / replicas.len() as u64;
        replicas.iter_mut().for_each(|replica| replica.serve(each));
        let all: Vec<_> = replicas.iter().map(|replica| &replica.statistics).collect();
        let all = sum(&all);
        let decision = decider.decide(&all, Duration::from_secs(3600));
        if decision != Decision::Continue {
            return (decision, all.requests().1);
        }
    }
    panic!("the trial is not decided");
}

#[test]
fn replicas_with_scales_of_their_own_decide_together_as_one_would() {
    const MS: Duration = Duration::from_millis(1);
    let none = Effect::NONE;
    for (effect, expected) in [
        (none, Decision::Promote),
        (Effect { errors: 0.02, ..none }, Decision::Rollback),
        (Effect { latency: 1.5, ..none }, Decision::Rollback),
        (Effect { shift: 0.25, ..none }, Decision::Rollback),
    ] {
        let median = |replicas: &dyn Fn(u64) -> Vec<Replica>| {
            let mut requests = [1, 2, 3, 4, 5].map(|seed| {
                let (decision, requests) = decided(&mut replicas(10 * seed));
                assert_eq!(decision, expected, "{effect:?}");
                requests
            });
            requests.sort_unstable();
            requests[2] as f64
        };
        let one = median(&|seed| vec![Replica::new(20 * MS, effect, 1000, seed)]);
        let alike = median(&|seed| {
            vec![
                Replica::new(20 * MS, effect, 1000, seed),
                Replica::new(20 * MS, effect, 1000, seed + 1),
            ]
        });
        let different = median(&|seed| {
            vec![
                Replica::new(20 * MS, effect, 1000, seed),
                // A replica on a slower machine, with a smaller reference.
                Replica::new(50 * MS, effect, 100, seed + 1),
            ]
        });
        for replicas in [alike, different] {
            let ratio = replicas / one;
            assert!((0.5..2.0).contains(&ratio), "{effect:?}: {one} and {replicas}");
        }
    }
}
