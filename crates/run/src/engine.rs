//! The interface of an engine for the lifecycle of models.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use outrigger_core::{
    Digest, EngineId, Failure, Interface, ServableId, Versions,
    engine::{Condition, FromEngine, ToEngine},
};
use tokio::{sync::mpsc, time::Instant};

use crate::{Clock, Framework, PackagedModel, Run, RunError};

/// Runs models. One task, [`Engine::run`], owns its state; all other methods send messages
/// to that task or only read.
///
/// # Guarantees
/// - The contract of [`outrigger_core::engine`] about messages.
/// - [`Engine::interface`] ends by its deadline and does not wait for runs of models.
///
/// # Assumptions
/// - [`Engine::adopt`] is called at most once, before [`Engine::run`].
/// - A version is adopted, or published before it is added. It is unpublished after it is gone.
pub trait Engine: Send + Sync + 'static {
    /// The frameworks whose models it runs.
    fn frameworks(&self) -> &[Framework];

    /// The place where it runs.
    fn location(&self) -> Location;

    /// True if the engine may combine concurrent runs of a version into one batch. It may then pad
    /// the dimensions of an input tensor, except the first, at their ends with the tensor's first
    /// element, up to the largest size in the batch. The outputs of a run have the rows of its own
    /// inputs and may be wider than without a batch, and a fault of one run may fail others.
    fn batches(&self) -> bool {
        false
    }

    /// Takes over versions that an earlier process had in the engine. Returns those that the
    /// engine may still have, or can load again under the same name and version. Blocks.
    ///
    /// # Errors
    /// If the state left by the earlier process cannot be read.
    fn adopt(&self, loaded: Vec<Adopted>) -> Result<BTreeSet<ServableId>, Failure> {
        drop(loaded);
        Ok(BTreeSet::new())
    }

    /// Makes the files of a version, which are in the store, available to the engine, before the
    /// `Add` message.
    fn publish(
        &self,
        id: ServableId,
        digest: Digest,
        model: PackagedModel,
    ) -> BoxFuture<'_, Result<(), Failed>>;

    /// Removes the files of a version from the engine's reach. The engine does not have the version
    /// any more.
    fn unpublish(&self, id: ServableId) -> BoxFuture<'_, ()>;

    /// Unpublishes every version of the image `digest`. Its files are about to be deleted.
    fn unpublish_image(&self, digest: Digest) -> BoxFuture<'_, ()>;

    /// Sends a message to the engine. Does not block.
    fn send(&self, message: ToEngine);

    /// The engine's task. It runs until it is dropped.
    fn run(self: Arc<Self>, start: Start) -> BoxFuture<'static, ()>;

    /// Binds a version for requests. The engine need not have loaded it yet.
    fn bind(&self, target: Target) -> Arc<dyn Run>;

    /// The inputs and outputs of the signature called `signature`, as the loaded
    /// version has them.
    fn interface<'a>(
        &'a self,
        id: &'a ServableId,
        signature: &'a str,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Interface, RunError>>;

    /// True if the engine may run the version's own code in one process with that of other versions
    /// for which this is true: the load of one may change the answers of others.
    fn shares_process(&self, id: &ServableId) -> bool {
        let _ = id;
        false
    }

    /// A remark about the files of the loaded version for people, such as parts of them that were
    /// skipped by the version's own settings. None also if the engine does not have the version.
    fn remark(&self, id: &ServableId) -> Option<String> {
        let _ = id;
        None
    }
}

/// The place where an engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// In this process: it always answers.
    InProcess,
    /// In another process, which can fail by itself.
    Elsewhere,
}

/// A version that an earlier process had in the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// The version's name and number in the engine.
    pub id: ServableId,
    /// The image of the version.
    pub digest: Digest,
    /// The model's directory in the store.
    pub model: PathBuf,
}

/// The surroundings of an engine's task.
#[derive(Debug, Clone)]
pub struct Start {
    /// The engine's name.
    pub engine: EngineId,
    /// The clock.
    pub clock: Clock,
    /// The source of new version numbers.
    pub versions: Versions,
    /// The channel for the engine's events. Its receiver never waits for the engine.
    pub events: mpsc::Sender<(EngineId, Event)>,
}

/// An event of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A report about one version.
    Version(FromEngine),
    /// The engine's condition has changed.
    Condition(Condition),
    /// The engine has taken over everything that earlier processes left. Nothing uses published
    /// files that no version of this process needs.
    Settled,
}

/// The failure to publish the files of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// The files are not in the store any more.
    FilesMissing,
    /// Anything else.
    Other(Failure),
}

/// The parts that all runs of a version have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The version.
    pub id: ServableId,
    /// The name of the signature that is run.
    pub signature: Arc<str>,
    /// The inputs that a call usually names, in order.
    pub inputs: Vec<Arc<str>>,
    /// The outputs that a call usually names, in order.
    pub outputs: Vec<Arc<str>>,
    /// The layout of rows in the inputs of its calls.
    pub layout: RowLayout,
}

/// The layout of the rows of requests in a model's inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLayout {
    /// A row for each user: `[B, width]`, and for treatments `[B, T, width]`. Rows of several calls
    /// may be joined; treatments are padded ([`Engine::batches`]).
    PerEntity,
    /// A row for each treatment: `[R, width]`. Rows of several calls may be joined.
    Joined,
    /// Inputs without a common number of rows, such as lists, or tensors that the caller made.
    Unknown,
}

impl Start {
    /// Sends an event. A closed receiver is not an error: the process is stopping.
    pub async fn report(&self, event: Event) {
        self.events.send((self.engine.clone(), event)).await.ok();
    }
}
