//! Handles of the metrics on the request path, looked up once for each model and arm.

use std::sync::OnceLock;

use metrics::{Counter, Histogram};

use super::{
    FEATURES, REQUEST_SECONDS, REQUESTS, SCORES, STAGE_SECONDS, STAND_INS, ServedAs, Stage,
    TREATMENTS, USERS,
};
use crate::front::{self, Front, Method};

/// The metrics that every prediction of an arm records.
pub(super) struct Recorders {
    /// Durations by [`Stage`].
    pub(super) stages: [Histogram; Stage::ALL.len()],
    pub(super) users: Histogram,
    pub(super) treatments: Histogram,
    pub(super) scores: Histogram,
    /// Counts of missing, unknown and out-of-vocabulary features.
    pub(super) features: [Counter; 3],
    /// Answers of the live version in place of a canary, for the model in any arm.
    pub(super) stand_ins: Counter,
}

impl Recorders {
    pub(super) fn new(by: &ServedAs) -> Self {
        let (model, arm) = (|| by.model.text(), by.arm());
        let stage = |stage: Stage| {
            let stage = stage.as_str();
            metrics::histogram!(STAGE_SECONDS, "stage" => stage, "model" => model(), "arm" => arm)
        };
        let feature = |kind: &'static str| metrics::counter!(FEATURES, "model" => model(), "arm" => arm, "kind" => kind);
        Self {
            stages: Stage::ALL.map(stage),
            users: metrics::histogram!(USERS, "model" => model(), "arm" => arm),
            treatments: metrics::histogram!(TREATMENTS, "model" => model(), "arm" => arm),
            scores: metrics::histogram!(SCORES, "model" => model(), "arm" => arm),
            features: ["missing", "unknown", "out_of_vocabulary"].map(feature),
            stand_ins: metrics::counter!(STAND_INS, "model" => model()),
        }
    }
}

/// The metrics that every call of a method records, for one model and arm.
pub(super) struct Calls {
    pub(super) duration: Histogram,
    /// Counts of calls that did not fail, by [`Front`].
    ok: [OnceLock<Counter>; front::COUNT],
}

impl Calls {
    pub(super) fn new(method: Method, by: &ServedAs) -> Self {
        let duration = metrics::histogram!(
            REQUEST_SECONDS,
            "method" => method.as_str(), "model" => by.model.text(), "arm" => by.arm()
        );
        Self { duration, ok: Default::default() }
    }

    /// The counter of successful calls of a front; `requests` looks it up at the first use.
    pub(super) fn ok(&self, front: &Front, requests: impl FnOnce() -> Counter) -> &Counter {
        self.ok[front.index].get_or_init(requests)
    }
}

pub(super) fn requests(
    front: &Front,
    method: Method,
    by: &ServedAs,
    reason: &'static str,
) -> Counter {
    metrics::counter!(
        REQUESTS,
        "surface" => front.name, "method" => method.as_str(), "model" => by.model.text(),
        "arm" => by.arm(), "reason" => reason
    )
}
