//! Tests of canaries: detection, trials and decisions.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use outrigger_canary::{Layer, Outcome};
use outrigger_core::{Arm, Digest, Reason, Stage, Tag};
use outrigger_lifecycle::{Act, CanaryOutcome, CanaryPhase, Handle, Lease};
use outrigger_testkit::registry::Rule;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::rig::{
    PATIENCE, Rig, acquire, canaries, decided, is_in, model, name, somebody, stage, tag, until,
};

/// Settings that decide in seconds, from a few hundred requests.
pub(crate) fn quick() -> Value {
    json!({
        "minimumTime": "0.1s", "minimumRequests": 100,
        "warmUp": {"requests": 100},
        "ramp": {"share": 0.5},
        "signals": {
            "errorRate": {"margin": 0.2},
            "nonFinite": {"limits": {"margin": 0.2}},
            "latency": {"limits": {"off": true}},
            "scoreDrift": {"margin": 0.4},
        },
    })
}

pub(crate) fn with(mut settings: Value, key: &str, value: Value) -> Value {
    settings[key] = value;
    settings
}

/// Starts a process with `churn:latest` served, and canaries tried by `settings`.
pub(crate) async fn started(settings: &Value) -> (Rig, Handle, Digest) {
    let mut rig = Rig::new().await;
    rig.config.tunables.canary.defaults = Layer::from_json(settings).expect("a configuration");
    let live = rig.push("churn", "latest", &model(1));
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("served");
    (rig, handle, live)
}

/// Sends requests without a key; the version that answers determines the outcome.
pub(crate) fn traffic(
    handle: &Handle,
    outcome: impl Fn(&Lease) -> Outcome + Send + 'static,
) -> JoinSet<()> {
    traffic_of("churn", handle, outcome)
}

/// Sends such requests to any model.
pub(crate) fn traffic_of(
    model: &'static str,
    handle: &Handle,
    outcome: impl Fn(&Lease) -> Outcome + Send + 'static,
) -> JoinSet<()> {
    let mut running = JoinSet::new();
    let handle = handle.clone();
    running.spawn(async move {
        loop {
            for _ in 0..50 {
                let lease = acquire(&handle, model).await.expect("served all the time");
                lease.end_call();
                lease.observe(Duration::from_millis(10), outcome(&lease));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    running
}

pub(crate) fn well(_: &Lease) -> Outcome {
    Outcome::Scored(rand::random())
}

fn latest() -> Tag {
    "latest".parse().expect("a valid tag")
}

async fn serving(handle: &Handle) -> Digest {
    acquire(handle, "churn").await.expect("served").key.digest
}

/// The arms of many users, and how many of the users a trial counts.
pub(crate) async fn arms(handle: &Handle) -> (BTreeMap<String, Arm>, usize) {
    let (mut arms, mut counted) = (BTreeMap::new(), 0);
    for number in 0..200 {
        let key = format!("user-{number}");
        let deadline = Instant::now() + PATIENCE;
        let lease = handle.acquire(&name("churn"), &tag("latest"), &key, deadline).await;
        let lease = lease.expect("served");
        counted += usize::from(lease.is_counted());
        arms.insert(key, lease.arm());
        // A canary's call that is dropped takes room for longer, which the next key might need.
        lease.end_call();
    }
    (arms, counted)
}

#[tokio::test]
async fn a_bad_canary_is_rolled_back_by_itself_and_stays_away() {
    let (rig, handle, live) = started(&quick()).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, move |lease| match lease.key.digest == canary {
        true => Outcome::Failed,
        false => well(lease),
    });
    let seen = canaries(&handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!(seen.canaries[0].share, 0.0);
    let decision = &seen.decisions[0];
    assert_eq!((decision.outcome, decision.by.as_str()), (CanaryOutcome::RolledBack, "judge"));
    assert!(decision.reason.contains("error rate"), "{}", decision.reason);
    assert!(decision.verdict.as_ref().is_some_and(|verdict| verdict.canary > 0));
    until(&handle, |it| stage(it, "churn", canary) == Some(Stage::Downloaded)).await;
    for _ in 0..100 {
        assert_eq!(serving(&handle).await, live);
    }
    assert_eq!(rig.registry.digest("team/churn", "latest"), Some(live));
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_good_canary_is_promoted_in_the_registry_by_itself() {
    let (rig, handle, live) = started(&quick()).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, well);
    let seen = canaries(&handle, decided(CanaryOutcome::Promoted)).await;
    assert_eq!(rig.registry.digest("team/churn", "latest"), Some(canary));
    assert_eq!((seen.decisions[0].live, seen.decisions[0].canary), (Some(live), canary));
    assert_eq!(serving(&handle).await, canary);
    until(&handle, |it| stage(it, "churn", live) == Some(Stage::Downloaded)).await;
    canaries(&handle, |it| it.canaries.is_empty()).await;
}

#[tokio::test]
async fn a_promoted_canary_does_not_replace_its_successor() {
    let (rig, handle, _) = started(&quick()).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, well);
    canaries(&handle, decided(CanaryOutcome::Promoted)).await;
    let next = rig.push("churn", "latest", &model(3));
    let seen = canaries(&handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!((seen.canaries[0].live, seen.canaries[0].canary), (Some(next), canary));
    assert_eq!(seen.canaries[0].message, "it has been live before");
    // The promoted canary does not keep a canary under another tag from being tried.
    let other = rig.push("churn", "canary", &model(4));
    let seen = canaries(&handle, is_in(CanaryPhase::Split)).await;
    assert_eq!(seen.canaries[0].canary, other);
}

#[tokio::test]
async fn a_promotion_waits_until_the_registry_answers() {
    let (rig, handle, live) = started(&quick()).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, well);
    canaries(&handle, is_in(CanaryPhase::Split)).await;
    rig.registry.script(Rule::any("/v2/").status(500));
    let seen = canaries(&handle, |it| {
        is_in(CanaryPhase::Promoting)(it) && !it.canaries[0].message.is_empty()
    })
    .await;
    assert!(seen.canaries[0].message.contains("REGISTRY_UNAVAILABLE"), "{seen:?}");
    assert_eq!(rig.registry.digest("team/churn", "latest"), Some(live));
    rig.registry.behave();
    canaries(&handle, decided(CanaryOutcome::Promoted)).await;
    assert_eq!(rig.registry.digest("team/churn", "latest"), Some(canary));
}

#[tokio::test]
async fn a_label_that_cannot_be_used_refuses_the_canary_and_leaves_live_alone() {
    let (rig, handle, live) = started(&quick()).await;
    let label = r#"{"confidence": 7}"#;
    let canary = rig.push_labelled("churn", "latest_canary", &model(2), label);
    let seen = canaries(&handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!(seen.decisions[0].outcome, CanaryOutcome::Refused);
    assert_eq!(seen.decisions[0].canary, canary);
    for part in ["CANARY_INVALID", "confidence"] {
        assert!(seen.canaries[0].message.contains(part), "{}", seen.canaries[0].message);
    }
    assert_eq!(serving(&handle).await, live);
    // The next canary is tried independently.
    let label = r#"{"ramp": {"share": 0.25}}"#;
    rig.push_labelled("churn", "latest_canary", &model(3), label);
    let _traffic = traffic(&handle, well);
    let seen = canaries(&handle, is_in(CanaryPhase::Split)).await;
    assert_eq!(seen.canaries[0].share, 0.25);
}

#[tokio::test]
async fn a_missing_canary_and_one_that_is_live_are_quiet() {
    let (rig, handle, _) = started(&quick()).await;
    rig.registry.forget_requests();
    let path = "/v2/team/churn/manifests/latest_canary";
    rig.requested(|it| it.count("HEAD", path) >= 2).await;
    let tags: Vec<_> = handle.models().models[&name("churn")].tags.keys().cloned().collect();
    assert_eq!(tags, [latest()], "a canary that is not there is no tag");
    let live = rig.registry.digest("team/churn", "latest").expect("it is there");
    rig.registry.tag("team/churn", "latest_canary", live);
    until(&handle, |it| it.models[&name("churn")].tags.len() == 2).await;
    assert_eq!(handle.canaries().borrow().canaries, []);
    assert_eq!(acquire(&handle, "churn").await.expect("served").arm(), Arm::Live);
}

#[tokio::test]
async fn keys_keep_their_arm_and_the_trial_goes_on_in_the_next_process() {
    let settings = with(quick(), "minimumTime", json!("3600s"));
    let (mut rig, handle, _) = started(&settings).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let running = traffic(&handle, well);
    let before = canaries(&handle, |it| {
        is_in(CanaryPhase::Split)(it)
            && it.canaries[0].verdict.as_ref().is_some_and(|verdict| verdict.canary > 100)
    })
    .await;
    drop(running);
    let before = before.canaries[0].verdict.clone().expect("it was split");
    let (first, counted) = arms(&handle).await;
    assert!(first.values().filter(|arm| **arm == Arm::Canary).count() > 50);
    assert!(counted > 190, "{counted}: hardly any of them passes for another");
    drop(handle);
    rig.stop().await;
    let handle = rig.start();
    let after = canaries(&handle, is_in(CanaryPhase::Split)).await;
    until(&handle, |it| stage(it, "churn", canary) == Some(Stage::Available)).await;
    canaries(&handle, |it| it.canaries[0].verdict.is_some()).await;
    assert_eq!(arms(&handle).await, (first, 0), "each key has counted before");
    let seen = canaries(&handle, |it| it.canaries[0].verdict.is_some()).await;
    let verdict = seen.canaries[0].verdict.as_ref().expect("judged");
    assert!(verdict.canary >= before.canary && verdict.live >= before.live, "{after:?}");
}

#[tokio::test]
async fn a_person_decides_too_and_is_remembered() {
    let settings = with(quick(), "minimumTime", json!("3600s"));
    let (mut rig, handle, live) = started(&settings).await;
    let none = handle.decide(&name("churn"), &latest(), Act::Abort, somebody()).await;
    assert_eq!(none.expect_err("there is none").reason, Reason::CanaryNotFound);
    rig.push("churn", "latest_canary", &model(2));
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
    let started = SystemTime::now();
    handle.decide(&name("churn"), &latest(), Act::Abort, somebody()).await.expect("aborted");
    let seen = canaries(&handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!(seen.canaries[0].message, "ada: a hunch");
    assert!(seen.decisions[0].at >= started);
    drop(handle);
    rig.stop().await;
    let handle = rig.start();
    let seen = canaries(&handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!((seen.decisions[0].by.as_str(), seen.canaries[0].share), ("ada", 0.0));
    assert_eq!(serving(&handle).await, live);
}

#[tokio::test]
async fn a_promotion_by_hand_goes_on_in_the_next_process() {
    let settings = with(quick(), "minimumTime", json!("3600s"));
    let (mut rig, handle, _) = started(&settings).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
    rig.registry.script(Rule::on("PUT", "/manifests/").status(500));
    handle.decide(&name("churn"), &latest(), Act::Promote, somebody()).await.expect("promoting");
    canaries(&handle, |it| it.canaries.first().is_some_and(|it| !it.message.is_empty())).await;
    drop(handle);
    rig.stop().await;
    rig.registry.behave();
    let handle = rig.start();
    let seen = canaries(&handle, decided(CanaryOutcome::Promoted)).await;
    assert_eq!((seen.decisions[0].by.as_str(), seen.decisions[0].canary), ("ada", canary));
    assert_eq!(rig.registry.digest("team/churn", "latest"), Some(canary));
}

#[tokio::test]
async fn a_recommendation_is_given_once() {
    let settings = with(quick(), "mode", json!("MODE_RECOMMEND"));
    let (mut rig, handle, _) = started(&settings).await;
    rig.push("churn", "latest_canary", &model(2));
    let running = traffic(&handle, well);
    canaries(&handle, is_in(CanaryPhase::Recommended)).await;
    drop(running);
    drop(handle);
    rig.stop().await;
    let handle = rig.start();
    let seen =
        canaries(&handle, |it| it.canaries.first().is_some_and(|canary| canary.verdict.is_some()))
            .await;
    assert_eq!(seen.canaries[0].phase, CanaryPhase::Recommended);
    assert_eq!(seen.decisions.len(), 1);
}

#[tokio::test]
async fn a_recommended_canary_waits_for_a_person() {
    let settings = with(quick(), "mode", json!("MODE_RECOMMEND"));
    let (rig, handle, live) = started(&settings).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, well);
    let seen = canaries(&handle, is_in(CanaryPhase::Recommended)).await;
    assert_eq!(seen.decisions[0].outcome, CanaryOutcome::Recommended);
    assert_eq!(seen.canaries[0].share, 0.5, "the trial goes on");
    assert_eq!(rig.registry.digest("team/churn", "latest"), Some(live));
    handle.decide(&name("churn"), &latest(), Act::Promote, somebody()).await.expect("promoted");
    let seen = canaries(&handle, decided(CanaryOutcome::Promoted)).await;
    assert_eq!(seen.decisions[0].by, "ada");
    assert_eq!(rig.registry.digest("team/churn", "latest"), Some(canary));
}

#[tokio::test]
async fn a_canary_promoted_here_alone_is_live_in_the_next_process_too() {
    let settings = with(quick(), "mode", json!("MODE_LOCAL"));
    let (mut rig, handle, live) = started(&settings).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let running = traffic(&handle, well);
    canaries(&handle, decided(CanaryOutcome::Promoted)).await;
    drop(running);
    assert_eq!(serving(&handle).await, canary);
    assert_eq!(rig.registry.digest("team/churn", "latest"), Some(live));
    drop(handle);
    rig.stop().await;
    rig.registry.forget_requests();
    let handle = rig.start();
    while rig.registry.count("HEAD", "/v2/team/churn/manifests/latest") < 2 {
        assert_eq!(serving(&handle).await, canary);
    }
    assert_eq!(serving(&handle).await, canary);
}

#[tokio::test]
async fn a_live_tag_that_moves_ends_the_trial_and_begins_another() {
    let settings = with(quick(), "minimumTime", json!("3600s"));
    let (rig, handle, _) = started(&settings).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, well);
    canaries(&handle, is_in(CanaryPhase::Split)).await;
    let next = rig.push("churn", "latest", &model(3));
    let seen = canaries(&handle, |it| {
        it.canaries.first().is_some_and(|canary| canary.live == Some(next))
            && is_in(CanaryPhase::Split)(it)
    })
    .await;
    assert_eq!(seen.decisions[0].outcome, CanaryOutcome::Superseded);
    assert_eq!(seen.canaries[0].canary, canary);
}

#[tokio::test]
async fn the_canarys_own_tag_and_digests_are_never_split() {
    let settings = with(quick(), "minimumTime", json!("3600s"));
    let (rig, handle, live) = started(&settings).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, well);
    canaries(&handle, is_in(CanaryPhase::Split)).await;
    let digest = outrigger_core::Selector::Digest(live);
    for _ in 0..50 {
        for (selector, expected) in [(&tag("latest_canary"), canary), (&digest, live)] {
            let deadline = Instant::now() + PATIENCE;
            let lease = handle.acquire(&name("churn"), selector, "", deadline).await;
            let lease = lease.expect("served");
            assert_eq!((lease.arm(), lease.key.digest), (Arm::Pinned, expected));
            assert!(!lease.is_tried() && lease.stand_in().is_none());
        }
    }
}

#[tokio::test]
async fn live_stands_in_for_a_canary_and_for_nothing_else() {
    let settings = with(quick(), "minimumTime", json!("3600s"));
    let (rig, handle, live) = started(&settings).await;
    rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, well);
    canaries(&handle, is_in(CanaryPhase::Split)).await;
    for _ in 0..50 {
        let lease = acquire(&handle, "churn").await.expect("served");
        let stand_in = lease.stand_in();
        assert_eq!(stand_in.is_some(), lease.arm() == Arm::Canary);
        let Some(stand_in) = stand_in else { continue };
        assert_eq!((stand_in.arm(), stand_in.key.digest), (Arm::Live, live));
        assert_eq!(stand_in.tag(), lease.tag());
        assert!(!stand_in.is_counted() && stand_in.stand_in().is_none());
    }
}
