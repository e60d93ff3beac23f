//! An engine that batches, made of one that does not.

use std::{collections::BTreeSet, fmt, sync::Arc};

use futures::future::BoxFuture;
use outrigger_budget::{Account, Budget};
use outrigger_core::{Digest, EngineId, Failure, Interface, ServableId, engine::ToEngine};
use outrigger_run::{
    Adopted, Engine, Failed, Framework, Location, PackagedModel, Run, RunError, Start, Target,
};
use tokio::time::Instant;

use crate::{Settings, batcher::Batcher, metrics::Metrics};

/// An engine whose versions run calls of several requests together.
pub struct Batched {
    inner: Arc<dyn Engine>,
    settings: Settings,
    account: Account,
    metrics: Arc<Metrics>,
}

impl Batched {
    /// Adds batches to `inner`, the engine called `name`. The memory of joined inputs is charged to
    /// the account of requests of `budget`.
    pub fn new(
        inner: Arc<dyn Engine>,
        name: &EngineId,
        settings: Settings,
        budget: &Budget,
    ) -> Self {
        let (account, metrics) = (budget.requests.clone(), Arc::new(Metrics::new(name)));
        Self { inner, settings, account, metrics }
    }
}

impl Engine for Batched {
    fn frameworks(&self) -> &[Framework] {
        self.inner.frameworks()
    }

    fn location(&self) -> Location {
        self.inner.location()
    }

    fn batches(&self) -> bool {
        true
    }

    fn adopt(&self, loaded: Vec<Adopted>) -> Result<BTreeSet<ServableId>, Failure> {
        self.inner.adopt(loaded)
    }

    fn publish(
        &self,
        id: ServableId,
        digest: Digest,
        model: PackagedModel,
    ) -> BoxFuture<'_, Result<(), Failed>> {
        self.inner.publish(id, digest, model)
    }

    fn unpublish(&self, id: ServableId) -> BoxFuture<'_, ()> {
        self.inner.unpublish(id)
    }

    fn unpublish_image(&self, digest: Digest) -> BoxFuture<'_, ()> {
        self.inner.unpublish_image(digest)
    }

    fn send(&self, message: ToEngine) {
        self.inner.send(message);
    }

    fn run(self: Arc<Self>, start: Start) -> BoxFuture<'static, ()> {
        Arc::clone(&self.inner).run(start)
    }

    fn bind(&self, target: Target) -> Arc<dyn Run> {
        let version = (target.id.clone(), target.layout);
        let inner = self.inner.bind(target);
        let (account, metrics) = (self.account.clone(), Arc::clone(&self.metrics));
        Arc::new(Batcher::new(version, inner, self.settings, account, metrics))
    }

    fn interface<'a>(
        &'a self,
        id: &'a ServableId,
        signature: &'a str,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Interface, RunError>> {
        self.inner.interface(id, signature, deadline)
    }

    fn shares_process(&self, id: &ServableId) -> bool {
        self.inner.shares_process(id)
    }

    fn remark(&self, id: &ServableId) -> Option<String> {
        self.inner.remark(id)
    }
}

impl fmt::Debug for Batched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batched").field("settings", &self.settings).finish_non_exhaustive()
    }
}
