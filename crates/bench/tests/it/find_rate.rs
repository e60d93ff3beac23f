//! The search for the rate of a server with a known capacity.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use outrigger_bench::{Arrivals, Job, Load, Phase, Progress, Stop};
use outrigger_testkit::engine::{Predicting, floats};
use tonic::Status;

use crate::servers::{ControlPlane, Engine, Package, TREATMENTS, Turn, latency_ms, model_job, run};

/// A search on an engine that answers one request at a time and takes `each` for it.
fn search(engine: &Engine, each: Duration, p99: Duration, step: Duration) -> Job {
    // The engine has one thread.
    engine.engine.on_predict(move |_| {
        thread::sleep(each);
        Predicting::Outputs(vec![floats("scores", &[1, TREATMENTS as i64], [0.0; TREATMENTS])])
    });
    engine.job(Load::FindRate { p99, step, arrivals: Arrivals::Fixed })
}

#[test]
fn the_rate_found_is_not_above_the_capacity() {
    let engine = Engine::start();
    let [each, p99, step] = [5, 200, 700].map(Duration::from_millis);
    let report = run(&search(&engine, each, p99, step));
    assert_eq!((report.mode, report.steps[0].phase), ("find-rate", Phase::Estimate));
    let last = report.steps.last().expect("a step");
    // A machine that is busy with other processes may hold no rate.
    let Some(rate) = report.offered_rate else { return assert!(!last.held, "{report}") };
    // The capacity of 200, plus the queue that fits into 200 ms of latency within a step.
    assert!(rate < 280.0, "{report}");
    assert!(report.errors.is_empty() && latency_ms(&report).p99 < 200.0, "{report}");
    assert!(report.steps.iter().any(|step| !step.held && step.offered_rate > Some(rate)));
    assert!(last.phase == Phase::Confirm && last.held && last.offered_rate == Some(rate));
}

#[test]
fn a_latency_that_no_rate_meets_is_reported() {
    let engine = Engine::start();
    let [each, p99, step] = [40, 20, 100].map(Duration::from_millis);
    let report = run(&search(&engine, each, p99, step));
    assert_eq!(report.offered_rate, None, "{report}");
    assert!(report.steps.len() > 2 && report.steps.iter().all(|step| !step.held), "{report}");
    let problem = report.problem().expect("no rate");
    assert!(problem.starts_with("no rate is held; the last one tried: search "), "{problem}");
    assert!(report.to_string().contains("offered     no rate was found\n"), "{report}");
}

#[test]
fn a_confirmation_ends_when_a_request_fails() {
    let failing = Arc::new(AtomicBool::new(false));
    let fails = Arc::clone(&failing);
    let server = ControlPlane::start(move |_| match fails.load(Relaxed) {
        true => Turn::Refused(Status::unavailable("for a while")),
        false => Turn::Answered,
    });
    let stop = Stop::default();
    let mut observer = |progress: &Progress| match (progress.phase, progress.measured) {
        (Some(Phase::Confirm), Some(_)) => failing.store(true, Relaxed),
        // A second confirmation begins.
        (Some(Phase::Confirm), None) if failing.load(Relaxed) => stop.stop(),
        _ => {}
    };
    let [p99, step] = [200, 300].map(Duration::from_millis);
    let load = Load::FindRate { p99, step, arrivals: Arrivals::Fixed };
    let job = Job {
        stop: stop.clone(),
        duration: Duration::from_secs(3600),
        warmup: Duration::ZERO,
        ..model_job(server.grpc, &Package::linear(), None, load)
    };
    let report = outrigger_bench::run(&job, &mut observer).expect("a report");
    let first = report.steps.iter().find(|step| step.phase == Phase::Confirm).expect("one");
    assert!(!first.held && first.duration_seconds < 3600.0, "{report}");
    assert!(!first.errors.is_empty(), "{report}");
}
