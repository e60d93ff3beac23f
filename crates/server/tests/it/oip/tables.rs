//! Tables of features.

use bytes::Bytes;
use outrigger_proto::inference::{InferParameter, infer_parameter::ParameterChoice};
use outrigger_testkit::engine::{Prediction, row_sums};
use tokio::sync::mpsc;
use tonic::Code;

use super::{features, infer, refused, table, values};

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
