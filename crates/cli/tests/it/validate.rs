//! `outrigger validate` with a real engine.

use std::{fs, path::Path};

use serde_json::{Value, json as value};

use crate::common::{json, linear, outrigger, package, text};

/// The outcome of the check `name` in a report of `validate -o json`.
fn outcome(report: &Value, name: &str) -> String {
    let checks = report["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == name).expect("the check");
    check["outcome"].as_str().expect("an outcome").to_owned()
}

#[test]
fn a_good_package_is_scored_by_the_engine() {
    let scratch = tempfile::tempdir().expect("a directory");
    let package = package(scratch.path(), &linear().model(), 7.5);
    let output = outrigger(&["validate", package.to_str().expect("utf-8"), "-o", "json"]);
    assert_eq!(outcome(&json(&output), "scores"), "passed", "{}", text(&output.stdout));
    assert!(output.status.success());
}

#[test]
fn an_engine_that_does_not_start_is_not_reported_as_an_invalid_model() {
    let scratch = tempfile::tempdir().expect("a directory");
    let package = package(scratch.path(), &linear().model(), 7.5);
    let package = package.to_str().expect("utf-8");
    for engine in ["/nonexistent/tensorflow_model_server", "/bin/false"] {
        let output = outrigger(&["validate", package, "--engine", engine]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(message.starts_with("outrigger: the engine did not start"), "{message}");
    }
}

#[test]
fn a_model_that_scores_differently_is_not_valid() {
    let scratch = tempfile::tempdir().expect("a directory");
    let package = package(scratch.path(), &linear().model(), 7.25);
    let output = outrigger(&["validate", package.to_str().expect("utf-8")]);
    assert_eq!(output.status.code(), Some(1));
    let report = text(&output.stdout);
    assert!(report.contains("GOLDEN_MISMATCH") && report.contains("7.25"), "{report}");
}

#[test]
fn a_model_without_its_variables_is_not_valid() {
    let scratch = tempfile::tempdir().expect("a directory");
    let package = package(scratch.path(), &linear().model_without_variables(), 7.5);
    fs::remove_file(package.join("golden.jsonl")).expect("golden cases");
    let output = outrigger(&["validate", package.to_str().expect("utf-8"), "-o", "json"]);
    let report = json(&output);
    assert_eq!(outcome(&report, "metadata and signature"), "passed");
    assert_eq!(outcome(&report, "scores"), "failed", "{report}");
    assert!(report.to_string().contains("GOLDEN_MISMATCH"), "{report}");
}

#[test]
fn the_times_of_operations_are_means_of_the_traced_runs() {
    let scratch = tempfile::tempdir().expect("a directory");
    let package = package(scratch.path(), &linear().model(), 7.5);
    let package = package.to_str().expect("utf-8");
    let output = outrigger(&["validate", package, "--profile", "-o", "json"]);
    let report = json(&output);
    assert_eq!(outcome(&report, "scores"), "passed", "{report:#}");
    let operations = &report["operations"];
    // There is one golden case, scored 20 times; the first run is not counted.
    assert_eq!(operations["runs"], 19, "{report:#}");
    let product = operations["by_operation"].as_array().expect("operations").iter();
    let product = product.clone().find(|row| row["operation"] == "Mul").expect("the model's");
    assert_eq!(product["executions"], 2.0, "{product}");
    assert!(product["us"].as_f64() > Some(0.0) && product["share"].as_f64() < Some(1.0));
    assert!(operations["by_node"].as_array().expect("nodes").len() > 1);

    let output = outrigger(&["validate", package, "--profile"]);
    let text = text(&output.stdout);
    assert!(text.contains("mean of 19 traced runs") && text.contains("time by node"), "{text}");
}

#[test]
fn a_model_that_is_not_valid_has_no_times_of_operations() {
    let scratch = tempfile::tempdir().expect("a directory");
    let package = package(scratch.path(), &linear().model(), 7.25);
    let output =
        outrigger(&["validate", package.to_str().expect("utf-8"), "--profile", "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output)["operations"], Value::Null);
}

#[test]
fn only_the_local_engine_is_traced() {
    let refused = |arguments: &[&str]| outrigger(arguments).status.code() == Some(64);
    assert!(refused(&["validate", "churn/", "--profile", "--no-engine"]));
    assert!(refused(&["validate", "churn/", "--profile", "--engine", "/bin/false"]));
    let batched = ["engine", "--model_base_path=/m", "--step_stats_file=f", "--enable_batching"];
    assert!(refused(&batched));
}

#[test]
fn metadata_that_contradicts_the_model_is_reported_with_both_sides() {
    let scratch = tempfile::tempdir().expect("a directory");
    let package = package(scratch.path(), &linear().model(), 7.5);
    let metadata = package.join("metadata.json");
    let changed = fs::read_to_string(&metadata).expect("metadata").replace("int32", "int64");
    fs::write(&metadata, changed).expect("metadata");
    let output =
        outrigger(&["validate", package.to_str().expect("utf-8"), "--no-engine", "-o", "json"]);
    let report = json(&output);
    assert_eq!(outcome(&report, "metadata and signature"), "failed");
    let text = report.to_string();
    assert!(text.contains("int32") && text.contains("int64") && text.contains("IMAGE_INVALID"));
}

/// The features of five rows of three users, with the scores of the linear model.
const ROWS: [(&str, [f32; 3], f32); 5] = [
    ("u", [1.0, 1.0, 1.0], 7.5),
    ("u", [1.0, 0.5, 0.0], 2.5),
    ("v", [-2.0, 0.25, 0.125], -0.5),
    ("w", [0.0, 0.0, 0.0], 0.5),
    ("w", [0.0, 1.0, 0.0], 2.5),
];

fn csv() -> String {
    let line = |(user, [u0, t0, t1], expected): &(&str, [f32; 3], f32)| {
        format!("{user},{u0},{t0},{t1},{expected}\n")
    };
    "user,u0,t0,t1,expected\n".to_owned() + &ROWS.iter().map(line).collect::<String>()
}

/// Runs `validate` on a file of this name and content; returns the exit code, the report of the
/// rows, and the scores, if they were written.
fn rows(name: &str, content: &str, more: &[&str]) -> (Option<i32>, Value, Option<String>) {
    let scratch = tempfile::tempdir().expect("a directory");
    let package = package(scratch.path(), &linear().model(), 7.5);
    let (input, scores) = (scratch.path().join(name), scratch.path().join("scores"));
    fs::write(&input, content).expect("a file");
    let path = |path: &Path| path.to_str().expect("utf-8").to_owned();
    let (package, input, output) = (path(&package), path(&input), path(&scores));
    let files = ["validate", &package, "--input", &input, "--scores", &output, "-o", "json"];
    let output = outrigger(&[&files, more].concat());
    let report = json(&output)["rows"].clone();
    (output.status.code(), report, fs::read_to_string(scores).ok())
}

#[test]
fn the_rows_of_a_file_are_scored_as_by_the_model() {
    let (code, report, scores) = rows("rows.csv", &csv(), &[]);
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(
        (&report["rows"], &report["scored"], &report["requests"]),
        (&5.into(), &5.into(), &3.into())
    );
    assert_eq!(
        (&report["agreement"]["compared"], &report["agreement"]["largest"]),
        (&5.into(), &0.0.into())
    );
    let scores = scores.expect("scores");
    let mut lines = scores.lines();
    assert_eq!(lines.next(), Some("user,expected,score,digest,error"));
    for ((user, _, score), line) in ROWS.iter().zip(lines) {
        assert!(line.starts_with(&format!("{user},{score},{score},sha256:")), "{line}");
    }
}

#[test]
fn a_request_a_list_and_a_row_have_the_same_scores() {
    let rows_of_u = [
        value!({"user": {"u0": 1}, "expected": [7.5, 2.5], "treatments": [
            {"features": {"t0": 1, "t1": 1}}, {"features": {"t0": 0.5, "t1": 0}}]}),
        value!({"user": "u", "u0": 1, "t0": [1, 0.5], "t1": [1, 0], "expected": [7.5, 2.5]}),
        value!({"user": "u", "u0": 1, "t0": 1, "t1": 1, "expected": 7.5}),
    ];
    let content = rows_of_u.map(|row| format!("{row}\n")).concat();
    let (code, report, scores) = rows("rows.jsonl", &content, &[]);
    assert_eq!(code, Some(0), "{report:#}");
    let scores = scores.expect("scores");
    let scores = scores.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let scores: Vec<_> = scores.map(|line| line["score"].clone()).collect();
    assert_eq!(scores, [value!([7.5, 2.5]), value!([7.5, 2.5]), value!(7.5)]);
}

#[test]
fn a_row_without_a_score_and_an_unexpected_score_fail_the_command() {
    let without = csv().replace("u,1,0.5,0,2.5", "u,1,many,0,2.5");
    let (code, report, scores) = rows("rows.csv", &without, &[]);
    assert_eq!((code, &report["scored"]), (Some(1), &4.into()));
    let error = &report["first_errors"][0];
    assert_eq!((&error["row"], &error["reason"]), (&2.into(), &"FEATURE_TYPE".into()));
    assert!(scores.expect("scores").contains("FEATURE_TYPE: t0: expected a number"), "{report:#}");

    let of_user = csv().replace("v,-2,", "v,two,");
    let (code, report, _) = rows("rows.csv", &of_user, &[]);
    assert_eq!((code, &report["scored"], &report["errors"]), (Some(1), &4.into(), &1.into()));
    assert_eq!(report["first_errors"][0]["row"], 3);

    let other = csv().replace("1,1,7.5", "1,1,8");
    let (code, report, _) = rows("rows.csv", &other, &[]);
    assert_eq!((code, &report["agreement"]["differing"]), (Some(1), &1.into()));
    assert_eq!(report["agreement"]["worst"][0]["row"], 1);
    assert_eq!(rows("rows.csv", &other, &["--atol", "0.5"]).0, Some(0));

    let (code, report, scores) = rows("rows.csv", &without, &["--max-errors", "0"]);
    assert_eq!((code, &report["stopped"], scores), (Some(1), &true.into(), None));
}

#[test]
fn reserved_columns_can_be_renamed() {
    let content = csv().replace("user,u0,t0,t1,expected", "customer,u0,t0,t1,label");
    let names = ["--user-column", "customer", "--expected-column", "label"];
    let (code, report, scores) = rows("rows.csv", &content, &names);
    assert_eq!((code, &report["requests"]), (Some(0), &3.into()), "{report:#}");
    assert!(scores.expect("scores").starts_with("customer,label,score,digest,error\n"));
}

#[test]
fn options_that_contradict_each_other_are_usage_errors() {
    let usage = |arguments: &[&str]| {
        let output = outrigger(&[&["validate"], arguments].concat());
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {}", text(&output.stderr));
    };
    usage(&[]);
    usage(&[".", "--scores", "scores.csv"]);
    usage(&[".", "--input", "rows.txt"]);
    let file = tempfile::NamedTempFile::with_suffix(".csv").expect("a file");
    let file = file.path().to_str().expect("utf-8");
    usage(&[".", "--input", file, "--scores", file]);
    usage(&[".", "--input", "rows.csv", "--user-column", "score"]);
    usage(&[".", "--input", "rows.csv", "--rtol=-1"]);
    usage(&[".", "--input", "rows.csv", "--no-engine"]);
    usage(&[".", "--input", "rows.csv", "--server", "localhost:1", "--model", "m"]);
    usage(&[".", "--batching", "--no-engine"]);
    usage(&["--server", "localhost:1", "--input", "rows.csv"]);
    usage(&["--server", "localhost:1", "--model", "m"]);
}
