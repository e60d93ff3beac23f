//! Tests that slow registries and unknown names of some models do not hold up others.

use std::time::Duration;

use outrigger_core::{LayerKind, Reason};
use outrigger_testkit::{
    layers::package_layer,
    registry::{Gate, LayerBlob, Rule},
};

use crate::rig::{Rig, acquire, acquire_within, model, name, until};

/// A time in which no model comes up.
const MOMENT: Duration = Duration::from_millis(1);

/// The files of an image: its manifest, its configuration and its layer.
const FILES: usize = 3;

/// A rig in which every repository of the registry is a model.
async fn open_rig() -> Rig {
    let mut rig = Rig::new().await;
    rig.config.images.repository = Some(rig.registry.host().to_owned());
    rig.config.tunables.allowed = vec![rig.registry.host().to_owned()];
    rig
}

#[tokio::test]
async fn slow_pulls_hold_up_neither_other_tenants_nor_models_in_service() {
    let mut rig = open_rig().await;
    rig.push("churn", "latest", &model(1));
    let handle = rig.start();
    acquire(&handle, "team/churn").await.expect("served");
    let gate = Gate::new();
    rig.registry.script(Rule::get("/v2/team/slow").pause_after(0, &gate));
    for number in 0..8 {
        let slow = format!("slow-{number}");
        rig.push(&slow, "latest", &model(10 + number));
        let waiting = acquire_within(&handle, &format!("team/{slow}"), MOMENT).await;
        assert_eq!(waiting.expect_err("it hangs").reason, Reason::ModelLoading);
    }
    let half = rig.config.pull_concurrency / 2;
    rig.requested(|registry| registry.count("GET", "/v2/team/slow") == half).await;
    let other = model(2);
    let layer = package_layer(other.metadata.to_string().as_bytes(), &other.encode());
    let layer = LayerBlob::tar(layer.build(LayerKind::Tar).bytes);
    rig.registry.push_image("other/model", "latest", &[layer], "{}");
    acquire(&handle, "other/model").await.expect("another tenant has places left");
    let next = rig.push("churn", "latest", &model(3));
    let serving = |it: &outrigger_lifecycle::Snapshot| {
        let mut tags = it.models[&name("team/churn")].tags.values();
        tags.any(|tag| tag.serving == Some(next))
    };
    until(&handle, serving).await;
    assert_eq!(rig.registry.count("GET", "/v2/team/slow"), half, "no more are pulled meanwhile");
    gate.open();
    for number in 0..8 {
        acquire(&handle, &format!("team/slow-{number}")).await.expect("slow, but there");
    }
}

/// Eight models of a caller whose layers stop in the middle, beside one that does not.
async fn slow_of_one_caller(rig: &mut Rig) -> (outrigger_lifecycle::Handle, Gate) {
    let gate = Gate::new();
    rig.registry.script(Rule::get("/v2/team/slow").pause_after(4096, &gate));
    rig.push("quick", "latest", &model(1));
    let handle = rig.start();
    for number in 0..8 {
        let name = format!("slow-{number}");
        rig.push(&name, "latest", &model(10 + number));
        let waiting = acquire_within(&handle.by(1), &format!("team/{name}"), MOMENT).await;
        waiting.expect_err("it hangs");
    }
    rig.requested(|registry| registry.count("GET", "/v2/team/slow") >= 3 * FILES).await;
    (handle, gate)
}

#[tokio::test]
async fn slow_pulls_of_one_caller_do_not_hold_up_those_of_others_in_its_part_of_the_registry() {
    let mut rig = open_rig().await;
    let (handle, gate) = slow_of_one_caller(&mut rig).await;
    acquire(&handle.by(2), "team/quick").await.expect("a place is left");
    assert_eq!(rig.registry.count("GET", "/v2/team/slow"), 3 * FILES, "no more meanwhile");
    gate.open();
}

#[tokio::test]
async fn pulls_that_drip_give_way_to_the_next_of_their_caller_and_go_on_later() {
    let mut rig = open_rig().await;
    rig.config.pull_turn = Duration::from_millis(50);
    let (handle, gate) = slow_of_one_caller(&mut rig).await;
    acquire(&handle.by(1), "team/quick").await.expect("its turn comes");
    gate.open();
    for number in 0..8 {
        acquire(&handle, &format!("team/slow-{number}")).await.expect("slow, but there");
    }
}

#[tokio::test]
async fn a_pull_that_takes_too_long_fails_and_gives_its_place_back() {
    let mut rig = open_rig().await;
    rig.config.pull_concurrency = 1;
    rig.config.pull_timeout = Duration::from_millis(200);
    let slow = rig.push("slow", "latest", &model(1));
    rig.push("quick", "latest", &model(2));
    let gate = Gate::new();
    rig.registry.script(Rule::get("/v2/team/slow/blobs/").pause_after(0, &gate));
    let handle = rig.start();
    let waiting = acquire_within(&handle, "team/slow", MOMENT).await;
    assert_eq!(waiting.expect_err("it hangs").reason, Reason::ModelLoading);
    until(&handle, |it| {
        let version = crate::rig::version(it, "team/slow", slow);
        let failure = version.and_then(|version| version.failure).map(|it| it.failure);
        failure.is_some_and(|it| {
            it.reason == Reason::RegistryUnavailable && it.message.contains("took over 200ms")
        })
    })
    .await;
    acquire(&handle, "team/quick").await.expect("the only place is free");
    gate.open();
    acquire(&handle, "team/slow").await.expect("a later pull succeeds");
}

/// Asks for names that do not exist while the registry holds the answers back.
async fn fill_with_unknown_names(rig: &Rig, handle: &outrigger_lifecycle::Handle, gate: &Gate) {
    rig.registry.script(Rule::any("/v2/team/nobody").answered_after(gate));
    for number in 0..rig.config.max_unproven {
        acquire_within(handle, &format!("team/nobody-{number}"), MOMENT).await.expect_err("none");
    }
    until(handle, |it| it.models.len() == rig.config.max_unproven).await;
    let refused = acquire(handle, "team/another").await.expect_err("no place for unknown names");
    assert_eq!(refused.reason, Reason::Overloaded, "{refused}");
}

#[tokio::test]
async fn unknown_names_hold_up_neither_operators_nor_listed_models() {
    let mut rig = open_rig().await;
    rig.config.max_unproven = 8;
    rig.config.tunables.models = vec![outrigger_lifecycle::ModelEntry {
        name: name("team/listed"),
        image: None,
        directory: None,
        preload: false,
        tag: None,
        digest: None,
        engine: None,
        rollover: Default::default(),
    }];
    for (number, model_name) in (1..).zip(["listed", "wanted", "another"]) {
        rig.push(model_name, "latest", &model(number));
    }
    let handle = rig.start();
    let gate = Gate::new();
    fill_with_unknown_names(&rig, &handle, &gate).await;
    acquire(&handle, "team/listed").await.expect("the configuration lists it");
    let deadline = tokio::time::Instant::now() + crate::rig::PATIENCE;
    let loaded = handle.load(&name("team/wanted"), &crate::rig::tag("latest"), deadline).await;
    loaded.expect("an operator wants it");
    gate.open();
    until(&handle, |it| it.models.len() == 2).await;
    acquire(&handle, "team/another").await.expect("the unknown names have their answers");
}

#[tokio::test]
async fn a_name_that_begins_to_exist_is_found_within_the_interval() {
    let (rig, handle) = Rig::started().await;
    let refused = acquire(&handle, "late").await.expect_err("there is none");
    assert_eq!(refused.reason, Reason::ModelNotFound);
    rig.push("late", "latest", &model(2));
    until(&handle, |it| it.models.get(&name("late")).is_none()).await;
    acquire(&handle, "late").await.expect("looked up again");
}

/// A tag that is used all the time stays known, however many others are asked for once.
#[tokio::test]
async fn tags_asked_for_once_do_not_displace_one_in_use() {
    let mut rig = Rig::new().await;
    rig.config.max_tags = 4;
    rig.push("churn", "latest", &model(1));
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("served");
    let digest = rig.registry.digest("team/churn", "latest").expect("pushed");
    for number in 0..20 {
        let once = format!("t{number}");
        rig.registry.tag("team/churn", &once, digest);
        let deadline = tokio::time::Instant::now() + crate::rig::PATIENCE;
        let tag = crate::rig::tag(&once);
        handle.acquire(&name("churn"), &tag, "", deadline).await.expect("the same version");
        let latest = crate::rig::tag("latest");
        handle.try_acquire(&name("churn"), &latest, "").expect("known").expect("served");
    }
    until(&handle, |it| {
        let tags = &it.models[&name("churn")].tags;
        let requested = tags.keys().filter(|tag| !tag.is_canary());
        requested.count() == 4 && tags.keys().any(|tag| tag.as_str() == "latest")
    })
    .await;
}
