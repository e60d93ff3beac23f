//! ModelService: states of versions, and reloads.

use std::{collections::BTreeSet, sync::Arc};

use outrigger_proto::tensorflow::serving::{
    GetModelStatusRequest, GetModelStatusResponse, Metric, ModelVersionStatus, ReloadConfigRequest,
    ReloadConfigResponse, StatusProto, metric::ValueIncrease,
    model_server_config::Config as Choice, model_service_server, model_spec::VersionChoice,
    model_version_status::State as WireState,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tonic::{Code, Request, Response};

use super::{
    Surface,
    deadline::{self, Deadlines},
    spec,
};
use crate::{
    manager::{State, VersionState},
    status::Status,
};

/// `tensorflow.serving.ModelService`.
#[derive(Debug, Clone)]
pub(super) struct ModelService(Arc<Surface>);

impl ModelService {
    /// The service over the shared state.
    pub(super) fn new(surface: Arc<Surface>) -> Self {
        Self(surface)
    }

    /// Applies a configuration to its end, even if the caller disconnects.
    fn reload(
        &self,
        request: ReloadConfigRequest,
        permit: OwnedSemaphorePermit,
    ) -> oneshot::Receiver<Result<(), Status>> {
        let (answer, answered) = oneshot::channel();
        let surface = Arc::clone(&self.0);
        self.0.reloads.spawn(async move {
            let outcome = tokio::select! {
                outcome = surface.reloader.apply(request.config.unwrap_or_default()) => outcome,
                () = surface.stop.cancelled() => Err(stopping()),
            };
            drop(permit);
            // Fails if the caller has disconnected, which is normal.
            let _ = answer.send(outcome);
        });
        answered
    }
}

#[tonic::async_trait]
impl model_service_server::ModelService for ModelService {
    async fn get_model_status(
        &self,
        request: Request<GetModelStatusRequest>,
    ) -> Result<Response<GetModelStatusResponse>, tonic::Status> {
        Ok(Response::new(status(&self.0, &request.into_inner())?))
    }

    async fn handle_reload_config_request(
        &self,
        request: Request<ReloadConfigRequest>,
    ) -> Result<Response<ReloadConfigResponse>, tonic::Status> {
        let permit = self.0.calls.enter()?;
        let deadline = Deadlines::of(request.metadata().as_ref()).answer;
        let request = request.into_inner();
        check_kind(&request)?;
        let metric = metrics(&request.metric_names);
        let answered = self.reload(request, permit);
        let outcome = deadline::within(deadline, answered).await?;
        outcome.unwrap_or_else(|_| Err(Status::new(Code::Internal, "the reload panicked")))?;
        let status = Some(StatusProto::default());
        Ok(Response::new(ReloadConfigResponse { status, metric }))
    }
}

fn check_kind(request: &ReloadConfigRequest) -> Result<(), Status> {
    match request.config.as_ref().and_then(|config| config.config.as_ref()) {
        Some(Choice::ModelConfigList(_)) => Ok(()),
        _ => Err(Status::invalid(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. Only ModelConfigList is currently supported",
        )),
    }
}

/// The increase of each metric during a reload. This engine has none of TensorFlow Serving's
/// metrics, whose increase is 0 for a name that it does not know.
fn metrics(names: &[String]) -> Vec<Metric> {
    let names: BTreeSet<_> = names.iter().collect();
    let none = Some(ValueIncrease::Int64ValueIncrease(0));
    names.into_iter().map(|name| Metric { name: name.clone(), value_increase: none }).collect()
}

fn stopping() -> Status {
    Status::new(Code::Unavailable, "the server is shutting down")
}

fn status(
    surface: &Surface,
    request: &GetModelStatusRequest,
) -> Result<GetModelStatusResponse, Status> {
    let _permit = surface.calls.enter()?;
    let spec = request.model_spec.as_ref().ok_or_else(spec::missing)?;
    let name = &spec.name;
    let versions = match &spec.version_choice {
        Some(VersionChoice::Version(version)) => {
            let state = surface.monitor.version(name, *version).ok_or_else(|| {
                Status::not_found(format!("Could not find version {version} of model {name}"))
            })?;
            vec![(*version, state)]
        }
        // A label is ignored, as in TensorFlow Serving.
        Some(VersionChoice::VersionLabel(_)) | None => surface.monitor.versions(name),
    };
    if versions.is_empty() {
        return Err(Status::not_found(format!("Could not find any versions of model {name}")));
    }
    Ok(GetModelStatusResponse {
        model_version_status: versions.into_iter().map(version_status).collect(),
    })
}

fn version_status(
    (version, VersionState { state, status }): (i64, VersionState),
) -> ModelVersionStatus {
    let state = match state {
        State::Start => WireState::Start,
        State::Loading => WireState::Loading,
        State::Available => WireState::Available,
        State::Unloading => WireState::Unloading,
        State::End => WireState::End,
    };
    let status = match status {
        Ok(()) => StatusProto::default(),
        Err(status) => {
            StatusProto { error_code: status.code as i32, error_message: status.message }
        }
    };
    ModelVersionStatus { version, state: state.into(), status: Some(status) }
}
