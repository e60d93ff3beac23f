//! Batching: concurrent requests for one model become one run, as in TensorFlow Serving
//! (`batching/batching_session.cc`, TensorFlow's `shared_batch_scheduler.h`).
//!
//! Each version has a queue for each set of inputs and outputs. A fixed number of threads, which all
//! models share, takes batches from the queues in turn. The requests of a batch share its fate.

mod merge;
mod parameters;
mod pool;
mod queue;
mod task;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::Instant,
};

pub use parameters::{Parameters, Rules};
pub use pool::Pool;

use crate::{
    status::Status,
    tensorflow::{Endpoint, Runtime, Session, Tensor},
};
use pool::QueueId;
use task::Task;

/// A run that becomes part of a batch.
pub struct Request {
    /// The version's session, which stays in memory until the run has ended.
    pub session: Box<dyn AsRef<Session> + Send + Sync>,
    /// The inputs: name in the graph, place and value.
    pub inputs: Vec<(String, Endpoint, Tensor)>,
    /// The outputs to compute.
    pub outputs: Vec<Endpoint>,
    /// The time after which no caller waits.
    pub deadline: Option<Instant>,
    /// The call's permit, which is held until its run has ended.
    pub permit: OwnedSemaphorePermit,
}

/// Batches the requests for one version of a model.
#[derive(Debug)]
pub struct Batcher {
    runtime: Runtime,
    pool: Arc<Pool>,
    rules: Arc<Rules>,
    /// The queues by their inputs and outputs.
    queues: Mutex<BTreeMap<Ports, QueueId>>,
}

/// A batch has requests of the same inputs and outputs only.
type Ports = (Vec<Endpoint>, Vec<Endpoint>);

impl Batcher {
    /// A batcher whose batches are run by `pool`.
    pub fn new(runtime: Runtime, pool: Arc<Pool>, rules: Rules) -> Self {
        Self { runtime, pool, rules: Arc::new(rules), queues: Mutex::default() }
    }

    /// Puts a request into its queue. The receiver gets its outputs, in the order of the request.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the request has no rows to batch or too many, UNAVAILABLE if the queue is
    /// full.
    pub fn submit(
        &self,
        request: Request,
    ) -> Result<oneshot::Receiver<Result<Vec<Tensor>, Status>>, Status> {
        let rows = rows(&request.inputs)?;
        let (task, outcome) = Task::new(self.runtime, Arc::clone(&self.rules), request, rows);
        let ports = task.ports();
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(ports).or_insert_with(|| self.pool.open(Arc::clone(&self.rules)));
        self.pool.push(*queue, Arc::new(task), rows).map(|()| outcome)
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        let queues = self.queues.get_mut().unwrap_or_else(PoisonError::into_inner);
        queues.values().for_each(|queue| self.pool.close(*queue));
    }
}

/// The number of rows of a request: the first dimension of all its inputs.
fn rows(inputs: &[(String, Endpoint, Tensor)]) -> Result<usize, Status> {
    let mut rows = None;
    for (_, _, tensor) in inputs {
        let first = *tensor.dims().first().ok_or_else(|| {
            Status::invalid("Batching Run() input tensors must have at least one dimension")
        })?;
        if *rows.get_or_insert(first) != first {
            let message = "Batching Run() input tensors must have equal 0th-dimension size";
            return Err(Status::invalid(message));
        }
    }
    let rows =
        rows.ok_or_else(|| Status::invalid("Batching Run() must have at least one input tensor"))?;
    Ok(usize::try_from(rows).unwrap_or(0))
}
