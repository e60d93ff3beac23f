//! The highest rate of a server whose capacity is known.

use std::{thread, time::Duration};

use outrigger_bench::{Error, Job, Load, Phase};
use outrigger_testkit::engine::{Predicting, floats};

use crate::servers::{Engine, TREATMENTS, run};

fn find(p99: Duration) -> Load {
    Load::FindRate { p99, step: Duration::from_millis(500), arrivals: Default::default() }
}

/// An engine that answers one request after the other, each in this time.
fn slow(each: Duration) -> Engine {
    let engine = Engine::start();
    // The engine has one thread.
    engine.engine.on_predict(move |_| {
        thread::sleep(each);
        Predicting::Outputs(vec![floats("scores", &[1, TREATMENTS as i64], [0.0; TREATMENTS])])
    });
    engine
}

#[test]
fn a_rate_is_found_near_the_capacity() {
    let engine = slow(Duration::from_millis(4));
    let report = run(&engine.job(find(Duration::from_millis(80))));
    assert_eq!(report.mode, "find-rate");
    let rate = report.offered_rate.expect("a rate");
    // A step of half a second with a queue of 80 ms hides an excess of 16 %.
    assert!((100.0..300.0).contains(&rate), "{report}");
    assert!(report.errors.is_empty() && report.latency_ms.p99 < 80.0, "{report}");
    assert_eq!(report.steps[0].phase, Phase::Estimate);
    assert!(report.steps.iter().any(|step| !step.held && step.offered_rate > Some(rate)));
    let last = report.steps.last().unwrap();
    assert!(last.phase == Phase::Confirm && last.held && last.offered_rate == Some(rate));
}

#[test]
fn a_latency_that_no_rate_keeps_is_told() {
    let engine = slow(Duration::from_millis(40));
    let job =
        Job { duration: Duration::from_millis(100), ..engine.job(find(Duration::from_millis(20))) };
    let job = Job {
        load: match job.load {
            Load::FindRate { p99, arrivals, .. } => {
                Load::FindRate { p99, step: Duration::from_millis(100), arrivals }
            }
            other => other,
        },
        ..job
    };
    let error = outrigger_bench::run(&job, &mut |_| {}).expect_err("too slow");
    assert!(matches!(&error, Error::NotHeld(step) if !step.held), "{error}");
}
