//! Requests in a batch: their run, and their shares of its outputs.

use std::{
    collections::BTreeMap,
    mem,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    time::Instant,
};
use tonic::Code;

use super::{
    Ports, Request, Rules,
    merge::{self, Rows},
    queue::Piece,
};
use crate::{
    status::Status,
    tensorflow::{Endpoint, Executor, Runtime, Session, Tensor},
};

type Outcome = Result<Vec<Tensor>, Status>;

/// A request and its result. It ends when all its rows were run, or with the first error.
pub(super) struct Task {
    runtime: Runtime,
    rules: Arc<Rules>,
    session: Box<dyn AsRef<Session> + Send + Sync>,
    /// Ordered by their places in the graph.
    inputs: Vec<(String, Endpoint, Tensor)>,
    /// In the order of the request.
    outputs: Vec<Endpoint>,
    deadline: Option<Instant>,
    result: Mutex<Partial>,
    _permit: OwnedSemaphorePermit,
}

/// The outputs of the rows that were run so far.
struct Partial {
    /// By their first rows.
    parts: BTreeMap<usize, Vec<Tensor>>,
    /// The number of rows that were not run yet.
    left: usize,
    /// `None` after the result was sent.
    sender: Option<oneshot::Sender<Outcome>>,
}

impl Task {
    /// A request of `rows` rows, and the receiver of its result.
    pub(super) fn new(
        runtime: Runtime,
        rules: Arc<Rules>,
        request: Request,
        rows: usize,
    ) -> (Self, oneshot::Receiver<Outcome>) {
        let Request { session, mut inputs, outputs, deadline, permit } = request;
        inputs.sort_by_key(|(_, endpoint, _)| *endpoint);
        let (sender, outcome) = oneshot::channel();
        let partial = Partial { parts: BTreeMap::new(), left: rows, sender: Some(sender) };
        let result = Mutex::new(partial);
        let task =
            Self { runtime, rules, session, inputs, outputs, deadline, result, _permit: permit };
        (task, outcome)
    }

    /// The inputs and outputs, each ordered by their places in the graph.
    pub(super) fn ports(&self) -> Ports {
        let mut outputs = self.outputs.clone();
        outputs.sort_unstable();
        outputs.dedup();
        (self.inputs.iter().map(|(_, endpoint, _)| *endpoint).collect(), outputs)
    }

    fn fail(&self, status: Status) {
        if let Some(sender) = self.partial().sender.take() {
            // The caller may have gone.
            sender.send(Err(status)).ok();
        }
    }

    /// Takes the outputs of some rows; sends the result when it is complete.
    fn finish(&self, rows: &Range<usize>, outputs: Vec<Tensor>) {
        let mut partial = self.partial();
        partial.parts.insert(rows.start, outputs);
        partial.left -= rows.len();
        if partial.left > 0 {
            return;
        }
        let parts: Vec<_> = mem::take(&mut partial.parts).into_values().collect();
        if let Some(sender) = partial.sender.take() {
            // The caller may have gone.
            sender.send(merge::join(self.runtime, parts)).ok();
        }
    }

    fn partial(&self) -> MutexGuard<'_, Partial> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a batch. If it fails, all its requests fail with its error.
pub(super) fn run(pieces: Vec<Piece<Task>>) {
    match outputs(&pieces) {
        Ok(outputs) => {
            for (Piece { task, rows }, outputs) in pieces.into_iter().zip(outputs) {
                task.finish(&rows, outputs);
            }
        }
        Err(status) => pieces.iter().for_each(|piece| piece.task.fail(status.clone())),
    }
}

/// The outputs of each piece.
fn outputs(pieces: &[Piece<Task>]) -> Result<Vec<Vec<Tensor>>, Status> {
    let timeout = timeout(pieces)?;
    let first = &pieces[0].task;
    let rows: usize = pieces.iter().map(|piece| piece.rows.len()).sum();
    let padding = first.rules.padded(rows) - rows;
    let mut inputs = Vec::with_capacity(first.inputs.len());
    for (index, (name, endpoint, _)) in first.inputs.iter().enumerate() {
        let tensors = pieces.iter().map(|piece| (&piece.task.inputs[index].2, &piece.rows));
        let parts: Vec<_> =
            tensors.map(|(tensor, rows)| Rows { tensor, rows: rows.clone() }).collect();
        let merged = merge::inputs(first.runtime, name, &parts, first.rules.pads, padding)?;
        inputs.push((*endpoint, merged));
    }
    let (_, fetches) = first.ports();
    let results =
        first.session.as_ref().as_ref().run(&inputs, &fetches, Executor::Pool(timeout))?;
    let sent = inputs.first().map_or(0, |(_, merged)| merged.dims()[0]);
    results.iter().try_for_each(|result| merge::check_rows(result, sent))?;
    let mut start = 0;
    let share = |piece: &Piece<Task>| -> Outcome {
        let rows = start..start + piece.rows.len();
        start = rows.end;
        let result = |endpoint| {
            let index = fetches.binary_search(endpoint).expect("a queue has requests of its ports");
            merge::rows(first.runtime, &results[index], rows.clone())
        };
        piece.task.outputs.iter().map(result).collect()
    };
    pieces.iter().map(share).collect()
}

/// The time until the last deadline; `None` if a request has none.
fn timeout(pieces: &[Piece<Task>]) -> Result<Option<Duration>, Status> {
    let deadlines: Option<Vec<_>> = pieces.iter().map(|piece| piece.task.deadline).collect();
    let Some(last) = deadlines.and_then(|deadlines| deadlines.into_iter().max()) else {
        return Ok(None);
    };
    let left = last.saturating_duration_since(Instant::now());
    if left.is_zero() {
        let message = "Run() timeout exceeded while waiting in batching queue";
        return Err(Status::new(Code::ResourceExhausted, message));
    }
    Ok(Some(left))
}
