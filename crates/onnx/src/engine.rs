//! The process as an engine of the control plane.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use outrigger_core::{Digest, Failure, Interface, Reason, ServableId, engine::ToEngine};
use outrigger_run::{
    self as run, Adopted, Failed, Framework, Location, PackagedModel, Run, RunError, Start, Target,
};
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc},
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use crate::{Config, ONNX, bound::Bound, client::Client, file, framework::SIGNATURE, task::Task};

/// An engine for ONNX models in another process, which sees the files of the store.
pub struct Engine {
    pub(crate) client: Arc<Client>,
    /// The store's path here and in the file system of the process, if they differ.
    roots: Option<(PathBuf, PathBuf)>,
    /// The directories of the published versions.
    published: Mutex<BTreeMap<ServableId, (Digest, PathBuf)>>,
    /// Versions that an earlier process of the control plane had in the engine.
    adopted: Mutex<BTreeSet<ServableId>>,
    pub(crate) suspect: Arc<Notify>,
    inbox: mpsc::UnboundedSender<ToEngine>,
    received: Mutex<Option<mpsc::UnboundedReceiver<ToEngine>>>,
}

impl Engine {
    /// Creates an engine whose connections for runs are driven by `runtimes`, which must not be empty.
    /// `roots` are the store's path here and in the file system of the process, if they differ.
    pub fn new(config: Config, runtimes: &[Handle], roots: Option<(PathBuf, PathBuf)>) -> Self {
        // At most two messages per version wait, so the number of versions bounds the queue.
        let (inbox, received) = mpsc::unbounded_channel();
        Self {
            client: Arc::new(Client::new(config, runtimes)),
            roots,
            published: Mutex::default(),
            adopted: Mutex::default(),
            suspect: Arc::default(),
            inbox,
            received: Mutex::new(Some(received)),
        }
    }

    /// The directory of a published version, as the process sees it. Paths of the store are UTF-8.
    pub(crate) fn directory(&self, id: &ServableId) -> Option<String> {
        let (_, directory) = lock(&self.published).get(id).cloned()?;
        let moved = self
            .roots
            .as_ref()
            .and_then(|(here, there)| Some(there.join(directory.strip_prefix(here).ok()?)));
        Some(moved.unwrap_or(directory).to_string_lossy().into_owned())
    }
}

impl run::Engine for Engine {
    fn frameworks(&self) -> &[Framework] {
        &[ONNX]
    }

    fn location(&self) -> Location {
        Location::Elsewhere
    }

    fn adopt(&self, loaded: Vec<Adopted>) -> Result<BTreeSet<ServableId>, Failure> {
        let present = loaded.into_iter().filter(|it| it.model.is_dir());
        let published = present.map(|Adopted { id, digest, model }| (id, (digest, model)));
        let published: BTreeMap<_, _> = published.collect();
        let adopted: BTreeSet<_> = published.keys().cloned().collect();
        lock(&self.published).extend(published);
        lock(&self.adopted).clone_from(&adopted);
        Ok(adopted)
    }

    fn publish(
        &self,
        id: ServableId,
        digest: Digest,
        model: PackagedModel,
    ) -> BoxFuture<'_, Result<(), Failed>> {
        lock(&self.published).insert(id, (digest, model.directory));
        Box::pin(std::future::ready(Ok(())))
    }

    fn unpublish(&self, id: ServableId) -> BoxFuture<'_, ()> {
        lock(&self.published).remove(&id);
        Box::pin(std::future::ready(()))
    }

    fn unpublish_image(&self, digest: Digest) -> BoxFuture<'_, ()> {
        lock(&self.published).retain(|_, (of, _)| *of != digest);
        Box::pin(std::future::ready(()))
    }

    fn send(&self, message: ToEngine) {
        // The receiver ends with the engine's task, when the process stops.
        self.inbox.send(message).ok();
    }

    fn run(self: Arc<Self>, start: Start) -> BoxFuture<'static, ()> {
        let received = lock(&self.received).take().expect("an engine is run once");
        let adopted = std::mem::take(&mut *lock(&self.adopted));
        Box::pin(Task::new(self, start, adopted).run(received))
    }

    fn bind(&self, target: Target) -> Arc<dyn Run> {
        let (client, suspect) = (Arc::clone(&self.client), Arc::clone(&self.suspect));
        let share = client.share();
        Arc::new(Bound { client, id: target.id, share, suspect })
    }

    /// The interface is that of the file, which the process has loaded.
    fn interface<'a>(
        &'a self,
        id: &'a ServableId,
        signature: &'a str,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Interface, RunError>> {
        Box::pin(async move {
            if signature != SIGNATURE {
                let (signature, known) = (signature.to_owned(), vec![SIGNATURE.to_owned()]);
                return Err(RunError::NoSignature { signature, known });
            }
            let directory = lock(&self.published).get(id).map(|(_, directory)| directory.clone());
            let not_served = || RunError::NotServed { servable: id.clone() };
            let directory = directory.ok_or_else(not_served)?;
            let read = spawn_blocking(move || file::read(&directory));
            let read = timeout_at(deadline, read).await.map_err(|_| RunError::DeadlineExceeded)?;
            let answer = |source| RunError::Answer { reason: Reason::ImageInvalid, source };
            read.map_err(|error| answer(error.into()))?.map_err(|error| answer(error.into()))
        })
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("client", &self.client).finish_non_exhaustive()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
