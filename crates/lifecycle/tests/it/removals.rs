//! Tests of canaries whose tag is removed from the registry.

use outrigger_canary::Layer;
use outrigger_core::{Digest, Selector, Stage};
use outrigger_lifecycle::{Act, Canaries, CanaryOutcome, CanaryPhase, Handle};
use outrigger_testkit::registry::{Gate, Request, Rule};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    canaries::{quick, started, traffic, well, with},
    rig::{
        PATIENCE, Rig, acquire, canaries, decided, is_in, model, name, somebody, stage, tag, until,
    },
};

const LIVE: &str = "/manifests/latest";
const CANARY: &str = "/manifests/latest_canary";
const GONE: &str = "the canary's tag was removed";

/// Starts a process with `churn:latest` served, and a canary whose trial never ends by itself.
async fn tried() -> (Rig, Handle, Digest, Digest) {
    let settings = with(quick(), "minimumTime", json!("3600s"));
    let (rig, handle, live) = started(&settings).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
    (rig, handle, live, canary)
}

fn remove(rig: &Rig) {
    rig.registry.remove_tag("team/churn", "latest_canary");
}

/// Waits for that number of requests to the registry whose path ends exactly so.
async fn asked(rig: &Rig, method: &str, path: &str, times: usize) {
    let is_meant = |it: &Request| it.method == method && it.path.ends_with(path);
    rig.requested(|it| it.requests().iter().filter(|it| is_meant(it)).count() >= times).await;
}

fn outcomes(seen: &Canaries) -> Vec<(CanaryOutcome, &str)> {
    seen.decisions.iter().map(|it| (it.outcome, it.by.as_str())).collect()
}

#[tokio::test]
async fn a_trial_ends_with_the_canarys_tag() {
    let (mut rig, handle, live, canary) = tried().await;
    let running = traffic(&handle, well);
    canaries(&handle, is_in(CanaryPhase::Split)).await;
    remove(&rig);
    let seen = canaries(&handle, |it| it.canaries.is_empty()).await;
    assert_eq!(outcomes(&seen), [(CanaryOutcome::Superseded, "registry")]);
    let decision = &seen.decisions[0];
    assert_eq!((decision.live, decision.canary), (Some(live), canary));
    assert_eq!(decision.reason, GONE);
    assert!(decision.verdict.is_some(), "what was known stays known");
    for _ in 0..100 {
        assert_eq!(acquire(&handle, "churn").await.expect("served").key.digest, live);
    }
    until(&handle, |it| stage(it, "churn", canary) == Some(Stage::Downloaded)).await;
    // A process that cannot reach the registry does not bring the canary back.
    drop((running, handle));
    rig.stop().await;
    rig.registry.script(Rule::any("/v2/").status(503));
    let handle = rig.start();
    assert_eq!(acquire(&handle, "churn").await.expect("served").key.digest, live);
    assert_eq!(handle.canaries().borrow().canaries, []);
    // The same digest, pushed again, gets a new trial.
    rig.registry.behave();
    rig.registry.tag("team/churn", "latest_canary", canary);
    let seen = canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
    assert_eq!((seen.canaries[0].canary, seen.decisions.len()), (canary, 1));
}

#[tokio::test]
async fn a_trial_ends_with_the_whole_repository() {
    let (rig, handle, live, _) = tried().await;
    let unknown = r#"{"errors": [{"code": "NAME_UNKNOWN", "message": "no"}]}"#;
    rig.registry.script(Rule::any("/v2/team/churn/").status(404).body(unknown));
    let seen = canaries(&handle, decided(CanaryOutcome::Superseded)).await;
    assert_eq!(seen.decisions[0].reason, GONE);
    assert_eq!(acquire(&handle, "churn").await.expect("served").key.digest, live);
}

#[tokio::test]
async fn an_uncertain_answer_ends_no_trial() {
    let (rig, handle, ..) = tried().await;
    // The tag is removed, so that a call to the registry could not find it either.
    remove(&rig);
    for status in [401, 403, 404, 429, 500, 503] {
        rig.registry.behave();
        rig.registry.script(Rule::any(CANARY).status(status));
        rig.registry.forget_requests();
        asked(&rig, "HEAD", CANARY, 3).await;
        assert!(is_in(CanaryPhase::WarmingUp)(&handle.canaries().borrow()), "{status}");
    }
    // The removal is certain, but not whether the canary was promoted.
    rig.registry.behave();
    rig.registry.script(Rule::any(CANARY));
    rig.registry.script(Rule::any(LIVE).status(503));
    rig.registry.forget_requests();
    asked(&rig, "HEAD", LIVE, 4).await;
    assert!(is_in(CanaryPhase::WarmingUp)(&handle.canaries().borrow()));
    assert_eq!(handle.canaries().borrow().decisions, []);
    rig.registry.behave();
    canaries(&handle, decided(CanaryOutcome::Superseded)).await;
}

#[tokio::test]
async fn a_canary_promoted_by_others_who_remove_its_tag_is_promoted() {
    let (rig, handle, _, canary) = tried().await;
    // The next answer about the live tag was made before the tag is moved.
    let gate = Gate::new();
    rig.registry.script(Rule::any(CANARY));
    rig.registry.forget_requests();
    rig.registry.script(Rule::head(LIVE).times(1).answered_after(&gate));
    asked(&rig, "HEAD", LIVE, 1).await;
    rig.registry.tag("team/churn", "latest", canary);
    remove(&rig);
    // Only a look-up by the trial itself can show the promotion.
    asked(&rig, "HEAD", LIVE, 2).await;
    gate.open();
    let seen = canaries(&handle, |it| !it.decisions.is_empty()).await;
    assert_eq!(outcomes(&seen), [(CanaryOutcome::Promoted, "registry")]);
    assert_eq!(acquire(&handle, "churn").await.expect("served").key.digest, canary);
    canaries(&handle, |it| it.canaries.is_empty()).await;
}

#[tokio::test]
async fn a_canary_whose_tag_goes_while_we_promote_it_is_promoted() {
    let (rig, handle, _, canary) = tried().await;
    let gate = Gate::new();
    rig.registry.script(Rule::on("PUT", LIVE).times(1).answered_after(&gate));
    let latest = "latest".parse().expect("a valid tag");
    handle.decide(&name("churn"), &latest, Act::Promote, somebody()).await.expect("promoting");
    asked(&rig, "PUT", LIVE, 1).await;
    remove(&rig);
    rig.registry.forget_requests();
    asked(&rig, "HEAD", CANARY, 3).await;
    gate.open();
    let seen = canaries(&handle, |it| !it.decisions.is_empty()).await;
    assert_eq!(outcomes(&seen), [(CanaryOutcome::Promoted, "ada")]);
    assert_eq!(rig.registry.digest("team/churn", "latest"), Some(canary));
}

#[tokio::test]
async fn a_removed_tag_cancels_a_promotion_that_was_not_pushed() {
    let (rig, handle, live, _) = tried().await;
    rig.registry.script(Rule::on("PUT", LIVE).status(403));
    let latest = "latest".parse().expect("a valid tag");
    handle.decide(&name("churn"), &latest, Act::Promote, somebody()).await.expect("promoting");
    canaries(&handle, |it| it.canaries.first().is_some_and(|it| !it.message.is_empty())).await;
    remove(&rig);
    let seen = canaries(&handle, |it| it.canaries.is_empty()).await;
    assert_eq!(outcomes(&seen), [(CanaryOutcome::Superseded, "registry")]);
    rig.registry.behave();
    rig.registry.forget_requests();
    asked(&rig, "HEAD", LIVE, 3).await;
    assert_eq!(rig.registry.count("PUT", LIVE), 0);
    assert_eq!(rig.registry.digest("team/churn", "latest"), Some(live));
}

#[tokio::test]
async fn a_tag_removed_between_two_processes_ends_the_trial() {
    let (mut rig, handle, live, canary) = tried().await;
    drop(handle);
    rig.stop().await;
    remove(&rig);
    let handle = rig.start();
    let seen = canaries(&handle, |it| !it.decisions.is_empty()).await;
    assert_eq!(outcomes(&seen), [(CanaryOutcome::Superseded, "registry")]);
    assert_eq!((seen.decisions[0].live, seen.decisions[0].canary), (Some(live), canary));
    canaries(&handle, |it| it.canaries.is_empty()).await;
}

#[tokio::test]
async fn the_tag_of_another_canary_ends_no_trial() {
    let (rig, handle, _, canary) = tried().await;
    let other = rig.push("churn", "canary", &model(4));
    until(&handle, |it| it.models[&name("churn")].tags.len() == 3).await;
    rig.registry.remove_tag("team/churn", "canary");
    until(&handle, |it| it.models[&name("churn")].tags.len() == 2).await;
    let seen = handle.canaries().borrow().clone();
    assert_eq!((seen.canaries[0].canary, seen.decisions.len()), (canary, 0));
    assert_ne!(other, canary);
}

#[tokio::test]
async fn a_removed_canary_answers_requests_that_name_it() {
    let (rig, handle, _, canary) = tried().await;
    let by_name: Selector = tag("latest_canary");
    let ask = async || {
        let deadline = Instant::now() + PATIENCE;
        handle.acquire(&name("churn"), &by_name, "", deadline).await
    };
    ask().await.expect("served");
    remove(&rig);
    canaries(&handle, decided(CanaryOutcome::Superseded)).await;
    assert_eq!(ask().await.expect("still served").key.digest, canary);
}

#[tokio::test]
async fn a_rejected_canary_is_not_shown_without_its_tag() {
    let mut rig = Rig::new().await;
    rig.config.tunables.canary.defaults = Layer::from_json(&quick()).expect("a configuration");
    rig.push("churn", "latest", &model(1));
    rig.push_labelled("churn", "latest_canary", &model(2), r#"{"confidence": 7}"#);
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("served");
    canaries(&handle, is_in(CanaryPhase::Rejected)).await;
    remove(&rig);
    let seen = canaries(&handle, |it| it.canaries.is_empty()).await;
    assert_eq!(outcomes(&seen), [(CanaryOutcome::Refused, "judge")]);
}
