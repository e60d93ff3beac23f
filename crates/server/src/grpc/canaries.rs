//! CanaryService: lists canaries; on the admin listener it also takes decisions.

use outrigger_core::{Failure, ModelName, Selector, Tag};
use outrigger_lifecycle::{Act, By, Handle};
use outrigger_proto::outrigger::v1::{
    AbortCanaryRequest, AbortCanaryResponse, ListCanariesRequest, ListCanariesResponse,
    PromoteCanaryRequest, PromoteCanaryResponse, canary_service_server::CanaryService,
};
use tonic::{Request, Response, Status, async_trait};

use super::Access;
use crate::{
    audit::{Record, Target, Verb},
    call::Call,
    caller::{Caller, Identity},
    canary_views, routing,
};

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

    /// Applies an operator's decision `by = (who, why)` to the canary of `(model, tag)`.
    async fn decide(
        &self,
        call: &Call,
        act: Act,
        (model, tag): (String, String),
        (who, why): (String, String),
    ) -> Result<(), Failure> {
        let verb = match act {
            Act::Promote => Verb::Promote,
            Act::Abort => Verb::Abort,
        };
        let (by, reason) = (who.clone(), why.clone());
        let target =
            Target { model: model.clone(), tag: tag.clone(), by, reason, ..Target::default() };
        let decide = async |_: &mut Record| {
            if who.is_empty() {
                return Err(routing::invalid("by", "must say who decides"));
            }
            let model: ModelName = routing::parsed("model", &model)?;
            let tag = self.tag(&model, &tag)?;
            let who = proven(who, call.caller());
            self.models.decide(&model, &tag, act, By { who, why }).await
        };
        self.access.change(call, verb, target, decide).await
    }

    /// The live tag: the given one, or the model's default if it is empty.
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

/// The operator's name as given in the request, followed by the proven identity if there is one.
/// The operator's token proves no person.
fn proven(who: String, caller: &Caller) -> String {
    match caller.identity() {
        Some(identity) if *identity != Identity::operator() => format!("{who} ({identity})"),
        _ => who,
    }
}

#[async_trait]
impl CanaryService for Canaries {
    async fn list_canaries(
        &self,
        request: Request<ListCanariesRequest>,
    ) -> Result<Response<ListCanariesResponse>, Status> {
        let listed = canary_views::list(&self.models.canaries().borrow(), &request.get_ref().model);
        Call::of(request.extensions()).conclude(Ok(Response::new(listed)))
    }

    async fn promote_canary(
        &self,
        request: Request<PromoteCanaryRequest>,
    ) -> Result<Response<PromoteCanaryResponse>, Status> {
        let call = Call::of(request.extensions());
        let PromoteCanaryRequest { model, tag, by, reason } = request.into_inner();
        let decided = self.decide(&call, Act::Promote, (model, tag), (by, reason)).await;
        call.conclude(decided.map(|()| Response::new(PromoteCanaryResponse {})))
    }

    async fn abort_canary(
        &self,
        request: Request<AbortCanaryRequest>,
    ) -> Result<Response<AbortCanaryResponse>, Status> {
        let call = Call::of(request.extensions());
        let AbortCanaryRequest { model, tag, by, reason } = request.into_inner();
        let decided = self.decide(&call, Act::Abort, (model, tag), (by, reason)).await;
        call.conclude(decided.map(|()| Response::new(AbortCanaryResponse {})))
    }
}
