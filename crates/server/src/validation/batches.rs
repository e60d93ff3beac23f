//! Scores batches of requests with one version, as predictions are scored.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use outrigger_budget::Budget;
use outrigger_core::{Digest, Failure, ModelName, Retry, Selector, Tensor};
use outrigger_features::Packed;
use outrigger_lifecycle::{Handle, Lease};
use outrigger_proto::outrigger::v1::PredictResponse;
use outrigger_validation::{Answer, Batching, Predictor, decoded, in_halves};
use tokio::time::{Instant, sleep};

use super::{
    memory::CallMemory,
    turn::{PATIENCE, Turns},
};
use crate::served::encoded;

/// The duration of a call to the engine that is aimed at: predictions may have to wait for it.
const DURATION: Duration = Duration::from_millis(10);
/// The requests of the first call.
const FIRST: usize = 4;
/// The longest duration of a call.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The pause before a call is made again.
const PAUSE: Duration = Duration::from_millis(100);

/// Scores requests with one version.
pub(super) struct Batches {
    models: Handle,
    budget: Budget,
    turns: Turns,
    model: ModelName,
    digest: Digest,
    /// The encoded `ServedModel` of the responses.
    served: Vec<u8>,
    batching: Batching,
    deadline: Instant,
    /// The requests of the next call.
    size: AtomicUsize,
}

impl Batches {
    /// Scores with the version of `lease` until `deadline`.
    pub(super) fn new(
        models: &Handle,
        budget: &Budget,
        turns: &Turns,
        lease: &Lease,
        deadline: Instant,
    ) -> Self {
        Self {
            models: models.clone(),
            budget: budget.clone(),
            turns: turns.clone(),
            model: lease.key.name.clone(),
            digest: lease.key.digest,
            served: encoded(lease),
            batching: Batching::of(&lease.scorer),
            deadline,
            size: AtomicUsize::new(FIRST),
        }
    }

    /// Scores requests in one call; again, if the server cannot answer at the moment.
    async fn call(&self, requests: &[&[u8]]) -> Result<Vec<PredictResponse>, Failure> {
        let latest = Instant::now() + PATIENCE;
        loop {
            match self.attempt(requests).await {
                Err(failure)
                    if failure.reason.retry() != Retry::Never && Instant::now() < latest => {}
                other => return other,
            }
            sleep(PAUSE).await;
        }
    }

    async fn attempt(&self, requests: &[&[u8]]) -> Result<Vec<PredictResponse>, Failure> {
        let version = Selector::Digest(self.digest);
        let lease = self.models.acquire(&self.model, &version, "", self.deadline).await?;
        let turn = self.turns.next(&lease.load).await?;
        let memory = CallMemory::open(&self.budget, self.deadline);
        let (plan, limits) = (&lease.scorer.plan, lease.scorer.limits());
        let mut packed = plan.metered(&memory).pack(requests, &limits)?;
        let outputs = self.run(&lease, &mut packed, requests.len()).await?;
        drop(turn);
        memory.answer(&outputs)?;
        Ok(decoded(&plan.answer_batch(&packed, &outputs, &self.served, "")?))
    }

    /// Runs the model, and adapts the size of calls to the duration.
    async fn run(
        &self,
        lease: &Lease,
        packed: &mut Packed,
        requests: usize,
    ) -> Result<Vec<Tensor>, Failure> {
        let began = Instant::now();
        let outputs = lease.scorer.score(packed, self.deadline.min(began + TIMEOUT)).await?;
        let size = resized(self.size.load(Relaxed), requests, began.elapsed());
        self.size.store(size.clamp(1, self.batching.requests), Relaxed);
        Ok(outputs)
    }
}

/// The size of calls after a call of `requests`. The last call of a batch may be smaller than `size`,
/// and then says nothing about larger ones.
fn resized(size: usize, requests: usize, took: Duration) -> usize {
    if took > DURATION {
        requests / 2
    } else if took < DURATION / 3 && requests >= size {
        size * 2
    } else {
        size
    }
}

impl Predictor for Batches {
    fn batching(&self) -> Batching {
        self.batching
    }

    fn concurrency(&self) -> usize {
        self.turns.most()
    }

    async fn predict(&self, mut requests: &[&[u8]]) -> Result<Vec<Answer>, Failure> {
        let mut answers = Vec::with_capacity(requests.len());
        while !requests.is_empty() {
            let size = self.size.load(Relaxed).min(requests.len());
            let (next, others) = requests.split_at(size);
            answers.extend(in_halves(next, async |part| self.call(part).await).await?);
            requests = others;
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_grow_until_they_take_as_long_as_they_should() {
        assert_eq!(resized(4, 4, DURATION / 10), 8);
        assert_eq!(resized(8, 3, DURATION / 10), 8, "the last of a batch");
        assert_eq!(resized(8, 8, DURATION / 2), 8);
        assert_eq!(resized(8, 8, DURATION * 2), 4);
    }
}
