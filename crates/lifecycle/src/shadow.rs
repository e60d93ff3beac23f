//! Requests that live has answered, and that the canary answers as well: aside, to
//! be compared.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use outrigger_canary::Pair;
use outrigger_features::{Best, Limits};
use tokio::time::Instant;

use crate::{
    call::call,
    lease::Lease,
    outcomes::{Noted, Outcomes},
};

/// How long the canary may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request for the canary.
pub(crate) struct Shadow {
    /// On the canary.
    pub(crate) lease: Lease,
    pub(crate) request: Bytes,
    pub(crate) limits: Limits,
    /// What live puts first.
    pub(crate) live: Best,
    pub(crate) outcomes: Arc<Outcomes>,
}

impl Shadow {
    /// Asks the canary and notes how its answer compares.
    pub(crate) async fn compare(self) {
        match self.pair().await {
            Some(pair) => self.outcomes.note(Noted::Pair(pair)),
            None => self.outcomes.note_unanswered(),
        }
    }

    /// `None` without an answer. One whose scores are no numbers puts nothing first.
    async fn pair(&self) -> Option<Pair> {
        let Self { lease, live, .. } = self;
        let mut packed = lease.plan.pack(&[&self.request], &self.limits).ok()?;
        let deadline = Instant::now() + PATIENCE;
        let call = call(&lease.plan, &mut packed, deadline);
        let outputs = lease.run.run(call).await.ok()?;
        let best = lease.plan.best(&packed, &outputs).ok().flatten();
        let score = lease.plan.score_at(&packed, &outputs, live.position);
        Some(Pair {
            same_top: best.is_some_and(|best| best.position == live.position),
            difference: score.map(|score| f64::from(score) - f64::from(live.score)),
        })
    }
}
