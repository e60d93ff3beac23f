//! Trials on a shared engine.

use super::*;
use crate::{
    Cause,
    simulation::{Drift, Effect, Generated, Live},
};

/// A scenario: the canary's share of the requests a second, and the time of a core that a
/// request on the canary costs. One on live costs a millisecond.
fn overload(share: f64, rate: f64, canary: Duration) -> Overload {
    let live = Generated { error_rate: 0.0, latency: Duration::from_millis(1), sigma: 0.5 };
    let effect = Effect { latency: canary.as_secs_f64() / 1e-3, ..Effect::NONE };
    let share = Share::new(share).expect("between 0 and 1");
    Overload {
        traffic: Traffic::new(share, Live::Generated(live), effect, 1),
        rate,
        servers: 2,
        deadline: Duration::from_secs(1),
        most: 50_000,
    }
}

#[test]
fn a_canary_that_overloads_is_rolled_back_and_live_hardly_suffers() {
    for (share, rate) in [(0.1, 400.0), (0.3, 300.0)] {
        for cost in [200, 50].map(Duration::from_millis) {
            for seed in 0..10 {
                let mut overload = overload(share, rate, cost);
                overload.traffic = overload.traffic.with_seed(seed);
                let report = overload.run(Config::default(), seed);
                assert_eq!(report.conclusion, Some(Conclusion::Rollback(Cause::Proved)));
                assert!(report.failed_share() <= 0.001, "{report}");
                assert!(report.slow_seconds <= 5, "{report}");
            }
        }
    }
}

#[test]
fn a_canary_like_live_has_its_share_of_the_requests() {
    let report = overload(0.1, 400.0, Duration::from_millis(1)).run(Config::default(), 1);
    assert_eq!(report.conclusion, Some(Conclusion::Promote(Cause::Proved)));
    assert!(report.left_to_live * 100 < report.canary, "{report}");
    assert_eq!(report.failed, 0);
}

/// The most seconds in which live is slow on one core: it waits there for each request of
/// the canary, and then for its own queue. The canary gets requests at first and in two
/// probes, and each time live is slow for up to three seconds.
const SLOW_ON_ONE_CORE: u64 = 9;

/// One core, with a canary that needs it for 0.2 seconds.
fn single(share: f64, rate: f64) -> Overload {
    Overload { servers: 1, ..overload(share, rate, Duration::from_millis(200)) }
}

#[test]
fn on_one_core_the_canary_is_stopped_at_once_and_rolled_back() {
    for (share, rate) in [(0.1, 400.0), (0.3, 300.0)] {
        for seed in 0..10 {
            let mut overload = single(share, rate);
            overload.traffic = overload.traffic.with_seed(seed);
            let report = overload.run(Config::default(), seed);
            assert!(matches!(report.conclusion, Some(Conclusion::Rollback(_))), "{report}");
            assert!(
                report.failed_share() <= 0.001 && report.slow_seconds <= SLOW_ON_ONE_CORE,
                "{report}"
            );
        }
    }
}

#[test]
fn a_canary_is_rolled_back_for_its_load_if_no_signal_shows_its_harm() {
    let config = Config { latency: None, ..Config::default() };
    for seed in 0..10 {
        let mut overload = single(0.1, 400.0);
        overload.traffic = overload.traffic.with_seed(seed);
        let report = overload.run(config.clone(), seed);
        assert_eq!(report.conclusion, Some(Conclusion::Rollback(Cause::Overload)), "{report}");
        assert!(
            report.failed_share() <= 0.001 && report.slow_seconds <= SLOW_ON_ONE_CORE,
            "{report}"
        );
    }
}

#[test]
fn a_canary_like_live_is_promoted_while_both_arms_change() {
    let drifts = [
        Drift::Slower { factor: 5.0 },
        Drift::Bursts { factor: 4.0, burst: 500.0, pause: 2500.0 },
        Drift::Swell { factor: 3.0, requests: 90_000 },
    ];
    for drift in drifts {
        for seed in 0..4 {
            let mut overload = overload(0.1, 50.0, Duration::from_millis(1));
            overload.traffic = overload.traffic.with_drift(drift).with_seed(seed);
            let report = overload.run(Config::default(), seed);
            let promoted = Some(Conclusion::Promote(Cause::Proved));
            assert_eq!(report.conclusion, promoted, "{drift:?}, {seed}: {report}");
        }
    }
}
