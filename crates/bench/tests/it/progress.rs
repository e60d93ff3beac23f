//! Progress of a run.

use std::time::Duration;

use outrigger_bench::{Arrivals, Job, Load, Phase, Progress, Stop};

use crate::servers::{ControlPlane, Package, model_job, rate};

#[test]
fn a_warm_up_and_then_the_measurement_are_reported() {
    let server = ControlPlane::willing();
    let job = model_job(server.grpc, &Package::linear(), None, rate(100.0));
    let [warmup, duration] = [50, 1200].map(Duration::from_millis);
    let mut reported = Vec::new();
    let mut observer = |progress: &Progress| reported.push(progress.clone());
    outrigger_bench::run(&Job { warmup, duration, ..job }, &mut observer).expect("a report");
    let [warming, measuring] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!(warming.to_string(), "warm-up 0/1 s  100.0/s due");
    assert!(measuring.to_string().starts_with("1/2 s  100.0/s due  "), "{measuring}");
    assert_eq!((measuring.elapsed, measuring.duration), (Duration::from_secs(1), duration));
    assert!(measuring.measured.is_some(), "{measuring}");
}

#[test]
fn a_search_reports_its_steps_and_the_rates_that_it_tries() {
    let server = ControlPlane::willing();
    let [p99, step] = [50, 500].map(Duration::from_millis);
    let load = Load::FindRate { p99, step, arrivals: Arrivals::Fixed };
    let stop = Stop::default();
    let mut reported = Vec::new();
    let mut observer = |progress: &Progress| {
        reported.push(progress.clone());
        if progress.phase == Some(Phase::Search) {
            stop.stop();
        }
    };
    let job = model_job(server.grpc, &Package::linear(), None, load);
    outrigger_bench::run(&Job { stop: stop.clone(), ..job }, &mut observer).expect("a report");
    let search = reported.iter().find(|it| it.phase == Some(Phase::Search)).expect("a search");
    let estimate = &reported[0];
    assert_eq!(estimate.to_string(), "estimate  warm-up 0/1 s");
    let rate = search.offered_rate.expect("an open loop");
    assert_eq!(search.to_string(), format!("search  warm-up 0/1 s  {rate:.1}/s due"));
}
