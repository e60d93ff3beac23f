//! TensorFlow Serving, called with tensors.

use outrigger_bench::{Error, Job, Load, Servable, Source, Target};
use outrigger_testkit::engine::Received;
use tonic::Code;

use crate::servers::{Engine, TREATMENTS, VERSION, run};

fn calling(engine: &Engine, servable: Servable) -> Result<outrigger_bench::Report, Error> {
    let job = Job { target: Target::Servable(servable), ..engine.job(Load::Max) };
    outrigger_bench::run(&job, &mut |_| {})
}

fn servable(engine: &Engine) -> Servable {
    Servable { name: engine.name.clone(), version: None, signature: None }
}

#[test]
fn the_engine_gets_the_tensors_of_the_latest_version() {
    let engine = Engine::start();
    engine.engine.on_predict(|prediction| {
        let treatments = &prediction.inputs["treatment"];
        assert_eq!(treatments.shape, [1, TREATMENTS as i64, 2]);
        assert_eq!(prediction.inputs.len(), 3);
        assert_eq!(prediction.outputs, ["scores"]);
        assert_eq!(prediction.signature, "serving_default");
        assert!(prediction.timeout.is_some());
        let scores = outrigger_testkit::engine::floats("scores", &[1, 3], [0.0; 3]);
        outrigger_testkit::engine::Predicting::Outputs(vec![scores])
    });
    let report = run(&engine.job(Load::Max));
    assert_eq!((report.form, report.treatments), ("direct", Some(TREATMENTS)));
    assert!(report.ok > 0 && report.errors.is_empty(), "{report}");
    let name = engine.name.clone();
    let expected = Received::Predict { name, version: Some(VERSION), found: Code::Ok };
    assert!(engine.engine.received().contains(&expected));
}

#[test]
fn a_file_is_packed_as_well() {
    let engine = Engine::start();
    let json = br#"{"user": {"u0": 1}, "treatments": [{"features": {"t0": 1, "t1": 2}}]}"#;
    let file = engine.package.file("request.json", json);
    let report = run(&Job { source: Source::Files(vec![file]), ..engine.job(Load::Max) });
    assert_eq!((report.form, report.treatments), ("direct", Some(1)));
}

#[test]
fn unknown_servables_versions_and_signatures_are_reported_before_the_run() {
    let engine = Engine::start();
    let unknown = Servable { name: "nothing".to_owned(), ..servable(&engine) };
    let error = calling(&engine, unknown).expect_err("unknown");
    assert!(matches!(&error, Error::Refused(failure) if failure.reason == "NOT_FOUND"), "{error}");
    let gone = Servable { version: Some(99), ..servable(&engine) };
    let error = calling(&engine, gone).expect_err("no such version");
    assert!(matches!(&error, Error::Refused(failure) if failure.reason == "NOT_FOUND"), "{error}");
    let other = Servable { signature: Some("other".to_owned()), ..servable(&engine) };
    let error = calling(&engine, other).expect_err("no such signature").to_string();
    assert!(error.contains("has no signature \"other\""), "{error}");
}

#[test]
fn metadata_that_contradicts_the_signature_is_reported_before_the_run() {
    let engine = Engine::start();
    let text = std::fs::read_to_string(engine.package.metadata()).unwrap();
    let wrong =
        text.replace("\"treatment\"", "\"other\"").replacen("\"other\"", "\"treatment\"", 0);
    let file = engine.package.file(
        "wrong.json",
        wrong.replace("\"entity\":\"other\"", "\"entity\":\"treatment\"").as_bytes(),
    );
    let plan = outrigger_bench::read_plan(&file).unwrap();
    let job = Job { plan: Some(plan), ..engine.job(Load::Max) };
    let error = outrigger_bench::run(&job, &mut |_| {}).expect_err("another tensor");
    assert!(error.is_usage() && error.to_string().contains("other"), "{error}");
}
