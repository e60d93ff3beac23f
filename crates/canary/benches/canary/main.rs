//! Benchmarks the judge on simulated canaries against common judges that are tuned to
//! roll back one in a hundred canaries that are like live.
//!
//! Live fails 1 % of the requests, its latency is log-normal with sigma 0.5, its scores
//! are Beta(2, 5); the canary has a tenth of the traffic. Prints `bench <name> <value>
//! <unit>`. There are 10,000 canaries of each kind; the environment variable `CANARIES`
//! overrides the number.

#![allow(missing_docs)]

mod cost;
mod drift;
mod judges;
mod overload;
mod tuning;
mod users;

use std::{env, num::NonZero, thread};

use judges::{Judge, MannWhitney, Windows};
use outrigger_canary::{
    Arm, Config, Decider, Decision, Observation, Outcome, Reference, Share, Statistics,
    simulation::{Effect, Ending, Generated, Live, Traffic, Trial},
};
use tuning::{Rule, Rules, Running};
use users::Counted;

/// Requests on the canary after which a trial ends without a verdict.
const HORIZON: u64 = 20_000;

/// Requests a second.
const RATE: f64 = 50.0;

/// A defect of the canary, and which of its answers count as bad.
struct Regression {
    name: &'static str,
    effect: Effect,
    bad: fn(Outcome) -> bool,
}

fn regressions() -> [Regression; 5] {
    let failed = |outcome| outcome == Outcome::Failed;
    let non_finite = |outcome| outcome == Outcome::NonFinite;
    let any = |_| true;
    let none = Effect::NONE;
    // 1 % fail in live already; this share of the others raises the error rate to 3 %.
    let errors = Effect { errors: 0.02 / 0.99, ..none };
    [
        Regression { name: "errors", effect: errors, bad: failed },
        Regression { name: "latency", effect: Effect { latency: 1.5, ..none }, bad: any },
        Regression { name: "scores-shifted", effect: Effect { shift: 0.25, ..none }, bad: any },
        Regression { name: "scores-constant", effect: Effect { constant: true, ..none }, bad: any },
        Regression { name: "nan", effect: Effect { non_finite: 0.005, ..none }, bad: non_finite },
    ]
}

fn traffic(effect: Effect, seed: u64) -> Traffic {
    let share = Share::new(0.1).expect("between 0 and 1");
    Traffic::new(share, Live::Generated(Generated::default()), effect, seed)
}

fn main() {
    let number = env::var("CANARIES").ok().and_then(|number| number.parse().ok());
    let canaries = number.unwrap_or(10_000_u64);
    let decider = Decider::new(Config::default());
    report("request", cost::nanoseconds(), "ns");
    alike(&decider, canaries);
    returning(&decider, canaries);
    drift::drifting(&decider, canaries);
    overload::overloading(&decider, canaries);
    let harm = regressions().map(|regression| worse(&decider, &regression, canaries));

    // The common judges are slower to simulate, and fewer canaries measure their harm
    // precisely enough.
    let fewer = (canaries / 5).max(1);
    let rules = Rules::tuned();
    let compared = regressions().into_iter().zip(harm);
    let ratios = compared.map(|(regression, ours)| compare(&regression, &rules, fewer, ours));
    let least = ratios.filter(|ratio| *ratio < 1.0).count();
    report("harm-least", least as f64, "regressions");
}

/// Canaries with live's behaviour.
fn alike(decider: &Decider, canaries: u64) {
    let endings =
        each(canaries, |seed| Trial::run(decider, traffic(Effect::NONE, seed), RATE, HORIZON).0);
    report("alike-rolled-back", share_of(&endings, Decision::Rollback), "%");
    report("alike-promoted", share_of(&endings, Decision::Promote), "%");
    report("alike-promoted-median", median(&endings, Decision::Promote), "requests");

    // Never promoted, and tested after live's requests too: the case with the most false
    // rollbacks.
    let ever = |seed| ever_harmful(decider, u64::MAX / 2 + seed);
    report_some("alike-rolled-back-never-promoted", canaries, ever);
}

/// Canaries with live's behaviour, for users who send several requests.
fn returning(decider: &Decider, canaries: u64) {
    for (name, counted) in [("every", Counted::Every), ("first", Counted::First)] {
        let rolled_back = |seed| users::rolled_back(decider, counted, seed);
        report_some(&format!("users-{name}-request-rolled-back"), canaries, rolled_back);
    }
}

/// True if harm is ever proved, falsely, for a canary with live's behaviour.
fn ever_harmful(decider: &Decider, seed: u64) -> bool {
    let mut traffic = traffic(Effect::NONE, seed);
    let reference = Reference::new(&traffic.before(Reference::REQUESTS), 0.95);
    let mut statistics = Statistics::new(reference.into());
    let mut canary = 0;
    while canary < HORIZON {
        let seen = traffic.request();
        canary += u64::from(seen.arm == Arm::Canary);
        statistics.record(traffic.share, &seen);
        if decider.harmful(&statistics) {
            return true;
        }
    }
    false
}

/// Canaries with a defect; returns the mean number of bad answers.
fn worse(decider: &Decider, regression: &Regression, canaries: u64) -> f64 {
    let run = |seed| {
        let (ending, trial) = Trial::run(decider, traffic(regression.effect, seed), RATE, HORIZON);
        (ending, bad_answers(regression, trial.statistics()))
    };
    let (endings, harm): (Vec<Ending>, Vec<u64>) = each(canaries, run).into_iter().unzip();
    let name = regression.name;
    report(&format!("{name}-rolled-back"), share_of(&endings, Decision::Rollback), "%");
    report(&format!("{name}-median"), median(&endings, Decision::Rollback), "requests");
    harm.iter().sum::<u64>() as f64 / canaries as f64
}

fn bad_answers(regression: &Regression, statistics: &Statistics) -> u64 {
    let canary = statistics.arm(Arm::Canary);
    let answered = canary.requests() - canary.failed() - canary.non_finite();
    let outcomes = [
        (Outcome::Failed, canary.failed()),
        (Outcome::NonFinite, canary.non_finite()),
        (Outcome::Empty, answered),
    ];
    let bad = outcomes.into_iter().filter(|(outcome, _)| (regression.bad)(*outcome));
    bad.map(|(_, count)| count).sum()
}

/// Bad answers under each judge; returns our number over the smallest of the others.
fn compare(regression: &Regression, rules: &Rules, canaries: u64, ours: f64) -> f64 {
    let name = regression.name;
    report(&format!("{name}-harm-ours"), ours, "answers");
    let mean = |harm: fn(Rule, &Regression, u64) -> u64, rule: Rule| {
        let harm = each(canaries, |seed| harm(rule, regression, seed));
        harm.iter().sum::<u64>() as f64 / canaries as f64
    };
    let others = [
        ("first-window", mean(harm::<Windows>, rules.first_window)),
        ("fifth-window", mean(harm::<Windows>, rules.fifth_window)),
        ("rank-test", mean(harm::<MannWhitney>, rules.rank_test)),
    ];
    let mut best = f64::INFINITY;
    for (judge, harm) in others {
        report(&format!("{name}-harm-{judge}"), harm, "answers");
        best = best.min(harm);
    }
    let ratio = ours / best;
    report(&format!("{name}-harm-ratio"), ratio, "x");
    ratio
}

/// Bad answers until the judge rolls the canary back or the trial reaches its horizon.
fn harm<J: Judge + Default>(rule: Rule, regression: &Regression, seed: u64) -> u64 {
    let mut traffic = traffic(regression.effect, seed);
    let mut judge = Running::<J>::new(rule);
    let (mut bad, mut requests) = (0, 0);
    let mut see = |seen: &Observation| {
        if seen.arm == Arm::Canary {
            requests += 1;
            bad += u64::from((regression.bad)(seen.outcome));
        }
        judge.rolls_back(seen) || requests >= HORIZON
    };
    while !see(&traffic.request()) {}
    bad
}

fn share_of(endings: &[Ending], decision: Decision) -> f64 {
    let those = endings.iter().filter(|ending| ending.decision == decision);
    100.0 * those.count() as f64 / endings.len() as f64
}

/// The median number of requests on the canary.
fn median(endings: &[Ending], decision: Decision) -> f64 {
    let those = endings.iter().filter(|ending| ending.decision == decision);
    let mut requests: Vec<u64> = those.map(|ending| ending.canary).collect();
    requests.sort_unstable();
    requests.get(requests.len() / 2).map_or(f64::NAN, |requests| *requests as f64)
}

/// Prints the percentage of canaries for which `is_true` holds. Runs only a twentieth of
/// them, because each run is slow.
fn report_some(name: &str, canaries: u64, is_true: impl Fn(u64) -> bool + Sync) {
    let few = (canaries / 20).max(1);
    let count = each(few, is_true).into_iter().filter(|is_true| *is_true).count();
    report(name, 100.0 * count as f64 / few as f64, "%");
}

/// Runs each seed below `count`, on all cores; the results are in no particular order.
fn each<T: Send>(count: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let run = &run;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|first| (first..count).step_by(threads))
            .map(|seeds| scope.spawn(|| seeds.map(run).collect::<Vec<_>>()))
            .collect();
        let done = workers.into_iter().map(|worker| worker.join().expect("no canary panics"));
        done.flatten().collect()
    })
}

fn report(name: &str, value: f64, unit: &str) {
    println!("bench canary-{name} {value:.3} {unit}");
}
