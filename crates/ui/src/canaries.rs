//! Canaries with the history of the bounds that they are judged by.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use outrigger_console::Topic;
use outrigger_proto::outrigger::v1::{self as wire, ListCanariesResponse, canary_verdict::Finding};
use prost_types::Timestamp;
use serde::Serialize;

use super::models::short_digest;

/// The most trials whose bounds are kept; the one updated least recently is dropped first.
const MOST_TRIALS: usize = 64;
/// The most points of a trial. When they are reached, every second point is dropped, and the
/// interval of new ones doubles.
const MOST_POINTS: usize = 120;
/// The most decisions that the page shows.
const MOST_DECISIONS: usize = 30;

const NAME: &str = "canaries";

/// The state of the topic `canaries`.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    trials: VecDeque<(Key, Closing)>,
    sent: BTreeMap<Key, String>,
    decided: Option<Timestamp>,
    topic: Topic,
}

/// A trial: model, tag, canary.
type Key = (String, String, String);

fn key(model: &str, tag: &str, canary: &str) -> Key {
    (model.to_owned(), tag.to_owned(), canary.to_owned())
}

fn key_of(canary: &wire::Canary) -> Key {
    key(&canary.model, &canary.tag, &canary.canary_digest)
}

/// The bounds of each signal over time.
#[derive(Debug, Clone)]
struct Closing {
    points: BTreeMap<String, Vec<Point>>,
    /// The time on trial at which the next point is due, in seconds.
    due: f64,
    /// The interval between points, in seconds.
    every: f64,
}

/// The seconds on trial, with the difference and its lower and upper bound at that time. An
/// unbounded side is null.
type Point = [Option<f64>; 4];

impl Default for Closing {
    fn default() -> Self {
        Self { points: BTreeMap::new(), due: 0.0, every: 1.0 }
    }
}

impl Closing {
    fn record(&mut self, elapsed: f64, findings: &[Finding]) {
        if elapsed < self.due {
            return;
        }
        for finding in findings {
            let points = self.points.entry(finding.signal.clone()).or_default();
            points.push(point(elapsed, finding));
        }
        self.due = elapsed + self.every;
        if self.points.values().any(|points| points.len() >= MOST_POINTS) {
            self.every *= 2.0;
            for points in self.points.values_mut() {
                let mut nth = 0;
                points.retain(|_| {
                    nth += 1;
                    nth % 2 == 1
                });
            }
        }
    }
}

fn point(elapsed: f64, finding: &Finding) -> Point {
    let [difference, lower, upper] =
        [finding.difference, finding.lower, finding.upper].map(bounded);
    [Some(elapsed), difference, lower, upper]
}

/// `None` for an unbounded side, which the largest number represents.
fn bounded(number: f64) -> Option<f64> {
    (number.is_finite() && number.abs() < f64::MAX).then_some(number)
}

impl Trials {
    /// Records the current bounds; called once a second.
    pub(crate) fn record(&mut self, canaries: &ListCanariesResponse) {
        for view in &canaries.canaries {
            let Some(verdict) = &view.verdict else { continue };
            let key = key_of(view);
            let mut closing = self.take(&key);
            let elapsed = view.elapsed.and_then(|elapsed| Duration::try_from(elapsed).ok());
            closing.record(elapsed.unwrap_or_default().as_secs_f64(), &verdict.findings);
            self.trials.push_back((key, closing));
        }
        while self.trials.len() > MOST_TRIALS {
            self.trials.pop_front();
        }
    }

    fn take(&mut self, key: &Key) -> Closing {
        let known = self.trials.iter().position(|(known, _)| known == key);
        known.and_then(|at| self.trials.remove(at)).map(|it| it.1).unwrap_or_default()
    }

    fn closing(&self, key: &Key) -> BTreeMap<String, Vec<Point>> {
        let known = self.trials.iter().find(|(known, _)| known == key);
        known.map(|(_, closing)| closing.points.clone()).unwrap_or_default()
    }

    /// The current revision of the topic `canaries`.
    pub(crate) fn topic(&mut self, canaries: &ListCanariesResponse) -> Topic {
        let now: BTreeMap<Key, _> = canaries.canaries.iter().map(keyed).collect();
        let text = |canary: &Canary| serde_json::to_string(canary).unwrap_or_default();
        let texts: BTreeMap<_, _> = now.iter().map(|(key, it)| (key.clone(), text(it))).collect();
        let decided = canaries.decisions.first().and_then(|decision| decision.at);
        let is_whole = self.topic.is_new() || decided != self.decided;
        if !is_whole && texts == self.sent {
            return self.topic.clone();
        }
        let changed = now.iter().filter(|(key, _)| self.sent.get(key) != texts.get(key));
        let step = Step {
            canaries: changed.map(|it| it.1.clone()).collect(),
            gone: self.sent.keys().filter(|key| !now.contains_key(*key)).map(id).collect(),
        };
        let whole = Whole {
            canaries: now
                .iter()
                .map(|(key, it)| Canary { points: Some(self.closing(key)), ..it.clone() })
                .collect(),
            decisions: self.decisions(canaries),
        };
        self.topic = self.topic.next(NAME, &whole, (!is_whole).then_some(&step));
        (self.sent, self.decided) = (texts, decided);
        self.topic.clone()
    }

    fn decisions(&self, canaries: &ListCanariesResponse) -> Vec<Decision> {
        let latest = canaries.decisions.iter().take(MOST_DECISIONS);
        latest.map(|decision| self.decision(decision)).collect()
    }

    fn decision(&self, decision: &wire::CanaryDecision) -> Decision {
        let key = key(&decision.model, &decision.tag, &decision.canary_digest);
        let mut points = self.closing(&key);
        // The figures of the decision are more recent than the last point.
        for finding in decision.verdict.iter().flat_map(|verdict| &verdict.findings) {
            let points = points.entry(finding.signal.clone()).or_default();
            let last = points.last().and_then(|point| point[0]);
            points.push(point(last.map_or(0.0, |last| last + 1.0), finding));
        }
        Decision { decision: decision.clone(), points }
    }
}

/// The full state.
#[derive(Serialize)]
struct Whole {
    canaries: Vec<Canary>,
    decisions: Vec<Decision>,
}

/// The canaries that changed; their verdicts hold their latest points.
#[derive(Serialize)]
struct Step {
    canaries: Vec<Canary>,
    gone: Vec<String>,
}

#[derive(Clone, Serialize)]
struct Canary {
    id: String,
    #[serde(flatten)]
    canary: wire::Canary,
    #[serde(skip_serializing_if = "Option::is_none")]
    points: Option<BTreeMap<String, Vec<Point>>>,
}

#[derive(Serialize)]
struct Decision {
    #[serde(flatten)]
    decision: wire::CanaryDecision,
    points: BTreeMap<String, Vec<Point>>,
}

fn id((model, tag, canary): &Key) -> String {
    format!("{model}:{tag}@{}", short_digest(canary))
}

fn keyed(canary: &wire::Canary) -> (Key, Canary) {
    let key = key_of(canary);
    let canary = Canary { id: id(&key), canary: canary.clone(), points: None };
    (key, canary)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(width: f64) -> Finding {
        Finding {
            signal: "latency".to_owned(),
            state: "open".to_owned(),
            live: 0.1,
            canary: 0.1,
            difference: 0.0,
            lower: -width,
            upper: width,
            tolerance: 0.0,
            margin: 0.1,
            detail: String::new(),
        }
    }

    #[test]
    fn a_long_trial_keeps_a_bounded_number_of_points_from_its_whole_life() {
        let mut closing = Closing::default();
        for second in 0..100_000_u32 {
            let elapsed = f64::from(second);
            closing.record(elapsed, &[finding(1.0 / (1.0 + elapsed))]);
        }
        let points = &closing.points["latency"];
        assert!((MOST_POINTS / 4..MOST_POINTS).contains(&points.len()), "{}", points.len());
        assert_eq!(points[0][0], Some(0.0));
        assert!(points.last().unwrap()[0] > Some(90_000.0));
        assert!(points.windows(2).all(|pair| pair[0][0] < pair[1][0]));
    }

    #[test]
    fn unknown_bounds_are_shown_as_none() {
        assert_eq!(point(1.0, &finding(f64::MAX)), [Some(1.0), Some(0.0), None, None]);
    }
}
