//! Canaries on trial while the latency of both arms changes, as on a busy machine.

use outrigger_canary::{
    Decider, Decision,
    simulation::{Drift, Effect, Ending, Trial},
};

use crate::{HORIZON, RATE, each, median, report, share_of, traffic};

/// Requests of both arms in a second and in an hour.
const SECOND: f64 = RATE;
const HOUR: u64 = 3600 * RATE as u64;

/// The drifts with their names: answers that take twice or five times as long since the
/// split, bursts of ten seconds a minute, and an hour that becomes three times as slow.
fn drifts() -> [(&'static str, Drift); 4] {
    [
        ("x2", Drift::Slower { factor: 2.0 }),
        ("x5", Drift::Slower { factor: 5.0 }),
        ("bursts", Drift::Bursts { factor: 4.0, burst: 10.0 * SECOND, pause: 50.0 * SECOND }),
        ("slow-hour", Drift::Swell { factor: 3.0, requests: HOUR }),
    ]
}

/// Canaries with live's behaviour and canaries that are slower, under each drift. The
/// figures without a drift's name are the worst of all drifts. A fifth of the canaries
/// are simulated.
pub(crate) fn drifting(decider: &Decider, canaries: u64) {
    let canaries = (canaries / 5).max(1);
    let (mut promoted, mut wrongly, mut found) = (100.0_f64, 0.0_f64, 100.0_f64);
    let slower = Effect { latency: 1.5, ..Effect::NONE };
    for (name, drift) in drifts() {
        let print = |figure, value, unit| report(&format!("drift-{name}-{figure}"), value, unit);
        let endings = endings_of(decider, drift, Effect::NONE, canaries);
        let share = share_of(&endings, Decision::Promote);
        promoted = promoted.min(share);
        print("promoted", share, "%");
        print("promoted-median", median(&endings, Decision::Promote), "requests");
        let share = share_of(&endings, Decision::Rollback);
        wrongly = wrongly.max(share);
        print("rolled-back", share, "%");

        let endings = endings_of(decider, drift, slower, canaries);
        let share = share_of(&endings, Decision::Rollback);
        found = found.min(share);
        print("latency-rolled-back", share, "%");
        print("latency-median", median(&endings, Decision::Rollback), "requests");
    }
    report("drift-promoted", promoted, "%");
    report("drift-rolled-back", wrongly, "%");
    report("drift-latency-rolled-back", found, "%");
}

fn endings_of(decider: &Decider, drift: Drift, effect: Effect, canaries: u64) -> Vec<Ending> {
    each(canaries, |seed| {
        Trial::run(decider, traffic(effect, seed).with_drift(drift), RATE, HORIZON).0
    })
}
