//! Shadow requests: the canary answers requests that live has answered, for comparison.

use std::{ops::Deref, sync::Arc, time::Duration};

use outrigger_canary::Pair;
use outrigger_features::{Arrived, Best};
use tokio::time::Instant;

use crate::{
    in_flight::InFlight,
    outcomes::{Outcomes, Recorded},
    split::Servable,
};

/// The time limit of the canary's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request for the canary.
pub(crate) struct Shadow<L> {
    /// A lease on the canary.
    pub(crate) lease: L,
    pub(crate) request: Arrived,
    /// The treatment that live ranks first.
    pub(crate) live: Best,
    /// The call of the canary.
    pub(crate) call: InFlight,
    pub(crate) outcomes: Arc<Outcomes>,
}

impl<L: Deref<Target: Servable>> Shadow<L> {
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
        let (scorer, live) = (self.lease.scorer(), &self.live);
        let mut packed = scorer.pack_arrived(&self.request).ok()?;
        let deadline = Instant::now() + PATIENCE;
        let outputs = scorer.score(&mut packed, deadline).await;
        if Instant::now() < deadline {
            self.call.end();
        }
        let outputs = outputs.ok()?;
        let plan = &scorer.plan;
        let best = plan.best(&packed, &outputs, 0).ok().flatten();
        let score = plan.score_at(&packed, &outputs, live.position);
        Some(Pair {
            same_top: best.is_some_and(|best| best.position == live.position),
            difference: score.map(|score| f64::from(score) - f64::from(live.score)),
        })
    }
}
