//! Runs that are stopped early.

use std::time::Duration;

use outrigger_bench::{Arrivals, Error, Job, Load, Report, Stop};

use crate::servers::{ControlPlane, Package, Turn, model_job, rate};

/// A run of an hour that is stopped when the server gets the n-th request.
fn stopped_at(nth: u64, load: Load) -> Result<Report, Error> {
    let stop = Stop::default();
    let stopping = stop.clone();
    let server = ControlPlane::start(move |n| {
        if n == nth {
            stopping.stop();
        }
        Turn::Answered
    });
    let duration = Duration::from_secs(3600);
    let job = Job { stop, duration, ..model_job(server.grpc, &Package::linear(), None, load) };
    outrigger_bench::run(&job, &mut |_| {})
}

#[test]
fn a_stopped_run_reports_the_time_until_then() {
    for load in [rate(500.0), Load::Max] {
        let report = stopped_at(200, load).expect("a report");
        assert!(report.interrupted && report.duration_seconds < 3600.0, "{report}");
        assert!(report.ok > 0 && report.errors.is_empty(), "{report}");
        assert!(report.throughput > 0.0, "{report}");
    }
}

#[test]
fn a_stopped_search_reports_its_steps() {
    let [p99, step] = [Duration::from_millis(500), Duration::from_secs(3600)];
    let load = Load::FindRate { p99, step, arrivals: Arrivals::Fixed };
    let report = stopped_at(20, load).expect("a report");
    assert!(report.interrupted && report.offered_rate.is_none(), "{report}");
    assert_eq!((report.steps.len(), report.steps[0].held), (1, false), "{report}");
    assert_eq!(report.abandoned.as_deref(), Some("interrupted"));
}

#[test]
fn a_stop_before_the_run_leaves_nothing_to_report() {
    let stop = Stop::default();
    let stopping = stop.clone();
    let server = ControlPlane::start(move |_| {
        stopping.stop();
        Turn::Forgotten
    });
    let job = Job { stop, ..model_job(server.grpc, &Package::linear(), None, Load::Max) };
    let error = outrigger_bench::run(&job, &mut |_| {}).expect_err("no report");
    assert!(matches!(error, Error::Interrupted), "{error}");
}
