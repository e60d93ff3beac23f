//! One call on the pool: it is divided into parts, and their outputs are joined.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use outrigger_core::{Content, Tensor};
use tokio::{sync::oneshot, time::timeout_at};

use super::{
    Estimates,
    loader::Held,
    lock,
    pool::{Pool, Queue, Work},
};
use crate::{Call, RunError};

/// The result of a call.
type Answer = Result<Vec<Tensor>, RunError>;

/// Runs a call on the pool, and waits for it until its deadline. If the caller stops waiting, parts
/// that have not begun are dropped; those that have begun go on, because they cannot be interrupted.
pub(super) async fn run(
    pool: &Pool,
    held: Arc<Held>,
    estimates: Arc<Estimates>,
    call: Call,
    bytes: usize,
) -> Answer {
    let (sender, answer) = oneshot::channel();
    let (deadline, sender) = (call.deadline, Mutex::new(Some(sender)));
    let job = Job { held, estimates, bytes, deadline: deadline.into_std(), sender };
    pool.submit(Arc::new(Undivided { job: Arc::new(job), call: Mutex::new(Some(call)) }));
    let answer = timeout_at(deadline, answer).await;
    // A call has no answer if the pool dropped it at the deadline.
    answer.map_or(None, Result::ok).unwrap_or(Err(RunError::DeadlineExceeded))
}

/// The failure of a run that panicked.
pub(super) fn panicked() -> RunError {
    RunError::Failed { code: "Internal".to_owned(), message: "the run panicked".to_owned() }
}

/// The model of a call, and the caller who waits.
struct Job {
    held: Arc<Held>,
    estimates: Arc<Estimates>,
    /// The size of the inputs.
    bytes: usize,
    deadline: Instant,
    /// None as soon as there is an answer.
    sender: Mutex<Option<oneshot::Sender<Answer>>>,
}

impl Job {
    fn is_over(&self) -> bool {
        let waits = |sender: &oneshot::Sender<Answer>| !sender.is_closed();
        self.deadline <= Instant::now() || !lock(&self.sender).as_ref().is_some_and(waits)
    }

    /// Answers the call, unless it has been answered.
    fn answer(&self, answer: Answer) {
        if let Some(sender) = lock(&self.sender).take() {
            // The error is ignored: the caller may have stopped waiting.
            sender.send(answer).ok();
        }
    }

    /// Does work for the call. A failure, or a panic, is the answer of the call; there is no result.
    fn attempt<T>(&self, work: impl FnOnce() -> Result<T, RunError>) -> Option<T> {
        let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(panicked()));
        result.map_err(|error| self.answer(Err(error))).ok()
    }

    /// Runs the model for the whole call, or for a part of it. Returns the outputs and the time.
    fn run(&self, call: Call) -> Option<(Vec<Tensor>, Duration)> {
        let start = Instant::now();
        let outputs = self.attempt(|| self.held.model.run(call))?;
        Some((outputs, start.elapsed()))
    }

    /// Answers the call, whose runs took this time in all.
    fn complete(&self, outputs: Vec<Tensor>, took: Duration) {
        self.estimates.pace.record(self.bytes, took);
        self.answer(Ok(outputs));
    }
}

/// A call whose turn has not come yet.
struct Undivided {
    job: Arc<Job>,
    call: Mutex<Option<Call>>,
}

impl Work for Undivided {
    fn is_over(&self) -> bool {
        self.job.is_over()
    }

    fn run(&self, _: usize, queue: &Queue) {
        let (job, cost) = (&self.job, &self.job.estimates.cost);
        let Some(call) = lock(&self.call).take() else { return };
        let divide = || {
            let Some(rows) = job.held.model.rows(&call) else { return Ok((None, None)) };
            let of_part = cost.rows_of_part(rows);
            let parts = if of_part < rows { job.held.model.divide(&call, of_part) } else { None };
            Ok((Some(rows), parts.map(|parts| (parts, of_part))))
        };
        let Some((rows, divided)) = job.attempt(divide) else { return };
        if let Some((parts, rows)) = divided {
            drop(call);
            return queue_parts(job, parts, rows, queue);
        }
        let Some((outputs, took)) = job.run(call) else { return };
        cost.record(rows.unwrap_or(0), took);
        job.complete(outputs, took);
    }
}

/// Adds the parts of a call, of `rows` rows each, to the queue.
fn queue_parts(job: &Arc<Job>, parts: Vec<Call>, rows: usize, queue: &Queue) {
    let (job, count) = (Arc::clone(job), parts.len());
    let done =
        Done { outputs: parts.iter().map(|_| None).collect(), rest: count, took: Duration::ZERO };
    let calls = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    queue.add(Arc::new(Divided { job, calls, rows, done: Mutex::new(done) }), count);
}

/// A call of several parts.
struct Divided {
    job: Arc<Job>,
    /// The parts that have not begun.
    calls: Vec<Mutex<Option<Call>>>,
    /// The rows of each part but the last.
    rows: usize,
    done: Mutex<Done>,
}

/// The parts that are complete.
struct Done {
    /// The outputs of each part.
    outputs: Vec<Option<Vec<Tensor>>>,
    /// The number of parts that are not complete.
    rest: usize,
    took: Duration,
}

impl Work for Divided {
    fn is_over(&self) -> bool {
        self.job.is_over()
    }

    fn run(&self, part: usize, _: &Queue) {
        let Some(call) = lock(&self.calls[part]).take() else { return };
        let Some((outputs, took)) = self.job.run(call) else { return };
        if part + 1 < self.calls.len() {
            self.job.estimates.cost.record(self.rows, took);
        }
        let mut done = lock(&self.done);
        done.outputs[part] = Some(outputs);
        done.took += took;
        done.rest -= 1;
        if done.rest > 0 {
            return;
        }
        let (outputs, took) = (std::mem::take(&mut done.outputs), done.took);
        drop(done);
        let parts: Vec<_> = outputs.into_iter().flatten().collect();
        let Some(outputs) = self.job.attempt(|| joined(&parts)) else { return };
        self.job.complete(outputs, took);
    }
}

/// The outputs of all parts, of which there is at least one, as those of the whole call: the rows of
/// each output, part after part.
///
/// # Errors
/// The parts have different outputs.
fn joined(parts: &[Vec<Tensor>]) -> Answer {
    let (first, others) = parts.split_first().ok_or_else(|| unlike("there are none"))?;
    if others.iter().any(|part| part.len() != first.len()) {
        return Err(unlike("their numbers differ"));
    }
    let join = |(at, first): (usize, &Tensor)| {
        let (mut rows, mut size) = (0, 0);
        for part in parts {
            let Tensor { name, dtype, shape, .. } = &part[at];
            let of_row = shape.get(1..).ok_or_else(|| unlike("one has no rows"))?;
            if (name, dtype, of_row) != (&first.name, &first.dtype, &first.shape[1..]) {
                return Err(unlike("names, types or shapes differ"));
            }
            rows += shape[0];
            size += part[at].size();
        }
        let mut bytes = BytesMut::with_capacity(size);
        for part in parts {
            let Content::Bytes(elements) = &part[at].content else {
                return Err(unlike("one has strings"));
            };
            bytes.extend_from_slice(elements);
        }
        let mut shape = first.shape.clone();
        shape[0] = rows;
        let content = Content::Bytes(bytes.freeze());
        Ok(Tensor { name: Arc::clone(&first.name), dtype: first.dtype, shape, content })
    };
    first.iter().enumerate().map(join).collect()
}

fn unlike(problem: &str) -> RunError {
    let message = format!("the outputs of the parts of a call cannot be joined: {problem}");
    RunError::Failed { code: "Internal".to_owned(), message }
}

#[cfg(test)]
mod tests;
