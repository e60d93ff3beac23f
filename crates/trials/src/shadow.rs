//! Requests that live has answered and that the canary answers as well, for comparison.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use outrigger_canary::Pair;
use outrigger_core::Tensor;
use outrigger_features::{Best, Limits, Packed, Plan};
use tokio::time::Instant;

use crate::outcomes::{Outcomes, Recorded};

/// How long the canary may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The right to use a servable until it is dropped.
pub trait Lease: Send + Sync + 'static {
    /// The servable's plan.
    fn plan(&self) -> &Plan;

    /// Runs the model on `packed`, whose tensors it takes. `None`: the run failed.
    fn run(
        &self,
        packed: &mut Packed,
        deadline: Instant,
    ) -> impl Future<Output = Option<Vec<Tensor>>> + Send;
}

/// A request for the canary.
pub(crate) struct Shadow<L> {
    /// On the canary.
    pub(crate) lease: L,
    pub(crate) request: Bytes,
    pub(crate) limits: Limits,
    /// The treatment that live puts first.
    pub(crate) live: Best,
    pub(crate) outcomes: Arc<Outcomes>,
}

impl<L: Lease> Shadow<L> {
    /// Asks the canary and records how its answer compares.
    pub(crate) async fn compare(self) {
        match self.pair().await {
            Some(pair) => self.outcomes.record(Recorded::Pair(pair)),
            None => self.outcomes.count_unanswered(),
        }
    }

    /// `None` without an answer. One whose scores are no numbers puts nothing first.
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
