//! The engine's gRPC services.

mod deadline;
mod metadata;
mod model;
mod predict;
mod reply;
mod request;
mod services;
mod spec;
mod tensor_in;
mod tensor_out;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Code;

use crate::{
    manager::{Manager, Monitor},
    reload::{Reloader, cores},
    servable::Servable,
    status::Status,
    tensorflow::Runtime,
};

use model::ModelService;
pub(crate) use services::Services;

/// Bytes of a message, as with TensorFlow Serving.
const MESSAGE_LIMIT: usize = i32::MAX as usize;

/// What all calls share.
#[derive(Debug)]
pub struct Surface {
    /// TensorFlow.
    pub runtime: Runtime,
    /// Who has the servables.
    pub manager: Manager<Servable>,
    /// Who applies configurations and knows the labels.
    pub reloader: Reloader<Servable>,
    /// States since the start.
    pub monitor: Monitor,
    /// Answer with `tensor_content`.
    pub as_content: bool,
    /// Calls in progress.
    pub calls: Calls,
    /// Reloads, which outlive the calls that asked for them.
    pub reloads: TaskTracker,
    /// Ends the waits of reloads.
    pub stop: CancellationToken,
}

/// How much may go on at once.
#[derive(Debug)]
pub struct Calls {
    /// One for each thread TensorFlow Serving would have for calls.
    threads: Arc<Semaphore>,
    /// More runs than cores only take turns.
    runs: Arc<Semaphore>,
}

impl Calls {
    /// Up to `threads` calls at once; zero: four a core.
    pub fn new(threads: usize) -> Self {
        let threads = if threads == 0 { 4 * cores() } else { threads };
        Self {
            threads: Arc::new(Semaphore::new(threads.min(Semaphore::MAX_PERMITS))),
            runs: Arc::new(Semaphore::new(cores())),
        }
    }

    /// A place for a call, to be held until its work is done, even when its
    /// caller has gone.
    fn enter(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.threads)
            .try_acquire_owned()
            .map_err(|_| Status::new(Code::ResourceExhausted, "Server Threadpool Exhausted"))
    }

    /// A turn to run a model.
    async fn run(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.runs).acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }
}
