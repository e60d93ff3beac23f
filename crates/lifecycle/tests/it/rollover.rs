//! Models of which the engine has one version at a time.

use std::collections::BTreeSet;

use outrigger_core::{Digest, Reason, Rollover, Stage};
use outrigger_lifecycle::{CanaryPhase, Handle, ModelEntry, Snapshot, Tunables};
use outrigger_testkit::{
    engine::{Gate, Loading, Received},
    package::Package,
    remote::Request,
};

use crate::{
    kinds::{Kind, Load, score},
    reconfigure::entry,
    rig::{Rig, acquire, canaries, is_in, model, name, predict, stage, until, version},
    whole_life::push,
};

fn replaced(model: &str) -> ModelEntry {
    ModelEntry { rollover: Rollover::Replace, ..entry(model) }
}

/// A rig with an engine of that kind, whose model `tree` is replaced.
async fn replacing(kind: &Kind) -> (Rig, Handle, Digest) {
    let mut rig = kind.rig().await;
    rig.config.tunables.models = vec![replaced("tree")];
    let live = push(&rig, kind, "latest", Package::default());
    let handle = rig.start();
    acquire(&handle, "tree").await.expect("served");
    (rig, handle, live)
}

/// The condition that `digest` answers for `tree`. Checks that no two versions are loaded.
fn serves(digest: Digest) -> impl Fn(&Snapshot) -> bool {
    move |it| {
        let versions = it.models[&name("tree")].versions.values();
        let loaded: Vec<_> = versions.filter(|it| it.stage > Stage::Downloaded).collect();
        assert!(loaded.len() <= 1, "{loaded:#?}");
        loaded.iter().any(|it| it.stage == Stage::Available && it.digest == digest)
    }
}

/// Checks that the engine elsewhere was never asked to load a version beside another one.
fn loaded_alone(kind: &Kind) {
    let mut there = BTreeSet::new();
    for request in kind.server.iter().flat_map(|server| server.received()) {
        match request {
            Request::Load(id, _) => drop(there.insert(id)),
            Request::Unload(id) => drop(there.remove(&id)),
            _ => {}
        }
        assert!(there.len() <= 1, "{there:?}");
    }
}

async fn no_request_fails_while_versions_are_replaced(kind: Kind) {
    let (rig, handle, _) = replacing(&kind).await;
    let load = Load::start(&handle, "tree");
    for bias in 1..=10 {
        let digest = push(&rig, &kind, "latest", Package { bias, ..Package::default() });
        until(&handle, serves(digest)).await;
        let lease = acquire(&handle, "tree").await.expect("served");
        assert_eq!(score(&lease, 2.0).await.expect("a score"), 2.0 + f32::from(bias));
    }
    load.succeeded().await;
    loaded_alone(&kind);
}

#[tokio::test]
async fn no_request_fails_in_this_process() {
    no_request_fails_while_versions_are_replaced(Kind::linear()).await;
}

#[tokio::test]
async fn no_request_fails_in_another_process() {
    no_request_fails_while_versions_are_replaced(Kind::scripted()).await;
}

#[tokio::test]
async fn the_old_version_comes_back_if_the_new_one_does_not_pass_the_gate() {
    let kind = Kind::scripted();
    let (rig, handle, live) = replacing(&kind).await;
    let load = Load::start(&handle, "tree");
    let wrong = Package { bias: 4, golden: Some(8), ..Package::default() };
    let bad = push(&rig, &kind, "latest", wrong);
    let failed = |it: &Snapshot| version(it, "tree", bad).is_some_and(|it| it.failure.is_some());
    until(&handle, |it| failed(it) && serves(live)(it)).await;
    load.more(10).await;
    let failure = version(&handle.models(), "tree", bad).and_then(|it| it.failure);
    assert_eq!(failure.map(|it| it.failure.reason), Some(Reason::GoldenMismatch));
    let good = push(&rig, &kind, "latest", Package { golden: Some(7), ..wrong });
    until(&handle, serves(good)).await;
    load.succeeded().await;
    assert_eq!(kind.loads().len(), 4, "the old version was loaded twice");
    loaded_alone(&kind);
}

/// A rig with TensorFlow Serving, which is loading the second version of `churn`.
async fn in_the_middle() -> (Rig, Handle, Digest, Gate) {
    let mut rig = Rig::new().await;
    let first = rig.push("churn", "latest", &model(1));
    rig.config.tunables.models = vec![replaced("churn")];
    let handle = rig.start();
    let lease = acquire(&handle, "churn").await.expect("served");
    assert_eq!(lease.key.digest, first);
    drop(lease);
    let (gate, begun) = (Gate::closed(), Gate::closed());
    let (closed, begins) = (gate.clone(), begun.clone());
    rig.engine.on_load(move |load| match load.path.is_symlink() {
        true => {
            begins.open();
            Loading::Held(closed.clone())
        }
        false => Loading::Normal,
    });
    let second = rig.push("churn", "latest", &model(2));
    begun.pass().await;
    until(&handle, |it| stage(it, "churn", second) == Some(Stage::Loaded)).await;
    assert_eq!(stage(&handle.models(), "churn", first), Some(Stage::Downloaded));
    (rig, handle, second, gate)
}

/// Checks that no configuration of the engine had two versions of a model beside its placeholder.
fn configured_alone(rig: &Rig) {
    for call in rig.engine.received() {
        if let Received::Reload(set) = call {
            assert!(set.values().all(|versions| versions.len() <= 2), "{set:?}");
        }
    }
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn callers_wait_for_the_new_version() {
    let (rig, handle, second, gate) = in_the_middle().await;
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { acquire(&handle, "churn").await }
    });
    tokio::task::yield_now().await;
    gate.open();
    let lease = waiting.await.expect("no panic").expect("served");
    assert_eq!(lease.key.digest, second);
    predict(&lease).await.expect("it answers");
    configured_alone(&rig);
}

#[tokio::test]
async fn a_crash_in_the_middle_ends_with_the_new_version() {
    let (mut rig, handle, second, gate) = in_the_middle().await;
    drop(handle);
    rig.crash().await;
    gate.open();
    let handle = rig.start();
    let answered = |it: &Snapshot| stage(it, "churn", second) == Some(Stage::Available);
    until(&handle, answered).await;
    let lease = acquire(&handle, "churn").await.expect("served");
    predict(&lease).await.expect("it answers");
    until(&handle, |it| {
        it.models[&name("churn")].tags.values().any(|tag| tag.serving == Some(second))
    })
    .await;
    configured_alone(&rig);
}

#[tokio::test]
async fn a_restart_of_the_engine_in_the_middle_ends_with_the_new_version() {
    let (rig, handle, second, gate) = in_the_middle().await;
    rig.engine.restart().await.expect("it comes back");
    gate.open();
    let lease = acquire(&handle, "churn").await.expect("served");
    assert_eq!(lease.key.digest, second);
    configured_alone(&rig);
}

#[tokio::test]
async fn a_canary_leaves_the_engine_when_its_model_is_replaced() {
    let (rig, handle) = Rig::started().await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    acquire(&handle, "churn").await.expect("served");
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
    let tunables = &rig.config.tunables;
    let listing = Tunables { models: vec![replaced("churn")], ..tunables.clone() };
    handle.reconfigure(listing).await.expect("it is valid");
    canaries(&handle, |it| it.canaries.is_empty()).await;
    until(&handle, |it| stage(it, "churn", canary) == Some(Stage::Downloaded)).await;
    acquire(&handle, "churn").await.expect("live answers");
    handle.reconfigure(tunables.clone()).await.expect("it is valid");
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
}
