//! `outrigger diff` with a real engine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use outrigger_testkit::saved_model::Linear;
use serde_json::{Value, json as value};

use crate::common::{json, linear, outrigger, package, text};

/// Directories for packages.
struct Packages(tempfile::TempDir);

impl Packages {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    /// The package `name`, whose golden case expects `score`.
    fn package(&self, name: &str, model: &Linear, score: f32) -> PathBuf {
        let scratch = self.0.path().join(name);
        fs::create_dir(&scratch).expect("a directory");
        package(&scratch, &model.model(), score)
    }
}

fn diff(a: &Path, b: &Path, more: &[&str]) -> Output {
    let (a, b) = (a.to_str().expect("utf-8"), b.to_str().expect("utf-8"));
    outrigger(&[&["diff", a, b], more].concat())
}

/// The report, and the exit code.
fn report(a: &Path, b: &Path, more: &[&str]) -> (Value, Option<i32>) {
    let output = diff(a, b, &[more, &["-o", "json"]].concat());
    (json(&output), output.status.code())
}

#[test]
fn packages_that_score_the_same_do_not_differ() {
    let packages = Packages::new();
    let (a, b) = (packages.package("a", &linear(), 7.5), packages.package("b", &linear(), 7.5));
    // Another image with the same model.
    fs::write(b.join("notes.txt"), "trained again").expect("a file");
    let output = diff(&a, &b, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("golden     1 requests answered by both models"), "{shown}");
    assert!(shown.contains("1 scores compared: 0 differ"), "{shown}");
    // Without scores only the images themselves are known to be equal.
    assert_eq!(diff(&a, &b, &["--no-engine"]).status.code(), Some(1));
    let (report, code) = report(&a, &a, &["--no-engine"]);
    assert_eq!((code, &report["golden"]), (Some(0), &Value::Null));
    assert_eq!(report["shared_blobs"]["bytes"], report["a"]["packed_bytes"]);
}

#[test]
fn what_is_not_there_cannot_be_compared() {
    let packages = Packages::new();
    let a = packages.package("a", &linear(), 7.5);
    for missing in ["no-such-directory", "./no/such/directory", "oci:/no/such/directory:v1"] {
        for [one, other] in [[a.as_path(), Path::new(missing)], [Path::new(missing), &a]] {
            let output = diff(one, other, &[]);
            assert_eq!(output.status.code(), Some(2), "{missing}: {}", text(&output.stderr));
            let named = missing.trim_end_matches(":v1");
            assert!(text(&output.stderr).contains(named), "{}", text(&output.stderr));
        }
    }
    let output = diff(&a, &a, &["--input", "/no/such/file.csv"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn other_scores_are_a_difference_up_to_the_tolerance() {
    let packages = Packages::new();
    let a = packages.package("a", &linear(), 7.5);
    let b = packages.package("b", &Linear { bias: 0.75, ..linear() }, 7.75);
    let (found, code) = report(&a, &b, &[]);
    assert_eq!(code, Some(1), "{found:#}");
    assert_eq!((&found["features"], &found["signature"]), (&value!([]), &value!([])));
    let golden = &found["golden"];
    // The golden cases of both packages.
    assert_eq!((&golden["requests"], &golden["agreement"]["differing"]), (&value!(2), &value!(2)));
    let worst = &golden["agreement"]["worst"][0];
    assert_eq!((&worst["expected"], &worst["score"]), (&value!(7.5), &value!(7.75)));
    let (found, code) = report(&a, &b, &["--atol", "0.5"]);
    assert_eq!(code, Some(0), "{found:#}");
}

#[test]
fn a_file_shows_that_the_order_is_another() {
    let packages = Packages::new();
    let a = packages.package("a", &linear(), 7.5);
    let b = packages.package("b", &Linear { treatment: vec![-2.0, -4.0], ..linear() }, -4.5);
    let rows = packages.0.path().join("rows.csv");
    let lines = "user,treatment,u0,t0,t1\nu,a,1,1,1\nu,b,1,2,2\nu,c,1,3,3\nv,a,1,one,1\n";
    fs::write(&rows, lines).expect("rows");
    let (found, code) = report(&a, &b, &["--input", rows.to_str().expect("utf-8")]);
    assert_eq!(code, Some(1));
    let rows = &found["rows"];
    assert_eq!((&rows["requests"], &rows["agreement"]["compared"]), (&value!(2), &value!(3)));
    assert_eq!(rows["agreement"]["rank_correlation"]["mean"], -1.0, "{rows:#}");
    let worst = &rows["agreement"]["worst"][0];
    assert_eq!((&worst["user"], &worst["treatment"]), (&value!("u"), &value!("c")));
    assert_eq!(
        (&rows["unscored"], &rows["first_failures"][0]["at"]),
        (&value!(1), &value!("request 2"))
    );
}

#[test]
fn a_feature_that_one_model_requires_is_named() {
    let packages = Packages::new();
    let (a, b) = (packages.package("a", &linear(), 7.5), packages.package("b", &linear(), 7.5));
    for file in ["metadata.json", "golden.jsonl"] {
        let renamed = fs::read_to_string(b.join(file)).expect("a file").replace("\"t1\"", "\"t2\"");
        fs::write(b.join(file), renamed).expect("a file");
    }
    let (found, code) = report(&a, &b, &[]);
    assert_eq!(code, Some(1), "{found:#}");
    let features = found["features"].as_array().expect("features");
    let kinds: Vec<_> = features.iter().map(|it| (&it["name"], &it["kinds"][0])).collect();
    let expected = [(&value!("t1"), &value!("removed")), (&value!("t2"), &value!("added"))];
    assert_eq!(kinds, expected);
    let golden = &found["golden"];
    assert_eq!((&golden["only_a"], &golden["only_b"]), (&value!(1), &value!(1)));
    assert_eq!(golden["first_failures"][0]["reason"], "FEATURE_MISSING");
    let shown = text(&diff(&a, &b, &[]).stdout);
    assert!(shown.contains("feature    treatment t1 removed: "), "{shown}");
    assert!(shown.contains("1 scored by A only, 1 by B only, 0 by neither"), "{shown}");
}

#[test]
fn a_comparison_that_fails_has_an_exit_code_of_its_own() {
    let packages = Packages::new();
    let a = packages.package("a", &linear(), 7.5);
    let missing = outrigger(&["diff", a.to_str().expect("utf-8"), "oci:/no/such/directory:latest"]);
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));
    assert_eq!(diff(&a, &a, &["--engine", "/bin/false"]).status.code(), Some(2));
    assert_eq!(outrigger(&["diff", "no-such-directory", "neither"]).status.code(), Some(2));
    let unscored = packages.0.path().join("rows.csv");
    fs::write(&unscored, "user,treatment,u0,t0,t1\nu,a,1,one,1\n").expect("rows");
    let output = diff(&a, &a, &["--input", unscored.to_str().expect("utf-8")]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
}
