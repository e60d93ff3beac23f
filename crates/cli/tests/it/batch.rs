//! `outrigger batch` with hosts that the test starts.

use std::{fs, path::Path, process::Output};

use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};
use tokio::task::spawn_blocking;

use crate::common::{json, outrigger, text};

/// Runs the command while the hosts of the test answer.
async fn command(arguments: &[&str]) -> Output {
    let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
    let run = move || outrigger(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    spawn_blocking(run).await.expect("no panic")
}

/// The arguments of a command with further ones.
fn joined<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, more].concat()
}

/// A finished job of a few rows in `scratch`. Returns its output.
async fn finished(scratch: &Path) -> String {
    let host = Server::start(Protocol::Http2, identity::server).await;
    let rows: String = (0..9).map(|id| format!("{{\"id\": {id}, \"x\": {id}.5}}\n")).collect();
    fs::write(scratch.join("rows.jsonl"), rows).expect("written");
    let (input, output) = (scratch.join("rows.jsonl"), scratch.join("out"));
    let job = serde_json::json!({
        "input": input, "output": output, "model": "m", "hosts": host.address(),
        "inputs": {"x": {"datatype": "FP32", "shape": []}},
    });
    let file = scratch.join("job.yaml");
    fs::write(&file, job.to_string()).expect("written");
    let run = command(&["batch", "run", &file.to_string_lossy()]).await;
    assert!(run.status.success(), "{}", text(&run.stderr));
    output.to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_a_verification_get_the_token_over_tls() {
    let scratch = tempfile::tempdir().expect("a directory");
    let output = finished(scratch.path()).await;
    let script = |seen: &Seen| {
        let token = seen.headers.get("authorization").and_then(|value| value.to_str().ok());
        match token {
            Some("Bearer s3cret") if seen.call.starts_with("GET") => {
                Answer::json(200, r#"{"name": "m"}"#)
            }
            Some("Bearer s3cret") => identity::json(seen),
            other => Answer::json(401, format!("{{\"error\": \"{other:?} is no token\"}}")),
        }
    };
    let (host, authority) = Server::start_tls(Protocol::Http1, script).await;
    let path = |name: &str, content: &str| {
        let path = scratch.path().join(name);
        fs::write(&path, content).expect("written");
        path.to_string_lossy().into_owned()
    };
    let (ca, token) = (path("ca.pem", &authority), path("token", "s3cret\n"));
    let address = format!("https://{}", host.address());
    let verify = ["batch", "verify", &output, "-o", "json", "--host", &address];
    let report = command(&joined(&verify, &["--ca", &ca, "--token-file", &token])).await;
    assert!(report.status.success(), "{}", text(&report.stderr));
    let report = json(&report);
    assert_eq!(report["rows"], 9);
    assert_eq!(report["version_match"], "same");
    // Without the authority, and without the token.
    assert!(!command(&joined(&verify, &["--token-file", &token])).await.status.success());
    let refused = command(&joined(&verify, &["--ca", &ca])).await;
    assert!(text(&refused.stderr).contains("None is no token"), "{}", text(&refused.stderr));
    // A certificate of the caller has no use there.
    let refused = command(&joined(&verify, &["--cert", &ca, "--key", &ca])).await;
    assert_eq!(refused.status.code(), Some(64), "{}", text(&refused.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_settings_are_printed() {
    let scratch = tempfile::tempdir().expect("a directory");
    let output = finished(scratch.path()).await;
    let set = command(&["batch", "set", &output, "batch_size=8", "rows_per_second=50"]).await;
    assert!(set.status.success(), "{}", text(&set.stderr));
    assert_eq!(text(&set.stdout), "batch_size=8\nrows_per_second=50\n");
    let set = command(&["batch", "set", &output, "batch_size=", "-o", "json"]).await;
    let expected = serde_json::json!({"rows_per_second": 50, "paused": false, "cancelled": false});
    assert_eq!(json(&set), expected);
    let cancelled = command(&["batch", "cancel", &output]).await;
    assert_eq!(text(&cancelled.stdout), "cancelled=true\nrows_per_second=50\n");
    let refused = command(&["batch", "set", &output, "memory=1", "-o", "json"]).await;
    assert_eq!((refused.status.code(), refused.stdout.is_empty()), (Some(64), true));
}
