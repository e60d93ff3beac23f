//! Tables of features.

use bytes::Bytes;
use outrigger_proto::inference::{
    InferParameter, ModelInferRequest, ModelInferResponse, infer_parameter::ParameterChoice,
};
use outrigger_testkit::engine::{Gate, Predicting, Prediction, row_sums};
use tokio::sync::mpsc;
use tonic::{Code, Request, Status};

use super::{features, infer, refused, table, values};
use crate::stack::{Stack, request};

/// The numbers of rows that the engine is asked for, from now on. A prediction of two treatments for
/// one user, which no row is, waits at the gate.
fn runs(stack: &Stack, gate: &Gate) -> (mpsc::UnboundedReceiver<()>, mpsc::UnboundedReceiver<i64>) {
    let (arrived, arrivals) = mpsc::unbounded_channel();
    let (seen, rows) = mpsc::unbounded_channel();
    let gate = gate.clone();
    stack.engine.on_predict(move |prediction: &Prediction| {
        let sums = row_sums(prediction);
        let [rows, treatments, _] = prediction.inputs["treatment"].shape[..] else {
            panic!("no row has a user and a treatment")
        };
        if treatments == 2 {
            arrived.send(()).ok();
            return Predicting::Held(gate.clone(), Box::new(sums));
        }
        seen.send(rows).ok();
        sums
    });
    (arrivals, rows)
}

/// A table of a hundred rows, and its scores.
fn hundred() -> (Vec<[f32; 3]>, Vec<f32>) {
    let rows: Vec<_> = (0..100).map(|row| [0.5, row as f32, 1.0]).collect();
    let scores = rows.iter().map(|[_, first, second]| first + second).collect();
    (rows, scores)
}

async fn infer_low(stack: &Stack, table: ModelInferRequest) -> Result<ModelInferResponse, Status> {
    let mut request = Request::new(table);
    request.metadata_mut().insert("outrigger-priority", "batch".parse().expect("a value"));
    stack.oip().model_infer(request).await.map(tonic::Response::into_inner)
}

/// Answers one prediction that does not give way after `work`, during which it is in progress.
async fn beside<T>(stack: &Stack, gate: &Gate, work: impl Future<Output = T>) -> T {
    let (mut arrivals, _) = runs(stack, gate);
    let mut client = stack.predictions();
    let online =
        tokio::spawn(async move { client.predict(request(&[(1.0, 1.0), (2.0, 2.0)])).await });
    arrivals.recv().await.expect("it is in progress");
    let done = work.await;
    gate.open();
    online.await.expect("a task").expect("an answer");
    done
}

#[tokio::test]
async fn a_table_of_low_priority_runs_in_pieces_while_others_call() {
    let stack = features().await;
    infer(&stack, table(&[[0.5, 1.0, 2.0]])).await.expect("it is up");
    let (rows, scores) = hundred();
    let gate = Gate::closed();
    beside(&stack, &gate, async {
        let (_, mut runs) = runs(&stack, &gate);
        let response = infer_low(&stack, table(&rows)).await.expect("an answer");
        assert_eq!(response.outputs[0].shape, [100, 1]);
        assert_eq!((response.id.as_str(), response.outputs.len()), ("r1", 1));
        assert_eq!(values(&response.raw_output_contents[0]), scores);
        let mut sizes = Vec::new();
        while let Ok(size) = runs.try_recv() {
            sizes.push(size);
        }
        assert_eq!((sizes[0], sizes.iter().sum::<i64>()), (16, 100), "{sizes:?}");
    })
    .await;
}

#[tokio::test]
async fn a_table_of_low_priority_runs_at_once_if_nobody_else_calls() {
    let stack = features().await;
    infer(&stack, table(&[[0.5, 1.0, 2.0]])).await.expect("it is up");
    let (rows, scores) = hundred();
    let (_arrivals, mut runs) = runs(&stack, &Gate::closed());
    let response = infer_low(&stack, table(&rows)).await.expect("an answer");
    assert_eq!(values(&response.raw_output_contents[0]), scores);
    assert_eq!((runs.recv().await, runs.try_recv().ok()), (Some(100), None));
}

#[tokio::test]
async fn a_fault_in_a_later_piece_is_that_of_the_whole_table() {
    let stack = features().await;
    infer(&stack, table(&[[0.5, 1.0, 2.0]])).await.expect("it is up");
    let (mut rows, _) = hundred();
    rows[90][1] = f32::NAN;
    let expected = infer(&stack, table(&rows)).await.expect_err("NaN");
    assert!(expected.message().contains("90"), "{expected:?}");
    let found = beside(&stack, &Gate::closed(), infer_low(&stack, table(&rows))).await;
    let found = found.expect_err("NaN");
    assert_eq!((found.code(), found.message()), (expected.code(), expected.message()));
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
    let (seen, mut shapes) = mpsc::unbounded_channel();
    stack.engine.on_predict(move |prediction: &Prediction| {
        seen.send(prediction.inputs["treatment"].shape.clone()).ok();
        row_sums(prediction)
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
