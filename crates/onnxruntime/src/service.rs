//! The Open Inference Protocol over gRPC, with the extension `model_repository`.
//!
//! A model is loaded by its name and two parameters: `version`, and `directory`, the absolute path of
//! the directory with its file. It is unloaded by its name and the parameter `version`. The extension
//! `start/NUMBER` in the server's metadata differs between two starts of the process, by which a
//! client finds that the models are gone.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use outrigger_core::{ElementType, Shape, TensorSpec};
use outrigger_oip::{DataType, InferResponse, Malformed, grpc};
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
use tokio::task::spawn_blocking;
use tonic::{Request, Response, Status};

use crate::{
    models::{Id, Models},
    session::{Model, RunError},
};

/// The service of one process.
#[derive(Debug)]
pub(crate) struct Service {
    models: Arc<Models>,
    /// The number of the start, in nanoseconds since 1970.
    start: u128,
}

impl Default for Service {
    fn default() -> Self {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self { models: Arc::default(), start }
    }
}

impl Service {
    fn model(&self, name: String, version: String) -> Result<(Id, Arc<Model>), Status> {
        let id = (name, version);
        let model = self.models.get(&id);
        let model = model.ok_or_else(|| not_loaded(&id))?;
        Ok((id, model))
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
        let ready = self.models.get(&(name, version)).is_some();
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Answer<ModelMetadataResponse> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        let ((name, version), model) = self.model(name, version)?;
        let tensors = |specs: &[TensorSpec]| specs.iter().filter_map(metadata).collect();
        Ok(Response::new(ModelMetadataResponse {
            name,
            versions: vec![version],
            platform: "onnxruntime_onnx".to_owned(),
            inputs: tensors(&model.interface().inputs),
            outputs: tensors(&model.interface().outputs),
        }))
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Answer<ModelInferResponse> {
        let mut message = request.into_inner();
        let names = (std::mem::take(&mut message.model_name), message.model_version.clone());
        let ((name, version), model) = self.model(names.0, names.1)?;
        let (request, is_raw) = grpc::read_request(message).map_err(malformed)?;
        let inputs = request.inputs.into_iter().map(|input| input.into_core());
        let inputs = inputs.collect::<Result<Vec<_>, _>>().map_err(malformed)?;
        let wanted: Vec<_> = request.outputs.into_iter().map(|output| output.name).collect();
        let outputs = aside(move || {
            let wanted: Vec<_> = wanted.iter().map(|name| &**name).collect();
            model.run(inputs, &wanted)
        });
        let outputs = outputs.await?.into_iter().map(Into::into).collect();
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
        let model = |(name, version)| ModelIndex {
            name,
            version,
            state: "READY".to_owned(),
            reason: String::new(),
        };
        let models = self.models.ids().into_iter().map(model).collect();
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
        let models = Arc::clone(&self.models);
        aside(move || models.load((model_name, version), Path::new(&directory))).await?;
        Ok(Response::new(RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Answer<RepositoryModelUnloadResponse> {
        let RepositoryModelUnloadRequest { model_name, parameters, .. } = request.into_inner();
        let id = (model_name, parameter(&parameters, "version")?);
        match self.models.unload(&id) {
            true => Ok(Response::new(RepositoryModelUnloadResponse {})),
            false => Err(not_loaded(&id)),
        }
    }
}

/// Runs `work` on a thread that may block.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RunError> + Send + 'static,
) -> Result<T, Status> {
    let ended = spawn_blocking(work).await;
    let ended = ended.map_err(|_| Status::internal("the run panicked"))?;
    ended.map_err(|error| match error {
        RunError::Inputs(message) => Status::invalid_argument(message),
        RunError::Runtime(message) => Status::internal(message),
    })
}

/// An input or output; `None` if the protocol has no such type.
fn metadata(spec: &TensorSpec) -> Option<TensorMetadata> {
    let ElementType::Known(dtype) = spec.dtype else { return None };
    let datatype = DataType::from(dtype).as_str().to_owned();
    let size = |size: &Option<u64>| size.and_then(|size| i64::try_from(size).ok()).unwrap_or(-1);
    let shape = match &spec.shape {
        Shape::Sizes(sizes) => sizes.iter().map(size).collect(),
        Shape::Any => Vec::new(),
    };
    Some(TensorMetadata { name: spec.name.to_string(), datatype, shape })
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

fn not_loaded((name, version): &Id) -> Status {
    Status::not_found(format!("{name} {version} is not loaded"))
}
