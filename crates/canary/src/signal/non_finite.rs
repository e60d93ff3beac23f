//! Compares the arms' rates of answers with NaN or an infinity, given live's known rate.

use super::{Difference, Needed, Test, rate::Rate};
use crate::{
    Statistics,
    evidence::{Side, bound, proportion},
};

/// The share of non-finite answers, where live's share is known to be at most `expected`.
///
/// Compared only with live's rate during the trial, a canary with a tenth of the traffic
/// needs three non-finite answers to be proved harmful at 99 %: both of two fall to it by
/// chance once in a hundred times. With the known rate two are enough. Since the known
/// rate may be wrong, the canary must also have more than its share of them, at a lower
/// confidence.
#[derive(Debug)]
pub(super) struct NonFinite {
    pub(super) expected: f64,
    /// The log evidence that is needed for the canary having more than its share.
    pub(super) guard: f64,
}

impl NonFinite {
    /// The log evidence that the canary's rate is more than `null` above `expected`.
    fn evidence(&self, statistics: &Statistics, null: f64) -> f64 {
        let null = (self.expected + null).min(1.0 - 1e-9);
        let stages = statistics.stages().map(|(_, stage)| (stage.canary.non_finites(), null));
        proportion::log_evidence(stages, Side::More)
    }

    /// True if the canary has more than its share of the non-finite answers of both arms.
    fn exceeds_live(&self, statistics: &Statistics) -> bool {
        Rate::NON_FINITE.exceeds(statistics, 0.0, self.guard)
    }
}

impl Test for NonFinite {
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool {
        self.exceeds_live(statistics) && self.evidence(statistics, tolerance) >= needed
    }

    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool {
        Rate::NON_FINITE.within(statistics, margin, needed)
    }

    fn difference(&self, statistics: &Statistics, needed: Needed) -> Difference {
        let difference = Rate::NON_FINITE.difference(statistics, needed);
        if !self.exceeds_live(statistics) {
            return difference;
        }
        let evidence = |null| self.evidence(statistics, null);
        Difference { lower: bound(0.0, difference.canary, needed.harm, evidence), ..difference }
    }
}
