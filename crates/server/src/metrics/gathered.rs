//! Metrics that are gathered at each scrape: the process's own figures, the memory of versions,
//! whose series end with them, and the ages of lifecycle steps.

mod steps;
mod versions;

use outrigger_console::{exposition::family, process};
use outrigger_core::{Metric, MetricKind};
use outrigger_lifecycle::Snapshot;

const MEMORY: Metric = Metric {
    name: "outrigger_model_memory_bytes",
    kind: MetricKind::Gauge,
    labels: &["model", "digest"],
    help: "An estimate of the memory of each version in the engine, from the size of its files: the \
           engine does not report it. Only versions in the engine have a series; those of models \
           that share a label are added up under the digest other.",
};
const STEP_AGE: Metric = Metric {
    name: "outrigger_model_step_age_seconds",
    kind: MetricKind::Gauge,
    labels: &["step"],
    help: "Time without progress in a step (pull, prepare, replace, publish, load, gate, drain, \
           unload, delete), of the version with the longest such time; 0 if none is in the step. \
           The time of a version that waited behind others begins when the last of them ended.",
};

/// The metrics that are gathered at each scrape, besides those of the process.
pub(super) const METRICS: &[Metric] = &[MEMORY, STEP_AGE];

/// Renders the gathered metrics in Prometheus' text format.
pub(super) fn render(snapshot: &Snapshot) -> String {
    let mut text = process::text();
    let memory = versions::memory(snapshot).into_iter();
    let memory = memory.map(|((model, digest), bytes)| ([model, digest], bytes as f64));
    family(&mut text, &MEMORY, memory);
    let ages = steps::ages(snapshot).into_iter();
    family(&mut text, &STEP_AGE, ages.map(|(step, age)| ([step.as_str().to_owned()], age)));
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outrigger_core::Step;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn without_a_version_there_is_no_memory_of_one() {
        let text = render(&Snapshot::default());
        assert!(!text.contains(MEMORY.name) && text.contains("process_"), "{text}");
    }

    #[test]
    fn every_step_is_reported_with_the_age_of_its_oldest_version() {
        let second = Duration::from_secs(1);
        let began = Instant::now().checked_sub(second).expect("the machine is up for longer");
        let steps = [(Step::Gate, began)].into();
        let text = render(&Snapshot { steps, ..Snapshot::default() });
        for step in Step::ALL {
            let series = format!("{}{{step=\"{}\"}} ", STEP_AGE.name, step.as_str());
            let age = text.lines().find_map(|line| line.strip_prefix(&series)).expect(&series);
            let age: f64 = age.parse().unwrap();
            assert_eq!(age >= second.as_secs_f64(), step == Step::Gate, "{series}{age}");
        }
    }
}
