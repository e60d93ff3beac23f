//! Canaries that cost much of an engine that both arms share.

use std::time::Duration;

use outrigger_canary::{
    Conclusion, Decider, Share,
    simulation::{Effect, Generated, Live, Overload, Overloaded, Traffic},
};

use crate::{HORIZON, each, report};

/// The servers of the engine, and the time that a request on live takes on one.
const SERVERS: usize = 2;
const LIVE: Duration = Duration::from_millis(1);

/// The scenarios with their names: the canary's share, the requests a second, and the time
/// that one on the canary takes on a server.
fn scenarios() -> [(&'static str, f64, f64, Duration); 4] {
    let (long, short) = (Duration::from_millis(200), Duration::from_millis(50));
    [
        ("10-percent-of-400-200ms", 0.1, 400.0, long),
        ("10-percent-of-400-50ms", 0.1, 400.0, short),
        ("30-percent-of-300-200ms", 0.3, 300.0, long),
        ("30-percent-of-300-50ms", 0.3, 300.0, short),
    ]
}

/// Canaries in each scenario, and the callers until the conclusion and shortly afterwards.
/// The figures without a scenario's name are the worst of all. A hundredth of the canaries
/// are simulated.
pub(crate) fn overloading(decider: &Decider, canaries: u64) {
    let canaries = (canaries / 100).max(1);
    let (mut failed, mut slow, mut found) = (0.0_f64, 0.0_f64, 100.0_f64);
    for (name, share, rate, cost) in scenarios() {
        let print = |figure, value, unit| report(&format!("overload-{name}-{figure}"), value, unit);
        let courses = each(canaries, |seed| {
            overload(share, rate, cost, seed).run(decider.config().clone(), seed)
        });
        let most = |figure: fn(&Overloaded) -> f64| courses.iter().map(figure).fold(0.0, f64::max);
        let most_failed = most(|it| 100.0 * it.failed_share());
        let most_slow = most(|it| it.slow_seconds as f64);
        let ended = courses.iter().filter(|it| is_rolled_back(it)).count();
        let rolled_back = 100.0 * ended as f64 / canaries as f64;
        (failed, slow) = (failed.max(most_failed), slow.max(most_slow));
        found = found.min(rolled_back);
        print("failed", most_failed, "%");
        print("slow", most_slow, "s");
        print("rolled-back", rolled_back, "%");
        print("longest", most(|it| it.elapsed.as_secs_f64()), "s");
    }
    report("overload-failed", failed, "%");
    report("overload-slow", slow, "s");
    report("overload-rolled-back", found, "%");
}

fn overload(share: f64, rate: f64, cost: Duration, seed: u64) -> Overload {
    let live = Generated { error_rate: 0.0, latency: LIVE, sigma: 0.5 };
    let effect = Effect { latency: cost.div_duration_f64(LIVE), ..Effect::NONE };
    let share = Share::new(share).expect("between 0 and 1");
    Overload {
        traffic: Traffic::new(share, Live::Generated(live), effect, seed),
        rate,
        servers: SERVERS,
        deadline: Duration::from_secs(1),
        most: HORIZON,
    }
}

fn is_rolled_back(course: &Overloaded) -> bool {
    matches!(course.conclusion, Some(Conclusion::Rollback(_)))
}
