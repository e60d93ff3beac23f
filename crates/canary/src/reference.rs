//! The reference: live's latencies and scores before the trial.

use std::{cmp::Ordering, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Observation, Outcome, statistics::sketch};

/// Largest number of score bins.
pub(crate) const BINS: usize = 32;

/// Live's distribution before the trial. It defines the scale on which both arms are
/// measured: the latency above which an answer is slow at first, and the score bins. An
/// inaccurate reference costs requests, not validity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Saved")]
pub struct Reference {
    quantile: f64,
    slow: i32,
    edges: Vec<f64>,
    below: Vec<f64>,
    #[serde(skip_serializing)]
    ranks: Vec<f64>,
}

impl Reference {
    /// Requests that make a good reference.
    pub const REQUESTS: usize = 1000;
    /// Fewest requests that make a reference.
    pub const LEAST: usize = 100;
    /// Most requests that are useful.
    pub const MOST: usize = 10_000;

    /// Builds the reference from requests that live answered (their arm is ignored) and
    /// the latency quantile that is watched. Without latencies, those above 100 ms are
    /// slow; without scores, nothing can be proved about scores.
    pub fn new(sample: &[Observation], quantile: f64) -> Self {
        let mut latencies: Vec<Duration> = sample.iter().filter_map(|seen| seen.latency).collect();
        latencies.sort_unstable();
        let slow = at(&latencies, quantile).unwrap_or(Duration::from_millis(100));

        let scores = sample.iter().filter_map(|seen| match seen.outcome {
            Outcome::Scored(score) if score.is_finite() => Some(score),
            _ => None,
        });
        let mut scores: Vec<f64> = scores.collect();
        scores.sort_unstable_by(f64::total_cmp);
        let edges = edges(&scores);
        let up_to = |edge: &f64| scores.partition_point(|score| score <= edge);
        let below = edges.iter().map(|edge| up_to(edge) as f64 / scores.len() as f64).collect();
        Self::of(quantile, sketch::index_of(slow.as_secs_f64()), edges, below)
    }

    fn of(quantile: f64, slow: i32, edges: Vec<f64>, below: Vec<f64>) -> Self {
        let lower = [0.0].into_iter().chain(below.iter().copied());
        let upper = below.iter().copied().chain([1.0]);
        let middles = lower.zip(upper).map(|(lower, upper)| f64::midpoint(lower, upper));
        let ranks = middles.map(|middle| middle - 0.5).collect();
        Self { quantile, slow, edges, below, ranks }
    }

    /// The latency quantile that is watched.
    pub(crate) fn quantile(&self) -> f64 {
        self.quantile
    }

    /// The bin of the latency sketch whose upper edge is the latency quantile.
    pub(crate) fn slow_bin(&self) -> i32 {
        self.slow
    }

    /// Upper edges of all score bins but the last.
    pub(crate) fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// The share of live's scores at or below each edge.
    pub(crate) fn below(&self) -> &[f64] {
        &self.below
    }

    /// The bin of a score.
    pub(crate) fn bin(&self, score: f64) -> usize {
        // Counts over all edges, which vectorises: a binary search would wait for each
        // comparison.
        self.edges.iter().map(|edge| usize::from(*edge < score)).sum()
    }

    /// The same reference with the largest number of bins: edges are repeated, and the
    /// bins between equal edges stay empty. `None` if it has that many bins already, or
    /// no edge.
    pub(crate) fn refined(&self) -> Option<Self> {
        let few = (1..BINS - 1).contains(&self.edges.len());
        let refined = |values: &[f64]| {
            (0..BINS - 1).map(|edge| values[edge * values.len() / (BINS - 1)]).collect()
        };
        few.then(|| Self::of(self.quantile, self.slow, refined(&self.edges), refined(&self.below)))
    }

    /// The bin of [`Self::refined`] that holds the scores of `bin`.
    pub(crate) fn refined_bin(&self, bin: usize) -> usize {
        (bin * (BINS - 1)).div_ceil(self.edges.len())
    }

    /// An arbitrary total order.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let bits = |numbers: &'_ [f64]| numbers.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        let key = |it: &Self| (it.quantile.to_bits(), it.slow, bits(&it.edges), bits(&it.below));
        key(self).cmp(&key(other))
    }

    /// The mean rank of each bin in live, from -1/2 to 1/2.
    pub(crate) fn ranks(&self) -> &[f64] {
        &self.ranks
    }
}

/// Edges of bins with equal counts of the sorted scores. A score that would fill more
/// than one bin gets a bin of its own, so that lower scores of the canary are not counted
/// as equal to it.
fn edges(scores: &[f64]) -> Vec<f64> {
    let ranks = (1..BINS).map(|bin| bin as f64 / BINS as f64);
    let mut edges: Vec<f64> = ranks.filter_map(|rank| at(scores, rank)).collect();
    for next in 1..edges.len() {
        if edges[next - 1] == edges[next] {
            edges[next - 1] = edges[next].next_down();
        }
    }
    edges.dedup();
    edges
}

/// The quantile of sorted values.
fn at<T: Copy>(sorted: &[T], quantile: f64) -> Option<T> {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The serialised reference before validation.
#[derive(Deserialize)]
struct Saved {
    /// References that an older version saved have none.
    #[serde(default = "usual_quantile")]
    quantile: f64,
    slow: i32,
    edges: Vec<f64>,
    below: Vec<f64>,
}

fn usual_quantile() -> f64 {
    0.95
}

impl TryFrom<Saved> for Reference {
    type Error = &'static str;

    fn try_from(saved: Saved) -> Result<Self, Self::Error> {
        let Saved { quantile, slow, edges, below } = saved;
        let ascend = edges.len() < BINS && edges.is_sorted() && !edges.iter().any(|it| it.is_nan());
        let shares = below.is_sorted() && below.iter().all(|share| (0.0..=1.0).contains(share));
        let latency = quantile > 0.0 && quantile < 1.0 && sketch::is_bin(slow);
        if ascend && shares && edges.len() == below.len() && latency {
            Ok(Self::of(quantile, slow, edges, below))
        } else {
            Err("not a valid reference")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges_of(scores: &[f64]) -> Vec<f64> {
        let mut scores = scores.to_vec();
        scores.sort_unstable_by(f64::total_cmp);
        edges(&scores)
    }

    #[test]
    fn scores_are_sorted_into_bins_of_the_same_size() {
        let scores: Vec<f64> = (0..3200).map(f64::from).collect();
        let expected: Vec<f64> = (1..32).map(|bin| f64::from(100 * bin - 1)).collect();
        assert_eq!(edges_of(&scores), expected);
        assert!(edges_of(&[]).is_empty());
    }

    #[test]
    fn a_frequent_score_is_alone_in_its_bin() {
        assert_eq!(edges_of(&[0.5; 100]), [0.5_f64.next_down(), 0.5]);
        let half: Vec<f64> = (0..1000).map(|number| f64::from(number.max(500))).collect();
        let edges = edges_of(&half);
        assert_eq!(edges[..3], [500.0_f64.next_down(), 500.0, 531.0]);
    }

    #[test]
    fn an_invalid_reference_is_refused() {
        let read = |json: &str| serde_json::from_str::<Reference>(json);
        assert!(read(r#"{"slow": -100, "edges": [0.1, 0.2], "below": [0.4, 0.6]}"#).is_ok());
        for wrong in [
            r#"{"slow": -100000, "edges": [], "below": []}"#,
            r#"{"quantile": 1.0, "slow": -100, "edges": [], "below": []}"#,
            r#"{"slow": -100, "edges": [0.2, 0.1], "below": [0.4, 0.6]}"#,
            r#"{"slow": -100, "edges": [0.1], "below": [0.4, 0.6]}"#,
            r#"{"slow": -100, "edges": [0.1], "below": [1.4]}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
