//! The metrics of this process, with the names that Prometheus' client libraries use.

use std::{fs, sync::LazyLock, time::Duration};

use outrigger_core::{Metric, MetricKind};
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

use crate::exposition::family;

const CPU: Metric = Metric {
    name: "process_cpu_seconds_total",
    kind: MetricKind::Counter,
    labels: &[],
    help: "Processor time of the process, of user and system.",
};
const RESIDENT: Metric = gauge("process_resident_memory_bytes", "Resident memory of the process.");
const VIRTUAL: Metric = gauge("process_virtual_memory_bytes", "Virtual memory of the process.");
const OPEN_FILES: Metric = gauge("process_open_fds", "Open file descriptors of the process.");
const MOST_FILES: Metric = gauge("process_max_fds", "File descriptors that the process may open.");
const STARTED: Metric =
    gauge("process_start_time_seconds", "When the process was started, since 1970.");
const THREADS: Metric = gauge("process_threads", "Threads of the process.");

/// The metrics of the process.
pub const METRICS: &[Metric] = &[CPU, RESIDENT, VIRTUAL, OPEN_FILES, MOST_FILES, STARTED, THREADS];

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, labels: &[], help }
}

/// The metrics of this process in Prometheus' text format.
pub fn text() -> String {
    let mut text = String::new();
    for (metric, value) in figures() {
        family(&mut text, &metric, [([], value)]);
    }
    text
}

/// The value of each metric that the operating system provides.
fn figures() -> Vec<(Metric, f64)> {
    let mut figures = Vec::new();
    if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(Stat::read) {
        figures.extend(stat.figures());
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // Listing the directory opens one descriptor itself.
        figures.push((OPEN_FILES, open.count().saturating_sub(1) as f64));
    }
    let most = getrlimit(Resource::Nofile).current;
    figures.push((MOST_FILES, most.map_or(f64::INFINITY, |most| most as f64)));
    figures
}

/// The fields of `/proc/self/stat` that are exposed; times are in clock ticks.
#[derive(Debug, PartialEq)]
struct Stat {
    busy: f64,
    threads: f64,
    started: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Stat {
    /// Parses the file as proc_pid_stat(5) describes it.
    fn read(text: &str) -> Option<Self> {
        // The command is in brackets and may contain any character.
        let (_, rest) = text.rsplit_once(')')?;
        // The first field after the command is field 3.
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            busy: field(14)? + field(15)?,
            threads: field(20)?,
            started: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }

    fn figures(&self) -> impl Iterator<Item = (Metric, f64)> {
        let ticks = clock_ticks_per_second() as f64;
        let started = booted().map(|booted| booted.as_secs_f64() + self.started / ticks);
        let figures = [
            (CPU, self.busy / ticks),
            (RESIDENT, self.resident_pages * page_size() as f64),
            (VIRTUAL, self.virtual_bytes),
            (THREADS, self.threads),
        ];
        figures.into_iter().chain(started.map(|at| (STARTED, at)))
    }
}

/// The time since 1970 at which the machine booted.
fn booted() -> Option<Duration> {
    static BOOTED: LazyLock<Option<Duration>> = LazyLock::new(|| {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let time = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
        Some(Duration::from_secs(time.trim().parse().ok()?))
    });
    *BOOTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_of_this_process_are_exposed() {
        let text = text();
        for metric in METRICS {
            let value = text.lines().find_map(|line| line.strip_prefix(metric.name)).map(str::trim);
            let value: f64 = value.unwrap_or_else(|| panic!("{}", metric.name)).parse().unwrap();
            assert!(value >= 0.0, "{}: {value}", metric.name);
        }
    }

    #[test]
    fn a_command_may_be_called_anything() {
        let fields: Vec<_> = (4..=52).map(|field| field.to_string()).collect();
        let text = format!("1 (a ) b) (c) S {}\n", fields.join(" "));
        let expected = Stat {
            busy: 29.0,
            threads: 20.0,
            started: 22.0,
            virtual_bytes: 23.0,
            resident_pages: 24.0,
        };
        assert_eq!(Stat::read(&text), Some(expected));
        assert_eq!(Stat::read("1 (a) S 1 2"), None);
    }
}
