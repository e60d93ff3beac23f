//! The Open Inference Protocol over gRPC.

use bytes::Bytes;
use outrigger_proto::inference::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse,
    ModelMetadataRequest, ModelReadyRequest, ModelRepositoryParameter, ModelStatisticsRequest,
    RepositoryIndexRequest, RepositoryModelLoadRequest, RepositoryModelUnloadRequest,
    ServerLiveRequest, ServerMetadataRequest, ServerReadyRequest,
    infer_parameter::ParameterChoice,
    model_infer_request::{InferInputTensor, InferRequestedOutputTensor},
    model_repository_parameter::ParameterChoice as RepositoryChoice,
};
use outrigger_testkit::engine::{Predicting, Prediction, floats};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::stack::{MODEL, Stack, hold, linear, reason};

const ON: (&str, &str) = ("server.oip", "127.0.0.1:0");

async fn tensors() -> Stack {
    Stack::with(&[ON]).await
}

/// A server whose model has the view `features`.
async fn features() -> Stack {
    let models = format!("[{{name: {MODEL}, view: features}}]");
    Stack::with(&[ON, ("models", &models)]).await
}

fn bytes(values: &[f32]) -> Bytes {
    values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into()
}

fn values(bytes: &[u8]) -> Vec<f32> {
    let (values, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    values.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

fn input(name: &str, datatype: &str, shape: &[i64]) -> InferInputTensor {
    let (name, datatype, shape) = (name.to_owned(), datatype.to_owned(), shape.to_vec());
    InferInputTensor { name, datatype, shape, ..Default::default() }
}

fn request(inputs: Vec<(InferInputTensor, Bytes)>) -> ModelInferRequest {
    let (inputs, raw_input_contents) = inputs.into_iter().unzip();
    ModelInferRequest {
        model_name: MODEL.to_owned(),
        id: "r1".to_owned(),
        inputs,
        raw_input_contents,
        ..Default::default()
    }
}

/// The tensors of one user with two treatments.
fn signature() -> ModelInferRequest {
    let counts = Bytes::from_static(&[2, 0, 0, 0]);
    request(vec![
        (input("treatment", "FP32", &[1, 2, 2]), bytes(&[1.0, 2.0, 5.0, 0.5])),
        (input("user", "FP32", &[1, 1]), bytes(&[0.5])),
        (input("treatment_counts", "INT32", &[1]), counts),
    ])
}

/// A table of rows with a user feature and two of the treatment.
fn table(rows: &[[f32; 3]]) -> ModelInferRequest {
    let column = |index: usize| bytes(&rows.iter().map(|row| row[index]).collect::<Vec<_>>());
    let shape = [i64::try_from(rows.len()).unwrap(), 1];
    request(vec![
        (input("u0", "FP32", &shape), column(0)),
        (input("t0", "FP32", &shape), column(1)),
        (input("t1", "FP32", &shape), column(2)),
    ])
}

async fn infer(stack: &Stack, request: ModelInferRequest) -> Result<ModelInferResponse, Status> {
    stack.oip().model_infer(request).await.map(tonic::Response::into_inner)
}

async fn refused(stack: &Stack, request: ModelInferRequest) -> (Code, String) {
    let status = infer(stack, request).await.expect_err("refused");
    (status.code(), reason(&status))
}

#[tokio::test]
async fn tensors_of_the_signature_are_scored() {
    let stack = tensors().await;
    let response = stack.oip().model_infer(signature()).await.expect("an answer");
    let digest = response.metadata().get("outrigger-digest").expect("a digest").clone();
    assert_eq!(response.metadata().get("outrigger-arm").expect("an arm"), "live");
    let response = response.into_inner();
    assert_eq!((&*response.model_name, &*response.id), (MODEL, "r1"));
    assert_eq!(response.model_version, digest.to_str().expect("a text"));
    let [output] = &response.outputs[..] else { panic!("{response:?}") };
    assert_eq!((&*output.name, &*output.datatype), ("scores", "FP32"));
    assert_eq!(output.shape, [1, 2]);
    assert_eq!(output.contents, None);
    assert_eq!(values(&response.raw_output_contents[0]), [3.0, 5.5]);
}

#[tokio::test]
async fn an_answer_has_the_form_of_its_request() {
    let stack = tensors().await;
    let mut request = signature();
    request.raw_input_contents.clear();
    let floats = |values: &[f32]| InferTensorContents {
        fp32_contents: values.to_vec(),
        ..Default::default()
    };
    request.inputs[0].contents = Some(floats(&[1.0, 2.0, 5.0, 0.5]));
    request.inputs[1].contents = Some(floats(&[0.5]));
    request.inputs[2].contents =
        Some(InferTensorContents { int_contents: vec![2], ..Default::default() });
    let response = infer(&stack, request).await.expect("an answer");
    assert!(response.raw_output_contents.is_empty());
    let contents = response.outputs[0].contents.as_ref().expect("contents");
    assert_eq!(contents.fp32_contents, [3.0, 5.5]);
}

#[tokio::test]
async fn values_that_are_not_finite_pass_in_binary_form() {
    let stack = tensors().await;
    // The gate's own requests are answered as always.
    infer(&stack, signature()).await.expect("an answer");
    stack.engine.on_predict(|_: &Prediction| {
        Predicting::Outputs(vec![floats("scores", &[1, 2], [f32::NAN, 1.0])])
    });
    let response = infer(&stack, signature()).await.expect("an answer");
    assert!(values(&response.raw_output_contents[0])[0].is_nan());
}

#[tokio::test]
async fn tensors_that_do_not_fit_the_signature_are_refused() {
    let stack = tensors().await;
    let with = |change: &dyn Fn(&mut ModelInferRequest)| {
        let mut request = signature();
        change(&mut request);
        request
    };
    let cases = [
        with(&|it| it.inputs[0].datatype = "FP64".to_owned()),
        with(&|it| it.inputs[0].datatype = "fp32".to_owned()),
        with(&|it| it.inputs[0].name = "other".to_owned()),
        with(&|it| it.inputs[0].name = "user".to_owned()),
        with(&|it| it.inputs[0].shape = vec![1, 4]),
        with(&|it| it.inputs[0].shape = vec![1, -1, 2]),
        with(&|it| it.inputs[0].shape = vec![1 << 32, 1 << 32, 2]),
        with(&|it| it.inputs[0].shape = vec![2, 1, 2]),
        with(&|it| drop(it.inputs.pop())),
        with(&|it| drop(it.raw_input_contents.pop())),
        with(&|it| it.raw_input_contents[0] = Bytes::from_static(b"1234")),
        with(&|it| it.inputs[0].contents = Some(InferTensorContents::default())),
        with(&|it| {
            it.inputs.clear();
            it.raw_input_contents.clear();
        }),
        with(&|it| {
            let output = |name: &str| InferRequestedOutputTensor {
                name: name.to_owned(),
                ..Default::default()
            };
            it.outputs = vec![output("scores"), output("scores")];
        }),
        with(&|it| {
            it.outputs =
                vec![InferRequestedOutputTensor { name: "other".to_owned(), ..Default::default() }];
        }),
    ];
    for (index, request) in cases.into_iter().enumerate() {
        let refused = refused(&stack, request).await;
        let expected = (Code::InvalidArgument, "REQUEST_MALFORMED".to_owned());
        assert_eq!(refused, expected, "case {index}");
    }
    assert!(infer(&stack, signature()).await.is_ok(), "the server goes on");
}

#[tokio::test]
async fn a_version_is_a_tag_or_a_digest() {
    let stack = tensors().await;
    let digest = stack.publish_as(MODEL, "stable", &linear(0.0)).await;
    for (version, arm) in [("stable", "live"), (digest.as_str(), "pinned")] {
        let request = ModelInferRequest { model_version: version.to_owned(), ..signature() };
        let response = stack.oip().model_infer(request).await.expect(version);
        assert_eq!(response.metadata().get("outrigger-arm").expect("an arm"), arm);
        assert_eq!(response.into_inner().model_version, digest);
    }
    let unknown = ModelInferRequest { model_version: "absent".to_owned(), ..signature() };
    assert_eq!(refused(&stack, unknown).await, (Code::NotFound, "TAG_NOT_FOUND".to_owned()));
    let unknown = ModelInferRequest { model_name: "nobody".to_owned(), ..signature() };
    assert_eq!(refused(&stack, unknown).await, (Code::NotFound, "MODEL_NOT_FOUND".to_owned()));
}

#[tokio::test]
async fn the_time_of_a_request_is_limited_by_its_parameter() {
    let stack = tensors().await;
    infer(&stack, signature()).await.expect("an answer");
    let (_gate, _arrivals) = hold(&stack);
    let mut request = signature();
    let timeout = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(1000)) };
    request.parameters.insert("timeout".to_owned(), timeout);
    assert_eq!(refused(&stack, request).await, (Code::DeadlineExceeded, "DEADLINE".to_owned()));
}

#[tokio::test]
async fn a_message_over_the_limit_exhausts_resources() {
    let stack = Stack::with(&[ON, ("server.max_message", "1KiB")]).await;
    let large = request(vec![(input("user", "FP32", &[512]), bytes(&[0.0; 512]))]);
    assert_eq!(refused(&stack, large).await, (Code::ResourceExhausted, "TOO_LARGE".to_owned()));
}

#[tokio::test]
async fn an_overload_is_unavailable_with_a_delay() {
    let stack = Stack::with(&[ON, ("limits.per_model", "1")]).await;
    infer(&stack, signature()).await.expect("an answer");
    let (gate, mut arrivals) = hold(&stack);
    let mut client = stack.oip();
    let held = tokio::spawn(async move { client.model_infer(signature()).await });
    arrivals.recv().await;
    let status = infer(&stack, signature()).await.expect_err("one too many");
    assert_eq!((status.code(), &*reason(&status)), (Code::Unavailable, "OVERLOADED"));
    assert!(status.get_details_retry_info().is_some());
    gate.open();
    held.await.expect("no panic").expect("an answer");
}

#[tokio::test]
async fn a_fault_of_the_model_is_internal() {
    let stack = tensors().await;
    infer(&stack, signature()).await.expect("an answer");
    stack
        .engine
        .on_predict(|_: &Prediction| Predicting::Fails(Code::Internal, "broken".to_owned()));
    assert_eq!(refused(&stack, signature()).await, (Code::Internal, "ENGINE_FAILED".to_owned()));
}

#[tokio::test]
async fn each_row_of_a_table_is_scored() {
    let stack = features().await;
    let response = infer(&stack, table(&[[0.5, 1.0, 2.0], [0.5, 5.0, 0.5], [0.0, 0.0, 0.0]])).await;
    let response = response.expect("an answer");
    let [output] = &response.outputs[..] else { panic!("{response:?}") };
    assert_eq!((&*output.name, output.shape.as_slice()), ("score", &[3, 1][..]));
    assert_eq!(values(&response.raw_output_contents[0]), [3.0, 5.5, 0.0]);
}

#[tokio::test]
async fn rows_of_one_user_are_scored_together() {
    let stack = features().await;
    infer(&stack, table(&[[0.5, 1.0, 2.0]])).await.expect("an answer");
    let (seen, mut shapes) = tokio::sync::mpsc::unbounded_channel();
    stack.engine.on_predict(move |prediction: &Prediction| {
        seen.send(prediction.inputs["treatment"].shape.clone()).ok();
        outrigger_testkit::engine::row_sums(prediction)
    });
    let mut grouped = table(&[[0.5, 1.0, 2.0], [0.5, 5.0, 0.5], [0.7, 1.0, 1.0]]);
    let key = InferParameter { parameter_choice: Some(ParameterChoice::StringParam("u0".into())) };
    grouped.parameters.insert("group_by".to_owned(), key);
    let response = infer(&stack, grouped).await.expect("an answer");
    assert_eq!(values(&response.raw_output_contents[0]), [3.0, 5.5, 2.0]);
    assert_eq!(shapes.recv().await, Some(vec![2, 2, 2]), "two users, the second one is padded");
}

#[tokio::test]
async fn a_table_without_rows_has_outputs_without_rows() {
    let stack = features().await;
    let response = infer(&stack, table(&[])).await.expect("an answer");
    assert_eq!(response.outputs[0].shape, [0, 1]);
    assert_eq!(response.raw_output_contents, [Bytes::new()]);
}

#[tokio::test]
async fn faults_of_features_are_those_of_every_front() {
    let stack = features().await;
    let mut missing = table(&[[0.5, 1.0, 2.0]]);
    missing.inputs.pop();
    missing.raw_input_contents.pop();
    let expected = (Code::InvalidArgument, "FEATURE_MISSING".to_owned());
    assert_eq!(refused(&stack, missing).await, expected);
    let infinite = table(&[[0.5, f32::INFINITY, 2.0]]);
    let expected = (Code::InvalidArgument, "FEATURE_NOT_FINITE".to_owned());
    assert_eq!(refused(&stack, infinite).await, expected);
    let mut unknown = table(&[[0.5, 1.0, 2.0]]);
    unknown.inputs[0].name = "age".to_owned();
    let expected = (Code::InvalidArgument, "REQUEST_MALFORMED".to_owned());
    assert_eq!(refused(&stack, unknown).await, expected);
}

#[tokio::test]
async fn metadata_show_the_tensors_of_the_view() {
    let described = async |stack: &Stack| {
        let request = ModelMetadataRequest { name: MODEL.to_owned(), ..Default::default() };
        let metadata = stack.oip().model_metadata(request).await.expect("metadata").into_inner();
        assert_eq!((&*metadata.name, &*metadata.platform), (MODEL, "tensorflow"));
        let [version] = &metadata.versions[..] else { panic!("{metadata:?}") };
        assert!(version.starts_with("sha256:"), "{version}");
        let tensors = metadata.inputs.into_iter().chain(metadata.outputs);
        tensors.map(|it| (it.name, it.datatype, it.shape)).collect::<Vec<_>>()
    };
    let tensor = |name: &str, datatype: &str, shape: &[i64]| {
        (name.to_owned(), datatype.to_owned(), shape.to_vec())
    };
    let expected = [
        tensor("treatment", "FP32", &[-1, -1, 2]),
        tensor("treatment_counts", "INT32", &[-1]),
        tensor("user", "FP32", &[-1, 1]),
        tensor("scores", "FP32", &[-1, -1]),
    ];
    assert_eq!(described(&tensors().await).await, expected);
    let expected = [
        tensor("u0", "FP32", &[-1, 1]),
        tensor("t0", "FP32", &[-1, 1]),
        tensor("t1", "FP32", &[-1, 1]),
        tensor("score", "FP32", &[-1, 1]),
    ];
    assert_eq!(described(&features().await).await, expected);
}

#[tokio::test]
async fn the_server_and_its_models_report_readiness() {
    let stack = tensors().await;
    let mut client = stack.oip();
    assert!(client.server_live(ServerLiveRequest {}).await.expect("live").into_inner().live);
    let server = client.server_metadata(ServerMetadataRequest {}).await.expect("metadata");
    let server = server.into_inner();
    assert_eq!(server.name, "outrigger");
    assert_eq!(server.extensions, ["binary_tensor_data", "model_repository", "statistics"]);
    infer(&stack, signature()).await.expect("an answer");
    assert!(client.server_ready(ServerReadyRequest {}).await.expect("ready").into_inner().ready);

    let mut asked = async |name: &str, version: &str| {
        let (name, version) = (name.to_owned(), version.to_owned());
        client.model_ready(ModelReadyRequest { name, version }).await
    };
    assert!(asked(MODEL, "").await.expect("known").into_inner().ready);
    assert!(asked(MODEL, "latest").await.expect("known").into_inner().ready);
    for (name, version) in [("nobody", ""), (MODEL, "absent")] {
        assert_eq!(asked(name, version).await.unwrap_err().code(), Code::NotFound, "{name}");
    }
}

#[tokio::test]
async fn the_index_and_the_statistics_list_the_versions() {
    let stack = tensors().await;
    infer(&stack, signature()).await.expect("an answer");
    let mut wrong = signature();
    wrong.inputs[0].datatype = "INT32".to_owned();
    infer(&stack, wrong).await.expect_err("refused");

    let index = stack.oip().repository_index(RepositoryIndexRequest::default()).await;
    let index = index.expect("an index").into_inner().models;
    let [model] = &index[..] else { panic!("{index:?}") };
    assert_eq!((&*model.name, &*model.state, &*model.reason), (MODEL, "READY", ""));

    let request = ModelStatisticsRequest { name: MODEL.to_owned(), ..Default::default() };
    let statistics = stack.oip().model_statistics(request).await.expect("statistics");
    let statistics = statistics.into_inner().model_stats;
    let [found] = &statistics[..] else { panic!("{statistics:?}") };
    assert_eq!(found.version, model.version);
    assert_eq!((found.inference_count, found.execution_count), (2, 1));
    let durations = found.inference_stats.expect("durations");
    let count = |total: Option<outrigger_proto::inference::StatisticDuration>| {
        total.expect("a total").count
    };
    assert_eq!((count(durations.success), count(durations.fail)), (1, 1));
    assert!(durations.compute_infer.expect("a total").ns > 0);
}

#[tokio::test]
async fn models_are_loaded_and_unloaded_on_the_admin_listener_only() {
    let stack = tensors().await;
    let load = || RepositoryModelLoadRequest { model_name: MODEL.to_owned(), ..Default::default() };
    let refused = stack.oip().repository_model_load(load()).await.unwrap_err();
    assert_eq!(reason(&refused), "ADMIN_ONLY");

    let mut admin = stack.oip_admin();
    admin.repository_model_load(load()).await.expect("loaded");
    let ready = ModelReadyRequest { name: MODEL.to_owned(), ..Default::default() };
    assert!(stack.oip().model_ready(ready).await.expect("known").into_inner().ready);

    let mut with_config = load();
    let config = RepositoryChoice::StringParam("{}".to_owned());
    let config = ModelRepositoryParameter { parameter_choice: Some(config) };
    with_config.parameters.insert("config".to_owned(), config);
    let refused = admin.repository_model_load(with_config).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);

    let unload = |name: &str| RepositoryModelUnloadRequest {
        model_name: name.to_owned(),
        ..Default::default()
    };
    admin.repository_model_unload(unload(MODEL)).await.expect("unloaded");
    let unknown = admin.repository_model_unload(unload("nobody")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let refused = admin.model_infer(signature()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn without_the_setting_there_is_no_listener_and_no_service() {
    let stack = Stack::start().await;
    assert_eq!(stack.addresses.oip, None);
    let index = stack.oip_admin().repository_index(RepositoryIndexRequest::default()).await;
    assert_eq!(index.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn callers_need_rights() {
    let stack = Stack::with(&[ON, ("auth.anonymous", "[read]")]).await;
    let refused = infer(&stack, signature()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(stack.oip().server_live(ServerLiveRequest {}).await.is_ok());
    let load = RepositoryModelLoadRequest { model_name: MODEL.to_owned(), ..Default::default() };
    let refused = stack.oip_admin().repository_model_load(load).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}
