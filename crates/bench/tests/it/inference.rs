//! Servers of the Open Inference Protocol.

use bytes::Bytes;
use outrigger_bench::{Error, Inference, InferenceForm, Job, Load, Report, Shape, Source, Target};
use outrigger_oip::{DataType, InferRequest, grpc, rest};
use outrigger_proto::inference::{
    ModelInferRequest, ModelMetadataRequest, ModelMetadataResponse,
    model_metadata_response::TensorMetadata,
};
use outrigger_testkit::oip::{Answer, Protocol, Seen, Server, identity};
use prost::Message as _;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::servers::{Package, TREATMENTS, model_job, run};

const FORMS: [InferenceForm; 3] = [InferenceForm::Grpc, InferenceForm::Binary, InferenceForm::Json];

/// A scripted server, and the form in which it is called.
struct Peer {
    form: InferenceForm,
    server: Server,
    _runtime: Runtime,
}

impl Peer {
    fn start(
        form: InferenceForm,
        script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let protocol = match form {
            InferenceForm::Grpc => Protocol::Http2,
            InferenceForm::Binary | InferenceForm::Json => Protocol::Http1,
        };
        let server = runtime.block_on(Server::start(protocol, script));
        Self { form, server, _runtime: runtime }
    }

    /// A job for the model `Ident`, whose requests have the tensors of `package`, if it is given.
    fn job(&self, package: Option<&Package>, inputs: &[&str]) -> Job {
        let linear = Package::linear();
        let address = self.server.address().parse().expect("an address");
        let job = model_job(address, package.unwrap_or(&linear), None, Load::Max);
        let inputs = inputs.iter().map(|input| input.parse().expect("an input")).collect();
        let inference =
            Inference { model: "Ident".to_owned(), version: None, form: self.form, inputs };
        let plan = job.plan.clone().filter(|_| package.is_some());
        Job { target: Target::Inference(inference), plan, ..job }
    }

    /// The requests that the model has got.
    fn requests(&self) -> Vec<InferRequest> {
        let seen = self.server.seen();
        let asked = seen.iter().filter(|seen| seen.call.to_lowercase().ends_with("infer"));
        asked.map(|seen| self.read(seen)).collect()
    }

    fn read(&self, seen: &Seen) -> InferRequest {
        if self.form == InferenceForm::Grpc {
            let message = ModelInferRequest::decode(seen.body.clone()).expect("a message");
            assert_eq!(message.model_name, "Ident");
            return grpc::read_request(message).expect("a request").0;
        }
        assert_eq!(seen.call, "POST /v2/models/Ident/infer");
        assert!(seen.headers.contains_key("x-request-timeout"));
        let length = seen.headers.get(rest::HEADER_LENGTH);
        let is_binary = self.form == InferenceForm::Binary;
        assert_eq!(length.is_some(), is_binary);
        let content_type = if is_binary { "application/octet-stream" } else { "application/json" };
        assert_eq!(seen.headers["content-type"], content_type);
        let length = length.map(|it| it.to_str().expect("a number").parse().expect("a number"));
        rest::read_request(&seen.body, length).expect("a request")
    }
}

/// The answer of a model whose only output is `scores`, in the form of the request.
fn scores(seen: &Seen) -> Answer {
    let rename = |reply: &mut serde_json::Value| reply["outputs"][0]["name"] = json!("scores");
    match seen.call.starts_with("POST /v2/") {
        false => identity::grpc_with(seen, |reply| reply.outputs[0].name = "scores".to_owned()),
        true => identity::binary_with(seen, rename),
    }
}

/// The answer of a model that returns its input, and describes it with this shape.
fn described(seen: &Seen, shape: &[i64]) -> Answer {
    if seen.call.ends_with("/ModelMetadata") {
        let question = ModelMetadataRequest::decode(seen.body.clone()).expect("a message");
        let (name, datatype, shape) = ("x".to_owned(), "INT64".to_owned(), shape.to_vec());
        let inputs = vec![TensorMetadata { name, datatype, shape }];
        let answer = ModelMetadataResponse { name: question.name, inputs, ..Default::default() };
        return Answer::Message(answer.encode_to_vec().into());
    }
    match &*seen.call {
        "GET /v2/models/Ident" => {
            let inputs = json!([{"name": "x", "datatype": "INT64", "shape": shape}]);
            Answer::json(200, json!({"name": "Ident", "inputs": inputs}).to_string())
        }
        call if call.starts_with("POST /v2/") => identity::binary(seen),
        _ => identity::grpc(seen),
    }
}

fn refused(job: &Job) -> Error {
    outrigger_bench::run(job, &mut |_| {}).expect_err("it cannot be run")
}

fn answered(report: &Report) {
    assert!(report.ok > 0 && report.errors.is_empty(), "{report}");
}

#[test]
fn each_form_has_the_tensors_of_the_same_requests() {
    let package = Package::linear();
    let sent = FORMS.map(|form| {
        let peer = Peer::start(form, scores);
        let report = run(&peer.job(Some(&package), &[]));
        answered(&report);
        let summary = (report.form, report.treatments, report.users);
        assert_eq!(summary, (form.as_str(), Some(TREATMENTS), 1));
        let mut requests = peer.requests();
        requests.truncate(2);
        let ids: Vec<_> = requests.iter().map(|request| request.id.clone()).collect();
        assert_eq!(ids, [Some("bench-0".to_owned()), Some("bench-1".to_owned())]);
        requests.into_iter().map(|request| request.inputs).collect::<Vec<_>>()
    });
    let [of_grpc, of_binary, of_json] = &sent;
    assert_eq!((of_grpc, of_binary), (of_json, of_json));
    assert_ne!(of_grpc[0], of_grpc[1], "requests differ");
    let treatment = of_grpc[0].iter().find(|input| &*input.name == "treatment");
    assert_eq!(treatment.expect("an input").shape, [1, TREATMENTS as i64, 2]);
}

#[test]
fn outputs_are_asked_for_in_the_form_of_the_inputs() {
    for (form, expected) in FORMS.into_iter().zip([None, Some(true), Some(false)]) {
        let peer = Peer::start(form, scores);
        run(&peer.job(Some(&Package::linear()), &[]));
        let [output] = &peer.requests()[0].outputs[..] else { panic!("one output") };
        assert_eq!((&*output.name, output.binary), ("scores", expected), "{form:?}");
    }
}

#[test]
fn inputs_are_those_that_the_server_describes() {
    for form in FORMS {
        let peer = Peer::start(form, |seen| described(seen, &[-1, 2]));
        let report = run(&peer.job(None, &[]));
        answered(&report);
        assert_eq!(report.treatments, Some(TREATMENTS));
        let [input] = &peer.requests()[0].inputs[..] else { panic!("one input") };
        assert_eq!((&*input.name, input.datatype), ("x", DataType::Int64));
        assert_eq!(input.shape, [TREATMENTS as i64, 2]);
    }
}

#[test]
fn given_inputs_need_no_description() {
    for form in FORMS {
        let peer = Peer::start(form, |seen| match &*seen.call {
            call if call.starts_with("POST /v2/") => identity::binary(seen),
            _ => identity::grpc(seen),
        });
        let job = peer.job(None, &["x:FP32:5,4", "y:BYTES:5"]);
        let report = run(&job);
        answered(&report);
        assert_eq!(report.treatments, Some(5));
        let requests = peer.requests();
        let shapes: Vec<_> = requests[0].inputs.iter().map(|input| &input.shape[..]).collect();
        assert_eq!(shapes, [&[5, 4][..], &[5]]);
        let calls = peer.server.seen().len();
        assert_eq!(calls, requests.len(), "the model alone is called");
    }
}

#[test]
fn a_version_is_named_in_every_request() {
    for form in FORMS {
        let peer = Peer::start(form, |seen| match seen.call.starts_with("POST /v2/") {
            true => identity::binary(seen),
            false => identity::grpc(seen),
        });
        let job = peer.job(None, &["x:FP32:1"]);
        let Target::Inference(inference) = job.target.clone() else { panic!("an inference") };
        let target = Target::Inference(Inference { version: Some("7".to_owned()), ..inference });
        run(&Job { target, ..job });
        let seen = &peer.server.seen()[0];
        match form {
            InferenceForm::Grpc => {
                let message = ModelInferRequest::decode(seen.body.clone()).expect("a message");
                assert_eq!(message.model_version, "7");
            }
            InferenceForm::Binary | InferenceForm::Json => {
                assert_eq!(seen.call, "POST /v2/models/Ident/versions/7/infer");
            }
        }
    }
}

#[test]
fn inputs_without_a_size_must_be_given() {
    for form in FORMS {
        let silent = Peer::start(form, |seen| match seen.call.starts_with("GET ") {
            true => Answer::json(200, r#"{"name": "Ident", "inputs": []}"#),
            false => Answer::Message(Bytes::new()),
        });
        let error = refused(&silent.job(None, &[]));
        assert!(error.is_usage() && error.to_string().contains("does not describe"), "{error}");
        let vague = Peer::start(form, |seen| described(seen, &[-1, -1]));
        let error = refused(&vague.job(None, &[]));
        assert!(error.is_usage() && error.to_string().contains("variable size"), "{error}");
    }
}

#[test]
fn files_need_a_metadata_json() {
    let package = Package::linear();
    let json = br#"{"user": {"u0": 1}, "treatments": [{"features": {"t0": 1, "t1": 2}}]}"#;
    let source = Source::Files(vec![package.file("request.json", json)]);
    let peer = Peer::start(InferenceForm::Json, scores);
    let job = Job { source, ..peer.job(Some(&package), &[]) };
    let report = run(&job);
    assert_eq!(report.treatments, Some(1));
    assert_eq!(peer.requests()[0].inputs.len(), 3);
    let error = refused(&Job { plan: None, ..job }).to_string();
    assert!(error.contains("a metadata.json is needed to create tensors"), "{error}");
}

#[test]
fn an_answer_without_the_output_is_refused() {
    for form in FORMS {
        let peer = Peer::start(form, |seen| match seen.call.starts_with("POST /v2/") {
            true => identity::binary(seen),
            false => identity::grpc(seen),
        });
        let error = refused(&peer.job(Some(&Package::linear()), &[])).to_string();
        assert!(error.contains("ANSWER_INVALID: no output \"scores\""), "{error}");
    }
}

#[test]
fn failures_have_the_message_of_the_protocol() {
    let refusing = |body: &'static str| {
        let peer = Peer::start(InferenceForm::Json, move |_| Answer::json(404, body));
        refused(&peer.job(None, &["x:FP32:1"])).to_string()
    };
    let bare = refusing(r#"{"error": "no such model"}"#);
    assert!(bare.contains("HTTP_404: no such model"), "{bare}");
    let own = refusing(r#"{"error": "no such model", "reason": "MODEL_NOT_FOUND"}"#);
    assert!(own.contains("MODEL_NOT_FOUND: no such model"), "{own}");
}

#[test]
fn messages_are_saved_with_the_ending_of_their_form() {
    for (form, ending) in FORMS.into_iter().zip(["binpb", "bin", "json"]) {
        let directory = tempfile::tempdir().expect("a directory");
        let peer = Peer::start(form, scores);
        let save = Some(directory.path().to_owned());
        let shape = Shape { treatments: TREATMENTS, users: 1, distinct: 1, seed: 1 };
        let source = Source::Generated(shape);
        run(&Job { save, source, ..peer.job(Some(&Package::linear()), &[]) });
        for name in ["request", "answer"] {
            let file = directory.path().join(format!("{name}-0.{ending}"));
            assert!(file.is_file(), "{}", file.display());
        }
    }
}
