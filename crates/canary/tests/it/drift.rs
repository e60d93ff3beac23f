//! Verdicts while the latency of both arms changes.

use std::{sync::Arc, time::Duration};

use outrigger_canary::{
    Arm, Config, Decider, Decision, Reference, Share, Statistics,
    simulation::{Drift, Effect, Generated, Live, Traffic},
};

/// Most requests on the canary until a verdict.
const MOST: u64 = 20_000;
/// Requests of both arms between two looks.
const BETWEEN: u64 = 1000;

const DRIFTS: [Drift; 4] = [
    Drift::Slower { factor: 2.0 },
    Drift::Slower { factor: 5.0 },
    Drift::Bursts { factor: 4.0, burst: 500.0, pause: 2500.0 },
    Drift::Swell { factor: 3.0, requests: 180_000 },
];

/// The verdict on a canary with this effect under a drift, after at most [`MOST`] of its
/// requests. `sigma` is the standard deviation of the latency's logarithm.
fn verdict(drift: Drift, effect: Effect, sigma: f64, seed: u64) -> Decision {
    let share = Share::new(0.1).expect("between 0 and 1");
    let live = Live::Generated(Generated { sigma, ..Generated::default() });
    let mut traffic = Traffic::new(share, live, effect, seed).with_drift(drift);
    let reference = Reference::new(&traffic.before(Reference::REQUESTS), 0.95);
    let mut statistics = Statistics::new(Arc::new(reference));
    let decider = Decider::new(Config::default());
    let mut canary = 0;
    while canary < MOST {
        for _ in 0..BETWEEN {
            let seen = traffic.request();
            canary += u64::from(seen.arm == Arm::Canary);
            statistics.record(share, &seen);
        }
        match decider.decide(&statistics, Duration::from_secs(3600)) {
            Decision::Continue => {}
            decision => return decision,
        }
    }
    Decision::Continue
}

#[test]
fn a_canary_like_live_is_promoted_while_both_arms_change() {
    for drift in DRIFTS {
        for seed in 0..8 {
            let found = verdict(drift, Effect::NONE, 0.5, seed);
            assert_eq!(found, Decision::Promote, "{drift:?}, seed {seed}");
        }
    }
}

#[test]
fn a_canary_like_live_is_promoted_where_both_hardly_vary_and_became_slower() {
    for sigma in [0.0, 0.05] {
        let found = verdict(Drift::Slower { factor: 5.0 }, Effect::NONE, sigma, 1);
        assert_eq!(found, Decision::Promote, "{sigma}");
    }
}

#[test]
fn a_slower_canary_is_rolled_back_while_both_arms_change() {
    let slower = Effect { latency: 1.3, ..Effect::NONE };
    for drift in DRIFTS {
        for sigma in [0.05, 0.5] {
            let found = verdict(drift, slower, sigma, 1);
            assert_eq!(found, Decision::Rollback, "{drift:?}, {sigma}");
        }
    }
}

#[test]
fn a_canary_at_the_margin_is_not_promoted_while_both_arms_change() {
    // The margin is one tenth of live's latency.
    let at_margin = Effect { latency: 1.1, ..Effect::NONE };
    for drift in DRIFTS {
        for seed in 0..8 {
            let found = verdict(drift, at_margin, 0.5, seed);
            assert_ne!(found, Decision::Promote, "{drift:?}, seed {seed}");
        }
    }
}
