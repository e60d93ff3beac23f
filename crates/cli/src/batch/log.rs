//! The progress of a job as lines of a log, where standard error is no terminal: one at the start, at
//! the begin and the end of each outage, and each minute.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use outrigger_batch::{HostProgress, Progress};
use outrigger_core::printable;

use super::progress;

/// The time between two lines about the rows, and between two outages of a host that are reported.
const MINUTE: Duration = Duration::from_secs(60);

/// The lines that were due so far.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The time of the last line about the rows.
    last: Option<Instant>,
    has_worker: bool,
    is_store_away: bool,
    unresolved: Vec<String>,
    hosts: BTreeMap<String, Outage>,
    /// The failure that was reported last.
    failure: Option<String>,
}

/// The last outage of a host that was reported.
#[derive(Debug)]
struct Outage {
    is_over: bool,
    since: Instant,
}

impl Log {
    /// The lines that are due now.
    pub(super) fn lines(&mut self, progress: &Progress, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        if self.last.is_none() && progress.worker.is_empty() {
            self.last = Some(now);
            lines.push(progress::STARTS.to_owned());
        }
        if progress.worker.is_empty() {
            return lines;
        }
        self.store(progress, &mut lines);
        progress.hosts.iter().for_each(|host| lines.extend(self.host(host, now)));
        for problem in &progress.unresolved {
            if !self.unresolved.contains(problem) {
                lines.push(problem.clone());
            }
        }
        self.unresolved.clone_from(&progress.unresolved);
        let is_new = !std::mem::replace(&mut self.has_worker, true);
        if is_new {
            lines.extend(progress.remarks.clone());
        }
        if is_new || self.last.is_none_or(|last| now.duration_since(last) >= MINUTE) {
            self.last = Some(now);
            lines.push(progress::rows(progress));
            lines.extend(self.failure(progress));
        }
        lines.into_iter().map(printable).collect()
    }

    fn store(&mut self, progress: &Progress, lines: &mut Vec<String>) {
        if self.is_store_away != progress.is_store_away {
            self.is_store_away = progress.is_store_away;
            let line = match self.is_store_away {
                true => "the store does not answer: the job waits",
                false => "the store answers again",
            };
            lines.push(line.to_owned());
        }
    }

    /// The line about a host that has been left out since the last time, or is not any more.
    fn host(&mut self, host: &HostProgress, now: Instant) -> Option<String> {
        let HostProgress { host: name, breaker, last_failure, .. } = host;
        let is_out = breaker != "closed";
        match self.hosts.get_mut(name) {
            Some(outage) if !outage.is_over && !is_out => {
                outage.is_over = true;
                Some(format!("{name} answers again"))
            }
            Some(outage) if !outage.is_over || now.duration_since(outage.since) < MINUTE => None,
            _ if is_out => {
                self.hosts.insert(name.clone(), Outage { is_over: false, since: now });
                let failure = last_failure.as_ref().map_or("", |failure| &failure.message);
                self.failure = Some(failure.to_owned());
                Some(format!("{name} is left out: {failure}"))
            }
            _ => None,
        }
    }

    /// The last failure, unless it was reported.
    fn failure(&mut self, progress: &Progress) -> Option<String> {
        let failures = progress.hosts.iter().filter_map(|host| host.last_failure.as_ref());
        let last = failures.max_by(|one, other| one.time.cmp(&other.time))?;
        if self.failure.as_ref() == Some(&last.message) {
            return None;
        }
        self.failure = Some(last.message.clone());
        Some(format!("the last request that failed: {}", last.message))
    }
}

#[cfg(test)]
mod tests {
    use outrigger_batch::LastFailure;

    use super::*;

    fn progress() -> Progress {
        let host = HostProgress {
            host: "a:1".to_owned(),
            breaker: "closed".to_owned(),
            ..HostProgress::default()
        };
        Progress { worker: "w".to_owned(), rows: 100, hosts: vec![host], ..Progress::default() }
    }

    #[test]
    fn there_is_a_line_at_the_start_and_each_minute() {
        let mut log = Log::default();
        let start = Instant::now();
        let mut at = |seconds, progress: &Progress| {
            log.lines(progress, start + Duration::from_secs(seconds))
        };
        assert_eq!(at(0, &Progress::default()).len(), 1);
        assert!(at(1, &Progress::default()).is_empty());
        let lines = at(2, &Progress { remarks: vec!["a remark".to_owned()], ..progress() });
        assert!(lines[0] == "a remark" && lines[1].starts_with("0 of 100 rows"), "{lines:?}");
        assert!(at(3, &progress()).is_empty() && at(61, &progress()).is_empty());
        let done = Progress { scored: 50, ..progress() };
        let lines = at(62, &done);
        assert!(lines.len() == 1 && lines[0].starts_with("50 of 100 rows"), "{lines:?}");
        assert!(at(63, &done).is_empty());
    }

    #[test]
    fn each_outage_has_lines() {
        let mut log = Log::default();
        let start = Instant::now();
        let mut at = |seconds, progress: &Progress| {
            log.lines(progress, start + Duration::from_secs(seconds))
        };
        at(0, &progress());
        let away = Progress { is_store_away: true, ..progress() };
        assert_eq!(at(1, &away), ["the store does not answer: the job waits"]);
        assert!(at(2, &away).is_empty());
        assert_eq!(at(3, &progress()), ["the store answers again"]);
        let mut out = progress();
        out.hosts[0].breaker = "open".to_owned();
        let message = "a:1: HTTP status 503: busy".to_owned();
        out.hosts[0].last_failure = Some(LastFailure { time: "t".to_owned(), message });
        assert_eq!(at(4, &out), ["a:1 is left out: a:1: HTTP status 503: busy"]);
        out.hosts[0].breaker = "half_open".to_owned();
        assert!(at(5, &out).is_empty());
        assert_eq!(at(6, &progress()), ["a:1 answers again"]);
        assert!(at(7, &out).is_empty(), "the next one within a minute is not reported");
        assert!(at(8, &progress()).is_empty());
        assert_eq!(at(65, &out)[0], "a:1 is left out: a:1: HTTP status 503: busy");
        let unknown = Progress { unresolved: vec!["b: no\naddress".to_owned()], ..progress() };
        assert!(at(66, &unknown).contains(&"b: no\\naddress".to_owned()), "it is one line");
        assert!(at(67, &unknown).is_empty());
    }

    #[test]
    fn a_failure_is_shown_once() {
        let mut log = Log::default();
        let start = Instant::now();
        let mut failing = progress();
        let message = "a:1: HTTP status 502".to_owned();
        failing.hosts[0].last_failure = Some(LastFailure { time: "t".to_owned(), message });
        let lines = log.lines(&failing, start);
        assert_eq!(lines[1], "the last request that failed: a:1: HTTP status 502");
        assert_eq!(log.lines(&failing, start + MINUTE).len(), 1);
    }
}
