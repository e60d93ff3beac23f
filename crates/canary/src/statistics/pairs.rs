//! Statistics of requests that both arms answered.

use serde::{Deserialize, Serialize};

use super::{
    Merge,
    sketch::{Sketch, scaled},
};
use crate::{Pair, evidence::events::Tally};

/// Paired comparisons: the same request answered by both arms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pairs {
    pairs: u64,
    disagreements: u64,
    differences: Sketch,
}

impl Pairs {
    pub(super) fn record(&mut self, pair: &Pair) {
        self.pairs += 1;
        self.disagreements += u64::from(!pair.same_top);
        if let Some(difference) = pair.difference {
            self.differences.record(difference);
        }
    }

    /// Number of pairs.
    pub fn count(&self) -> u64 {
        self.pairs
    }

    /// The canary's score less live's, for the treatment that live ranks first.
    pub fn differences(&self) -> &Sketch {
        &self.differences
    }

    /// The share of pairs with the same first treatment; 1 without pairs.
    pub fn agreement(&self) -> f64 {
        1.0 - self.disagreements().rate()
    }

    /// Pairs with different first treatments.
    pub(crate) fn disagreements(&self) -> Tally {
        Tally { events: self.disagreements, requests: self.pairs }
    }

    /// The expected pairs after `factor` times as many requests, if the new ones agree.
    pub(super) fn scaled(&self, factor: f64) -> Self {
        Self { pairs: scaled(self.pairs, factor), ..self.clone() }
    }
}

impl Merge for Pairs {
    fn merge(&mut self, other: &Self) {
        self.pairs += other.pairs;
        self.disagreements += other.disagreements;
        self.differences.merge(&other.differences);
    }
}
