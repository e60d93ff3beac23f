//! Metrics that are gathered at each scrape: the process's own figures, the memory of versions,
//! whose series end with them, and the ages of lifecycle steps.

mod process;
mod steps;
mod versions;

use std::fmt::Write as _;

use outrigger_core::{Metric, MetricKind};
use outrigger_lifecycle::Snapshot;

const CPU: &str = "process_cpu_seconds_total";
const RESIDENT: &str = "process_resident_memory_bytes";
const VIRTUAL: &str = "process_virtual_memory_bytes";
const OPEN_FILES: &str = "process_open_fds";
const MOST_FILES: &str = "process_max_fds";
const STARTED: &str = "process_start_time_seconds";
const THREADS: &str = "process_threads";
const MEMORY: &str = "outrigger_model_memory_bytes";
const STEP_AGE: &str = "outrigger_model_step_age_seconds";

/// The metrics that are gathered at each scrape.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: CPU,
        kind: MetricKind::Counter,
        labels: &[],
        help: "Processor time of the process, of user and system.",
    },
    Metric {
        name: RESIDENT,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "Resident memory of the process.",
    },
    Metric {
        name: VIRTUAL,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "Virtual memory of the process.",
    },
    Metric {
        name: OPEN_FILES,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "Open file descriptors of the process.",
    },
    Metric {
        name: MOST_FILES,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "File descriptors that the process may open.",
    },
    Metric {
        name: STARTED,
        kind: MetricKind::Gauge,
        labels: &[],
        help: "When the process was started, since 1970.",
    },
    Metric { name: THREADS, kind: MetricKind::Gauge, labels: &[], help: "Threads of the process." },
    Metric {
        name: MEMORY,
        kind: MetricKind::Gauge,
        labels: &["model", "digest"],
        help: "An estimate of the memory of each version in the engine, from the size of its \
               files: the engine does not report it. Only versions in the engine have a series; \
               those of models that share a label are added up under the digest other.",
    },
    Metric {
        name: STEP_AGE,
        kind: MetricKind::Gauge,
        labels: &["step"],
        help: "Time without progress in a step (pull, prepare, replace, publish, load, gate, \
               drain, unload, delete), of the version with the longest such time; 0 if none is in \
               the step. The time of a version that waited behind others begins when the last of \
               them ended.",
    },
];

/// Renders the gathered metrics in Prometheus' text format.
pub(super) fn render(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for (name, value) in process::figures() {
        family(&mut text, name, [(String::new(), value)]);
    }
    let memory = versions::memory(snapshot).into_iter().map(|(version, bytes)| {
        // Names and digests have no characters that need escaping.
        let labels = format!("{{model=\"{}\",digest=\"{}\"}}", version.0, version.1);
        (labels, bytes as f64)
    });
    family(&mut text, MEMORY, memory);
    let ages = steps::ages(snapshot).into_iter();
    family(
        &mut text,
        STEP_AGE,
        ages.map(|(step, age)| (format!("{{step=\"{}\"}}", step.as_str()), age)),
    );
    text
}

fn family(text: &mut String, name: &str, series: impl IntoIterator<Item = (String, f64)>) {
    let metric = METRICS.iter().find(|metric| metric.name == name).expect("it is declared");
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge | MetricKind::Histogram => "gauge",
    };
    let mut series = series.into_iter().peekable();
    if series.peek().is_none() {
        return;
    }
    let help = metric.help;
    write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n").expect("writing to a string");
    for (labels, value) in series {
        writeln!(text, "{name}{labels} {value}").expect("writing to a string");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outrigger_core::Step;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn process_metrics_are_exposed() {
        let text = render(&Snapshot::default());
        for metric in METRICS.iter().filter(|metric| metric.labels.is_empty()) {
            let value = text.lines().find_map(|line| line.strip_prefix(metric.name)).map(str::trim);
            let value: f64 = value.unwrap_or_else(|| panic!("{}", metric.name)).parse().unwrap();
            assert!(value >= 0.0, "{}: {value}", metric.name);
        }
        assert!(!text.contains(MEMORY), "no version, no series");
    }

    #[test]
    fn every_step_is_reported_with_the_age_of_its_oldest_version() {
        let second = Duration::from_secs(1);
        let began = Instant::now().checked_sub(second).expect("the machine is up for longer");
        let steps = [(Step::Gate, began)].into();
        let text = render(&Snapshot { steps, ..Snapshot::default() });
        for step in Step::ALL {
            let series = format!("{STEP_AGE}{{step=\"{}\"}} ", step.as_str());
            let age = text.lines().find_map(|line| line.strip_prefix(&series)).expect(&series);
            let age: f64 = age.parse().unwrap();
            assert_eq!(age >= second.as_secs_f64(), step == Step::Gate, "{series}{age}");
        }
    }
}
