//! Requests are due at fixed times, and their delay counts from these.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use outrigger_bench::{Arrivals, Load};
use outrigger_testkit::engine::{Predicting, floats};

use crate::servers::{
    ControlPlane, Engine, Package, TREATMENTS, Turn, latency_ms, model_job, rate, run,
    send_delay_ms,
};

const STALL: Duration = Duration::from_millis(200);

/// An engine that stops answering for a while at its n-th prediction.
fn stalls_at(nth: u64) -> Engine {
    let engine = Engine::start();
    let (stalling, count) = (engine.engine.clone(), AtomicU64::new(0));
    engine.engine.on_predict(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == nth {
            stalling.freeze();
            let stalling = stalling.clone();
            thread::spawn(move || {
                thread::sleep(STALL);
                stalling.thaw();
            });
        }
        Predicting::Outputs(vec![floats("scores", &[1, TREATMENTS as i64], [0.0; TREATMENTS])])
    });
    engine
}

#[test]
fn a_stall_delays_every_request_that_is_due_meanwhile() {
    let engine = stalls_at(100);
    let report =
        run(&outrigger_bench::Job { duration: Duration::from_secs(2), ..engine.job(rate(200.0)) });
    assert!(report.errors.is_empty(), "{report}");
    // A tenth of the requests is delayed, uniformly up to the length of the stall.
    assert!(latency_ms(&report).p99 >= 150.0, "{report}");
    assert!(latency_ms(&report).max >= 195.0, "{report}");
}

#[test]
fn the_rate_is_kept_by_one_thread_and_by_several() {
    let (server, package) = (ControlPlane::willing(), Package::linear());
    for threads in [1, 2] {
        for arrivals in [Arrivals::Fixed, Arrivals::Poisson] {
            let load = Load::Rate { rate: 400.0, arrivals };
            let job = model_job(server.grpc, &package, None, load);
            let report = run(&outrigger_bench::Job { threads, ..job });
            assert_eq!(report.offered_rate, Some(400.0));
            let expected = match arrivals {
                Arrivals::Fixed => 200..=200,
                Arrivals::Poisson => 130..=270,
            };
            assert!(expected.contains(&report.requests), "{threads} {arrivals:?}: {report}");
            assert_eq!(report.ok, report.requests);
        }
    }
}

#[test]
fn the_clients_own_delay_is_part_of_the_latency() {
    let (server, package) = (ControlPlane::willing(), Package::linear());
    let report = run(&outrigger_bench::Job {
        // One request every tenth of a microsecond, which no client can send.
        duration: Duration::from_micros(300),
        in_flight: Some(10_000),
        ..model_job(server.grpc, &package, None, rate(10_000_000.0))
    });
    assert_eq!((report.requests, report.ok), (3000, 3000), "{report}");
    assert!(send_delay_ms(&report).max >= 0.3, "{report}");
    assert!(latency_ms(&report).max >= send_delay_ms(&report).max, "{report}");
}

#[test]
fn answers_are_received_even_if_more_is_due_than_can_be_sent() {
    // At most a thousand requests a second, on any machine.
    let server = ControlPlane::start(|_| {
        thread::sleep(Duration::from_millis(1));
        Turn::Answered
    });
    let report = run(&outrigger_bench::Job {
        in_flight: Some(100),
        ..model_job(server.grpc, &Package::linear(), None, rate(200_000.0))
    });
    assert!(report.throughput > 0.0, "{report}");
    assert!(report.errors.keys().eq(["CLIENT_SATURATED"]), "{report}");
}

#[test]
fn requests_beyond_the_limit_in_flight_are_counted_as_failed() {
    // The first two requests are sent before the run.
    let server = ControlPlane::start(|n| if n < 2 { Turn::Answered } else { Turn::Forgotten });
    let job = model_job(server.grpc, &Package::linear(), None, rate(200.0));
    let report = run(&outrigger_bench::Job {
        in_flight: Some(10),
        timeout: Duration::from_millis(500),
        duration: Duration::from_millis(100),
        ..job
    });
    assert_eq!((report.requests, report.ok), (20, 0), "{report}");
    assert_eq!(report.errors["CLIENT_SATURATED"], 10, "{report}");
}
