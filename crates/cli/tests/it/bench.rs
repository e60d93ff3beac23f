//! `outrigger bench` as a process: exit codes and reports.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{self, Sender},
    thread,
};

use outrigger_testkit::saved_model::Linear;
use serde_json::{Value, json};

const SCORES: &str = r#"{"scores": [{"id": "a", "score": 0.5}]}"#;
const OVERLOADED: &str = r#"{"error": {"reason": "OVERLOADED", "message": "busy"}}"#;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_outrigger"));
    command.arg("bench").args(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A status and a body.
type Answer = (&'static str, &'static str);

/// An HTTP server that answers the first request of each connection with scores, and
/// later ones with `later`.
fn server(later: Answer) -> SocketAddr {
    reporting_server(Some(later), mpsc::channel().0)
}

/// The same server, which reports each request to `asked`. It does not answer later
/// requests if `later` is `None`.
fn reporting_server(later: Option<Answer>, asked: Sender<()>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for caller in listener.incoming().map_while(Result::ok) {
            let asked = asked.clone();
            thread::spawn(move || serve_connection(&caller, later, &asked));
        }
    });
    address
}

fn serve_connection(mut caller: &TcpStream, later: Option<Answer>, asked: &Sender<()>) {
    let mut reader = BufReader::new(caller);
    let mut answer = Some(("200 OK", SCORES));
    loop {
        let lines = reader.by_ref().lines().map_while(Result::ok);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
        let Some(length) = length else { return };
        let mut body = vec![0; length.parse().expect("a length")];
        reader.read_exact(&mut body).expect("a body");
        // Fails if the test has dropped the receiver.
        let _ = asked.send(());
        let Some((status, body)) = answer else { continue };
        let length = body.len();
        write!(caller, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}")
            .expect("the caller is there");
        answer = later;
    }
}

/// Writes a request to a file.
fn request(directory: &tempfile::TempDir) -> PathBuf {
    let file = directory.path().join("request.json");
    fs::write(&file, r#"{"treatments": [{"id": "a"}]}"#).expect("written");
    file
}

/// Runs one request over HTTP for a short time, on one connection.
fn short_run(server: SocketAddr, further: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    let (server, file) = (server.to_string(), request(&directory));
    let mut arguments = vec!["--server", &server, "--model", "churn", "--connections", "1"];
    arguments.extend(["--request", file.to_str().expect("utf-8")]);
    arguments.extend(["--rate", "100", "--warmup", "0s", "--duration", "200ms"]);
    arguments.extend(further);
    bench(&arguments)
}

/// Starts a run of an hour of one request over HTTP.
fn long_run(directory: &tempfile::TempDir, server: SocketAddr, load: &[&str]) -> Child {
    let server = server.to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_outrigger"));
    command.args(["bench", "--server", &server, "--model", "churn", "--request"]);
    command.arg(request(directory)).args(["--duration", "1h", "--warmup", "0s"]).args(load);
    command.args(["-o", "json", "--quiet"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

/// Sends SIGINT, as Ctrl-C does.
fn interrupt(child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().expect("kill runs").success());
}

#[test]
fn a_run_without_failures_exits_with_0_and_a_report() {
    let server = server(("200 OK", SCORES));
    let output = short_run(server, &["-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["mode"], &report["form"]), (&"rate".into(), &"json".into()));
    assert_eq!((&report["requests"], &report["ok"]), (&20.into(), &20.into()));
    assert_eq!(report["settings"]["frame_size"], 16 << 10);
    assert_eq!(text(&output.stderr), "", "progress is printed every ten seconds");
    let output = short_run(server, &[]);
    let report = text(&output.stdout);
    assert!(report.contains("20, 20 ok") && report.contains("p99.9 "), "{report}");
}

#[test]
fn failed_requests_are_reported_and_exit_with_1() {
    let output = short_run(server(("429 Too Many Requests", OVERLOADED)), &["-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["errors"]["OVERLOADED"].as_u64().is_some_and(|count| count > 0), "{report}");
    assert!(text(&output.stderr).contains(" of 20 requests failed"), "{}", text(&output.stderr));
}

#[test]
fn an_interrupted_run_reports_its_measurements_so_far() {
    let (asked, requests) = mpsc::channel();
    let server = reporting_server(Some(("200 OK", SCORES)), asked);
    let directory = tempfile::tempdir().expect("a directory");
    let child = long_run(&directory, server, &["--rate", "100"]);
    assert_eq!(requests.iter().take(20).count(), 20, "the run goes on");
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "outrigger: interrupted\n");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["interrupted"] == true && report["errors"] == json!({}), "{report}");
    assert!(report["ok"].as_u64().is_some_and(|ok| ok >= 10), "{report}");
}

#[test]
fn a_second_interrupt_does_not_wait_for_answers() {
    let (asked, requests) = mpsc::channel();
    let server = reporting_server(None, asked);
    let closed = ["--max", "--in-flight", "1", "--connections", "1", "--timeout", "1h"];
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = long_run(&directory, server, &closed);
    // Two requests are answered, that of the check and the first of the run; the third is
    // not.
    assert_eq!(requests.iter().take(3).count(), 3, "the run goes on");
    // Signals that arrive before the previous one is handled merge with it, so they are
    // repeated.
    let ended = (0..10_000).any(|_| {
        interrupt(&child);
        child.try_wait().expect("a child").is_some()
    });
    if !ended {
        child.kill().expect("killed");
    }
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert_eq!((text(&output.stdout), text(&output.stderr)), Default::default(), "no report");
}

#[test]
fn an_unreachable_server_exits_with_1() {
    // Port 9 (discard) has no server of ours.
    let output = short_run(([127, 0, 0, 1], 9).into(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no answer from 127.0.0.1:9"));
}

#[test]
fn access_settings_of_the_environment_apply_to_the_control_plane_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let model = Linear { user: vec![1.0], treatment: vec![1.0], bias: 0.0 }.model();
    let metadata = directory.path().join("metadata.json");
    fs::write(&metadata, model.metadata.to_string()).expect("written");
    let called = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_outrigger"));
        command.arg("bench").args(arguments).args(["--max", "--metadata"]).arg(&metadata);
        command.envs(environment.iter().copied());
        let output = command.output().expect("the binary runs");
        (output.status.code(), text(&output.stderr))
    };
    let direct = ["--direct", "127.0.0.1:9", "--servable", "churn"];
    let variables = ["CA", "CERT", "KEY", "TOKEN"].map(|name| format!("OUTRIGGER_{name}_FILE"));
    let missing = "/no/such/file";
    let mut environment: Vec<_> =
        variables.iter().map(|variable| (variable.as_str(), missing)).collect();
    environment.push(("OUTRIGGER_SERVER_NAME", "outrigger.models.svc"));
    let (code, error) = called(&direct, &environment);
    assert!(code == Some(1) && error.contains("no answer from 127.0.0.1:9"), "{error}");
    let server = ["--server", "127.0.0.1:9", "--model", "churn"];
    let (code, error) = called(&server, &environment);
    assert!(code == Some(64) && error.contains(missing), "{error}");
    for option in ["--ca", "--token-file"] {
        let (code, error) = called(&[&direct[..], &[option, "/not/there"]].concat(), &environment);
        assert!(code == Some(64) && error.contains("/not/there"), "{error}");
    }
}

#[test]
fn usage_errors_exit_with_64_and_a_message() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = request(&directory);
    let file = file.to_str().expect("utf-8");
    let package = directory.path().to_str().expect("utf-8");
    let refused = |arguments: &[&str], expected: &str| {
        let output = bench(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        let error = text(&output.stderr);
        assert!(error.contains(expected), "{expected} in {error}");
    };
    let model = ["--server", "127.0.0.1:9", "--model", "churn"];
    let with = |further: &[&'static str]| [&model[..], further].concat();
    let asked = ["--server", "127.0.0.1:9", "--model", "churn", "--request", file];
    refused(&with(&["--package", "/no/such/package", "--max"]), "/no/such/package/metadata.json");
    refused(&[&model[..], &["--package", package, "--max"]].concat(), "metadata.json");
    refused(&with(&["--package", "churn", "--max", "--rate", "1"]), "cannot be used with");
    refused(&with(&["--package", "churn"]), "--find-rate");
    refused(&with(&["--package", "churn", "--find-rate"]), "--p99");
    refused(&with(&["--package", "churn", "--rate", "0"]), "over 0");
    refused(&with(&["--max"]), "--package");
    let input = ["--input", "x:FP32:1", "--max"];
    refused(&with(&input), "--input is for the forms of the Open Inference Protocol");
    refused(&with(&["--form", "oip-json", "--input", "x:FP32", "--max"]), "NAME:DATATYPE:SIZE");
    refused(&[&asked[..], &["--max", "--form", "oip-grpc"]].concat(), "metadata.json");
    refused(&[&asked[..], &["--max", "--treatments", "7"]].concat(), "--treatments");
    refused(&[&asked[..], &["--max", "--form", "kv"]].concat(), "metadata.json");
    refused(&[&asked[..], &["--max", "--pid", "engine"]].concat(), "NAME=PID");
    refused(&[&asked[..], &["--max", "--pid", "engine=4294967295"]].concat(), "/proc/4294967295");
    let taken = ["--max", "--pid", "client=1"];
    refused(&[&asked[..], &taken].concat(), "client is the name of this process itself");
    let twice = ["--max", "--pid", "engine=1", "--pid", "engine=2"];
    refused(&[&asked[..], &twice].concat(), "two processes are called engine");
    let few = ["--max", "--threads", "3", "--connections", "2"];
    refused(&[&asked[..], &few].concat(), "3 threads need at least as many connections, not 2");
    let few = ["--max", "--threads", "3", "--in-flight", "1"];
    refused(
        &[&asked[..], &few].concat(),
        "3 threads need at least as many requests in flight, not 1",
    );
    refused(&[&asked[..], &["--max", "--frame-size", "1048577"]].concat(), "1..=1048576");
    refused(&[&asked[..], &["--max", "--frame-size", "0"]].concat(), "1..=1048576");
    refused(&["--package", "churn", "--max"], "--server");
    refused(&["--direct", "nowhere", "--servable", "churn", "--max"], "HOST:PORT");
    refused(&["--direct", "127.0.0.1:9", "--package", "churn", "--max"], "--servable");
    let twice = ["--server", "127.0.0.1:9", "--model", "churn:a", "--tag", "b", "--max"];
    refused(&[&twice[..], &["--request", file]].concat(), "--model names a version already");
}
