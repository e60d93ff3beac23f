//! The reports of workers, by which others see that they are at work.
//!
//! The clocks of machines differ, so a worker is at work while its report changes. Only of a report
//! that is read for the first time does the time count: one of the last seconds is believed, and one
//! that another clock may have made in them is read a second time.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant, SystemTime},
};

use crate::{
    Error, Progress,
    commit::{self, WORKERS},
    lease::SKEW,
    store::Store,
};

/// The age of a report after which its worker counts as gone.
const SILENCE: Duration = Duration::from_secs(15);
/// The time in which the report of a worker that is at work changes: it reports each second.
const PAUSE: Duration = Duration::from_secs(3);

/// The reports that were read so far.
#[derive(Debug, Default)]
pub(crate) struct Reports(BTreeMap<String, Seen>);

/// A report of a worker.
#[derive(Debug)]
struct Seen {
    /// The time in it.
    time: String,
    /// The moment at which it was new; `None` if it was old when it was read first.
    changed: Option<Instant>,
}

impl Reports {
    /// The workers that are at work. A report that is damaged is left out. Blocks, for some seconds
    /// where the clock of a worker may differ.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn read(&mut self, store: &Store) -> Result<Vec<Progress>, Error> {
        let (workers, is_certain) = self.look(store, (Instant::now(), SystemTime::now()))?;
        if is_certain {
            return Ok(workers);
        }
        thread::sleep(PAUSE);
        Ok(self.look(store, (Instant::now(), SystemTime::now()))?.0)
    }

    /// The workers that are at work now. False if a further one may be.
    fn look(
        &mut self,
        store: &Store,
        (now, clock): (Instant, SystemTime),
    ) -> Result<(Vec<Progress>, bool), Error> {
        let failed = |error| Error::store(WORKERS, &error);
        let names = store.list(WORKERS).map_err(failed)?;
        self.0.retain(|name, _| names.contains(name));
        let mut workers = Vec::new();
        let mut is_certain = true;
        for name in names {
            let path = format!("{WORKERS}/{name}");
            let Some(report) = commit::read_if_whole::<Progress>(store, &path, false)? else {
                continue;
            };
            let Progress { time, .. } = &report;
            let seen = self.0.entry(name).or_insert_with(|| {
                let age = age(time, clock);
                is_certain &= age < SILENCE || age > SILENCE + SKEW;
                Seen { time: time.clone(), changed: (age < SILENCE).then_some(now) }
            });
            if seen.time != *time {
                *seen = Seen { time: time.clone(), changed: Some(now) };
            }
            if seen.changed.is_some_and(|changed| now.duration_since(changed) < SILENCE) {
                workers.push(report);
            }
        }
        Ok((workers, is_certain))
    }
}

/// The time between a report and this clock, either of which may be late.
fn age(report: &str, clock: SystemTime) -> Duration {
    let time = humantime::parse_rfc3339(report).unwrap_or(SystemTime::UNIX_EPOCH);
    clock.duration_since(time).unwrap_or_else(|error| error.duration())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_at_work_while_its_report_changes_whatever_its_clock_shows() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::local(directory.path());
        let start = Instant::now();
        let clock = SystemTime::now();
        let report = |time: SystemTime| {
            let time = humantime::format_rfc3339_millis(time).to_string();
            let report = Progress { worker: "a".to_owned(), time, ..Progress::default() };
            let json = commit::json(&report).expect("JSON");
            store.replace(&format!("{WORKERS}/a.json"), &json).expect("written");
        };
        let seconds = Duration::from_secs;
        let late = |skew: u64| clock - seconds(skew);
        for (theirs, is_near) in
            [(late(0), true), (late(299), false), (clock + seconds(299), false)]
        {
            let mut reports = Reports::default();
            let mut look = |after| {
                let looked = reports.look(&store, (start + seconds(after), clock + seconds(after)));
                let (workers, is_certain) = looked.expect("read");
                (workers.len(), is_certain)
            };
            report(theirs);
            assert_eq!(look(0), (usize::from(is_near), is_near), "{theirs:?}");
            report(theirs + seconds(3));
            assert_eq!(look(3), (1, true), "{theirs:?}: it has changed");
            assert_eq!((look(17), look(18)), ((1, true), (0, true)), "{theirs:?}: it has ended");
        }
        report(late(316));
        let looked = Reports::default().look(&store, (start, clock)).expect("read");
        assert!(looked.0.is_empty() && looked.1, "no clock is so late");
    }
}
