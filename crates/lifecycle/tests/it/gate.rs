//! Tests of the gate with models and engines that do not answer.

use std::time::Duration;

use outrigger_core::{Reason, ServableName};
use outrigger_lifecycle::Snapshot;
use outrigger_testkit::engine::{Gate, Predicting, row_sums};

use crate::rig::{Rig, SILENT, acquire, model, name, until, version};

/// The deadline of a request at the gate.
const GATE: Duration = Duration::from_secs(2);

async fn rig() -> Rig {
    let mut rig = Rig::new().await;
    rig.config.engine.gate_timeout = GATE;
    rig.push("churn", "latest", &model(1));
    rig
}

#[tokio::test]
async fn a_model_that_never_answers_its_first_request_is_refused() {
    let mut rig = rig().await;
    rig.push("silent", "latest", &model(2));
    let silent = ServableName::of(&name("silent"));
    rig.engine.on_predict(move |prediction| match prediction.name == silent.as_str() {
        true => Predicting::Held(Gate::closed(), Box::new(row_sums(prediction))),
        false => row_sums(prediction),
    });
    let handle = rig.start();
    let failure = acquire(&handle, "silent").await.expect_err("it does not answer");
    assert_eq!(failure.reason, Reason::GoldenMismatch, "{failure}");
    assert!(failure.message.contains("the model did not answer within 2 s"), "{failure}");
    acquire(&handle, "churn").await.expect("others are served");
}

#[tokio::test]
async fn an_engine_that_answers_nothing_at_the_gate_is_not_held_against_the_model() {
    let mut rig = rig().await;
    rig.engine_timeout = SILENT;
    let digest = rig.registry.digest("team/churn", "latest").expect("pushed");
    let engine = rig.engine.clone();
    rig.engine.on_predict(move |prediction| {
        engine.freeze();
        Predicting::Held(Gate::closed(), Box::new(row_sums(prediction)))
    });
    let handle = rig.start();
    let thaw = async {
        let has_failed = |it: &Snapshot| {
            let failure = version(it, "churn", digest).and_then(|it| it.failure);
            failure.is_some_and(|it| it.failure.reason == Reason::EngineUnavailable)
        };
        until(&handle, has_failed).await;
        rig.engine.on_predict(row_sums);
        rig.engine.thaw();
    };
    let (lease, ()) = tokio::join!(acquire(&handle, "churn"), thaw);
    lease.expect("the engine answers again");
}
