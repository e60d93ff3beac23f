//! The engine: what the control plane has of the servers.

use std::{
    collections::BTreeSet,
    fmt, io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use outrigger_core::{Digest, Failure, Interface, Reason, ServableId, engine::ToEngine};
use outrigger_oip_client::{self as client, Class, Client, Place};
use outrigger_run::{
    self as run, Adopted, Failed, Framework, Location, PackagedModel, Run, RunError, Start, Target,
};
use tokio::{sync::mpsc, task::spawn_blocking, time::Instant};

use crate::{
    OIP,
    bound::{Bound, run_error},
    interface,
    repository::Repository,
    task::Task,
    versions::Versions,
};

/// The settings of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The directory from which the servers read models, as this process sees it; models that
    /// packages carry are published there. `None`: packages carry none.
    pub repository: Option<PathBuf>,
    /// True if models are loaded and unloaded through the repository extension. Otherwise the
    /// servers' operators do it.
    pub load: bool,
    /// The time between two checks of the servers.
    pub interval: Duration,
    /// The deadline of a check.
    pub timeout: Duration,
    /// The deadline of a load.
    pub load_timeout: Duration,
}

/// Servers of the protocol as an engine.
pub struct Engine {
    pub(crate) client: Arc<Client>,
    pub(crate) settings: Settings,
    pub(crate) versions: Arc<Versions>,
    pub(crate) inherited: Mutex<Inherited>,
    inbox: mpsc::UnboundedSender<ToEngine>,
    received: Mutex<Option<mpsc::UnboundedReceiver<ToEngine>>>,
}

/// The models that an earlier process left on the servers.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// The versions that are taken over.
    pub(crate) versions: BTreeSet<ServableId>,
    /// The models of versions that are not.
    pub(crate) removed: Vec<Arc<str>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            repository: None,
            load: false,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            load_timeout: Duration::from_secs(120),
        }
    }
}

impl Engine {
    /// Creates an engine behind `client`, and the directory of its repository.
    ///
    /// # Errors
    /// The directory of the repository cannot be created.
    pub fn new(client: Client, settings: Settings) -> io::Result<Self> {
        let repository = settings.repository.clone().map(Repository::open).transpose()?;
        // At most two messages per version wait, so the number of versions bounds the queue.
        let (inbox, received) = mpsc::unbounded_channel();
        Ok(Self {
            client: Arc::new(client),
            settings,
            versions: Arc::new(Versions::new(repository)),
            inherited: Mutex::default(),
            inbox,
            received: Mutex::new(Some(received)),
        })
    }

    /// Changes the published versions, which blocks.
    async fn change(
        &self,
        change: impl FnOnce(&Versions) -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let versions = Arc::clone(&self.versions);
        let changed = spawn_blocking(move || change(&versions)).await;
        changed.unwrap_or_else(|_| Err(Failure::new(Reason::Internal, "a change panicked")))
    }

    async fn remove(&self, remove: impl FnOnce(&Versions) -> Result<(), Failure> + Send + 'static) {
        if let Err(failure) = self.change(remove).await {
            // The files take space, and the next start removes them.
            tracing::warn!(%failure, "models were not removed from the repository");
        }
    }
}

impl run::Engine for Engine {
    fn frameworks(&self) -> &[Framework] {
        &[OIP]
    }

    fn location(&self) -> Location {
        Location::Elsewhere
    }

    /// Takes over the versions that were published to the repository. Others are added again and
    /// pass the gate again: their servers may have other models by now.
    fn adopt(&self, loaded: Vec<Adopted>) -> Result<BTreeSet<ServableId>, Failure> {
        let (versions, removed) = self.versions.adopt(loaded)?;
        let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        *inherited = Inherited { versions: versions.clone(), removed };
        Ok(versions)
    }

    fn publish(
        &self,
        id: ServableId,
        digest: Digest,
        model: PackagedModel,
    ) -> BoxFuture<'_, Result<(), Failed>> {
        Box::pin(async move {
            let publish =
                move |versions: &Versions| versions.publish(id, digest, model.without_uplift()?);
            self.change(publish).await.map_err(Failed::Other)
        })
    }

    fn unpublish(&self, id: ServableId) -> BoxFuture<'_, ()> {
        Box::pin(self.remove(move |versions| versions.unpublish(&id)))
    }

    fn unpublish_image(&self, digest: Digest) -> BoxFuture<'_, ()> {
        Box::pin(self.remove(move |versions| versions.unpublish_image(digest)))
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

    fn bind(&self, target: Target) -> Arc<dyn Run> {
        Arc::new(Bound {
            client: Arc::clone(&self.client),
            id: target.id,
            layout: target.layout,
            versions: Arc::clone(&self.versions),
        })
    }

    fn shares_process(&self, id: &ServableId) -> bool {
        self.settings.load && self.versions.get(id).is_some_and(|it| it.package.shares_process)
    }

    fn interface<'a>(
        &'a self,
        id: &'a ServableId,
        _: &'a str,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Interface, RunError>> {
        Box::pin(async move {
            let not_served = || RunError::NotServed { servable: id.clone() };
            let version = self.versions.get(id).ok_or_else(not_served)?;
            let model = version.remote.reference();
            let places = self.client.places(model);
            let mut hosts: Vec<_> = (0..places.len()).collect();
            hosts.sort_by_key(|host| places[*host] != Place::In);
            let mut last = None;
            for (asked, host) in hosts.iter().copied().enumerate() {
                // A server that does not answer leaves time for the others.
                let left = deadline.saturating_duration_since(Instant::now());
                let share = u32::try_from(hosts.len() - asked).unwrap_or(u32::MAX);
                match self.client.metadata(host, model, Instant::now() + left / share).await {
                    Ok(metadata) => {
                        return Ok(interface::described(metadata, &version.package));
                    }
                    // A server may refuse to describe a model that it runs.
                    Err(failure) if is_refusal(&failure) => return Ok(version.package.interface()),
                    Err(failure) => last = Some(failure),
                }
            }
            Err(last.map_or_else(not_served, run_error))
        })
    }
}

fn is_refusal(failure: &client::Failure) -> bool {
    let refuses = matches!(failure.class, Class::Refused | Class::Ambiguous);
    refuses && !failure.is_not_served()
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("client", &self.client).finish_non_exhaustive()
    }
}
