//! Requests in JSON.

use std::fmt::Write as _;

use outrigger_features::{Limits, Metadata, Plan, json};

use crate::most;

/// The length of the bodies in bytes.
const LENGTH: usize = 1 << 20;

/// The maximum memory of a body, as a multiple of its length.
const FACTOR: usize = 16;

const METADATA: &[u8] = br#"{"schema": "outrigger.dev/model/v1", "framework": "tensorflow",
    "inputs": [
      {"tensor": "x", "entity": "user", "dtype": "float32", "features": [
        {"name": "x", "missing": "nan"}, {"name": "v", "length": 2, "default": [0, 0]}]},
      {"tensor": "y", "entity": "treatment", "dtype": "float32", "features": [
        {"name": "y", "missing": "nan"}]}],
    "outputs": [{"tensor": "s", "name": "s", "kind": "per_treatment"}]}"#;

/// A body that repeats `item` between `begin` and `end` as often as fits.
fn filled(begin: &str, item: fn(usize, &mut String), end: &str) -> String {
    let mut body = begin.to_owned();
    for index in 0.. {
        if body.len() >= LENGTH {
            break;
        }
        item(index, &mut body);
        body.push(',');
    }
    body.pop();
    body + end
}

/// A feature with a unique name.
fn feature(index: usize, body: &mut String) {
    write!(body, "\"{index:x}\":0").expect("a string grows");
}

/// Converts a body to tensors.
fn pack(plan: &Plan, body: &[u8]) {
    if json::selector(body).is_ok()
        && let Ok(request) = json::encode_request(plan, body)
    {
        plan.pack(&[&request], &Limits::default()).ok();
    }
}

/// The beginning, the repeated item, and the end of a body.
type Body = (&'static str, fn(usize, &mut String), &'static str);

/// Bodies designed to use much memory.
const BODIES: [Body; 15] = [
    (r#"{"model":{"name":"m"},"treatments":["#, |_, body| body.push_str("{}"), "]}"),
    (
        r#"{"model":{"name":"m"},"treatments":["#,
        |_, body| body.push_str(r#"{"features":{"y":1}}"#),
        "]}",
    ),
    (r#"{"model":{"name":"m"},"treatments":[{"features":{"#, feature, "}}]}"),
    (r#"{"model":{"name":"m"},"user":{"#, feature, "}}"),
    (r#"{"model":{"name":"m"},"user":{"a":{"b":{"#, feature, "}}}}"),
    (r#"{"model":{"name":"m"},"user":{"#, |_, body| body.push_str(r#""":0"#), "}}"),
    (
        r#"{"model":{"name":"m"},"treatments":[{"features":{"#,
        |_, body| body.push_str(r#""":0"#),
        "}}]}",
    ),
    (r#"{"model":{"name":"m"},"user":{"v":["#, |_, body| body.push('0'), "]}}"),
    (r#"{"model":{"name":"m"},"user":{"v":["#, |_, body| body.push_str(r#""""#), "]}}"),
    (r#"{"model":{"name":"m"},"user":{"v":["#, |_, body| body.push_str("[]"), "]}}"),
    (r#"{"model":{"name":"m"},"user":{"z":["#, |_, body| body.push_str(r#"{"a":0}"#), "]}}"),
    (r#"{"model":{"name":"m"},"request_id":["#, |_, body| body.push('0'), "]}"),
    (r#"{"model":{"name":"m"},"options":{"outputs":["#, |_, body| body.push_str(r#""""#), "]}}"),
    (r#"{"model":{"name":"m"},"what":["#, |_, body| body.push_str(r#"{"a":0}"#), "]}"),
    (r#"{"model":{"name":["#, |_, body| body.push('0'), "]}}"),
];

#[test]
fn no_body_takes_many_times_its_length() {
    let plan = Plan::compile(Metadata::parse(METADATA).expect("valid"));
    let factors = BODIES.map(|(begin, item, end)| {
        let body = filled(begin, item, end);
        (begin, most(|| pack(&plan, body.as_bytes())).div_ceil(body.len()))
    });
    let heavy: Vec<_> = factors.iter().filter(|(_, factor)| *factor > FACTOR).collect();
    assert!(heavy.is_empty(), "times the body's length: {heavy:?}");
}

#[test]
fn no_name_is_written_for_every_feature_below_it() {
    /// The body is short, so that repeating its name for every feature does not fill the
    /// memory.
    const LENGTH: usize = 1 << 15;
    let plan = Plan::compile(Metadata::parse(METADATA).expect("valid"));
    let features: Vec<_> = (0..LENGTH / 14).map(|index| format!("\"{index:x}\":0")).collect();
    let (name, features) = ("x".repeat(LENGTH / 2), features.join(","));
    let body = format!(r#"{{"model":{{"name":"m"}},"user":{{"{name}":{{{features}}}}}}}"#);
    let most = most(|| pack(&plan, body.as_bytes()));
    assert!(most <= FACTOR * body.len(), "{most} bytes for a body of {}", body.len());
}
