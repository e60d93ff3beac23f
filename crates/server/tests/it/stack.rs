//! Test fixture: a server with a fake engine, and models in image layout directories.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use outrigger_forest::FRAMEWORKS;
use outrigger_oci::{Client, Reference, build};
use outrigger_oip_engine::OIP;
use outrigger_proto::{
    inference::grpc_inference_service_client::GrpcInferenceServiceClient,
    outrigger::v1::{
        FeatureMap, ModelSelector, PredictRequest, Treatment, Value, model_selector::Version,
        model_service_client::ModelServiceClient, predict_request::User,
        prediction_service_client::PredictionServiceClient, value::Kind,
    },
};
use outrigger_server::{Addresses, Kinds, Reload, Running, config::Source};
use outrigger_testkit::{
    engine::{FakeEngine, Gate, Predicting, floats},
    linear::LINEAR,
    package::Package,
    remote::SCRIPTED,
    saved_model::{Linear, Model, package_dir},
};
use outrigger_tfserving::TENSORFLOW;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

/// The name of the model that every test server has.
pub(crate) const MODEL: &str = "offers/spring";

/// A running server with everything that a test needs; dropping it stops the server.
pub(crate) struct Stack {
    pub(crate) engine: FakeEngine,
    pub(crate) addresses: Addresses,
    kinds: Kinds,
    flags: Vec<(String, String)>,
    server: Running,
    directory: TempDir,
}

impl Stack {
    /// Starts a server with [`MODEL`].
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// Starts a server with [`MODEL`] and further settings, in which `{root}` is the server's
    /// directory and `{engine}` the engine's endpoint.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        Self::of(Kinds::shipped(), settings).await
    }

    /// Like [`Self::with`], with engines of `kinds`.
    pub(crate) async fn of(kinds: Kinds, settings: &[(&str, &str)]) -> Self {
        Self::made(kinds, None, settings).await
    }

    /// Like [`Self::with`], with a configuration file of this text.
    pub(crate) async fn with_file(text: &str, settings: &[(&str, &str)]) -> Self {
        Self::made(Kinds::shipped(), Some(text), settings).await
    }

    async fn made(kinds: Kinds, text: Option<&str>, settings: &[(&str, &str)]) -> Self {
        // Another test of this process may have installed the provider already, so an error is
        // ignored.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().expect("a directory");
        let engine = FakeEngine::tcp().expect("an engine");
        publish(directory.path(), MODEL, &linear(0.0)).await;
        let root = directory.path().display().to_string();
        let endpoint = engine.endpoint();
        let usual = [
            ("server.grpc", "127.0.0.1:0"),
            ("server.http", "127.0.0.1:0"),
            ("server.health", "127.0.0.1:0"),
            ("server.admin", "127.0.0.1:0"),
            ("server.shutdown_delay", "1ms"),
            ("engine.endpoint", "{engine}"),
            ("store.path", "{root}/store"),
            ("images.repository", "oci:{root}/models"),
        ];
        let flag = |(key, value): &(&str, &str)| {
            let value = value.replace("{root}", &root).replace("{engine}", &endpoint);
            ((*key).to_owned(), value)
        };
        let named = settings.iter().any(|(key, _)| *key == "engines");
        let usual = usual.iter().filter(|(key, _)| !(named && *key == "engine.endpoint"));
        // Tests of other things make changes without a token.
        let guarded = settings.iter().any(|(key, _)| key.starts_with("auth."));
        let open = [("auth.anonymous", "[predict, read, change]")];
        let usual = usual.chain(open.iter().filter(|_| !guarded));
        let flags: Vec<_> = usual.chain(settings).map(flag).collect();
        let file = text.map(|text| write_config(directory.path(), text));
        let server = start(&kinds, file, &flags);
        Self { engine, addresses: server.addresses(), kinds, flags, server, directory }
    }

    /// Stops the server and starts another one on the same store, without a configuration file
    /// and with these settings in place of others for the same keys.
    pub(crate) async fn restart_with(&mut self, settings: &[(&str, &str)]) {
        for (key, value) in settings {
            self.flags.retain(|(other, _)| other != key);
            self.flags
                .push(((*key).to_owned(), value.replace("{engine}", &self.engine.endpoint())));
        }
        self.restart().await;
    }

    /// Stops the server and starts another one on the same store, without a configuration file.
    pub(crate) async fn restart(&mut self) {
        self.server.stop();
        self.server.ended().await;
        self.server = start(&self.kinds, None, &self.flags);
        self.addresses = self.server.addresses();
    }

    /// A path below the server's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The names in a directory of the store, sorted.
    pub(crate) fn stored(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path().join("store").join(directory));
        let entries = entries.expect("a directory").flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The store's directories for engines, sorted.
    pub(crate) fn servings(&self) -> Vec<String> {
        let names = self.stored("").into_iter();
        names.filter(|name| name.starts_with("serving")).collect()
    }

    /// Replaces the configuration file as the kubelet does, and waits until the change has taken
    /// effect or was refused.
    pub(crate) async fn configure(&self, text: &str) -> Reload {
        let mut reloads = self.server.last_reload();
        reloads.mark_unchanged();
        write_config(self.directory.path(), text);
        next(&mut reloads).await
    }

    /// Reloads the configuration file as SIGHUP does.
    pub(crate) async fn reload(&self) -> Reload {
        let mut reloads = self.server.last_reload();
        reloads.mark_unchanged();
        self.server.reload();
        next(&mut reloads).await
    }

    /// Publishes a model under its default tag; returns the digest.
    pub(crate) async fn publish(&self, name: &str, model: &Model) -> String {
        publish(self.directory.path(), name, model).await
    }

    /// Publishes a model under a tag; returns the digest.
    pub(crate) async fn publish_as(&self, name: &str, tag: &str, model: &Model) -> String {
        publish_as(self.directory.path(), name, tag, model).await
    }

    /// Publishes a model with a profile.json under a tag; returns the digest.
    pub(crate) async fn publish_profiled(
        &self,
        name: &str,
        tag: &str,
        model: &Model,
        profile: &str,
    ) -> String {
        push(self.directory.path(), name, tag, model, Some(profile)).await
    }

    /// Publishes a package of another framework under a tag; returns the digest.
    pub(crate) async fn publish_package(&self, name: &str, tag: &str, package: Package) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        package.write(directory.path()).expect("a package");
        push_dir(self.directory.path(), name, tag, directory.path()).await
    }

    /// Publishes a package with these files, by their paths under `/data`; returns the digest.
    pub(crate) async fn publish_files(
        &self,
        name: &str,
        tag: &str,
        files: &[(String, String)],
    ) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        for (path, content) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().expect("below /data")).expect("a directory");
            std::fs::write(path, content).expect("a file");
        }
        push_dir(self.directory.path(), name, tag, directory.path()).await
    }

    pub(crate) fn predictions(&self) -> PredictionServiceClient<Channel> {
        PredictionServiceClient::new(channel(self.addresses.grpc))
    }

    pub(crate) fn models(&self) -> ModelServiceClient<Channel> {
        ModelServiceClient::new(channel(self.addresses.grpc))
    }

    pub(crate) fn admin(&self) -> ModelServiceClient<Channel> {
        ModelServiceClient::new(channel(self.addresses.admin))
    }

    /// A client of the Open Inference Protocol, whose listener the settings name.
    pub(crate) fn oip(&self) -> GrpcInferenceServiceClient<Channel> {
        let address = self.addresses.oip.expect("server.oip is set");
        GrpcInferenceServiceClient::new(channel(address))
    }

    /// A client of the Open Inference Protocol on the admin listener.
    pub(crate) fn oip_admin(&self) -> GrpcInferenceServiceClient<Channel> {
        GrpcInferenceServiceClient::new(channel(self.addresses.admin))
    }

    /// The URL of a path on the HTTP listener.
    pub(crate) fn http(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses.http)
    }

    /// The status and text of a path on the health listener.
    pub(crate) async fn health(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.addresses.health);
        let answer = reqwest::get(url).await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a text"))
    }

    /// Waits until this many predictions wait for a `version` or a `place`. All servers of the
    /// process count them together.
    pub(crate) async fn until_waiting(&self, waits_for: &str, count: usize) {
        let series = format!("outrigger_requests_waiting{{for=\"{waits_for}\"}} ");
        loop {
            let (_, metrics) = self.health("/metrics").await;
            let waiting = metrics.lines().find_map(|line| line.strip_prefix(&series));
            if waiting.is_some_and(|waiting| waiting.parse().ok() >= Some(count)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Requests the stop of the server.
    pub(crate) fn tell_to_stop(&self) {
        self.server.stop();
    }

    /// Waits until the server has stopped.
    pub(crate) async fn stopped(self) -> Result<(), outrigger_server::Error> {
        self.server.ended().await;
        self.server.join()
    }
}

async fn next(reloads: &mut watch::Receiver<Option<Reload>>) -> Reload {
    let changed = tokio::time::timeout(Duration::from_secs(30), reloads.changed());
    changed.await.expect("a reload in time").expect("a server that runs");
    reloads.borrow().clone().expect("a reload")
}

/// Writes the configuration file to a new directory, which the link to the current one then points
/// to. Returns the path of the file.
fn write_config(root: &Path, text: &str) -> PathBuf {
    let version = tempfile::tempdir_in(root).expect("a directory").keep();
    let text = text.replace("{root}", &root.display().to_string());
    std::fs::write(version.join("outrigger.yaml"), text).expect("a file");
    symlink(version, root.join("next")).expect("a link");
    std::fs::rename(root.join("next"), root.join("config")).expect("renamed");
    root.join("config").join("outrigger.yaml")
}

fn start(kinds: &Kinds, file: Option<PathBuf>, flags: &[(String, String)]) -> Running {
    let source = Source::open(kinds.clone(), file, Vec::new(), flags.to_vec());
    let source = source.expect("a readable file");
    let loaded = source.load().expect("a valid configuration");
    outrigger_server::start_reloading(loaded.config, source).expect("a server")
}

/// A channel that connects when it is used.
pub(crate) fn channel(address: std::net::SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).expect("an address").connect_lazy()
}

/// Holds every prediction at a gate; the receiver signals each arrival.
pub(crate) fn hold(stack: &Stack) -> (Gate, mpsc::UnboundedReceiver<()>) {
    let gate = Gate::closed();
    let (arrived, arrivals) = mpsc::unbounded_channel();
    let held = gate.clone();
    stack.engine.on_predict(move |_| {
        arrived.send(()).ok();
        let outputs = Predicting::Outputs(vec![floats("scores", &[1, 1], [7.0])]);
        Predicting::Held(held.clone(), Box::new(outputs))
    });
    (gate, arrivals)
}

/// A model with one user feature and two treatment features. The fake engine ignores the weights: a
/// score is the sum of the treatment's features.
pub(crate) fn linear(bias: f32) -> Model {
    Linear { user: vec![1.0], treatment: vec![1.0, 1.0], bias }.model()
}

/// Publishes a model in the layout directory of its name; returns the digest.
async fn publish(root: &Path, name: &str, model: &Model) -> String {
    publish_as(root, name, "latest", model).await
}

async fn publish_as(root: &Path, name: &str, tag: &str, model: &Model) -> String {
    push(root, name, tag, model, None).await
}

async fn push(root: &Path, name: &str, tag: &str, model: &Model, profile: Option<&str>) -> String {
    let package = tempfile::tempdir().expect("a directory");
    package_dir(package.path(), model).expect("a package");
    if let Some(profile) = profile {
        std::fs::write(package.path().join("profile.json"), profile).expect("a file");
    }
    push_dir(root, name, tag, package.path()).await
}

async fn push_dir(root: &Path, name: &str, tag: &str, package: &Path) -> String {
    let layouts =
        outrigger_run::layouts(&[&[TENSORFLOW, LINEAR, SCRIPTED, OIP][..], &FRAMEWORKS].concat());
    let image = build::image_from_dir(package, [].into(), &layouts).expect("an image");
    let reference: Reference =
        format!("oci:{}/models/{name}:{tag}", root.display()).parse().expect("a reference");
    let client = Client::new(outrigger_oci::Config::default()).expect("a client");
    client.push(&reference, &image).await.expect("pushed").to_string()
}

/// A selector of the default tag.
pub(crate) fn by_name(name: &str) -> ModelSelector {
    ModelSelector { name: name.to_owned(), version: None }
}

/// A selector by digest.
pub(crate) fn by_digest(name: &str, digest: &str) -> ModelSelector {
    ModelSelector { name: name.to_owned(), version: Some(Version::Digest(digest.to_owned())) }
}

/// A request for [`MODEL`] with a treatment for each pair of features.
pub(crate) fn request(treatments: &[(f32, f32)]) -> PredictRequest {
    request_for(MODEL, treatments)
}

/// A request for the model called `name` with a treatment for each pair of features.
pub(crate) fn request_for(name: &str, treatments: &[(f32, f32)]) -> PredictRequest {
    PredictRequest {
        model: Some(by_name(name)),
        request_id: "r1".to_owned(),
        user: Some(User::UserFeatures(features(&[("u0", 0.5)]))),
        treatments: treatments.iter().zip(0..).map(treatment).collect(),
        ..Default::default()
    }
}

fn treatment(((t0, t1), index): (&(f32, f32), usize)) -> Treatment {
    Treatment { id: format!("t{index}"), features: features(&[("t0", *t0), ("t1", *t1)]).features }
}

/// Features with the given names and numbers.
pub(crate) fn features(values: &[(&str, f32)]) -> FeatureMap {
    let value = |number: f32| Value { kind: Some(Kind::Number(number)) };
    FeatureMap {
        features: values
            .iter()
            .map(|(name, number)| ((*name).to_owned(), value(*number)))
            .collect(),
    }
}

/// The reason in a status; a status without one fails the test.
pub(crate) fn reason(status: &Status) -> String {
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("no reason: {status:?}"));
    assert_eq!(info.domain, outrigger_server::DOMAIN);
    info.reason
}
