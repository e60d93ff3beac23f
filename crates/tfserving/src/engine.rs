//! TensorFlow Serving as an engine: the client, the machine that decides, and the task
//! that runs the machine.

mod bound;
mod calls;
mod files;
pub mod metrics;
mod reloads;
mod retries;
mod task;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::BoxFuture;
use outrigger_core::{Digest, Failure, Interface, ServableId, ServableName, engine::ToEngine};
use outrigger_run::{
    self as run, Adopted, Failed, Framework, Location, PackagedModel, Run, RunError, Start,
};
use outrigger_store::Serving;
use outrigger_trace::Tracer;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use self::{bound::Bound, files::Files, retries::RetriesByModel, task::Task};
use crate::{Client, TENSORFLOW, machine::Policy};

/// The settings of an engine that is a TensorFlow Serving.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The intervals of probes and reloads.
    pub policy: Policy,
    /// True if the engine batches requests.
    pub batching: bool,
    /// Records reloads as traces.
    pub tracer: Tracer,
}

/// A TensorFlow Serving with access to the model store.
pub struct Engine {
    client: Arc<Client>,
    files: Files,
    settings: Settings,
    /// Notified when a call fails in a way that suggests a restart.
    suspect: Arc<Notify>,
    retries: RetriesByModel,
    inbox: mpsc::UnboundedSender<ToEngine>,
    received: Mutex<Option<mpsc::UnboundedReceiver<ToEngine>>>,
    inherited: Mutex<Inherited>,
}

/// The parts of the engine's configuration that an earlier process left.
#[derive(Debug, Default)]
struct Inherited {
    placeholders: BTreeMap<ServableName, ServableId>,
    versions: BTreeSet<ServableId>,
}

impl Engine {
    /// Creates an engine behind `client` that finds its files in `serving`.
    pub fn new(client: Client, serving: Serving, settings: Settings) -> Self {
        // At most two messages per version wait, so the number of versions bounds the queue.
        let (inbox, received) = mpsc::unbounded_channel();
        Self {
            client: Arc::new(client),
            files: Files::new(serving),
            settings,
            suspect: Arc::default(),
            retries: RetriesByModel::default(),
            inbox,
            received: Mutex::new(Some(received)),
            inherited: Mutex::default(),
        }
    }
}

impl run::Engine for Engine {
    fn frameworks(&self) -> &[Framework] {
        &[TENSORFLOW]
    }

    fn location(&self) -> Location {
        Location::Elsewhere
    }

    fn batches(&self) -> bool {
        self.settings.batching
    }

    /// Selects the versions that can be adopted: those still published, under a name whose
    /// placeholder is published too.
    fn adopt(&self, loaded: Vec<Adopted>) -> Result<BTreeSet<ServableId>, Failure> {
        let published = self.files.published()?;
        let placeholders = files::placeholders(&published);
        let usable = |it: &Adopted| {
            let link = outrigger_store::Published { id: it.id.clone(), tree: Some(it.digest) };
            placeholders.contains_key(&it.id.name) && published.contains(&link)
        };
        let versions: BTreeSet<_> = loaded.into_iter().filter(usable).map(|it| it.id).collect();
        let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        // Every placeholder is adopted: the engine may know names that have no version left.
        *inherited = Inherited { placeholders, versions: versions.clone() };
        Ok(versions)
    }

    fn publish(
        &self,
        id: ServableId,
        digest: Digest,
        _: PackagedModel,
    ) -> BoxFuture<'_, Result<(), Failed>> {
        Box::pin(self.files.publish(id, digest))
    }

    fn unpublish(&self, id: ServableId) -> BoxFuture<'_, ()> {
        Box::pin(self.files.unpublish(id))
    }

    fn unpublish_image(&self, digest: Digest) -> BoxFuture<'_, ()> {
        Box::pin(self.files.unpublish_image(digest))
    }

    fn send(&self, message: ToEngine) {
        // The receiver ends with the engine's task, when the process stops.
        self.inbox.send(message).ok();
    }

    fn run(self: Arc<Self>, start: Start) -> BoxFuture<'static, ()> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner).take();
        let received = received.expect("an engine is run once");
        Box::pin(Task::new(self, start).run(received))
    }

    fn bind(&self, target: run::Target) -> Arc<dyn Run> {
        let retries = self.settings.batching.then(|| self.retries.of(&target.id.name));
        Arc::new(Bound::new(Arc::clone(&self.client), target, Arc::clone(&self.suspect), retries))
    }

    fn interface<'a>(
        &'a self,
        id: &'a ServableId,
        signature: &'a str,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Interface, RunError>> {
        Box::pin(self.client.signature(id, signature, deadline))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("client", &self.client).finish_non_exhaustive()
    }
}
