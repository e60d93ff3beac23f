//! CanaryService: what canaries there are; on the admin listener, decisions.

use outrigger_core::{Failure, ModelName, Reason, Selector, Tag};
use outrigger_lifecycle::{Act, By, Handle};
use outrigger_proto::outrigger::v1::{
    AbortCanaryRequest, AbortCanaryResponse, ListCanariesRequest, ListCanariesResponse,
    PromoteCanaryRequest, PromoteCanaryResponse, canary_service_server::CanaryService,
};
use tonic::{Request, Response, Status, async_trait};

use super::Access;
use crate::{call::Call, canary_views, routing};

/// The service for one listener.
#[derive(Clone)]
pub(crate) struct Canaries {
    models: Handle,
    access: Access,
}

impl Canaries {
    pub(crate) fn new(models: Handle, access: Access) -> Self {
        Self { models, access }
    }

    async fn decide(
        &self,
        (model, tag): (&str, &str),
        act: Act,
        (who, why): (String, String),
    ) -> Result<(), Failure> {
        if self.access == Access::Read {
            let message = "canaries are decided about on the admin listener only";
            return Err(Failure::new(Reason::AdminOnly, message));
        }
        if who.is_empty() {
            return Err(routing::invalid("by", "must say who decides"));
        }
        let model: ModelName = routing::parsed("model", model)?;
        let tag = self.tag(&model, tag)?;
        self.models.decide(&model, &tag, act, By { who, why }).await
    }

    /// The live tag that is meant.
    fn tag(&self, model: &ModelName, tag: &str) -> Result<Tag, Failure> {
        if !tag.is_empty() {
            return routing::parsed("tag", tag);
        }
        match self.models.default_selector(model) {
            Selector::Tag(tag) => Ok(tag),
            Selector::Digest(_) => {
                Err(routing::invalid("tag", "must be given: the model is pinned to a digest"))
            }
        }
    }
}

#[async_trait]
impl CanaryService for Canaries {
    async fn list_canaries(
        &self,
        request: Request<ListCanariesRequest>,
    ) -> Result<Response<ListCanariesResponse>, Status> {
        let listed = canary_views::list(&self.models.canaries(), &request.get_ref().model);
        Call::of(request.extensions()).conclude(Ok(Response::new(listed)))
    }

    async fn promote_canary(
        &self,
        request: Request<PromoteCanaryRequest>,
    ) -> Result<Response<PromoteCanaryResponse>, Status> {
        let call = Call::of(request.extensions());
        let PromoteCanaryRequest { model, tag, by, reason } = request.into_inner();
        let decided = self.decide((&model, &tag), Act::Promote, (by, reason)).await;
        call.conclude(decided.map(|()| Response::new(PromoteCanaryResponse {})))
    }

    async fn abort_canary(
        &self,
        request: Request<AbortCanaryRequest>,
    ) -> Result<Response<AbortCanaryResponse>, Status> {
        let call = Call::of(request.extensions());
        let AbortCanaryRequest { model, tag, by, reason } = request.into_inner();
        let decided = self.decide((&model, &tag), Act::Abort, (by, reason)).await;
        call.conclude(decided.map(|()| Response::new(AbortCanaryResponse {})))
    }
}
