//! The calls of `inference.GRPCInferenceService` other than predictions.

use outrigger_core::{Failure, Reason};
use outrigger_oip::{metadata::TensorMetadata, statistics as stats};
use outrigger_proto::inference::{
    InferStatistics, ModelInferRequest, ModelInferResponse, ModelMetadataRequest,
    ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ModelStatistics,
    ModelStatisticsRequest, ModelStatisticsResponse, RepositoryIndexRequest,
    RepositoryIndexResponse, RepositoryModelLoadRequest, RepositoryModelLoadResponse,
    RepositoryModelUnloadRequest, RepositoryModelUnloadResponse, ServerLiveRequest,
    ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest,
    ServerReadyResponse, StatisticDuration, grpc_inference_service_server::GrpcInferenceService,
    model_metadata_response, repository_index_response::ModelIndex,
};
use tonic::{Request, Response, Status, async_trait};

use super::{states::States, version::Target};
use crate::{
    audit::{self, Record, Verb},
    call::Call,
    grpc::Access,
};

type Answer<T> = Result<Response<T>, Status>;

/// The service for one listener.
#[derive(Clone)]
pub(super) struct Service {
    states: States,
    access: Access,
}

impl Service {
    pub(super) fn new(states: States, access: Access) -> Self {
        Self { states, access }
    }
}

/// The model of a change for the record of changes.
fn recorded(model: &str) -> audit::Target {
    audit::Target { model: model.to_owned(), ..audit::Target::default() }
}

fn target<'a>(model: &'a str, version: &'a str) -> Target<'a> {
    Target { model, version }
}

#[async_trait]
impl GrpcInferenceService for Service {
    async fn server_live(&self, request: Request<ServerLiveRequest>) -> Answer<ServerLiveResponse> {
        let response = Response::new(ServerLiveResponse { live: true });
        Call::of(request.extensions()).conclude(Ok(response))
    }

    async fn server_ready(
        &self,
        request: Request<ServerReadyRequest>,
    ) -> Answer<ServerReadyResponse> {
        let response = Response::new(ServerReadyResponse { ready: self.states.is_ready() });
        Call::of(request.extensions()).conclude(Ok(response))
    }

    async fn model_ready(&self, request: Request<ModelReadyRequest>) -> Answer<ModelReadyResponse> {
        let ModelReadyRequest { name, version } = request.get_ref();
        let ready = self.states.is_model_ready(target(name, version));
        let response = ready.map(|ready| Response::new(ModelReadyResponse { ready }));
        Call::of(request.extensions()).conclude(response)
    }

    async fn server_metadata(
        &self,
        request: Request<ServerMetadataRequest>,
    ) -> Answer<ServerMetadataResponse> {
        let server = self.states.server();
        let response = ServerMetadataResponse {
            name: server.name,
            version: server.version,
            extensions: server.extensions,
        };
        Call::of(request.extensions()).conclude(Ok(Response::new(response)))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Answer<ModelMetadataResponse> {
        let call = Call::of(request.extensions());
        let ModelMetadataRequest { name, version } = request.get_ref();
        let metadata = self.states.model(&call, target(name, version)).await;
        call.conclude(metadata.map(|model| {
            Response::new(ModelMetadataResponse {
                name: model.name,
                versions: model.versions,
                platform: model.platform,
                inputs: model.inputs.into_iter().map(tensor).collect(),
                outputs: model.outputs.into_iter().map(tensor).collect(),
            })
        }))
    }

    /// Predictions on the listener of the protocol do not come here.
    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Answer<ModelInferResponse> {
        let message = "predictions are made on the listener server.oip only";
        let refused = Err(Failure::new(Reason::MethodUnknown, message));
        Call::of(request.extensions()).conclude(refused)
    }

    async fn model_statistics(
        &self,
        request: Request<ModelStatisticsRequest>,
    ) -> Answer<ModelStatisticsResponse> {
        let ModelStatisticsRequest { name, version } = request.get_ref();
        let listed = self.states.statistics(target(name, version));
        let response = listed.map(|models| {
            let model_stats = models.into_iter().map(statistics).collect();
            Response::new(ModelStatisticsResponse { model_stats })
        });
        Call::of(request.extensions()).conclude(response)
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Answer<RepositoryIndexResponse> {
        let index = self.states.index(request.get_ref().ready);
        let models = index.into_iter().map(|entry| ModelIndex {
            name: entry.name,
            version: entry.version.unwrap_or_default(),
            state: entry.state,
            reason: entry.reason,
        });
        let response = Response::new(RepositoryIndexResponse { models: models.collect() });
        Call::of(request.extensions()).conclude(Ok(response))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Answer<RepositoryModelLoadResponse> {
        let call = Call::of(request.extensions());
        let request = request.into_inner();
        let load = async |record: &mut Record| {
            if let Some(name) = request.parameters.keys().next() {
                let message = format!(
                    "parameters[{name:?}]: a model's files and its configuration come from its image"
                );
                return Err(Failure::new(Reason::RequestMalformed, message));
            }
            self.states.load(&call, target(&request.model_name, ""), record).await
        };
        let loaded =
            self.access.change(&call, Verb::Load, recorded(&request.model_name), load).await;
        call.conclude(loaded.map(|()| Response::new(RepositoryModelLoadResponse {})))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Answer<RepositoryModelUnloadResponse> {
        let call = Call::of(request.extensions());
        let model = request.into_inner().model_name;
        let unload = async |_: &mut Record| self.states.unload(target(&model, "")).await;
        let unloaded = self.access.change(&call, Verb::Unload, recorded(&model), unload).await;
        call.conclude(unloaded.map(|()| Response::new(RepositoryModelUnloadResponse {})))
    }
}

fn tensor(metadata: TensorMetadata) -> model_metadata_response::TensorMetadata {
    let TensorMetadata { name, datatype, shape } = metadata;
    model_metadata_response::TensorMetadata { name, datatype, shape }
}

fn statistics(model: stats::ModelStatistics) -> ModelStatistics {
    let total = |total: stats::Duration| {
        let stats::Duration { count, ns } = total;
        Some(StatisticDuration { count, ns })
    };
    let durations = model.inference_stats;
    ModelStatistics {
        name: model.name,
        version: model.version,
        last_inference: model.last_inference,
        inference_count: model.inference_count,
        execution_count: model.execution_count,
        inference_stats: Some(InferStatistics {
            success: total(durations.success),
            fail: total(durations.fail),
            queue: total(durations.queue),
            compute_input: total(durations.compute_input),
            compute_infer: total(durations.compute_infer),
            compute_output: total(durations.compute_output),
        }),
        batch_stats: Vec::new(),
    }
}
