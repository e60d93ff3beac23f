//! What live was like before the comparison began.

use std::time::Duration;

use crate::{Observation, Outcome, statistics::sketch};

/// How many bins scores are sorted into.
pub(crate) const BINS: usize = 32;

/// What live was like before the comparison began: the scale on which both arms
/// are measured. It may be off without making a verdict wrong, since nothing of
/// it is compared; the judge then only needs more requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    slow: i32,
    edges: Vec<f64>,
    below: Vec<f64>,
    ranks: Vec<f64>,
}

impl Reference {
    /// How many requests make a good reference.
    pub const REQUESTS: usize = 1000;

    /// From requests that live answered, whose arm does not matter, and the
    /// latency quantile that is watched. Without any, what takes more than
    /// 100 ms is slow, and scores are not compared.
    pub fn new(sample: &[Observation], quantile: f64) -> Self {
        let mut latencies: Vec<Duration> = sample.iter().map(|seen| seen.latency).collect();
        latencies.sort_unstable();
        let slow = at(&latencies, quantile).unwrap_or(Duration::from_millis(100));

        let scores = sample.iter().filter_map(|seen| match seen.outcome {
            Outcome::Scored(score) if score.is_finite() => Some(score),
            _ => None,
        });
        let mut scores: Vec<f64> = scores.collect();
        scores.sort_unstable_by(f64::total_cmp);
        let ranks = (1..BINS).map(|bin| bin as f64 / BINS as f64);
        let mut edges: Vec<f64> = ranks.filter_map(|rank| at(&scores, rank)).collect();
        edges.dedup();
        let up_to = |edge: &f64| scores.partition_point(|score| score <= edge);
        let below: Vec<f64> =
            edges.iter().map(|edge| up_to(edge) as f64 / scores.len() as f64).collect();
        let lower = [0.0].into_iter().chain(below.iter().copied());
        let upper = below.iter().copied().chain([1.0]);
        let middles = lower.zip(upper).map(|(lower, upper)| f64::midpoint(lower, upper));
        let ranks = middles.map(|middle| middle - 0.5).collect();
        Self { slow: sketch::index_of(slow.as_secs_f64()), edges, below, ranks }
    }

    /// Latency, in seconds, above which an answer is slow.
    pub fn slow(&self) -> f64 {
        sketch::edge(self.slow)
    }

    /// The bin of the latency sketch that ends where answers begin to be slow.
    pub(crate) fn slow_bin(&self) -> i32 {
        self.slow
    }

    /// Upper edges of all score bins but the last.
    pub(crate) fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// How much of live lay at or below each edge.
    pub(crate) fn below(&self) -> &[f64] {
        &self.below
    }

    /// Into which bin a score falls.
    pub(crate) fn bin(&self, score: f64) -> usize {
        // All of them, side by side: a binary search waits for each comparison.
        self.edges.iter().map(|edge| usize::from(*edge < score)).sum()
    }

    /// Where each bin ranks in live, from -1/2 to 1/2.
    pub(crate) fn ranks(&self) -> &[f64] {
        &self.ranks
    }
}

/// What a share `quantile` of the sorted values does not exceed.
fn at<T: Copy>(sorted: &[T], quantile: f64) -> Option<T> {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}
