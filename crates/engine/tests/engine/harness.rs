//! Runs an engine in this process, on a Unix socket in its own directory.

use std::{env, fs, path::Path};

use outrigger_engine::{Engine, Models, Options};
use outrigger_proto::tensorflow::{
    TensorProto,
    serving::{
        GetModelStatusRequest, ModelConfig, ModelConfigList, ModelServerConfig, ModelSpec,
        PredictRequest, PredictResponse, ReloadConfigRequest, ServableVersionPolicy,
        model_server_config::Config,
        model_service_client::ModelServiceClient,
        model_spec::VersionChoice,
        model_version_status::State,
        prediction_service_client::PredictionServiceClient,
        servable_version_policy::{PolicyChoice, Specific},
    },
};
use outrigger_testkit::saved_model::Model;
use tokio::{sync::oneshot, task::JoinSet};
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

pub(crate) struct Local {
    pub(crate) root: tempfile::TempDir,
    pub(crate) predictions: PredictionServiceClient<Channel>,
    pub(crate) models: ModelServiceClient<Channel>,
    stop: oneshot::Sender<()>,
    server: JoinSet<()>,
}

/// Options for a directory: its socket, and threads for loads and unloads.
pub(crate) fn options(root: &Path) -> Options {
    let config = root.join("models.txt");
    if !config.exists() {
        fs::write(&config, "model_config_list {}").expect("written");
    }
    let environment = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv");
    Options {
        tensorflow: env::var_os("OUTRIGGER_TENSORFLOW").is_none().then_some(environment),
        port: 0,
        grpc_socket_path: Some(root.join("engine.sock")),
        num_load_threads: 2,
        num_unload_threads: 1,
        max_num_load_retries: 0,
        grpc_max_threads: 64,
        ..Options::new(Models::File(config))
    }
}

fn endpoint(socket: &Path) -> Endpoint {
    Endpoint::from_shared(format!("unix:{}", socket.display())).expect("a path")
}

impl Local {
    /// An engine with an empty list of models.
    pub(crate) async fn start() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let options = options(root.path());
        Self::with(root, options).await
    }

    pub(crate) async fn with(root: tempfile::TempDir, options: Options) -> Self {
        let socket = options.grpc_socket_path.clone().expect("a socket");
        let engine = Engine::start(options).await.unwrap_or_else(|error| panic!("{error}"));
        let (stop, stopped) = oneshot::channel();
        let mut server = JoinSet::new();
        server.spawn(async move {
            let stopped = async { stopped.await.unwrap_or(()) };
            engine.serve(stopped).await.expect("the transport works");
        });
        let channel = endpoint(&socket).connect_lazy();
        let predictions = PredictionServiceClient::new(channel.clone());
        let models = ModelServiceClient::new(channel);
        Self { root, predictions, models, stop, server }
    }

    /// A new connection.
    pub(crate) async fn connect(&self) -> Channel {
        endpoint(&self.root.path().join("engine.sock")).connect().await.expect("it listens")
    }

    /// Stops the engine and waits until it has stopped.
    pub(crate) async fn stop(self) {
        let Self { root, stop, mut server, predictions, models } = self;
        drop((predictions, models));
        stop.send(()).expect("the engine runs");
        server.join_next().await.expect("a task").expect("no panic");
        assert!(!root.path().join("engine.sock").exists());
    }

    /// Writes a model to the directory that [`Local::model`] configures.
    pub(crate) fn write(&self, name: &str, version: i64, model: &Model) {
        let directory = self.root.path().join(name).join(version.to_string());
        model.write(&directory).expect("written");
    }

    /// The configuration of these versions.
    pub(crate) fn model(&self, name: &str, versions: &[i64]) -> ModelConfig {
        let specific = PolicyChoice::Specific(Specific { versions: versions.to_vec() });
        ModelConfig {
            name: name.to_owned(),
            base_path: self.root.path().join(name).display().to_string(),
            model_platform: "tensorflow".to_owned(),
            model_version_policy: Some(ServableVersionPolicy { policy_choice: Some(specific) }),
            ..ModelConfig::default()
        }
    }

    pub(crate) async fn reload(&self, models: Vec<ModelConfig>) -> Result<(), Status> {
        let request = reload_request(models);
        self.models.clone().handle_reload_config_request(request).await.map(|_| ())
    }

    /// Writes a model as version 1 and waits until it is available.
    pub(crate) async fn serve(&self, name: &str, model: &Model) {
        self.write(name, 1, model);
        self.reload(vec![self.model(name, &[1])]).await.expect("it loads");
    }

    pub(crate) async fn predict(
        &self,
        request: impl tonic::IntoRequest<PredictRequest>,
    ) -> Result<PredictResponse, Status> {
        let answer = self.predictions.clone().predict(request).await;
        answer.map(tonic::Response::into_inner)
    }

    pub(crate) async fn refused(&self, request: PredictRequest) -> Status {
        self.predict(request).await.expect_err("the request is refused")
    }

    /// The versions of a model with their states, in the order of the answer.
    pub(crate) async fn status(&self, name: &str) -> Vec<(i64, State)> {
        let request = GetModelStatusRequest { model_spec: Some(spec(name)) };
        let answer = self.models.clone().get_model_status(request).await.expect("a known model");
        let versions = answer.into_inner().model_version_status;
        versions.into_iter().map(|version| (version.version, version.state())).collect()
    }

    /// Repeats status calls until a version has a state.
    pub(crate) async fn reaches(&self, name: &str, version: i64, state: State) {
        while !self.status(name).await.contains(&(version, state)) {}
    }
}

pub(crate) fn reload_request(models: Vec<ModelConfig>) -> ReloadConfigRequest {
    let list = ModelConfigList { config: models };
    let config = ModelServerConfig { config: Some(Config::ModelConfigList(list)) };
    ReloadConfigRequest { config: Some(config), ..ReloadConfigRequest::default() }
}

pub(crate) fn spec(name: &str) -> ModelSpec {
    ModelSpec { name: name.to_owned(), ..ModelSpec::default() }
}

pub(crate) fn version(version: i64) -> Option<VersionChoice> {
    Some(VersionChoice::Version(version))
}

pub(crate) fn request<const N: usize>(
    name: &str,
    inputs: [(&str, TensorProto); N],
) -> PredictRequest {
    PredictRequest {
        model_spec: Some(spec(name)),
        inputs: inputs.map(|(alias, tensor)| (alias.to_owned(), tensor)).into(),
        output_filter: Vec::new(),
    }
}
