//! Outcomes of requests and their reports.

use std::{
    process::{Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use outrigger_bench::{Error, Form, Job, Load, Process};
use outrigger_testkit::engine::{Predicting, Received, floats};
use serde_json::{Value::Null, json};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::servers::{
    ControlPlane, Engine, Package, TREATMENTS, Turn, json_of, model_job, rate, run,
};

fn overloaded() -> Status {
    let mut details = ErrorDetails::new();
    details.set_error_info("OVERLOADED", "outrigger.dev", []);
    Status::with_error_details(Code::ResourceExhausted, "100% busy", details)
}

#[test]
fn failures_are_counted_by_their_reasons() {
    let server = ControlPlane::start(|n| match n {
        0 | 1 => Turn::Answered,
        n if n % 10 == 0 => Turn::Refused(overloaded()),
        n if n % 10 == 1 => Turn::Refused(Status::failed_precondition("no details")),
        _ => Turn::Answered,
    });
    let report = run(&model_job(server.grpc, &Package::linear(), None, rate(200.0)));
    assert_eq!((report.requests, report.ok), (100, 80), "{report}");
    assert_eq!(report.errors["OVERLOADED"], 10, "{report}");
    assert_eq!(report.errors["FAILED_PRECONDITION"], 10, "{report}");
    assert_eq!(report.error_messages["OVERLOADED"], "100% busy");
    assert!(report.to_string().contains("10 OVERLOADED: 100% busy"), "{report}");
}

#[test]
fn a_missing_answer_times_out() {
    let server = ControlPlane::start(|n| if n < 2 { Turn::Answered } else { Turn::Forgotten });
    // A gRPC server would report the timeout itself.
    let job = model_job(server.http, &Package::linear(), Some(Form::Json), rate(50.0));
    let report = run(&Job { timeout: Duration::from_millis(100), ..job });
    assert_eq!(report.errors, [("CLIENT_TIMEOUT".to_owned(), 25)].into(), "{report}");
}

#[test]
fn without_answers_there_is_no_latency() {
    let server = ControlPlane::start(|n| match n {
        0 | 1 => Turn::Answered,
        _ => Turn::Refused(overloaded()),
    });
    let refused = run(&model_job(server.grpc, &Package::linear(), None, rate(100.0)));
    assert_eq!(refused.problem().expect("a problem"), "none of 50 requests was answered");
    let report = json_of(&refused);
    assert_eq!((&report["latency_ms"], &report["response_bytes"]), (&Null, &Null), "{report}");
    assert!(report["send_delay_ms"]["p99"].is_number(), "{report}");
    // The first request is due before the window, the second after it.
    let server = ControlPlane::willing();
    let job = model_job(server.grpc, &Package::linear(), None, rate(0.5));
    let report = run(&Job { warmup: Duration::from_millis(100), ..job });
    assert_eq!(report.problem().expect("a problem"), "none of 0 requests was answered");
    assert!(report.to_string().contains("latency     none\nsend delay  none\n"), "{report}");
    let report = json_of(&report);
    assert_eq!((&report["latency_ms"], &report["send_delay_ms"]), (&Null, &Null), "{report}");
}

#[test]
fn failures_over_http_have_their_reasons_too() {
    let server = ControlPlane::start(|n| match n {
        0 | 1 => Turn::Answered,
        n if n % 2 == 0 => Turn::Refused(overloaded()),
        _ => Turn::Garbled(b"out of order"),
    });
    let job = model_job(server.http, &Package::linear(), Some(Form::Json), rate(100.0));
    let report = run(&job);
    let expected = [("HTTP_502".to_owned(), 25), ("OVERLOADED".to_owned(), 25)];
    assert_eq!(report.errors, expected.into(), "{report}");
    assert_eq!(report.error_messages["OVERLOADED"], "100% busy");
}

#[test]
fn a_broken_connection_is_opened_again() {
    let engine = Engine::start();
    let restarting = engine.engine.clone();
    // Stopped as soon as the connection works again.
    let job = Job {
        duration: Duration::from_secs(60),
        timeout: Duration::from_millis(500),
        ..engine.job(rate(100.0))
    };
    let answered = |call: &Received| matches!(call, Received::Predict { found: Code::Ok, .. });
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&job));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        while restarting.received().len() < 50 {
            std::thread::yield_now();
        }
        runtime.block_on(restarting.restart()).unwrap();
        engine.load();
        let reloaded = restarting.received().len();
        let came_back = || restarting.received()[reloaded..].iter().any(answered);
        while !came_back() && !running.is_finished() {
            std::thread::yield_now();
        }
        job.stop.stop();
        let report = running.join().unwrap();
        assert!(report.interrupted && report.ok > 0, "{report}");
    });
}

#[test]
fn a_first_request_that_fails_ends_the_run_with_its_reason() {
    let package = Package::linear();
    let refuse = |turn: fn() -> Turn| {
        let server = ControlPlane::start(move |_| turn());
        let job = model_job(server.grpc, &package, None, Load::Max);
        outrigger_bench::run(&job, &mut |_| {}).expect_err("refused")
    };
    let error = refuse(|| Turn::Refused(overloaded()));
    assert!(matches!(&error, Error::Refused(failure) if failure.reason == "OVERLOADED"));
    assert_eq!(error.to_string(), "the first request failed: OVERLOADED: 100% busy");
    for garbled in [&b""[..], b"\xff", b"\x1a\x06\x0a\x04\x00\x00\x00\x00"] {
        // A closure without captures is a function pointer.
        let server = ControlPlane::start(move |_| Turn::Garbled(garbled));
        let job = model_job(server.grpc, &package, None, Load::Max);
        let error = outrigger_bench::run(&job, &mut |_| {}).expect_err("garbled");
        assert!(error.to_string().contains("ANSWER_INVALID"), "{error}");
    }
}

#[test]
fn an_unreachable_server_is_reported_with_its_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let job = model_job(address, &Package::linear(), None, Load::Max);
    let error = outrigger_bench::run(&job, &mut |_| {}).expect_err("no server");
    assert!(matches!(error, Error::Unreachable { .. }));
    assert!(error.to_string().starts_with(&format!("no answer from {address}: ")), "{error}");
}

#[test]
fn cpu_time_is_reported_by_process() {
    let engine = Engine::start();
    engine.engine.on_predict(|_| {
        Predicting::Outputs(vec![floats("scores", &[1, TREATMENTS as i64], [0.0; TREATMENTS])])
    });
    // Blocks on a pipe to which nothing is written.
    let mut idle =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
    let process = |name: &str, id: u32| Process { name: name.to_owned(), id };
    // The engine runs in this process, which is also the client.
    let processes = vec![process("engine", std::process::id()), process("idle", idle.id())];
    let report = run(&Job { processes, ..engine.job(Load::Max) });
    idle.kill().expect("killed");
    idle.wait().expect("ended");
    let [client, engine, idle] = ["client", "engine", "idle"]
        .map(|name| report.cpu_seconds_per_request[name].expect("the process has not ended"));
    assert!(client > 0.0, "{report}");
    // The times have a resolution of a hundredth of a second, and other tests run in this
    // process.
    assert!((0.3..3.0).contains(&(engine / client)), "{report}");
    assert!(idle < 0.3 * client, "{report}");
}

#[test]
fn only_its_own_figure_is_missing_when_a_process_ends_during_the_run() {
    let mut brief = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
    let processes = vec![Process { name: "brief".to_owned(), id: brief.id() }];
    // The process ends, and its exit status has not been read yet.
    let input = Mutex::new(brief.stdin.take());
    let server = ControlPlane::start(move |n| {
        if n == 10 {
            drop(input.lock().expect("no test has panicked").take());
        }
        Turn::Answered
    });
    let job = model_job(server.grpc, &Package::linear(), None, rate(100.0));
    let report = run(&Job { processes, ..job });
    brief.wait().expect("ended");
    assert_eq!((report.requests, report.ok), (50, 50), "{report}");
    assert_eq!(report.cpu_seconds_per_request["brief"], None, "{report}");
    assert!(report.cpu_seconds_per_request["client"].is_some(), "{report}");
    let problem = report.problem().expect("a figure is missing");
    assert_eq!(problem, "brief has ended during the run: its CPU time is unknown");
}

#[test]
fn a_missing_process_is_reported_before_the_run() {
    let server = ControlPlane::willing();
    let job = model_job(server.grpc, &Package::linear(), None, Load::Max);
    let processes = vec![Process { name: "gone".to_owned(), id: u32::MAX }];
    let error = outrigger_bench::run(&Job { processes, ..job }, &mut |_| {}).expect_err("gone");
    assert!(error.is_usage(), "{error}");
    assert!(server.messages().is_empty());
}

#[test]
fn a_report_has_the_settings_of_the_run() {
    let server = ControlPlane::willing();
    let job = model_job(server.grpc, &Package::linear(), Some(Form::Columnar), Load::Max);
    let (duration, warmup) = (Duration::from_millis(100), Duration::from_millis(50));
    let short = Job { duration, warmup, connections: 3, threads: 2, frame: 1000, ..job };
    let report = run(&short);
    let expected = json!({
        "form": "columnar",
        "duration_seconds": 0.1,
        "warmup_seconds": 0.05,
        "connections": 3,
        "threads": 2,
        "in_flight": 64,
        "frame_size": 1000,
    });
    assert_eq!(json_of(&report)["settings"], expected);
    let settings = "settings    form columnar, duration 0.1 s, warm-up 0.05 s, connections 3, \
                threads 2, in flight 64, frames of 1000 bytes\n";
    assert!(report.to_string().contains(settings), "{report}");
    assert_eq!(run(&Job { load: rate(100.0), ..short.clone() }).settings.in_flight, 4096);
    let given = run(&Job { in_flight: Some(5), ..short });
    assert_eq!(given.settings.in_flight, 5);
}

#[test]
fn a_report_has_the_keys_that_scripts_read() {
    let server = ControlPlane::willing();
    let report = json_of(&run(&model_job(server.grpc, &Package::linear(), None, Load::Max)));
    let mut keys: Vec<_> = report.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let expected = [
        "cpu_seconds_per_request",
        "duration_seconds",
        "error_messages",
        "errors",
        "form",
        "latency_ms",
        "mode",
        "offered_rate",
        "ok",
        "request_bytes",
        "requests",
        "response_bytes",
        "send_delay_ms",
        "settings",
        "throughput",
        "treatments",
        "users",
    ];
    assert_eq!(keys, expected);
    assert_eq!((&report["mode"], &report["form"]), (&"max".into(), &"kv".into()));
    assert_eq!(report["duration_seconds"], 0.5);
    let ok = report["ok"].as_f64().unwrap();
    assert!(ok > 0.0 && report["throughput"].as_f64().unwrap() == ok / 0.5, "{report}");
    for quantile in ["p50", "p90", "p99", "p99.9", "max", "mean"] {
        assert!(report["latency_ms"][quantile].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(report["request_bytes"].as_f64().unwrap() > 0.0);
    assert_eq!(report["treatments"], TREATMENTS);
}
