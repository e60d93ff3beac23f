//! The whole life of a model, for every kind of engine beside TensorFlow Serving.

use std::time::Duration;

use outrigger_canary::Layer;
use outrigger_core::{Arm, Digest, Reason, Stage};
use outrigger_lifecycle::{CanaryOutcome, CanaryPhase, Handle, Snapshot};
use outrigger_testkit::{package::Package, registry::Rule};

use crate::{
    canaries::quick,
    kinds::{Kind, Load, score},
    rig::{Rig, acquire, canaries, decided, is_in, name, stage, until, version},
};

/// Makes a module of tests for each kind of engine.
macro_rules! of_every_kind {
    ($($scenario:ident),* $(,)?) => {
        mod linear {
            $(#[tokio::test] async fn $scenario() { super::$scenario(super::Kind::linear()).await; })*
        }
        mod trees {
            $(#[tokio::test] async fn $scenario() { super::$scenario(super::Kind::trees()).await; })*
        }
        mod scripted {
            $(#[tokio::test] async fn $scenario() { super::$scenario(super::Kind::scripted()).await; })*
        }
    };
}

of_every_kind!(
    it_is_pulled_and_passes_the_gate,
    the_gate_refuses_other_scores_than_the_package_expects,
    no_request_fails_while_its_tag_moves,
    a_canary_with_other_scores_is_rolled_back,
    a_canary_with_the_same_scores_is_promoted,
    it_leaves_its_engine_when_idle_and_comes_back_on_demand,
    it_is_served_again_after_a_restart,
);

/// Pushes `tree:TAG`; returns its digest.
pub(crate) fn push(rig: &Rig, kind: &Kind, tag: &str, package: Package) -> Digest {
    rig.push_layer("tree", tag, kind.package(package))
}

/// The condition that `digest` answers for every tag of `tree`, and no other version is loaded.
pub(crate) fn only(digest: Digest) -> impl Fn(&Snapshot) -> bool {
    move |it| {
        let model = &it.models[&name("tree")];
        model.tags.values().all(|tag| tag.serving == Some(digest))
            && model.versions.values().filter(|it| it.stage > Stage::Downloaded).count() == 1
    }
}

/// Starts a process with `tree:latest` served, and canaries tried by [`quick`] settings.
async fn tried(kind: &Kind) -> (Rig, Handle, Digest) {
    let mut rig = kind.rig().await;
    rig.config.tunables.canary.defaults = Layer::from_json(&quick()).expect("a configuration");
    let live = push(&rig, kind, "latest", Package::default());
    let handle = rig.start();
    acquire(&handle, "tree").await.expect("served");
    (rig, handle, live)
}

async fn it_is_pulled_and_passes_the_gate(kind: Kind) {
    let mut rig = kind.rig().await;
    let digest =
        push(&rig, &kind, "latest", Package { bias: 4, golden: Some(7), ..Package::default() });
    let handle = rig.start();
    let lease = acquire(&handle, "tree").await.expect("it comes up");
    assert_eq!((lease.key.digest, &lease.engine), (digest, &kind.id()));
    assert_eq!(score(&lease, 2.0).await.expect("a score"), 6.0);
    until(&handle, |it| stage(it, "tree", digest) == Some(Stage::Available)).await;
}

async fn the_gate_refuses_other_scores_than_the_package_expects(kind: Kind) {
    let mut rig = kind.rig().await;
    let wrong = Package { bias: 4, golden: Some(8), ..Package::default() };
    let digest = push(&rig, &kind, "latest", wrong);
    let handle = rig.start();
    let failure = acquire(&handle, "tree").await.expect_err("the gate refuses it");
    assert_eq!(failure.reason, Reason::GoldenMismatch);
    // The refused version leaves the engine, and the next one is judged by itself.
    until(&handle, |it| stage(it, "tree", digest) == Some(Stage::Downloaded)).await;
    let next = push(&rig, &kind, "latest", Package { golden: Some(7), ..wrong });
    until(&handle, |it| stage(it, "tree", next) == Some(Stage::Available)).await;
    assert_eq!(acquire(&handle, "tree").await.expect("served").key.digest, next);
}

async fn no_request_fails_while_its_tag_moves(kind: Kind) {
    let (rig, handle, _) = tried(&kind).await;
    let load = Load::start(&handle, "tree");
    for bias in 1..=10 {
        let digest = push(&rig, &kind, "latest", Package { bias, ..Package::default() });
        until(&handle, only(digest)).await;
        let lease = acquire(&handle, "tree").await.expect("served");
        assert_eq!(lease.key.digest, digest);
        assert_eq!(score(&lease, 2.0).await.expect("a score"), 2.0 + f32::from(bias));
    }
    load.succeeded().await;
}

async fn a_canary_with_other_scores_is_rolled_back(kind: Kind) {
    let (rig, handle, live) = tried(&kind).await;
    let load = Load::start(&handle, "tree");
    let canary = push(&rig, &kind, "canary", Package { bias: 100, ..Package::default() });
    let seen = canaries(&handle, is_in(CanaryPhase::Rejected)).await;
    let decision = &seen.decisions[0];
    assert_eq!((decision.outcome, decision.canary), (CanaryOutcome::RolledBack, canary));
    assert!(decision.reason.contains("score"), "{}", decision.reason);
    until(&handle, |it| stage(it, "tree", canary) == Some(Stage::Downloaded)).await;
    load.succeeded().await;
    assert_eq!(acquire(&handle, "tree").await.expect("served").key.digest, live);
    assert_eq!(rig.registry.digest("team/tree", "latest"), Some(live));
}

async fn a_canary_with_the_same_scores_is_promoted(kind: Kind) {
    let (rig, handle, live) = tried(&kind).await;
    let load = Load::start(&handle, "tree");
    let canary = push(&rig, &kind, "canary", Package { number: 2, ..Package::default() });
    let seen = canaries(&handle, decided(CanaryOutcome::Promoted)).await;
    assert_eq!((seen.decisions[0].live, seen.decisions[0].canary), (Some(live), canary));
    until(&handle, |it| stage(it, "tree", live) == Some(Stage::Downloaded)).await;
    load.succeeded().await;
    let lease = acquire(&handle, "tree").await.expect("served");
    assert_eq!((lease.key.digest, lease.arm()), (canary, Arm::Live));
    assert_eq!(rig.registry.digest("team/tree", "latest"), Some(canary));
}

async fn it_leaves_its_engine_when_idle_and_comes_back_on_demand(kind: Kind) {
    let mut rig = kind.rig().await;
    rig.config.tunables.idle_ttl = Duration::from_millis(300);
    let digest = push(&rig, &kind, "latest", Package::default());
    let handle = rig.start();
    let lease = acquire(&handle, "tree").await.expect("served");
    let (id, run) = (lease.scorer.id.clone(), lease.scorer.run.clone());
    drop(lease);
    until(&handle, |it| stage(it, "tree", digest) == Some(Stage::Downloaded)).await;
    drop(run);
    if let Some(server) = &kind.server {
        assert_eq!(server.loaded(), []);
    }
    let lease = acquire(&handle, "tree").await.expect("served");
    assert!(lease.scorer.id.version > id.version);
    score(&lease, 2.0).await.expect("a score");
}

async fn it_is_served_again_after_a_restart(kind: Kind) {
    let (mut rig, handle, digest) = tried(&kind).await;
    until(&handle, |it| stage(it, "tree", digest) == Some(Stage::Available)).await;
    let before = acquire(&handle, "tree").await.expect("served").scorer.id.clone();
    drop(handle);
    rig.stop().await;
    rig.registry.script(Rule::any("/v2/").status(503));
    let handle = rig.start();
    let lease = acquire(&handle, "tree").await.expect("served without the registry");
    score(&lease, 2.0).await.expect("a score");
    assert!(version(&handle.models(), "tree", digest).is_some());
    // An engine in this process lost its models when the process ended; an engine elsewhere still
    // has them.
    match &kind.server {
        None => assert!(lease.scorer.id.version > before.version),
        Some(_) => assert_eq!((&lease.scorer.id, kind.loads()), (&before, vec![before.clone()])),
    }
}
