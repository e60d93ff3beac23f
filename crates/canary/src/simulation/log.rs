//! Logged requests, one JSON object a line.

use std::time::Duration;

use outrigger_core::Arm;
use serde::Deserialize;

use crate::{Draw, Exposures, Observation, Outcome, Salt, Share};

/// A logged request:
///
/// ```json
/// {"time": 1764241200.25, "arm": "canary", "latency_ms": 18.2, "score": 0.41}
/// ```
///
/// `time` is in seconds from an arbitrary origin; `arm` is `live` or `canary`. An answer
/// has a `score`, or `"non_finite": true`, or neither if it has no scores; `"error":
/// true` means that there was no answer. `share` is the canary's share of the traffic at
/// that time, `key` the routing key, if any.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Logged {
    /// Time of arrival.
    pub time: Duration,
    /// The canary's share, if it was logged.
    pub share: Option<Share>,
    /// The draw of its routing key, which identifies the key, if it had one.
    pub key: Option<Draw>,
    /// The recorded outcome.
    pub observation: Observation,
}

/// A logged trial.
#[derive(Debug, Clone)]
pub struct Log {
    /// Live's requests before the trial.
    pub(super) sample: Vec<Observation>,
    /// The requests that are recorded, in the order of time.
    pub(super) trial: Vec<Logged>,
}

/// The log has too few requests of live for the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reference needs {needed} requests of live, the log has {found}")]
pub struct TooShort {
    needed: usize,
    found: usize,
}

impl Log {
    /// Splits requests, in the order of time: the first `reference` requests of live only
    /// make the reference, and the trial begins after them. From then on only the first
    /// request of each key is recorded, as in a server.
    ///
    /// # Errors
    /// Live has fewer than `reference` requests.
    pub fn new(
        requests: impl IntoIterator<Item = Logged>,
        reference: usize,
    ) -> Result<Self, TooShort> {
        let (mut sample, mut trial) = (Vec::new(), Vec::new());
        let exposures = Exposures::new();
        for request in requests {
            if sample.len() < reference {
                let before = Some(request.observation).filter(|seen| seen.arm == Arm::Live);
                sample.extend(before);
            } else if request.key.is_none_or(|key| exposures.first(key)) {
                trial.push(request);
            }
        }
        match sample.len() {
            found if found < reference => Err(TooShort { needed: reference, found }),
            _ => Ok(Self { sample, trial }),
        }
    }

    /// All requests of live, those of the reference included.
    pub fn live(&self) -> Vec<Observation> {
        let trial = self.trial.iter().map(|request| request.observation);
        let live = trial.filter(|seen| seen.arm == Arm::Live);
        self.sample.iter().copied().chain(live).collect()
    }

    /// Requests a second during the trial; `None` if all have the same time.
    pub fn rate(&self) -> Option<f64> {
        let (first, last) = (self.trial.first()?, self.trial.last()?);
        let time = last.time.saturating_sub(first.time);
        (!time.is_zero()).then(|| (self.trial.len() - 1) as f64 / time.as_secs_f64())
    }
}

impl Logged {
    /// Parses a line.
    ///
    /// # Errors
    /// A description of the syntax or value error.
    pub fn parse(line: &str) -> Result<Self, String> {
        let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let outcome = match (line.error, line.non_finite, line.score) {
            (true, false, None) => Outcome::Failed,
            (false, true, None) => Outcome::NonFinite,
            (false, false, Some(score)) => Outcome::of_score(score),
            (false, false, None) => Outcome::Empty,
            _ => return Err("only one of error, non_finite and score can be".to_owned()),
        };
        let duration = |name, seconds| {
            Duration::try_from_secs_f64(seconds).map_err(|error| format!("{name}: {error}"))
        };
        let arm = match line.arm {
            Name::Live => Arm::Live,
            Name::Canary => Arm::Canary,
        };
        Ok(Self {
            time: duration("time", line.time)?,
            share: line.share,
            key: line
                .key
                .filter(|key| !key.is_empty())
                .map(|key| Draw::of_key(&Salt::default(), &key)),
            observation: Observation {
                arm,
                latency: Some(duration("latency_ms", line.latency_ms / 1e3)?),
                outcome,
            },
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    time: f64,
    arm: Name,
    latency_ms: f64,
    #[serde(default)]
    error: bool,
    #[serde(default)]
    non_finite: bool,
    score: Option<f64>,
    share: Option<Share>,
    key: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Name {
    Live,
    Canary,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(fields: &str) -> Result<Outcome, String> {
        let line = format!(r#"{{"time": 1.5, "arm": "canary", "latency_ms": 18.2{fields}}}"#);
        Logged::parse(&line).map(|logged| logged.observation.outcome)
    }

    #[test]
    fn a_line_is_a_request() {
        let line =
            r#"{"time": 1.5, "arm": "live", "latency_ms": 18.2, "score": 0.4, "share": 0.1}"#;
        let expected = Logged {
            time: Duration::from_millis(1500),
            share: Share::new(0.1).ok(),
            key: None,
            observation: Observation {
                arm: Arm::Live,
                latency: Some(Duration::from_micros(18_200)),
                outcome: Outcome::Scored(0.4),
            },
        };
        assert_eq!(Logged::parse(line), Ok(expected));
    }

    #[test]
    fn only_the_first_request_of_a_key_counts_in_the_trial() {
        let request = |(number, arm, key): (usize, &str, &str)| {
            let line = format!(
                r#"{{"time": {number}, "arm": "{arm}", "latency_ms": {number}, "key": "{key}"}}"#
            );
            Logged::parse(&line).unwrap()
        };
        let lines = [
            (0, "live", "anna"),
            (1, "canary", "bert"),
            (2, "live", "anna"),
            (3, "live", "anna"),
            (4, "canary", "bert"),
            (5, "live", "anna"),
            (6, "canary", "bert"),
            (7, "live", ""),
            (8, "live", ""),
        ];
        let log = Log::new(lines.map(request), 2).unwrap();
        assert_eq!(log.sample.len(), 2, "keys before the trial are not recorded as seen");
        let times = log.trial.iter().map(|request| request.time.as_secs());
        assert_eq!(times.collect::<Vec<_>>(), [3, 4, 7, 8]);
        assert_eq!((log.live().len(), log.rate()), (5, Some(0.6)));
        let short = Log::new(lines.map(request), 8).unwrap_err().to_string();
        assert_eq!(short, "the reference needs 8 requests of live, the log has 6");
    }

    #[test]
    fn every_outcome_is_parsed() {
        assert_eq!(outcome(r#", "error": true"#), Ok(Outcome::Failed));
        assert_eq!(outcome(r#", "non_finite": true"#), Ok(Outcome::NonFinite));
        assert_eq!(outcome(""), Ok(Outcome::Empty));
        assert_eq!(outcome(r#", "score": null"#), Ok(Outcome::Empty));
    }

    #[test]
    fn invalid_lines_are_refused() {
        for line in [
            "",
            "{}",
            r#"{"time": 1, "arm": "pinned", "latency_ms": 1}"#,
            r#"{"time": -1, "arm": "live", "latency_ms": 1}"#,
            r#"{"time": 1, "arm": "live", "latency_ms": 1e300}"#,
            r#"{"time": 1, "arm": "live", "latency_ms": 1, "share": 1.5}"#,
            r#"{"time": 1, "arm": "live", "latency_ms": 1, "scores": [1]}"#,
            r#"{"time": 1, "arm": "live", "latency_ms": 1, "score": 1, "error": true}"#,
        ] {
            assert!(Logged::parse(line).is_err(), "{line}");
        }
    }
}
