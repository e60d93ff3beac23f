//! The highest rate of a server whose capacity is known.

use std::{thread, time::Duration};

use outrigger_bench::{Arrivals, Error, Job, Load, Phase};
use outrigger_testkit::engine::{Predicting, floats};

use crate::servers::{Engine, TREATMENTS, latency_ms};

/// A search for what the engine answers, one request after the other, in
/// `each`.
fn search(engine: &Engine, each: Duration, p99: Duration, step: Duration) -> Job {
    // The engine has one thread.
    engine.engine.on_predict(move |_| {
        thread::sleep(each);
        Predicting::Outputs(vec![floats("scores", &[1, TREATMENTS as i64], [0.0; TREATMENTS])])
    });
    engine.job(Load::FindRate { p99, step, arrivals: Arrivals::Fixed })
}

#[test]
fn the_rate_that_is_found_is_not_over_the_capacity() {
    let engine = Engine::start();
    let [each, p99, step] = [5, 200, 700].map(Duration::from_millis);
    let report = match outrigger_bench::run(&search(&engine, each, p99, step), &mut |_| {}) {
        Ok(report) => report,
        // A machine that is too busy with other things has no rate that it keeps.
        Err(Error::NotHeld(step)) => return assert!(!step.held),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(report.mode, "find-rate");
    let rate = report.offered_rate.expect("a rate");
    // 200, and what a queue of 200 ms takes up within a step.
    assert!(rate < 280.0, "{report}");
    assert!(report.errors.is_empty() && latency_ms(&report).p99 < 200.0, "{report}");
    assert_eq!(report.steps[0].phase, Phase::Estimate);
    assert!(report.steps.iter().any(|step| !step.held && step.offered_rate > Some(rate)));
    let last = report.steps.last().expect("a step");
    assert!(last.phase == Phase::Confirm && last.held && last.offered_rate == Some(rate));
}

#[test]
fn a_latency_that_no_rate_keeps_is_told() {
    let engine = Engine::start();
    let [each, p99, step] = [40, 20, 100].map(Duration::from_millis);
    let error = outrigger_bench::run(&search(&engine, each, p99, step), &mut |_| {});
    let error = error.expect_err("too slow");
    assert!(matches!(&error, Error::NotHeld(step) if !step.held), "{error}");
}
