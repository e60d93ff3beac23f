//! Several engines beside each other: one in another process, one in this.

use std::{sync::Arc, time::Duration};

use crate::rig::{Rig, acquire, acquire_within, model, name, predict, stage, until};
use outrigger_core::{Content, EngineId, Failure, Reason, Stage};
use outrigger_lifecycle::{Handle, Lease, ModelEntry};
use outrigger_run::Engine;
use outrigger_testkit::layers::LayerBuilder;

fn in_process() -> (EngineId, Arc<dyn Engine>) {
    (EngineId::new("linear"), Arc::new(outrigger_linear::engine()))
}

/// The package of a linear model with the same features as [`model`]'s.
fn package(bias: u16) -> LayerBuilder {
    let mut metadata = model(0).metadata;
    metadata["framework"] = "linear".into();
    let weights = serde_json::json!({"user": [1.0], "treatment": [0.5, 2.0], "bias": bias});
    LayerBuilder::new()
        .dir("data")
        .file("data/metadata.json", metadata.to_string().as_bytes())
        .dir("data/linear")
        .file("data/linear/linear.json", weights.to_string().as_bytes())
}

/// A rig with both engines, and `churn` of TensorFlow beside `tree` of the engine here.
async fn both() -> (Rig, Handle) {
    let mut rig = Rig::new().await;
    rig.beside_engine = Some(in_process);
    rig.push("churn", "latest", &model(1));
    rig.push_layer("tree", "latest", package(1));
    let handle = rig.start();
    (rig, handle)
}

async fn refused(handle: &Handle, model: &str) -> Failure {
    acquire(handle, model).await.expect_err("it must be refused")
}

async fn first_score(lease: &Lease) -> f32 {
    let outputs = predict(lease).await.expect("scores");
    let Content::Bytes(scores) = &outputs[0].content else { panic!("floats") };
    f32::from_le_bytes(scores[..4].try_into().expect("a score"))
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
async fn a_model_in_the_process_passes_the_gate_moves_and_survives_a_restart() {
    let (mut rig, handle) = both().await;
    let lease = acquire(&handle, "tree").await.expect("it comes up");
    let before = first_score(&lease).await;
    drop(lease);
    let next = rig.push_layer("tree", "latest", package(5));
    until(&handle, |it| stage(it, "tree", next) == Some(Stage::Available)).await;
    let lease = acquire(&handle, "tree").await.expect("it stays up");
    assert_eq!((lease.key.digest, first_score(&lease).await), (next, before + 4.0));
    drop(lease);
    rig.stop().await;
    let handle = rig.start();
    let lease = acquire(&handle, "tree").await.expect("it is loaded again");
    assert_eq!((lease.key.digest, first_score(&lease).await), (next, before + 4.0));
}

#[tokio::test]
async fn a_model_without_an_engine_is_refused_with_the_engines_there_are() {
    let mut rig = Rig::new().await;
    rig.push_layer("tree", "latest", package(1));
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
    let expected = "no engine runs models of onnx; known frameworks: linear, tensorflow; \
                    there are: default (tensorflow)";
    assert!(failure.message.ends_with(expected), "{}", failure.message);
}

#[tokio::test]
async fn an_engine_that_does_not_run_the_framework_cannot_be_named_for_it() {
    let mut rig = Rig::new().await;
    rig.beside_engine = Some(in_process);
    rig.push_layer("tree", "latest", package(1));
    rig.config.tunables.models = vec![ModelEntry {
        name: name("tree"),
        image: None,
        preload: false,
        tag: None,
        digest: None,
        engine: Some(EngineId::default()),
    }];
    let handle = rig.start();
    let failure = refused(&handle, "tree").await;
    assert_eq!(failure.reason, Reason::EngineNotChosen);
    assert!(failure.message.contains("engine default runs tensorflow"), "{}", failure.message);
}
