//! Logged requests, a JSON object a line.

use std::time::Duration;

use outrigger_core::Arm;
use serde::Deserialize;

use crate::{Observation, Outcome, Share};

/// A request as it was logged:
///
/// ```json
/// {"time": 1764241200.25, "arm": "canary", "latency_ms": 18.2, "score": 0.41}
/// ```
///
/// `time` is in seconds, since whenever; `arm` is `live` or `canary`. An answer
/// has a `score`, or `"non_finite": true`, or neither if there was nothing to
/// score; `"error": true` is no answer. `share` is the canary's share of the traffic
/// at that time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Logged {
    /// When it came.
    pub time: Duration,
    /// The canary's share, if it was logged.
    pub share: Option<Share>,
    /// What came of it.
    pub observation: Observation,
}

impl Logged {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
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
            observation: Observation {
                arm,
                latency: duration("latency_ms", line.latency_ms / 1e3)?,
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
            observation: Observation {
                arm: Arm::Live,
                latency: Duration::from_micros(18_200),
                outcome: Outcome::Scored(0.4),
            },
        };
        assert_eq!(Logged::parse(line), Ok(expected));
    }

    #[test]
    fn every_outcome_can_be_written() {
        assert_eq!(outcome(r#", "error": true"#), Ok(Outcome::Failed));
        assert_eq!(outcome(r#", "non_finite": true"#), Ok(Outcome::NonFinite));
        assert_eq!(outcome(""), Ok(Outcome::Empty));
        assert_eq!(outcome(r#", "score": null"#), Ok(Outcome::Empty));
    }

    #[test]
    fn what_is_no_request_is_refused() {
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
