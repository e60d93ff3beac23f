//! Statistics of one arm.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Features, Merge, Threshold,
    sketch::{self, Sketch, scaled},
};
use crate::{Observation, Outcome, Reference, evidence::events::Tally, reference::BINS};

/// Counts and sketches of one arm's requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArmStatistics {
    requests: u64,
    failed: u64,
    non_finite: u64,
    latency: Sketch,
    /// Latencies over the threshold, of the requests that are compared by it. Statistics
    /// that an older version saved have none.
    #[serde(default)]
    relative_latency: Sketch,
    scores: Sketch,
    score_bins: Vec<u64>,
    features: Features,
}

impl ArmStatistics {
    /// Records a request. Returns true if it was slow, and `None` if its latency cannot be
    /// compared.
    pub(super) fn record(
        &mut self,
        reference: &Reference,
        threshold: Threshold,
        observation: &Observation,
    ) -> Option<bool> {
        self.requests += 1;
        match observation.outcome {
            Outcome::Failed => self.failed += 1,
            Outcome::NonFinite => self.non_finite += 1,
            Outcome::Empty => {}
            Outcome::Scored(score) => {
                self.scores.record(score);
                if self.score_bins.is_empty() {
                    self.score_bins.resize(reference.edges().len() + 1, 0);
                }
                self.score_bins[reference.bin(score)] += 1;
            }
        }
        observation.latency.map(|latency| self.record_latency(reference, threshold, latency))
    }

    /// Records a latency. Returns true if it was slow.
    fn record_latency(
        &mut self,
        reference: &Reference,
        threshold: Threshold,
        latency: Duration,
    ) -> bool {
        let latency = sketch::place(latency.as_secs_f64());
        self.latency.record_bin(sketch::bin(latency));
        let above = threshold.bins_above(latency);
        if threshold.is_at(reference.quantile()) {
            self.relative_latency.record_bin(above);
        }
        above > 0
    }

    /// True if its scores were counted in the bins of `reference`.
    pub(super) fn is_on_scale_of(&self, reference: &Reference) -> bool {
        self.score_bins.is_empty() || self.score_bins.len() == reference.edges().len() + 1
    }

    /// Moves its score counts from the bins of `coarse` to those of the refined
    /// reference.
    pub(super) fn refine(&mut self, coarse: &Reference) {
        let bins = std::mem::take(&mut self.score_bins);
        for (bin, count) in bins.into_iter().enumerate() {
            self.score_bins.resize(BINS, 0);
            self.score_bins[coarse.refined_bin(bin)] += count;
        }
    }

    pub(super) fn record_features(&mut self, categories: &[usize]) {
        self.features.record(categories);
    }

    /// Requests assigned to the arm.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Requests without an answer.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Answers with NaN or an infinity.
    pub fn non_finite(&self) -> u64 {
        self.non_finite
    }

    /// Latencies that can be compared, in seconds.
    pub fn latency(&self) -> &Sketch {
        &self.latency
    }

    /// Scores, one per request.
    pub fn scores(&self) -> &Sketch {
        &self.scores
    }

    /// Scores in each bin of the reference; empty before the first score.
    pub(crate) fn score_bins(&self) -> &[u64] {
        &self.score_bins
    }

    /// Counts of the features' values by category.
    pub(crate) fn features(&self) -> &Features {
        &self.features
    }

    pub(crate) fn failures(&self) -> Tally {
        Tally { events: self.failed, requests: self.requests }
    }

    pub(crate) fn non_finites(&self) -> Tally {
        Tally { events: self.non_finite, requests: self.requests }
    }

    /// Requests that took longer than the upper edge of a bin of the sketch.
    pub(crate) fn slower_than(&self, bin: i32) -> Tally {
        Tally { events: self.latency.above(bin), requests: self.latency.count() }
    }

    /// Compared requests that took longer than the threshold by more than so many bins.
    pub(crate) fn above_threshold(&self, bins: i32) -> Tally {
        let compared = &self.relative_latency;
        Tally { events: compared.above(bins), requests: compared.count() }
    }

    /// Adds forecast requests. Their features are not taken from `to_come`, which may be
    /// another arm's with another profile: the arm's own counts are multiplied by
    /// `factor`.
    pub(super) fn extrapolate(&mut self, to_come: &Self, factor: f64) {
        let features = self.features.scaled(factor);
        self.merge(to_come);
        self.features = features;
    }

    pub(crate) fn scaled(&self, factor: f64) -> Self {
        Self {
            requests: scaled(self.requests, factor),
            failed: scaled(self.failed, factor),
            non_finite: scaled(self.non_finite, factor),
            latency: self.latency.scaled(factor),
            relative_latency: self.relative_latency.scaled(factor),
            scores: self.scores.scaled(factor),
            score_bins: self.score_bins.iter().map(|count| scaled(*count, factor)).collect(),
            features: self.features.scaled(factor),
        }
    }
}

impl Merge for ArmStatistics {
    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        self.non_finite += other.non_finite;
        self.latency.merge(&other.latency);
        self.relative_latency.merge(&other.relative_latency);
        self.scores.merge(&other.scores);
        if self.score_bins.len() < other.score_bins.len() {
            self.score_bins.resize(other.score_bins.len(), 0);
        }
        self.features.merge(&other.features);
        for (mine, theirs) in self.score_bins.iter_mut().zip(&other.score_bins) {
            *mine += theirs;
        }
    }
}
