//! What is kept of requests that both arms answered.

use serde::{Deserialize, Serialize};

use super::{
    Merge,
    sketch::{Sketch, scaled},
};
use crate::{Pair, evidence::events::Tally};

/// Paired differences: the same request through both arms.
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

    /// How many pairs there are.
    pub fn count(&self) -> u64 {
        self.pairs
    }

    /// Canary's score less live's, of the treatment that live puts first.
    pub fn differences(&self) -> &Sketch {
        &self.differences
    }

    /// The share of pairs whose first treatments are the same; 1 without any.
    pub fn agreement(&self) -> f64 {
        1.0 - self.disagreements().rate()
    }

    /// Pairs whose first treatments differ.
    pub(crate) fn disagreements(&self) -> Tally {
        Tally { events: self.disagreements, requests: self.pairs }
    }

    /// What pairs there will be, if those to come agree.
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
