//! Tests that the journal has a change before a caller can see it: the next process answers alike.

use std::fs;

use outrigger_core::{Arm, Digest, Tag};
use outrigger_lifecycle::{Act, CanaryOutcome, CanaryPhase, Handle, Tunables};
use serde_json::{Value, json};
use tokio::{
    task::yield_now,
    time::{Instant, timeout},
};

use crate::{
    canaries::{quick, started, traffic, well, with},
    rig::{PATIENCE, Rig, canaries, decided, is_in, model, name, somebody, tag},
};

/// A file of the journal, as a process would find it that starts now.
fn journal(rig: &Rig, file: &str) -> Value {
    let content = fs::read(rig.store_path().join("journal").join(file)).expect("it is written");
    serde_json::from_slice(&content).expect("JSON")
}

/// The version of a tag of `churn` in a part of the record.
fn recorded(rig: &Rig, part: &str, tag: &str) -> Value {
    journal(rig, "record.json")[part]["churn"][tag].clone()
}

/// Waits until requests for `churn` are answered by that version, and returns at once.
async fn answers(handle: &Handle, digest: Digest) {
    let answer = || handle.try_acquire(&name("churn"), &tag("latest"), "");
    let until = async {
        while answer().and_then(Result::ok).is_none_or(|lease| lease.key.digest != digest) {
            yield_now().await;
        }
    };
    timeout(PATIENCE, until).await.expect("it answers");
}

fn latest() -> Tag {
    "latest".parse().expect("a valid tag")
}

/// Settings of a trial that does not end by itself.
fn endless() -> Value {
    with(quick(), "minimumTime", json!("3600s"))
}

#[tokio::test]
async fn a_version_that_answers_for_the_first_time_is_in_the_journal() {
    let (rig, handle) = Rig::started().await;
    let mut digest = rig.registry.digest("team/churn", "latest").expect("pushed");
    handle.load(&name("churn"), &tag("latest"), Instant::now() + PATIENCE).await.expect("loaded");
    for bias in 2..8 {
        answers(&handle, digest).await;
        assert_eq!(recorded(&rig, "tags", "latest"), json!(digest));
        digest = rig.push("churn", "latest", &model(bias));
    }
}

#[tokio::test]
async fn an_abort_that_is_answered_is_in_the_journal() {
    let (rig, handle, _) = started(&endless()).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, well);
    canaries(&handle, is_in(CanaryPhase::Split)).await;
    handle.decide(&name("churn"), &latest(), Act::Abort, somebody()).await.expect("aborted");
    assert_eq!(recorded(&rig, "rejected", "latest_canary"), json!(canary));
    assert_eq!(journal(&rig, "canaries.json")["decisions"][0]["outcome"], "rolled_back");
}

#[tokio::test]
async fn a_promotion_that_answers_is_in_the_journal() {
    let (rig, handle, _) = started(&with(endless(), "mode", json!("MODE_LOCAL"))).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let traffic = traffic(&handle, well);
    canaries(&handle, is_in(CanaryPhase::Split)).await;
    handle.decide(&name("churn"), &latest(), Act::Promote, somebody()).await.expect("promoted");
    drop(traffic);
    // While the trial ends, the canary may still have its share of the requests only.
    canaries(&handle, decided(CanaryOutcome::Promoted)).await;
    answers(&handle, canary).await;
    assert_eq!(recorded(&rig, "promoted", "latest")["promoted"], json!(canary));
    assert_eq!(journal(&rig, "canaries.json")["decisions"][0]["outcome"], "promoted");
}

#[tokio::test]
async fn a_rollback_that_is_shown_is_in_force_and_in_the_journal() {
    let (rig, handle, _) = started(&endless()).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, move |lease| match lease.key.digest == canary {
        true => outrigger_canary::Outcome::Failed,
        false => well(lease),
    });
    canaries(&handle, decided(CanaryOutcome::RolledBack)).await;
    assert_eq!(recorded(&rig, "rejected", "latest_canary"), json!(canary));
    for user in 0..100 {
        let lease = handle.try_acquire(&name("churn"), &tag("latest"), &format!("user-{user}"));
        assert_eq!(lease.expect("known").expect("served").arm(), Arm::Live);
    }
}

#[tokio::test]
async fn a_model_that_is_removed_is_not_in_the_journal() {
    let (rig, handle) = Rig::started().await;
    let digest = rig.registry.digest("team/churn", "latest").expect("pushed");
    handle.load(&name("churn"), &tag("latest"), Instant::now() + PATIENCE).await.expect("loaded");
    assert_eq!(recorded(&rig, "tags", "latest"), json!(digest));
    let tunables = Tunables { allowed: vec![], ..rig.config.tunables.clone() };
    handle.reconfigure(tunables).await.expect("it is valid");
    assert_eq!(recorded(&rig, "tags", "latest"), Value::Null);
    let lease = handle.try_acquire(&name("churn"), &tag("latest"), "");
    assert!(lease.is_none_or(|lease| lease.is_err()), "it is not served");
}
