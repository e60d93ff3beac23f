//! Tensors of a model's signature.

use bytes::Bytes;
use outrigger_proto::inference::{
    InferParameter, InferTensorContents, ModelInferRequest, infer_parameter::ParameterChoice,
    model_infer_request::InferRequestedOutputTensor,
};
use outrigger_testkit::engine::{Predicting, Prediction, floats};
use tonic::Code;
use tonic_types::StatusExt as _;

use super::{ON, bytes, infer, input, refused, request, signature, tensors, values};
use crate::stack::{MODEL, Stack, hold, linear, reason};

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
    let refused = refused(&stack, within(1000, signature())).await;
    assert_eq!(refused, (Code::DeadlineExceeded, "DEADLINE".to_owned()));
}

/// A request with a deadline in so many microseconds.
fn within(micros: i64, mut request: ModelInferRequest) -> ModelInferRequest {
    let timeout = InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(micros)) };
    request.parameters.insert("timeout".to_owned(), timeout);
    request
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
    let status = infer(&stack, within(200_000, signature())).await.expect_err("one too many");
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
