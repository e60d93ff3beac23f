//! Tests of models loaded on request.

use std::{fs, time::Duration};

use outrigger_core::{Arm, Reason, Selector, Stage, Step};
use outrigger_lifecycle::{Handle, ModelEntry};
use outrigger_testkit::{
    engine::{Gate, Loading, Predicting, row_sums},
    registry,
    saved_model::package_dir,
};
use tokio::time::Instant;

use crate::rig::{PATIENCE, Rig, acquire, acquire_within, model, name, predict, stage, tag, until};

#[tokio::test]
async fn a_model_is_loaded_when_it_is_asked_for() {
    let (rig, handle) = Rig::started().await;
    let digest = rig.registry.digest("team/churn", "latest").expect("pushed");
    let lease = acquire(&handle, "churn").await.expect("it can be had");
    assert_eq!((lease.key.digest, lease.arm()), (digest, Arm::Live));
    assert_eq!(lease.tag().map(ToString::to_string), Some("latest".to_owned()));
    predict(&lease).await.expect("it answers");
    assert!(handle.try_acquire(&name("churn"), &tag("latest"), "").is_some());
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_digest_is_served_as_pinned() {
    let (rig, handle) = Rig::started().await;
    let digest = rig.push("churn", "old", &model(7));
    let selector = Selector::Digest(digest);
    let deadline = Instant::now() + PATIENCE;
    let lease = handle.acquire(&name("churn"), &selector, "", deadline).await.expect("served");
    assert_eq!((lease.key.digest, lease.arm(), lease.tag()), (digest, Arm::Pinned, None));
}

#[tokio::test]
async fn preloaded_models_come_up_by_themselves_and_make_it_ready() {
    let mut rig = Rig::new().await;
    let digest = rig.push("churn", "stable", &model(1));
    rig.config.tunables.models = vec![ModelEntry {
        name: name("c"),
        image: Some(format!("{}/team/churn", rig.registry.host())),
        directory: None,
        preload: true,
        tag: Some("stable".parse().expect("valid")),
        digest: None,
        engine: None,
        rollover: Default::default(),
    }];
    let handle = rig.start();
    assert_eq!(handle.default_selector(&name("c")), tag("stable"));
    until(&handle, |snapshot| snapshot.ready).await;
    assert_eq!(stage(&handle.models(), "c", digest), Some(Stage::Available));
}

#[tokio::test]
async fn a_slow_model_delays_no_other() {
    let (rig, handle) = Rig::started_with_silent_engine().await;
    rig.push("slow", "latest", &model(2));
    let gate = Gate::closed();
    let held = gate.clone();
    rig.engine.on_load(move |load| {
        let placeholder = !load.path.is_symlink();
        let slow = load.name.starts_with("slow") && !placeholder;
        if slow { Loading::Held(held.clone()) } else { Loading::Normal }
    });
    let waiting = acquire_within(&handle, "slow", Duration::from_millis(1)).await;
    assert_eq!(waiting.expect_err("it is slow").reason, Reason::ModelLoading);
    let digest = rig.registry.digest("team/slow", "latest").expect("pushed");
    until(&handle, |it| stage(it, "slow", digest) == Some(Stage::Loaded)).await;
    for other in ["churn", "b", "c"] {
        rig.push(other, "latest", &model(3));
        acquire(&handle, other).await.expect("not held up");
    }
    gate.open();
    acquire(&handle, "slow").await.expect("slow, but there");
    assert_eq!(rig.engine.violations(), []);
}

/// Waits until versions are in this step, and in no other.
async fn until_only_in(handle: &Handle, step: Option<Step>) {
    until(handle, |it| it.steps.keys().eq(step.as_ref())).await;
}

#[tokio::test]
async fn a_version_that_hangs_is_seen_in_the_step_that_it_hangs_in() {
    let (rig, handle) = Rig::started_with_silent_engine().await;
    acquire(&handle, "churn").await.expect("served");
    until_only_in(&handle, None).await;
    let registry = registry::Gate::new();
    let layers = registry::Rule::get("team/slow/blobs/").answered_after(&registry);
    rig.registry.script(layers);
    let (loads, answers) = (Gate::closed(), Gate::closed());
    let held = loads.clone();
    rig.engine.on_load(move |load| match load.name.starts_with("slow") {
        true if load.path.is_symlink() => Loading::Held(held.clone()),
        _ => Loading::Normal,
    });
    let held = answers.clone();
    rig.engine.on_predict(move |prediction| {
        Predicting::Held(held.clone(), Box::new(row_sums(prediction)))
    });
    rig.push("slow", "latest", &model(2));
    let waiting = acquire_within(&handle, "slow", Duration::from_millis(1)).await;
    assert_eq!(waiting.expect_err("it hangs").reason, Reason::ModelLoading);
    until_only_in(&handle, Some(Step::Pull)).await;
    registry.open();
    until_only_in(&handle, Some(Step::Load)).await;
    loads.open();
    until_only_in(&handle, Some(Step::Gate)).await;
    answers.open();
    let lease = acquire(&handle, "slow").await.expect("slow, but there");
    until_only_in(&handle, None).await;
    handle.unload(&name("slow"), &tag("latest"), false).await.expect("known");
    until_only_in(&handle, Some(Step::Drain)).await;
    drop(lease);
    until_only_in(&handle, None).await;
}

#[tokio::test]
async fn models_of_one_image_share_one_pull() {
    let mut rig = Rig::new().await;
    rig.push("churn", "latest", &model(1));
    let image = Some(format!("{}/team/churn", rig.registry.host()));
    let entry = |text: &str| ModelEntry {
        name: name(text),
        image: image.clone(),
        directory: None,
        preload: true,
        tag: None,
        digest: None,
        engine: None,
        rollover: Default::default(),
    };
    rig.config.tunables.models = vec![entry("a"), entry("b"), entry("c")];
    let handle = rig.start();
    until(&handle, |snapshot| snapshot.ready).await;
    let blobs = rig.registry.requests();
    let blobs: Vec<_> = blobs.iter().filter(|it| it.path.contains("/blobs/")).collect();
    // The image's configuration and its layer.
    assert_eq!(blobs.len(), 2, "{blobs:?}");
}

#[tokio::test]
async fn a_lease_keeps_its_servable_in_the_engine() {
    let (rig, handle) = Rig::started().await;
    let lease = acquire(&handle, "churn").await.expect("served");
    let digest = lease.key.digest;
    handle.unload(&name("churn"), &tag("latest"), true).await.expect("known");
    until(&handle, |it| {
        crate::rig::version(it, "churn", digest).is_some_and(|it| it.activity == "draining")
    })
    .await;
    predict(&lease).await.expect("it is there still");
    drop(lease);
    until(&handle, |it| stage(it, "churn", digest).is_none_or(|it| it == Stage::New)).await;
    assert_eq!(rig.links(), 0, "its files are deleted after its links");
    let lease = acquire(&handle, "churn").await.expect("a request brings it back");
    predict(&lease).await.expect("it answers");
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn demand_while_draining_brings_the_same_servable_back() {
    let (_rig, handle) = Rig::started().await;
    let lease = acquire(&handle, "churn").await.expect("served");
    handle.unload(&name("churn"), &tag("latest"), false).await.expect("known");
    let again = acquire(&handle, "churn").await.expect("served");
    assert_eq!(again.scorer.id, lease.scorer.id);
    drop((lease, again));
    handle.unload(&name("churn"), &tag("latest"), false).await.expect("known");
    let digest_gone = |it: &outrigger_lifecycle::Snapshot| {
        it.models[&name("churn")].versions.values().all(|it| it.stage == Stage::Downloaded)
    };
    until(&handle, digest_gone).await;
}

/// Pushes the contents of a directory named `data` into an image layout, from which models are then
/// pulled.
async fn push_to_layout(rig: &mut Rig, name: &str) {
    let layout = format!("oci:{}", rig.dir.path().join("images").display());
    let reference: outrigger_oci::Reference =
        format!("{layout}/{name}:latest").parse().expect("valid");
    let client = outrigger_oci::Client::new(Default::default()).expect("a client");
    let data = rig.dir.path().join("data");
    let layouts = outrigger_run::layouts(&[outrigger_tfserving::TENSORFLOW]);
    let image =
        outrigger_oci::build::image_from_dir(&data, Default::default(), &layouts).expect("built");
    client.push(&reference, &image).await.expect("pushed");
    rig.config.images.repository = Some(layout.clone());
    rig.config.tunables.allowed = vec![layout];
}

#[tokio::test]
async fn images_in_a_layout_directory_need_no_registry() {
    let mut rig = Rig::new().await;
    package_dir(&rig.dir.path().join("data"), &model(1)).expect("written");
    push_to_layout(&mut rig, "churn").await;
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("served");
}

#[tokio::test]
async fn a_models_batching_parameters_lie_where_the_engine_loads_it() {
    const PARAMETERS: &str = "max_batch_size { value: 64 }\n";
    let mut rig = Rig::new().await;
    let data = rig.dir.path().join("data");
    let directory = data.join("tensorflow_serving_model/model");
    package_dir(&data, &model(1)).expect("written");
    fs::write(directory.join("batching_params.pbtxt"), PARAMETERS).expect("written");
    push_to_layout(&mut rig, "plain").await;
    // Exporters write such a numeric directory.
    fs::rename(&directory, data.join("7")).expect("moved");
    fs::create_dir(&directory).expect("made");
    fs::rename(data.join("7"), directory.join("7")).expect("moved");
    push_to_layout(&mut rig, "numbered").await;
    let (loads, mut loaded) = tokio::sync::mpsc::unbounded_channel();
    rig.engine.on_load(move |load| {
        if load.path.is_symlink() {
            let file = load.path.join("batching_params.pbtxt");
            loads.send(fs::read_to_string(file).ok()).expect("awaited");
        }
        Loading::Normal
    });
    let handle = rig.start();
    for name in ["plain", "numbered"] {
        acquire(&handle, name).await.expect("served");
        assert_eq!(loaded.recv().await, Some(Some(PARAMETERS.to_owned())), "{name}");
    }
}
