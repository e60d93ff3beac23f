//! Tests of rollbacks that control planes share through the registry.

use outrigger_canary::Layer;
use outrigger_core::Digest;
use outrigger_lifecycle::{Act, CanaryOutcome, CanaryPhase, Handle};
use outrigger_testkit::registry::Rule;
use serde_json::{Value, json};

use crate::rig::{Rig, acquire, canaries, decided, is_in, model, name, somebody};

const KIND: &str = "application/vnd.outrigger.canary-verdict.v1+json";

/// A registry with `churn:latest` and its canary, and settings for control planes whose trials
/// never end by themselves.
async fn rig(settings: Value) -> (Rig, Digest, Digest) {
    let mut rig = Rig::new().await;
    rig.config.tunables.canary.defaults = Layer::from_json(&settings).expect("a configuration");
    let live = rig.push("churn", "latest", &model(1));
    let canary = rig.push("churn", "latest_canary", &model(2));
    (rig, live, canary)
}

async fn started(rig: &mut Rig) -> Handle {
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("served");
    handle
}

async fn decide(handle: &Handle, act: Act) {
    let tag = "latest".parse().expect("a valid tag");
    handle.decide(&name("churn"), &tag, act, somebody()).await.expect("decided");
}

fn list(digest: Digest) -> String {
    format!("sha256-{}", digest.hex())
}

/// Waits until a verdict is attached to the canary.
async fn verdict_attached(rig: &Rig, canary: Digest) {
    rig.requested(|it| it.digest("team/churn", &list(canary)).is_some()).await;
}

#[tokio::test]
async fn a_rollback_in_one_pod_ends_the_trial_in_others() {
    for lists in [false, true] {
        let (mut first, live, canary) = rig(json!({})).await;
        if lists {
            first.registry.list_referrers();
        }
        let (mut second, mut third) = (first.beside(), first.beside());
        let (one, two) = (started(&mut first).await, started(&mut second).await);
        canaries(&two, is_in(CanaryPhase::WarmingUp)).await;
        canaries(&one, is_in(CanaryPhase::WarmingUp)).await;
        decide(&one, Act::Abort).await;
        let seen = canaries(&two, is_in(CanaryPhase::Rejected)).await;
        let decision = &seen.decisions[0];
        assert_eq!((decision.live, decision.canary), (Some(live), canary));
        assert_eq!(decision.outcome, CanaryOutcome::RolledBack);
        assert_eq!(decision.by, "registry");
        assert_eq!(decision.reason, "rolled back elsewhere by ada: a hunch");
        // A control plane that starts later rolls back too, after both others have stopped.
        first.stop().await;
        second.stop().await;
        let three = started(&mut third).await;
        let seen = canaries(&three, is_in(CanaryPhase::Rejected)).await;
        assert_eq!(seen.canaries[0].message, "registry: rolled back elsewhere by ada: a hunch");
        // A control plane that only follows writes nothing.
        assert_eq!(first.registry.digest("team/churn", &list(canary)).is_none(), lists);
        let uploads = first.registry.count("POST", "/blobs/uploads/");
        assert!((1..=2).contains(&uploads), "{uploads}");
    }
}

#[tokio::test]
async fn a_canary_has_another_chance_against_another_live_version() {
    let (mut first, _, _) = rig(json!({})).await;
    let mut second = first.beside();
    let one = started(&mut first).await;
    canaries(&one, is_in(CanaryPhase::WarmingUp)).await;
    decide(&one, Act::Abort).await;
    let canary = first.registry.digest("team/churn", "latest_canary").expect("pushed");
    verdict_attached(&first, canary).await;
    let next = first.push("churn", "latest", &model(3));
    let two = started(&mut second).await;
    let seen = canaries(&two, is_in(CanaryPhase::WarmingUp)).await;
    assert_eq!((seen.canaries[0].live, seen.canaries[0].canary), (Some(next), canary));
}

#[tokio::test]
async fn a_promotion_in_one_pod_is_followed_and_not_retried_by_others() {
    let (mut first, _, canary) = rig(json!({})).await;
    let mut second = first.beside();
    let one = started(&mut first).await;
    canaries(&one, is_in(CanaryPhase::WarmingUp)).await;
    decide(&one, Act::Promote).await;
    canaries(&one, decided(CanaryOutcome::Promoted)).await;
    verdict_attached(&first, canary).await;
    // In a new process without any state, the promoted version is not replaced by the image that
    // replaces it.
    let next = first.push("churn", "latest", &model(3));
    let two = started(&mut second).await;
    let seen = canaries(&two, is_in(CanaryPhase::Rejected)).await;
    assert_eq!((seen.canaries[0].live, seen.canaries[0].canary), (Some(next), canary));
    assert_eq!(seen.canaries[0].message, "it has been live before");
}

#[tokio::test]
async fn a_starved_trial_of_one_pod_does_not_end_the_others() {
    let (mut first, ..) = rig(json!({"minimumTime": "1s", "maximumTime": "1s"})).await;
    let mut second = first.beside();
    second.config.tunables.canary.defaults = Layer::default();
    let (one, two) = (started(&mut first).await, started(&mut second).await);
    canaries(&two, is_in(CanaryPhase::WarmingUp)).await;
    let seen = canaries(&one, decided(CanaryOutcome::RolledBack)).await;
    assert!(seen.decisions[0].reason.starts_with("it will not be decided in time"));
    // Only the other control plane still looks for verdicts, as long as it finds none.
    first.registry.forget_requests();
    first.requested(|it| it.count("GET", "/referrers/") >= 8).await;
    assert!(is_in(CanaryPhase::WarmingUp)(&two.canaries().borrow()));
}

#[tokio::test]
async fn a_read_only_registry_does_not_prevent_a_rollback() {
    let (mut rig, _, canary) = rig(json!({})).await;
    let handle = started(&mut rig).await;
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
    rig.registry.script(Rule::on("POST", "/uploads/").status(403));
    rig.registry.script(Rule::on("PUT", "/manifests/").status(403));
    decide(&handle, Act::Abort).await;
    let seen = canaries(&handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!(seen.decisions[0].by, "ada");
    rig.requested(|it| it.count("POST", "/uploads/") > 0).await;
    assert_eq!(rig.registry.digest("team/churn", &list(canary)), None);
    acquire(&handle, "churn").await.expect("served");
}

#[tokio::test]
async fn a_local_mode_neither_publishes_nor_reads_verdicts() {
    let (mut rig, live, canary) = rig(json!({"mode": "MODE_LOCAL"})).await;
    let verdict = verdict(live, canary).to_string();
    rig.registry.attach("team/churn", canary, KIND, verdict);
    let before = rig.registry.digest("team/churn", &list(canary));
    let handle = started(&mut rig).await;
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
    decide(&handle, Act::Abort).await;
    let seen = canaries(&handle, is_in(CanaryPhase::Rejected)).await;
    assert_eq!(seen.decisions[0].by, "ada");
    assert_eq!(rig.registry.count("GET", "/referrers/"), 0);
    assert_eq!(rig.registry.digest("team/churn", &list(canary)), before);
}

#[tokio::test]
async fn unrelated_artifacts_are_not_read_as_verdicts() {
    let (mut rig, live, canary) = rig(json!({})).await;
    let changed = |key: &str, value: Value| {
        let mut verdict = verdict(live, canary);
        verdict[key] = value;
        verdict.to_string()
    };
    let other = Digest::of(b"other").to_string();
    let garbage = [
        "not json".to_owned(),
        "{}".to_owned(),
        "[".repeat(10_000),
        "x".repeat(100_000),
        changed("live", json!(other)),
        changed("canary", json!(other)),
        changed("tag", json!("other")),
        changed("tag", json!("../../etc")),
        changed("outcome", json!("superseded")),
    ];
    for document in garbage {
        rig.registry.attach("team/churn", canary, KIND, document);
    }
    rig.registry.attach(
        "team/churn",
        canary,
        "application/example",
        verdict(live, canary).to_string(),
    );
    let handle = started(&mut rig).await;
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
    rig.registry.forget_requests();
    rig.requested(|it| it.count("GET", "/referrers/") >= 3).await;
    assert_eq!(handle.canaries().borrow().canaries[0].phase, CanaryPhase::WarmingUp);
    // The valid verdict is found among all of them, and its text is sanitised.
    let said = changed("reason", json!(format!("\u{1b}[31m{}", "y".repeat(5000))));
    rig.registry.attach("team/churn", canary, KIND, said);
    let seen = canaries(&handle, is_in(CanaryPhase::Rejected)).await;
    let reason = &seen.decisions[0].reason;
    assert!(reason.starts_with("rolled back elsewhere by judge: [31my"), "{reason}");
    assert!(reason.len() < 1100 && !reason.contains('\u{1b}'));
}

fn verdict(live: Digest, canary: Digest) -> Value {
    json!({
        "tag": "latest", "live": live.to_string(), "canary": canary.to_string(),
        "outcome": "rolled_back", "by": "judge", "reason": "it is slow",
    })
}
