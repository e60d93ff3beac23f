//! A scripted control plane, and an engine with a model.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::StatusCode, routing::post};
use bytes::Bytes;
use futures::StreamExt as _;
use outrigger_bench::{
    Endpoint, Form, Job, Load, Quantiles, Report, Servable, Shape, Source, Stop, Target, read_plan,
};
use outrigger_core::{ServableName, Version};
use outrigger_proto::{
    outrigger::v1::{
        BatchPredictRequest, BatchPredictResponse, ModelSelector, PredictResponse, ScoreList,
        predict_response::Output,
    },
    raw::outrigger::prediction_service_server::{PredictionService, PredictionServiceServer},
};
use outrigger_testkit::{engine::FakeEngine, saved_model::Linear};
use outrigger_tfserving::{Client, Config, ServedModel, ServingConfig};
use prost::Message as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};
use tonic_types::StatusExt as _;

pub(crate) const TREATMENTS: usize = 3;

/// The outcome of a request.
pub(crate) enum Turn {
    /// It is answered with the default number of scores.
    Answered,
    /// It is answered with this number of scores.
    Scored(usize),
    /// It is refused with this status.
    Refused(Status),
    /// It is answered with these bytes.
    Garbled(&'static [u8]),
    /// It is never answered.
    Forgotten,
}

/// Gives the outcome of the n-th request, counted from 0.
type Script = dyn Fn(u64) -> Turn + Send + Sync;

/// A control plane that has every model, scores everything with 0, and follows its
/// script.
pub(crate) struct ControlPlane {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    seen: Arc<Seen>,
    _runtime: Runtime,
}

struct Seen {
    script: Box<Script>,
    count: AtomicU64,
    messages: Mutex<Vec<Bytes>>,
    /// Number of gRPC connections so far.
    callers: AtomicU64,
}

impl ControlPlane {
    /// Starts a control plane that answers everything.
    pub(crate) fn willing() -> Self {
        Self::start(|_| Turn::Answered)
    }

    /// Starts a control plane with a script.
    pub(crate) fn start(script: impl Fn(u64) -> Turn + Send + Sync + 'static) -> Self {
        Self::serve(tonic::transport::Server::builder(), script)
    }

    /// Starts a control plane that answers everything and closes gRPC connections
    /// gracefully at this age, as at shutdown: requests sent before are answered.
    pub(crate) fn restless(age: Duration) -> Self {
        let server = tonic::transport::Server::builder().max_connection_age(age);
        Self::serve(server, |_| Turn::Answered)
    }

    fn serve(
        mut server: tonic::transport::Server,
        script: impl Fn(u64) -> Turn + Send + Sync + 'static,
    ) -> Self {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let (count, messages, callers) = Default::default();
        let seen = Arc::new(Seen { script: Box::new(script), count, messages, callers });
        let listen = || runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let (grpc, http) = (listen(), listen());
        let addresses = (grpc.local_addr().expect("bound"), http.local_addr().expect("bound"));
        let service = PredictionServiceServer::new(Surface(Arc::clone(&seen)));
        let counting = Arc::clone(&seen);
        let incoming = TcpListenerStream::new(grpc).inspect(move |_| {
            counting.callers.fetch_add(1, Ordering::Relaxed);
        });
        runtime.spawn(server.add_service(service).serve_with_incoming(incoming));
        let over_http = Arc::clone(&seen);
        let predict = post(|body: Bytes| async move { over_http.answer_json(body).await });
        let router = Router::new().route("/v1/predict", predict);
        runtime.spawn(async { axum::serve(http, router).await });
        Self { grpc: addresses.0, http: addresses.1, seen, _runtime: runtime }
    }

    /// The received messages, in order.
    pub(crate) fn messages(&self) -> Vec<Bytes> {
        self.seen.messages.lock().expect("no test has panicked").clone()
    }

    /// The number of gRPC connections so far.
    pub(crate) fn callers(&self) -> u64 {
        self.seen.callers.load(Ordering::Relaxed)
    }
}

impl Seen {
    fn take(&self, message: Bytes) -> u64 {
        self.messages.lock().expect("no test has panicked").push(message);
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    async fn answer(&self, message: Bytes, scores: Vec<u8>) -> Result<Response<Bytes>, Status> {
        match (self.script)(self.take(message)) {
            Turn::Answered => Ok(Response::new(scores.into())),
            Turn::Scored(count) => Ok(Response::new(scored(count).encode_to_vec().into())),
            Turn::Refused(status) => Err(status),
            Turn::Garbled(bytes) => Ok(Response::new(Bytes::from_static(bytes))),
            Turn::Forgotten => std::future::pending().await,
        }
    }
}

impl Seen {
    /// The same over HTTP; garbled bytes come with the status 502, as from a proxy.
    async fn answer_json(&self, body: Bytes) -> (StatusCode, String) {
        let scores = |count| json!({"scores": vec![json!({"score": 0}); count]}).to_string();
        match (self.script)(self.take(body)) {
            Turn::Answered => (StatusCode::OK, scores(TREATMENTS)),
            Turn::Scored(count) => (StatusCode::OK, scores(count)),
            Turn::Refused(status) => {
                let reason = status.get_details_error_info().map(|info| info.reason);
                let error = json!({"error": {"reason": reason, "message": status.message()}});
                (StatusCode::TOO_MANY_REQUESTS, error.to_string())
            }
            Turn::Garbled(bytes) => {
                (StatusCode::BAD_GATEWAY, String::from_utf8_lossy(bytes).into_owned())
            }
            Turn::Forgotten => std::future::pending().await,
        }
    }
}

struct Surface(Arc<Seen>);

#[tonic::async_trait]
impl PredictionService for Surface {
    async fn predict(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        self.0.answer(request.into_inner(), scores().encode_to_vec()).await
    }

    async fn batch_predict(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let message = request.into_inner();
        let users = BatchPredictRequest::decode(message.clone()).expect("a message").requests;
        let responses = users.iter().map(|_| scores()).collect();
        let answer = BatchPredictResponse { responses, ..Default::default() };
        self.0.answer(message, answer.encode_to_vec()).await
    }

    async fn explain(&self, _: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

fn scores() -> PredictResponse {
    scored(TREATMENTS)
}

fn scored(count: usize) -> PredictResponse {
    let list = ScoreList { values: vec![0.0; count], ..Default::default() };
    PredictResponse { output: Some(Output::Scores(list)), ..Default::default() }
}

/// A fake engine that serves a model, and the model's package.
pub(crate) struct Engine {
    pub(crate) engine: FakeEngine,
    pub(crate) name: String,
    pub(crate) package: Package,
    models: TempDir,
    client: Client,
    _runtime: Runtime,
}

pub(crate) const VERSION: i64 = 7;

impl Engine {
    /// Starts the engine and loads the model.
    pub(crate) fn start() -> Self {
        let package = Package::linear();
        let models = tempfile::tempdir().expect("a directory");
        let engine = FakeEngine::unix(&models.path().join("engine.sock")).expect("an engine");
        let name = ServableName::of(&"offers".parse().expect("a name")).as_str().to_owned();
        let base = models.path().join(&name);
        linear().model().write(&base.join(VERSION.to_string())).expect("written");
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let entered = runtime.enter();
        let client = Client::connect(Config::new(engine.endpoint())).expect("valid");
        drop(entered);
        let this = Self { engine, name, package, models, client, _runtime: runtime };
        this.load();
        this
    }

    /// Makes the engine load the model, as after a restart.
    pub(crate) fn load(&self) {
        let base_path = self.models.path().join(&self.name);
        let served = ServedModel { base_path, versions: [Version(VERSION)].into() };
        let name = ServableName::of(&"offers".parse().expect("a name"));
        let models = BTreeMap::from([(name, served)]);
        self._runtime.block_on(async {
            self.client.reload(ServingConfig { models }).await.expect("applied");
            self.engine.until_available(&self.name, VERSION).await;
        });
    }

    /// A job for this engine.
    pub(crate) fn job(&self, load: Load) -> Job {
        let servable = Servable { name: self.name.clone(), version: None, signature: None };
        job(self.engine.endpoint(), Target::Servable(servable), &self.package, load)
    }
}

/// A metadata.json on disk.
pub(crate) struct Package(TempDir);

impl Package {
    /// Metadata with one user feature and two treatment features.
    pub(crate) fn linear() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let package = Self(directory);
        std::fs::write(package.metadata(), linear().model().metadata.to_string()).expect("written");
        package
    }

    pub(crate) fn metadata(&self) -> PathBuf {
        self.0.path().join("metadata.json")
    }

    /// Writes a file in the package's directory.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }
}

fn linear() -> Linear {
    Linear { user: vec![1.0], treatment: vec![1.0, 1.0], bias: 0.0 }
}

/// A job for a control plane, in one form.
pub(crate) fn model_job(
    server: SocketAddr,
    package: &Package,
    form: Option<Form>,
    load: Load,
) -> Job {
    let model = ModelSelector { name: "offers".to_owned(), version: None };
    job(server.to_string(), Target::Model { model, form }, package, load)
}

fn job(server: String, target: Target, package: &Package, load: Load) -> Job {
    let shape = Shape { treatments: TREATMENTS, users: 1, distinct: 2, seed: 1 };
    Job {
        server: server.parse::<Endpoint>().expect("an address").into(),
        target,
        plan: Some(read_plan(&package.metadata()).expect("valid")),
        source: Source::Generated(shape),
        load,
        duration: Duration::from_millis(500),
        warmup: Duration::ZERO,
        connections: 2,
        threads: 1,
        in_flight: None,
        frame: 16 << 10,
        compress: None,
        save: None,
        // Long enough that only tests of timeouts reach it.
        timeout: Duration::from_secs(60),
        processes: Vec::new(),
        stop: Stop::default(),
    }
}

/// An open loop with this number of requests a second.
pub(crate) fn rate(rate: f64) -> Load {
    Load::Rate { rate, arrivals: Default::default() }
}

/// Runs a job that must succeed.
pub(crate) fn run(job: &Job) -> Report {
    outrigger_bench::run(job, &mut |_| {}).expect("a report")
}

/// The latency of answered requests.
pub(crate) fn latency_ms(report: &Report) -> Quantiles {
    report.latency_ms.expect("requests were answered")
}

/// The delay of sending.
pub(crate) fn send_delay_ms(report: &Report) -> Quantiles {
    report.send_delay_ms.expect("requests were sent")
}

/// The report as it is printed.
pub(crate) fn json_of(report: &Report) -> Value {
    json!(report)
}
