//! The progress of a worker as text: one line for the rows, and one for each host.

use std::time::Duration;

use indicatif::{BinaryBytes, HumanCount, ProgressBar};
use outrigger_batch::{Health, HostProgress, Progress};
use outrigger_core::printable;

/// The most hosts that are shown.
const MOST_HOSTS: usize = 12;

/// The form of the bar: the part of the rows, and the text below it.
pub(super) const BAR: &str = "{elapsed_precise} {wide_bar} {percent}%\n{msg}";

/// The text before the job has a plan.
pub(super) const STARTS: &str = "reads the input and asks the hosts for the model";

/// Shows the progress, in lines of at most `width` columns.
pub(super) fn show(bar: &ProgressBar, progress: &Progress, width: usize) {
    bar.set_length(progress.rows);
    bar.set_position(progress.done().min(progress.rows));
    let text = match progress.worker.is_empty() {
        true => STARTS.to_owned(),
        false => text(progress),
    };
    let lines: Vec<String> = text.lines().map(|line| line.chars().take(width).collect()).collect();
    bar.set_message(lines.join("\n"));
}

/// The progress of a worker.
pub(super) fn text(progress: &Progress) -> String {
    let Progress { hosts, unresolved, remarks, .. } = progress;
    let more = hosts.len().saturating_sub(MOST_HOSTS);
    let more = (more > 0).then(|| format!("and {more} more hosts"));
    let others = hosts.iter().take(MOST_HOSTS).map(host).chain(more);
    let lines = others.chain(unresolved.clone()).chain(remarks.clone());
    let lines = lines.map(|line| format!("\n  {}", printable(line)));
    rows(progress) + &lines.collect::<String>()
}

/// The rows of a worker, in one line.
pub(super) fn rows(progress: &Progress) -> String {
    let Progress { rows, dead, rows_per_second, memory, memory_limit, .. } = progress;
    let done = progress.done();
    let percent = if *rows == 0 { 100.0 } else { 100.0 * done as f64 / *rows as f64 };
    let (done, all) = (HumanCount(done), HumanCount(*rows));
    let mut text = format!("{done} of {all} rows ({percent:.1} %), {} dead", HumanCount(*dead));
    if progress.is_store_away {
        text.push_str(", the store does not answer");
    } else if progress.is_paused {
        text.push_str(", paused");
    } else if let Some(left) = left(progress) {
        let rate = match progress.elsewhere_per_second > 0.0 {
            true => format!("{rows_per_second:.0} of {:.0} rows/s", progress.job_per_second()),
            false => format!("{rows_per_second:.0} rows/s"),
        };
        text.push_str(&format!(", {rate}, {left} left"));
    }
    let (memory, limit) = (BinaryBytes(*memory), BinaryBytes(*memory_limit));
    text.push_str(&format!(", {memory} of {limit}"));
    let Progress { open_rows, open_chunks, .. } = progress;
    if *open_rows > 0 {
        let open = HumanCount(*open_rows);
        text.push_str(&format!(", {open} not committed in {open_chunks} open chunks"));
    }
    text
}

/// The time until the end of the job at the present rate of all workers, if there is one.
fn left(progress: &Progress) -> Option<String> {
    let rate = progress.job_per_second();
    let rows = progress.rows.saturating_sub(progress.done());
    let left = Duration::try_from_secs_f64(rows as f64 / rate).ok()?;
    let whole = Duration::from_secs(left.as_secs());
    (rate > 0.0).then(|| humantime::format_duration(whole).to_string())
}

fn host(host: &HostProgress) -> String {
    let HostProgress {
        host: name, limit, bound, in_flight, breaker, rows_per_second, failed, ..
    } = host;
    let reason = match bound.as_str() {
        "start" => "not measured yet",
        "round_trips" => "more would wait there",
        "refusals" => "it refused more",
        "user" => "the setting concurrency or rows_per_second",
        "quota" => "the limit of requests or tokens",
        other => other,
    };
    let place = match breaker.as_str() {
        "closed" => "",
        "open" => ", left out",
        "half_open" => ", being tested",
        other => other,
    };
    let health = match host.health {
        None | Some(Health::Ready) => "",
        Some(Health::NotReady) => ", not ready when it was asked",
        Some(Health::Silent) => ", no answer when it was asked",
    };
    let failed = match failed {
        0 => String::new(),
        count => format!(", {} failed", HumanCount(*count)),
    };
    let requests = format!("{in_flight} of {limit} requests ({reason})");
    format!("{name}: {rows_per_second:.0} rows/s, {requests}{place}{health}{failed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(hosts: usize) -> Progress {
        let host = |number| HostProgress {
            host: format!("host-{number}:8001"),
            limit: 8,
            bound: "refusals".to_owned(),
            in_flight: 7,
            breaker: "closed".to_owned(),
            rows_per_second: 25.0,
            failed: 3,
            ..HostProgress::default()
        };
        Progress {
            worker: "w".to_owned(),
            rows: 12_000,
            before: 1000,
            scored: 1990,
            dead: 10,
            rows_per_second: 50.0,
            memory_limit: 1 << 20,
            hosts: (0..hosts).map(host).collect(),
            ..Progress::default()
        }
    }

    #[test]
    fn rows_rate_and_time_are_shown_and_each_host_with_its_reason() {
        let text = text(&progress(2));
        let lines: Vec<_> = text.lines().collect();
        let first = "3,000 of 12,000 rows (25.0 %), 10 dead, 50 rows/s, 3m left, 0 B of 1.00 MiB";
        let host = "  host-1:8001: 25 rows/s, 7 of 8 requests (it refused more), 3 failed";
        assert_eq!((lines[0], lines[2], lines.len()), (first, host, 3));
    }

    #[test]
    fn the_rows_and_the_time_are_those_of_all_workers() {
        let mut progress = progress(1);
        (progress.elsewhere, progress.elsewhere_per_second) = (3100, 150.0);
        // This worker has done 100 rows that another one had committed.
        progress.lost = 100;
        let first = "6,000 of 12,000 rows (50.0 %), 10 dead, 50 of 200 rows/s, 30s left";
        let text = text(&progress);
        assert!(text.starts_with(first), "{text}");
    }

    #[test]
    fn a_job_without_a_rate_has_no_time() {
        let mut progress = progress(1);
        progress.rows_per_second = 0.0;
        assert!(!text(&progress).contains("left"));
        (progress.is_paused, progress.hosts[0].breaker) = (true, "open".to_owned());
        let text = text(&progress);
        assert!(text.contains(", paused,") && text.contains(", left out, 3 failed"), "{text}");
    }

    #[test]
    fn many_hosts_are_not_all_shown_and_lines_are_cut() {
        let text = text(&progress(MOST_HOSTS + 5));
        assert_eq!(text.lines().count(), 1 + MOST_HOSTS + 1);
        assert!(text.ends_with("and 5 more hosts"));
        let bar = ProgressBar::hidden();
        show(&bar, &progress(2), 20);
        assert!(bar.message().lines().all(|line| line.chars().count() <= 20), "{}", bar.message());
        assert_eq!((bar.position(), bar.length()), (3000, Some(12_000)));
        show(&bar, &Progress::default(), 80);
        assert!(bar.message().contains("reads the input"));
    }
}
