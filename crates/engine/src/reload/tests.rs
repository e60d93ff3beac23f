use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use outrigger_proto::tensorflow::serving::{
    LoggingConfig, ModelConfig, ModelType, ServableVersionPolicy,
    servable_version_policy::{PolicyChoice, Specific},
};

use super::*;
use crate::manager::{self, State};

/// A reloader over a real directory, whose manager ticks and loads on its own thread. A
/// version loads unless its directory contains a file named `broken`.
struct World {
    root: tempfile::TempDir,
    manager: Manager<PathBuf>,
    reloader: Reloader<PathBuf>,
    monitor: Monitor,
    stop: Arc<AtomicBool>,
    ticker: Option<thread::JoinHandle<()>>,
}

struct Fake(PathBuf);

impl Loader<PathBuf> for Fake {
    fn estimate(&self) -> Result<u64, Status> {
        Ok(1)
    }

    fn load(&self) -> Result<PathBuf, Status> {
        if self.0.join("broken").exists() {
            return Err(Status::new(Code::DataLoss, "it is broken"));
        }
        Ok(self.0.clone())
    }

    fn unload(&self, _: PathBuf) {}
}

impl World {
    fn new() -> Self {
        Self::with(Poll::Every(Duration::from_millis(1)), false)
    }

    fn with(poll: Poll, labels_for_unavailable: bool) -> Self {
        let manager = Manager::new(manager::Config {
            load_threads: 2,
            unload_threads: 1,
            max_retries: 0,
            retry_interval: Duration::ZERO,
        });
        let monitor = manager.bus().monitor();
        let config = Config {
            make_loader: Arc::new(|path: &Path| Arc::new(Fake(path.to_owned())) as _),
            poll,
            load_threads: 2,
            labels_for_unavailable,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (ticked, stopped) = (manager.clone(), Arc::clone(&stop));
        let ticker = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                ticked.tick();
                thread::yield_now();
            }
        });
        Self {
            root: tempfile::tempdir().unwrap(),
            reloader: Reloader::new(config, manager.clone(), monitor.clone()),
            manager,
            monitor,
            stop,
            ticker: Some(ticker),
        }
    }

    /// A world after its first configuration, an empty list.
    async fn begun() -> Self {
        let world = Self::new();
        world.apply([]).await.unwrap();
        world
    }

    fn add(&self, model: &str, version: &str) -> PathBuf {
        let path = self.root.path().join(model).join(version);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn add_broken(&self, model: &str, version: &str) {
        fs::write(self.add(model, version).join("broken"), "").unwrap();
    }

    fn model(&self, name: &str) -> ModelConfig {
        ModelConfig {
            name: name.into(),
            base_path: self.root.path().join(name).display().to_string(),
            model_platform: "tensorflow".into(),
            ..ModelConfig::default()
        }
    }

    fn specific(&self, name: &str, versions: &[i64]) -> ModelConfig {
        let specific = Specific { versions: versions.to_vec() };
        let choice = Some(PolicyChoice::Specific(specific));
        let policy = ServableVersionPolicy { policy_choice: choice };
        ModelConfig { model_version_policy: Some(policy), ..self.model(name) }
    }

    async fn apply<const N: usize>(&self, models: [ModelConfig; N]) -> Result<(), Status> {
        self.reloader.apply(config(models)).await
    }

    async fn refused<const N: usize>(&self, models: [ModelConfig; N]) -> Status {
        self.apply(models).await.expect_err("the configuration is refused")
    }

    fn available(&self, name: &str) -> Option<i64> {
        self.manager.handle(name, None).map(|handle| handle.version())
    }

    /// Waits until the version has this state.
    async fn reaches(&self, name: &str, version: i64, state: State) {
        while self.monitor.version(name, version).is_none_or(|now| now.state != state) {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.ticker.take().map(thread::JoinHandle::join);
    }
}

fn config<const N: usize>(models: [ModelConfig; N]) -> ModelServerConfig {
    let list = ModelConfigList { config: models.into() };
    ModelServerConfig { config: Some(Choice::ModelConfigList(list)) }
}

fn labelled(model: ModelConfig, labels: &[(&str, i64)]) -> ModelConfig {
    let labels = labels.iter().map(|(label, version)| ((*label).to_owned(), *version));
    ModelConfig { version_labels: labels.collect(), ..model }
}

#[tokio::test]
async fn a_new_model_is_available_when_the_reload_returns() {
    let world = World::begun().await;
    world.add("a", "3");
    world.apply([world.model("a")]).await.unwrap();
    assert_eq!(world.available("a"), Some(3));
}

#[tokio::test]
async fn an_empty_list_is_accepted_at_once_and_unloads_later() {
    let world = World::begun().await;
    world.add("a", "1");
    world.apply([world.model("a")]).await.unwrap();
    world.apply([]).await.unwrap();
    world.reaches("a", 1, State::End).await;
    assert_eq!(world.available("a"), None);
}

#[tokio::test]
async fn a_model_can_come_back_after_it_was_unloaded() {
    let world = World::begun().await;
    world.add("a", "1");
    world.apply([world.model("a")]).await.unwrap();
    world.apply([]).await.unwrap();
    world.reaches("a", 1, State::End).await;
    // Another load makes the manager tick, so that it drops the old instance.
    world.add("b", "1");
    world.apply([world.model("b")]).await.unwrap();
    world.apply([world.model("a"), world.model("b")]).await.unwrap();
    assert_eq!(world.available("a"), Some(1));
}

#[tokio::test]
async fn a_failed_model_is_named_when_all_others_are_done() {
    let world = World::begun().await;
    world.add("good", "1");
    world.add_broken("bad", "7");
    let failure = world.refused([world.model("good"), world.model("bad")]).await;
    assert_eq!(failure.code, Code::Unknown);
    assert_eq!(
        failure.message,
        "1 model(s) did not become available: {{{name: bad version: 7} due to error: DATA_LOSS: it is broken}, }"
    );
    assert_eq!(world.available("good"), Some(1));
    // The names are not new any more, so the reload neither waits nor reports.
    world.apply([world.model("good"), world.model("bad")]).await.unwrap();
}

#[tokio::test]
async fn a_known_name_is_not_waited_for() {
    let world = World::begun().await;
    world.add("a", "1");
    world.apply([world.specific("a", &[1])]).await.unwrap();
    world.apply([world.specific("a", &[1, 2])]).await.unwrap();
    assert_eq!(world.available("a"), Some(1));
    world.add("a", "2");
    world.reaches("a", 2, State::Available).await;
    world.apply([world.specific("a", &[2])]).await.unwrap();
    world.reaches("a", 1, State::End).await;
    assert_eq!(world.available("a"), Some(2));
}

#[tokio::test]
async fn a_new_name_without_a_base_path_holds_up_every_reload_until_it_is_there() {
    let world = World::begun().await;
    world.add("a", "1");
    let mut missing = Box::pin(world.apply([world.model("missing")]));
    assert!(futures::poll!(&mut missing).is_pending());
    let mut next = Box::pin(world.apply([world.model("a")]));
    assert!(futures::poll!(&mut next).is_pending());
    world.add("missing", "1");
    missing.await.unwrap();
    next.await.unwrap();
    assert_eq!(world.available("a"), Some(1));
}

#[tokio::test]
async fn with_a_single_poll_a_reload_waits_for_ever_for_a_later_model() {
    let world = World::with(Poll::Once, false);
    world.add("a", "1");
    world.apply([world.model("a")]).await.unwrap();
    world.add("b", "1");
    let mut reload = Box::pin(world.apply([world.model("b")]));
    assert!(futures::poll!(&mut reload).is_pending());
    world.reaches("a", 1, State::End).await;
    assert!(futures::poll!(&mut reload).is_pending());
}

#[tokio::test]
async fn an_invalid_list_changes_nothing() {
    let world = World::begun().await;
    world.add("a", "1");
    world.apply([world.model("a")]).await.unwrap();
    let relative = ModelConfig { base_path: "models/b".into(), ..world.model("b") };
    let other = ModelConfig { model_platform: "other".into(), ..world.model("a") };
    for (refused, message) in [
        (
            world.refused([world.model("a"), world.model("a")]).await,
            "Illegal to list model a multiple times",
        ),
        (world.refused([relative]).await, "Expected model b to have an absolute path or URI"),
        (world.refused([other]).await, "Illegal to change a model's platform"),
    ] {
        assert_eq!(refused.code, Code::InvalidArgument);
        assert!(refused.message.starts_with(message), "{}", refused.message);
    }
    assert_eq!(world.available("a"), Some(1));
}

#[tokio::test]
async fn a_platform_must_be_known_and_a_refused_one_is_remembered() {
    let world = World::begun().await;
    world.add("a", "1");
    world.add("b", "1");
    let unknown = ModelConfig { model_platform: "onnx".into(), ..world.model("a") };
    let refused = world.refused([unknown]).await;
    assert_eq!(refused.message, "Model a requests unsupported platform onnx");
    let refused = world.refused([world.model("a")]).await;
    assert_eq!(
        refused.message,
        "Illegal to change a model's platform. For model a platform was onnx and new platform requested is tensorflow"
    );
    world.apply([world.model("b")]).await.unwrap();
    world.apply([world.model("a")]).await.unwrap();
}

#[tokio::test]
async fn after_a_list_without_a_platform_every_list_is_refused() {
    let world = World::begun().await;
    let without = ModelConfig { model_platform: String::new(), ..world.model("a") };
    for models in [[without], [world.model("a")], [world.model("b")]] {
        let refused = world.refused(models).await;
        assert_eq!(refused.code, Code::InvalidArgument);
        let expected = "Illegal setting neither ModelServerConfig::model_type (deprecated) nor \
                        ModelServerConfig::model_platform, model name is a";
        assert_eq!(refused.message, expected);
    }
}

#[tokio::test]
async fn the_deprecated_type_names_a_platform_as_well() {
    let typed = |model_type: ModelType, model: ModelConfig| ModelConfig {
        model_type: model_type.into(),
        ..model
    };
    let world = World::begun().await;
    world.add("a", "1");
    let without = ModelConfig { model_platform: String::new(), ..world.model("a") };
    world.apply([typed(ModelType::Tensorflow, without)]).await.unwrap();
    world.apply([world.model("a")]).await.unwrap();
    let refused = world.refused([typed(ModelType::Tensorflow, world.model("a"))]).await;
    let expected = "Illegal setting both ModelServerConfig::model_type (deprecated) and \
                    ModelServerConfig::model_platform, model name is a";
    assert_eq!(refused.message, expected);
    let world = World::begun().await;
    let without = ModelConfig { model_platform: String::new(), ..world.model("a") };
    let refused = world.refused([typed(ModelType::Other, without)]).await;
    assert_eq!(refused.message, "ModelServerConfig::model_type choice 2 not supported.");
}

#[tokio::test]
async fn a_logged_model_is_loaded_before_the_reload_fails() {
    let world = World::begun().await;
    world.add("a", "1");
    let logged = ModelConfig { logging_config: Some(LoggingConfig {}), ..world.model("a") };
    let refused = world.refused([logged]).await;
    assert_eq!(refused, Status::invalid("No request-logger-creator provided."));
    assert_eq!(world.available("a"), Some(1));
    world.apply([world.model("a")]).await.unwrap();
}

#[tokio::test]
async fn once_a_list_is_in_force_only_a_list_is_accepted() {
    let world = World::new();
    world.reloader.apply(ModelServerConfig::default()).await.unwrap();
    world.apply([]).await.unwrap();
    let refused = world.reloader.apply(ModelServerConfig::default()).await.unwrap_err();
    assert_eq!(refused.code, Code::FailedPrecondition);
}

#[tokio::test]
async fn the_first_configuration_fails_with_its_models() {
    let world = World::new();
    world.add_broken("a", "1");
    let failure = world.refused([world.model("a")]).await;
    assert!(failure.message.starts_with("1 servable(s) did not become"), "{}", failure.message);
}

#[tokio::test]
async fn labels_point_to_available_versions() {
    let world = World::begun().await;
    world.add("a", "1");
    world.add("a", "2");
    world.apply([world.specific("a", &[1, 2])]).await.unwrap();
    world.reaches("a", 1, State::Available).await;
    world.reaches("a", 2, State::Available).await;
    let labels = [("stable", 1), ("next", 2)];
    world.apply([labelled(world.specific("a", &[1, 2]), &labels)]).await.unwrap();
    assert_eq!(world.reloader.label("a", "stable"), Ok(1));
    let absent = labelled(world.specific("a", &[1, 2]), &[("stable", 9)]);
    let refused = world.refused([absent]).await;
    assert_eq!(refused.code, Code::FailedPrecondition);
    assert!(refused.message.contains("not currently available for inference"));
    assert_eq!(world.reloader.label("a", "next"), Ok(2), "the old labels stay");
    world.apply([world.specific("a", &[1, 2])]).await.unwrap();
    let unknown = world.reloader.label("a", "stable").unwrap_err();
    assert_eq!(unknown, Status::invalid("Unrecognized servable version label: stable"));
}

#[tokio::test]
async fn with_the_flag_a_new_label_may_point_anywhere_but_not_an_old_one() {
    let world = World::with(Poll::Every(Duration::from_millis(1)), true);
    let before = world.reloader.label("a", "x").unwrap_err();
    assert_eq!(before.code, Code::Unavailable);
    world.apply([]).await.unwrap();
    world.add("a", "1");
    world.apply([labelled(world.model("a"), &[("x", 5)])]).await.unwrap();
    world.apply([labelled(world.model("a"), &[("x", 5)])]).await.unwrap();
    let moved = world.refused([labelled(world.model("a"), &[("x", 6)])]).await;
    assert_eq!(moved.code, Code::FailedPrecondition);
    assert_eq!(world.reloader.label("a", "x"), Ok(5));
}
