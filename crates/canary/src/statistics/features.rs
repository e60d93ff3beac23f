//! Counts of the features' values by category.

use serde::{Deserialize, Serialize};

use super::{Merge, sketch::scaled};
use crate::evidence::events::Tally;

/// Counts by feature and category, in the order of the profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features(Vec<Vec<u64>>);

impl Features {
    /// Counts a request by the category of each of its features.
    pub(super) fn record(&mut self, categories: &[usize]) {
        for (feature, category) in categories.iter().enumerate() {
            self.add(feature, *category, 1);
        }
    }

    fn add(&mut self, feature: usize, category: usize, count: u64) {
        if self.0.len() <= feature {
            self.0.resize(feature + 1, Vec::new());
        }
        let counts = &mut self.0[feature];
        if counts.len() <= category {
            counts.resize(category + 1, 0);
        }
        counts[category] += count;
    }

    /// The requests with a recorded value of a feature, and those whose value is in the
    /// category.
    pub(crate) fn tally(&self, feature: usize, category: usize) -> Tally {
        let counts = self.0.get(feature).map_or(&[] as &[u64], |counts| counts);
        let events = counts.get(category).copied().unwrap_or(0);
        Tally { events, requests: counts.iter().sum() }
    }

    pub(super) fn scaled(&self, factor: f64) -> Self {
        let scale = |counts: &Vec<u64>| counts.iter().map(|count| scaled(*count, factor)).collect();
        Self(self.0.iter().map(scale).collect())
    }
}

impl Merge for Features {
    fn merge(&mut self, other: &Self) {
        for (feature, counts) in other.0.iter().enumerate() {
            for (category, count) in counts.iter().enumerate() {
                self.add(feature, category, *count);
            }
        }
    }
}
