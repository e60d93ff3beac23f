//! Requests in JSON.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use outrigger_core::Failure;
use outrigger_features::{Limits, Metadata, Meter, Plan, json::Request};

use crate::most;

/// The length of the bodies in bytes.
const LENGTH: usize = 1 << 20;

/// The maximum memory of a body besides what the meter admits, as a multiple of its length, and a
/// part that does not depend on it: for the treatments up to their limit.
const FACTOR: usize = 1;
const FIXED: usize = 512 << 10;

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

/// A meter that admits everything, and remembers the most.
#[derive(Debug, Default)]
struct Admitting(AtomicU64);

impl Meter for Admitting {
    fn admit(&self, bytes: u64) -> Result<(), Failure> {
        self.0.fetch_max(bytes, Relaxed);
        Ok(())
    }

    fn proceed(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Converts a body to tensors. Returns its most memory, and the most that it may have.
fn pack(plan: &Plan, body: String) -> (usize, usize) {
    let (body, meter) = (Bytes::from(body), Admitting::default());
    let length = body.len();
    let most = most(|| {
        if let Ok(request) = Request::read(body) {
            plan.metered(&meter).pack_json(&request, &Limits::default()).ok();
        }
    });
    let admitted = usize::try_from(meter.0.load(Relaxed)).expect("it fits");
    (most, FACTOR * length + FIXED + admitted)
}

/// The beginning, the repeated item, and the end of a body.
type Body = (&'static str, fn(usize, &mut String), &'static str);

/// Bodies designed to use much memory.
const BODIES: [Body; 18] = [
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
    (r#"{"model":{"name":"m"},"treatments":["#, |_, body| body.push_str(r#"{"id":""}"#), "]}"),
    (
        r#"{"model":{"name":"m"},"options":{"on_treatment_error":"skip"},"treatments":["#,
        |_, body| body.push_str(r#"{"features":{"y":""}}"#),
        "]}",
    ),
    (r#"{"model":{"name":"m"},"treatments":[{"id":""#, |_, body| body.push_str(r"\u0041"), "\"}]}"),
    (r#"{"model":{"name":["#, |_, body| body.push('0'), "]}}"),
];

#[test]
fn no_body_takes_many_times_its_length() {
    let plan = Plan::compile(Metadata::parse(METADATA).expect("valid"));
    for (begin, item, end) in BODIES {
        let (most, allowed) = pack(&plan, filled(begin, item, end));
        assert!(most <= allowed, "{most} of {allowed} bytes for {begin} {end}");
    }
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
    let (most, _) = pack(&plan, body);
    assert!(most <= 4 * LENGTH, "{most} bytes");
}
