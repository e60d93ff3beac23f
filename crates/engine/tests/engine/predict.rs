//! Predict and GetModelMetadata.

use outrigger_engine::Options;
use outrigger_proto::tensorflow::{
    SignatureDef, TensorProto,
    serving::{
        GetModelMetadataRequest, ModelSpec, PredictRequest, SignatureDefMap,
        model_spec::VersionChoice, model_version_status::State,
    },
};
use outrigger_testkit::saved_model::{Linear, affine};
use prost::Message as _;
use tokio::task::JoinSet;
use tonic::Code;

use crate::{
    harness::{Local, options, request, spec, version},
    models::{busy, column, content, identity, size, tensor, twice},
    raw,
};

#[tokio::test]
async fn answers_with_lists_of_values_and_the_servable_that_was_used() {
    let local = Local::start().await;
    local.serve("half", &affine(0.5, 2.0)).await;
    let answer = local.predict(request("half", [("x", column(&[2.0, 3.0, 4.0]))])).await.unwrap();
    assert_eq!(answer.outputs["y"], column(&[3.0, 3.5, 4.0]));
    let served = ModelSpec {
        version_choice: version(1),
        signature_name: "serving_default".into(),
        ..spec("half")
    };
    assert_eq!(answer.model_spec, Some(served));
    local.stop().await;
}

#[tokio::test]
async fn answers_with_content_if_configured() {
    let root = tempfile::tempdir().unwrap();
    let options = Options { serialization_as_tensor_content: true, ..options(root.path()) };
    let local = Local::with(root, options).await;
    local.serve("half", &affine(0.5, 2.0)).await;
    let answer = local.predict(request("half", [("x", column(&[2.0]))])).await.unwrap();
    assert_eq!(answer.outputs["y"].tensor_content[..], 3f32.to_le_bytes());
    assert!(answer.outputs["y"].float_val.is_empty());
}

#[tokio::test]
async fn content_and_lists_score_the_same() {
    let local = Local::start().await;
    let linear = Linear { user: vec![1.0], treatment: vec![0.5, 2.0], bias: 0.25 };
    local.serve("linear", &linear.model()).await;
    let content = |values: &[f32], sizes: &[i64]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        TensorProto { tensor_content: bytes.into(), ..tensor(1, sizes) }
    };
    let counts = TensorProto { int_val: vec![2], ..tensor(3, &[1]) };
    let inputs = [
        ("user", content(&[4.0], &[1, 1])),
        ("treatment", content(&[1.0, 2.0, 3.0, 4.0], &[1, 2, 2])),
        ("treatment_counts", counts),
    ];
    let answer = local.predict(request("linear", inputs)).await.unwrap();
    let expected = [linear.score(&[4.0], &[1.0, 2.0]), linear.score(&[4.0], &[3.0, 4.0])];
    assert_eq!(answer.outputs["scores"].float_val, expected);
}

#[tokio::test]
async fn every_type_goes_through_a_model() {
    let local = Local::start().await;
    let types = (1..=23).filter(|dtype| ![20, 21].contains(dtype));
    let names: Vec<(i32, String)> = types.map(|dtype| (dtype, format!("type{dtype}"))).collect();
    names.iter().for_each(|(dtype, name)| local.write(name, 1, &identity(*dtype)));
    let models = names.iter().map(|(_, name)| local.model(name, &[1])).collect();
    local.reload(models).await.unwrap();
    for (dtype, name) in &names {
        let sent = match *dtype {
            7 => TensorProto { string_val: vec!["a".into(), "b".into()], ..tensor(7, &[2]) },
            1 => TensorProto { float_val: vec![1.5, -2.0], ..tensor(1, &[2]) },
            2 => TensorProto { double_val: vec![1.5, -2.0], ..tensor(2, &[2]) },
            9 => TensorProto { int64_val: vec![1, -2], ..tensor(9, &[2]) },
            10 => TensorProto { bool_val: vec![true, false], ..tensor(10, &[2]) },
            14 | 19 => TensorProto { half_val: vec![1, 2], ..tensor(*dtype, &[2]) },
            22 => TensorProto { uint32_val: vec![1, 2], ..tensor(22, &[2]) },
            23 => TensorProto { uint64_val: vec![1, 2], ..tensor(23, &[2]) },
            // The subset of the wire types has no lists of complex numbers, so these are
            // zeros.
            8 | 18 => tensor(*dtype, &[2]),
            _ => TensorProto { int_val: vec![1, 2], ..tensor(*dtype, &[2]) },
        };
        let answer = local.predict(request(name, [("x", sent.clone())])).await;
        let answer = answer.unwrap_or_else(|status| panic!("{name}: {status}"));
        let y = &answer.outputs["y"];
        assert_eq!((y.dtype, &y.tensor_shape), (*dtype, &sent.tensor_shape), "{name}");
        if ![8, 18].contains(dtype) {
            assert_eq!(*y, sent, "{name}");
        }
    }
}

#[tokio::test]
async fn long_and_short_strings_go_in_and_out() {
    let local = Local::start().await;
    local.serve("twice", &twice()).await;
    let long = "ö".repeat(10_000);
    let values = vec!["".into(), "ab".into(), long.clone().into()];
    let x = TensorProto { string_val: values, ..tensor(7, &[3]) };
    let answer = local.predict(request("twice", [("x", x)])).await.unwrap();
    let expected = ["".to_owned(), "abab".to_owned(), long.repeat(2)];
    assert_eq!(answer.outputs["y"].string_val, expected);
}

#[tokio::test]
async fn a_version_can_be_asked_for_and_the_latest_is_the_highest_loaded() {
    let local = Local::start().await;
    local.write("half", 1, &affine(1.0, 0.0));
    local.write("half", 2, &affine(2.0, 0.0));
    local.write("half", 3, &affine(3.0, 0.0));
    local.reload(vec![local.model("half", &[1, 2])]).await.unwrap();
    local.reaches("half", 1, State::Available).await;
    let mut request = request("half", [("x", column(&[1.0]))]);
    let latest = local.predict(request.clone()).await.unwrap();
    assert_eq!(latest.model_spec.unwrap().version_choice, version(2));
    request.model_spec = Some(ModelSpec { version_choice: version(1), ..spec("half") });
    let first = local.predict(request.clone()).await.unwrap();
    assert_eq!(first.outputs["y"].float_val, [1.0]);
    request.model_spec = Some(ModelSpec { version_choice: version(3), ..spec("half") });
    let status = local.refused(request).await;
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), "Servable not found for request: Specific(half, 3)");
}

/// A name, a change to a request for the affine model, and the expected error.
type Case = (&'static str, fn(&mut PredictRequest), Code, &'static str);

const CASES: [Case; 14] = [
    ("no spec", |r| r.model_spec = None, Code::InvalidArgument, "Missing ModelSpec"),
    ("no name", |r| name(r, ""), Code::InvalidArgument, "ModelSpec has no name specified."),
    (
        "unknown model",
        |r| name(r, "z"),
        Code::NotFound,
        "Servable not found for request: Latest(z)",
    ),
    (
        "unknown label",
        |r| spec_of(r).version_choice = Some(VersionChoice::VersionLabel("x".into())),
        Code::InvalidArgument,
        "Unrecognized servable version label: x",
    ),
    (
        "unknown signature",
        |r| spec_of(r).signature_name = "z".into(),
        Code::FailedPrecondition,
        "Serving signature key \"z\" not found.",
    ),
    (
        "no input",
        |r| r.inputs.clear(),
        Code::InvalidArgument,
        "input size does not match signature: 0!=1 len({}) != len({x}). Sent extra: {}. Missing but required: {x}.",
    ),
    (
        "another input",
        |r| _ = r.inputs.insert("z".into(), column(&[1.0])),
        Code::InvalidArgument,
        "input size does not match signature: 2!=1 len({x,z}) != len({x}). Sent extra: {z}. Missing but required: {}.",
    ),
    (
        "a wrong name",
        |r| r.inputs = [("z".into(), column(&[1.0]))].into(),
        Code::InvalidArgument,
        "Signature input alias: x(feed name: x:0) not found in request and no default value provided.",
    ),
    (
        "a broken tensor",
        |r| x(r).tensor_content = vec![1].into(),
        Code::InvalidArgument,
        "tensor parsing error: x",
    ),
    (
        "a wrong type",
        |r| _ = r.inputs.insert("x".into(), tensor(3, &[1, 1])),
        Code::InvalidArgument,
        "Expects arg[0] to be float but int32 is provided",
    ),
    (
        "an unknown output",
        |r| r.output_filter = vec!["z".into()],
        Code::InvalidArgument,
        "output tensor alias not found in signature: z Outputs expected to be in the set {y}.",
    ),
    (
        "an output twice",
        |r| r.output_filter = vec!["y".into(), "y".into()],
        Code::InvalidArgument,
        "duplicate output tensor alias: y",
    ),
    (
        "a tensor too large",
        |r| _ = r.inputs.insert("x".into(), tensor(1, &[1 << 40])),
        Code::InvalidArgument,
        "tensor parsing error: x",
    ),
    (
        "an unknown model with a broken tensor",
        |r| {
            name(r, "z");
            x(r).tensor_content = vec![1].into();
        },
        Code::NotFound,
        "Servable not found for request: Latest(z)",
    ),
];

fn spec_of(request: &mut PredictRequest) -> &mut ModelSpec {
    request.model_spec.as_mut().expect("a spec")
}

fn name(request: &mut PredictRequest, name: &str) {
    spec_of(request).name = name.to_owned();
}

fn x(request: &mut PredictRequest) -> &mut TensorProto {
    request.inputs.get_mut("x").expect("an input")
}

#[tokio::test]
async fn invalid_requests_are_refused_with_tensorflow_servings_messages() {
    let local = Local::start().await;
    local.serve("half", &affine(0.5, 2.0)).await;
    for (case, change, code, message) in CASES {
        let mut request = request("half", [("x", column(&[2.0]))]);
        change(&mut request);
        let status = local.refused(request).await;
        assert_eq!(status.code(), code, "{case}: {status}");
        assert!(status.message().starts_with(message), "{case}: {status}");
    }
    // The model still answers valid requests.
    local.predict(request("half", [("x", column(&[2.0]))])).await.unwrap();
}

#[tokio::test]
async fn bytes_that_are_no_request_are_refused() {
    use outrigger_proto::raw::serving::prediction_service_client::PredictionServiceClient;
    let local = Local::start().await;
    let mut client = PredictionServiceClient::new(local.connect().await);
    let status = client.predict(bytes::Bytes::from_static(b"garbage")).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
}

#[tokio::test]
async fn a_model_without_its_variables_loads_and_cannot_be_run() {
    let local = Local::start().await;
    let linear = Linear { user: vec![1.0], treatment: vec![1.0], bias: 0.0 };
    local.serve("linear", &linear.model_without_variables()).await;
    let inputs = [
        ("user", tensor(1, &[1, 1])),
        ("treatment", tensor(1, &[1, 1, 1])),
        ("treatment_counts", tensor(3, &[1])),
    ];
    let status = local.refused(request("linear", inputs)).await;
    assert_eq!(status.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn the_deadline_is_answered_even_if_the_run_goes_on() {
    let local = Local::start().await;
    local.serve("busy", &busy()).await;
    let slow = request("busy", [("x", size(2000))]);
    let path = "tensorflow.serving.PredictionService/Predict";
    let code = raw::call(local.root.path(), path, &slow, "20m").await;
    assert_eq!(code, Code::DeadlineExceeded);
    let quick = local.predict(request("busy", [("x", size(2))])).await.unwrap();
    assert_eq!(quick.outputs["y"].int_val, [2, 2]);
}

#[tokio::test]
async fn a_run_expected_to_be_short_also_obeys_its_deadline() {
    let local = Local::start().await;
    local.serve("busy", &busy()).await;
    let sized = |size: i32| request("busy", [("x", content(size))]);
    for _ in 0..50 {
        local.predict(sized(2)).await.unwrap();
    }
    let path = "tensorflow.serving.PredictionService/Predict";
    let code = raw::call(local.root.path(), path, &sized(2000), "20m").await;
    assert_eq!(code, Code::DeadlineExceeded);
    local.predict(sized(2)).await.unwrap();
}

/// More runs than there are cores, of a model whose runs were short before and of one that has not
/// run: they take no thread, turn or connection from other models.
#[tokio::test]
async fn runs_that_take_long_keep_none_from_other_models() {
    let local = Local::start().await;
    for name in ["busy", "fresh", "other"] {
        local.write(name, 1, &busy());
    }
    let models = ["busy", "fresh", "other"].map(|name| local.model(name, &[1]));
    local.reload(models.to_vec()).await.expect("they load");
    for _ in 0..50 {
        local.predict(request("busy", [("x", content(2))])).await.unwrap();
    }
    let mut long = JoinSet::new();
    for name in ["busy", "busy", "busy", "fresh", "fresh", "fresh"] {
        let mut client = local.predictions.clone();
        long.spawn(async move { client.predict(request(name, [("x", content(1500))])).await });
    }
    for _ in 0..5 {
        tokio::select! {
            biased;
            ended = long.join_next() => panic!("others wait for it: {ended:?}"),
            answer = local.predict(request("other", [("x", content(2))])) => answer.unwrap(),
        };
    }
    while let Some(answer) = long.join_next().await {
        answer.unwrap().expect("it takes long");
    }
}

#[tokio::test]
async fn concurrent_requests_get_their_own_answers() {
    let local = Local::start().await;
    local.serve("half", &affine(0.5, 2.0)).await;
    let mut calls = JoinSet::new();
    for caller in 0..16u8 {
        let mut client = local.predictions.clone();
        calls.spawn(async move {
            for turn in 0..50u8 {
                let sent = f32::from(caller) * 100.0 + f32::from(turn);
                let request = request("half", [("x", column(&[sent]))]);
                let answer = client.predict(request).await.expect("an answer").into_inner();
                assert_eq!(answer.outputs["y"].float_val, [0.5 * sent + 2.0]);
            }
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
}

#[tokio::test]
async fn more_calls_than_threads_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let options = Options { grpc_max_threads: 1, ..options(root.path()) };
    let local = Local::with(root, options).await;
    // A reload that waits for ever holds the only permit.
    let missing = local.model("missing", &[1]);
    let mut parked = Box::pin(local.reload(vec![missing]));
    let refused = loop {
        tokio::select! {
            biased;
            _ = &mut parked => panic!("the reload waits"),
            outcome = local.predict(request("half", [])) => {
                let status = outcome.unwrap_err();
                if status.code() != Code::NotFound {
                    break status;
                }
            }
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn metadata_is_the_signatures_in_their_original_encoding() {
    let local = Local::start().await;
    let model = affine(0.5, 2.0);
    local.serve("half", &model).await;
    let mut client = local.predictions.clone();
    let asked = |field: &str, name: &str| GetModelMetadataRequest {
        model_spec: Some(spec(name)),
        metadata_field: vec![field.to_owned()],
    };
    let answer = client.get_model_metadata(asked("signature_def", "half")).await.unwrap();
    let answer = answer.into_inner();
    let served = ModelSpec { version_choice: version(1), ..spec("half") };
    assert_eq!(answer.model_spec, Some(served));
    let map = SignatureDefMap::decode(&answer.metadata["signature_def"].value[..]).unwrap();
    let written: &SignatureDef = &model.saved_model.meta_graphs[0].signature_def["serving_default"];
    assert_eq!(map.signature_def["serving_default"], *written);
    let unknown = client.get_model_metadata(asked("other", "half")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::InvalidArgument);
    let absent = client.get_model_metadata(asked("signature_def", "z")).await.unwrap_err();
    assert_eq!(absent.code(), Code::NotFound);
}
