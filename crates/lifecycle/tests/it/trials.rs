//! Tests of the start, pause, continuation and replacement of trials.

use std::time::Duration;

use outrigger_canary::{Layer, Outcome};
use outrigger_core::{Arm, Digest, Reason, Selector, Stage};
use outrigger_lifecycle::{
    Act, Canaries, CanaryOutcome, CanaryPhase, Handle, Snapshot, VerdictView,
};
use outrigger_testkit::engine::{Gate, Loading};
use serde_json::json;

use crate::{
    canaries::{arms, quick, started, traffic, traffic_of, well, with},
    rig::{PATIENCE, Rig, acquire, canaries, decided, is_in, model, name, somebody, stage, until},
};

/// Starts a process with `churn:latest` served, idle after a second, and a judged canary.
async fn tried() -> (Rig, Handle, [Digest; 2], VerdictView) {
    let mut rig = Rig::new().await;
    rig.config.tunables.idle_ttl = Duration::from_secs(1);
    let settings = with(quick(), "minimumTime", json!("3600s"));
    rig.config.tunables.canary.defaults = Layer::from_json(&settings).expect("a configuration");
    let live = rig.push("churn", "latest", &model(1));
    let canary = rig.push("churn", "latest_canary", &model(2));
    let handle = rig.start();
    let _traffic = traffic(&handle, well);
    let seen = canaries(&handle, |it| judged(it).is_some_and(|it| it.canary > 100)).await;
    let verdict = judged(&seen).expect("judged").clone();
    (rig, handle, [live, canary], verdict)
}

fn judged(seen: &Canaries) -> Option<&VerdictView> {
    seen.canaries.first()?.verdict.as_ref()
}

async fn idle(handle: &Handle, digests: [Digest; 2]) {
    for digest in digests {
        until(handle, |it| stage(it, "churn", digest) == Some(Stage::Downloaded)).await;
    }
    waits_for_requests(handle).await;
}

/// Starts the next process, in which the trial is paused as well.
async fn restart(rig: &mut Rig, handle: Handle) -> Handle {
    drop(handle);
    rig.stop().await;
    let handle = rig.start();
    waits_for_requests(&handle).await;
    handle
}

/// Waits until the trial is shown as waiting for a request for its tag.
async fn waits_for_requests(handle: &Handle) {
    let why = "no requests for churn:latest: its trial continues with the next one";
    let seen = canaries(handle, |it| it.canaries.first().is_some_and(|it| it.message == why)).await;
    let canary = &seen.canaries[0];
    assert_eq!((canary.phase, canary.share), (CanaryPhase::Waiting, 0.0));
    assert!(canary.elapsed > Duration::ZERO, "it has been on trial before");
    let latest = "latest".parse().expect("a valid tag");
    let shown = |it: &Snapshot| {
        let canary = it.models.get(&name("churn"))?.tags.get(&latest)?.canary.clone()?;
        Some((canary.tag.to_string(), canary.digest, canary.phase, canary.message))
    };
    let expected =
        ("latest_canary".to_owned(), canary.canary, CanaryPhase::Waiting, why.to_owned());
    until(handle, |it| shown(it) == Some(expected.clone())).await;
}

#[tokio::test]
async fn a_trial_of_an_idle_model_continues_where_it_stopped() {
    for restarted in [false, true] {
        let (mut rig, mut handle, digests, before) = tried().await;
        let (first, counted) = arms(&handle).await;
        assert!(counted > 190, "{counted}: hardly any of them passes for another");
        idle(&handle, digests).await;
        if restarted {
            handle = restart(&mut rig, handle).await;
        }
        let _traffic = traffic(&handle, well);
        canaries(&handle, is_in(CanaryPhase::Split)).await;
        assert_eq!(arms(&handle).await, (first, 0), "each key has counted before");
        let seen = canaries(&handle, |it| judged(it).is_some()).await;
        let after = judged(&seen).expect("judged");
        assert!(after.canary >= before.canary && after.live >= before.live, "{after:?}");
        assert_eq!(seen.decisions, [], "nothing has ended");
    }
}

#[tokio::test]
async fn a_trial_that_waits_for_requests_can_be_aborted_and_stays_so() {
    for restarted in [false, true] {
        let (mut rig, mut handle, digests, _) = tried().await;
        idle(&handle, digests).await;
        if restarted {
            handle = restart(&mut rig, handle).await;
        }
        let latest = "latest".parse().expect("a valid tag");
        let promoting = handle.decide(&name("churn"), &latest, Act::Promote, somebody()).await;
        assert_eq!(promoting.expect_err("nobody asks").reason, Reason::CanaryNotFound);
        handle.decide(&name("churn"), &latest, Act::Abort, somebody()).await.expect("aborted");
        let seen = canaries(&handle, |it| it.canaries.is_empty()).await;
        let decided = seen.decisions.iter().map(|it| (it.outcome, it.by.as_str(), it.canary));
        assert!(decided.eq([(CanaryOutcome::RolledBack, "ada", digests[1])]), "{seen:?}");
        acquire(&handle, "churn").await.expect("served");
        let seen = canaries(&handle, |it| !it.canaries.is_empty()).await;
        assert_eq!((seen.canaries[0].phase, seen.decisions.len()), (CanaryPhase::Rejected, 1));
    }
}

#[tokio::test]
async fn a_trial_without_one_of_its_versions_says_so_and_goes_on() {
    let settings = with(quick(), "minimumTime", json!("3600s"));
    let (rig, handle, _) = started(&settings).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    let running = traffic(&handle, well);
    canaries(&handle, is_in(CanaryPhase::Split)).await;
    drop(running);
    let digest = Selector::Digest(canary);
    handle.unload(&name("churn"), &digest, false).await.expect("known");
    let seen = canaries(&handle, is_in(CanaryPhase::Waiting)).await;
    let view = &seen.canaries[0];
    assert_eq!((view.message.as_str(), view.share), ("the canary was unloaded by hand", 0.0));
    assert!(view.verdict.is_some(), "what was seen is not lost");
    acquire(&handle, "churn").await.expect("live answers");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    handle.load(&name("churn"), &digest, deadline).await.expect("up again");
    let seen = canaries(&handle, is_in(CanaryPhase::Split)).await;
    assert_eq!((seen.canaries[0].share, seen.decisions.len()), (0.5, 0));
}

#[tokio::test]
async fn every_control_plane_gives_a_key_the_same_arm() {
    let mut first = Rig::new().await;
    let settings = with(quick(), "minimumTime", json!("3600s"));
    first.config.tunables.canary.defaults = Layer::from_json(&settings).expect("a configuration");
    first.push("churn", "latest", &model(1));
    first.push("churn", "latest_canary", &model(2));
    let mut second = first.beside();
    let mut seen = Vec::new();
    for rig in [&mut first, &mut second] {
        let handle = rig.start();
        let _traffic = traffic(&handle, well);
        canaries(&handle, is_in(CanaryPhase::Split)).await;
        seen.push(arms(&handle).await.0);
    }
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0].values().any(|arm| *arm == Arm::Canary));
}

#[tokio::test]
async fn a_trial_that_waited_ends_with_the_move_of_the_tag() {
    let (rig, handle, [live, canary], _) = tried().await;
    idle(&handle, [live, canary]).await;
    rig.registry.tag("team/churn", "latest", canary);
    while acquire(&handle, "churn").await.expect("served").key.digest != canary {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let seen = canaries(&handle, decided(CanaryOutcome::Promoted)).await;
    let decision = &seen.decisions[0];
    assert_eq!((decision.live, decision.canary), (Some(live), canary));
    assert_eq!((seen.decisions.len(), decision.by.as_str()), (1, "registry"));
}

#[tokio::test]
async fn a_trial_goes_on_once_live_is_up_as_well() {
    let (mut rig, handle, live) = started(&quick()).await;
    let canary = rig.push("churn", "latest_canary", &model(2));
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
    drop(handle);
    rig.stop().await;
    let gate = Gate::closed();
    let (held, live) = (gate.clone(), live.hex());
    rig.engine.on_load(move |load| match std::fs::read_link(&load.path) {
        Ok(model) if model.iter().any(|it| *it == *live) => Loading::Held(held.clone()),
        _ => Loading::Normal,
    });
    rig.engine.restart().await.expect("it comes back");
    let handle = rig.start();
    until(&handle, |it| stage(it, "churn", canary) == Some(Stage::Available)).await;
    let no_live = "nothing answers for the tag yet";
    let seen = canaries(&handle, |it| {
        let canary = it.canaries.first();
        canary.is_some_and(|it| it.phase != CanaryPhase::Waiting || it.message == no_live)
    })
    .await;
    assert_eq!(seen.canaries[0].phase, CanaryPhase::Waiting);
    gate.open();
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
}

#[tokio::test]
async fn canaries_of_different_models_are_independent() {
    let (rig, handle, _) = started(&quick()).await;
    let upsell = rig.push("upsell", "latest", &model(3));
    acquire(&handle, "upsell").await.expect("served");
    let good = rig.push("churn", "latest_canary", &model(2));
    let bad = rig.push("upsell", "latest_canary", &model(4));
    let _churn = traffic(&handle, well);
    let _upsell = traffic_of("upsell", &handle, move |lease| match lease.key.digest == bad {
        true => Outcome::Failed,
        false => well(lease),
    });
    let seen = canaries(&handle, |it| it.decisions.len() == 2).await;
    let of = |model: &str| {
        let decision = seen.decisions.iter().find(|it| it.model == name(model));
        let decision = decision.expect("decided");
        (decision.canary, decision.outcome, decision.by.as_str())
    };
    assert_eq!(of("churn"), (good, CanaryOutcome::Promoted, "judge"));
    assert_eq!(of("upsell"), (bad, CanaryOutcome::RolledBack, "judge"));
    assert_eq!(rig.registry.digest("team/churn", "latest"), Some(good));
    assert_eq!(rig.registry.digest("team/upsell", "latest"), Some(upsell));
}

#[tokio::test]
async fn a_canary_tag_that_moves_begins_a_trial_that_knows_nothing_of_the_last() {
    let mut settings = with(quick(), "minimumTime", json!("3600s"));
    settings["signals"]["errorRate"] = json!({"tolerance": 0.8, "margin": 0.9});
    let (rig, handle, live) = started(&settings).await;
    let first = rig.push("churn", "latest_canary", &model(2));
    let _traffic = traffic(&handle, move |lease| match lease.key.digest == first {
        true if rand::random_bool(0.5) => Outcome::Failed,
        _ => well(lease),
    });
    let judged_as = |digest: Digest| {
        move |it: &Canaries| {
            let canary = it.canaries.first().filter(|it| it.canary == digest);
            canary.and_then(|it| it.verdict.as_ref()).is_some_and(|it| it.canary > 100)
        }
    };
    let errors = |seen: &Canaries| judged(seen).expect("judged").findings[0].canary;
    let seen = canaries(&handle, judged_as(first)).await;
    assert!(errors(&seen) > 0.0);
    let second = rig.push("churn", "latest_canary", &model(3));
    let seen = canaries(&handle, judged_as(second)).await;
    assert_eq!(errors(&seen), 0.0, "that is what the first one did");
    assert!(arms(&handle).await.1 > 190, "none of the keys has counted");
    // The tag returns to a canary that was not rejected, only replaced.
    rig.registry.tag("team/churn", "latest_canary", first);
    let seen = canaries(&handle, judged_as(first)).await;
    assert!(errors(&seen) > 0.0);
    assert!(arms(&handle).await.1 > 190, "nor in that one");
    let ended = seen.decisions.iter().map(|it| (it.outcome, it.live, it.canary));
    let expected = [second, first].map(|it| (CanaryOutcome::Superseded, Some(live), it));
    assert_eq!(ended.collect::<Vec<_>>(), expected);
}
