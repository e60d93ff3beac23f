//! Tests of idle versions.

use std::time::Duration;

use outrigger_core::Stage;

use crate::rig::{Rig, acquire, model, predict, stage, until, version};

#[tokio::test]
async fn an_idle_model_leaves_the_engine_and_later_the_disk() {
    let mut rig = Rig::new().await;
    let digest = rig.push("churn", "latest", &model(1));
    rig.config.tunables.idle_ttl = Duration::from_millis(700);
    rig.config.tunables.retain = Duration::from_millis(100);
    let handle = rig.start();
    let lease = acquire(&handle, "churn").await.expect("served");
    let id = lease.scorer.id.clone();
    drop(lease);
    let ended = (id.name.as_str().to_owned(), id.version.0);
    rig.engine.until(|view| view.get(&ended) == Some(&outrigger_testkit::engine::State::End)).await;
    until(&handle, |it| stage(it, "churn", digest).is_none_or(|it| it == Stage::New)).await;
    let tree = rig.store_path().join("trees").join(digest.hex());
    assert!(!tree.exists());
    assert_eq!(rig.links(), 0);
    // The next request loads it again, under a new version number.
    let lease = acquire(&handle, "churn").await.expect("served");
    assert!(lease.scorer.id.version > id.version);
    predict(&lease).await.expect("it answers");
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_model_in_use_is_never_idle() {
    let mut rig = Rig::new().await;
    let digest = rig.push("churn", "latest", &model(1));
    rig.config.tunables.idle_ttl = Duration::from_millis(100);
    let handle = rig.start();
    let lease = acquire(&handle, "churn").await.expect("served");
    let used_at = |it: &outrigger_lifecycle::Snapshot| {
        version(it, "churn", digest).and_then(|it| it.last_used_at)
    };
    // The lease may come before the snapshot shows the version.
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
    let long_after = std::time::SystemTime::now() + rig.config.tunables.idle_ttl * 5;
    until(&handle, |it| {
        assert_eq!(stage(it, "churn", digest), Some(Stage::Available));
        used_at(it) >= Some(long_after)
    })
    .await;
    predict(&lease).await.expect("it is there still");
    drop(lease);
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Downloaded)).await;
}
