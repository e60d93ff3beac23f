//! ModelService: the states of versions, and the load of models by HandleReloadConfigRequest.

mod reload;
mod status;

use outrigger_core::Failure;
use outrigger_lifecycle::Handle;
use outrigger_proto::tensorflow::serving::{
    GetModelStatusRequest, GetModelStatusResponse, ReloadConfigRequest, ReloadConfigResponse,
    StatusProto, model_service_server::ModelService,
};
use outrigger_xgboost_serving::no_spec;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, async_trait};

pub(super) use self::status::{states, statuses};
use crate::{
    audit::{Record, Target, Verb},
    call::Call,
    failure,
    grpc::Access,
    routing,
};

/// The service.
#[derive(Clone)]
pub(super) struct Models {
    models: Handle,
    /// Cancelled when the server stops: from then on no model is loaded.
    closing: CancellationToken,
}

impl Models {
    pub(super) fn new(models: Handle, closing: CancellationToken) -> Self {
        Self { models, closing }
    }

    fn status(&self, request: &GetModelStatusRequest) -> Result<GetModelStatusResponse, Failure> {
        let spec = request.model_spec.as_ref().ok_or_else(no_spec)?;
        Ok(GetModelStatusResponse { model_version_status: states(&self.models, spec)? })
    }

    /// Loads the versions that a configuration names, one after the other.
    async fn reload(
        &self,
        call: &Call,
        request: &ReloadConfigRequest,
    ) -> Result<ReloadConfigResponse, Failure> {
        let wanted = reload::wanted(request, &self.models);
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(failure) => {
                // The refusal is part of the record of changes too.
                let target = Target { model: reload::first(request), ..Target::default() };
                let refuse = async |_: &mut Record| Err(failure);
                return Access::Change.change(call, Verb::Load, target, refuse).await;
            }
        };
        for selector in &wanted {
            let load = async |record: &mut Record| {
                if reload::answers(selector, &self.models) {
                    return Ok(());
                }
                if self.closing.is_cancelled() {
                    return Err(failure::stopping());
                }
                let (name, version) = routing::target(Some(selector), &self.models)?;
                let lease = self.models.load(&name, &version, call.deadline()).await?;
                record.found(&lease.key.digest);
                Ok(())
            };
            let target = Target::version(Some(selector));
            Access::Change.change(call, Verb::Load, target, load).await?;
        }
        Ok(ReloadConfigResponse { status: Some(StatusProto::default()), metric: Vec::new() })
    }
}

#[async_trait]
impl ModelService for Models {
    async fn get_model_status(
        &self,
        request: Request<GetModelStatusRequest>,
    ) -> Result<Response<GetModelStatusResponse>, Status> {
        let status = self.status(request.get_ref());
        Call::of(request.extensions()).conclude(status.map(Response::new))
    }

    async fn handle_reload_config_request(
        &self,
        request: Request<ReloadConfigRequest>,
    ) -> Result<Response<ReloadConfigResponse>, Status> {
        let call = Call::of(request.extensions());
        let reloaded = self.reload(&call, request.get_ref()).await;
        call.conclude(reloaded.map(Response::new))
    }
}
