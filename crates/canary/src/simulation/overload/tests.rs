//! Trials on a shared engine.

use super::*;
use crate::{
    Cause,
    simulation::{Effect, Generated, Live},
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
