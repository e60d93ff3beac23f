//! The client of the process.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::HeaderMap;
use outrigger_core::{EngineId, Reason, ServableId, Tensor};
use outrigger_oip::{InferRequest, Malformed, RequestedOutput, grpc};
use outrigger_proto::{
    inference::{
        ModelInferResponse, ModelRepositoryParameter, RepositoryIndexRequest,
        RepositoryIndexResponse, RepositoryModelLoadRequest, RepositoryModelLoadResponse,
        RepositoryModelUnloadRequest, RepositoryModelUnloadResponse, ServerMetadataRequest,
        ServerMetadataResponse, model_repository_parameter::ParameterChoice,
    },
    raw::unary::PREFIX,
};
use outrigger_rpc::{CallError, Calls, Endpoint, Head, Settings, status_of_http};
use outrigger_run::{Call, RunError};
use prost::Message;
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use tonic::{Code, Status};

use crate::observer::Log;

/// The address of the process and the limits of its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The engine's name, for logs.
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

/// The state of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// A text that differs between two starts.
    pub(crate) start: String,
    /// The names and versions of its models.
    pub(crate) loaded: BTreeSet<(String, String)>,
}

/// Makes calls to the process.
#[derive(Debug)]
pub(crate) struct Client {
    control: Calls<Bytes>,
    runs: Calls<Bytes>,
    room: Semaphore,
    heads: Heads,
    config: Config,
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
        let (endpoint, observer) = (&config.endpoint, Arc::new(Log::of(&config.engine)));
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
            infer: head("/inference.GRPCInferenceService/ModelInfer"),
        };
        let room = Semaphore::new(config.max_in_flight.min(Semaphore::MAX_PERMITS));
        Self { control, runs, room, heads, config }
    }

    /// The state of the process.
    pub(crate) async fn look(&self) -> Result<Seen, RunError> {
        let deadline = Instant::now() + self.config.control_timeout;
        let request = ServerMetadataRequest {};
        let answer: ServerMetadataResponse =
            self.control(&self.heads.metadata, &request, deadline).await?;
        let start = answer.extensions.into_iter().find(|name| name.starts_with(START));
        let start = start.ok_or_else(|| invalid("the server is no `outrigger onnx`".into()))?;
        let request = RepositoryIndexRequest::default();
        let answer: RepositoryIndexResponse =
            self.control(&self.heads.index, &request, deadline).await?;
        let loaded = answer.models.into_iter().map(|model| (model.name, model.version)).collect();
        Ok(Seen { start, loaded })
    }

    /// Loads the model in `directory` as `id`.
    pub(crate) async fn load(&self, id: &ServableId, directory: &Path) -> Result<(), RunError> {
        let directory = directory.to_str().ok_or_else(|| RunError::Failed {
            code: "InvalidArgument".to_owned(),
            message: "the path of the model is no text".to_owned(),
        })?;
        let (model_name, version) = wire_name(id);
        let request = RepositoryModelLoadRequest {
            model_name,
            parameters: parameters([("version", &version), ("directory", directory)]),
            ..Default::default()
        };
        let deadline = Instant::now() + self.config.load_timeout;
        let answer = self.control(&self.heads.load, &request, deadline).await;
        answer.map(|RepositoryModelLoadResponse {}| ())
    }

    /// Unloads a model, which need not be loaded.
    pub(crate) async fn unload(&self, (name, version): (String, String)) -> Result<(), RunError> {
        let request = RepositoryModelUnloadRequest {
            model_name: name,
            parameters: parameters([("version", &version)]),
            ..Default::default()
        };
        let deadline = Instant::now() + self.config.control_timeout;
        let (head, headers) = (&self.heads.unload, HeaderMap::new());
        let limit = self.config.max_message;
        match unary(&self.control, head, &request, (deadline, &headers), limit).await {
            Ok(RepositoryModelUnloadResponse {}) => Ok(()),
            Err(CallError::Status(status)) if status.code() == Code::NotFound => Ok(()),
            Err(error) => Err(of_call(error)),
        }
    }

    /// Runs a version once. The inputs of a call that may be made again stay in it.
    pub(crate) async fn run(
        &self,
        id: &ServableId,
        call: &mut Call,
    ) -> Result<Vec<Tensor>, RunError> {
        let deadline = call.deadline;
        let place = timeout_at(deadline, self.room.acquire()).await;
        let _place = place.map_err(|_| RunError::Overloaded)?.expect("never closed");
        let (name, version) = wire_name(id);
        let wanted = call
            .outputs
            .iter()
            .map(|name| RequestedOutput { name: Arc::clone(name), binary: None });
        let request = InferRequest {
            inputs: call.inputs.iter().cloned().map(Into::into).collect(),
            outputs: wanted.collect(),
            ..InferRequest::default()
        };
        let message = grpc::write_request(request, name, version);
        let (size, limit) = (message.encoded_len(), self.config.max_message);
        if size > limit {
            return Err(RunError::TooLarge { size, limit });
        }
        let headers = (deadline, &call.headers);
        let answer = unary(&self.runs, &self.heads.infer, &message, headers, limit).await;
        match answer {
            Ok(answer) => outputs(answer, &call.outputs),
            Err(CallError::Lost(error)) => {
                let inputs = std::mem::take(&mut call.inputs);
                Err(RunError::Lost { inputs, source: error.into() })
            }
            Err(CallError::Status(status)) if status.code() == Code::NotFound => {
                Err(RunError::NotServed { servable: id.clone() })
            }
            Err(error) => Err(of_call(error)),
        }
    }

    async fn control<A: Message + Default>(
        &self,
        head: &Head,
        request: &impl Message,
        deadline: Instant,
    ) -> Result<A, RunError> {
        let (headers, limit) = (HeaderMap::new(), self.config.max_message);
        let answer = unary(&self.control, head, request, (deadline, &headers), limit);
        answer.await.map_err(of_call)
    }
}

/// The name and the version of a servable in the process.
pub(crate) fn wire_name(id: &ServableId) -> (String, String) {
    (id.name.as_str().to_owned(), id.version.0.to_string())
}

fn parameters<const N: usize>(
    texts: [(&str, &str); N],
) -> BTreeMap<String, ModelRepositoryParameter> {
    let parameter = |text: &str| ModelRepositoryParameter {
        parameter_choice: Some(ParameterChoice::StringParam(text.to_owned())),
    };
    texts.into_iter().map(|(name, text)| (name.to_owned(), parameter(text))).collect()
}

/// Makes one call. The answer has at most `limit` bytes.
async fn unary<A: Message + Default>(
    calls: &Calls<Bytes>,
    head: &Head,
    request: &impl Message,
    (deadline, headers): (Instant, &HeaderMap),
    limit: usize,
) -> Result<A, CallError> {
    let size = request.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX + size);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(size).unwrap_or(u32::MAX));
    request.encode(&mut framed).expect("the buffer grows");
    let head = || {
        let left = deadline.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| head.within(left, headers))
    };
    let answer = timeout_at(deadline, calls.call(framed.freeze(), limit, head)).await;
    let answer = answer.map_err(|_| CallError::Deadline)??;
    A::decode(answer).map_err(|error| CallError::Status(Status::data_loss(error.to_string())))
}

/// The outputs called `wanted`, in that order; all if there are none.
fn outputs(answer: ModelInferResponse, wanted: &[Arc<str>]) -> Result<Vec<Tensor>, RunError> {
    let answer = grpc::read_response(answer).map_err(malformed)?;
    let outputs = answer.outputs.into_iter().map(|output| output.into_core().map_err(malformed));
    let mut outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    if wanted.is_empty() {
        return Ok(outputs);
    }
    let take = |name: &Arc<str>| match outputs.iter().position(|output| output.name == *name) {
        Some(found) => Ok(outputs.swap_remove(found)),
        None => Err(invalid(format!("the answer has no output {name}"))),
    };
    wanted.iter().map(take).collect()
}

fn malformed(error: Malformed) -> RunError {
    invalid(error.to_string())
}

fn invalid(message: String) -> RunError {
    RunError::Answer { reason: Reason::EngineFailed, source: message.into() }
}

fn of_call(error: CallError) -> RunError {
    match error {
        CallError::Transport(error) | CallError::Lost(error) => RunError::Unavailable(error.into()),
        CallError::Status(status) => of_status(&status),
        CallError::NoStatus(status) => of_status(&status_of_http(status)),
        CallError::Framing(error) => {
            RunError::Answer { reason: Reason::EngineFailed, source: error.into() }
        }
        CallError::Deadline => RunError::DeadlineExceeded,
    }
}

fn of_status(status: &Status) -> RunError {
    /// The longest message that is kept, in characters.
    const MESSAGE: usize = 1000;
    let message = status.message().chars().take(MESSAGE).collect();
    match status.code() {
        Code::Unavailable => RunError::NotReady { message },
        Code::ResourceExhausted => RunError::EngineOverloaded { message },
        Code::DeadlineExceeded => RunError::DeadlineExceeded,
        Code::Cancelled => RunError::Cancelled { message },
        code => RunError::Failed { code: format!("{code:?}"), message },
    }
}
