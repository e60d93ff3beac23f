//! Several engines in one server.

use std::collections::BTreeSet;

use outrigger_core::{ModelName, ServableName};
use outrigger_proto::outrigger::v1::{
    PredictRequest, predict_response::Output, prediction_service_client::PredictionServiceClient,
};
use outrigger_testkit::engine::{FakeEngine, Received, State, View};
use tokio::sync::oneshot;
use tonic::transport::Channel;

use crate::stack::{MODEL, Stack, by_name, linear, reason, request};

/// A model in the second engine.
const OTHER: &str = "churn";

/// A server with [`MODEL`] in the engine `one` of the stack, and [`OTHER`] in the engine `two`.
async fn two() -> (Stack, FakeEngine) {
    let two = FakeEngine::tcp().expect("an engine");
    let engines = format!(
        "{{one: {{kind: tfserving, endpoint: '{{engine}}'}}, \
         two: {{kind: tfserving, endpoint: '{}', max_in_flight: 4}}}}",
        two.endpoint()
    );
    let models = format!("[{{name: {MODEL}, engine: one}}, {{name: {OTHER}, engine: two}}]");
    let stack = Stack::with(&[("engines", &engines), ("models", &models)]).await;
    stack.publish(OTHER, &linear(0.0)).await;
    (stack, two)
}

fn for_model(name: &str) -> PredictRequest {
    PredictRequest { model: Some(by_name(name)), ..request(&[(1.0, 2.0)]) }
}

async fn score(predictions: &mut PredictionServiceClient<Channel>, model: &str) -> f32 {
    let answer = predictions.predict(for_model(model)).await.expect(model);
    let Some(Output::Scores(scores)) = answer.into_inner().output else { panic!("scores") };
    scores.values[0]
}

/// The name of a model in an engine.
fn servable(model: &str) -> String {
    let model: ModelName = model.parse().expect("a valid name");
    ServableName::of(&model).as_str().to_owned()
}

/// The names that the engine was ever configured to serve.
fn configured(engine: &FakeEngine) -> BTreeSet<String> {
    let names = engine.received().into_iter().filter_map(|received| match received {
        Received::Reload(models) => Some(models.into_keys()),
        _ => None,
    });
    names.flatten().collect()
}

/// The latest version of a model that the engine serves.
fn latest(engine: &FakeEngine, model: &str) -> i64 {
    engine.available(&servable(model)).pop_last().expect("it is loaded")
}

#[tokio::test]
async fn two_engines_of_one_kind_share_a_store_and_nothing_else() {
    let (mut stack, two) = two().await;
    let mut loaded = BTreeSet::new();
    for _ in 0..2 {
        let mut predictions = stack.predictions();
        for model in [MODEL, OTHER] {
            assert_eq!(score(&mut predictions, model).await, 3.0);
        }
        for (engine, model, directory) in
            [(&stack.engine, MODEL, "serving-one"), (&two, OTHER, "serving-two")]
        {
            assert_eq!(configured(engine), [servable(model)].into());
            assert_eq!(stack.stored(directory), [servable(model)]);
            loaded.insert(latest(engine, model));
        }
        assert_eq!(loaded.len(), 2, "after the restart, both serve the version of before");
        stack.restart().await;
    }
    assert_eq!((stack.engine.violations(), two.violations()), (vec![], vec![]));
}

#[tokio::test]
async fn the_files_of_an_engine_that_is_no_longer_configured_are_removed_at_the_start() {
    let (mut stack, _two) = two().await;
    for model in [MODEL, OTHER] {
        score(&mut stack.predictions(), model).await;
    }
    let one = "{one: {kind: tfserving, endpoint: '{engine}'}}";
    stack.restart_with(&[("engines", one), ("models", "[]")]).await;
    assert_eq!(stack.servings(), ["serving-one"]);
    for model in [MODEL, OTHER] {
        assert_eq!(score(&mut stack.predictions(), model).await, 3.0);
        latest(&stack.engine, model);
    }
    assert_eq!(stack.engine.violations(), []);
}

#[tokio::test]
async fn a_model_that_names_another_engine_after_a_restart_runs_there() {
    let (mut stack, two) = two().await;
    score(&mut stack.predictions(), OTHER).await;
    let models = format!("[{{name: {MODEL}, engine: one}}, {{name: {OTHER}, engine: one}}]");
    stack.restart_with(&[("models", &models)]).await;
    assert_eq!(score(&mut stack.predictions(), OTHER).await, 3.0);
    latest(&stack.engine, OTHER);
    // The placeholder stays, as the engine knows the name.
    let serving = |view: &View| view.values().filter(|state| **state == State::Available).count();
    two.until(|view| serving(view) == 1).await;
    assert_eq!((stack.engine.violations(), two.violations()), (vec![], vec![]));
}

#[tokio::test]
async fn the_restart_of_one_engine_fails_no_request_of_the_other() {
    let (stack, two) = two().await;
    let mut predictions = stack.predictions();
    for model in [MODEL, OTHER] {
        score(&mut predictions, model).await;
    }
    let (stop, mut stopped) = oneshot::channel();
    let load = tokio::spawn({
        let mut predictions = stack.predictions();
        async move {
            let mut answered = 0;
            while stopped.try_recv().is_err() {
                score(&mut predictions, MODEL).await;
                answered += 1;
            }
            answered
        }
    });
    let version = latest(&two, OTHER);
    two.stop().await;
    let mut within = tonic::Request::new(for_model(OTHER));
    within.set_timeout(std::time::Duration::from_millis(200));
    predictions.predict(within).await.expect_err("its engine is down");
    two.resume().expect("the address is free");
    two.until_available(&servable(OTHER), version).await;
    score(&mut predictions, OTHER).await;
    stop.send(()).expect("the load goes on");
    assert!(load.await.expect("no request failed") > 0);
    assert_eq!((stack.engine.violations(), two.violations()), (vec![], vec![]));
}

#[tokio::test]
async fn a_model_that_two_engines_could_run_must_name_one() {
    let (stack, _two) = two().await;
    stack.publish("third", &linear(0.0)).await;
    let refused = stack.predictions().predict(for_model("third")).await.unwrap_err();
    assert_eq!(reason(&refused), "ENGINE_NOT_CHOSEN");
    assert!(refused.message().contains("engines one, two run models of tensorflow"), "{refused}");
}
