//! Shadowed requests for which the arms rank different treatments first.

use super::{Difference, Needed, Test};
use crate::{
    Statistics,
    evidence::{Side, bound, proportion},
};

/// The share of pairs that disagree. Live has no comparable figure, so the limits apply
/// to the share itself.
#[derive(Debug)]
pub(super) struct Disagreement;

fn evidence(statistics: &Statistics, side: Side, null: f64) -> f64 {
    let null = null.clamp(1e-9, 1.0 - 1e-9);
    proportion::log_evidence([(statistics.pairs().disagreements(), null)].into_iter(), side)
}

impl Test for Disagreement {
    fn exceeds(&self, statistics: &Statistics, tolerance: f64, needed: f64) -> bool {
        evidence(statistics, Side::More, tolerance) >= needed
    }

    fn within(&self, statistics: &Statistics, margin: f64, needed: f64) -> bool {
        evidence(statistics, Side::Less, margin) >= needed
    }

    fn difference(&self, statistics: &Statistics, needed: Needed) -> Difference {
        let estimate = statistics.pairs().disagreements().rate();
        let more = |null| evidence(statistics, Side::More, null);
        let less = |null| evidence(statistics, Side::Less, null);
        Difference {
            canary: estimate,
            estimate,
            lower: bound(0.0, estimate, needed.harm, more),
            upper: bound(1.0, estimate, needed.harmless, less),
            ..Difference::default()
        }
    }
}
