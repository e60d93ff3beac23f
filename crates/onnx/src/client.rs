//! The client of the process.

mod wire;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use outrigger_core::{EngineId, Failure, ServableId, Tensor};
use outrigger_oip::{InferRequest, RequestedOutput, grpc, metadata::State};
use outrigger_proto::inference::{
    RepositoryIndexRequest, RepositoryIndexResponse, RepositoryModelLoadRequest,
    RepositoryModelLoadResponse, RepositoryModelUnloadRequest, RepositoryModelUnloadResponse,
    ServerMetadataRequest, ServerMetadataResponse, repository_index_response::ModelIndex,
};
use outrigger_rpc::{
    CallError, Calls, Endpoint, Head, NoPlace, Places, Settings, Share,
    metrics::{CallMetrics, Connections, begin},
};
use outrigger_run::{Call, RunError};
use prost::Message;
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};
use tonic::Code;

/// The address of the process and the limits of its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The engine's name, for metrics and logs.
    pub engine: EngineId,
    /// Its address.
    pub endpoint: Endpoint,
    /// HTTP/2 connections for runs, at least one for each runtime that makes them; control calls use
    /// one more.
    pub connections: usize,
    /// The limit of runs in flight. Further ones wait, and fail with an overload if they still wait at
    /// their deadline.
    pub max_in_flight: usize,
    /// The largest message in bytes, in either direction.
    pub max_message: usize,
    /// The deadline of control calls that load nothing.
    pub control_timeout: Duration,
    /// The deadline of a load.
    pub load_timeout: Duration,
}

impl Config {
    /// The default configuration for the engine called `engine` at `endpoint`.
    pub fn new(engine: EngineId, endpoint: Endpoint) -> Self {
        Self {
            engine,
            endpoint,
            connections: 2,
            max_in_flight: 128,
            max_message: 257 << 20,
            control_timeout: Duration::from_secs(2),
            load_timeout: Duration::from_secs(600),
        }
    }
}

/// The state of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// A text that differs between two starts.
    pub(crate) start: String,
    /// Its models.
    pub(crate) models: BTreeSet<Held>,
}

/// The name and the version of a model in the process.
pub(crate) type WireName = (String, String);

/// A model in the process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub(crate) name: WireName,
    /// The directory of its files, as the process sees it.
    pub(crate) directory: String,
    /// True if it is loaded, false while it is being loaded.
    pub(crate) is_ready: bool,
}

/// The failure of a load.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The process answered that it cannot load the model.
    Refused(Failure),
    /// There was no answer: the process may have ended, or may still be loading.
    CutOff(RunError),
}

impl LoadError {
    /// The label of a failed load in metrics.
    fn outcome(&self) -> &'static str {
        match self {
            Self::Refused(_) => "failed",
            Self::CutOff(error) => error.outcome(),
        }
    }
}

/// Makes calls to the process.
#[derive(Debug)]
pub(crate) struct Client {
    control: Calls<Bytes>,
    runs: Calls<Bytes>,
    places: Places,
    heads: Heads,
    metrics: Metrics,
    config: Config,
}

/// The metrics of the calls.
#[derive(Debug)]
struct Metrics {
    predict: CallMetrics,
    status: CallMetrics,
    load: CallMetrics,
    unload: CallMetrics,
}

/// The heads of the calls.
#[derive(Debug)]
struct Heads {
    metadata: Head,
    index: Head,
    load: Head,
    unload: Head,
    infer: Head,
}

/// The first part of the extension that differs between two starts.
const START: &str = "start/";

impl Client {
    /// Creates a client whose connections for runs are driven by `runtimes`, which must not be empty.
    pub(crate) fn new(config: Config, runtimes: &[Handle]) -> Self {
        let (endpoint, engine) = (&config.endpoint, &config.engine);
        begin(engine);
        let observer = Arc::new(Connections::to(engine, endpoint));
        let settings = Settings { confirm: true, ..Settings::default() };
        let control = Calls::new(endpoint, &settings, &runtimes[..1], Arc::clone(&observer) as _);
        let settings = Settings { connections: config.connections, ..settings };
        let runs = Calls::new(endpoint, &settings, runtimes, observer);
        let head = |path| Head::new(endpoint.origin(), path);
        let heads = Heads {
            metadata: head("/inference.GRPCInferenceService/ServerMetadata"),
            index: head("/inference.GRPCInferenceService/RepositoryIndex"),
            load: head("/inference.GRPCInferenceService/RepositoryModelLoad"),
            unload: head("/inference.GRPCInferenceService/RepositoryModelUnload"),
            infer: head("/inference.GRPCInferenceService/ModelInfer").with_overtime(),
        };
        let of = |method| CallMetrics::of(engine, method);
        let metrics = Metrics {
            predict: of("predict"),
            status: of("status"),
            load: of("load"),
            unload: of("unload"),
        };
        let places = Places::new(config.max_in_flight);
        Self { control, runs, places, heads, metrics, config }
    }

    /// The share of one version in the places for runs.
    pub(crate) fn share(&self) -> Share {
        self.places.share()
    }

    /// The state of the process.
    pub(crate) async fn look(&self) -> Result<Seen, RunError> {
        let observed = self.metrics.status.start();
        observed.end(self.try_look().await, RunError::outcome)
    }

    async fn try_look(&self) -> Result<Seen, RunError> {
        let deadline = Instant::now() + self.config.control_timeout;
        let server = self.control(&self.heads.metadata, &ServerMetadataRequest {}, deadline).await;
        let server: ServerMetadataResponse = server.map_err(wire::of_call)?;
        let start = server.extensions.into_iter().find(|name| name.starts_with(START));
        let start = start.ok_or_else(|| wire::invalid("the server is no `outrigger onnx`"))?;
        let request = RepositoryIndexRequest::default();
        let index = self.control(&self.heads.index, &request, deadline).await;
        let index: RepositoryIndexResponse = index.map_err(wire::of_call)?;
        let held = |model: ModelIndex| Held {
            is_ready: model.state == State::Ready.as_str(),
            name: (model.name, model.version),
            directory: model.reason,
        };
        Ok(Seen { start, models: index.models.into_iter().map(held).collect() })
    }

    /// Loads the model in `directory` as `id`.
    pub(crate) async fn load(&self, id: &ServableId, directory: &str) -> Result<(), LoadError> {
        let observed = self.metrics.load.start();
        observed.end(self.try_load(id, directory).await, LoadError::outcome)
    }

    async fn try_load(&self, id: &ServableId, directory: &str) -> Result<(), LoadError> {
        let (model_name, version) = wire_name(id);
        let parameters = [("version", &*version), ("directory", directory)];
        let request = RepositoryModelLoadRequest {
            model_name,
            parameters: wire::parameters(parameters),
            ..Default::default()
        };
        let deadline = Instant::now() + self.config.load_timeout;
        match self.control(&self.heads.load, &request, deadline).await {
            Ok(RepositoryModelLoadResponse {}) => Ok(()),
            Err(error) => Err(wire::of_load(error)),
        }
    }

    /// Unloads a model, which need not be loaded.
    pub(crate) async fn unload(&self, name: &WireName) -> Result<(), RunError> {
        let observed = self.metrics.unload.start();
        observed.end(self.try_unload(name).await, RunError::outcome)
    }

    async fn try_unload(&self, (name, version): &WireName) -> Result<(), RunError> {
        let request = RepositoryModelUnloadRequest {
            model_name: name.clone(),
            parameters: wire::parameters([("version", version)]),
            ..Default::default()
        };
        let deadline = Instant::now() + self.config.control_timeout;
        match self.control(&self.heads.unload, &request, deadline).await {
            Ok(RepositoryModelUnloadResponse {}) => Ok(()),
            Err(CallError::Status(status)) if status.code() == Code::NotFound => Ok(()),
            Err(error) => Err(wire::of_call(error)),
        }
    }

    /// Runs a version once. The inputs of a call that may be made again stay in it.
    pub(crate) async fn run(
        &self,
        (id, share): (&ServableId, &Share),
        call: &mut Call,
    ) -> Result<Vec<Tensor>, RunError> {
        let observed = self.metrics.predict.start();
        observed.end(self.try_run((id, share), call).await, RunError::outcome)
    }

    async fn try_run(
        &self,
        (id, share): (&ServableId, &Share),
        call: &mut Call,
    ) -> Result<Vec<Tensor>, RunError> {
        let place = share.enter(call.deadline).await.map_err(|error| match error {
            NoPlace::GivenUp(calls) => RunError::GivenUp(calls),
            NoPlace::Late => RunError::Overloaded,
        })?;
        let (name, version) = wire_name(id);
        let wanted = |name: &Arc<str>| RequestedOutput { name: Arc::clone(name), binary: None };
        let request = InferRequest {
            inputs: call.inputs.iter().cloned().map(Into::into).collect(),
            outputs: call.outputs.iter().map(wanted).collect(),
            ..InferRequest::default()
        };
        let message = grpc::write_request(request, name, version);
        let (size, limit) = (message.encoded_len(), self.config.max_message);
        if size > limit {
            return Err(RunError::TooLarge { size, limit });
        }
        let deadline = call.deadline;
        let headers = &call.headers;
        let framed = wire::framed(&message);
        let head = || Some(self.heads.infer.within(wire::left(deadline)?, headers));
        let answer = timeout_at(deadline, self.runs.call_in(place, framed, limit, head)).await;
        match answer.map_err(|_| CallError::Deadline).flatten().and_then(wire::decoded) {
            Ok(answer) => wire::outputs(answer, &call.outputs),
            Err(CallError::Lost(error)) => {
                let inputs = std::mem::take(&mut call.inputs);
                Err(RunError::Lost { inputs, source: error.into() })
            }
            Err(CallError::Status(status)) if status.code() == Code::NotFound => {
                Err(RunError::NotServed { servable: id.clone() })
            }
            Err(error) => Err(wire::of_call(error)),
        }
    }

    async fn control<A: Message + Default>(
        &self,
        head: &Head,
        request: &impl Message,
        deadline: Instant,
    ) -> Result<A, CallError> {
        let (headers, limit) = (HeaderMap::new(), self.config.max_message);
        wire::unary(&self.control, head, request, (deadline, &headers), limit).await
    }
}

/// The name and the version of a servable in the process.
pub(crate) fn wire_name(id: &ServableId) -> WireName {
    (id.name.as_str().to_owned(), id.version.0.to_string())
}
