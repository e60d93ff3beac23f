//! Statistics of replicas add up to those of one that saw everything.

use std::{sync::Arc, time::Duration};

use outrigger_canary::{Observation, Outcome, Pair, Reference, Share, Statistics};
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
    let request = (share(), arm(), 0..10_000_000_u64, outcome()).prop_map(
        |(share, arm, microseconds, outcome)| {
            let latency = Duration::from_micros(microseconds);
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
        latency: Duration::from_millis(number),
        outcome: Outcome::Scored(number as f64 / 100.0),
    });
    Arc::new(Reference::new(&sample.collect::<Vec<_>>(), 0.95))
}

fn statistics(all: &[Seen]) -> Statistics {
    let mut statistics = Statistics::new(reference());
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
    let mut sum = Statistics::new(reference());
    parts.iter().for_each(|part| sum.merge(part).expect("one reference"));
    sum
}

proptest! {
    #[test]
    fn replicas_add_up_to_one_stream(
        [a, b, c] in [(); 3].map(|()| prop::collection::vec(seen(), 0..60)),
    ) {
        let whole = statistics(&[a.clone(), b.clone(), c.clone()].concat());
        let [a, b, c] = [a, b, c].map(|seen| statistics(&seen));
        prop_assert_eq!(&sum(&[&a, &b, &c]), &whole);
        prop_assert_eq!(&sum(&[&c, &a, &b]), &whole);
        prop_assert_eq!(&sum(&[&a, &sum(&[&b, &c])]), &whole);
    }
}

proptest! {
    #[test]
    fn what_was_written_goes_on_where_it_was(
        [before, after] in [(); 2].map(|()| prop::collection::vec(seen(), 0..60)),
    ) {
        let written = serde_json::to_string(&statistics(&before)).unwrap();
        let mut restarted: Statistics = serde_json::from_str(&written).unwrap();
        record(&mut restarted, &after);
        prop_assert_eq!(restarted, statistics(&[before, after].concat()));
    }
}

#[test]
fn statistics_on_another_scale_than_their_own_are_refused() {
    let scored = Observation {
        arm: Arm::Live,
        latency: Duration::from_millis(20),
        outcome: Outcome::Scored(0.5),
    };
    let mut statistics = Statistics::new(reference());
    statistics.record(Share::new(0.1).expect("a share"), &scored);
    let mut written = serde_json::to_value(&statistics).unwrap();
    let bins = written["stages"][0][1]["live"]["score_bins"].as_array_mut().unwrap();
    bins.pop();
    assert!(serde_json::from_value::<Statistics>(written).is_err());
}

#[test]
fn scales_do_not_mix() {
    let mut statistics = statistics(&[]);
    let other = Statistics::new(Arc::new(Reference::new(&[], 0.5)));
    assert!(statistics.merge(&other).is_err());
}
