//! Answers with NaN or an infinity, where it is known that live has none.

use super::{Difference, Needed, Test, rate::Rate};
use crate::{
    Statistics,
    evidence::{Side, bound, proportion},
};

/// The share of answers that are not finite, where live's is known to be at most
/// `expected`.
///
/// Against what live shows in the trial alone, a canary with a tenth of the
/// traffic needs three such answers to be convicted at 99 %: two of two fall to it
/// by chance once in a hundred times. With what is known of live, two will do.
/// What is known may be wrong. So live is not forgotten: the canary must
/// also have more than its share of them, though with less confidence.
#[derive(Debug)]
pub(super) struct NonFinite {
    pub(super) expected: f64,
    /// The evidence needed that the canary has more than its share.
    pub(super) guard: f64,
}

impl NonFinite {
    /// The evidence that the canary's rate is more than `null` above live's.
    fn evidence(&self, statistics: &Statistics, null: f64) -> f64 {
        let null = (self.expected + null).min(1.0 - 1e-9);
        let stages = statistics.stages().map(|(_, stage)| (stage.canary.non_finites(), null));
        proportion::log_evidence(stages, Side::More)
    }

    /// Whether live does not have them just as well.
    fn is_its_own(&self, statistics: &Statistics) -> bool {
        Rate::NON_FINITE.exceeds(statistics, 0.0, self.guard)
    }
}

impl Test for NonFinite {
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool {
        self.is_its_own(statistics) && self.evidence(statistics, tolerance) >= needed
    }

    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool {
        Rate::NON_FINITE.within(statistics, margin, needed)
    }

    fn difference(&self, statistics: &Statistics, needed: Needed) -> Difference {
        let difference = Rate::NON_FINITE.difference(statistics, needed);
        if !self.is_its_own(statistics) {
            return difference;
        }
        let evidence = |null| self.evidence(statistics, null);
        Difference { lower: bound(0.0, difference.canary, needed.harm, evidence), ..difference }
    }
}
