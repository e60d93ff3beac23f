//! Warm-up of a version that has passed the gate: recent requests of its model,
//! once more.

use std::time::Duration;

use bytes::Bytes;
use outrigger_core::Failure;
use outrigger_features::Limits;
use tokio::time::Instant;

use crate::{Gate, call::call};

/// Requests wait for the version meanwhile: no longer than this.
const MOST: Duration = Duration::from_secs(10);

/// What became of the requests that were replayed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replayed {
    /// Answered as an answer has to be. The scores are nobody's business here: they
    /// are the new version's own.
    pub answered: u64,
    /// Not of this version: it has other features. Or there was no time for them.
    pub skipped: u64,
    /// Not answered as an answer has to be. This refuses no version: those that are
    /// tried are judged by what comes, and golden cases say what must be.
    pub failed: u64,
    /// Why the first of them was not.
    pub failure: Option<Failure>,
    /// How long all of them took.
    pub took: Duration,
}

impl Gate<'_> {
    /// Has the version answer requests that its model was asked before.
    pub(crate) async fn replay(&self, requests: &[Bytes]) -> Replayed {
        let start = Instant::now();
        let mut replayed = Replayed::default();
        for request in requests {
            match self.replay_one(request, start + MOST).await {
                None => replayed.skipped += 1,
                Some(Ok(())) => replayed.answered += 1,
                Some(Err(failure)) => {
                    replayed.failed += 1;
                    replayed.failure.get_or_insert(failure);
                }
            }
        }
        replayed.took = start.elapsed();
        replayed
    }

    /// `None` if it cannot be replayed.
    async fn replay_one(&self, request: &Bytes, end: Instant) -> Option<Result<(), Failure>> {
        let mut packed = self.plan.pack(&[request], &Limits::default()).ok()?;
        let now = Instant::now();
        if now >= end || !packed.needs_engine() {
            return None;
        }
        let deadline = end.min(now + self.timeout);
        let call = call(self.plan, &mut packed, deadline);
        let outputs = self.run.run(call).await;
        let outputs = outputs.map_err(|error| Failure::because(error.reason(), &error));
        Some(outputs.and_then(|outputs| self.plan.answer(&packed, &outputs, &[]).map(drop)))
    }
}
