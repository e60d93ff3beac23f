//! Warm-up of a version that has passed the gate, by replaying recent requests of its model.

use std::time::Duration;

use outrigger_core::Failure;
use outrigger_features::Arrived;
use tokio::time::Instant;

use crate::Gate;

/// The time limit of a warm-up: requests wait for the version meanwhile.
const MOST: Duration = Duration::from_secs(10);

/// The results of replayed requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replayed {
    /// The number of valid answers. The scores are not compared: a new version may score
    /// differently.
    pub answered: u64,
    /// The number of requests not sent: the version has other features, or the time was up.
    pub skipped: u64,
    /// The number of failed requests. They do not refuse the version: trials judge canaries by live
    /// traffic, and golden cases state required results.
    pub failed: u64,
    /// The failure of the first failed request.
    pub failure: Option<Failure>,
    /// The duration of the whole warm-up.
    pub took: Duration,
}

impl Gate<'_> {
    /// Sends the version recent requests of its model.
    pub(crate) async fn replay(&self, requests: &[Arrived]) -> Replayed {
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

    /// Replays one request; `None` if it cannot be replayed.
    async fn replay_one(&self, request: &Arrived, end: Instant) -> Option<Result<(), Failure>> {
        let mut packed = self.scorer.pack_arrived(request).ok()?;
        let now = Instant::now();
        if now >= end || !packed.needs_engine() {
            return None;
        }
        let deadline = end.min(now + self.timeout);
        let outputs = self.scorer.score(&mut packed, deadline).await;
        let plan = &self.scorer.plan;
        Some(outputs.and_then(|outputs| plan.answer(&packed, &outputs, &[]).map(drop)))
    }
}
