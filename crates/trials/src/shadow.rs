//! Shadow requests: the canary answers requests that live has answered, for comparison.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use outrigger_canary::Pair;
use outrigger_core::Tensor;
use outrigger_features::{Best, Limits, Packed, Plan};
use tokio::time::Instant;

use crate::outcomes::{Outcomes, Recorded};

/// The time limit of the canary's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The right to use a servable until it is dropped.
pub trait Lease: Send + Sync + 'static {
    /// The servable's plan.
    fn plan(&self) -> &Plan;

    /// Runs the model on `packed`, and takes its tensors. `None` if the run failed.
    fn run(
        &self,
        packed: &mut Packed,
        deadline: Instant,
    ) -> impl Future<Output = Option<Vec<Tensor>>> + Send;
}

/// A request for the canary.
pub(crate) struct Shadow<L> {
    /// A lease on the canary.
    pub(crate) lease: L,
    pub(crate) request: Bytes,
    pub(crate) limits: Limits,
    /// The treatment that live ranks first.
    pub(crate) live: Best,
    pub(crate) outcomes: Arc<Outcomes>,
}

impl<L: Lease> Shadow<L> {
    /// Sends the request to the canary and records the comparison.
    pub(crate) async fn compare(self) {
        match self.pair().await {
            Some(pair) => self.outcomes.record(Recorded::Pair(pair)),
            None => self.outcomes.count_unanswered(),
        }
    }

    /// Returns the comparison; `None` without an answer. An answer with NaN scores ranks no
    /// treatment first.
    async fn pair(&self) -> Option<Pair> {
        let Self { lease, live, .. } = self;
        let plan = lease.plan();
        let mut packed = plan.pack(&[&self.request], &self.limits).ok()?;
        let deadline = Instant::now() + PATIENCE;
        let outputs = lease.run(&mut packed, deadline).await?;
        let best = plan.best(&packed, &outputs).ok().flatten();
        let score = plan.score_at(&packed, &outputs, live.position);
        Some(Pair {
            same_top: best.is_some_and(|best| best.position == live.position),
            difference: score.map(|score| f64::from(score) - f64::from(live.score)),
        })
    }
}
