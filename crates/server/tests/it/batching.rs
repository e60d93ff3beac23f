//! Predictions with an engine that batches requests.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use outrigger_proto::outrigger::v1::{PredictResponse, predict_response::Output};
use outrigger_testkit::engine::{Predicting, Prediction, Received, float_values, floats, row_sums};
use tonic::{Code, Status};

use crate::stack::{Stack, reason, request};

/// Starts a server whose engine batches, or does not.
async fn stack(batching: bool) -> Stack {
    Stack::with(&[("engine.batching", if batching { "true" } else { "false" })]).await
}

/// Predicts the scores of two treatments, which are 3 and 5.5.
async fn predict(stack: &Stack) -> Result<Vec<f32>, Status> {
    let answer = stack.predictions().predict(request(&[(1.0, 2.0), (5.0, 0.5)])).await?;
    let PredictResponse { output: Some(Output::Scores(scores)), .. } = answer.into_inner() else {
        panic!("no scores");
    };
    Ok(scores.values)
}

/// The answer in a batch with a request of three treatments more.
fn widened(prediction: &Prediction) -> Predicting {
    let Predicting::Outputs(outputs) = row_sums(prediction) else { panic!("it has no script") };
    let widen = |output: &outrigger_core::Tensor| {
        let columns = output.shape[1] as usize;
        let values = float_values(output);
        let rows = values.chunks(columns).flat_map(|row| row.iter().copied().chain([f32::NAN; 3]));
        floats(&output.name, &[output.shape[0], output.shape[1] + 3], rows)
    };
    Predicting::Outputs(outputs.iter().map(widen).collect())
}

fn predictions(stack: &Stack) -> usize {
    let received = stack.engine.received();
    received.iter().filter(|call| matches!(call, Received::Predict { .. })).count()
}

#[tokio::test]
async fn wider_outputs_are_trimmed_if_the_engine_batches_and_refused_otherwise() {
    let batching = stack(true).await;
    batching.engine.on_predict(widened);
    assert_eq!(predict(&batching).await.expect("trimmed"), [3.0, 5.5]);
    let plain = stack(false).await;
    assert_eq!(predict(&plain).await.expect("as asked"), [3.0, 5.5]);
    plain.engine.on_predict(widened);
    assert_eq!(reason(&predict(&plain).await.expect_err("wider")), "SCORES_INVALID");
}

#[tokio::test]
async fn a_model_whose_scores_depend_on_the_padding_is_refused_if_the_engine_batches() {
    /// Scores that are the number of rows.
    fn counted(prediction: &Prediction) -> Predicting {
        let shape = &prediction.inputs["treatment"].shape[..2];
        let count = (shape[0] * shape[1]) as usize;
        Predicting::Outputs(vec![floats("scores", shape, vec![shape[1] as f32; count])])
    }
    let plain = stack(false).await;
    plain.engine.on_predict(counted);
    assert_eq!(predict(&plain).await.expect("never padded"), [2.0, 2.0]);
    let batching = stack(true).await;
    batching.engine.on_predict(counted);
    let status = predict(&batching).await.expect_err("refused");
    assert_eq!(reason(&status), "GOLDEN_MISMATCH");
    let message = status.message();
    assert!(message.contains("padded as in a batch with a longer request"), "{message}");
    assert!(message.contains("scores[0] is 4, expected 2"), "{message}");
    assert!(message.contains("treatment_count"), "{message}");
}

/// The result of a prediction whose first call fails with `code`, and the number of its calls.
async fn failing_once(stack: &Stack, code: Code) -> (Result<Vec<f32>, Status>, usize) {
    // Ten calls permit a retry.
    for _ in 0..10 {
        predict(stack).await.expect("it answers");
    }
    let (before, calls) = (predictions(stack), AtomicUsize::new(0));
    stack.engine.on_predict(move |prediction| match calls.fetch_add(1, Relaxed) {
        0 => Predicting::Fails(code, "the fault of another request".to_owned()),
        _ => row_sums(prediction),
    });
    let result = predict(stack).await;
    (result, predictions(stack) - before)
}

#[tokio::test]
async fn a_call_that_may_have_failed_by_another_request_is_made_once_more() {
    let batching = stack(true).await;
    for code in [Code::InvalidArgument, Code::FailedPrecondition, Code::Internal] {
        let (result, calls) = failing_once(&batching, code).await;
        assert_eq!((result.expect("retried"), calls), (vec![3.0, 5.5], 2), "{code}");
    }
    let (result, calls) = failing_once(&batching, Code::Unknown).await;
    assert_eq!((reason(&result.expect_err("its own fault")).as_str(), calls), ("ENGINE_FAILED", 1));
    let (result, calls) = failing_once(&stack(false).await, Code::Internal).await;
    assert_eq!((reason(&result.expect_err("its own fault")).as_str(), calls), ("ENGINE_FAILED", 1));
}

#[tokio::test]
async fn a_retry_that_fails_ends_the_call() {
    let batching = stack(true).await;
    for _ in 0..20 {
        predict(&batching).await.expect("it answers");
    }
    let before = predictions(&batching);
    batching.engine.on_predict(|_| Predicting::Fails(Code::Internal, "its own fault".to_owned()));
    let status = predict(&batching).await.expect_err("it fails again");
    assert_eq!((reason(&status).as_str(), predictions(&batching) - before), ("ENGINE_FAILED", 2));
}
