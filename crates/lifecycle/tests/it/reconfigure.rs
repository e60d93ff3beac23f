//! Changes of the configuration at run time: models are added and removed, and tunables change.

use std::time::Duration;

use outrigger_core::{Digest, EngineId, Reason, Selector, Stage};
use outrigger_lifecycle::{CanaryPhase, Error, Handle, ModelEntry, Tunables};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::rig::{
    PATIENCE, Rig, acquire, canaries, is_in, model, name, predict, stage, tag, until,
};

/// The deadline of a request under load; a bring-up takes longer on a busy machine.
const SOON: Duration = Duration::from_secs(10);

pub(crate) fn entry(model: &str) -> ModelEntry {
    ModelEntry {
        name: name(model),
        image: None,
        directory: None,
        preload: true,
        tag: None,
        digest: None,
        engine: None,
        rollover: Default::default(),
    }
}

impl Rig {
    fn image(&self, repository: &str) -> Option<String> {
        Some(format!("{}/{repository}", self.registry.host()))
    }

    fn listing(&self, models: &[ModelEntry]) -> Tunables {
        Tunables { models: models.to_vec(), ..self.config.tunables.clone() }
    }
}

/// A rig without a repository for models that are not listed.
async fn only(models: &[ModelEntry]) -> Rig {
    let mut rig = Rig::new().await;
    rig.config.images.repository = None;
    rig.config.tunables.models = models.to_vec();
    rig
}

fn named(rig: &Rig, model: &str) -> ModelEntry {
    ModelEntry { image: rig.image(&format!("team/{model}")), ..entry(model) }
}

async fn reconfigure(handle: &Handle, tunables: Tunables) {
    handle.reconfigure(tunables).await.expect("it is valid");
}

/// The digest that requests for `model` without a tag get.
async fn answering(handle: &Handle, model: &str) -> Digest {
    let selector = handle.default_selector(&name(model));
    let lease = handle.acquire(&name(model), &selector, "", Instant::now() + PATIENCE).await;
    lease.expect("served").key.digest
}

async fn until_answered_by(handle: &Handle, model: &str, digest: Digest) {
    let mut watch = handle.watch();
    while answering(handle, model).await != digest {
        tokio::time::timeout(PATIENCE, watch.changed()).await.expect("in time").expect("it runs");
    }
}

/// Requests for a model, one after another, until it is ended; counts the answers.
struct Load {
    stop: watch::Sender<bool>,
    task: JoinHandle<usize>,
}

impl Load {
    fn on(handle: &Handle, model: &str) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (handle, model) = (handle.clone(), name(model));
        let task = tokio::spawn(async move {
            let mut answered = 0;
            while !*stopped.borrow() {
                let selector = handle.default_selector(&model);
                let lease = handle.acquire(&model, &selector, "", Instant::now() + SOON).await;
                predict(&lease.expect("a lease")).await.expect("an answer");
                answered += 1;
            }
            answered
        });
        Self { stop, task }
    }

    /// Ends the load; panics if a request failed.
    async fn end(self) -> usize {
        self.stop.send_replace(true);
        self.task.await.expect("no request fails")
    }
}

#[tokio::test]
async fn models_come_go_and_change_under_load_without_a_failure() {
    let mut rig = only(&[]).await;
    let first = rig.push("churn", "latest", &model(1));
    let other = rig.push("other", "latest", &model(2));
    rig.push("offer", "latest", &model(3));
    let churn = named(&rig, "churn");
    rig.config.tunables.models = vec![churn.clone()];
    let handle = rig.start();
    assert_eq!(answering(&handle, "churn").await, first);
    let load = Load::on(&handle, "churn");
    let tunables = rig.listing(&[churn.clone(), named(&rig, "offer")]);
    reconfigure(&handle, tunables).await;
    acquire(&handle, "offer").await.expect("it is listed");
    reconfigure(&handle, rig.listing(std::slice::from_ref(&churn))).await;
    let gone = acquire(&handle, "offer").await.expect_err("it is not listed any more");
    assert_eq!(gone.reason, Reason::ModelNotFound);
    let moved = ModelEntry { image: rig.image("team/other"), ..churn };
    reconfigure(&handle, rig.listing(&[moved])).await;
    until_answered_by(&handle, "churn", other).await;
    assert!(load.end().await > 0);
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_request_under_way_ends_after_its_model_was_removed() {
    let mut rig = only(&[]).await;
    let digest = rig.push("churn", "latest", &model(1));
    rig.config.tunables.models = vec![named(&rig, "churn")];
    let handle = rig.start();
    let lease = acquire(&handle, "churn").await.expect("served");
    reconfigure(&handle, rig.listing(&[])).await;
    let gone = acquire(&handle, "churn").await.expect_err("it is not listed any more");
    assert_eq!(gone.reason, Reason::ModelNotFound);
    predict(&lease).await.expect("it was there when the request came");
    drop(lease);
    until(&handle, |it| stage(it, "churn", digest) <= Some(Stage::Downloaded)).await;
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_removed_model_is_answered_like_any_that_was_never_listed() {
    let mut rig = Rig::new().await;
    let own = rig.push("own", "latest", &model(1));
    let shared = rig.push("churn", "latest", &model(2));
    rig.config.tunables.models =
        vec![ModelEntry { image: rig.image("team/own"), ..entry("churn") }, entry("plain")];
    rig.push("plain", "latest", &model(3));
    let handle = rig.start();
    assert_eq!(answering(&handle, "churn").await, own);
    let plain = answering(&handle, "plain").await;
    reconfigure(&handle, rig.listing(&[])).await;
    assert_eq!(answering(&handle, "churn").await, shared);
    assert_eq!(answering(&handle, "plain").await, plain);
}

#[tokio::test]
async fn an_invalid_set_changes_nothing_and_names_its_fault() {
    let mut rig = Rig::new().await;
    rig.push("churn", "latest", &model(1));
    rig.config.tunables.models = vec![entry("churn")];
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("served");
    let twice = rig.listing(&[entry("offer"), entry("offer")]);
    let allowed = Tunables { allowed: vec!["no prefix".to_owned()], ..rig.listing(&[]) };
    let image = ModelEntry { image: Some("not an image".to_owned()), ..entry("offer") };
    for (tunables, at) in [
        (twice, "models[1]"),
        (allowed, "images.allowed[0]"),
        (rig.listing(&[entry("churn"), image]), "models[1].image"),
    ] {
        match handle.reconfigure(tunables).await {
            Err(Error::Config { key, .. }) => assert_eq!(key, at),
            other => panic!("{at}: {other:?}"),
        }
    }
    acquire(&handle, "churn").await.expect("served as before");
    rig.stop().await;
    let stopped = handle.reconfigure(rig.listing(&[])).await;
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
}

#[tokio::test]
async fn another_default_answers_once_it_is_up() {
    let mut rig = Rig::new().await;
    let first = rig.push("churn", "latest", &model(1));
    let handle = rig.start();
    assert_eq!(answering(&handle, "churn").await, first);
    let load = Load::on(&handle, "churn");
    let v2 = ModelEntry {
        preload: false,
        tag: Some("v2".parse().expect("a valid tag")),
        ..entry("churn")
    };
    reconfigure(&handle, rig.listing(&[v2])).await;
    assert_eq!(answering(&handle, "churn").await, first, "there is no v2 yet");
    let second = rig.push("churn", "v2", &model(2));
    until_answered_by(&handle, "churn", second).await;
    let third = rig.push("churn", "unnamed", &model(3));
    let pinned = ModelEntry { digest: Some(third), ..entry("churn") };
    reconfigure(&handle, rig.listing(&[pinned])).await;
    until_answered_by(&handle, "churn", third).await;
    assert!(load.end().await > 0);
    assert_eq!(handle.default_selector(&name("churn")), Selector::Digest(third));
}

#[tokio::test]
async fn a_model_that_is_not_preloaded_any_more_idles_away_and_its_times_change_too() {
    let mut rig = Rig::new().await;
    let digest = rig.push("churn", "latest", &model(1));
    rig.config.tunables.models = vec![entry("churn")];
    let handle = rig.start();
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
    let (idle_ttl, retain) = (Duration::from_millis(300), Duration::from_secs(3600));
    let short = Tunables { idle_ttl, retain, ..rig.listing(&[entry("churn")]) };
    reconfigure(&handle, short.clone()).await;
    sleep(idle_ttl * 2).await;
    assert_eq!(stage(&handle.models(), "churn", digest), Some(Stage::Available), "preloaded");
    reconfigure(&handle, Tunables { models: Vec::new(), ..short.clone() }).await;
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Downloaded)).await;
    reconfigure(&handle, short).await;
    until(&handle, |it| stage(it, "churn", digest) == Some(Stage::Available)).await;
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn a_model_that_loses_its_permission_stops_and_returns_with_it() {
    let (rig, handle) = Rig::started().await;
    acquire(&handle, "churn").await.expect("served");
    let elsewhere = vec![format!("{}/other", rig.registry.host())];
    reconfigure(&handle, Tunables { allowed: elsewhere, ..rig.listing(&[]) }).await;
    let refused = acquire(&handle, "churn").await.expect_err("not allowed");
    assert_eq!(refused.reason, Reason::ImageNotAllowed);
    reconfigure(&handle, rig.listing(&[])).await;
    acquire(&handle, "churn").await.expect("allowed again");
}

#[tokio::test]
async fn the_next_process_takes_over_a_changed_configuration() {
    let mut rig = Rig::new().await;
    let digest = rig.push("offer", "v2", &model(2));
    rig.push("churn", "latest", &model(1));
    rig.config.tunables.models = vec![entry("churn")];
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("served");
    let v2 = ModelEntry { tag: Some("v2".parse().expect("a valid tag")), ..entry("offer") };
    rig.config.tunables = rig.listing(&[v2]);
    reconfigure(&handle, rig.config.tunables.clone()).await;
    let lease = handle.acquire(&name("offer"), &tag("v2"), "", Instant::now() + PATIENCE).await;
    let before = lease.expect("served").scorer.id.clone();
    drop(handle);
    rig.stop().await;
    let handle = rig.start();
    let lease = handle.acquire(&name("offer"), &tag("v2"), "", Instant::now() + PATIENCE).await;
    let lease = lease.expect("adopted");
    assert_eq!((lease.scorer.id.clone(), lease.key.digest), (before, digest));
    assert_eq!(rig.engine.violations(), []);
}

#[tokio::test]
async fn canaries_that_are_switched_off_pause_and_go_on() {
    let (rig, handle) = Rig::started().await;
    rig.push("churn", "latest_canary", &model(2));
    acquire(&handle, "churn").await.expect("served");
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
    let mut off = rig.listing(&[]);
    off.canary.enabled = false;
    reconfigure(&handle, off).await;
    canaries(&handle, |it| it.canaries.is_empty()).await;
    reconfigure(&handle, rig.listing(&[])).await;
    canaries(&handle, is_in(CanaryPhase::WarmingUp)).await;
}

#[tokio::test]
async fn a_model_follows_the_engine_that_is_named_for_it() {
    let mut rig = Rig::new().await;
    rig.push("churn", "latest", &model(1));
    rig.config.tunables.models = vec![entry("churn")];
    let handle = rig.start();
    acquire(&handle, "churn").await.expect("served");
    let elsewhere = ModelEntry { engine: Some(EngineId::new("elsewhere")), ..entry("churn") };
    reconfigure(&handle, rig.listing(&[elsewhere])).await;
    let refused = acquire(&handle, "churn").await.expect_err("there is no such engine");
    assert_eq!(refused.reason, Reason::EngineNotChosen);
    reconfigure(&handle, rig.listing(&[entry("churn")])).await;
    let lease = acquire(&handle, "churn").await.expect("served");
    assert_eq!(lease.engine, EngineId::default());
    assert_eq!(rig.engine.violations(), []);
}
