//! Measures the judge's cost per request.

use std::{hint::black_box, sync::Arc, time::Instant};

use outrigger_canary::{
    Draw, Exposures, Observation, Reference, Salt, Statistics, simulation::Effect,
};

use crate::traffic;

/// Requests in a round.
const REQUESTS: usize = 10_000;

/// Nanoseconds to draw a request's arm by its key, check whether the key is new, and
/// record the outcome. The result is the fastest of many short rounds, because other
/// processes may be using the machine.
pub(crate) fn nanoseconds() -> f64 {
    let mut traffic = traffic(Effect::NONE, 0);
    let reference = Arc::new(Reference::new(&traffic.before(Reference::REQUESTS), 0.95));
    let requests: Vec<(String, Observation)> =
        (0..REQUESTS).map(|user| (format!("user-{user}"), traffic.request())).collect();
    let mut statistics = Statistics::new(reference);
    let mut round = || {
        let exposures = Exposures::new();
        let started = Instant::now();
        for (key, seen) in &requests {
            let draw = Draw::of_key(&Salt::default(), key);
            let seen = Observation { arm: draw.arm(traffic.share), ..*seen };
            if exposures.first(draw) {
                statistics.record(traffic.share, &seen);
            }
        }
        black_box(&statistics);
        started.elapsed()
    };
    let fastest = (0..100).map(|_| round()).min().unwrap_or_default();
    fastest.as_nanos() as f64 / REQUESTS as f64
}
