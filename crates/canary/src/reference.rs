//! What live was like before the comparison began.

use std::{cmp::Ordering, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Observation, Outcome, statistics::sketch};

/// How many bins scores are sorted into.
pub(crate) const BINS: usize = 32;

/// What live was like before the comparison began: the scale on which both arms
/// are measured. It may be off: the judge then needs more requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Saved")]
pub struct Reference {
    slow: i32,
    edges: Vec<f64>,
    below: Vec<f64>,
    #[serde(skip_serializing)]
    ranks: Vec<f64>,
}

impl Reference {
    /// How many requests make a good reference.
    pub const REQUESTS: usize = 1000;
    /// Fewer make none.
    pub const LEAST: usize = 100;
    /// More are not needed by any.
    pub const MOST: usize = 10_000;

    /// From requests that live answered, whose arm does not matter, and the
    /// latency quantile that is watched. Without any, what takes more than
    /// 100 ms is slow; without scores, nothing can be proved of scores.
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
        let edges = edges(&scores);
        let up_to = |edge: &f64| scores.partition_point(|score| score <= edge);
        let below = edges.iter().map(|edge| up_to(edge) as f64 / scores.len() as f64).collect();
        Self::of(sketch::index_of(slow.as_secs_f64()), edges, below)
    }

    fn of(slow: i32, edges: Vec<f64>, below: Vec<f64>) -> Self {
        let lower = [0.0].into_iter().chain(below.iter().copied());
        let upper = below.iter().copied().chain([1.0]);
        let middles = lower.zip(upper).map(|(lower, upper)| f64::midpoint(lower, upper));
        let ranks = middles.map(|middle| middle - 0.5).collect();
        Self { slow, edges, below, ranks }
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

    /// The same with as many bins as there may be: edges stand for several, with nothing
    /// in between. `None` if it has as many already, or no edge.
    pub(crate) fn refined(&self) -> Option<Self> {
        let few = (1..BINS - 1).contains(&self.edges.len());
        let refined = |values: &[f64]| {
            (0..BINS - 1).map(|edge| values[edge * values.len() / (BINS - 1)]).collect()
        };
        few.then(|| Self::of(self.slow, refined(&self.edges), refined(&self.below)))
    }

    /// Into which bin of [`Self::refined`] the scores of a bin fall.
    pub(crate) fn refined_bin(&self, bin: usize) -> usize {
        (bin * (BINS - 1)).div_ceil(self.edges.len())
    }

    /// An order of scales, whichever it is.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let bits = |numbers: &'_ [f64]| numbers.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        let key = |it: &Self| (it.slow, bits(&it.edges), bits(&it.below));
        key(self).cmp(&key(other))
    }

    /// Where each bin ranks in live, from -1/2 to 1/2.
    pub(crate) fn ranks(&self) -> &[f64] {
        &self.ranks
    }
}

/// The edges of bins with as many of the sorted scores in each. A score that fills
/// more than one is alone in its bin: what comes to lie below it is not to pass for
/// it.
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

/// What a share `quantile` of the sorted values does not exceed.
fn at<T: Copy>(sorted: &[T], quantile: f64) -> Option<T> {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// A reference as it was written, before it is known to be one.
#[derive(Deserialize)]
struct Saved {
    slow: i32,
    edges: Vec<f64>,
    below: Vec<f64>,
}

impl TryFrom<Saved> for Reference {
    type Error = &'static str;

    fn try_from(Saved { slow, edges, below }: Saved) -> Result<Self, Self::Error> {
        let ascend = edges.len() < BINS && edges.is_sorted() && !edges.iter().any(|it| it.is_nan());
        let shares = below.is_sorted() && below.iter().all(|share| (0.0..=1.0).contains(share));
        if ascend && shares && edges.len() == below.len() && sketch::is_bin(slow) {
            Ok(Self::of(slow, edges, below))
        } else {
            Err("not the scale of a trial")
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
    fn a_score_that_many_have_is_alone_in_its_bin() {
        assert_eq!(edges_of(&[0.5; 100]), [0.5_f64.next_down(), 0.5]);
        let half: Vec<f64> = (0..1000).map(|number| f64::from(number.max(500))).collect();
        let edges = edges_of(&half);
        assert_eq!(edges[..3], [500.0_f64.next_down(), 500.0, 531.0]);
    }

    #[test]
    fn a_scale_that_is_none_is_refused() {
        let read = |json: &str| serde_json::from_str::<Reference>(json);
        assert!(read(r#"{"slow": -100, "edges": [0.1, 0.2], "below": [0.4, 0.6]}"#).is_ok());
        for wrong in [
            r#"{"slow": -100000, "edges": [], "below": []}"#,
            r#"{"slow": -100, "edges": [0.2, 0.1], "below": [0.4, 0.6]}"#,
            r#"{"slow": -100, "edges": [0.1], "below": [0.4, 0.6]}"#,
            r#"{"slow": -100, "edges": [0.1], "below": [1.4]}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
