//! Requests as the control plane receives them, in each form.

use bytes::Bytes;
use outrigger_bench::{Form, Job, Load, Shape, Source, Target};
use outrigger_proto::outrigger::v1::{
    BatchPredictRequest, ModelSelector, PredictRequest, Treatment, model_selector::Version,
};
use prost::Message as _;
use serde_json::{Value, json};

use crate::servers::{ControlPlane, Package, TREATMENTS, model_job, run};

fn shape(users: usize, distinct: usize) -> Source {
    Source::Generated(Shape { treatments: TREATMENTS, users, distinct, seed: 1 })
}

/// Decodes a received message.
fn decoded<M: prost::Message + Default>(message: &Bytes) -> M {
    M::decode(message.clone()).expect("a message")
}

#[test]
fn requests_name_the_model_and_differ() {
    let (server, package) = (ControlPlane::willing(), Package::linear());
    let model = ModelSelector {
        name: "offers/spring".to_owned(),
        version: Some(Version::Tag("next".to_owned())),
    };
    let target = Target::Model { model: model.clone(), form: None };
    let job = model_job(server.grpc, &package, None, Load::Max);
    let report = run(&Job { target, source: shape(1, 4), ..job });
    assert_eq!((report.form, report.users), ("kv", 1));
    let messages = server.messages();
    let requests: Vec<PredictRequest> = messages.iter().map(decoded).collect();
    assert!(requests.iter().all(|request| request.model.as_ref() == Some(&model)));
    assert!(requests.iter().all(|request| request.treatments.len() == TREATMENTS));
    let mut distinct: Vec<_> = messages.iter().collect();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 4);
    let lengths = requests[0].treatments.iter().map(|treatment| treatment.id.len());
    assert!(lengths.clone().max() > lengths.min());
}

#[test]
fn columns_are_sent_as_a_table() {
    let (server, package) = (ControlPlane::willing(), Package::linear());
    let report = run(&model_job(server.grpc, &package, Some(Form::Columnar), Load::Max));
    assert_eq!(report.form, "columnar");
    let request: PredictRequest = decoded(&server.messages()[0]);
    let table = request.treatment_table.expect("a table");
    assert_eq!((table.count as usize, table.ids.len()), (TREATMENTS, TREATMENTS));
    let numbers = table.numbers.expect("numbers");
    assert_eq!((numbers.names.len(), numbers.values.len()), (2, 4 * 2 * TREATMENTS));
}

#[test]
fn several_users_make_a_batch() {
    let (server, package) = (ControlPlane::willing(), Package::linear());
    let job = model_job(server.grpc, &package, None, Load::Max);
    let report = run(&Job { source: shape(5, 1), ..job.clone() });
    assert_eq!(report.users, 5);
    let batch: BatchPredictRequest = decoded(&server.messages()[0]);
    assert_eq!(batch.model.expect("a model").name, "offers");
    assert_eq!(batch.requests.len(), 5);
    assert!(batch.requests.iter().all(|request| request.model.is_none()));
    let job = model_job(server.http, &package, Some(Form::Json), Load::Max);
    let error = outrigger_bench::run(&Job { source: shape(5, 1), ..job }, &mut |_| {});
    assert!(error.expect_err("HTTP has no batches").is_usage());
}

#[test]
fn json_goes_over_http() {
    let (server, package) = (ControlPlane::willing(), Package::linear());
    let report = run(&model_job(server.http, &package, Some(Form::Json), Load::Max));
    assert_eq!(report.form, "json");
    assert!(report.ok > 0 && report.errors.is_empty(), "{report}");
    let request: Value = serde_json::from_slice(&server.messages()[0]).expect("JSON");
    assert_eq!(request["model"], json!({"name": "offers"}));
    assert_eq!(request["treatments"].as_array().map(Vec::len), Some(TREATMENTS));
    assert!(request["treatments"][0]["features"]["t1"].is_number());
}

#[test]
fn files_are_sent_unchanged_except_for_the_model() {
    let (server, package) = (ControlPlane::willing(), Package::linear());
    let treatments = vec![Treatment { id: "a".to_owned(), ..Default::default() }; TREATMENTS];
    let model = Some(ModelSelector { name: "other".to_owned(), version: None });
    let request = PredictRequest { model, treatments, ..Default::default() };
    let file = package.file("request.binpb", &request.encode_to_vec());
    let job = model_job(server.grpc, &package, None, Load::Max);
    let job = Job { source: Source::Files(vec![file]), plan: None, ..job };
    let report = run(&job);
    assert_eq!((report.form, report.treatments), ("kv", Some(TREATMENTS)));
    let sent: PredictRequest = decoded(&server.messages()[0]);
    assert_eq!(sent.model.as_ref().expect("a model").name, "offers");
    assert_eq!(PredictRequest { model: request.model.clone(), ..sent }, request);
}

#[test]
fn json_files_go_over_http_or_become_messages() {
    let (server, package) = (ControlPlane::willing(), Package::linear());
    let treatments = vec![json!({"features": {"t0": 1, "t1": 2}}); TREATMENTS];
    let request = json!({"model": {"name": "other"}, "user": {"u0": 1}, "treatments": treatments});
    let source = Source::Files(vec![package.file("request.json", request.to_string().as_bytes())]);
    let job = model_job(server.http, &package, None, Load::Max);
    assert_eq!(run(&Job { source: source.clone(), plan: None, ..job }).form, "json");
    let sent: Value = serde_json::from_slice(&server.messages()[0]).expect("JSON");
    assert_eq!(sent["model"], json!({"name": "offers"}));
    assert_eq!(sent["treatments"], request["treatments"]);

    let server = ControlPlane::willing();
    let job = model_job(server.grpc, &package, Some(Form::KeyValue), Load::Max);
    let job = Job { source, ..job };
    assert_eq!(run(&job).form, "kv");
    let sent: PredictRequest = decoded(&server.messages()[0]);
    assert_eq!(sent.treatments[0].features.len(), 2);
    let without_plan = outrigger_bench::run(&Job { plan: None, ..job }, &mut |_| {});
    assert!(without_plan.expect_err("types are unknown").to_string().contains("metadata.json"));
}
