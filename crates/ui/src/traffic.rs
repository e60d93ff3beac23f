//! Requests and latencies of the last two minutes, by model.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use outrigger_console::Topic;
use serde::{Serialize, Serializer};

use super::figures::{Figures, Requests};

/// The most samples that are kept.
const MOST: usize = 60;

/// The samples of traffic, each from two successive readings of the figures.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    samples: VecDeque<Sample>,
    /// The number of samples that have not been published.
    unpublished: usize,
    topic: Topic,
}

/// The traffic between two readings of the figures.
#[derive(Debug, Serialize)]
struct Sample {
    /// The time of the later reading, in milliseconds since 1970.
    at: u64,
    /// The models that answered requests in between.
    models: BTreeMap<String, Point>,
}

/// The traffic of a model: requests per second, failures per second, and the median and the 95th
/// percentile of the latency in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    rate: f64,
    failed: f64,
    median: f64,
    p95: f64,
}

impl Serialize for Point {
    /// Serializes as a list, because there are many points and a list is shorter.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.rate, self.failed, self.median, self.p95].map(short).serialize(serializer)
    }
}

/// Rounds to three significant digits, which is as much as a chart shows.
fn short(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return 0.0;
    }
    #[allow(clippy::cast_possible_truncation)]
    let scale = 10_f64.powi(2 - number.abs().log10().floor() as i32);
    (number * scale).round() / scale
}

impl Traffic {
    /// Adds the traffic of the `seconds` between two readings of the figures; `at` is the time of
    /// the later one. Models without requests get no point.
    pub(crate) fn add(&mut self, at: u64, seconds: f64, before: &Figures, now: &Figures) {
        let none = Requests::default();
        let points = now.models.iter().filter_map(|(name, requests)| {
            let earlier = before.models.get(name).unwrap_or(&none);
            Some((name.clone(), point(earlier, requests, seconds)?))
        });
        self.samples.push_back(Sample { at, models: points.collect() });
        while self.samples.len() > MOST {
            self.samples.pop_front();
        }
        self.unpublished += 1;
    }

    /// The current revision of the topic `traffic`.
    pub(crate) fn topic(&mut self) -> Topic {
        if self.unpublished > 0 || self.topic.is_new() {
            let only = self.samples.back().filter(|_| self.unpublished == 1);
            self.topic = self.topic.next("traffic", &self.samples, only);
            self.unpublished = 0;
        }
        self.topic.clone()
    }
}

fn point(before: &Requests, now: &Requests, seconds: f64) -> Option<Point> {
    let bounds: BTreeSet<Bound> = now.buckets.iter().map(|&(bound, _)| Bound(bound)).collect();
    let grown = |bound: f64| {
        let count = |requests: &Requests| {
            let bucket = requests.buckets.iter().find(|(known, _)| *known == bound);
            bucket.map_or(0.0, |&(_, count)| count)
        };
        (count(now) - count(before)).max(0.0)
    };
    let buckets: Vec<_> = bounds.into_iter().map(|Bound(bound)| (bound, grown(bound))).collect();
    let total = buckets.last()?.1;
    if total <= 0.0 || seconds <= 0.0 {
        return None;
    }
    let milliseconds = |part: f64| quantile(&buckets, part * total) * 1e3;
    Some(Point {
        rate: total / seconds,
        failed: (now.failed - before.failed).max(0.0) / seconds,
        median: milliseconds(0.5),
        p95: milliseconds(0.95),
    })
}

/// The quantile with `rank` in a histogram, interpolated linearly within its bucket as Prometheus
/// does. `buckets` are cumulative counts by upper bound, in ascending order.
fn quantile(buckets: &[(f64, f64)], rank: f64) -> f64 {
    let mut below = (0.0, 0.0);
    for &(bound, count) in buckets {
        if count >= rank {
            let inside = (rank - below.1) / (count - below.1).max(f64::MIN_POSITIVE);
            return if bound.is_finite() { below.0 + (bound - below.0) * inside } else { below.0 };
        }
        below = (bound, count);
    }
    below.0
}

/// A bucket's upper bound, with a total order.
#[derive(PartialEq)]
struct Bound(f64);

impl Eq for Bound {}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bound {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(counts: [f64; 3], failed: f64) -> Figures {
        let buckets = [0.01, 0.1, f64::INFINITY].into_iter().zip(counts).collect();
        let models = [("churn".to_owned(), Requests { buckets, failed })].into();
        Figures { models, ..Figures::default() }
    }

    #[test]
    fn a_point_covers_the_time_between_two_readings() {
        let mut traffic = Traffic::default();
        let (before, now) = (figures([50.0, 50.0, 50.0], 1.0), figures([60.0, 70.0, 70.0], 3.0));
        traffic.add(7, 2.0, &before, &now);
        let sample = serde_json::to_string(traffic.samples.back().unwrap()).unwrap();
        assert_eq!(sample, r#"{"at":7,"models":{"churn":[10.0,1.0,10.0,91.0]}}"#);
    }

    #[test]
    fn a_model_without_requests_has_no_point() {
        let mut traffic = Traffic::default();
        traffic.add(1, 1.0, &Figures::default(), &figures([0.0, 1.0, 1.0], 0.0));
        assert_eq!(traffic.samples.back().unwrap().models.len(), 1);
        traffic.add(2, 1.0, &figures([0.0, 1.0, 1.0], 0.0), &figures([0.0, 1.0, 1.0], 0.0));
        assert_eq!(traffic.samples.back().unwrap().models.len(), 0);
    }

    #[test]
    fn latencies_above_the_last_bound_are_shown_as_that_bound() {
        let buckets = [(0.01, 0.0), (0.1, 0.0), (f64::INFINITY, 4.0)];
        assert_eq!(quantile(&buckets, 2.0), 0.1);
        assert_eq!(quantile(&[], 2.0), 0.0);
    }

    #[test]
    fn only_the_latest_samples_are_kept() {
        let mut traffic = Traffic::default();
        for at in 0..200 {
            traffic.add(at, 1.0, &Figures::default(), &Figures::default());
        }
        assert_eq!(traffic.samples.len(), MOST);
        assert_eq!(traffic.samples.back().unwrap().at, 199);
    }
}
