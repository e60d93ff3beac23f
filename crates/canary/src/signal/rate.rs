//! Rates of events: failed requests, and answers that are not finite.

use super::{Difference, Needed, Test};
use crate::{
    Statistics,
    evidence::{
        Side, bound,
        events::{Table, Tally, ceiling, log_evidence},
        mixture::Prior,
    },
    statistics::ArmStatistics,
};

/// Compares the arms' rates of an event.
#[derive(Debug)]
pub(super) struct Rate {
    tally: fn(&ArmStatistics) -> Tally,
    prior: Prior,
}

impl Rate {
    pub(super) const FAILED: Self = Self { tally: ArmStatistics::failures, prior: Prior::MODERATE };
    pub(super) const NON_FINITE: Self =
        Self { tally: ArmStatistics::non_finites, prior: Prior::HIGHEST };

    fn tables<'s>(
        &self,
        statistics: &'s Statistics,
    ) -> impl Iterator<Item = Table> + Clone + use<'s> {
        let tally = self.tally;
        statistics.stages().map(move |(share, stage)| Table {
            share: share.probability(),
            guess: 0.0,
            live: tally(&stage.live),
            canary: tally(&stage.canary),
        })
    }

    fn evidence(&self, statistics: &Statistics, side: Side, null: f64) -> f64 {
        log_evidence(self.tables(statistics), side, null, self.prior)
    }
}

impl Test for Rate {
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool {
        ceiling(self.tables(statistics), Side::More) >= needed
            && self.evidence(statistics, Side::More, tolerance) >= needed
    }

    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool {
        self.evidence(statistics, Side::Less, margin) >= needed
    }

    fn difference(&self, statistics: &Statistics, needed: Needed) -> Difference {
        let mut arms = (Tally::default(), Tally::default());
        for table in self.tables(statistics) {
            arms.0.add(table.live);
            arms.1.add(table.canary);
        }
        let (live, canary) = (arms.0.rate(), arms.1.rate());
        let estimate = canary - live;
        let more = |null| self.evidence(statistics, Side::More, null);
        let less = |null| self.evidence(statistics, Side::Less, null);
        Difference {
            live,
            canary,
            estimate,
            lower: bound(-1.0, estimate, needed.harm, more),
            upper: bound(1.0, estimate, needed.harmless, less),
            detail: None,
        }
    }
}
