//! Tests of the state that a new process takes over.

use outrigger_core::Stage;
use outrigger_lifecycle::{ModelEntry, Retry};
use outrigger_testkit::{engine::Received, package::Package, registry::Rule};

use crate::{
    kinds::{Kind, score},
    reconfigure::entry,
    rig::{PATIENCE, Rig, acquire, name, predict, stage, until},
    whole_life::push,
};

#[tokio::test]
async fn a_new_process_adopts_the_versions_in_the_engine() {
    let (mut rig, handle) = Rig::started().await;
    let before = acquire(&handle, "churn").await.expect("served").scorer.id.clone();
    drop(handle);
    rig.stop().await;
    assert!(rig.engine.available(before.name.as_str()).contains(&before.version.0));
    rig.registry.script(Rule::any("/v2/").status(503));
    let calls = rig.engine.received().len();
    let handle = rig.start();
    let lease = acquire(&handle, "churn").await.expect("served without the registry");
    assert_eq!(lease.scorer.id, before);
    predict(&lease).await.expect("it answers");
    let kept = |call: &Received| match call {
        Received::Reload(set) => set[before.name.as_str()].contains(&before.version.0),
        _ => true,
    };
    assert!(rig.engine.received()[calls..].iter().all(kept));
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn after_a_crash_of_both_the_last_known_good_is_served_without_the_registry() {
    let (mut rig, handle) = Rig::started().await;
    let digest = acquire(&handle, "churn").await.expect("served").key.digest;
    // The switch to this version must be in the journal before the crash.
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
    drop(handle);
    rig.stop().await;
    rig.engine.restart().await.expect("it comes back");
    rig.registry.script(Rule::any("/v2/").status(503));
    let handle = rig.start();
    until(&handle, |it| {
        crate::rig::version(it, "churn", digest).is_some_and(|it| it.size_bytes > 0)
    })
    .await;
    assert_eq!(acquire(&handle, "churn").await.expect("served").key.digest, digest);
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_crash_in_the_middle_of_loading_harms_nothing() {
    let (mut rig, handle) = Rig::started_with_silent_engine().await;
    let digest = rig.registry.digest("team/churn", "latest").expect("pushed");
    let gate = outrigger_testkit::engine::Gate::closed();
    let held = gate.clone();
    rig.engine.on_load(move |load| match load.path.is_symlink() {
        true => outrigger_testkit::engine::Loading::Held(held.clone()),
        false => outrigger_testkit::engine::Loading::Normal,
    });
    let early = std::time::Duration::from_millis(1);
    crate::rig::acquire_within(&handle, "churn", early).await.expect_err("it is held");
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Loaded)).await;
    drop(handle);
    rig.crash().await;
    gate.open();
    let handle = rig.start();
    let lease = acquire(&handle, "churn").await.expect("served");
    predict(&lease).await.expect("it answers");
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn models_no_longer_allowed_are_not_taken_over() {
    let (mut rig, handle) = Rig::started().await;
    let before = acquire(&handle, "churn").await.expect("served").scorer.id.clone();
    drop(handle);
    rig.stop().await;
    rig.config.tunables.allowed = vec![format!("{}/other", rig.registry.host())];
    let _handle = rig.start();
    let gone = (before.name.as_str().to_owned(), before.version.0);
    rig.engine.until(|view| view.get(&gone) == Some(&outrigger_testkit::engine::State::End)).await;
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_stopping_process_refuses_and_leaves_the_engine_alone() {
    let (mut rig, handle) = Rig::started().await;
    let id = acquire(&handle, "churn").await.expect("served").scorer.id.clone();
    rig.stop().await;
    let failure = acquire(&handle, "churn").await.expect_err("it has stopped");
    assert_eq!(failure.reason, outrigger_core::Reason::ShuttingDown);
    assert!(rig.engine.available(id.name.as_str()).contains(&id.version.0));
}

#[tokio::test]
async fn a_new_process_moves_a_model_to_the_engine_that_is_named_now() {
    let (old, new) = (Kind::scripted(), Kind { name: "other", ..Kind::scripted() });
    let mut rig = old.rig().await;
    rig.beside.push(new.make());
    // A failed gate would not be repeated in the time of this test.
    rig.config.retry = Retry { first: PATIENCE * 2, most: PATIENCE * 2 };
    push(&rig, &old, "latest", Package::default());
    for preload in [false, true] {
        for (kind, left) in [(&old, &new), (&new, &old)] {
            let tree = ModelEntry { preload, engine: Some(kind.id()), ..entry("tree") };
            rig.config.tunables.models = vec![tree];
            let handle = rig.start();
            // An engine unloads unwanted versions before it counts as reachable.
            until(&handle, |it| it.engines.get(&left.id()).is_some_and(|it| it.reachable)).await;
            let lease = acquire(&handle, "tree").await.expect("served by the engine named now");
            assert_eq!(lease.engine, kind.id());
            score(&lease, 3.0).await.expect("a score");
            assert_eq!(left.server().loaded(), []);
            let view = handle.models();
            let mut versions = view.models[&name("tree")].versions.values();
            assert!(versions.all(|it| it.failure.is_none()), "{view:?}");
            drop(lease);
            rig.stop().await;
        }
    }
}
