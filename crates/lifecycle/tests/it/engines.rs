//! Several engines beside each other: one in another process, one in this.

use std::time::Duration;

use outrigger_core::{EngineId, Failure, Reason};
use outrigger_lifecycle::{Handle, ModelEntry};
use outrigger_testkit::{layers::LayerBuilder, package::Package};

use crate::{
    kinds::Kind,
    rig::{Rig, acquire, acquire_within, model, name, predict, until},
};

fn tree() -> LayerBuilder {
    Kind::linear().package(Package::default())
}

/// A rig with both engines, and `churn` of TensorFlow beside `tree` of the engine here.
async fn both() -> (Rig, Handle) {
    let mut rig = Kind::linear().rig().await;
    rig.push("churn", "latest", &model(1));
    rig.push_layer("tree", "latest", tree());
    let handle = rig.start();
    (rig, handle)
}

async fn refused(handle: &Handle, model: &str) -> Failure {
    acquire(handle, model).await.expect_err("it must be refused")
}

#[tokio::test]
async fn each_model_runs_in_the_engine_of_its_framework() {
    let (_rig, handle) = both().await;
    for (model, engine) in [("churn", "default"), ("tree", "linear")] {
        let lease = acquire(&handle, model).await.expect("it comes up");
        assert_eq!(lease.engine, EngineId::new(engine));
        predict(&lease).await.expect("scores");
    }
    let engines = &handle.models().engines;
    assert!(engines[&EngineId::new("linear")].in_process);
    assert!(!engines[&EngineId::default()].in_process);
}

#[tokio::test]
async fn an_engine_that_hangs_keeps_only_its_own_models_waiting() {
    let (rig, handle) = both().await;
    for model in ["churn", "tree"] {
        acquire(&handle, model).await.expect("it comes up");
    }
    rig.engine.stop().await;
    until(&handle, |it| !it.engines[&EngineId::default()].reachable).await;
    let failure = acquire_within(&handle, "churn", Duration::from_millis(100)).await;
    assert_eq!(failure.expect_err("its engine is down").reason, Reason::EngineUnavailable);
    let lease = acquire(&handle, "tree").await.expect("its engine is this process");
    predict(&lease).await.expect("scores");
}

#[tokio::test]
async fn a_model_without_an_engine_is_refused_with_the_engines_there_are() {
    let mut rig = Rig::new().await;
    rig.push_layer("tree", "latest", tree());
    let handle = rig.start();
    let failure = refused(&handle, "tree").await;
    assert_eq!(failure.reason, Reason::EngineNotChosen);
    assert!(failure.message.contains("default (tensorflow)"), "{}", failure.message);
}

#[tokio::test]
async fn a_model_of_an_unknown_framework_is_refused_with_engines_and_frameworks() {
    let mut rig = Rig::new().await;
    let mut metadata = model(0).metadata;
    metadata["framework"] = "onnx".into();
    let package = LayerBuilder::new()
        .dir("data")
        .file("data/metadata.json", metadata.to_string().as_bytes())
        .file("data/model.onnx", b"a graph");
    rig.push_layer("tree", "latest", package);
    let handle = rig.start();
    let failure = refused(&handle, "tree").await;
    assert_eq!(failure.reason, Reason::EngineNotChosen);
    let expected = "no engine runs models of onnx; known frameworks: linear, scripted, \
                    tensorflow, xgboost; there are: default (tensorflow)";
    assert!(failure.message.ends_with(expected), "{}", failure.message);
}

#[tokio::test]
async fn an_engine_that_does_not_run_the_framework_cannot_be_named_for_it() {
    let mut rig = Kind::linear().rig().await;
    rig.push_layer("tree", "latest", tree());
    rig.config.tunables.models = vec![ModelEntry {
        name: name("tree"),
        image: None,
        directory: None,
        preload: false,
        tag: None,
        digest: None,
        engine: Some(EngineId::default()),
        rollover: Default::default(),
    }];
    let handle = rig.start();
    let failure = refused(&handle, "tree").await;
    assert_eq!(failure.reason, Reason::EngineNotChosen);
    assert!(failure.message.contains("engine default runs tensorflow"), "{}", failure.message);
}
