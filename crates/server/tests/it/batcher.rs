//! Predictions with an engine whose calls the server joins.

use std::sync::{Arc, Mutex};

use futures::future::join_all;
use outrigger_proto::outrigger::v1::{
    PredictRequest, PredictResponse, predict_response::Output,
    prediction_service_client::PredictionServiceClient,
};
use outrigger_testkit::{
    engine::{Gate, Predicting, float_values, row_sums},
    package::{Framework, Package},
};
use tonic::{Code, Status, transport::Channel};

use crate::stack::{MODEL, Stack, reason, request_for};

/// A server whose engine, called `name`, has one batch at a time. Its calls do not wait for others
/// while it is idle.
async fn stack(name: &str, kind: &str) -> Stack {
    let batcher = "batcher: {max_delay: 0s, max_in_flight: 1, max_calls: 8}";
    let default = "default: {kind: tfserving, endpoint: '{engine}'}";
    let engines = match kind {
        "trees" => format!("{{{default}, {name}: {{kind: trees, {batcher}}}}}"),
        _ => format!("{{{name}: {{kind: tfserving, endpoint: '{{engine}}', {batcher}}}}}"),
    };
    Stack::with(&[("engines", &engines)]).await
}

async fn predict(
    mut predictions: PredictionServiceClient<Channel>,
    request: PredictRequest,
) -> Result<Vec<f32>, Status> {
    let answer = predictions.predict(request).await?;
    let PredictResponse { output: Some(Output::Scores(scores)), .. } = answer.into_inner() else {
        panic!("no scores");
    };
    Ok(scores.values)
}

/// The present value of a series.
async fn series(stack: &Stack, series: &str) -> f64 {
    let (_, text) = stack.health("/metrics").await;
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().expect("a number"))
}

async fn until_waiting(stack: &Stack, engine: &str, calls: usize) {
    let name = format!("outrigger_batcher_waiting_calls{{engine=\"{engine}\"}}");
    #[allow(clippy::cast_precision_loss)]
    while series(stack, &name).await < calls as f64 {
        tokio::task::yield_now().await;
    }
}

/// Has the engine fail each run with a treatment whose first feature is negative, and hold all others
/// at the gate. Records the users of each run.
fn script(stack: &Stack, gate: &Gate) -> Arc<Mutex<Vec<i64>>> {
    let (runs, gate) = (Arc::<Mutex<Vec<i64>>>::default(), gate.clone());
    let seen = Arc::clone(&runs);
    stack.engine.on_predict(move |prediction| {
        let treatments = &prediction.inputs["treatment"];
        seen.lock().expect("not poisoned").push(treatments.shape[0]);
        let is_negative = float_values(treatments).iter().any(|value| *value < 0.0);
        let answer = match is_negative {
            true => Predicting::Fails(Code::InvalidArgument, "a negative number".to_owned()),
            false => row_sums(prediction),
        };
        Predicting::Held(gate.clone(), Box::new(answer))
    });
    runs
}

/// Calls of 1, 2, 3 and so on treatments, which wait while a first one is in the engine; then that
/// one is answered. Returns the answers of the others and the users of each run.
async fn joined(
    stack: &Stack,
    engine: &str,
    fails: usize,
) -> (Vec<Result<Vec<f32>, Status>>, Vec<i64>) {
    let treatments = |count: usize| -> Vec<_> {
        let first = if count == fails { -1.0 } else { 1.0 };
        std::iter::once((first, 0.5)).chain((1..count).map(|_| (2.0, 0.5))).collect()
    };
    predict(stack.predictions(), request_for(MODEL, &treatments(1))).await.expect("it is loaded");
    let gate = Gate::closed();
    let runs = script(stack, &gate);
    let clients: Vec<_> = (0..5).map(|_| stack.predictions()).collect();
    let mut clients = clients.into_iter();
    let first = predict(clients.next().expect("five"), request_for(MODEL, &treatments(1)));
    let first = tokio::spawn(first);
    while runs.lock().expect("not poisoned").is_empty() {
        tokio::task::yield_now().await;
    }
    let others = clients.zip(1..).map(|(client, count)| {
        tokio::spawn(predict(client, request_for(MODEL, &treatments(count))))
    });
    let others: Vec<_> = others.collect();
    until_waiting(stack, engine, others.len()).await;
    gate.open();
    first.await.expect("no panic").expect("it is answered");
    let answers = join_all(others).await;
    let runs = runs.lock().expect("not poisoned").clone();
    (answers.into_iter().map(|answer| answer.expect("no panic")).collect(), runs)
}

#[tokio::test]
async fn calls_that_wait_are_one_run_and_each_gets_the_scores_of_its_own_treatments() {
    let stack = stack("joined", "tfserving").await;
    let (answers, runs) = joined(&stack, "joined", 0).await;
    for (answer, count) in answers.into_iter().zip(1..) {
        let expected: Vec<_> = [1.5].into_iter().chain((1..count).map(|_| 2.5)).collect();
        assert_eq!(answer.expect("it is answered"), expected);
    }
    assert_eq!(runs[0], 1, "the first one was alone");
    assert_eq!(runs[1..].iter().sum::<i64>(), 4);
    assert!(runs.len() < 5, "some were joined: {runs:?}");
}

#[tokio::test]
async fn a_call_that_fails_in_a_batch_fails_alone() {
    let stack = stack("divided", "tfserving").await;
    let (answers, _) = joined(&stack, "divided", 2).await;
    for (answer, count) in answers.into_iter().zip(1..) {
        match answer {
            Err(status) => assert_eq!((count, reason(&status).as_str()), (2, "REQUEST_MALFORMED")),
            Ok(scores) => assert_eq!((scores.len(), count != 2), (count, true)),
        }
    }
}

#[tokio::test]
async fn trees_score_the_same_in_batches() {
    let stack = stack("grove", "trees").await;
    let package = Package { framework: Framework::Xgboost, bias: 3, ..Package::default() };
    stack.publish_package("tree", "latest", package).await;
    let calls = (1..9_u8).map(|count| {
        let treatments: Vec<_> = (0..count).map(|index| (f32::from(index) / 4.0, 1.0)).collect();
        let expected: Vec<_> = treatments.iter().map(|(t0, t1)| 3.0 + t0 + t1).collect();
        let call = predict(stack.predictions(), request_for("tree", &treatments));
        async move { assert_eq!(call.await.expect("it is answered"), expected) }
    });
    join_all(calls).await;
    let rows = series(&stack, "outrigger_batcher_run_rows_sum{engine=\"grove\"}").await;
    assert!(rows >= f64::from((1..9).sum::<i32>()), "they passed the batcher: {rows}");
}
