//! Tests of tags that move.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use outrigger_core::{Reason, Stage};
use outrigger_testkit::{
    engine::{Gate, Loading, Predicting},
    registry::Rule,
};
use tokio::task::JoinSet;
use tonic::Code;

use crate::rig::{Rig, acquire, model, name, predict, stage, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_a_tag_moves() {
    let (rig, handle) = Rig::started().await;
    acquire(&handle, "churn").await.expect("served");
    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let (handle, over, answered) = (handle.clone(), Arc::clone(&over), Arc::clone(&answered));
        clients.spawn(async move {
            while !over.load(SeqCst) {
                let lease = acquire(&handle, "churn").await.expect("served all the time");
                predict(&lease).await.expect("it answers");
                answered.fetch_add(1, SeqCst);
            }
        });
    }
    for bias in 10..20 {
        let digest = rig.push("churn", "latest", &model(bias));
        let serving = |it: &outrigger_lifecycle::Snapshot| {
            let model = &it.models[&name("churn")];
            model.tags.values().all(|tag| tag.serving == Some(digest))
                && model.versions.values().filter(|it| it.stage > Stage::Downloaded).count() == 1
        };
        until(&handle, serving).await;
        assert_eq!(acquire(&handle, "churn").await.expect("served").key.digest, digest);
    }
    over.store(true, SeqCst);
    while let Some(client) = clients.join_next().await {
        client.expect("no request failed");
    }
    assert!(answered.load(SeqCst) > 0);
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_new_version_that_fails_leaves_the_old_one_serving() {
    let (rig, handle) = Rig::started().await;
    let old = acquire(&handle, "churn").await.expect("served");
    let version = old.scorer.id.version.0;
    rig.engine.on_predict(move |prediction| {
        if prediction.version == version {
            return Predicting::Fails(Code::Internal, "not asked in this test".to_owned());
        }
        Predicting::Fails(Code::FailedPrecondition, "no variables".to_owned())
    });
    let digest = rig.push("churn", "latest", &model(2));
    until(&handle, |it| {
        let view = crate::rig::version(it, "churn", digest);
        view.and_then(|view| view.failure).is_some_and(|it| it.permanent)
    })
    .await;
    let view = crate::rig::version(&handle.models(), "churn", digest).expect("known");
    assert_eq!(view.failure.expect("failed").failure.reason, Reason::GoldenMismatch);
    assert_eq!(acquire(&handle, "churn").await.expect("served").key, old.key);
}

#[tokio::test]
async fn a_tag_that_is_gone_or_a_registry_that_is_down_leaves_the_last_known_good() {
    let (rig, handle) = Rig::started().await;
    let digest = acquire(&handle, "churn").await.expect("served").key.digest;
    let failed = |reason| {
        move |it: &outrigger_lifecycle::Snapshot| {
            let tags = &it.models[&name("churn")].tags;
            tags.values()
                .all(|tag| tag.failure.as_ref().is_some_and(|it| it.failure.reason == reason))
        }
    };
    rig.registry.remove_tag("team/churn", "latest");
    until(&handle, failed(Reason::TagNotFound)).await;
    assert_eq!(acquire(&handle, "churn").await.expect("served").key.digest, digest);
    rig.registry.script(Rule::any("/v2/").status(500));
    until(&handle, failed(Reason::RegistryUnavailable)).await;
    assert_eq!(acquire(&handle, "churn").await.expect("served").key.digest, digest);
}

#[tokio::test]
async fn a_tag_that_moves_on_drops_the_version_in_between() {
    let (rig, handle) = Rig::started_with_silent_engine().await;
    let first = acquire(&handle, "churn").await.expect("served").key.digest;
    let (gate, between) = (Gate::closed(), rig.push("churn", "next", &model(2)));
    let (held, hex) = (gate.clone(), between.hex());
    rig.engine.on_load(move |load| match std::fs::read_link(&load.path) {
        Ok(tree) if tree.to_string_lossy().contains(&hex) => Loading::Held(held.clone()),
        _ => Loading::Normal,
    });
    rig.registry.tag("team/churn", "latest", between);
    until(&handle, |it| stage(it, "churn", between) == Some(Stage::Loaded)).await;
    assert_eq!(acquire(&handle, "churn").await.expect("served").key.digest, first);
    let last = rig.push("churn", "latest", &model(3));
    let serving = |it: &outrigger_lifecycle::Snapshot| {
        it.models[&name("churn")].tags.values().all(|tag| tag.serving == Some(last))
    };
    until(&handle, serving).await;
    gate.open();
    until(&handle, |it| stage(it, "churn", between) == Some(Stage::Downloaded)).await;
    assert_eq!(rig.engine.violations(), []);
}
