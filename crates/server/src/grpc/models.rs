//! ModelService: lists models with their states and failures; on the admin listener it also takes
//! changes.

use std::{collections::BTreeSet, pin::Pin, sync::Arc};

use futures::{Stream, StreamExt as _};
use outrigger_budget::Budget;
use outrigger_core::{Failure, ModelName, Reason};
use outrigger_lifecycle::{Handle, Snapshot};
use outrigger_proto::outrigger::v1::{
    GetModelRequest, GetModelResponse, ListModelsRequest, ListModelsResponse, LoadModelRequest,
    LoadModelResponse, Model, UnloadModelRequest, UnloadModelResponse, WatchModelsRequest,
    WatchModelsResponse, model_service_server::ModelService,
};
use tokio::sync::Semaphore;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, async_trait};

use super::Access;
use crate::{
    audit::{Record, Target, Verb},
    call::Call,
    failure, routing,
    served::served,
    views::{History, described, model},
};

/// The most watches of one listener; the server keeps the last sent state of each.
const MOST_WATCHES: usize = 256;

/// The service for one listener.
#[derive(Clone)]
pub(crate) struct Models {
    models: Handle,
    budget: Budget,
    access: Access,
    /// Cancelled when the server stops: from then on no model is loaded.
    closing: CancellationToken,
    watches: Arc<Semaphore>,
}

impl Models {
    pub(crate) fn new(
        models: Handle,
        budget: Budget,
        access: Access,
        closing: CancellationToken,
    ) -> Self {
        Self { models, budget, access, closing, watches: Arc::new(Semaphore::new(MOST_WATCHES)) }
    }

    async fn load(
        &self,
        request: LoadModelRequest,
        deadline: tokio::time::Instant,
        record: &mut Record,
    ) -> Result<LoadModelResponse, Failure> {
        if self.closing.is_cancelled() {
            return Err(failure::stopping());
        }
        let (name, selector) = routing::target(request.model.as_ref(), &self.models)?;
        let lease = self.models.load(&name, &selector, deadline).await?;
        record.found(&lease.key.digest);
        Ok(LoadModelResponse { model: Some(served(&lease)) })
    }

    async fn unload(&self, request: UnloadModelRequest) -> Result<UnloadModelResponse, Failure> {
        let (name, selector) = routing::target(request.model.as_ref(), &self.models)?;
        self.models.unload(&name, &selector, request.delete).await?;
        Ok(UnloadModelResponse {})
    }
}

#[async_trait]
impl ModelService for Models {
    async fn list_models(
        &self,
        request: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        let models = listed(&self.models.models(), &BTreeSet::new(), History::Omitted);
        Call::of(request.extensions()).conclude(Ok(Response::new(ListModelsResponse { models })))
    }

    async fn get_model(
        &self,
        request: Request<GetModelRequest>,
    ) -> Result<Response<GetModelResponse>, Status> {
        let found = described(&self.models, &self.budget, &request.get_ref().name);
        let response = |model| Response::new(GetModelResponse { model: Some(model) });
        Call::of(request.extensions()).conclude(found.map(response))
    }

    type WatchModelsStream =
        Pin<Box<dyn Stream<Item = Result<WatchModelsResponse, Status>> + Send>>;

    async fn watch_models(
        &self,
        request: Request<WatchModelsRequest>,
    ) -> Result<Response<Self::WatchModelsStream>, Status> {
        let call = Call::of(request.extensions());
        let Ok(place) = Arc::clone(&self.watches).try_acquire_owned() else {
            let message = "as many watches as allowed are open";
            return call.conclude(Err(Failure::new(Reason::Overloaded, message)));
        };
        let names: BTreeSet<String> = request.into_inner().names.into_iter().collect();
        let mut last = None;
        let changes = WatchStream::new(self.models.watch()).filter_map(move |snapshot| {
            let _held = &place;
            let models = listed(&snapshot, &names, History::Included);
            let changed = last.as_ref() != Some(&models);
            last = Some(models.clone());
            let response = changed.then_some(Ok(WatchModelsResponse { models }));
            std::future::ready(response)
        });
        call.conclude(Ok(Response::new(Box::pin(changes) as Self::WatchModelsStream)))
    }

    async fn load_model(
        &self,
        request: Request<LoadModelRequest>,
    ) -> Result<Response<LoadModelResponse>, Status> {
        let call = Call::of(request.extensions());
        let request = request.into_inner();
        let target = Target::version(request.model.as_ref());
        let load = async |record: &mut Record| self.load(request, call.deadline(), record).await;
        let loaded = self.access.change(&call, Verb::Load, target, load).await;
        call.conclude(loaded.map(Response::new))
    }

    async fn unload_model(
        &self,
        request: Request<UnloadModelRequest>,
    ) -> Result<Response<UnloadModelResponse>, Status> {
        let call = Call::of(request.extensions());
        let request = request.into_inner();
        let target = Target::version(request.model.as_ref());
        let target = Target { delete: request.delete, ..target };
        let unload = async |_: &mut Record| self.unload(request).await;
        let unloaded = self.access.change(&call, Verb::Unload, target, unload).await;
        call.conclude(unloaded.map(Response::new))
    }
}

/// The models of these names, or all models if there are none.
fn listed(snapshot: &Arc<Snapshot>, names: &BTreeSet<String>, history: History) -> Vec<Model> {
    let wanted = |name: &ModelName| names.is_empty() || names.contains(name.as_str());
    let models = snapshot.models.iter().filter(|(name, _)| wanted(name));
    models.map(|(name, view)| model(name, view, history)).collect()
}
