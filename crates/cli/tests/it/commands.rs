//! The binary as a process: exit codes, help, and the commands for packages.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::Path,
    process::Command,
};

use outrigger_testkit::tools::if_installed;

use crate::common::{json, linear, outrigger, package, text};

const COMMANDS: &[&str] = &[
    "serve",
    "engine",
    "dev",
    "push",
    "pull",
    "inspect",
    "validate",
    "diff",
    "predict",
    "models",
    "models list",
    "models show",
    "models why",
    "models load",
    "models unload",
    "canary status",
    "canary promote",
    "canary abort",
    "canary simulate",
    "bench",
    "batch run",
    "batch status",
    "batch list",
    "batch set",
    "batch cancel",
    "batch retry-dead",
];

#[test]
fn the_help_of_every_command_has_an_example() {
    for command in COMMANDS {
        let words: Vec<_> = command.split(' ').chain(["--help"]).collect();
        let output = outrigger(&words);
        assert!(output.status.success(), "{command}");
        let help = text(&output.stdout);
        let (_, example) = help.split_once("\nExample:\n").expect(command);
        assert!(example.contains(&format!("outrigger {command} ")), "{command}: {example}");
    }
}

#[test]
fn usage_errors_exit_with_64_and_failures_with_1() {
    let code = |arguments: &[&str]| outrigger(arguments).status.code();
    assert_eq!(code(&["no-such-command"]), Some(64));
    assert_eq!(code(&["inspect"]), Some(64));
    assert_eq!(code(&["inspect", "neither-directory-nor-image"]), Some(64));
    assert_eq!(code(&["models", "why", "Not A Name"]), Some(64));
    assert_eq!(code(&["inspect", "oci:/no/such/directory:latest"]), Some(1));
    // Port 9 (discard) has no server of ours.
    assert_eq!(code(&["models", "list", "--admin", "127.0.0.1:9"]), Some(1));
}

#[test]
fn plain_http_needs_no_authorities() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let server = std::thread::spawn(move || {
        let (mut caller, _) = listener.accept().expect("a caller");
        // Reads up to the end of the body, which is an empty object.
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n{}") {
            let mut byte = [0];
            caller.read_exact(&mut byte).expect("a request");
            request.extend(byte);
        }
        caller.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").expect("an answer");
    });
    let scratch = tempfile::tempdir().expect("a directory");
    let request = scratch.path().join("request.json");
    fs::write(&request, "{}").expect("a request");
    let output = Command::new(env!("CARGO_BIN_EXE_outrigger"))
        .args(["predict", "--url", &url, "-o", "json", request.to_str().expect("utf-8")])
        .env("SSL_CERT_FILE", "/nonexistent/authorities.pem")
        .env("SSL_CERT_DIR", "/nonexistent")
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(json(&output), serde_json::json!({}));
    server.join().expect("it was asked");
}

#[test]
fn the_engine_takes_batching_parameters_as_tensorflow_serving_does() {
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("batching.config");
    fs::write(&file, "max_batch_size: 64").expect("a file");
    let parameters = format!("--batching_parameters_file={}", file.display());
    let refused = |flags: &[&str]| {
        let output = outrigger(&[&["engine", "--model_base_path=/nowhere"], flags].concat());
        assert_eq!(output.status.code(), Some(64), "{flags:?}");
        text(&output.stderr)
    };
    for alone in [parameters.as_str(), "--enable_per_model_batching_parameters"] {
        assert!(refused(&[alone]).contains("without --enable_batching"), "{alone}");
    }
    let message = refused(&["--enable_batching", &parameters]);
    assert!(message.contains("line 1: max_batch_size needs a message in braces"), "{message}");
}

#[test]
fn a_closed_output_pipe_is_no_failure() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_outrigger"));
    command.args(["serve", "--print-reference", "configuration"]).stdout(writer);
    let output = command.output().expect("the binary runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[cfg(unix)]
#[test]
fn a_pulled_package_has_usual_permissions_and_keeps_its_digest_when_it_is_pushed_again() {
    use std::os::unix::fs::PermissionsExt as _;

    let scratch = tempfile::tempdir().expect("a directory");
    let package = package(scratch.path(), &linear().model(), 7.5);
    fs::create_dir(package.join("notes")).expect("a directory");
    fs::write(package.join("notes/README.md"), "trained on Monday").expect("a file");
    let model = package.join("tensorflow_serving_model");
    fs::rename(package.join("metadata.json"), model.join("metadata.json")).expect("a rename");
    let version = model.join("model-of-monday");
    fs::rename(model.join("model"), &version).expect("a rename");
    fs::create_dir(model.join("model")).expect("a directory");
    fs::rename(version, model.join("model/7")).expect("a rename");
    let image = format!("oci:{}:one", scratch.path().join("images").display());
    let pulled = scratch.path().join("pulled");
    let (package, pulled_to) = (package.to_str().expect("utf-8"), pulled.to_str().expect("utf-8"));
    let push = ["push", package, &image, "--label", "made.on=monday", "-o", "json"];
    let pushed = json(&outrigger(&push));
    assert!(outrigger(&["pull", &image, pulled_to]).status.success());
    assert_eq!(json(&outrigger(&["push", pulled_to, &image, "-o", "json"])), pushed);
    let labels = &json(&outrigger(&["inspect", pulled_to, "-o", "json"]))["labels"];
    assert_eq!(labels, &serde_json::json!({"made.on": "monday"}));
    let relabelled = ["push", pulled_to, &image, "--label", "made.on=tuesday", "-o", "json"];
    assert_ne!(json(&outrigger(&relabelled))["digest"], pushed["digest"]);
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode();
    assert_eq!(mode(&pulled), mode(Path::new(package)), "permissions of other directories");
    let left = fs::read_dir(scratch.path()).expect("a directory").count();
    assert_eq!(left, 3, "package, images, pulled");
}

/// The image has two layers, a history and a link, none of which packing could repeat.
#[test]
fn an_image_of_another_tool_keeps_its_digest_unless_its_files_change() {
    let scratch = tempfile::tempdir().expect("a directory");
    let package = package(scratch.path(), &linear().model(), 7.5);
    let layout = scratch.path().join("theirs").display().to_string();
    let image = format!("{layout}:latest");
    let umoci = |arguments: &[&str]| {
        let output = Command::new("umoci").args(arguments).output();
        let Some(output) = if_installed("umoci", output) else { return false };
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        true
    };
    let insert =
        |from: &str, to: &str| umoci(&["insert", "--rootless", "--image", &image, from, to]);
    let directory = package.to_str().expect("utf-8");
    let label = "--config.label=made.by=umoci";
    if !umoci(&["init", "--layout", &layout])
        || !umoci(&["new", "--image", &image])
        || !insert(directory, "/data")
        || !insert("/etc/passwd", "/etc/passwd")
        || !umoci(&["config", "--image", &image, label])
    {
        return;
    }
    let theirs = format!("oci:{image}");
    let copy = format!("oci:{layout}-copy:latest");
    let pulled = scratch.path().join("pulled");
    let pulled_to = pulled.to_str().expect("utf-8");
    let digest = |arguments: &[&str]| {
        json(&outrigger(&[arguments, &["-o", "json"]].concat()))["digest"].clone()
    };
    let original = digest(&["pull", &theirs, pulled_to]);
    assert_eq!(digest(&["push", pulled_to, &copy]), original);
    assert_eq!(digest(&["inspect", &copy]), original);
    let golden = pulled.join("golden.jsonl");
    let cases = fs::read(&golden).expect("golden cases");
    fs::remove_file(&golden).expect("golden cases");
    assert_ne!(digest(&["push", pulled_to, &copy]), original);
    let inspected = json(&outrigger(&["inspect", &copy, "-o", "json"]));
    assert_eq!(inspected["labels"]["made.by"], "umoci", "{inspected:#}");
    fs::write(&golden, cases).expect("golden cases");
    fs::remove_dir_all(&layout).expect("the source");
    let output = outrigger(&["push", pulled_to, &copy]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("packed anew"), "{}", text(&output.stderr));
}

#[test]
fn hosts_that_could_never_match_are_refused() {
    for host in ["http://localhost:5000", "localhost:5000/team", "*.example"] {
        let image = "oci:/no/such/directory:latest";
        let output = outrigger(&["inspect", "--plain-http", host, image]);
        assert_eq!(output.status.code(), Some(64), "{host}");
        assert!(text(&output.stderr).contains("is not a registry's host"), "{host}");
    }
    let both = format!("localhost:5000/churn:v1@sha256:{}", "0a".repeat(32));
    let output = outrigger(&["push", "/no/such/directory", &both]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("not to both"), "{}", text(&output.stderr));
}

#[test]
fn pushing_the_same_directory_twice_gives_the_same_digest() {
    let scratch = tempfile::tempdir().expect("a directory");
    let package = package(scratch.path(), &linear().model(), 7.5);
    let push = |tag: &str| {
        let reference = format!("oci:{}:{tag}", scratch.path().join("images").display());
        let directory = package.to_str().expect("utf-8");
        let output = outrigger(&["push", directory, &reference, "--label", "a=b", "-o", "json"]);
        json(&output)["digest"].as_str().expect("a digest").to_owned()
    };
    assert_eq!(push("one"), push("two"));
}

#[test]
fn a_simulated_canary_is_judged_and_its_power_is_reported() {
    let few = ["canary", "simulate", "--runs", "5", "--most", "3000"];
    let simulate = |more: &[&str]| outrigger(&[&few, more].concat());
    let slow = json(&simulate(&["--canary-latency", "1.5", "-o", "json"]));
    assert_eq!(slow["verdict"]["decision"], "rollback", "{slow:#}");
    let findings = slow["verdict"]["findings"].as_array().expect("findings");
    let harmful = findings.iter().filter(|finding| finding["state"] == "harmful");
    assert_eq!(harmful.map(|finding| &finding["signal"]).collect::<Vec<_>>(), ["latency"]);
    assert!(slow["verdict"]["elapsed_seconds"].as_f64().expect("a number") > 0.0);
    assert_eq!(slow["power"][0]["canary"], "+1% errors");

    let report = text(&simulate(&["--errors", "0.1%", "--canary-errors", "20%"]).stdout);
    assert!(
        report.starts_with("rollback\n  after ") && report.contains("  harmful   error rate"),
        "{report}"
    );
    assert!(report.contains(" at 50 requests/s to see +1% errors"), "{report}");
}

#[test]
fn a_canary_on_a_shared_engine_is_simulated_with_its_callers() {
    let traffic = ["--rate", "400", "--errors", "0%", "--latency", "1ms", "--servers", "2"];
    let simulate = |more: &[&str]| {
        outrigger(
            &[&["canary", "simulate", "--canary-latency", "200"], &traffic[..], more].concat(),
        )
    };
    let report = json(&simulate(&["-o", "json"]));
    assert!(report["reason"].as_str().is_some_and(|it| it.starts_with("rollback: ")), "{report:#}");
    assert!(report["left_to_live"].as_u64() > Some(0), "{report:#}");
    assert_eq!(report["failed"], 0, "{report:#}");
    let printed = text(&simulate(&[]).stdout);
    assert!(printed.contains("callers failed"), "{printed}");
}

#[test]
fn a_log_is_replayed() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("outcomes.jsonl");
    let line = |number: u32| {
        let canary = number.is_multiple_of(7);
        let (arm, latency) = if canary { ("canary", 60) } else { ("live", 20) };
        let latency = latency + number * 7919 % 10;
        serde_json::json!({"time": number, "arm": arm, "latency_ms": latency, "score": 0.5})
    };
    let lines: Vec<String> = (0..3000).map(|number| line(number).to_string()).collect();
    let file = path.to_str().expect("utf-8");
    let simulate = |more: &[&str]| {
        let log = ["canary", "simulate", "--log", file, "--share", "0.143", "--reference", "500"];
        outrigger(&[&log, more].concat())
    };
    fs::write(&path, lines.join("\n")).expect("a log");
    let report = json(&simulate(&["--runs", "2", "--most", "500", "-o", "json"]));
    assert_eq!(report["verdict"]["decision"], "rollback", "{report:#}");

    // Only the first request counts of a user who is slow on the canary and sends all its
    // requests.
    let by_one_user = |number: u32| {
        let mut line = line(number);
        line["key"] =
            if number.is_multiple_of(7) { "slow".into() } else { number.to_string().into() };
        line.to_string()
    };
    fs::write(&path, (0..3000).map(by_one_user).collect::<Vec<_>>().join("\n")).expect("a log");
    let report = json(&simulate(&["--runs", "2", "--most", "500", "-o", "json"]));
    assert_eq!(report["verdict"]["canary"], 1, "{report:#}");

    fs::write(&path, "{}").expect("a log");
    let output = simulate(&[]);
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("line 1"), "{}", text(&output.stderr));
}

#[test]
fn invalid_simulation_settings_are_usage_errors() {
    for wrong in [
        ["--canary-errors", "0.1%"],
        ["--confidence", "30%"],
        ["--share", "0%"],
        ["--maximum-time", "1s"],
        ["--rate", "0"],
        ["--servers", "0"],
        ["--deadline", "1s"],
    ] {
        let output = outrigger(&[&["canary", "simulate"], &wrong[..]].concat());
        assert_eq!(output.status.code(), Some(64), "{wrong:?}: {}", text(&output.stderr));
    }
}
