//! Requests that are run together. A batch that waits an hour is run when it is full, so that each
//! test decides which requests share one.

use std::fs;

use futures::future::{join, join3};
use outrigger_engine::Options;
use outrigger_proto::tensorflow::{
    TensorProto,
    serving::{PredictRequest, PredictResponse},
};
use outrigger_testkit::saved_model::{Linear, affine};
use tonic::{Code, Status};

use crate::{
    harness::{Local, options, request},
    models::{column, elements, identity, tensor, twice},
    raw,
};

/// A batch waits an hour for further requests.
const WAITS: &str = "batch_timeout_micros { value: 3600000000 }";
/// A batch is two rows.
const PAIRS: &str = "max_batch_size { value: 2 } batch_timeout_micros { value: 3600000000 }";

/// An engine with these batching parameters.
async fn engine(parameters: &str) -> Local {
    let root = tempfile::tempdir().expect("a directory");
    let file = root.path().join("batching.config");
    fs::write(&file, parameters).expect("written");
    let batching_parameters_file = Some(file);
    let options = Options { batching: true, batching_parameters_file, ..options(root.path()) };
    Local::with(root, options).await
}

/// An engine that serves the model `linear`: the sum of a treatment's two features.
async fn linear(parameters: &str) -> Local {
    let local = engine(parameters).await;
    let model = Linear { user: vec![1.0], treatment: vec![1.0, 1.0], bias: 0.0 };
    local.serve("linear", &model.model()).await;
    local
}

/// A request for one user and these treatments.
fn treatments(values: &[[f32; 2]]) -> PredictRequest {
    let count = values.len() as i64;
    let floats =
        |values: Vec<f32>, sizes: &[i64]| TensorProto { float_val: values, ..tensor(1, sizes) };
    request(
        "linear",
        [
            ("user", floats(vec![0.0], &[1, 1])),
            ("treatment", floats(values.as_flattened().to_vec(), &[1, count, 2])),
            ("treatment_counts", TensorProto { int_val: vec![count as i32], ..tensor(3, &[1]) }),
        ],
    )
}

fn half(values: &[f32]) -> PredictRequest {
    request("half", [("x", column(values))])
}

fn scores(answer: Result<PredictResponse, Status>) -> TensorProto {
    answer.expect("an answer").outputs.remove("scores").expect("scores")
}

fn failure(answer: Result<PredictResponse, Status>) -> (Code, String) {
    let status = answer.expect_err("a failure");
    (status.code(), status.message().to_owned())
}

#[tokio::test]
async fn requests_of_different_lengths_are_padded_with_their_own_first_element() {
    let local = linear(&format!("{PAIRS} pad_variable_length_inputs: true")).await;
    let short = local.predict(treatments(&[[3.0, 4.0]]));
    let long = local.predict(treatments(&[[1.0, 2.0], [5.0, 6.0], [7.0, 8.0]]));
    let (short, long) = join(short, long).await;
    let (short, long) = (scores(short), scores(long));
    assert_eq!(short.tensor_shape, tensor(1, &[1, 3]).tensor_shape, "as wide as the longest");
    assert_eq!(short.float_val, [7.0, 6.0, 6.0]);
    assert_eq!(long.float_val, [3.0, 11.0, 15.0]);
    local.stop().await;
}

#[tokio::test]
async fn strings_of_different_lengths_are_padded_too() {
    let local = engine(&format!("{PAIRS} pad_variable_length_inputs: true")).await;
    local.serve("twice", &twice()).await;
    let ask = |texts: &[&'static str]| {
        let string_val = texts.iter().map(|text| (*text).into()).collect();
        let x = TensorProto { string_val, ..tensor(7, &[1, texts.len() as i64]) };
        request("twice", [("x", x)])
    };
    let (short, long) = join(local.predict(ask(&["a"])), local.predict(ask(&["b", "c"]))).await;
    assert_eq!(short.expect("an answer").outputs["y"].string_val, ["aa", "aa"]);
    assert_eq!(long.expect("an answer").outputs["y"].string_val, ["bb", "cc"]);
}

#[tokio::test]
async fn without_padding_different_lengths_fail_together() {
    let local = linear(PAIRS).await;
    let short = local.predict(treatments(&[[3.0, 4.0]]));
    let long = local.predict(treatments(&[[1.0, 2.0], [5.0, 6.0]]));
    let (short, long) = join(short, long).await;
    let (code, message) = failure(short);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(message.starts_with("Tensors with name 'treatment:0' from different tasks have different shapes and padding is turned off."), "{message}");
    assert_eq!(failure(long), (code, message));
}

#[tokio::test]
async fn a_bad_request_fails_its_batch() {
    let local = linear(&format!("{PAIRS} pad_variable_length_inputs: true")).await;
    let good = treatments(&[[3.0, 4.0]]);
    let mut other = good.clone();
    let counts = TensorProto { int64_val: vec![1], ..tensor(9, &[1]) };
    other.inputs.insert("treatment_counts".to_owned(), counts);
    let (good_answer, other) = join(local.predict(good.clone()), local.predict(other)).await;
    let (code, message) = failure(good_answer);
    assert_eq!(code, Code::Internal);
    assert!(message.starts_with("Tensor concat operation failed: "), "{message}");
    assert_eq!(failure(other), (code, message));
    let mut empty = good.clone();
    empty.inputs.insert("treatment".to_owned(), tensor(1, &[1, 0, 2]));
    let (good_answer, empty) = join(local.predict(good.clone()), local.predict(empty)).await;
    let expected = "Got empty tensor in batch of non-empty tensors.".to_owned();
    assert_eq!(failure(good_answer), (Code::InvalidArgument, expected.clone()));
    assert_eq!(failure(empty), (Code::InvalidArgument, expected));
    let (one, two) = join(local.predict(good.clone()), local.predict(good)).await;
    assert_eq!((scores(one).float_val, scores(two).float_val), (vec![7.0], vec![7.0]));
}

#[tokio::test]
async fn padding_does_not_make_a_batch_of_any_size() {
    let local = engine(&format!("{PAIRS} pad_variable_length_inputs: true")).await;
    local.serve("same", &identity(1)).await;
    let long = |sizes: [i64; 3]| {
        let x = TensorProto { float_val: vec![1.0], ..tensor(1, &sizes) };
        request("same", [("x", x)])
    };
    let wide = local.predict(long([1, 1, 50_000]));
    let (wide, tall) = join(wide, local.predict(long([1, 50_000, 1]))).await;
    let (code, message) = failure(wide);
    assert_eq!(code, Code::ResourceExhausted);
    assert!(message.contains("would have more than"), "{message}");
    assert_eq!(failure(tall), (code, message));
}

#[tokio::test]
async fn requests_that_cannot_be_batched_are_refused() {
    let local = linear(PAIRS).await;
    let mut uneven = treatments(&[[3.0, 4.0]]);
    uneven.inputs.insert("user".to_owned(), tensor(1, &[2, 1]));
    let message = "Batching Run() input tensors must have equal 0th-dimension size".to_owned();
    assert_eq!(failure(local.predict(uneven).await), (Code::InvalidArgument, message));
    local.serve("half", &affine(0.5, 2.0)).await;
    let message = "Task size 3 is larger than maximum input batch size 2".to_owned();
    let large = local.predict(half(&[1.0, 2.0, 3.0])).await;
    assert_eq!(failure(large), (Code::InvalidArgument, message));
    let scalar = request("half", [("x", tensor(1, &[]))]);
    let message = "Batching Run() input tensors must have at least one dimension".to_owned();
    assert_eq!(failure(local.predict(scalar).await), (Code::InvalidArgument, message));
}

#[tokio::test]
async fn an_output_without_rows_fails_its_batch() {
    let local = engine("").await;
    local.serve("elements", &elements()).await;
    let x = request("elements", [("x", TensorProto { float_val: vec![1.0], ..tensor(1, &[2]) })]);
    let message = "Batched output tensor has 0 dimensions".to_owned();
    assert_eq!(failure(local.predict(x).await), (Code::FailedPrecondition, message));
}

#[tokio::test]
async fn a_full_queue_refuses_requests() {
    let local = engine(&format!("{PAIRS} max_enqueued_batches {{ value: 1 }}")).await;
    local.serve("half", &affine(0.5, 2.0)).await;
    let waits = local.predict(half(&[2.0]));
    let fills = async {
        // Two rows are a batch of their own, until the other request waits in an open one.
        let refused = loop {
            if let Err(status) = local.predict(half(&[2.0, 4.0])).await {
                break status;
            }
        };
        (refused, local.predict(half(&[4.0])).await)
    };
    let (first, (refused, second)) = join(waits, fills).await;
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("currently 1 batches enqueued"), "{refused}");
    assert_eq!(first.expect("an answer").outputs["y"], column(&[3.0]));
    assert_eq!(second.expect("an answer").outputs["y"], column(&[4.0]));
}

#[tokio::test]
async fn batches_are_padded_to_an_allowed_size() {
    let sizes = "max_batch_size { value: 8 } allowed_batch_sizes: 4 allowed_batch_sizes: 8";
    let local = engine(sizes).await;
    local.serve("half", &affine(0.5, 2.0)).await;
    for rows in 1..=8_u8 {
        let values: Vec<_> = (0..rows).map(f32::from).collect();
        let expected: Vec<_> = values.iter().map(|value| 0.5 * value + 2.0).collect();
        let answer = local.predict(half(&values)).await.expect("an answer");
        assert_eq!(answer.outputs["y"], column(&expected));
    }
    let local = engine("max_batch_size { value: 8 } allowed_batch_sizes: 4").await;
    local.write("half", 1, &affine(0.5, 2.0));
    let refused = local.reload(vec![local.model("half", &[1])]).await.expect_err("it fails");
    let message = "Last entry in allowed_batch_sizes must match max_batch_size";
    assert!(refused.message().contains(message), "{refused}");
}

#[tokio::test]
async fn a_large_request_is_split_if_configured() {
    let local = engine(&format!(
        "{WAITS} max_batch_size {{ value: 8 }} enable_large_batch_splitting {{ value: true }}
         max_execution_batch_size {{ value: 2 }}"
    ))
    .await;
    local.serve("half", &affine(0.5, 2.0)).await;
    // Eight rows, in whatever order they arrive, are four batches.
    let (one, three, four) = join3(
        local.predict(half(&[2.0])),
        local.predict(half(&[4.0, 6.0, 8.0])),
        local.predict(half(&[0.0, 2.0, 4.0, 6.0])),
    )
    .await;
    assert_eq!(one.expect("an answer").outputs["y"], column(&[3.0]));
    assert_eq!(three.expect("an answer").outputs["y"], column(&[4.0, 5.0, 6.0]));
    assert_eq!(four.expect("an answer").outputs["y"], column(&[2.0, 3.0, 4.0, 5.0]));
}

#[tokio::test]
async fn a_caller_whose_deadline_passes_does_not_keep_its_batch_from_running() {
    let local = engine("max_batch_size { value: 2 } batch_timeout_micros { value: 1000000 }").await;
    local.serve("half", &affine(0.5, 2.0)).await;
    let path = "tensorflow.serving.PredictionService/Predict";
    let code = raw::call(local.root.path(), path, &half(&[2.0]), "200m").await;
    assert_eq!(code, Code::DeadlineExceeded);
    let answer = local.predict(half(&[4.0])).await.expect("an answer");
    assert_eq!(answer.outputs["y"], column(&[4.0]));
}

#[tokio::test]
async fn the_same_outputs_named_or_not_share_a_batch() {
    let local = engine(PAIRS).await;
    local.serve("half", &affine(0.5, 2.0)).await;
    let filtered = PredictRequest { output_filter: vec!["y".to_owned()], ..half(&[2.0]) };
    let (named, all) = join(local.predict(filtered), local.predict(half(&[4.0]))).await;
    assert_eq!(named.expect("an answer").outputs["y"], column(&[3.0]));
    assert_eq!(all.expect("an answer").outputs["y"], column(&[4.0]));
}

#[tokio::test]
async fn with_parameters_of_their_own_only_such_models_are_batched() {
    let root = tempfile::tempdir().expect("a directory");
    let options = Options { batching: true, per_model_batching: true, ..options(root.path()) };
    let local = Local::with(root, options).await;
    local.write("half", 1, &affine(0.5, 2.0));
    let file = local.root.path().join("half/1/batching_params.pbtxt");
    fs::write(file, PAIRS).expect("written");
    local.write("alone", 1, &affine(0.5, 2.0));
    let models = vec![local.model("half", &[1]), local.model("alone", &[1])];
    local.reload(models).await.expect("they load");
    let alone = request("alone", [("x", column(&[1.0, 2.0, 3.0]))]);
    let answer = local.predict(alone).await.expect("a run of its own");
    assert_eq!(answer.outputs["y"], column(&[2.5, 3.0, 3.5]));
    let large = local.predict(half(&[1.0, 2.0, 3.0])).await;
    assert_eq!(failure(large).0, Code::InvalidArgument);
    let (first, second) = join(local.predict(half(&[2.0])), local.predict(half(&[4.0]))).await;
    assert_eq!(first.expect("an answer").outputs["y"], column(&[3.0]));
    assert_eq!(second.expect("an answer").outputs["y"], column(&[4.0]));
}
