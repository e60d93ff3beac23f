//! Tests of engines that restart, hang and vanish.

use std::{pin::pin, time::Duration};

use outrigger_core::{Reason, Stage};
use outrigger_testkit::engine::{Gate, Received, Reloading};
use tokio::time::Instant;

use crate::rig::{Rig, acquire, acquire_within, engine, model, predict, stage, until};

#[tokio::test]
async fn after_an_engine_restart_serving_resumes_by_itself() {
    let (rig, handle) = Rig::started().await;
    let before = acquire(&handle, "churn").await.expect("served").scorer.id.clone();
    rig.engine.restart().await.expect("it comes back");
    until(&handle, |it| engine(it).restarts == 1).await;
    let digest = rig.registry.digest("team/churn", "latest").expect("pushed");
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
    let lease = acquire(&handle, "churn").await.expect("served again");
    predict(&lease).await.expect("it answers");
    // The engine has forgotten the version, so the same version may be used again.
    assert_eq!(lease.scorer.id, before);
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_reload_that_hangs_hangs_nothing_here_and_is_not_repeated() {
    let (rig, handle) = Rig::started_with_silent_engine().await;
    acquire(&handle, "churn").await.expect("served");
    let gate = Gate::closed();
    let held = gate.clone();
    rig.engine.on_reload(move || Reloading::Held(held.clone()));
    rig.push("b", "latest", &model(2));
    let loading = acquire_within(&handle, "b", Duration::from_millis(900)).await;
    assert_eq!(loading.expect_err("it hangs").reason, Reason::ModelLoading);
    acquire(&handle, "churn").await.expect("what is there is served");
    let pushes = |rig: &Rig| {
        let received = rig.engine.received();
        received.iter().filter(|it| matches!(it, Received::Reload(set) if set.len() == 2)).count()
    };
    assert_eq!(pushes(&rig), 1);
    gate.open();
    acquire(&handle, "b").await.expect("the engine is done with it");
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn an_engine_that_is_down_is_named_and_serving_begins_when_it_comes() {
    let mut rig = Rig::new().await;
    rig.push("churn", "latest", &model(1));
    rig.engine.stop().await;
    rig.config.engine.patience = Duration::from_millis(50);
    let handle = rig.start();
    let failure = acquire(&handle, "churn").await.expect_err("there is no engine");
    assert_eq!(failure.reason, Reason::EngineUnavailable);
    assert!(!engine(&handle.models()).reachable);
    rig.engine.resume().expect("it starts");
    let digest = rig.registry.digest("team/churn", "latest").expect("pushed");
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
    acquire(&handle, "churn").await.expect("served");
}

#[tokio::test]
async fn requests_wait_for_an_engine_that_comes_back_soon() {
    let mut rig = Rig::new().await;
    rig.push("churn", "latest", &model(1));
    rig.config.engine.patience = crate::rig::PATIENCE;
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("served");
    rig.engine.stop().await;
    until(&handle, |it| !engine(it).reachable).await;
    let early = acquire_within(&handle, "churn", Duration::from_millis(1)).await;
    assert_eq!(early.expect_err("there is no engine").reason, Reason::EngineUnavailable);
    let waiting = acquire(&handle, "churn");
    let (lease, ()) = tokio::join!(waiting, async { rig.engine.resume().expect("it starts") });
    predict(&lease.expect("served again")).await.expect("it answers");
}

/// It may run again within its deadline. A call that did not reach the engine waits as any other does.
#[tokio::test]
async fn only_a_call_that_the_engine_had_outlasts_the_patience_with_it() {
    let mut rig = Rig::new().await;
    rig.push("churn", "latest", &model(1));
    rig.config.engine.patience = Duration::from_secs(2);
    let handle = rig.start();
    let lease = acquire(&handle, "churn").await.expect("served");
    rig.engine.stop().await;
    let interrupted = lease.interrupted();
    let began = Instant::now();
    let deadline = Instant::now() + crate::rig::PATIENCE;
    let unsent = handle.again(&interrupted, Some(began), deadline);
    let mut sent = pin!(handle.again(&interrupted, None, deadline));
    let unsent = tokio::select! {
        unsent = unsent => unsent,
        sent = &mut sent => panic!("the engine is away: {sent:?}"),
    };
    assert!(unsent.expect("the version has not failed").is_none());
    // One that comes later does not wait: the engine has been away for long enough.
    let began = Instant::now();
    let later = handle.again(&interrupted, Some(began), deadline).await;
    assert!(later.expect("the version has not failed").is_none());
    assert!(began.elapsed() < rig.config.engine.patience / 2, "{:?}", began.elapsed());
    rig.engine.resume().expect("it starts");
    let lease = sent.await.expect("the version is served again").expect("the same");
    predict(&lease).await.expect("it answers");
}

/// Predictions meet the failure of an engine that does not answer, and not their own deadlines.
#[tokio::test]
async fn a_run_in_an_engine_that_freezes_ends_when_the_patience_with_it_does() {
    let (rig, handle) = Rig::started_with_silent_engine().await;
    let lease = acquire(&handle, "churn").await.expect("served");
    rig.engine.freeze();
    let failure = predict(&lease).await.expect_err("it is frozen");
    assert_eq!(failure.reason, Reason::EngineUnavailable, "{failure}");
    rig.engine.thaw();
    until(&handle, |it| engine(it).reachable).await;
    predict(&lease).await.expect("it answers");
}

#[tokio::test]
async fn a_frozen_engine_loses_nothing() {
    let (rig, handle) = Rig::started_with_silent_engine().await;
    acquire(&handle, "churn").await.expect("served");
    rig.engine.freeze();
    until(&handle, |it| !engine(it).reachable).await;
    rig.engine.thaw();
    until(&handle, |it| engine(it).reachable).await;
    let lease = acquire(&handle, "churn").await.expect("served");
    predict(&lease).await.expect("it answers");
    assert_eq!(engine(&handle.models()).restarts, 0);
    assert_eq!(rig.engine.violations(), []);
}
