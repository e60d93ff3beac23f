//! The Open Inference Protocol over gRPC, with the extension `model_repository`.
//!
//! A model is loaded by its name and two parameters: `version`, and `directory`, the absolute path of
//! the directory with its file. It is unloaded by its name and the parameter `version`. In the index,
//! the `reason` of a model is its directory, and models that could not be loaded are absent. The
//! extension `start/NUMBER` in the server's metadata differs between two starts of the process, by
//! which a client finds that the models are gone.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use outrigger_core::TensorSpec;
use outrigger_oip::{
    InferResponse, Malformed, Tensor, grpc,
    metadata::{self, State},
};
use outrigger_proto::inference::{
    ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse,
    ModelReadyRequest, ModelReadyResponse, ModelRepositoryParameter, ModelStatisticsRequest,
    ModelStatisticsResponse, RepositoryIndexRequest, RepositoryIndexResponse,
    RepositoryModelLoadRequest, RepositoryModelLoadResponse, RepositoryModelUnloadRequest,
    RepositoryModelUnloadResponse, ServerLiveRequest, ServerLiveResponse, ServerMetadataRequest,
    ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse,
    grpc_inference_service_server::GrpcInferenceService, model_metadata_response::TensorMetadata,
    model_repository_parameter::ParameterChoice, repository_index_response::ModelIndex,
};
use outrigger_proto::raw::unary::{CALLER_TIMEOUT, timeout};
use tokio::time::{Instant, timeout_at};
use tonic::{Request, Response, Status};

use crate::{
    models::{Listed, Models, Refused},
    session::ModelError,
};

/// The service of one process.
#[derive(Debug)]
pub(crate) struct Service {
    models: Models,
    /// The number of the start, in nanoseconds since 1970.
    start: u128,
}

impl Default for Service {
    fn default() -> Self {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self { models: Models::default(), start }
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl GrpcInferenceService for Service {
    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Answer<ServerLiveResponse> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Answer<ServerReadyResponse> {
        Ok(Response::new(ServerReadyResponse { ready: true }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Answer<ServerMetadataResponse> {
        let start = format!("start/{}", self.start);
        Ok(Response::new(ServerMetadataResponse {
            name: "outrigger-onnx".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: vec!["model_repository".to_owned(), start],
        }))
    }

    async fn model_ready(&self, request: Request<ModelReadyRequest>) -> Answer<ModelReadyResponse> {
        let ModelReadyRequest { name, version } = request.into_inner();
        let ready = self.models.get(&(name, version)).is_ok();
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Answer<ModelMetadataResponse> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        let model = self.models.get(&(name.clone(), version.clone())).map_err(refused)?;
        let tensors = |specs: &[TensorSpec]| specs.iter().map(metadata).collect();
        Ok(Response::new(ModelMetadataResponse {
            name,
            versions: vec![version],
            platform: "onnxruntime_onnx".to_owned(),
            inputs: tensors(&model.interface().inputs),
            outputs: tensors(&model.interface().outputs),
        }))
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Answer<ModelInferResponse> {
        let waits = request.metadata().get(CALLER_TIMEOUT).and_then(|it| it.to_str().ok());
        let begin = waits.and_then(timeout).and_then(|waits| Instant::now().checked_add(waits));
        let mut message = request.into_inner();
        let name = std::mem::take(&mut message.model_name);
        let id = (name, std::mem::take(&mut message.model_version));
        let model = self.models.get(&id).map_err(refused)?;
        let (request, is_raw) = grpc::read_request(message).map_err(malformed)?;
        let inputs = request.inputs.into_iter().map(Tensor::into_core).collect();
        let wanted = request.outputs.into_iter().map(|output| output.name).collect();
        let turn = match begin {
            Some(begin) => timeout_at(begin, model.turn()).await.map_err(|_| late())?,
            None => model.turn().await,
        };
        let outputs = model.run(turn, inputs, wanted).await.map_err(failed)?;
        let (name, version) = id;
        let outputs = outputs.into_iter().map(Into::into).collect();
        let response = InferResponse {
            model_name: name,
            model_version: Some(version),
            id: request.id,
            outputs,
            ..InferResponse::default()
        };
        Ok(Response::new(grpc::write_response(response, is_raw)))
    }

    async fn model_statistics(
        &self,
        _: Request<ModelStatisticsRequest>,
    ) -> Answer<ModelStatisticsResponse> {
        Err(Status::unimplemented("this server keeps no statistics"))
    }

    async fn repository_index(
        &self,
        _: Request<RepositoryIndexRequest>,
    ) -> Answer<RepositoryIndexResponse> {
        let model = |Listed { id: (name, version), directory, is_ready }: Listed| ModelIndex {
            name,
            version,
            state: if is_ready { State::Ready } else { State::Loading }.as_str().to_owned(),
            reason: directory.display().to_string(),
        };
        let models = self.models.list().into_iter().map(model).collect();
        Ok(Response::new(RepositoryIndexResponse { models }))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Answer<RepositoryModelLoadResponse> {
        let RepositoryModelLoadRequest { model_name, parameters, .. } = request.into_inner();
        let version = parameter(&parameters, "version")?;
        let directory = PathBuf::from(parameter(&parameters, "directory")?);
        if !directory.is_absolute() {
            return Err(Status::invalid_argument("directory: must be an absolute path"));
        }
        let loaded = self.models.load((model_name, version), &directory).await;
        loaded.map_err(refused)?;
        Ok(Response::new(RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Answer<RepositoryModelUnloadResponse> {
        let RepositoryModelUnloadRequest { model_name, parameters, .. } = request.into_inner();
        let id = (model_name, parameter(&parameters, "version")?);
        self.models.unload(&id).map_err(refused)?;
        Ok(Response::new(RepositoryModelUnloadResponse {}))
    }
}

fn late() -> Status {
    Status::deadline_exceeded("the caller ceased to wait before the turn of its call")
}

fn failed(error: ModelError) -> Status {
    match error {
        ModelError::Invalid(message) => Status::invalid_argument(message),
        ModelError::Runtime(message) => Status::internal(message),
    }
}

fn refused(refused: Refused) -> Status {
    let message = refused.to_string();
    match refused {
        Refused::Model(error) => failed(error),
        Refused::Taken(..) => Status::already_exists(message),
        Refused::NotLoaded(_) => Status::not_found(message),
        Refused::Loading(_) => Status::unavailable(message),
    }
}

fn metadata(spec: &TensorSpec) -> TensorMetadata {
    let metadata::TensorMetadata { name, datatype, shape } = spec.into();
    TensorMetadata { name, datatype, shape }
}

fn parameter(
    parameters: &BTreeMap<String, ModelRepositoryParameter>,
    name: &str,
) -> Result<String, Status> {
    match parameters.get(name).and_then(|parameter| parameter.parameter_choice.as_ref()) {
        Some(ParameterChoice::StringParam(text)) => Ok(text.clone()),
        _ => Err(Status::invalid_argument(format!("parameters: {name} must be a text"))),
    }
}

fn malformed(error: Malformed) -> Status {
    Status::invalid_argument(error.to_string())
}
