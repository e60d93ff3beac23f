//! Tests of requests that ask for fewer scores than they have treatments.

use std::net::SocketAddr;

use outrigger_bench::{Error, Job, Report, Source};
use outrigger_proto::outrigger::v1::{
    OnTreatmentError, PredictRequest, ResponseOptions, Treatment,
};
use prost::Message as _;
use serde_json::{Map, json};

use crate::servers::{ControlPlane, Package, TREATMENTS, Turn, model_job, rate};

/// Runs a request with these options on a server that always answers with `scores`
/// scores.
fn tried(top_k: u32, skip: bool, scores: usize) -> [Result<Report, Error>; 2] {
    let (server, package) = (ControlPlane::start(move |_| Turn::Scored(scores)), Package::linear());
    let run = |address: SocketAddr, name, request: &[u8]| {
        let source = Source::Files(vec![package.file(name, request)]);
        let job = model_job(address, &package, None, rate(20.0));
        outrigger_bench::run(&Job { source, ..job }, &mut |_| {})
    };
    let mut options = Map::from_iter([("top_k".to_owned(), json!(top_k))]);
    options.extend(skip.then(|| ("on_treatment_error".to_owned(), json!("skip"))));
    let treatments = vec![json!({"features": {"t0": 1, "t1": 2}}); TREATMENTS];
    let json = json!({"user": {"u0": 1}, "treatments": treatments, "options": options});
    let mut options = ResponseOptions { top_k, ..Default::default() };
    if skip {
        options.set_on_treatment_error(OnTreatmentError::Skip);
    }
    let treatments = vec![Treatment { id: "a".to_owned(), ..Default::default() }; TREATMENTS];
    let message = PredictRequest { treatments, options: Some(options), ..Default::default() };
    [
        run(server.http, "request.json", json.to_string().as_bytes()),
        run(server.grpc, "request.binpb", &message.encode_to_vec()),
    ]
}

fn taken(top_k: u32, skip: bool, scores: usize) {
    for report in tried(top_k, skip, scores) {
        let report = report.expect("the requested number of scores");
        assert!(report.ok > 0 && report.errors.is_empty(), "{report}");
    }
}

fn refused(top_k: u32, skip: bool, scores: usize, reason: &str) {
    for report in tried(top_k, skip, scores) {
        let error = report.expect_err("another number of scores").to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn top_k_limits_the_scores_to_the_treatments_there_are() {
    taken(2, false, 2);
    taken(7, false, TREATMENTS);
    refused(2, false, TREATMENTS, "3 scores, 2 are expected");
}

#[test]
fn scores_may_be_missing_if_treatments_may_be_skipped() {
    taken(0, true, TREATMENTS - 1);
    taken(2, true, 1);
    refused(2, true, TREATMENTS, "3 scores, at most 2 are expected");
    refused(0, false, TREATMENTS - 1, "2 scores, 3 are expected");
}
