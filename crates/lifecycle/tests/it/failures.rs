//! Tests of models that cannot be served, and of the answers to callers.

use std::{
    sync::atomic::{AtomicI32, Ordering::Relaxed},
    time::Duration,
};

use bytesize::ByteSize;
use outrigger_budget::{Budget, Owner};
use outrigger_core::{Digest, Failure, Reason, ServableName};
use outrigger_features::Limits;
use outrigger_lifecycle::{ModelEntry, Retry};
use outrigger_testkit::{
    engine::{Loading, Predicting},
    layers::package_layer,
    registry::Rule,
};
use serde_json::json;
use tokio::time::timeout;
use tonic::Code;

use crate::rig::{PATIENCE, Rig, acquire, acquire_within, model, name, stage, until, version};

/// A wait too long to end during a test.
const LATER: Duration = Duration::from_secs(3600);

async fn refused(handle: &outrigger_lifecycle::Handle, model: &str) -> Failure {
    acquire(handle, model).await.expect_err("it must be refused")
}

#[tokio::test]
async fn names_that_mean_nothing_are_refused_by_their_reasons() {
    let mut rig = Rig::new().await;
    rig.push("churn", "other", &model(1));
    rig.config.tunables.models = vec![ModelEntry {
        name: name("evil"),
        image: Some(format!("{}/team-evil/churn", rig.registry.host())),
        directory: None,
        preload: false,
        tag: None,
        digest: None,
        engine: None,
        rollover: Default::default(),
    }];
    let handle = rig.start();
    assert_eq!(refused(&handle, "nobody").await.reason, Reason::ModelNotFound);
    assert_eq!(refused(&handle, "churn").await.reason, Reason::TagNotFound);
    assert_eq!(refused(&handle, "evil").await.reason, Reason::ImageNotAllowed);
    let digest = outrigger_core::Selector::Digest(outrigger_core::Digest::of(b"nothing"));
    let deadline = tokio::time::Instant::now() + crate::rig::PATIENCE;
    let failure = handle.acquire(&name("churn"), &digest, "", deadline).await;
    assert_eq!(failure.expect_err("no such digest").reason, Reason::DigestNotFound);
}

#[tokio::test]
async fn a_hostile_package_is_refused_and_leaves_nothing() {
    let (rig, handle) = Rig::started().await;
    let good = model(3);
    let layer = package_layer(good.metadata.to_string().as_bytes(), &good.encode());
    rig.push_layer("hostile", "latest", layer.file("data/../../escape", b"x"));
    let failure = refused(&handle, "hostile").await;
    assert_eq!(failure.reason, Reason::ImageInvalid, "{failure}");
    assert!(!rig.dir.path().join("escape").exists());
    acquire(&handle, "churn").await.expect("others are served");
}

#[tokio::test]
async fn a_package_that_no_memory_suffices_for_is_refused_with_the_limit() {
    let mut rig = Rig::new().await;
    rig.config.budget = Budget::new(256 << 20);
    let mut large = model(3);
    large.metadata["annotations"] = serde_json::json!({"notes": "x".repeat(2 << 20)});
    rig.push("large", "latest", &large);
    rig.push("churn", "latest", &model(1));
    let handle = rig.start();
    let failure = refused(&handle, "large").await;
    assert_eq!(failure.reason, Reason::ImageInvalid, "{failure}");
    assert!(failure.message.contains("32.0 MiB for packages"), "{failure}");
    assert_eq!(failure.account, Some("packages"));
    acquire(&handle, "churn").await.expect("others are served");
    assert_eq!(rig.config.budget.packages.used(), 0);
}

#[tokio::test]
async fn a_version_is_listed_while_it_waits_for_memory_to_be_read() {
    let mut rig = Rig::new().await;
    let packages = rig.config.budget.packages.clone();
    let held = packages.wait(Digest::of(b"another"), packages.limit()).await.expect("it is empty");
    let digest = rig.push("churn", "latest", &model(1));
    let handle = rig.start();
    let asking = async { acquire(&handle, "churn").await.map(drop) };
    let watching = async {
        while !packages.is_awaited_by(&digest) {
            tokio::task::yield_now().await;
        }
        drop(held);
    };
    let (served, listed) = tokio::join!(asking, timeout(PATIENCE, watching));
    listed.expect("it waits");
    served.expect("there is room");
    assert!(!packages.is_awaited_by(&digest));
}

/// Three names of models whose memory is counted apart; rarely two share a counter.
fn different_owners() -> [String; 3] {
    let mut names: Vec<String> = Vec::new();
    for name_of in (0..).map(|index| format!("model-{index}")) {
        let owner = |text: &str| Owner::of(&ServableName::of(&name(text)));
        if names.iter().all(|other| owner(other) != owner(&name_of)) {
            names.push(name_of);
        }
        if names.len() == 3 {
            break;
        }
    }
    names.try_into().expect("three names")
}

#[tokio::test]
async fn a_version_without_memory_for_its_plan_waits_until_another_is_unloaded() {
    let mut rig = Rig::new().await;
    // The account of plans has 38.4 MiB. Each version takes 5 MiB of it, and 16 MiB while it is read,
    // which must leave as much to others.
    rig.config.budget = Budget::new(256 << 20);
    let heavy = |bias: u16| {
        let mut heavy = model(bias);
        heavy.metadata["annotations"] = json!({"notes": "x".repeat(340 << 10)});
        heavy
    };
    let [one, two, three] = &different_owners();
    for (name, bias) in [(one, 1), (two, 2), (three, 3)] {
        rig.push(name, "latest", &heavy(bias));
    }
    let handle = rig.start();
    let first = acquire(&handle, one).await.expect("there is room");
    let second = acquire(&handle, two).await.expect("there is room");
    let failure = acquire_within(&handle, three, Duration::from_secs(2)).await;
    let failure = failure.expect_err("there is no room");
    assert_eq!(failure.reason, Reason::MemoryFull, "{failure}");
    assert!(failure.message.contains("plans"), "{failure}");
    assert_eq!(failure.account, Some("plans"));
    let plans = &rig.config.budget.plans;
    let held = plans.used();
    drop(first);
    handle.unload(&name(one), &crate::rig::tag("latest"), false).await.expect("it is known");
    acquire(&handle, three).await.expect("there is room again");
    assert_eq!(plans.used(), held);
    drop(second);
}

#[tokio::test]
async fn a_refused_version_keeps_no_memory_but_its_reason() {
    let (rig, handle) = Rig::started().await;
    acquire(&handle, "churn").await.expect("it is served");
    let plans = &rig.config.budget.plans;
    let before = plans.used();
    assert!(before > 0);
    rig.engine.on_predict(|_| {
        Predicting::Fails(Code::FailedPrecondition, "Could not find variable w".to_owned())
    });
    rig.push("broken", "latest", &model(7));
    let failure = refused(&handle, "broken").await;
    assert_eq!(failure.reason, Reason::GoldenMismatch);
    until(&handle, |_| plans.used() == before).await;
}

#[tokio::test]
async fn files_of_refused_versions_give_way_to_others() {
    let mut rig = Rig::new().await;
    rig.store_size = ByteSize::mib(24);
    let handle = rig.start();
    let push = |name: &str, bias: u16, input: &str| {
        let mut model = model(bias);
        model.metadata["inputs"][0]["tensor"] = input.into();
        let layer = package_layer(model.metadata.to_string().as_bytes(), &model.encode());
        rig.push_layer(name, "latest", layer.file("data/padding", vec![bias as u8; 6 << 20]))
    };
    for bias in 1..=4 {
        let name = format!("wrong-{bias}");
        push(&name, bias, "no_such_input");
        let failure = refused(&handle, &name).await;
        assert_eq!(failure.reason, Reason::ImageInvalid, "{failure}");
    }
    let input = model(5).metadata["inputs"][0]["tensor"].as_str().expect("a name").to_owned();
    push("churn", 5, &input);
    acquire(&handle, "churn").await.expect("there is room");
}

#[tokio::test]
async fn metadata_that_contradicts_the_signature_is_refused() {
    let (rig, handle) = Rig::started().await;
    let mut wrong = model(3);
    wrong.metadata["inputs"][0]["tensor"] = "no_such_input".into();
    rig.push("wrong", "latest", &wrong);
    let failure = refused(&handle, "wrong").await;
    assert_eq!(failure.reason, Reason::ImageInvalid);
    assert!(failure.message.contains("no_such_input"), "{failure}");
}

#[tokio::test]
async fn a_model_that_fails_its_first_request_is_never_routed() {
    let (rig, handle) = Rig::started().await;
    rig.engine.on_predict(|_| {
        Predicting::Fails(Code::FailedPrecondition, "Could not find variable w".to_owned())
    });
    let failure = refused(&handle, "churn").await;
    assert_eq!(failure.reason, Reason::GoldenMismatch);
    assert!(failure.message.contains("Could not find variable"), "{failure}");
    // The version leaves the engine, and is not tried again.
    let digest = rig.registry.digest("team/churn", "latest").expect("pushed");
    let failed = |it: &outrigger_lifecycle::Snapshot| {
        version(it, "churn", digest).is_some_and(|it| it.activity == "failed")
    };
    until(&handle, failed).await;
    let churn = ServableName::of(&name("churn"));
    assert_eq!(rig.engine.available(churn.as_str()).len(), 1, "nothing but the placeholder");
}

#[tokio::test]
async fn golden_cases_that_differ_are_refused_with_their_rows() {
    let (rig, handle) = Rig::started().await;
    let good = model(3);
    let golden = r#"{"request": {"user": {}, "treatments": [{"features": {"t0": 1, "t1": 2}}]}, "expected": {"scores": [17.5]}}"#;
    let layer = package_layer(good.metadata.to_string().as_bytes(), &good.encode());
    rig.push_layer("golden", "latest", layer.file("data/golden.jsonl", golden));
    // The fake engine sums each treatment's features, so its score is 3.
    let failure = refused(&handle, "golden").await;
    assert_eq!(failure.reason, Reason::GoldenMismatch);
    assert!(failure.message.contains("17.5"), "{failure}");
    let layer = package_layer(good.metadata.to_string().as_bytes(), &good.encode());
    let golden = golden.replace("17.5", "3");
    rig.push_layer("golden2", "latest", layer.file("data/golden.jsonl", golden));
    acquire(&handle, "golden2").await.expect("as expected");
}

#[tokio::test]
async fn golden_cases_may_be_as_large_as_the_configured_limits() {
    let mut rig = Rig::new().await;
    let usual = rig.config.limits.load().max_treatments;
    let allow = |most| std::sync::Arc::new(Limits { max_treatments: most, ..Limits::default() });
    rig.config.limits.store(allow(usual + 1));
    let (treatments, scores) =
        (vec![json!({"features": {"t0": 1, "t1": 0}}); usual + 1], vec![1; usual + 1]);
    let case = json!({
        "request": {"user": {}, "treatments": treatments}, "expected": {"scores": scores},
    });
    let large = model(3);
    let layer = package_layer(large.metadata.to_string().as_bytes(), &large.encode());
    rig.push_layer("large", "latest", layer.file("data/golden.jsonl", case.to_string()));
    let handle = rig.start();
    acquire(&handle, "large").await.expect("a request within the limits");
    rig.stop().await;
    rig.config.limits.store(allow(usual));
    let failure = refused(&rig.start(), "large").await;
    assert_eq!(failure.reason, Reason::GoldenMismatch);
    assert!(failure.message.contains("TOO_MANY_TREATMENTS"), "{failure}");
}

#[tokio::test]
async fn a_load_that_failed_is_tried_again_under_a_new_version() {
    let (rig, handle) = Rig::started().await;
    let failed = std::sync::atomic::AtomicBool::new(false);
    rig.engine.on_load(move |load| {
        let first =
            load.path.is_symlink() && !failed.swap(true, std::sync::atomic::Ordering::Relaxed);
        match first {
            true => Loading::Fails(Code::Internal, "not today".to_owned()),
            false => Loading::Normal,
        }
    });
    acquire(&handle, "churn").await.expect("the second try succeeds");
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_load_that_fails_is_held_against_the_model_only_where_that_is_at_fault() {
    let (mut rig, code) = (Rig::new().await, std::sync::Arc::new(AtomicI32::new(0)));
    rig.config.retry = Retry { first: LATER, most: LATER };
    let scripted = std::sync::Arc::clone(&code);
    rig.engine.on_load(move |load| match load.path.is_symlink() {
        true => Loading::Fails(Code::from_i32(scripted.load(Relaxed)), "no load".to_owned()),
        false => Loading::Normal,
    });
    let handle = rig.start();
    let cases = [
        ("missing", Code::NotFound, Reason::ImageInvalid),
        ("truncated", Code::OutOfRange, Reason::ImageInvalid),
        ("rotten", Code::DataLoss, Reason::ImageInvalid),
        ("wrong", Code::InvalidArgument, Reason::ImageInvalid),
        ("unknown-op", Code::Unimplemented, Reason::ImageInvalid),
        ("too-big", Code::ResourceExhausted, Reason::MemoryFull),
        ("cancelled", Code::Cancelled, Reason::EngineFailed),
        ("internal", Code::Internal, Reason::EngineFailed),
    ];
    for (i, (model_name, failing, reason)) in (10..).zip(cases) {
        code.store(failing as i32, Relaxed);
        let digest = rig.push(model_name, "latest", &model(i));
        let failure = refused(&handle, model_name).await;
        assert_eq!(failure.reason, reason, "{failure}");
        assert!(failure.message.contains("no load"), "{failure}");
        // The delay is that of the next attempt; a caller that had waited until the deadline would
        // be advised to retry at once.
        let again = failure.retry_after.map(|it| it > LATER / 4);
        assert_eq!(again, (reason != Reason::ImageInvalid).then_some(true), "{failure:?}");
        let view = version(&handle.models(), model_name, digest).and_then(|it| it.failure);
        assert_eq!(view.map(|it| it.permanent), Some(reason == Reason::ImageInvalid));
        // Later callers get the same answer.
        assert_eq!(refused(&handle, model_name).await.reason, reason);
    }
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_registry_that_is_down_is_waited_for_and_named_at_the_deadline() {
    let (rig, handle) = Rig::started().await;
    rig.registry.script(Rule::any("/v2/").status(503));
    let failure = acquire_within(&handle, "churn", Duration::from_millis(1500)).await;
    let failure = failure.expect_err("the registry is down");
    assert_eq!(failure.reason, Reason::RegistryUnavailable);
    assert!(failure.retry_after.is_some());
    rig.registry.behave();
    acquire(&handle, "churn").await.expect("the registry is back");
}

#[tokio::test]
async fn a_registry_that_denies_is_reported_at_once() {
    let (rig, handle) = Rig::started().await;
    rig.registry.require_password("somebody", "else");
    assert_eq!(refused(&handle, "churn").await.reason, Reason::RegistryDenied);
}

#[tokio::test]
async fn unknown_names_do_not_pile_up() {
    let mut rig = Rig::new().await;
    rig.config.images.repository = None;
    (rig.config.max_unproven, rig.config.max_absent) = (20, 20);
    let handle = rig.start();
    for i in 0..50 {
        let failure = refused(&handle, &format!("nobody-{i}")).await;
        assert_eq!(failure.reason, Reason::ModelNotFound);
    }
    assert!(handle.models().models.len() <= 20);
}

#[tokio::test]
async fn events_of_one_name_cause_no_work_for_others() {
    let mut rig = Rig::new().await;
    // Every look-up updates the view of its model, so look-ups are rare in this test.
    rig.config.images.poll_interval = LATER;
    let handle = rig.start();
    let ask = async |prefix: &str| {
        let names: Vec<_> = (0..20).map(|i| format!("{prefix}-{i}")).collect();
        for name in &names {
            assert_eq!(refused(&handle, name).await.reason, Reason::ModelNotFound);
        }
        let names: Vec<_> = names.iter().map(|it| name(it)).collect();
        until(&handle, |it| names.iter().all(|name| it.models.contains_key(name))).await;
        names
    };
    let names = ask("nobody").await;
    let before = handle.models();
    ask("somebody").await;
    let after = handle.models();
    for name in names {
        let same = std::sync::Arc::ptr_eq(&before.models[&name], &after.models[&name]);
        assert!(same, "{name} was looked at for the sake of others");
    }
}

#[tokio::test]
async fn an_explicit_load_retries_a_permanent_failure() {
    let (rig, handle) = Rig::started().await;
    rig.engine.on_predict(|_| Predicting::Fails(Code::Internal, "broken".to_owned()));
    assert_eq!(refused(&handle, "churn").await.reason, Reason::GoldenMismatch);
    let digest = rig.registry.digest("team/churn", "latest").expect("pushed");
    until(&handle, |it| stage(it, "churn", digest) == Some(outrigger_core::Stage::Downloaded))
        .await;
    rig.engine.on_predict(|prediction| {
        Predicting::Outputs(vec![outrigger_testkit::engine::floats(
            &prediction.outputs[0],
            &[1, 1],
            [1.0],
        )])
    });
    let deadline = tokio::time::Instant::now() + crate::rig::PATIENCE;
    let loaded = handle.load(&name("churn"), &crate::rig::tag("latest"), deadline).await;
    loaded.expect("it works now");
}
