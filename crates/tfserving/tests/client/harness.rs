//! A test harness: an engine, its client, and a directory of models.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use outrigger_core::{ServableId, ServableName, Tensor, Version};
use outrigger_testkit::{
    engine::{FakeEngine, floats},
    saved_model::Linear,
};
use outrigger_tfserving::{Call, Client, Config, ServedModel, ServingConfig, Target};
use tempfile::TempDir;
use tokio::time::Instant;

pub(crate) struct Harness {
    pub(crate) engine: FakeEngine,
    pub(crate) client: Arc<Client>,
    pub(crate) dir: TempDir,
}

impl Harness {
    pub(crate) fn tcp(configure: impl FnOnce(&mut Config)) -> Self {
        Self::of(FakeEngine::tcp().expect("listens"), configure)
    }

    pub(crate) fn unix(configure: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let engine = FakeEngine::unix(&dir.path().join("engine.sock")).expect("listens");
        Self { dir, ..Self::of(engine, configure) }
    }

    /// Creates one harness for each kind of transport.
    pub(crate) fn both() -> [Self; 2] {
        [Self::tcp(|_| {}), Self::unix(|_| {})]
    }

    fn of(engine: FakeEngine, configure: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(engine.endpoint());
        // Only a test that expects a timeout runs into this limit.
        config.status_timeout = Duration::from_secs(60);
        config.reload_timeout = Duration::from_secs(60);
        configure(&mut config);
        let client = Arc::new(Client::connect(config).expect("a valid configuration"));
        Self { engine, client, dir: tempfile::tempdir().expect("a directory") }
    }

    /// Writes one version of a model, unless it is there. It appears as a whole: an engine that
    /// already looks for it must not load half of it.
    pub(crate) fn publish(&self, id: &ServableId) {
        let base_path = self.dir.path().join(id.name.as_str());
        let path = base_path.join(id.version.to_string());
        if path.join("saved_model.pb").exists() {
            return;
        }
        let written = tempfile::tempdir_in(self.dir.path()).expect("a directory").keep();
        linear().model().write(&written).expect("written");
        std::fs::create_dir_all(base_path).expect("a directory");
        std::fs::rename(written, path).expect("renamed");
    }

    /// Builds a configuration of these versions.
    pub(crate) fn config(&self, ids: &[ServableId]) -> ServingConfig {
        let mut models = BTreeMap::<_, ServedModel>::new();
        for id in ids {
            let base_path = self.dir.path().join(id.name.as_str());
            let model = models
                .entry(id.name.clone())
                .or_insert_with(|| ServedModel { base_path, versions: Default::default() });
            model.versions.insert(id.version);
        }
        ServingConfig { models }
    }

    /// Publishes versions and waits until they are served.
    pub(crate) async fn serve(&self, ids: &[ServableId]) {
        ids.iter().for_each(|id| self.publish(id));
        self.client.reload(self.config(ids)).await.expect("applied");
        for id in ids {
            self.engine.until_available(id.name.as_str(), id.version.0).await;
        }
    }

    /// Asserts that no call broke the engine's rules.
    pub(crate) fn assert_no_violations(&self) {
        assert_eq!(self.engine.violations(), []);
    }
}

pub(crate) fn linear() -> Linear {
    Linear { user: vec![1.0], treatment: vec![1.0, 1.0], bias: 0.0 }
}

pub(crate) fn id(name: &str, version: i64) -> ServableId {
    let name = ServableName::of(&name.parse().expect("a valid name"));
    ServableId { name, version: Version(version) }
}

pub(crate) fn within(limit: Duration) -> Instant {
    Instant::now() + limit
}

/// A deadline that is long enough for any machine.
pub(crate) fn patient() -> Instant {
    within(Duration::from_secs(60))
}

/// Creates a call of [`linear`] for one user.
pub(crate) fn call(id: &ServableId, treatments: &[[f32; 2]], deadline: Instant) -> Call {
    let count = treatments.len() as i64;
    Call {
        target: Arc::new(Target::new(id.clone(), "serving_default", [], [])),
        inputs: vec![
            floats("user", &[1, 1], [1.0]),
            floats("treatment", &[1, count, 2], treatments.as_flattened().iter().copied()),
            counts(count as i32),
        ],
        outputs: vec!["scores".into()],
        deadline,
        metadata: Default::default(),
    }
}

fn counts(count: i32) -> Tensor {
    let content = outrigger_core::Content::Bytes(count.to_le_bytes().to_vec().into());
    let dtype = outrigger_core::DType::Int32;
    Tensor { name: "treatment_counts".into(), dtype, shape: vec![1], content }
}
