//! A rig for tests: an engine, a registry, a store, and the lifecycle between them.

use std::{path::Path, sync::Arc, time::Duration};

use bytesize::ByteSize;
use outrigger_core::{
    Backoff, Digest, EngineId, Failure, LayerKind, ModelName, Selector, Stage, Tag, Tensor,
};
use outrigger_forest::XGBOOST;
use outrigger_lifecycle::{
    By, Canaries, CanaryOutcome, CanaryPhase, Config, EngineView, Engines, Handle, Images, Lease,
    Retry, Snapshot, Tunables, VersionView, Watch, start,
};
use outrigger_proto::outrigger::v1::PredictRequest;
use outrigger_store::Store;
use outrigger_testkit::{
    engine::FakeEngine,
    layers::package_layer,
    linear::LINEAR,
    registry::{LayerBlob, Registry},
    remote::SCRIPTED,
    saved_model::{Linear, Model},
};
use outrigger_tfserving::{Engine, Settings, TENSORFLOW, machine};
use tempfile::TempDir;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

/// A time limit long enough for every event on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The patience with an engine that answers every call.
pub(crate) const ANSWERING: Duration = Duration::from_secs(3);

/// The patience with an engine that will not answer.
pub(crate) const SILENT: Duration = Duration::from_millis(300);

/// Makes an engine and its name, for each start of the process.
pub(crate) type MakeEngine =
    Arc<dyn Fn() -> (EngineId, Arc<dyn outrigger_run::Engine>) + Send + Sync>;

pub(crate) struct Rig {
    pub(crate) registry: Arc<Registry>,
    pub(crate) engine: FakeEngine,
    pub(crate) config: Config,
    /// The deadline of status calls and reloads.
    pub(crate) engine_timeout: Duration,
    /// The most that the store may hold.
    pub(crate) store_size: ByteSize,
    /// Makes the other engines.
    pub(crate) beside: Vec<MakeEngine>,
    pub(crate) dir: TempDir,
    running: Option<(Handle, JoinSet<()>)>,
}

pub(crate) fn name(text: &str) -> ModelName {
    text.parse().expect("a valid name")
}

pub(crate) fn tag(text: &str) -> Selector {
    Selector::Tag(text.parse::<Tag>().expect("a valid tag"))
}

/// A model with two features; each bias gives another digest.
pub(crate) fn model(bias: u16) -> Model {
    Linear { user: vec![1.0], treatment: vec![0.5, 2.0], bias: f32::from(bias) }.model()
}

impl Rig {
    pub(crate) async fn new() -> Self {
        // A second installation fails, which does no harm.
        rustls::crypto::ring::default_provider().install_default().ok();
        let registry = Arc::new(Registry::start().await);
        let repository = format!("{}/team", registry.host());
        let config = Config {
            images: Images {
                repository: Some(repository.clone()),
                poll_interval: Duration::from_millis(50),
                ..Config::default().images
            },
            tunables: Tunables { allowed: vec![repository], ..Tunables::default() },
            retry: Retry { first: Duration::from_millis(20), most: Duration::from_millis(200) },
            engine: Watch { gate_timeout: PATIENCE, ..Watch::default() },
            pull_turn: PATIENCE,
            ..Config::default()
        };
        let engine = FakeEngine::tcp().expect("a free port");
        let dir = TempDir::new().expect("a directory");
        Self {
            registry,
            engine,
            config,
            engine_timeout: ANSWERING,
            store_size: ByteSize::gib(20),
            beside: Vec::new(),
            dir,
            running: None,
        }
    }

    /// A second engine, store and process with the same registry.
    pub(crate) fn beside(&self) -> Self {
        Self {
            registry: Arc::clone(&self.registry),
            engine: FakeEngine::tcp().expect("a free port"),
            config: self.config.clone(),
            engine_timeout: self.engine_timeout,
            store_size: self.store_size,
            beside: self.beside.clone(),
            dir: TempDir::new().expect("a directory"),
            running: None,
        }
    }

    /// A running rig, with `churn:latest` in the registry.
    pub(crate) async fn started() -> (Self, Handle) {
        Self::new().await.serving()
    }

    /// A running rig whose engine will not answer every call.
    pub(crate) async fn started_with_silent_engine() -> (Self, Handle) {
        Self { engine_timeout: SILENT, ..Self::new().await }.serving()
    }

    fn serving(mut self) -> (Self, Handle) {
        self.push("churn", "latest", &model(1));
        let handle = self.start();
        (self, handle)
    }

    pub(crate) fn start(&mut self) -> Handle {
        assert!(self.running.is_none(), "it runs already");
        let client = outrigger_oci::Client::new(outrigger_oci::Config {
            plain_http: vec![self.registry.host().to_owned()],
            credentials: outrigger_oci::Credentials {
                docker_config: None,
                helper_timeout: Duration::from_secs(1),
                identity: None,
            },
            retries: outrigger_oci::Retries { attempts: 1, ..outrigger_oci::Retries::default() },
            timeouts: outrigger_oci::Timeouts { least: 1, ..outrigger_oci::Timeouts::default() },
            ..outrigger_oci::Config::default()
        });
        let client_of_engine = outrigger_tfserving::Client::connect(outrigger_tfserving::Config {
            reload_timeout: self.engine_timeout,
            status_timeout: self.engine_timeout,
            ..outrigger_tfserving::Config::new(self.engine.endpoint())
        });
        let store = Store::open(outrigger_store::Config {
            layouts: outrigger_run::layouts(&[TENSORFLOW, LINEAR, SCRIPTED, XGBOOST]),
            max_size: self.store_size,
            ..outrigger_store::Config::new(self.store_path())
        });
        let (client, store) = (client.expect("a valid configuration"), store.expect("a store"));
        let Retry { first, most } = self.config.retry;
        let policy = machine::Policy {
            busy_probe: Duration::from_millis(5),
            steady_probe: Duration::from_millis(20),
            patience: self.config.engine.patience,
            backoff: Backoff { first, most },
            ..machine::Policy::default()
        };
        let settings = Settings { policy, ..Settings::default() };
        let serving = store.serving(&EngineId::default(), None).expect("a directory");
        let engine =
            Engine::new(client_of_engine.expect("a valid configuration"), serving, settings);
        let mut engines = Engines::from([(EngineId::default(), Arc::new(engine) as Arc<_>)]);
        engines.extend(self.beside.iter().map(|make| make()));
        let (handle, service) =
            start(self.config.clone(), client, store, engines).expect("a valid configuration");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { service.run().await.expect("it runs") });
        self.running = Some((handle.clone(), tasks));
        handle
    }

    /// Stops the running process in good order.
    pub(crate) async fn stop(&mut self) {
        let (handle, mut tasks) = self.running.take().expect("it runs");
        handle.shutdown(PATIENCE).await;
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no panic");
        }
    }

    /// Ends the running process as a crash would.
    pub(crate) async fn crash(&mut self) {
        let (_, mut tasks) = self.running.take().expect("it runs");
        tasks.shutdown().await;
        // A crash also ends blocking work; in this test it has to end by itself.
        let mut looks = tokio::time::interval(Duration::from_millis(5));
        let config = outrigger_store::Config::new(self.store_path());
        while let Err(outrigger_store::Error::Locked(_)) = Store::open(config.clone()) {
            looks.tick().await;
        }
    }

    pub(crate) fn store_path(&self) -> std::path::PathBuf {
        self.dir.path().join("store")
    }

    /// Waits until requests have brought the registry into this condition.
    pub(crate) async fn requested(&self, condition: impl Fn(&Registry) -> bool) {
        let reached = timeout(PATIENCE, self.registry.until(condition)).await;
        reached
            .unwrap_or_else(|_| panic!("it never came to that: {:#?}", self.registry.requests()));
    }

    /// Pushes a model to the registry; returns its digest.
    pub(crate) fn push(&self, name: &str, tag: &str, model: &Model) -> Digest {
        let metadata = model.metadata.to_string();
        self.push_layer(name, tag, package_layer(metadata.as_bytes(), &model.encode()))
    }

    pub(crate) fn push_layer(
        &self,
        name: &str,
        tag: &str,
        layer: outrigger_testkit::layers::LayerBuilder,
    ) -> Digest {
        let layer = LayerBlob::tar(layer.build(LayerKind::Tar).bytes);
        self.registry.push_image(&format!("team/{name}"), tag, &[layer], "{}")
    }

    /// Pushes a model with a label for its trial.
    pub(crate) fn push_labelled(
        &self,
        name: &str,
        tag: &str,
        model: &Model,
        label: &str,
    ) -> Digest {
        let metadata = model.metadata.to_string();
        let layer = package_layer(metadata.as_bytes(), &model.encode());
        let layer = LayerBlob::tar(layer.build(LayerKind::Tar).bytes);
        let labels = serde_json::json!({"config": {"Labels": {"dev.outrigger.canary": label}}});
        self.registry.push_image(&format!("team/{name}"), tag, &[layer], labels.to_string())
    }

    /// The number of versions in the store's `serving` directory, without placeholders.
    pub(crate) fn links(&self) -> usize {
        let links = |dir: &Path| {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            entries.filter(|entry| entry.path().is_symlink()).count()
        };
        let serving = std::fs::read_dir(self.store_path().join("serving"));
        serving.into_iter().flatten().flatten().map(|entry| links(&entry.path())).sum()
    }
}

/// The view of the only engine.
pub(crate) fn engine(snapshot: &Snapshot) -> EngineView {
    snapshot.engines.get(&EngineId::default()).cloned().unwrap_or_default()
}

pub(crate) async fn acquire(handle: &Handle, model: &str) -> Result<Lease, Failure> {
    acquire_within(handle, model, PATIENCE).await
}

pub(crate) async fn acquire_within(
    handle: &Handle,
    model: &str,
    time: Duration,
) -> Result<Lease, Failure> {
    handle.acquire(&name(model), &tag("latest"), "", Instant::now() + time).await
}

/// Waits until the snapshot satisfies `condition`.
pub(crate) async fn until(handle: &Handle, condition: impl Fn(&Snapshot) -> bool) {
    let mut watch = handle.watch();
    let reached = watch.wait_for(|snapshot| condition(snapshot));
    match timeout(PATIENCE, reached).await {
        Ok(reached) => drop(reached.expect("lifecycle runs")),
        Err(_) => panic!("it never came to that: {:#?}", handle.models()),
    }
}

pub(crate) fn version(snapshot: &Snapshot, model: &str, digest: Digest) -> Option<VersionView> {
    snapshot.models.get(&name(model))?.versions.get(&digest).cloned()
}

pub(crate) fn stage(snapshot: &Snapshot, model: &str, digest: Digest) -> Option<Stage> {
    version(snapshot, model, digest).map(|version| version.stage)
}

/// Waits until the canaries satisfy `condition`.
pub(crate) async fn canaries(
    handle: &Handle,
    condition: impl Fn(&Canaries) -> bool,
) -> Arc<Canaries> {
    let mut watch = handle.canaries();
    let reached = timeout(PATIENCE, watch.wait_for(|it| condition(it))).await;
    match reached {
        Ok(reached) => reached.expect("lifecycle runs").clone(),
        Err(_) => panic!("it never came to that: {:#?}", handle.canaries().borrow()),
    }
}

/// A condition: the last decision had that outcome.
pub(crate) fn decided(outcome: CanaryOutcome) -> impl Fn(&Canaries) -> bool {
    move |it| it.decisions.front().is_some_and(|decision| decision.outcome == outcome)
}

/// A condition: the first canary is in that phase.
pub(crate) fn is_in(phase: CanaryPhase) -> impl Fn(&Canaries) -> bool {
    move |it| it.canaries.first().is_some_and(|canary| canary.phase == phase)
}

pub(crate) fn somebody() -> By {
    By { who: "ada".to_owned(), why: "a hunch".to_owned() }
}

/// Predicts with the servable of `lease`, as a request would.
pub(crate) async fn predict(lease: &Lease) -> Result<Vec<Tensor>, Failure> {
    run(lease, &lease.scorer.plan.smoke_request()).await
}

/// Scores `request` with the servable of `lease`.
pub(crate) async fn run(lease: &Lease, request: &PredictRequest) -> Result<Vec<Tensor>, Failure> {
    let request = prost::Message::encode_to_vec(request);
    let mut packed = lease.scorer.pack(&request).expect("a valid request");
    lease.scorer.score(&mut packed, Instant::now() + PATIENCE).await
}
