//! The engine's gRPC services.

mod deadline;
mod message;
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
    cores::cores,
    manager::{Manager, Monitor},
    reload::Reloader,
    servable::Servable,
    status::Status,
    step_stats::StepStats,
    tensorflow::Runtime,
};

use model::ModelService;
pub(crate) use services::Services;

/// Maximum size of a message in bytes, as in TensorFlow Serving.
const MESSAGE_LIMIT: usize = i32::MAX as usize;

/// State that all calls share.
#[derive(Debug)]
pub struct Surface {
    /// TensorFlow.
    pub runtime: Runtime,
    /// Holds the servables.
    pub manager: Manager<Servable>,
    /// Applies configurations and resolves labels.
    pub reloader: Reloader<Servable>,
    /// States of versions since the start.
    pub monitor: Monitor,
    /// True if outputs are sent as `tensor_content`.
    pub as_content: bool,
    /// Traces every run; `None` if runs are not traced.
    pub step_stats: Option<StepStats>,
    /// Limits on concurrent calls.
    pub calls: Calls,
    /// Running reloads; they outlive the calls that requested them.
    pub reloads: TaskTracker,
    /// Cancelled at shutdown; ends the waits of reloads.
    pub stop: CancellationToken,
}

/// The limit on concurrent calls: one permit for each thread that TensorFlow Serving would have.
#[derive(Debug)]
pub struct Calls(Arc<Semaphore>);

impl Calls {
    /// Limits for `threads` concurrent calls; zero means four per core.
    pub fn new(threads: usize) -> Self {
        let threads = if threads == 0 { 4 * cores() } else { threads };
        Self(Arc::new(Semaphore::new(threads.min(Semaphore::MAX_PERMITS))))
    }

    /// A permit for a call. It is held until the work is done, even if the caller has
    /// disconnected.
    fn enter(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.0)
            .try_acquire_owned()
            .map_err(|_| Status::new(Code::ResourceExhausted, "Server Threadpool Exhausted"))
    }
}
